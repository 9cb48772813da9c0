"""The audit of one file: what it contains, from the view of an attacker without its keys."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import chain

import numpy as np

from secure_bloom.arrow.schema import leaf_categories
from secure_bloom.auditing.evidence import Evidence, Recognition, Traces, fill
from secure_bloom.auditing.result import (
    ENCRYPTED_FOOTER,
    KINDS,
    LEAKING,
    NONE,
    OPEN,
    PROTECTED,
    SIGNED_FOOTER,
    UNKNOWN,
    ColumnAudit,
    FileAudit,
    kind_of,
    new_finding,
)
from secure_bloom.crypto.modules import module_length
from secure_bloom.display import shown
from secure_bloom.errors import (
    KMS_FAULTS,
    NO_KEY,
    FileError,
    FormatError,
    KeyRetrievalError,
    UnsupportedError,
)
from secure_bloom.findings import Finding
from secure_bloom.maintain.change import stored_filter
from secure_bloom.parquet import thrift
from secure_bloom.parquet.bloom_filter import (
    ENCRYPTED,
    PLAIN,
    Disjoint,
    StoredFilter,
    read_filter,
    read_plain_header,
)
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.redaction import revealed
from secure_bloom.parquet.schema import LeafColumn
from secure_bloom.policy.policy import Policy
from secure_bloom.policy.rules import ColumnPolicy
from secure_bloom.policy.violations import (
    UNENCRYPTED,
    UNKNOWN_KEY,
    Violation,
    column_violations,
    footer_violations,
)
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.sbbf.filter import SplitBlockBloomFilter

_SEAL = "repair the file with secure-bloom seal, and withdraw its copies"
_REWRITE = "rewrite the file, and withdraw its copies"
_DELETE = "delete this summary of other files, which readers do without, and withdraw its copies"
_ATTACH = "rebuild the filter with secure-bloom attach --replace"


class OpenFileAudit:
    """The audit of a file whose footer can be read.

    ``guesses`` are tried on leaking filters. With ``scan``, every byte is searched for filters that
    no footer references.
    """

    def __init__(self, file: OpenFile, policy: Policy | None, guesses: tuple[str, ...],
                 scan: bool):
        self._file, self._footer = file, file.footer
        self._policy, self._guesses, self._scan = policy, guesses, scan
        self.findings: list[Finding] = []
        self.result = FileAudit(file.name, rows=file.num_rows)
        self.filters = Disjoint(self._footer.start)
        self.indexes = Disjoint(self._footer.start, "column indexes")

    def run(self) -> None:
        """Fill in ``result`` and ``findings``."""
        footer = self._footer
        if footer.is_encrypted:
            self.result.encryption = ENCRYPTED_FOOTER if footer.has_encrypted_footer \
                else SIGNED_FOOTER
            if not footer.has_encrypted_footer and not footer.signature_verified:
                self._not_checked("the signature of the footer: its key is not available")
        demands = [ColumnPolicy(column.path) for column in footer.columns]
        if self._policy is not None:
            demands = self._policy.of_leaves(footer.columns)
            for violation in footer_violations(self._policy, footer, demands):
                self._report(violation)
        for column, demand in zip(footer.columns, demands, strict=True):
            chunks = [chunks[column.ordinal] for chunks in footer.row_groups]
            self.result.columns.append(_ColumnAudit(self, column, chunks, demand).run())
        if self._scan:
            self._find_traces()

    @cached_property
    def with_categories(self) -> set[int]:
        """The ordinals of the columns whose categories the Arrow schema in the footer has."""
        try:
            fields = list(self._file.schema)
        except (FileError, UnsupportedError):
            return set()  # nor can anyone else read it with pyarrow
        found = [one for field in fields for one in leaf_categories(field)]
        return {ordinal for ordinal, has in enumerate(found) if has}

    def _find_traces(self) -> None:
        known: set[int] = set()
        for chunk in self._footer.column_chunks():
            try:
                if (where := chunk.bloom_filter) is not None:
                    known.add(where[0])
            except (KeyRetrievalError, UnsupportedError, FileError):
                continue  # reported with its column
        found = Traces(known).look(self._file, self._footer.start)
        if found.count:
            self._find("trace", f"{found.count:,} plaintext Bloom filters were found in the file, "
                                f"of {found.num_bytes:,} bytes, which its footer does not "
                                "reference: they are left over, or belong to columns whose keys "
                                "are not available", _REWRITE, evidence=found.evidence)

    def _report(self, violation: Violation) -> None:
        """Report what the policy does not allow."""
        if violation.kind == UNKNOWN_KEY:
            self._not_checked(f"column {shown(violation.column)}: {violation.message}"
                              if violation.column is not None else violation.message)
            return
        self.findings.append(new_finding(violation.kind, violation.message, _REWRITE,
                                         self._file.name, violation.column, violation.row_groups))

    def _find(self, kind: str, message: str, remedy: str, column: str | None = None,
              chunks: Sequence[ColumnChunk] = (), evidence: Sequence[str] = ()) -> None:
        self.findings.append(new_finding(
            kind, message, remedy, self._file.name, column,
            tuple(chunk.row_group for chunk in chunks), tuple(evidence)))

    def _not_checked(self, what: str) -> None:
        self.result.not_checked.append(what)
        self.result.missing_keys = True


class _ColumnAudit:
    """The audit of one column of a file."""

    def __init__(self, audit: OpenFileAudit, column: LeafColumn, chunks: list[ColumnChunk],
                 demand: ColumnPolicy):
        self._audit, self._file, self._demand = audit, audit._file, demand
        self._leaf, self._chunks = column, chunks
        self._fills: list[float] = []
        self._rates: list[float] = []
        self._leaking: list[ColumnChunk] = []
        self._stored: dict[int, StoredFilter] = {}  # by row group, for row groups with a filter
        self._hidden: KeyRetrievalError | None = None
        self._without_key = False
        self._errors = False
        self._guessed = Recognition(column, audit._guesses) \
            if audit._guesses and column.type.can_have_filter and not demand.encrypted else None
        self.result = ColumnAudit(column.path)

    def run(self) -> ColumnAudit:
        result = self.result
        encrypted: list[ColumnChunk] = []
        plain: list[ColumnChunk] = []
        try:
            for chunk in self._chunks:
                (plain if chunk.encryption is None else encrypted).append(chunk)
        except FormatError as error:
            self._find("damaged", error.message, _REWRITE)
            encrypted, plain = [], self._chunks
        result.encrypted = bool(encrypted) and not plain
        if result.encrypted:
            with_footer_key = any(chunk.encryption == "footer key" for chunk in encrypted)
            result.encryption = "footer key" if with_footer_key else "column key"
        result.encrypted_row_groups = len(encrypted)
        if encrypted or self._audit._policy is not None:
            result.sensitive = self._demand.encrypted or bool(encrypted)
        if encrypted and plain and not self._demand.encrypted:
            self._find(UNENCRYPTED, "the column is sensitive, but its data is not encrypted",
                       _REWRITE, plain)
        self._check_policy()
        if not self._audit._footer.is_summary:  # it has no filters, nor page indexes
            self._find_places()
        for chunk in (chunk for chunk in self._chunks if chunk.row_group in self._stored):
            self._look_at(chunk)
        self._report_leaks()
        self._report_guessed()
        self._check_statistics(encrypted)
        self._check_metadata(encrypted)
        if self._rates:
            result.fill, result.fpp = float(np.mean(self._fills)), float(np.mean(self._rates))
        if self._hidden:
            result.filters = result.bytes = None
            result.plain_filters = result.plain_filters or None
        result.state = self._state()
        return result

    def _check_policy(self) -> None:
        try:
            found = list(column_violations(self._audit._footer, self._chunks, self._demand))
        except FormatError:
            return  # reported already
        for violation in found:
            self._errors |= violation.kind != UNKNOWN_KEY
            self._audit._report(violation)

    def _state(self) -> str:
        if self._errors:
            return LEAKING
        if self._hidden:
            return UNKNOWN
        if self.result.encrypted:
            return PROTECTED
        return OPEN if self._stored else NONE

    def _find_places(self) -> None:
        num_bytes = 0
        for chunk in self._chunks:
            try:
                stored = stored_filter(self._file, chunk)
            except KMS_FAULTS:
                raise
            except KeyRetrievalError as error:
                self._hidden = error
                continue
            except (FileError, UnsupportedError) as error:
                self._find(kind_of(error), f"the column's metadata cannot be read: {error.message}",
                           "replace the file with a good copy", [chunk])
                continue
            if stored is not None:
                self._stored[chunk.row_group] = stored
                num_bytes += (chunk.bloom_filter or (0, 0))[1] or stored.length or 0
        self.result.filters, self.result.bytes = len(self._stored), num_bytes
        self.result.plain_filters = sum(one.kind == PLAIN for one in self._stored.values())
        if self._hidden:
            reason = "a key that is not available" if isinstance(self._hidden, NO_KEY) \
                else f"a key that cannot be retrieved: {self._hidden.message}"
            self._audit._not_checked(f"column {shown(self._leaf.path)}: whether it has filters is "
                                     f"encrypted with {reason}")

    def _look_at(self, chunk: ColumnChunk) -> None:
        stored = self._stored[chunk.row_group]
        if chunk.encryption is not None and stored.kind == PLAIN:
            self._leaking.append(chunk)
            return
        if chunk.encryption is None and stored.kind == ENCRYPTED:
            self._find("refused", "the filter is encrypted but its column is not: no reader can "
                                  "use it", _ATTACH, [chunk])
            return
        try:
            filter_ = read_filter(self._file, chunk, self._audit._footer.start, self._audit.filters)
        except KMS_FAULTS:
            raise
        except KeyRetrievalError:
            if not self._without_key:
                self._audit._not_checked(f"column {shown(self._leaf.path)}: whether its filters "
                                         "authenticate; its key is not available")
            self._without_key = True
            return
        except UnsupportedError as error:
            self._find("refused", f"readers ignore the filter: {error.message}", _ATTACH, [chunk])
            return
        except FileError as error:
            self._find(kind_of(error), f"the filter cannot be read: {error.message}", _ATTACH,
                       [chunk])
            return
        if filter_ is not None:
            self._measure(filter_)
            self._check_readers(chunk, filter_)
            if chunk.encryption is None and self._guessed is not None:
                self._guessed.add(filter_)

    def _measure(self, filter_: SplitBlockBloomFilter) -> None:
        self._fills.append(fill(filter_))
        self._rates.append(filter_.expected_fpp())

    def _check_readers(self, chunk: ColumnChunk, filter_: SplitBlockBloomFilter) -> None:
        if filter_.num_blocks & (filter_.num_blocks - 1):
            self._find("refused", f"the filter has {filter_.num_bytes:,} bytes, which is not a "
                                  "power of two: Arrow C++ rejects it", _ATTACH, [chunk])
        if chunk.encryption is not None and chunk.hides_bloom_filter:
            self._find("refused", "the redacted metadata under the plaintext footer does not say "
                       "where the filter is: Arrow C++ ignores it", _ATTACH, [chunk])

    def _report_leaks(self) -> None:
        if not self._leaking:
            return
        evidence = Evidence(self._leaf, self._audit._guesses) \
            if self._leaf.type.can_have_filter else None
        for chunk in self._leaking:
            filter_ = self._read_plain(chunk)
            if filter_ is not None:
                self._measure(filter_)
                if evidence is not None:
                    evidence.add(filter_)
        self._find("leak", "the column is encrypted but its Bloom filters are not: anyone who has "
                           "the file can test which values it contains", _SEAL, self._leaking,
                   evidence.sentences() if evidence is not None else ())

    def _report_guessed(self) -> None:
        sentence = self._guessed.sentence() if self._guessed is not None else None
        if sentence is not None:
            self._find("guessed", "the column is not encrypted, and its plaintext filters "
                       "recognize the values that were guessed: it may be a copy of a sensitive "
                       "column, or a renamed one",
                       "if it is, name it in the policy, and write the file again",
                       evidence=[sentence])

    def _read_plain(self, chunk: ColumnChunk) -> SplitBlockBloomFilter | None:
        """Read a plaintext filter, without any key."""
        assert chunk.bloom_filter is not None  # it was found to be in plaintext
        offset, _ = chunk.bloom_filter
        try:
            num_bytes, size = read_plain_header(self._file, offset)
            self._audit.filters.add(chunk, size + num_bytes)
            return SplitBlockBloomFilter.from_bitset(
                self._file.read_at(num_bytes, offset + size), column_type=self._leaf.type)
        except (FileError, UnsupportedError, ValueError):
            return None

    def _check_statistics(self, encrypted: list[ColumnChunk]) -> None:
        footer = self._audit._footer
        what = {chunk.row_group: words for chunk in encrypted if (words := revealed(chunk))}
        if what:
            who = "anyone with the footer key" if footer.has_encrypted_footer else "anyone"
            named = ", ".join(dict.fromkeys(chain.from_iterable(what.values())))
            self._find("statistics", f"the column is encrypted, but {who} can read in the footer: "
                                     f"{named}", self._remedy(encrypted),
                       [chunk for chunk in encrypted if chunk.row_group in what])
        indexed = [] if footer.is_summary else self._with_plain_index(encrypted)
        if indexed:
            self._find("statistics", "the column is encrypted, but the minimum and maximum values "
                                     "of its pages are stored in a column index that is not",
                       _REWRITE, indexed)

    def _check_metadata(self, encrypted: list[ColumnChunk]) -> None:
        footer = self._audit._footer
        apart = [chunk for chunk in encrypted
                 if not (footer.has_encrypted_footer and chunk.encryption == "footer key")]
        if apart and self._leaf.ordinal in self._audit.with_categories:
            who = "anyone with the footer key" if footer.has_encrypted_footer else "anyone"
            self._find("metadata", f"the column is encrypted, but {who} can read the categories of "
                                   "its Polars Enum in the footer: all values that it may have",
                       _REWRITE)

    def _remedy(self, chunks: list[ColumnChunk]) -> str:
        """Return what removes statistics of encrypted columns from the footer."""
        if self._audit._footer.is_summary:
            return _DELETE
        return _SEAL if all(chunk.has_metadata_module for chunk in chunks) else _REWRITE

    def _with_plain_index(self, chunks: list[ColumnChunk]) -> list[ColumnChunk]:
        try:
            return [chunk for chunk in chunks if self._has_plain_index(chunk)]
        except FormatError as error:
            self._find("damaged", error.message, _REWRITE)
            return []

    def _has_plain_index(self, chunk: ColumnChunk) -> bool:
        where = chunk.column_index
        if where is None or not 0 < where[0] < where[0] + where[1] <= self._audit._footer.start:
            return False
        self._audit.indexes.add(chunk, where[1])
        data = self._file.read_at(where[1], where[0])
        if module_length(data) == len(data):
            return False
        try:
            return thrift.end_of_struct(data) == len(data)
        except FormatError:
            return False

    def _find(self, kind: str, message: str, remedy: str, chunks: Sequence[ColumnChunk] = (),
              evidence: Sequence[str] = ()) -> None:
        self._errors |= KINDS[kind][0] == "error"
        self._audit._find(kind, message, remedy, self._leaf.path, chunks, evidence)
