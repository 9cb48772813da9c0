"""Ours, parquet-java and Arrow C++ agree on files of each: values, filters, headers."""

from __future__ import annotations

import functools
import itertools
import os
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import secure_bloom
from secure_bloom.errors import FormatError, UnsupportedError
from secure_bloom.parquet import thrift
from secure_bloom.parquet.header import decode_header, encode_header
from secure_bloom.parquet.thrift import Struct
from tests.modes import MODES
from tests.peers import adapter, examples
from tests.peers.arrow_cpp import ArrowCpp
from tests.peers.keys import Keys, KeyTools
from tests.peers.parquet_java import AnyKeys, Bloom, ParquetJava
from tests.peers.process import LineProcess
from tests.peers.records import FilterRecord
from tests.soak.check import Case, Check
from tests.soak.generators import column_keys, random_options

_FILES = 10  # a case
_HEADERS = 3  # a case
_MOST_CHANGES = 3  # of a header
_JAVA_CODECS = "UNCOMPRESSED", "SNAPPY", "ZSTD", "GZIP"

# One a process; they end when its pipes do.
_java = functools.cache(ParquetJava)
_arrow = functools.cache(ArrowCpp)


@functools.cache
def _header_reader(name: str) -> LineProcess:
    return LineProcess(adapter.command(name))


def _try(case: Case) -> None:
    for number in range(_FILES):
        origin = case.random.choice(list(_WRITERS))
        path = case.folder / f"{number}.parquet"
        _WRITERS[origin](case, path)
        case.tried += 1
        case.counts[f"files of {origin}"] += 1
    for _ in range(_HEADERS):
        _compare_headers(case, _random_header(case))


# --- files of each -------------------------------------------------------------------------------

def _ours(case: Case, path: Path) -> None:
    mode, columns = case.random.choice(MODES), _columns(case)
    table = pa.table({name: pa.array(values, _ARROW[kind])
                      for name, (kind, values) in columns.items()})
    options = random_options(case)
    mode.write(table, path, column_keys(case, table), bloom_filters=True,
               row_group_size=case.random.choice([19, 50, 1000]), durable=False, **options)
    _make_old(path)
    if mode.is_encrypted and options["data_page_version"] == "2.0":
        case.counts["data pages V2, not read by parquet-java"] += 1  # it does not expect Arrow's
    else:
        rows, _ = _java().read(path, mode.java_keys)
        for name, (kind, values) in columns.items():
            _assert_equal(kind, [row[name] for row in rows], values, f"{name} by parquet-java")
    _compare(case, path, mode.keys, mode.java_keys, mode.explicit_keys(path), columns)


def _parquet_java(case: Case, path: Path) -> None:
    mode, columns = case.random.choice(list(examples.MODES)), _columns(case, more=["id", "name"])
    keys = examples.MODES[mode]
    if isinstance(keys, Keys):  # one of their columns is not in these files
        keys = replace(keys, **{field: {name: key for name, key in getattr(keys, field).items()
                                        if name in columns}
                                for field in ("column_keys", "column_key_metadata")})
    schema = "message m { " + " ".join(
        f"optional {_JAVA[kind]} {name}{' (STRING)' if kind == 'text' else ''};"
        for name, (kind, _) in columns.items()) + " }"
    size = len(next(iter(columns.values()))[1])
    rows = [{name: _physical(kind, values[row]) for name, (kind, values) in columns.items()}
            for row in range(size)]
    page_version = case.random.choice([1, 2])
    bloom = {name: Bloom(case.random.choice([None, 1, size + 1]), case.random.choice([None, 0.001]))
             for name in columns}
    _java().write(path, schema, rows, keys=keys, bloom=bloom,
                  bloom_max_bytes=case.random.choice([32, 1024, 4096]),
                  bloom_adaptive=case.random.random() < 0.3,
                  row_group_rows=case.random.choice([19, 50, 1000]),
                  dictionary=case.random.random() < 0.5, codec=case.random.choice(_JAVA_CODECS),
                  page_version=page_version)
    _make_old(path)
    ours = _our_keys(keys)
    if keys and page_version == 2:
        case.counts["data pages V2 of parquet-java, not read"] += 1
    else:
        table = secure_bloom.read_table(path, ours)
        for name, (kind, values) in columns.items():
            _assert_equal(kind, table[name].to_pylist(), values, f"{name} of parquet-java")
    theirs = _java().data_keys(path, keys) if isinstance(keys, KeyTools) else keys
    _compare(case, path, ours, keys, theirs, columns)


