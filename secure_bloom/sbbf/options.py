"""Which columns get a Bloom filter, and its size: the accepted forms of ``bloom_filters``."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias

from secure_bloom.errors import UnsupportedError
from secure_bloom.sbbf.sizing import BYTES_PER_BLOCK, MAX_BYTES, check_fpp, num_blocks_for

if TYPE_CHECKING:
    from secure_bloom.sbbf.filter import SplitBlockBloomFilter


@dataclass(frozen=True)
class BloomFilterOptions:
    """Sizing of a column's Bloom filter.

    Parameters
    ----------
    fpp : float
        Target false-positive probability.
    ndv : int, optional
        Expected number of distinct values in a row group; the filter is sized for it. By default
        the filter starts with room for every value of the row group and is folded to the smallest
        size that keeps ``fpp``.
    max_bytes : int, optional
        Upper bound of the bitset in bytes, 32 to 128 MiB. If a filter would need more, its
        false-positive probability is higher instead.
    """

    fpp: float = 0.01
    ndv: int | None = None
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in _NAMES:
            value = getattr(self, name)
            is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
            if not is_number and (value is not None or name == "fpp"):
                raise TypeError(f"{name} must be a number, not {value!r}")
        check_fpp(self.fpp)
        if self.ndv is not None and self.ndv < 0:
            raise ValueError(f"ndv must not be negative, got {self.ndv}")
        if self.max_bytes is not None and not BYTES_PER_BLOCK <= self.max_bytes <= MAX_BYTES:
            raise ValueError(f"max_bytes must be {BYTES_PER_BLOCK} to {MAX_BYTES}, "
                             f"got {self.max_bytes}")

    def num_blocks(self, num_values: int) -> int:
        """Return the initial number of blocks for this many non-null values."""
        ndv = num_values if self.ndv is None else self.ndv
        return num_blocks_for(ndv, self.fpp,
                              max_blocks=(self.max_bytes or MAX_BYTES) // BYTES_PER_BLOCK)

    def fitted(self, filter_: SplitBlockBloomFilter) -> SplitBlockBloomFilter:
        """Return the complete filter in its final size: folded, unless ``ndv`` fixes the size."""
        return filter_ if self.ndv is not None else filter_.fold(fpp=self.fpp)


_NAMES = tuple(field.name for field in fields(BloomFilterOptions))
_ALLOWED = "True, False, BloomFilterOptions or a dict of fpp, ndv and max_bytes"

#: specifies which columns get a filter; see :class:`secure_bloom.ParquetWriter`
BloomFilters: TypeAlias = (
    bool | Iterable[str]
    | Mapping[str, bool | BloomFilterOptions | Mapping[str, float | None] | None] | None)


def normalize_options(bloom_filters: BloomFilters,
                      paths: Iterable[str] | None = None) -> dict[str, BloomFilterOptions]:
    """Return the requested filters, by dotted column path.

    Parameters
    ----------
    bloom_filters : bool, iterable of str, mapping, or None
        See :class:`secure_bloom.ParquetWriter`.
    paths : iterable of str, optional
        The columns that can have a filter, which are those that ``True`` selects; see
        :func:`.parquet.schema.filterable_paths`.

    Raises
    ------
    TypeError, ValueError
        If the value has another form; the message names the column and the accepted forms.
    UnsupportedError
        If it is ``True`` and the columns are not known.
    """
    if bloom_filters is None or bloom_filters is False:
        return {}
    if bloom_filters is True:
        if paths is None:
            raise UnsupportedError("bloom_filters=True is not possible here, because the columns "
                                   "are not known: name them")
        return {path: BloomFilterOptions() for path in paths}
    if isinstance(bloom_filters, str | bytes) or not isinstance(bloom_filters, Iterable):
        hint = f": write [{bloom_filters!r}]" if isinstance(bloom_filters, str) else ""
        raise TypeError("bloom_filters must be True, a list of column paths, or a mapping of "
                        f"column paths to {_ALLOWED}, not {type(bloom_filters).__name__}{hint}")
    if not isinstance(bloom_filters, Mapping):
        bloom_filters = dict.fromkeys(bloom_filters, True)
    for path in bloom_filters:
        if not isinstance(path, str):
            raise TypeError(f"bloom_filters has {path!r} where a column path is expected")
    filters = {path: _options(path, value) for path, value in bloom_filters.items()}
    return {path: options for path, options in filters.items() if options is not None}


def _options(path: str, value: object) -> BloomFilterOptions | None:
    if value is None or value is False:
        return None
    try:
        return filter_options(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"bloom_filters[{path!r}]: {error}") from None


def filter_options(value: object, **default: Any) -> BloomFilterOptions:
    """Return the options of a column that gets a filter.

    Parameters
    ----------
    value : True, BloomFilterOptions, or mapping
        A mapping contains some of the fields of BloomFilterOptions.
    **default
        Values for the other fields.

    Raises
    ------
    TypeError, ValueError
        If it is anything else.
    """
    if isinstance(value, BloomFilterOptions):
        return value
    if value is True:
        value = {}
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r} is not allowed; allowed values: {_ALLOWED}")
    for name in value:
        if name not in _NAMES:
            raise TypeError(f"{name!r} is not allowed; allowed options: {', '.join(_NAMES)}")
    return BloomFilterOptions(**default | dict(value))
