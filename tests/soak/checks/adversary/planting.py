"""Moves that plant what the owner has never written."""

from __future__ import annotations

import io
import json
import os
import struct
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.fs as pa_fs
from xxhash import xxh64_intdigest

import secure_bloom
from secure_bloom.errors import SecureBloomError
from secure_bloom.index.file_entry import FileEntry
from secure_bloom.index.file_table import FileDirectory, FileTable
from secure_bloom.index.geometry import Geometry, pack, place_of, sorted_pairs
from secure_bloom.index.manifest import Body, Manifest
from secure_bloom.index.sealing import IndexKey
from secure_bloom.index.segment_writer import write_segment
from secure_bloom.index.stamps import stamp
from secure_bloom.keys.cache import CachedKms
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.sbbf.column_type import ColumnType
from tests.forging import plaintext_file, with_fewer_row_groups
from tests.soak.checks.adversary.moves import padded
from tests.soak.checks.adversary.player import Player
from tests.soak.checks.adversary.table import OWNER, PERSONS, PLAYER, digest, groups_of

_LOCAL = pa_fs.LocalFileSystem()
_INDEX = "_index/ssn"
_HUGE = 7 << 30  # bytes of a sparse file
_MANY = 3000  # times that a hidden file is listed


# --- files ---------------------------------------------------------------------------------------

def plant_plaintext(player: Player) -> str:
    """Plant a file without encryption, whose filters deny all."""
    return _plant(player, plaintext_file(_rows(player), ["ssn"]))


def plant_under_other_key(player: Player) -> str:
    """Plant a file under the player's own keys."""
    return _plant(player, _own_file(player))


def plant_own_footer(player: Player) -> str:
    """Write another footer around some row groups of a file, under the player's own key."""
    path = player.random.choice(player.data())
    data, time = player.read(path), player.time(path)
    groups = player.table.versions.get(digest(data), ())
    if len(groups) < 2 or data[-4:] != b"PARE":
        return "nothing"
    count = player.random.randrange(1, len(groups))
    player.judge.refooted.add(groups[:count])
    player.write(path, padded(with_fewer_row_groups(data, OWNER, _own_file(player), PLAYER, count),
                              len(data)), time)
    return f"{count} of {len(groups)} row groups of {path}"


def _own_file(player: Player) -> bytes:
    sink = io.BytesIO()
    secure_bloom.write_table(_rows(player), sink, keys=PLAYER, bloom_filters=["ssn"],
                             encryption=secure_bloom.EncryptionConfiguration(
                                 "other", uniform_encryption=True, double_wrapping=False))
    with secure_bloom.ParquetFile(sink.getvalue(), PLAYER) as file:
        player.judge.planted.add(groups_of(file))
    return sink.getvalue()


def _rows(player: Player) -> pa.Table:
    number = player.random.randrange(10**6, 10**9)
    return pa.table({"ssn": [player.random.choice(PERSONS)], "balance": [number],
                     "note": ["planted"], "city": ["Evil"]})


def _plant(player: Player, data: bytes) -> str:
    path = player.random.choice(player.data())
    then = player.time(path)
    if player.random.random() < 0.5:
        data = padded(data, len(player.read(path)))
    else:
        path = player.name_beside(path)
    player.write(path, data, then)
    return path


# --- indexes -------------------------------------------------------------------------------------

def plant_index(player: Player) -> str:
    """Plant an index that covers all files, and has no value, or all in wrong rows."""
    master_key = player.random.choice([None, None, "other", "other", "pii"])
    hidden = player.random.choice(["", "", "_h/p.parquet", "sub/.p.parquet"])
    column = player.random.choice(["ssn", "ssn", "ssn", "note"])
    return forge_index(player, master_key, hidden, column)