def _arrow_cpp(case: Case, path: Path) -> None:
    columns = _columns(case)
    table = pa.table({name: pa.array(values, _ARROW[kind])
                      for name, (kind, values) in columns.items()})
    fpp = case.random.choice([0.1, 0.01, 0.0001])
    pq.write_table(table, path, row_group_size=case.random.choice([19, 50, 1000]),
                   bloom_filter_options={name: {"ndv": case.random.choice([1, 500]), "fpp": fpp}
                                         for name in columns}, **random_options(case))
    _make_old(path)
    ours = secure_bloom.read_table(path)
    for name, (kind, values) in columns.items():
        _assert_equal(kind, ours[name].to_pylist(), values, f"{name} of Arrow C++")
    _compare(case, path, None, None, None, columns)


_WRITERS: dict[str, Callable[[Case, Path], None]] = {
    "ours": _ours, "parquet-java": _parquet_java, "Arrow C++": _arrow_cpp}


def _make_old(path: Path) -> None:
    """Set its time back: reading a file of this moment waits until the clock has moved on."""
    os.utime(path, (0, 0))


def _our_keys(keys: AnyKeys) -> Any:
    if isinstance(keys, KeyTools):
        return secure_bloom.keys.InMemoryKms(keys.master_keys)
    if keys is None:
        return None
    own = {column: key for column, key in keys.column_keys.items() if key is not None}
    return secure_bloom.ExplicitKeys(keys.footer_key, own, aad_prefix=keys.aad_prefix)


def _compare(case: Case, path: Path, ours: Any, java: AnyKeys, arrow: Keys | None,
             columns: dict[str, tuple[str, list]]) -> None:
    """Compare all filters, and the answers for values that are there and others."""
    with secure_bloom.ParquetFile(path, ours) as file:
        filters = [FilterRecord(one.row_group, one.column, one.offset, one.length, one.num_bytes,
                                bytes(file.read_bloom_filter(one.row_group, one.column).bitset))
                   for one in file.bloom_filters]
        assert filters == _java().filters(path, java), "filters by parquet-java"
        assert filters == _arrow().filters(path, arrow), "filters by Arrow C++"
        case.counts["filters"] += len(filters)
        for name, (kind, values) in columns.items():
            # Ours asks for both zeros at once, since they are equal.
            asked = [value for value in values[:50] + _VALUES[kind](case, 50)
                     if value is not None and (value != 0 or kind not in _PLAIN)]
            answers = file.might_contain(name, pa.array(asked, _ARROW[kind])).tolist()
            plain = [_physical(kind, value) for value in asked]
            for peer, probed in (("parquet-java", _java().probe(path, java, name, plain)),
                                 ("Arrow C++", _arrow().probe(path, arrow, name, plain))):
                theirs = [[True] * len(asked) if one is None else one for one in probed]
                assert answers == theirs, f"{name} by {peer}"
            case.counts["answers"] += len(answers) * len(asked)


# --- values, as Python has them ------------------------------------------------------------------

_SPECIAL_FLOATS = [0.0, -0.0, float("inf"), float("-inf"), 5e-324]


def _ints(bits: int) -> Callable[[Case, int], list]:
    def values(case: Case, size: int) -> list:
        high = case.random.choice([5, 10**4, 2**(bits - 1) - 1])
        return [case.random.randint(-high - 1, high) for _ in range(size)]
    return values


def _doubles(case: Case, size: int) -> list:
    return [case.random.choice(_SPECIAL_FLOATS) if case.random.random() < 0.1
            else case.random.gauss(0, 1e6) for _ in range(size)]


def _singles(case: Case, size: int) -> list:
    return [float(np.float32(value)) for value in _doubles(case, size)]


def _bytes(case: Case, size: int) -> list:
    return [case.random.randbytes(case.random.choice([0, 1, 7, 31, 32, 33, 100]))
            for _ in range(size)]


def _texts(case: Case, size: int) -> list:
    return [case.random.choice("aäß😀") * case.random.randrange(20) + str(case.random.randrange(99))
            for _ in range(size)]


def _codes(case: Case, size: int) -> list:
    return [case.random.randbytes(5) for _ in range(size)]


_VALUES = {"int": _ints(32), "long": _ints(64), "float": _singles, "double": _doubles,
           "bytes": _bytes, "text": _texts, "code": _codes}
_ARROW = {"int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
          "bytes": pa.binary(), "text": pa.string(), "code": pa.binary(5)}
_JAVA = {"int": "int32", "long": "int64", "float": "float", "double": "double",
         "bytes": "binary", "text": "binary", "code": "fixed_len_byte_array(5)"}
