"""The output of the commands ``index``: plain dictionaries for JSON, and text for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from secure_bloom.cli.tables import SHOWN, and_more, by_message, render_table
from secure_bloom.display import count, shown, shown_path
from secure_bloom.errors import ColumnError
from secure_bloom.index import Index, IndexInfo, IndexRotation, UpdateResult
from secure_bloom.index.integrity import IndexVerification
from secure_bloom.sbbf.parsing import parse_values

_SHOWN_PLACES = 50
_SHOWN_GROUPS = 8


def render_update(result: UpdateResult) -> str:
    """What an update did, and which files are not covered."""
    lines = [result._headline()]
    lines += [f"not covered: {line}" for line in by_message(result.uncovered.items())]
    lines += [f"failed: {line}" for line in by_message(result.failed.items())]
    return "\n".join(lines)


def found_places(index: Index, column: str, texts: list[str]) -> dict[str, Any]:
    """Look values up that are given as text. The result does not include them.

    Raises ValueError if one is not a valid value of the column.
    """
    lookup = index.lookup(column, parse_values(texts, _column_type(index, column)))
    places: dict[str, set[int]] = {}
    for found in lookup.row_groups:
        for path, groups in found.items():
            places.setdefault(path, set()).update(groups)
    return {
        "column": column,
        "values": len(set(texts)),
        "may_contain": bool(places or lookup.uncovered),
        "files": {"total": lookup.num_files, "may_contain": len(places),
                  "uncovered": len(lookup.uncovered)},
        "places": [{"file": path, "row_groups": sorted(places[path])} for path in sorted(places)],
        "uncovered": lookup.uncovered,
    }


def _column_type(index: Index, column: str) -> pa.DataType:
    """Return the type that values are parsed as: one that holds those of all files.

    Raises ColumnError if the files have types that cannot be combined.
    """
    segments = index.column(column).segments
    types = {segment.column_type.arrow_type for segment in segments if segment.pairs} - {None}
    if len(types) < 2:
        return types.pop() if types else pa.string()
    try:
        schemas = [pa.schema([("value", one)]) for one in types]
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        raise ColumnError(f"the files have different types, {', '.join(sorted(map(str, types)))}, "
                          "which cannot be combined; look the values up in Python",
                          column=column) from None


def render_places(result: dict[str, Any]) -> str:
    """The result of :func:`found_places` as text."""
    files, places = result["files"], result["places"]
    values = "the value" if result["values"] == 1 else f"one of {result['values']:,} values"
    if not result["may_contain"]:
        return f"certainly absent: {count(files['total'], 'file')} ruled out"
    lines = []
    if places:
        lines.append(render_table(["file", "row groups"], [
            [place["file"], _groups(place["row_groups"])] for place in places[:_SHOWN_PLACES]]))
        lines += and_more(len(places) - _SHOWN_PLACES, "files: see --json")
    lines.append(f"{files['may_contain']:,} of {count(files['total'], 'file')} may have {values}; "
                 f"{files['uncovered']:,} not covered")
    uncovered = result["uncovered"]
    lines += [f"not covered: {shown_path(path)}" for path in uncovered[:_SHOWN_PLACES]]
    lines += and_more(len(uncovered) - _SHOWN_PLACES, "files: see --json")
    return "\n".join(lines)


def _groups(groups: Sequence[int]) -> str:
    return ", ".join(map(str, groups[:_SHOWN_GROUPS])) \
        + (f" and {len(groups) - _SHOWN_GROUPS:,} more" if len(groups) > _SHOWN_GROUPS else "")


def render_inspection(indexes: Sequence[IndexInfo]) -> str:
    """The indexes of a table as a table."""
    numbers = ("segments", "files", "row_groups", "pairs", "bytes", "covered", "uncovered")
    rows = [[shown(one.column), _number(one.version), _key(one),
             *(_number(getattr(one, name)) for name in numbers)] for one in indexes]
    lines = [render_table(["column", "version", "master key", "segments", "files", "row groups",
                           "pairs", "bytes", "covered", "not covered"], rows)]
    lines += [f"column {shown(one.column)}: {count(one.stored_bytes, 'byte')} in "
              f"{shown_path(one.path)}; the rest is encrypted: {shown(one.hidden)}"
              for one in indexes if one.hidden]
    return "\n".join(lines)


def _number(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def _key(info: IndexInfo) -> str:
    if info.is_encrypted is None:
        return "?"
    return info.master_key or "not encrypted"


def render_verification(result: IndexVerification) -> str:
    """The result of a verification as text."""
    lines = [f"{count(result.segments, 'segment')} with {count(result.pairs, 'pair')} read, "
             f"{count(result.values, 'value')} of {count(result.compared, 'file')} looked up, "
             f"{count(result.identified, 'file')} identified: "
             f"{count(len(result.findings), 'finding')}"]
    return "\n".join([*lines, *map(str, result.findings[:SHOWN]),
                      *and_more(len(result.findings) - SHOWN, "findings: see --json")])


# --- master keys ---------------------------------------------------------------------------------

def render_keys(indexes: Sequence[IndexInfo]) -> str:
    """The master keys of indexes as a table."""
    rows = [[one.path, shown(one.column), _key(one)] for one in indexes]
    return "\n".join([render_table(["index", "column", "master key"], rows),
                      *by_message((one.path, one.error.message) for one in indexes if one.error)])


def render_rotated_indexes(result: IndexRotation, not_updated: Mapping[str, str]) -> str:
    """What a rotation of indexes did, or would do in a dry run; failures are shown elsewhere."""
    number = len(result.rotated)
    lines = [f"{number:,} {'index' if number == 1 else 'indexes'} "
             f"{'would be rotated' if result.dry_run else 'rotated'}, {result.unchanged:,} without "
             "the old master key"]
    return "\n".join([*lines, *(f"not up to date: {line}"
                                for line in by_message(not_updated.items()))])
