"""Verify the Bloom filters of a Parquet file from any writer against its data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow.fs as pa_fs

from secure_bloom.display import shown
from secure_bloom.errors import (
    KMS_FAULTS,
    AuthenticationError,
    ColumnError,
    FileError,
    FormatError,
    KeyRetrievalError,
    UnsupportedError,
    error_location,
)
from secure_bloom.findings import Finding
from secure_bloom.keys.retrieval import Keys
from secure_bloom.parquet.bloom_filter import (
    PLAIN,
    UNKNOWN,
    Disjoint,
    StoredFilter,
    detect_filter,
    read_filter,
)
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.schema import find_column
from secure_bloom.parquet.tail import MAGIC
from secure_bloom.policy.environment import reading_requirement
from secure_bloom.policy.policy import Policy
from secure_bloom.policy.requirement import RequireEncryption, Requirement
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.sbbf.filter import SplitBlockBloomFilter
from secure_bloom.sbbf.sizing import BYTES_PER_BLOCK, MAX_BYTES, num_blocks_for
from secure_bloom.storage.files import FilePath, FileSource
from secure_bloom.verify.findings import FilterCheck, VerifyResult, new_finding
from secure_bloom.verify.measure import ColumnHashes, Comparison, compare, measure_false_positives

OVER_FULL = 0.1  #: false-positive rate from which a filter is reported as over-full
_ADVISED_FPP = 0.01
_REWRITE = "rewrite the file"


def verify_file(source: FileSource, keys: Keys = None, *, columns: Iterable[str] | None = None,
                filesystem: pa_fs.FileSystem | None = None,
                advance: Callable[[float], None] | None = None,
                require_encryption: RequireEncryption = None,
                policy: Policy | FilePath | None = None) -> VerifyResult:
    """Check every Bloom filter of a Parquet file, and look up each value of its column in it.

    For each filter, this checks its place, length, encryption and authenticity, that it misses no
    value of its column chunk, and how often it is wrong. The data is streamed in bounded memory.
    Errors in the bytes of the file become findings; whatever requires an unavailable key is
    reported as "not checked".

    Parameters
    ----------
    source : str, path, buffer, or binary file that can seek
        The Parquet file.
    keys : KmsClient or ExplicitKeys, optional
        For encrypted files. Without keys, only plaintext data is checked, and that filters of
        encrypted columns are not in plaintext.
    columns : iterable of str, optional
        Dotted paths of the leaf columns to check. Default: all.
    filesystem : pyarrow.fs.FileSystem, optional
        If ``source`` is a path. Default: the local file system, or the one that a URI names.
    advance : callable, optional
        Called with the completed fraction, 0 to 1.
    require_encryption : bool, list of str, or mapping of str to str, optional
        What must be encrypted; any violation becomes a finding. True: every column, and the footer
        must be encrypted or signed. A list: these columns by dotted path, where a group means all
        leaves below it. A mapping: these columns, each under the given master key.
    policy : Policy, path or URI, optional
        What must be encrypted according to a policy; with ``require_encryption``, both must hold.

    Raises
    ------
    OSError
        If the file cannot be opened.
    ColumnError
        If a column does not exist, including those whose encryption is required.
    KmsUnavailableError, KeyringError
        If the KMS does not respond, or the keyring cannot be read.
    ChangedMeanwhileError
        If the file changes while it is read; there is no result then.

    Examples
    --------
    >>> secure_bloom.verify_file("people.parquet", "keyring.json").ok  # doctest: +SKIP
    """
    if isinstance(columns, str):
        raise TypeError("columns must be a list of column paths, not a string")
    requirement = reading_requirement(require_encryption, policy)
    try:
        file = OpenFile(source, keys, filesystem=filesystem)
    except FileError as error:
        kind = "authentication" if isinstance(error, AuthenticationError) else "footer"
        message = f"{error.message}; nothing else could be checked. Replace the file " \
            "with a good copy"
        name = error.file or ""
        return VerifyResult(name, (new_finding(kind, message, name),))
    except KMS_FAULTS:
        raise
    except (KeyRetrievalError, UnsupportedError) as error:
        return VerifyResult(error.file or "", not_checked=error.message,
                            missing_keys=isinstance(error, KeyRetrievalError),
                            _is_required=requirement is not None)
    with file, error_location(file=file.name), file.one_version():
        verification = _Verification(file, keys, columns, advance or (lambda fraction: None))
        try:
            verification.check(requirement)
        except KeyRetrievalError as error:
            return VerifyResult(file.name, not_checked=error.message, missing_keys=True,
                                _is_required=True)
        return verification.run()


@dataclass(frozen=True, slots=True)
class _Found:
    """A filter that the footer references, and what is stored at its offset."""

    chunk: ColumnChunk
    offset: int
    length: int | None  # according to the footer
    stored: StoredFilter

    @property
    def end(self) -> int:
        return self.offset + (self.stored.length or self.length or 1)


class _Range(NamedTuple):
    """The byte range of a column chunk's pages or of its filter."""

    start: int
    end: int
    what: str
    chunk: ColumnChunk

    def __str__(self) -> str:
        return f"{self.what} of row group {self.chunk.row_group}, column " \
               f"{shown(self.chunk.column.path)} (bytes {self.start} to {self.end})"


