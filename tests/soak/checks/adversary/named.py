"""Attacks that have once succeeded, each as moves that depend on no chance."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

from tests.soak.checks.adversary.guard import bounded
from tests.soak.checks.adversary.judge import Judge, Question
from tests.soak.checks.adversary.moves import padded
from tests.soak.checks.adversary.planting import forge_index, plant_bomb
from tests.soak.checks.adversary.player import Player
from tests.soak.checks.adversary.splicing import modules, spliced_with
from tests.soak.checks.adversary.table import PERSONS, Table

_SEED = 2  # with which the person who is erased has a row in one of the files
_GENERATION = "_staging/generation"


def usual_table(folder: Path) -> Table:
    """Write a table of two jobs, from which a person was erased."""
    return Table.write(folder, random.Random(_SEED), ["append", "append", "erase"],
                       is_indexed=True, is_partitioned=False, is_job=True, is_signed=False,
                       double_wrapping=False, compression="none", has_plaintext=False,
                       row_group_size=1, max_rows_per_file=100)


def attack(table: Table, name: str, outside: Path) -> None:
    """Attack a table as its owner left it, and ask all readers."""
    table.restore()
    judge = Judge(table)
    ATTACKS[name](Player(table, judge, outside, random.Random(name)))
    for persons in (PERSONS[:1], PERSONS[1:]):
        with bounded(table.folder):
            judge.judge(Question.complete("column and key", persons))


def _exchange(player: Player) -> None:
    """Exchange two files that were made equal in size before the index covered them."""
    one, other = player.data()[:2]
    _of_equal_size(player, one, other)
    times = player.time(one), player.time(other)
    third = player.folder / "_third"
    os.rename(player.folder / one, third)
    os.rename(player.folder / other, player.folder / one)
    os.rename(third, player.folder / other)
    player.set_time(one, times[0])
    player.set_time(other, times[1])


def _of_equal_size(player: Player, *paths: str) -> None:
    contents = [player.read(path) for path in paths]
    for path, data in zip(paths, contents, strict=True):
        time = player.time(path)
        (player.folder / path).write_bytes(padded(data, max(map(len, contents))))
        player.set_time(path, time)
    player.table.update()


def _replace(player: Player) -> None:
    """Replace a file by a smaller authentic one, padded before its footer."""
    smaller, larger = sorted(player.data(), key=lambda path: len(player.read(path)))[:2]
    time, size = player.time(larger), len(player.read(larger))
    (player.folder / larger).write_bytes(padded(player.read(smaller), size))
    player.set_time(larger, time)


def _splice(*kinds: str) -> Callable[[Player], None]:
    def splice(player: Player) -> None:
        """Put modules of the file from which rows were erased into the one that replaced it."""
        [old] = [path for path in player.table.archive
                 if path.endswith(".parquet") and path not in player.table.files]
        new = player.data()[-1]
        source, target = player.table.archive[old][0], player.read(new)
        own = modules(target)
        spliced, done = spliced_with(target, source, {
            name: name for name in modules(source) if name in own and name[2] in kinds})
        assert done
        player.write(new, spliced, player.time(new))
    return splice


def _pipe(path: str) -> Callable[[Player], None]:
    def plant(player: Player) -> None:
        for one in player.files(".seg") if path == ".seg" else [path]:
            full = player.make_room(one)
            full.unlink(missing_ok=True)
            os.mkfifo(full)
    return plant


def _sparse(size: int, *paths: str) -> Callable[[Player], None]:
    def plant(player: Player) -> None:
        for path in paths:
            player.write(path, b"")
            os.truncate(player.folder / path, size)
    return plant


def _file_instead_of_folder(name: str) -> Callable[[Player], None]:
    def plant(player: Player) -> None:
        player.remove(name)
        (player.folder / name).write_bytes(b"x")
    return plant


def _file_instead_of_a_column(player: Player) -> None:
    player.make_room("_index/note/x")  # else there is no index at all
    _file_instead_of_folder("_index/ssn")(player)


def _folder_instead_of_file(player: Player) -> None:
    player.remove(_GENERATION)
    player.make_room(f"{_GENERATION}/x")


ATTACKS: dict[str, Callable[[Player], object]] = {
    "an index without encryption": lambda player: forge_index(player, None),
    "an index that lists a hidden file often":
        lambda player: forge_index(player, None, "_h/p.parquet"),
    "an index under another key": lambda player: forge_index(player, "other"),
    "an index under another key that lists a hidden file often":
        lambda player: forge_index(player, "other", "_h/p.parquet"),
    "an index that claims a key": lambda player: forge_index(player, "pii"),
    "two files exchanged": _exchange,
    "a file replaced by a padded one": _replace,
    "old pages": _splice("page"),
    "old filters": _splice("filter"),
    "old pages and filters": _splice("page", "filter"),
    "a pipe as generation": _pipe(_GENERATION),
    "a pipe as a segment": _pipe(".seg"),
    "a huge generation": _sparse(7 << 30, _GENERATION),
    "many huge manifests": _sparse(250 << 20, *(f"_index/ssn/{number:012}.manifest"
                                                for number in range(90, 390))),
    "a bomb in a segment": plant_bomb,
    "a file named _index": _file_instead_of_folder("_index"),
    "a file named as a column of the index": _file_instead_of_a_column,
    "a file named _staging": _file_instead_of_folder("_staging"),
    "a folder named generation": _folder_instead_of_file,
}