def forge_index(player: Player, master_key: str | None, hidden: str = "",
                column: str = "ssn") -> str:
    """Publish an index under a key of the player's, as the newest version.

    It covers the files of the table, whose footers the player is assumed to know. If ``hidden`` is
    the name of a file, that is planted without encryption, and listed very often.
    """
    entries = [_entry(player, path) for path in player.data()]
    if hidden:
        player.write(hidden, plaintext_file(_rows(player), ["ssn"]))
        entry = _entry(player, hidden)
        entries += [] if entry is None else [
            entry._replace(path="./" * (number + 1) + hidden) for number in range(_MANY)]
    found = [entry for entry in entries if entry is not None]
    kms = CachedKms(PLAYER)
    # A key that the player does not have is only claimed.
    manifest = Manifest.new(column, master_key and "other", kms)
    folder = player.make_room(f"_index/{column}/x").parent
    groups = sum(entry.row_groups for entry in found)
    geometry = Geometry.of(len(PERSONS) * groups, groups, has_ranges=True)
    pairs = np.empty(0, np.uint64) if player.random.random() < 0.5 \
        else geometry.repacked(_pairs(player, manifest.key, groups))
    info = write_segment(_LOCAL, str(folder), manifest.key,
                         ColumnType("BYTE_ARRAY", 0, pa.string()), geometry,
                         [sorted_pairs([pairs], are_sorted=False)], 0, FileTable.of(found))
    _publish(player, manifest, Body(column, (info,)), master_key)
    return f"of {column} under {master_key}, {len(found)} files"


def _pairs(player: Player, key: IndexKey, groups: int) -> np.ndarray:
    """Return a pair for each person and row group, each in a wrong range of rows."""
    hashes = np.array([xxh64_intdigest(person.encode()) for person in PERSONS], np.uint64)
    ranges = player.random.choices(range(32, 64), k=len(PERSONS) * groups)
    return pack(np.repeat(key.fingerprints(hashes), groups),
                place_of(np.tile(np.arange(groups), len(PERSONS)), np.array(ranges, np.uint64)))


def _entry(player: Player, path: str) -> FileEntry | None:
    full = str(player.folder / path)
    try:
        [listed] = _LOCAL.get_file_info([full])
        with OpenFile(full, OWNER) as file:
            return FileEntry.of(file, path, stamp(_LOCAL, listed))
    except (SecureBloomError, OSError):  # a damaged file, which other moves have made
        return None


def _publish(player: Player, manifest: Manifest, body: Body, master_key: str | None) -> None:
    version = max([int(os.path.basename(path)[:12]) for path in player.files(".manifest")
                   if os.path.basename(path)[:12].isdecimal()], default=0) + 1
    data = manifest.next(body, version).to_bytes()
    if master_key == "pii":
        data = data.replace(b'\\"other\\"', b'\\"pii\\"')
    player.write(f"_index/{body.column}/{version:012}.manifest", data)


def plant_bomb(player: Player) -> str:
    """Plant an index with a segment that is small, and huge when it is decompressed."""
    master_key = player.random.choice([None, "other"])
    manifest = Manifest.new("ssn", master_key, CachedKms(PLAYER))
    player.make_room(f"{_INDEX}/x")

    class Bomb(FileDirectory):
        def to_bytes(self) -> bytes:
            return _bomb()

    files = FileTable.of([])
    files.directory = Bomb(*files.directory)
    info = write_segment(_LOCAL, str(player.folder / _INDEX), manifest.key,
                         ColumnType("BYTE_ARRAY", 0, pa.string()), Geometry.of(0, 1),
                         [np.empty(0, np.uint64)], 0, files)
    _publish(player, manifest, Body("ssn", (info,)), master_key)
    return f"under {master_key}"


@lru_cache
def _bomb() -> bytes:
    """Return a file table of 1 GB: zeros, which take a few KB when they are compressed."""
    zeros = pa.py_buffer(np.zeros(2**30, np.uint8))
    return struct.pack("<q", zeros.size) + pa.Codec("zstd").compress(zeros, asbytes=True)


def plant_garbage(player: Player) -> str:
    """Plant bytes that mean nothing, or much more than they seem, where metadata is expected."""
    path = _place_of_metadata(player)
    if path.endswith(".manifest") and player.random.random() < 0.7:
        path = f"{_INDEX}/{player.random.choice([7, 10**11]):012}.manifest"
    kind, data = player.random.choice([
        ("nothing", b""), ("zeros", bytes(1000)), ("arrays", b"[" + b"[]," * 300_000 + b"[]]"),
        ("deep", b"[" * 100_000), ("object", b"{}"),
        ("deep object", b'{"version": 1, "files": ' + b'[' * 5000 + b']' * 5000 + b"}"),
        ("record", json.dumps({"version": 1, "files": [], "replaced": {}}).encode()),
        ("number", b'{"version": ' + b"9" * 10_000 + b"}"), ("text", b"\xff\xfe")])
    player.write(path, data)
    return f"{kind} as {path}"


