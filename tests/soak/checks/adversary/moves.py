"""Moves with files as a whole, and with their bytes."""

from __future__ import annotations

import os
import time

from tests.soak.checks.adversary.player import Player


def delete(player: Player) -> str:
    """Delete a file."""
    path = player.any_file()
    player.remove(path)
    return path


def rename(player: Player) -> str:
    """Give a data file another name."""
    path = player.random.choice(player.data())
    new = player.name_beside(path)
    data, then = player.read(path), player.time(path)
    if player.random.random() < 0.5:
        player.write(new, data, then)
    else:
        os.replace(player.folder / path, player.make_room(new))
    return f"{path} as {new}"


def exchange(player: Player) -> str:
    """Exchange two data files, perhaps made equal in size, perhaps with their times."""
    files = player.data()
    one, other = player.random.sample(files, 2)
    contents = [player.read(one), player.read(other)]
    if player.random.random() < 0.5:
        size = max(map(len, contents))
        contents = [padded(data, size) for data in contents]
    times = [player.time(one), player.time(other)]
    if player.random.random() < 0.2:
        times = [None, None]
    if player.random.random() < 0.5 and len(contents[0]) == len(contents[1]):
        third = player.folder / "_third"  # by their names only: inodes stay
        os.rename(player.folder / one, third)
        os.rename(player.folder / other, player.folder / one)
        os.rename(third, player.folder / other)
        player.set_time(one, times[0])
        player.set_time(other, times[1])
    else:
        player.write(one, contents[1], times[0])
        player.write(other, contents[0], times[1])
    return f"{one} and {other}"


def replace(player: Player) -> str:
    """Put any authentic file in the place of another one, with its size and time."""
    path = player.random.choice(player.data())
    old, then = player.read(path), player.time(path)
    player.write(path, padded(player.any_old(), len(old)), then)
    return path


def roll_back(player: Player) -> str:
    """Put an old version of a file back, perhaps with the size and time of the newer one."""
    several = [path for path, versions in player.table.archive.items() if len(versions) > 1]
    path = player.random.choice(several) if several and player.random.random() < 0.7 \
        else player.random.choice(list(player.table.archive))
    data, then = player.old(path), player.time(path)
    if path.endswith(".parquet") and player.random.random() < 0.5:
        data = padded(data, len(player.read(path)))
    player.write(path, data, then if player.random.random() < 0.8 else None)
    return path


def roll_index_back(player: Player) -> str:
    """Put all old files of the index back; perhaps without the newer manifests."""
    for path in [one for one in player.table.archive if one.startswith("_index/")]:
        if not (player.folder / path).exists():
            player.write(path, player.table.archive[path][0])
    manifests = sorted(player.files(".manifest"))
    kept = player.random.randrange(1, len(manifests) + 1)
    for path in manifests[kept:]:
        player.remove(path)
    return f"{kept} of {len(manifests)} manifests"


def roll_all_back(player: Player) -> str:
    """Put the first version of everything back."""
    for path, versions in player.table.archive.items():
        player.write(path, versions[0], player.time(path))
    return ""


def renumber_manifest(player: Player) -> str:
    """Give a manifest, of any version, another number."""
    number = player.random.choice([0, 1, 2, 50, 999_999_999_999])
    new = f"_index/ssn/{number:012}.manifest"
    player.write(new, player.any_old(".manifest"))
    return new


def truncate(player: Player) -> str:
    """Cut a file."""
    path = player.any_file()
    data, then = player.read(path), player.time(path)
    size = player.random.choice([0, 4, len(data) // 2, max(0, len(data) - 8),
                                 player.random.randrange(len(data) + 1)])
    player.write(path, data[:size], then)
    return f"{path} to {size}"


def pad(player: Player) -> str:
    """Add bytes at the end, or before the footer."""
    path = player.any_file()
    data, then = player.read(path), player.time(path)
    more = player.random.choice([1, 8, 1000])
    player.write(path, padded(data, len(data) + more) if player.random.random() < 0.5
                 else data + bytes(more), then)
    return path


def flip(player: Player) -> str:
    """Change some bytes."""
    path = player.any_file()
    data, then = bytearray(player.read(path)), player.time(path)
    for _ in range(player.random.choice([1, 1, 4])):
        if data:
            data[player.random.randrange(len(data))] ^= player.random.randrange(1, 256)
    player.write(path, bytes(data), then)
    return path


def retime(player: Player) -> str:
    """Set the time of a file."""
    path = player.any_file()
    other = player.any_file()
    player.set_time(path, player.random.choice([
        0, player.time(other), time.time_ns() + 10**15, player.time(path)]))
    return path


def hard_link(player: Player) -> str:
    """Give a file a second name."""
    path = player.any_file()
    new = player.name_beside(path)
    os.link(player.folder / path, player.make_room(new))
    return f"{path} as {new}"


def symbolic_link(player: Player) -> str:
    """Make a link: to a file, a folder, nothing, or itself."""
    path = player.any_file()
    new = player.random.choice([player.name_beside(path), "sub", "day=3", "_index", "_index/ssn",
                                "_staging", "_staging/generation", path])
    outside = player.outside / "out.parquet"
    outside.write_bytes(player.any_old())
    target = player.random.choice([
        player.folder / path, outside, player.folder, player.folder / "_index",
        player.folder / "nowhere", player.folder / new, "/dev/null", "/dev/zero", player.outside])
    full = player.make_room(new)
    player.remove(new)
    os.symlink(target, full)
    return f"{new} -> {target}"


def padded(data: bytes, size: int) -> bytes:
    """Return a Parquet file with so many bytes: those that it lacks are before its footer."""
    missing = size - len(data)
    if missing <= 0 or len(data) < 12:
        return data
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    if start < 4:
        return data + bytes(missing)
    return data[:start] + bytes(missing) + data[start:]
