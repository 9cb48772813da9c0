"""What readers may answer, and whether they do."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pyarrow.fs as pa_fs

import secure_bloom
from secure_bloom.errors import SecureBloomError
from secure_bloom.index import Index, opened_indexes
from secure_bloom.storage.visibility import visible_files
from tests.soak.checks.adversary.readers import (
    MODES,
    READERS,
    answer,
    demands_balances,
    is_typed,
    names_the_footer_key,
    names_the_key,
    requirements,
)
from tests.soak.checks.adversary.table import OWNER, Groups, Row, Table, digest, groups_of, rows_of

_LOCAL = pa_fs.LocalFileSystem()
_LARGEST = 4 << 20  # bytes of files whose content is known by its digest


class Wrong(AssertionError):
    """A reader has broken its promise."""


@dataclass
class Whole:
    """A file that can be read whole."""

    groups: Groups


@dataclass
class Damaged:
    """A file that can be opened, but not read whole; what its owner wrote, if that is known."""

    groups: Groups | None


@dataclass
class Refused:
    """A file that cannot be opened, or does not meet the requirement."""

    error: Exception


Outcome = Whole | Damaged | Refused


@dataclass
class Question:
    """What readers are asked for."""

    requirement: str
    persons: list[str]
    others: list[tuple[str, str]]  #: readers with their uses of the index, beside read_table
    is_warm: bool  #: whether the index is open already

    @classmethod
    def random(cls, table: Table, choose: random.Random, persons: list[str]) -> Question:
        """Return a random question."""
        pairs = [(name, mode) for name in READERS for mode in MODES if name != "read_table"]
        return cls(choose.choice([*requirements(table.master_key), "column and key"]),
                   choose.sample(persons, choose.choice([1, 1, 1, 2, 4])),
                   choose.sample(pairs, 3), choose.random() < 0.3)

    @classmethod
    def complete(cls, requirement: str, persons: list[str]) -> Question:
        """Return a question for all readers."""
        return cls(requirement, persons, [(name, mode) for name in READERS for mode in MODES[1:]
                                          if name != "read_table"], False)


@dataclass
class Judge:
    """Compares the answers of readers with what the files say.

    Attributes
    ----------
    planted : set of Groups
        Rows of files that the player has written under keys of his own.
    refooted : set of Groups
        Rows of the owner's row groups around which the player has written a footer.
    counts : Counter
        What the answers were.
    """

    table: Table
    planted: set[Groups] = field(default_factory=set)
    refooted: set[Groups] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    _known: dict[tuple[bytes, str], Outcome] = field(default_factory=dict)
    _by_identity: dict[bytes, set[Groups]] = field(default_factory=dict)
    _identified: set[bytes] = field(default_factory=set)

    def warm_up(self) -> None:
        """Open the index as it is."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answer("read_table", self.table, ["nobody"], index="auto")

    def judge(self, question: Question) -> None:
        """Ask all readers; raise Wrong if an answer is."""
        if not question.is_warm:
            opened_indexes._opened.clear()
        outcomes = self._outcomes(question.requirement)
        if not isinstance(outcomes, Exception):
            for path, outcome in outcomes.items():
                self._check_authentic(path, outcome, question.requirement)
        required = requirements(self.table.master_key)[question.requirement]
        for name, mode in [("read_table", mode) for mode in MODES] + question.others:
            found = answer(name, self.table, question.persons, index=mode,
                           require_encryption=required)
            try:
                self._check(found, outcomes, question)
            except Wrong as error:
                raise Wrong(f"{name}, index={mode!r}: {error}") from None
            self.counts[f"{name}, {mode}: " + ("an answer" if isinstance(found, Counter)
                                               else "a typed error")] += 1
        if not isinstance(outcomes, Exception):
            self._look_up(outcomes, question)
            self._read_each(outcomes, question, required)

    # --- what the files say ----------------------------------------------------------------------

    def _outcomes(self, requirement: str) -> dict[str, Outcome] | Exception:
        """Return what each visible file is; an error if the folder cannot be listed."""
        try:
            paths = list(visible_files(_LOCAL, str(self.table.folder)))
        except Exception as error:
            if not is_typed(error):
                raise
            return error
        return {path: self._outcome(path, requirement) for path in paths}

    def _outcome(self, path: str, requirement: str) -> Outcome:
        full = self.table.folder / path
        key = None
        try:
            material = full.with_name(f"_KEY_MATERIAL_FOR_{full.name}.json")
            parts = [full, *[material][:material.exists()]]
            if all(part.is_file() and part.stat().st_size <= _LARGEST for part in parts):
                key = digest(b"".join(part.read_bytes() for part in parts)), requirement
        except OSError as error:
            return Refused(error)
        if key is None:
            return self._read(str(full), requirement)
        if key not in self._known:
            self._known[key] = self._read(str(full), requirement)
        return self._known[key]

    def _read(self, path: str, requirement: str) -> Outcome:
        required = requirements(self.table.master_key)[requirement]
        try:
            file = secure_bloom.ParquetFile(path, OWNER, require_encryption=required)
        except Exception as error:
            if not is_typed(error):
                raise
            return Refused(error)
        with file:
            try:
                return Whole(groups_of(file))
            except SecureBloomError:
                algorithm = file.footer.algorithm
                found = self._of_identity(algorithm.aad_file_unique) if algorithm else set()
                return Damaged(next(iter(found)) if len(found) == 1 else None)

    def _of_identity(self, identity: bytes) -> set[Groups]:
        """Return what the owner's files with this identity have."""
        for path, contents in self.table.archive.items():
            for data in contents if path.endswith(".parquet") else ():
                name = digest(data)
                if name in self._identified or name not in self.table.versions:
                    continue
                self._identified.add(name)
                try:
                    with secure_bloom.ParquetFile(data, OWNER) as file:
                        unique = file.footer.algorithm.aad_file_unique
                except SecureBloomError:  # its key material is in another file
                    continue
                self._by_identity.setdefault(unique, set()).add(self.table.versions[name])
        return self._by_identity.get(identity, set())

    # --- what readers say ------------------------------------------------------------------------

    def _check_authentic(self, path: str, outcome: Outcome, requirement: str) -> None:
        """Check that a file that is read whole is what somebody who may write it has written."""
        if not isinstance(outcome, Whole) or outcome.groups in self.table.versions.values():
            return
        if not names_the_key(requirement) and outcome.groups in self.planted:
            return
        if not names_the_footer_key(requirement) and outcome.groups in self.refooted:
            return
        raise Wrong(f"{path} is read whole, but its owner has never written these rows: "
                    f"{outcome.groups}")

    def _check(self, found: Counter[Row] | Exception, outcomes: dict[str, Outcome] | Exception,
               question: Question) -> None:
        if isinstance(found, Exception):
            return
        if isinstance(outcomes, Exception):
            raise Wrong(f"an answer, although the folder cannot be listed: {outcomes}")
        right: Counter[Row] = Counter()
        own: Counter[Row] = Counter()  # of the player, whose own indexes may deny them
        is_exact = True
        for path, outcome in outcomes.items():
            if isinstance(outcome, Refused):
                raise Wrong(f"an answer, although {path} is refused: {outcome.error}")
            (own if outcome.groups in self.planted else right).update(
                _rows(outcome.groups or (), question.persons))
            is_exact &= outcome.groups is not None
        if not demands_balances(question.requirement) and any("balance=" in path
                                                              for path in outcomes):
            # Folder names may replace a column that need not be encrypted.
            right, found, own = map(_persons, (right, found, own))
        if missing := right - found:
            raise Wrong(f"rows that the files have are said to be absent: {dict(missing)}")
        if is_exact and (more := found - right - own):
            raise Wrong(f"rows that the files do not have: {dict(more)}")
        if not is_exact and (more := found.keys() - self._all_rows()):
            raise Wrong(f"rows that no authentic file has: {more}")

    def _all_rows(self) -> set[Row]:
        return {row for one in (*self.table.versions.values(), *self.planted)
                for rows in one for row in rows}

    def _look_up(self, outcomes: dict[str, Outcome], question: Question) -> None:
        """Check that a lookup in the index leaves no authentic file out."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found = Index.open(self.table.folder, OWNER).lookup("ssn", question.persons)
            except Exception as error:
                if not is_typed(error):
                    raise
                self.counts["lookup: a typed error"] += 1
                return
        self.counts["lookup: an answer"] += 1
        authentic = set(self.table.versions.values())
        for path, outcome in outcomes.items():
            if not isinstance(outcome, Whole) or outcome.groups not in authentic \
                    or path in found.uncovered:
                continue
            for person, groups in zip(question.persons, found.row_groups, strict=True):
                for number, rows in enumerate(outcome.groups):
                    if _rows((rows,), [person]) and number not in groups.get(path, ()):
                        raise Wrong(f"Index.lookup says that row group {number} of {path} does "
                                    f"not have {person}")

    def _read_each(self, outcomes: dict[str, Outcome], question: Question, required: Any) -> None:
        """Read some files alone, those first that have changed."""
        changed = [path for path in outcomes if path not in self.table.files
                   or not self._is_as_written(path)]
        condition = [("ssn", "in", question.persons)]
        for path in changed[:3]:
            outcome = outcomes[path]
            try:
                with secure_bloom.ParquetFile(self.table.folder / path, OWNER,
                                              require_encryption=required) as file:
                    pruned = file.prune(condition)
                    found = Counter(rows_of(file.read(["ssn", "balance"], condition)))
            except Exception as error:
                if not is_typed(error):
                    raise
                continue
            if isinstance(outcome, Refused):
                raise Wrong(f"{path} is refused at first only: {outcome.error}")
            groups = outcome.groups
            if groups is None:
                continue
            if found != Counter(_rows(groups, question.persons)):
                raise Wrong(f"{path}, read alone: {dict(found)}")
            if any(_rows((rows,), question.persons) and number not in pruned
                   for number, rows in enumerate(groups)):
                raise Wrong(f"{path}: prune drops a row group that has the value")

    def _is_as_written(self, path: str) -> bool:
        try:
            full = self.table.folder / path
            return full.stat().st_size == len(self.table.files[path].data) \
                and full.read_bytes() == self.table.files[path].data
        except OSError:
            return False


def _persons(rows: Counter[Row]) -> Counter[Row]:
    found: Counter[Row] = Counter()
    for (person, _), number in rows.items():
        found[person, 0] += number
    return found


def _rows(groups: Groups, persons: list[str]) -> list[Row]:
    return [row for rows in groups for row in rows if row[0] in persons]