_PLAIN = {"float": "<f", "double": "<d"}


def _columns(case: Case, more: list[str] | None = None) -> dict[str, tuple[str, list]]:
    """Return columns with nulls, each with its kind."""
    size = case.random.choice([1, 20, 100])
    columns = {}
    for name in [*(more or []), *(f"c{number}" for number in range(case.random.randrange(1, 5)))]:
        kind, nulls = case.random.choice(list(_VALUES)), case.random.choice([0, 0.1, 1])
        columns[name] = kind, [None if case.random.random() < nulls else value
                               for value in _VALUES[kind](case, size)]
    return columns


def _physical(kind: str, value: Any) -> Any:
    """Return a value as the peers take it: floats as their plain encoding, which is exact."""
    return struct.pack(_PLAIN[kind], value) if kind in _PLAIN and value is not None else value


def _assert_equal(kind: str, found: list, values: list, what: str) -> None:
    def bits(value: Any) -> Any:
        value = value.encode() if isinstance(value, str) else value
        return _physical(kind, value)
    assert list(map(bits, found)) == list(map(bits, values)), what


# --- headers -------------------------------------------------------------------------------------

def _random_header(case: Case) -> bytes:
    """Return a header with some changes, and no more bitset than a few blocks need."""
    data = bytearray(encode_header(32 * case.random.choice([1, 2, 3, 1000])))
    for _ in range(case.random.choice([0, 1, 1, 1, 2, _MOST_CHANGES])):
        place, how = case.random.randrange(len(data)), case.random.randrange(3)
        if how == 0:
            data[place] = case.random.randrange(256)
        elif how == 1:
            data.insert(place, case.random.randrange(256))
        elif len(data) > 1:
            del data[place]
    return bytes(data)


def _compare_headers(case: Case, data: bytes) -> None:
    """Fail where the peers agree against ours, or where another size is read."""
    case.counts["headers"] += 1
    ours = _our_outcome(data)
    theirs = {name: _header_reader(name).ask(f"headers\tdecode\tdata={data.hex()}")
              for name in ("parquet-java", "arrow-cpp")}
    decoded = [one for one in theirs.values() if one.startswith("decoded")]
    if ours.startswith("decoded"):
        assert decoded and set(decoded) == {ours}, f"header {data.hex()}: {ours!r}, but {theirs}"
    elif decoded and _with_zero_stops(data, decoded[0]):
        case.counts["headers with a stop byte that is not zero, which ours refuses"] += 1
    elif _with_one_member(data) in decoded:
        case.counts["headers with an unknown member beside a known one, which ours refuses"] += 1
    else:
        assert len(decoded) < 2 or len(set(decoded)) > 1, f"{data.hex()}: {ours!r}, but {theirs}"
    for name, one in theirs.items():
        if one.startswith("decoded") != ours.startswith("decoded"):
            one_does = "decodes, and ours refuses" if one.startswith("decoded") \
                else "refuses, and ours decodes"
            case.counts[f"headers that {name} {one_does}"] += 1


def _with_zero_stops(data: bytes, outcome: str) -> bool:
    """Whether ours has this outcome if some bytes, which the peers take for stop bytes, are zero.

    Thrift's specification has no other stop byte; the peers look at its lower four bits only.
    """
    places = [place for place, byte in enumerate(data) if byte and not byte & 15]
    zeroed = (bytes(0 if place in some else byte for place, byte in enumerate(data))
              for number in range(1, _MOST_CHANGES + 1)
              for some in itertools.combinations(places, number))
    return any(_our_outcome(one) == outcome for one in zeroed)


def _with_one_member(data: bytes) -> str | None:
    """Return our outcome if each union ended after its first member.

    A union has one member by Thrift's specification; Arrow C++ skips an unknown one after it.
    """
    try:
        header, size = thrift.decode(data, {2: {}, 3: {}, 4: {}})
        for field in header.fields:
            if isinstance(field[2], Struct):
                field[2] = Struct(field[2].fields[:1])
        return f"decoded\tnum_bytes={decode_header(thrift.encode(header))[0]}\theader_size={size}"
    except (FormatError, UnsupportedError):
        return None


def _our_outcome(data: bytes) -> str:
    try:
        num_bytes, header_size = decode_header(data)
    except UnsupportedError:
        return "unsupported"
    except FormatError:
        return "malformed"
    return f"decoded\tnum_bytes={num_bytes}\theader_size={header_size}"


CHECK = Check("differential", "ours, parquet-java and Arrow C++ agree on files of each", "files",
              10**6, _try)
