"""Test vectors as stored in files: layers, operations, and the fields of each case.

Everything is checked while it is read. An unknown field, operation or outcome is an error, because
otherwise a typo would silently disable a vector.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from secure_bloom.errors import FormatError
from secure_bloom.json_text import decode_json, decode_once

Answer = tuple[str, dict[str, Any]]  #: an outcome and its output


@dataclass(frozen=True)
class Operation:
    """The inputs and outcomes of an operation.

    Attributes
    ----------
    inputs : dict of str to str
        The kind of each input.
    optional : frozenset of str
        The inputs that may be absent.
    outcomes : dict of str to dict
        For each outcome, the kind of each output.
    refusals : frozenset of str
        The outcomes that reject the input.
    """

    inputs: dict[str, str]
    optional: frozenset[str]
    outcomes: dict[str, dict[str, str]]
    refusals: frozenset[str]


def _operation(inputs: str, outcomes: str, refusals: str = "") -> Operation:
    """Parse ``name:kind name?:kind``, ``outcome(name:kind) outcome`` and ``outcome ...``."""
    kinds = dict(item.split(":") for item in inputs.split())
    found = re.findall(r"(\w+)(?:\(([^)]*)\))?", f"{outcomes} {refusals}")
    return Operation(
        {name.rstrip("?"): kind for name, kind in kinds.items()},
        frozenset(name.rstrip("?") for name in kinds if name.endswith("?")),
        {name: dict(item.split(":") for item in outputs.split()) for name, outputs in found},
        frozenset(re.findall(r"(\w+)(?:\([^)]*\))?", refusals)))


_TYPE = "physical_type:text type_length?:int"

#: The operations of each layer, as ``vectors/README.md`` lists them.
LAYERS: dict[str, dict[str, Operation]] = {
    "xxh64": {
        "hash": _operation(f"{_TYPE} plain:bytes logical_type?:text value?:text",
                           "hashed(hash:bytes)", "wrong_length unsupported_type"),
    },
    "blocks": {
        "mask": _operation("hash:bytes", "computed(block:bytes)"),
        "index": _operation("hash:bytes num_blocks:int", "computed(index:int)", "invalid_size"),
        "insert": _operation("hash:bytes block:bytes", "computed(block:bytes)"),
        "check": _operation("hash:bytes block:bytes", "present absent"),
    },
    "bitsets": {
        "build": _operation(f"{_TYPE} num_bytes:int values:list-of-bytes",
                            "built(bitset:bytes)", "invalid_size wrong_length"),
        "check": _operation(f"{_TYPE} bitset:bytes values:list-of-bytes",
                            "checked(answers:list-of-bool)", "invalid_size"),
    },
    "fold-merge": {
        "fold": _operation("bitset:bytes num_bytes:int", "folded(bitset:bytes)", "invalid_size"),
        "merge": _operation("bitsets:list-of-bytes", "merged(bitset:bytes)", "invalid_size"),
    },
    "sizing": {
        "fpp": _operation("num_blocks:int ndv:int", "computed(fpp:number)", "invalid_size"),
        "blocks": _operation("ndv:int fpp:number power_of_two:bool", "computed(num_blocks:int)",
                             "invalid_fpp invalid_ndv"),
    },
    "headers": {
        "encode": _operation("num_bytes:int", "encoded(header:bytes)"),
        "decode": _operation("data:bytes", "decoded(num_bytes:int header_size:int)",
                             "malformed unsupported"),
    },
    "footers": {
        "revealed": _operation("footer:bytes", "listed(fields:list-of-text)"),
    },
    "aad": {
        "build": _operation("aad_prefix:bytes aad_file_unique:bytes module_type:int "
                            "row_group?:int column?:int page?:int",
                            "built(aad:bytes)", "invalid_ordinal"),
    },
    "modules": {
        "encrypt": _operation("key:bytes nonce:bytes aad:bytes plaintext:bytes",
                              "encrypted(module:bytes)", "invalid_key"),
        "decrypt": _operation("key:bytes aad:bytes module:bytes", "decrypted(plaintext:bytes)",
                              "authentication_failed invalid_key"),
        "sign": _operation("key:bytes nonce:bytes aad:bytes footer:bytes",
                           "signed(signature:bytes)"),
        "verify": _operation("key:bytes aad:bytes footer:bytes signature:bytes",
                             "verified", "authentication_failed"),
    },
    "key-material": {
        "unwrap": _operation("key_metadata:bytes master_keys:map-of-bytes",
                             "unwrapped(data_key:bytes master_key:text)",
                             "malformed key_not_found unwrap_failed external"),
    },
    "files": {
        "read": _operation(
            "file:text footer_key?:bytes column_keys?:map-of-bytes master_keys?:map-of-bytes "
            "aad_prefix?:bytes", "read(filters:filters)",
            " ".join(f"{outcome}(at:text filters:filters)" for outcome in
                     ("malformed", "authentication_failed", "key_unavailable", "unsupported"))),
    },
    "index": {
        "lookup": _operation(
            "column:text files:list-of-text master_keys?:map-of-bytes values:list-of-bytes",
            "answered(found:list-of-text uncovered:list-of-text)", "refused"),
    },
}
_IN_OWN_FILES = {"files": "files/*.json", "index": "index/*/case.json"}

_CASE = {"name": "text", "operation": "text", "origin": "text", "checked_by": "list-of-text",
         "comment": "text", "fault": "text", "input": "object", "outcome": "text",
         "output": "object"}
_OPTIONAL = {"comment", "fault", "output"}
_FILTER = {"row_group": "int", "column": "text", "encrypted": "bool", "num_bytes": "int",
           "sha256": "bytes", "probes": "probes"}
_PROBE = {"plain": "bytes", "value": "text", "answer": "bool"}


@dataclass(frozen=True)
class Case:
    """One test vector: the fields of ``vectors/README.md``, and where it was read from."""

    layer: str
    name: str
    operation: str
    input: dict[str, Any]
    outcome: str
    origin: str = ""
    checked_by: list[str] = field(default_factory=list)
    comment: str | None = None
    fault: str | None = None
    output: dict[str, Any] = field(default_factory=dict)
    folder: Path = Path()

    @property
    def path(self) -> Path:
        """The Parquet file of a case of the layer ``files``."""
        return self.folder / self.input["file"]

    @property
    def description(self) -> Operation:
        """The inputs and outcomes of the operation."""
        return LAYERS[self.layer][self.operation]


def load_cases(folder: Path, layers: Iterable[str] = ()) -> list[Case]:
    """Load the cases of a folder of test vectors.

    Parameters
    ----------
    folder : path
    layers : iterable of str, optional
        Names of layers. Default: all layers in the folder.

    Raises
    ------
    FormatError
        If a vector does not follow ``vectors/README.md``, or the folder has none; if a file of the
        set is a pipe, a device or the like, or a link out of the folder. It is not opened then.
    """
    cases = []
    for layer in LAYERS if not layers else dict.fromkeys(layers):
        sources = sorted(folder.glob(_IN_OWN_FILES[layer])) if layer in _IN_OWN_FILES \
            else [path for path in [folder / f"{layer}.json"] if os.path.lexists(path)]
        if not sources and layers:
            raise FormatError(f"there are no test vectors of the layer {layer}", file=str(folder))
        for path in sources:
            _check_regular(path, folder)
            cases += _load(path, layer)
    for case in cases:
        if case.layer == "files":
            _check_regular(case.path, folder)
        elif case.layer == "index":
            for path in case.folder.iterdir():
                _check_regular(path, folder)
    if not cases:
        raise FormatError("there are no test vectors here; specify the folder vectors/ of the "
                          "secure_bloom sources", file=str(folder))
    _check_names(cases, folder)
    if not layers:
        _check_complete(cases, folder)
    return cases


def _load(path: Path, layer: str) -> list[Case]:
    try:
        content = decode_json(path.read_text(encoding="utf-8"), decode_once)
    except ValueError as error:
        raise FormatError(f"not valid JSON: {error}", file=str(path)) from None
    if layer not in _IN_OWN_FILES:
        _check("the file", content, {"layer": "text", "cases": "list"}, str(path))
        if content["layer"] != layer:
            raise FormatError(f"layer is {content['layer']!r}, not {layer!r}", file=str(path))
    return [_case(item, layer, path)
            for item in ([content] if layer in _IN_OWN_FILES else content["cases"])]


def _check_regular(path: Path, folder: Path) -> None:
    """Check, without opening it, that this is a regular file below the folder."""
    real, root = os.path.realpath(path), os.path.realpath(folder)
    if os.path.commonpath([real, root]) != root:
        raise FormatError("this is a link out of the folder of the test vectors; put a copy of the "
                          "file here", file=str(path))
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise FormatError(f"it cannot be read: {error.strerror}", file=str(path)) from None
    if not stat.S_ISREG(mode):
        raise FormatError("this is not a regular file, but a "
                          f"{_KINDS_OF_FILES.get(stat.S_IFMT(mode), 'special file')}; remove it",
                          file=str(path))


_KINDS_OF_FILES = {stat.S_IFIFO: "named pipe", stat.S_IFDIR: "folder", stat.S_IFSOCK: "socket",
                   stat.S_IFCHR: "device", stat.S_IFBLK: "device"}


def _case(item: Any, layer: str, path: Path) -> Case:
    place = f"{path}, case {item.get('name')}" if isinstance(item, dict) else str(path)
    _check("the case", item, _CASE, place, _OPTIONAL)
    operation = LAYERS[layer].get(item["operation"])
    if operation is None:
        raise FormatError(f"unknown operation {item['operation']!r}", file=place)
    if item["outcome"] not in operation.outcomes:
        raise FormatError(f"unknown outcome {item['outcome']!r}", file=place)
    _check("input", item["input"], operation.inputs, place, operation.optional)
    _check("output", item.get("output", {}), operation.outcomes[item["outcome"]], place)
    if ("fault" in item) != (item["outcome"] in operation.refusals):
        raise FormatError("a refusal, and nothing else, has a fault", file=place)
    case = Case(layer=layer, folder=path.parent, **item)
    name = item["input"].get("file")
    if layer == "files" and (not name or Path(name).name != name
                             or not os.path.lexists(case.path)):
        raise FormatError(f"there is no file {name!r} next to it", file=place)
    return case


def _check(what: str, value: Any, kinds: dict[str, str], place: str,
           optional: Iterable[str] = ()) -> None:
    """Check that an object has exactly these fields, of these kinds."""
    if not isinstance(value, dict):
        raise FormatError(f"{what} is not an object", file=place)
    unknown = value.keys() - kinds.keys()
    missing = kinds.keys() - value.keys() - set(optional)
    if unknown or missing:
        raise FormatError(f"{what} has " + " and ".join(
            f"{text} {', '.join(sorted(names))}" for text, names in
            (("the unknown fields", unknown), ("no fields", missing)) if names), file=place)
    for name, item in value.items():
        _check_kind(f"{what}: {name}", item, kinds[name], place)


def _check_kind(what: str, value: Any, kind: str, place: str) -> None:
    if kind in ("filters", "probes"):
        fields = _FILTER if kind == "filters" else _PROBE
        _check_kind(what, value, "list", place)
        for item in value:
            _check(what, item, fields, place)
    elif not _KINDS[kind](value):
        raise FormatError(f"{what} is not of kind {kind.replace('-', ' ')}", file=place)


def _is_bytes(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch("([0-9a-f]{2})*", value) is not None


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value.isprintable()


_KINDS: dict[str, Callable[[Any], bool]] = {
    "text": _is_text,
    "int": _is_int,
    "number": lambda value: _is_int(value) or isinstance(value, float),
    "bool": lambda value: isinstance(value, bool),
    "bytes": _is_bytes,
    "object": lambda value: isinstance(value, dict),
    "list": lambda value: isinstance(value, list),
    "list-of-text": lambda value: isinstance(value, list) and all(map(_is_text, value)),
    "list-of-bool": lambda value: isinstance(value, list) and all(isinstance(v, bool)
                                                                  for v in value),
    "list-of-bytes": lambda value: isinstance(value, list) and all(v is None or _is_bytes(v)
                                                                   for v in value),
    "map-of-bytes": lambda value: isinstance(value, dict) and all(map(_is_bytes, value.values())),
}


def _check_complete(cases: list[Case], folder: Path) -> None:
    """Check that no file is left unread: a layer with an unknown name, or a file without a case."""
    names = {f"{layer}.json" for layer in LAYERS} | {"differences.json"}
    unread = [path for path in folder.glob("*.json") if path.name not in names]
    named = {case.path for case in cases if case.layer == "files"}
    unread += [path for path in (folder / "files").glob("*.parquet") if path not in named]
    unread += [path for path in folder.glob("index/*") if not (path / "case.json").exists()]
    if unread:
        raise FormatError("no test vector refers to this file", file=str(min(unread)))


def _check_names(cases: list[Case], folder: Path) -> None:
    seen: set[str] = set()
    for case in cases:
        if case.name in seen:
            raise FormatError(f"the name {case.name!r} occurs twice", file=str(folder))
        seen.add(case.name)
