"""parquet-java as a peer in tests: from the jars inside pyspark, or its newest release."""

import base64
import importlib.metadata
import importlib.util
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from tests.peers import maven
from tests.peers.keys import Keys, KeyTools
from tests.peers.process import (
    Peer,
    PeerError,
    PeerUnavailable,
    cached_build,
    find_tool,
    run_compiler,
)
from tests.peers.records import FilterRecord, Value

HERE = Path(__file__).parent
SOURCES = [
    HERE / f"{name}.java"
    for name in (
        "ParquetJavaPeer",
        "PeerKeys",
        "PeerPages",
        "PeerValues",
        "PeerWriting",
        "SeededPeer",
    )
]
# A footer lists a column's encodings in the order of a HashSet of enums, whose hash codes are
# otherwise others in each process.
SAME_ORDER = ["-XX:+UnlockExperimentalVMOptions", "-XX:hashCode=2"]
NEWEST = "1.18.1"  #: the newest release; it is fetched

AnyKeys = Keys | KeyTools | None


@dataclass(frozen=True)
class Bloom:
    """How parquet-java sizes one column's filter; without `ndv` it takes the maximum size."""

    ndv: int | None = None
    fpp: float | None = None


class ParquetJava(Peer):
    """A running parquet-java; a context manager.

    Values: str and bytes for binary types (INT96: 12 bytes); bool, int and float for the others,
    or bytes that are the plain encoding. `seeded`: keys and nonces come from the name of the file
    alone, so that writing it again gives the same bytes; for test files only. `newest`: the newest
    release, which is fetched, instead of the one in pyspark.
    """

    def __init__(self, seeded: bool = False, newest: bool = False) -> None:
        name, options = ("SeededPeer", SAME_ORDER) if seeded else ("ParquetJavaPeer", [])
        super().__init__(java_command(name, SOURCES, options, newest))

    def write(
        self,
        path: str | PathLike[str],
        schema: str,
        rows: Iterable[Mapping[str, Any]],
        *,
        keys: AnyKeys = None,
        bloom: Mapping[str, Bloom] | Sequence[str] = (),
        bloom_max_bytes: int | None = None,
        bloom_adaptive: bool = False,
        row_group_rows: int | None = None,
        page_rows: int | None = None,
        dictionary: bool = False,
        page_version: int = 1,
        codec: str = "UNCOMPRESSED",
    ) -> int:
        """Write rows, objects by field name of a Parquet message type; gives back their number.

        A group is an object, a repeated field a list, None or no entry is absent.
        """
        if not isinstance(bloom, Mapping):
            bloom = {column: Bloom() for column in bloom}
        reply = self._ask(
            "write",
            path=fspath(path),
            schema=schema,
            rows=_encode(list(rows)),
            keys=_keys(keys),
            bloom={column: asdict(how) for column, how in bloom.items()},
            bloom_max_bytes=bloom_max_bytes,
            bloom_adaptive=bloom_adaptive,
            row_group_rows=row_group_rows,
            page_rows=page_rows,
            dictionary=dictionary,
            page_version=page_version,
            codec=codec,
        )
        return reply["rows"]

    def read(
        self,
        path: str | PathLike[str],
        keys: AnyKeys = None,
        columns: Sequence[str] | None = None,
    ) -> tuple[list[dict[str, Any]], list[int]]:
        """The rows, and the number of rows of each row group.

        Rows have every field: None where absent, a list where repeated, bytes where binary.
        `columns` are top-level fields.
        """
        reply = self._ask("read", path=fspath(path), keys=_keys(keys), columns=_list(columns))
        return _decode(reply["rows"]), reply["row_groups"]

    def filters(
        self,
        path: str | PathLike[str],
        keys: AnyKeys = None,
        columns: Sequence[str] | None = None,
    ) -> list[FilterRecord]:
        """The file's Bloom filters, by row group and then column; of the dotted columns only."""
        reply = self._ask("filters", path=fspath(path), keys=_keys(keys), columns=_list(columns))
        return [FilterRecord(**_decode_key(record, "bitset")) for record in reply]

    def probe(
        self, path: str | PathLike[str], keys: AnyKeys, column: str, values: Iterable[Value]
    ) -> list[list[bool] | None]:
        """For each row group the filter's answer to each value, or None without a filter."""
        return self._ask(
            "probe",
            path=fspath(path),
            keys=_keys(keys),
            column=column,
            values=_encode(list(values)),
        )

    def row_groups_for(
        self, path: str | PathLike[str], keys: AnyKeys, column: str, value: Value
    ) -> list[int]:
        """The row groups that parquet-java's Bloom row group filter keeps for column = value."""
        return self._ask(
            "row_groups_for",
            path=fspath(path),
            keys=_keys(keys),
            column=column,
            value=_encode(value),
        )

    def page_indexes(self, path: str | PathLike[str], keys: AnyKeys = None) -> list[dict[str, Any]]:
        """The page indexes: one record per column chunk, with row_group and column.

        `pages` has offset, size and first row of each page, `bounds` minimum and maximum of each
        (nothing for a page of nulls); each is None without its index.
        """
        records = self._ask("page_indexes", path=fspath(path), keys=_keys(keys))
        return [{**record, "bounds": _decode(record["bounds"])} for record in records]

    def filtered(
        self, path: str | PathLike[str], keys: AnyKeys, column: str, value: Value
    ) -> tuple[list[dict[str, Any]], int]:
        """The rows with column = value, and how many rows the pages have that were read.

        Pages are chosen with page indexes alone.
        """
        reply = self._ask(
            "filtered", path=fspath(path), keys=_keys(keys), column=column, value=_encode(value)
        )
        return _decode(reply["rows"]), reply["rows_read"]

    def footer(self, path: str | PathLike[str], keys: AnyKeys = None) -> dict[str, Any]:
        """`encryption`, `schema`, `created_by`, and `columns`: one record per column chunk.

        A record has row_group, column, encrypted, bloom_offset and bloom_length (-1: none); a
        column whose key is missing has `error` (a class name) instead of the last two.
        """
        return self._ask("footer", path=fspath(path), keys=_keys(keys))

    def hash(self, physical_type: str, values: Iterable[Value]) -> list[int]:
        """XXH64 of each value, unsigned; the type by its Parquet name, as `INT64`."""
        hashes = self._ask("hash", type=physical_type, values=_encode(list(values)))
        return [h % 2**64 for h in hashes]

    def data_keys(self, path: str | PathLike[str], keys: KeyTools) -> Keys:
        """The data keys of a key tools file by their key metadata, for a peer without key tools."""
        pairs = _decode(self._ask("data_keys", path=fspath(path), keys=_keys(keys)))
        return Keys(by_metadata=dict(map(tuple, pairs)))

    def _ask(self, op: str, **request: Any) -> Any:
        reply = json.loads(self._process.ask(json.dumps({"op": op, **request})))
        if isinstance(reply, dict) and "error" in reply:
            raise PeerError(reply["error"], reply["message"])
        return reply