class _Verification:
    """The verification of one file; collects findings and measurements."""

    def __init__(self, file: OpenFile, keys: Keys, columns: Iterable[str] | None,
                 advance: Callable[[float], None]):
        self._file = file
        self._footer = file.footer
        self._hashes = ColumnHashes(file, keys)
        self._advance = advance
        self._rows_done, self._rows = 0, 1
        self._filters = Disjoint(self._footer.start)
        self._pages_read = Disjoint(self._footer.start, "pages")
        self._findings: list[Finding] = []
        self._checks: list[FilterCheck] = []
        self._missing_keys = False
        self._columns = {column.ordinal for column in file.columns} if columns is None \
            else {find_column(file.columns, path).ordinal for path in columns}

    def check(self, requirement: Requirement | None) -> None:
        """Record what is not encrypted as required."""
        try:
            if requirement is not None:
                requirement.check(self._footer, self._file.path)
        except AuthenticationError as error:
            self._findings.append(new_finding("policy", error.message, self._file.name,
                                              error.row_group, error.column))
        except FormatError:
            pass  # reported when the filter was located

    def run(self) -> VerifyResult:
        """Find all filters, then check them one by one."""
        chunks = list(self._footer.column_chunks())
        found = [where for chunk in chunks if (where := self._find(chunk)) is not None]
        self._check_overlaps(found, chunks)
        found = [where for where in found if self._is_wanted(where.chunk)]
        self._rows = max(1, sum(map(self._num_rows, found)))
        for where in found:
            self._check(where)
            self._rows_done += self._num_rows(where)
            self._advance(self._rows_done / self._rows)
        self._advance(1.0)
        order = {column.path: column.ordinal for column in self._file.columns}
        self._checks.sort(key=lambda check: (check.row_group, order[check.column]))
        return VerifyResult(self._file.name, tuple(self._findings), tuple(self._checks),
                            missing_keys=self._missing_keys)

    def _is_wanted(self, chunk: ColumnChunk) -> bool:
        return chunk.column.ordinal in self._columns

    def _num_rows(self, where: _Found) -> int:
        return self._footer.row_group_num_rows(where.chunk.row_group)

    def _report(self, kind: str, chunk: ColumnChunk, message: str) -> None:
        if self._is_wanted(chunk):
            self._findings.append(new_finding(kind, message, self._file.name, **chunk.place))

    def _note(self, chunk: ColumnChunk, reason: str | None = None, **figures: Any) -> None:
        if self._is_wanted(chunk):
            self._checks.append(FilterCheck(**chunk.place, not_checked=reason, **figures))

    # --- place ---------------------------------------------------------------------------------

    def _find(self, chunk: ColumnChunk) -> _Found | None:
        try:
            _ = chunk.encryption
            where = chunk.bloom_filter
        except KMS_FAULTS:
            raise
        except KeyRetrievalError as error:
            self._missing_keys |= self._is_wanted(chunk)
            self._note(chunk, f"whether there is a filter is encrypted: {error.message}")
            return None
        except UnsupportedError as error:
            self._note(chunk, error.message)
            return None
        except FileError as error:
            kind = "authentication" if isinstance(error, AuthenticationError) else "footer"
            self._report(kind, chunk, f"the column's metadata cannot be read: {error.message}")
            self._note(chunk, "the column's metadata cannot be read")
            return None
        if where is None:
            return None
        offset, length = where
        start, end = len(MAGIC), self._footer.start
        if not start <= offset < end or not 0 < (1 if length is None else length) <= end - offset:
            extent = "" if length is None else f", length {length},"
            self._report("place", chunk, f"the filter's offset {offset}{extent} is outside the "
                                         f"data, which is between {start} and {end}; {_REWRITE}")
            self._note(chunk, "the location of the filter is invalid")
            return None
        return _Found(chunk, offset, length, detect_filter(self._file, offset, end))

    def _check_overlaps(self, found: list[_Found], chunks: list[ColumnChunk]) -> None:
        """Check, in file order, that pages and filters do not overlap."""
        ranges = [_Range(where.offset, where.end, "filter", where.chunk) for where in found]
        ranges += self._pages(chunks)
        furthest = None
        for current in sorted(ranges, key=lambda range_: (range_.start, range_.end)):
            if furthest is not None and current.start < furthest.end:
                self._report_overlap(furthest, current)
            if furthest is None or current.end > furthest.end:
                furthest = current

    def _report_overlap(self, first: _Range, second: _Range) -> None:
        filter_, other = (second, first) if second.what == "filter" else (first, second)
        if filter_.what == "filter":  # overlaps among pages are out of scope here
            self._report("overlap", filter_.chunk, f"the filter shares bytes with the {other}; "
                         f"{_REWRITE}")

    def _pages(self, chunks: list[ColumnChunk]) -> Iterator[_Range]:
        for chunk in chunks:
            try:
                pages = chunk.pages
            except (KeyRetrievalError, UnsupportedError, FileError):
                continue  # reported when the filter was located
            if pages is not None:
                yield _Range(pages[0], sum(pages), "pages", chunk)

    # --- the filter itself ---------------------------------------------------------------------

    def _check(self, where: _Found) -> None:
        chunk, stored = where.chunk, where.stored
        encrypted = None if stored.kind == UNKNOWN else stored.kind != PLAIN
        if chunk.encryption is not None and stored.kind == PLAIN:
            self._report("leak", chunk, "the column is encrypted, but the filter is not: anyone "
                                        "can test which values the column contains. Repair the "
                                        "file with secure-bloom seal, and withdraw its copies")
            self._note(chunk, "the filter is not encrypted, but its column is", encrypted=False)
            return
        if chunk.encryption is None and encrypted and where.length in (None, stored.length):
            self._report("needless-encryption", chunk, "the filter is encrypted, but its column "
                                                       f"is not: no reader can use it; {_REWRITE}")
            self._note(chunk, "the filter is encrypted, but its column is not", encrypted=True)
            return
        has_wrong_length = None not in (where.length, stored.length) \
            and where.length != stored.length
        if has_wrong_length:
            self._report("length", chunk, f"the footer records a filter length of {where.length}, "
                                          f"but {stored.length} bytes are stored there; {_REWRITE}")
        filter_ = self._read(chunk, silent=has_wrong_length, encrypted=encrypted)
        if filter_ is not None:
            self._check_values(where, filter_)

    def _read(self, chunk: ColumnChunk, *, silent: bool, encrypted: bool | None) \
            -> SplitBlockBloomFilter | None:
        try:
            return read_filter(self._file, chunk, self._footer.start, self._filters)
        except KMS_FAULTS:
            raise
        except KeyRetrievalError as error:
            self._missing_keys = True
            reason = error.message
            if encrypted is None:
                self._report("damaged", chunk, "there is no Bloom filter at the location in the "
                                               f"footer; {_REWRITE}")
        except UnsupportedError as error:
            reason = f"{error.message}; readers ignore such a filter"
        except AuthenticationError as error:
            reason = "the filter does not authenticate"
            self._report("authentication", chunk, error.message)
        except FormatError as error:
            reason = "the filter cannot be decoded"
            if not silent:
                self._report("damaged", chunk, f"{error.message}; {_REWRITE}")
        self._note(chunk, reason, encrypted=encrypted)
        return None

    # --- the filter and the data ---------------------------------------------------------------

    def _check_values(self, where: _Found, filter_: SplitBlockBloomFilter) -> None:
        chunk = where.chunk
        compared, reason = self._compare(where, filter_)
        if compared is not None and compared.missing:
            self._report("false-negative", chunk, f"{compared.missing:,} of {compared.values:,} "
                         "values are missing from the filter: readers that trust it will not find "
                         f"them. Read without filters, and {_REWRITE}")
        rate = measure_false_positives(filter_, None if compared is None else compared.distinct)
        if rate.beyond_chance:
            self._report("false-positives", chunk, f"{rate.measured:.2%} of random probes are "
                         f"reported present, {rate.promised:.2%} were expected from its size and "
                         f"values: the filter contains other values too; {_REWRITE}")
        elif rate.measured > OVER_FULL:
            self._report("over-full", chunk, _over_full(filter_, rate.measured, compared))
        figures = {} if compared is None else {
            "values": compared.values, "distinct": compared.distinct.count,
            "distinct_is_exact": compared.distinct.is_exact}
        self._note(chunk, reason, encrypted=chunk.encryption is not None,
                   num_bytes=filter_.num_bytes, measured_fpp=rate.measured,
                   promised_fpp=rate.promised, **figures)

    def _compare(self, where: _Found, filter_: SplitBlockBloomFilter) \
            -> tuple[Comparison | None, str | None]:
        """The comparison, or the reason why there is none."""
        chunk, done = where.chunk, self._rows_done
        if not chunk.column.type.can_be_hashed:
            return None, f"filters of type {chunk.column.type} are not supported"

        def advance(rows: int) -> None:
            nonlocal done
            done += rows
            self._advance(done / self._rows)

        portions = self._hashes.read(chunk.row_group, chunk.column)
        try:
            self._pages_read.add(chunk, max((chunk.pages or (0, 0))[1], 0))
            return compare(portions, filter_, advance), None
        except (ColumnError, UnsupportedError) as error:
            return None, error.message
        except KMS_FAULTS:
            raise
        except KeyRetrievalError as error:
            self._missing_keys = True
            return None, error.message
        except FileError as error:
            self._report("pages", chunk, f"the column's data cannot be read, so its filter was "
                         f"not compared with it: {error.message}")
            return None, "the column's data cannot be read"


def _over_full(filter_: SplitBlockBloomFilter, rate: float, compared: Comparison | None) -> str:
    message = f"the filter is overfull: {rate:.0%} of random probes are reported present, so it " \
              "rules out few row groups"
    if compared is None:
        return message + "; use a larger filter (ndv, max_bytes), or smaller row groups"
    distinct = compared.distinct.count
    size = num_blocks_for(distinct, _ADVISED_FPP) * BYTES_PER_BLOCK
    advice = f"write it with {size:,} bytes for {_ADVISED_FPP:.0%} (ndv, max_bytes), or use " \
             "smaller row groups" if size < MAX_BYTES else "use smaller row groups"
    return f"{message}. It has {filter_.num_bytes:,} bytes for {distinct:,} distinct values; " \
           f"{advice}"
