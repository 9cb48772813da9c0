"""What the log of a Delta Lake table reveals: values of columns, and which files are live.

The log is in ``_delta_log``: commits, compacted commits and version checksums are lines of JSON,
checkpoints are Parquet files or JSON. See https://github.com/delta-io/delta/blob/master/PROTOCOL.md
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pa_fs

from secure_bloom.auditing.log_texts import Mentions, parse_text, texts_with_literals
from secure_bloom.errors import FormatError, error_location
from secure_bloom.keys.environment import NO_KEYS
from secure_bloom.keys.retrieval import Keys
from secure_bloom.parquet.tail import MAGIC_ENCRYPTED
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.reading.rows import iter_batches
from secure_bloom.storage.small_files import parse_json
from secure_bloom.storage.versions import open_stream

LOG = "_delta_log"
BOUNDS, PARTITIONS, CONDITIONS, TEXTS = "minimum and maximum", "partition values", "conditions", \
    "texts"

_VERSION = re.compile(r"(\d{20})\.(?:json"
                      r"|(checkpoint)(?:\.\d{10}\.(\d{10})|(\.[^.]+))?\.(?:parquet|json))")
_MAX_LINE = 32 * 1024 * 1024  #: a line of JSON is one action, or the checksum of one version
_MAX_VALUES = 500_000, 4_000_000  # lists and objects of a line, and commas, also in its texts
_BATCH_ROWS = 1024
_ACTIONS = ("add", "remove", "cdc")
_STATS = (("minValues",), ("maxValues",))
_SCHEMA = ("metaData", "schemaString")
_TEXTS = {*((kind, name) for kind in _ACTIONS
            for name in ("path", "stats", "partitionValues", "tags")), _SCHEMA,
          *(("metaData", name) for name in ("configuration", "format", "name", "description")),
          ("txn", "appId"), ("domainMetadata", "configuration"), ("sidecar", "tags"),
          ("checkpointMetadata", "tags")}  #: in a checkpoint, what is searched
#: what is a text by name, and not searched as one
_NO_TEXTS = frozenset({"path", "stats", "partitionValues", "schemaString", "location",
                       "pathOrInlineDv"})
_PHYSICAL_NAME = "delta.columnMapping.physicalName"


@dataclass
class LogFile:
    """What one file of a log says.

    Attributes
    ----------
    values : set of tuple
        Pairs of :data:`BOUNDS` or :data:`PARTITIONS` and the dotted path of a column that it has
        them of; pairs of :data:`CONDITIONS` or :data:`TEXTS` and a column that a text has with a
        value.
    added, removed : set of str
        Data files, relative to the folder of the table or absolute.
    columns : dict of str to str
        Dotted paths of columns by those in files and statistics, which differ with column mapping.
    has_literals : bool
        Whether a text has a value, perhaps of a column that was not looked for.
    """

    values: set[tuple[str, str]] = field(default_factory=set)
    added: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    columns: dict[str, str] = field(default_factory=dict)
    has_literals: bool = False


def read_log_file(filesystem: pa_fs.FileSystem, path: str, keys: Keys,
                  columns: Iterable[str]) -> LogFile:
    """Read a file of a log in bounded memory, except for the names of data files.

    ``keys`` are for encrypted checkpoints; what is encrypted there does not count as a value in
    the log. ``columns`` are those that are looked for in conditions and other texts.

    Raises
    ------
    FormatError, AuthenticationError, KeyRetrievalError
        With the name of the file.
    OSError
        If it cannot be read, or was removed.
    """
    found = LogFile()
    mentions = Mentions(columns)
    actions = _of_checkpoint(found, filesystem, path, keys) if path.endswith(".parquet") \
        else _of_json(filesystem, path)
    try:
        with error_location(file=path):
            for action in actions:
                _note(found, action, mentions)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, pa.ArrowException):
        raise FormatError("this is not a log of Delta Lake", file=path) from None
    return found


def live_files(files: dict[str, LogFile]) -> set[str] | None:
    """Return the data files of the newest version, from all files of a log by their names.

    None if that cannot be told: files of the log are missing, or a checkpoint has another form
    than one or several Parquet files with all actions.
    """
    commits: dict[int, LogFile] = {}
    checkpoints: dict[int, list[tuple[int, LogFile]]] = {}
    for name, file in files.items():
        match = _VERSION.fullmatch(name)
        if match is None:
            continue
        version = int(match[1])
        if match[4]:
            return None  # with sidecar files
        if match[2]:
            checkpoints.setdefault(version, []).append((int(match[3] or 1), file))
        else:
            commits[version] = file
    start = max((version for version, parts in checkpoints.items()
                 if any(of <= len(parts) for of, _ in parts)), default=-1)
    newer = sorted(version for version in commits if version > start)
    if newer != list(range(start + 1, start + 1 + len(newer))) or (start < 0 and not newer):
        return None
    live = {path for _, part in checkpoints.get(start, ()) for path in part.added}
    for version in newer:
        live -= commits[version].removed
        live |= commits[version].added
    return live


def _of_json(filesystem: pa_fs.FileSystem, path: str) -> Iterator[dict[str, Any]]:
    with open_stream(filesystem, path) as stream:
        lines = io.BufferedReader(stream)
        while line := lines.readline(_MAX_LINE + 1):
            if len(line) > _MAX_LINE:
                raise FormatError(f"a line has more than {_MAX_LINE:,} bytes", file=path)
            if line.strip():
                try:
                    yield parse_json(line, *_MAX_VALUES)
                except ValueError:
                    raise FormatError("a line is not valid JSON", file=path) from None


def _of_checkpoint(found: LogFile, filesystem: pa_fs.FileSystem, path: str,
                   keys: Keys) -> Iterator[dict[str, Any]]:
    """Yield actions with the parts that matter here; note what is in columns of statistics."""
    with open_stream(filesystem, path) as stream:
        is_encrypted = stream.read(len(MAGIC_ENCRYPTED)) == MAGIC_ENCRYPTED
    with OpenFile(path, keys if is_encrypted else NO_KEYS, filesystem=filesystem) as file:
        hidden = {chunk.column.path for chunk in file.footer.column_chunks()
                  if chunk.encryption is not None}
        leaves = [leaf for leaf in file.columns
                  if leaf.path not in hidden]
        bounds = [leaf for leaf in leaves
                  if leaf.parts[0] in _ACTIONS and leaf.parts[1:2] == ("stats_parsed",)
                  and leaf.parts[2:3] in _STATS]
        texts = [leaf for leaf in leaves if leaf.parts[:2] in _TEXTS]
        if not bounds and not texts:
            return
        for batch in iter_batches(file, [leaf.path for leaf in (*bounds, *texts)],
                                  batch_rows=_BATCH_ROWS):
            for leaf in bounds:  # in types that Python may not have
                values = pc.struct_field(batch.column(leaf.parts[0]), list(leaf.parts[1:]))
                if values.null_count < len(values):
                    found.values.add((BOUNDS, ".".join(leaf.parts[3:])))
            yield from _rows(batch, {leaf.parts[:2] for leaf in texts})


def _rows(batch: pa.RecordBatch, fields: set[tuple[str, ...]]) -> Iterator[dict[str, Any]]:
    for kind, name in fields:
        for value in pc.struct_field(batch.column(kind), [name]).to_pylist():
            if value is not None:
                yield {kind: {name: value}}


def _note(found: LogFile, action: dict[str, Any], mentions: Mentions) -> None:
    files = {kind: action[kind] for kind in _ACTIONS if action.get(kind) is not None}
    for kind, file in files.items():
        _note_file(found, file)
        if file.get("path") is not None and kind != "cdc":
            (found.added if kind == "add" else found.removed).add(unquote(file["path"]))
    for file in action.get("allFiles") or ():  # of a version checksum
        _note_file(found, file)
    for metadata in (action.get(_SCHEMA[0]), action.get("metadata")):  # of a version checksum
        if metadata and metadata.get(_SCHEMA[1]) is not None:
            schema = parse_text(metadata[_SCHEMA[1]])
            found.columns.update(_columns(schema))
            _note_texts(found, schema, mentions)
    dict((action.get("commitInfo") or {}).get("operationParameters") or {})  # raises if it is none
    _note_texts(found, action, mentions)


def _note_texts(found: LogFile, content: Any, mentions: Mentions) -> None:
    for text in texts_with_literals(content, _NO_TEXTS):
        found.has_literals = True
        kind = CONDITIONS if text.is_condition else TEXTS
        found.values.update((kind, column) for column in mentions.of(text))


def _columns(struct: dict[str, Any], physical: str = "",
             logical: str = "") -> Iterator[tuple[str, str]]:
    for column in struct["fields"]:
        name, type_ = str(column["name"]), column["type"]
        own = str((column.get("metadata") or {}).get(_PHYSICAL_NAME, name))
        if isinstance(type_, dict) and type_["type"] == "struct":
            yield from _columns(type_, f"{physical}{own}.", f"{logical}{name}.")
        else:
            yield physical + own, logical + name


def _note_file(found: LogFile, file: dict[str, Any]) -> None:
    stats = parse_text(file.get("stats") or "{}")
    for [name] in _STATS:
        found.values.update((BOUNDS, column) for column in _leaves(stats.get(name) or {}))
    partitions = file.get("partitionValues") or {}
    for name, value in dict(partitions).items():
        if not isinstance(name, str):
            raise ValueError
        if value is not None:
            found.values.add((PARTITIONS, name))


def _leaves(values: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        elif value is not None:
            yield prefix + name