def plant_sparse(player: Player) -> str:
    """Plant huge files that have no bytes on the disk."""
    path = _place_of_metadata(player)
    count = 1
    if path.endswith(".manifest"):
        count = player.random.choice([1, 30])
    for number in range(count):
        one = path if count == 1 else f"{_INDEX}/{number + 1000:012}.manifest"
        player.write(one, b"")
        os.truncate(player.folder / one, player.random.choice([_HUGE, 200 << 20]))
    return f"{path}, {count}"


def plant_fifo(player: Player) -> str:
    """Plant a pipe, from which reading never ends."""
    path = _place_of_metadata(player)
    full = player.make_room(path)
    player.remove(path)
    os.mkfifo(full)
    return path


def plant_kind(player: Player) -> str:
    """Put a file where a folder is expected, or a folder where a file is."""
    path = player.random.choice(["_index", _INDEX, "_staging", "_staging/generation", "x.parquet",
                                 f"{_INDEX}/000000000090.manifest", *player.data()[:1],
                                 *player.files(".seg")[:1]])
    player.remove(path)
    full = player.make_room(path)
    if path in ("_index", _INDEX, "_staging"):
        full.write_bytes(b"x")
        return f"file {path}"
    full.mkdir()
    return f"folder {path}"


def plant_folder(player: Player) -> str:
    """Plant a folder with an odd name, perhaps with a file."""
    name = player.random.choice([
        "_index/ssn%2F..", "_index/%", "_index/balance", "_index/no%20such", "_index/ssn/sub",
        "_index/SSN", "_index/.hidden", "_staging/" + "c" * 32, "ssn=078-05-01", "SSN=x",
        "balance=1", "a=b=c", "=", "day=__HIVE_DEFAULT_PARTITION__", "_delta_log", ".hoodie",
        "metadata", "_spark_metadata", "x" * 200, "caf\u00e9=%", "sub/_staging/" + "d" * 32,
        os.fsdecode(b"\xff\xfe")])
    full = player.make_room(f"{name}/x")
    if player.random.random() < 0.6:
        player.write(f"{name}/x.parquet", player.any_old())
    return f"{name!r} {full.exists()}"


def plant_marker(player: Player) -> str:
    """Plant a marker of a job: it has started, committed, or waits for a file."""
    path = player.random.choice(player.data())
    job = os.path.basename(path).split("-")[2:3] or ["e" * 32]
    kind = player.random.choice(["started", "pending", "committed", "given_up"])
    folder = f"_staging/{job[0]}"
    if kind == "pending":
        player.write(f"{folder}/pending/{os.path.basename(path)}", b"")
    else:
        files = player.random.choice([[], [path], ["x.parquet"], ["../x.parquet"], [1]])
        replaced = player.random.choice([{}, {path: [1, 2]}, {"x": None}])
        player.write(f"{folder}/{kind}", json.dumps({
            "version": 1, "files": files, "replaced": replaced}).encode()
            if kind == "committed" else b"")
    return f"{kind} for {path}"


def _place_of_metadata(player: Player) -> str:
    return player.random.choice([
        "_staging/generation", "_staging/" + "e" * 32 + "/committed",
        "_staging/" + "e" * 32 + "/started", f"{_INDEX}/000000000070.manifest",
        f"{_INDEX}/000000000071.manifest", "x.parquet", "_delta_log/00000000000000000000.json",
        *player.files(".seg")[:2], *player.files(".manifest")[-1:],
        "_KEY_MATERIAL_FOR_x.parquet.json", "_SUCCESS", "_metadata",
        *[path for path in player.files(".json") if "_KEY_MATERIAL" in path][:1],
        *player.data()[:1]])