def java_command(
    name: str, sources: Sequence[Path], options: Sequence[str] = (), newest: bool = False
) -> list[str]:
    """The command that runs a main class, whose sources are compiled where they are not yet.

    With `newest`, the jars of the newest parquet-java go before those of pyspark.
    """
    classpath = _classpath(newest)
    classes = compiled(sources, newest)
    return [
        find_tool("java"),
        "-Xmx1g",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Xshare:auto",
        "-Dlog4j2.level=OFF",
        *options,
        "-cp",
        f"{classes}:{classpath}",
        name,
    ]


def jars() -> Path:
    """The folder with the jars of Spark, parquet-java's among them."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.origin:
        raise PeerUnavailable("pyspark, which carries parquet-java, is not installed")
    return Path(spec.origin).parent / "jars"


def newest_jars() -> list[Path]:
    """The jars of parquet-java's newest release."""
    found = maven.classpath(f"org.apache.parquet:parquet-hadoop:{NEWEST}")
    return [jar for jar in found if jar.name.startswith("parquet-")]


def version() -> str:
    """The version of parquet-java that pyspark brings."""
    [jar] = jars().glob("parquet-hadoop-*.jar")
    return jar.stem.removeprefix("parquet-hadoop-")


def compiled(sources: Sequence[Path], newest: bool = False) -> Path:
    """The folder with the classes of these sources."""
    salt = f"{importlib.metadata.version('pyspark')} {NEWEST if newest else ''}"
    classpath = _classpath(newest)
    return cached_build(sources, salt, lambda to: _compile(classpath, sources, to))


def _classpath(newest: bool) -> str:
    return ":".join(map(str, [*(newest_jars() if newest else []), jars() / "*"]))


def _compile(classpath: str, sources: Sequence[Path], to: Path) -> None:
    javac = find_tool("javac")
    options = ["--release", "17", "-proc:none", "-cp", classpath, "-d", str(to)]
    run_compiler([javac, *options, *map(str, sources)])


def _keys(keys: AnyKeys) -> Any:
    if keys is None:
        return None
    if isinstance(keys, KeyTools):
        properties = {f"parquet.encryption.{k}": v for k, v in keys.properties.items()}
        return {"master_keys": _encode(keys.master_keys), "properties": properties}
    request = {k: v for k, v in vars(keys).items() if k not in ("by_metadata", "algorithm")}
    pairs = _encode([list(pair) for pair in keys.by_metadata.items()])
    return {**_encode(request), "by_metadata": pairs, "algorithm": keys.algorithm}


def _list(columns: Sequence[str] | None) -> list[str] | None:
    return None if columns is None else list(columns)


def _encode(value: Any) -> Any:
    """The JSON form: every str and bytes becomes base64, field names stay."""
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {name: _encode(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_encode(item) for item in value]
    return value


def _decode(value: Any) -> Any:
    """What `_encode` made, with bytes for every base64 string."""
    if isinstance(value, str):
        return base64.b64decode(value)
    if isinstance(value, dict):
        return {name: _decode(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_decode(item) for item in value]
    return value


def _decode_key(record: dict[str, Any], key: str) -> dict[str, Any]:
    return {**record, key: _decode(record[key])}
