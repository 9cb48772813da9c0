"""Bloom filters as requested by options and schema: which columns get one, and of what size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TypeVar

from secure_bloom.errors import OptionError
from secure_bloom.parquet.schema import LeafColumn, filterable_paths
from secure_bloom.sbbf.options import BloomFilterOptions, filter_options
from secure_bloom.spark.options.columns import BLOOM_FILTER, Columns
from secure_bloom.spark.options.options import BLOOM_FILTERS, ENABLED, FPP, MAX_BYTES, NDV, Options
from secure_bloom.spark.options.policy import WritePolicy

_T = TypeVar("_T")

_FORM = '{"ssn": true, "city": {"fpp": 0.001, "ndv": 1000}}'


def parse_bloom_filters(options: Options, columns: Columns,
                        policy: WritePolicy | None = None) -> dict[str, BloomFilterOptions]:
    """Return the filters by dotted path of the leaf column.

    In order of increasing precedence: options for all columns, the policy, metadata of the schema,
    and options that name a column (``enabled#column`` and the like, or ``bloom_filters``).

    Raises OptionError if a column does not exist or cannot have a filter, or options contradict
    each other.
    """
    default = BloomFilterOptions(_fpp(options, FPP), max_bytes=options.parsed(
        MAX_BYTES, lambda text: BloomFilterOptions(max_bytes=int(text)).max_bytes,
        "a number of bytes, 32 to 134217728 (128 MiB)", None))
    general: dict[str, BloomFilterOptions | None] = {}  # not by name in the options
    if options.boolean(ENABLED):
        general = dict.fromkeys(filterable_paths(columns.leaves), default)
    if policy is not None:
        general |= policy.filters()
    for path, wanted in _from_schema(columns).items():
        general[path] = default if wanted else None
    named, listed = _named(options, columns, general, default), _listed(options, columns, default)
    for path in named.keys() & listed.keys():
        raise OptionError(f"column {path} is also named in {ENABLED}#column or a similar option: "
                          "specify it in one place", option=BLOOM_FILTERS)
    filters = general | named | listed
    return {path: one for path, one in sorted(filters.items()) if one is not None}


def _from_schema(columns: Columns) -> dict[str, bool]:
    filters: dict[str, bool] = {}
    for leaves, wanted in columns.marked(BLOOM_FILTER):
        able = [leaf.path for leaf in leaves if leaf.type.can_have_filter]
        if wanted and not able:
            raise OptionError(f"metadata {BLOOM_FILTER}: a column of type {leaves[0].type} cannot "
                              "have a Bloom filter: remove it", column=leaves[0].path)
        filters |= dict.fromkeys(able, wanted)
    return filters


def _named(options: Options, columns: Columns, general: dict[str, BloomFilterOptions | None],
           default: BloomFilterOptions) -> dict[str, BloomFilterOptions | None]:
    """Return the filters of ``name#column`` options; None for a column that gets none."""
    enabled = _per_column(options, ENABLED, columns, Options.boolean)
    fpp = _per_column(options, FPP, columns, _fpp)
    ndv = _per_column(options, NDV, columns, lambda options, name: options.number(name, None))
    for path in ndv:  # as in parquet-java, it implies a filter
        if not enabled.setdefault(path, True):
            raise OptionError(f"it contradicts {ENABLED}#{path}: remove one of them",
                              option=f"{NDV}#{path}")
    for path in fpp:
        if general.get(path) is not None:
            enabled.setdefault(path, True)
        if not enabled.get(path):
            raise OptionError(f"the column has no Bloom filter: set {ENABLED}#{path} to true",
                              option=f"{FPP}#{path}")
    return {path: BloomFilterOptions(fpp.get(path, default.fpp), ndv.get(path), default.max_bytes)
            if wanted else None for path, wanted in enabled.items()}


def _per_column(options: Options, base: str, columns: Columns,
                parse: Callable[[Options, str], _T]) -> dict[str, _T]:
    """Return the values of ``base#column`` by path; each column exists and can have a filter."""
    values = {}
    for name, column in options.by_column(base):
        leaf = columns.find_leaf(column, name, keeps_case=False)
        value = parse(options, name)
        if value is not False:
            _check_able(leaf, name)
        values[leaf.path] = value
    return values


def _listed(options: Options, columns: Columns,
            default: BloomFilterOptions) -> dict[str, BloomFilterOptions | None]:
    """Return the filters of option ``bloom_filters``; None for a column that gets none."""
    if BLOOM_FILTERS not in options:
        return {}
    filters: dict[str, BloomFilterOptions | None] = {}
    for name, value in options.json_object(BLOOM_FILTERS, _FORM).items():
        leaf = columns.find_leaf(name, BLOOM_FILTERS)
        if leaf.path in filters:
            raise OptionError(f"column {leaf.path} is named twice", option=BLOOM_FILTERS)
        if value is False:
            filters[leaf.path] = None
            continue
        _check_able(leaf, BLOOM_FILTERS)
        try:
            filters[leaf.path] = filter_options(value, **asdict(default))
        except (TypeError, ValueError) as error:
            raise OptionError(f"column {leaf.path} must be set to true, false, or an object of "
                              f"fpp, ndv and max_bytes: {error}", option=BLOOM_FILTERS) from None
    return filters


def _check_able(leaf: LeafColumn, option: str) -> None:
    if not leaf.type.can_have_filter:
        raise OptionError(f"a column of type {leaf.type} cannot have a Bloom filter: remove it",
                          option=option)


def _fpp(options: Options, name: str) -> float:
    return options.parsed(name, lambda text: BloomFilterOptions(fpp=float(text)).fpp,
                          "a number between 0 and 1, both excluded", BloomFilterOptions.fpp)
