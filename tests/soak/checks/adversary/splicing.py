"""Moves with modules: those of an old version, or of another file, in the place of others."""

from __future__ import annotations

from functools import lru_cache

import secure_bloom
from secure_bloom.errors import SecureBloomError
from tests.soak.checks.adversary.player import Player
from tests.soak.checks.adversary.table import OWNER

#: row group, column, kind and number of a module
Name = tuple[int, str, str, int]


def splice(player: Player) -> str:
    """Put modules of another version at their own places, where they have the same length."""
    path, target, source = _versions(player)
    names = [name for name in modules(source) if name in modules(target)]
    kind = player.random.choice(["one", "column", "filters", "pages", "all"])
    one = player.random.choice(names)
    chosen = [name for name in names if kind == "all" or name == one
              or (kind == "column" and name[:2] == one[:2])
              or (kind == "filters" and name[2] == "filter")
              or (kind == "pages" and name[2] == "page")]
    spliced, done = spliced_with(target, source, {name: name for name in chosen})
    player.write(path, spliced, player.time(path))
    return f"{kind}: {done} modules of {path}"


def move_modules(player: Player) -> str:
    """Put a module at the place of another one, of any row group, column and kind."""
    path, target, source = _versions(player)
    pairs = [(one, other) for one in modules(target) for other in modules(source)
             if _length(modules(target)[one]) == _length(modules(source)[other])]
    chosen = dict(player.random.sample(pairs, min(len(pairs), player.random.choice([1, 4]))))
    spliced, done = spliced_with(target, source, chosen)
    player.write(path, spliced, player.time(path))
    return f"{done} modules of {path}: {chosen}"


def splice_footer(player: Player) -> str:
    """Put the footer of another version behind a body; or a body before a footer."""
    path, target, source = _versions(player)
    if player.random.random() < 0.5:
        target, source = source, target
    start, other = _footer(target), _footer(source)
    body = target[:start]
    if len(body) < other:
        body += bytes(other - len(body))
    player.write(path, body + source[other:], player.time(path))
    return path


def _versions(player: Player) -> tuple[str, bytes, bytes]:
    path = player.random.choice([path for path in player.data() if path in player.table.archive])
    target = player.read(path)
    if target not in player.table.archive[path]:
        target = player.table.archive[path][-1]
    older = [data for data in player.table.archive[path] if data != target]
    return path, target, player.random.choice(older) if older and player.random.random() < 0.8 \
        else player.any_old()


def _footer(data: bytes) -> int:
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


def _length(place: tuple[int, int]) -> int:
    return place[1] - place[0]


def spliced_with(target: bytes, source: bytes, chosen: dict[Name, Name]) -> tuple[bytes, int]:
    """Return a file with some modules of another one, and how many have the same length."""
    data, done = bytearray(target), 0
    for name, other in chosen.items():
        start, end = modules(target)[name]
        its_start, its_end = modules(source)[other]
        if end - start == its_end - its_start:
            data[start:end] = source[its_start:its_end]
            done += 1
    return bytes(data), done


@lru_cache(maxsize=256)
def modules(data: bytes) -> dict[Name, tuple[int, int]]:
    """Return where the modules of a file are: pages with their headers, and filters."""
    found: dict[Name, tuple[int, int]] = {}
    try:
        with secure_bloom.ParquetFile(data, OWNER) as file:
            for group in file.footer.row_groups:
                for chunk in group:
                    name = chunk.row_group, chunk.column.path
                    if chunk.pages:
                        found |= _parts(data, (*name, "page"), *chunk.pages, chunk.encryption)
                    if chunk.bloom_filter and chunk.bloom_filter[1]:
                        found |= _parts(data, (*name, "filter"), *chunk.bloom_filter,
                                        chunk.encryption)
    except SecureBloomError:  # its key material is in another file
        pass
    return found or {(0, "", "all", 0): (0, len(data))}


def _parts(data: bytes, name: tuple[int, str, str], start: int, length: int,
           encryption: str | None) -> dict[Name, tuple[int, int]]:
    end = start + length
    if encryption is None:
        return {(*name, 0): (start, end)}
    found: dict[Name, tuple[int, int]] = {}
    while start < end:
        size = 4 + int.from_bytes(data[start:start + 4], "little")
        found[*name, len(found)] = start, start + size
        start += size
    return found
