"""The commands ``lance build``, ``lance inspect`` and ``lance probe``."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import click

from secure_bloom.cli.shared import BAD, json_option, line_from_stdin, show
from secure_bloom.display import count

if TYPE_CHECKING:
    import pyarrow as pa

    from secure_bloom.lance.index import BloomFilterIndex
    from secure_bloom.lance.layout import Zone


@click.group()
def lance() -> None:
    """BLOOMFILTER indexes of Lance data sets."""


@lance.command()
@click.argument("dataset", type=click.Path())
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--column", required=True, metavar="C",
              help="Column to index; for a field of a struct, its names joined by dots.")
@click.option("--items", type=click.IntRange(min=1), default=8192, show_default=True,
              help="Rows per zone, and values that its filter is sized for.")
@click.option("--probability", type=float, default=0.00057, show_default=True,
              help="False-positive probability of a filter with that many values.")
@json_option
def build(dataset: str, file: str, column: str, items: int, probability: float,
          as_json: bool) -> None:
    """Write an index of a column of DATASET to FILE."""
    from secure_bloom.lance import build_index
    zones = build_index(dataset, column, file, items=items, probability=probability)
    show(as_json, {"file": file, "column": column, "zones": zones},
         lambda: f"{file}: {count(zones, 'zone')} of {column}")


@lance.command()
@click.argument("file", type=click.Path())
@json_option
def inspect(file: str, as_json: bool) -> None:
    """Check an index and show its contents."""
    from secure_bloom.lance import BloomFilterIndex
    index = BloomFilterIndex(file)
    result = {
        "file": index.path,
        "column": index.column,
        "type": None if index.column_type is None else str(index.column_type.arrow_type),
        "items": index.items,
        "probability": index.probability,
        "filter_bytes": index.num_bytes,
        "expected_fpp": index.expected_fpp(),
        "null_bitmap": index.has_null_bitmap,
        "zones": [zone._asdict() for zone in index.zones],
    }
    show(as_json, result, lambda: (
        f"{result['file']}\n"
        f"  column {result['column'] or 'unknown'}, type {result['type'] or 'unknown'}\n"
        f"  {count(len(index.zones), 'zone')}, {len(index.is_null()):,} of them with nulls; "
        f"filters of {result['filter_bytes']:,} bytes for {result['items']:,} values at "
        f"{result['probability']}\n"
        f"  false positives expected: {result['expected_fpp']:.2g}\n"
        f"{_ranges(index.zones)}").rstrip())


@lance.command()
@click.argument("file", type=click.Path())
@click.option("--value", "values", multiple=True, metavar="V",
              help="Value to look for; may be repeated. If absent, it is read from standard input, "
                   "which keeps it out of the process list.")
@click.option("--null", is_flag=True, help="Look for nulls.")
@click.option("--type", "type_name", metavar="T", help="Arrow type of the column, such as int32 or "
              "'timestamp[us, tz=UTC]'. Default: the type in the data set.")
@json_option
@click.pass_context
def probe(ctx: click.Context, file: str, values: tuple[str, ...], null: bool, type_name: str | None,
          as_json: bool) -> None:
    """Ask an index which rows may contain a value.

    Exit code 0: some may; 1: no indexed row does; 2 and up: errors.
    """
    from secure_bloom.lance import BloomFilterIndex
    index = BloomFilterIndex(file, None if type_name is None else _arrow_type(type_name))
    zones = set(index.is_null()) if null else set()
    if values or not null:
        zones.update(index.is_in(_parsed(values or (line_from_stdin(),), index)))
    show(as_json, {"file": index.path, "column": index.column, "may_contain": bool(zones),
                   "zones": [zone._asdict() for zone in sorted(zones)], "of": len(index.zones),
                   "fragments": index.fragment_ids},
         lambda: _answer(zones, len(index.zones)))
    ctx.exit(0 if zones else BAD)


def _parsed(texts: tuple[str, ...], index: BloomFilterIndex) -> Any:
    from secure_bloom.errors import ColumnError
    from secure_bloom.sbbf.parsing import parse_value
    if index.column_type is None:
        raise ColumnError("the column type is unknown, because the index is not part of a data "
                          "set: specify --type", file=index.path)
    import pyarrow as pa
    scalars = [parse_value(text, index.column_type) for text in texts]
    return pa.array(scalars, index.column_type.arrow_type)


def _arrow_type(name: str) -> pa.DataType:
    import pyarrow as pa
    if match := re.fullmatch(r"timestamp\[(s|ms|us|ns), *tz=([^\]]+)\]", name):
        return pa.timestamp(match[1], match[2])
    try:
        return pa.type_for_alias(name)
    except ValueError:
        raise click.BadParameter(f"{name} is not a valid Arrow type name",
                                 param_hint="--type") from None


def _answer(zones: Collection[Zone], of: int) -> str:
    if not zones:
        return f"certainly in none of {count(of, 'zone')}"
    return f"may be in {len(zones):,} of {count(of, 'zone')}\n{_ranges(zones)}"


def _ranges(zones: Collection[Zone]) -> str:
    from secure_bloom.lance import row_ranges
    return "\n".join(f"  fragment {fragment}: rows " +
                     ", ".join(f"{start:,} to {stop - 1:,}" for start, stop in spans)
                     for fragment, spans in row_ranges(zones).items())
