"""Files are encrypted, encrypted again and decrypted, and all else is done to them in between."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import secure_bloom
from secure_bloom import EncryptionConfiguration
from secure_bloom.crypto.aad import ModuleType
from secure_bloom.crypto.aes_gcm import NONCE_SIZE
from secure_bloom.crypto.modules import LENGTH_SIZE, module_length
from secure_bloom.errors import AuthenticationError, KeyNotFoundError, UnsupportedError
from secure_bloom.keys import InMemoryKms, rotate_master_keys
from secure_bloom.parquet.chunk_modules import ChunkModules
from secure_bloom.parquet.pages import StoredPages, copied_pages
from secure_bloom.reading.open_file import OpenFile
from tests.modes import MASTER_KEYS, MODES
from tests.soak.check import Case, Check, in_memory
from tests.soak.generators import (
    LEAVES,
    column_keys,
    distinct_values,
    plain,
    random_options,
    random_table,
)

_KMS = InMemoryKms(MASTER_KEYS)
_NOT_AUTHENTICATED = ModuleType.DATA_PAGE, ModuleType.DICTIONARY_PAGE  # in AES_GCM_CTR_V1


class Module(NamedTuple):
    """A module of a file, and how it is decrypted."""

    modules: ChunkModules
    type: ModuleType
    page: int | None
    data: bytes

    def opens_as(self, other: Module) -> bool:
        """Whether it opens with the key and at the place of another module."""
        try:
            other.modules.decrypt(self.data, other.type, other.page)
        except AuthenticationError:
            return False
        return True


@dataclass
class Version:
    """What a version of a file has: pages before encryption, by column chunk, and modules."""

    pages: list[bytes]
    modules: list[Module]
    footer_nonce: bytes

    @classmethod
    def of(cls, path: Path, keys: Any) -> Version:
        """Open a file."""
        with OpenFile(str(path), keys) as file:
            pages, modules = [], []
            for chunk in file.footer.column_chunks():
                found = chunk.modules
                if chunk.pages is not None:
                    pages.append(b"".join(map(bytes, copied_pages(file, chunk.pages, found, None,
                                                                  StoredPages()))))
                if found is not None:
                    modules += _modules(file, chunk, found)
            footer = file.stored_footer
            nonce = footer[-28:-16]
            if file.footer.has_encrypted_footer:
                start = next(place for place in range(len(footer))
                             if module_length(footer[place:]) == len(footer) - place)
                nonce = footer[start + LENGTH_SIZE:start + LENGTH_SIZE + NONCE_SIZE]
            return cls(pages, modules, nonce if file.footer.is_encrypted else b"")

    def nonces(self) -> Iterator[bytes]:
        """Yield the nonces of all modules."""
        yield self.footer_nonce
        for one in self.modules:
            yield one.data[LENGTH_SIZE:LENGTH_SIZE + NONCE_SIZE]

    def keys(self) -> set[bytes]:
        """Return all data keys of columns."""
        return {one.modules.cipher._key for one in self.modules}


def _modules(file: OpenFile, chunk: Any, modules: ChunkModules) -> Iterator[Module]:
    page = -1
    data = _split(file, chunk.pages)
    for number in range(0, len(data), 2):
        header = Module(modules, ModuleType.DICTIONARY_PAGE_HEADER, None, data[number])
        is_dictionary = number == 0 and header.opens_as(header)
        page += not is_dictionary
        yield header if is_dictionary else Module(modules, ModuleType.DATA_PAGE_HEADER, page,
                                                  data[number])
        yield Module(modules, ModuleType.DICTIONARY_PAGE if is_dictionary else ModuleType.DATA_PAGE,
                     None if is_dictionary else page, data[number + 1])
    for where, types in ((chunk.column_index, [ModuleType.COLUMN_INDEX]),
                         (chunk.offset_index, [ModuleType.OFFSET_INDEX]),
                         (chunk.bloom_filter, [ModuleType.BLOOM_FILTER_HEADER,
                                               ModuleType.BLOOM_FILTER_BITSET])):
        if where is not None:
            for type_, one in zip(types, _split(file, where), strict=True):
                yield Module(modules, type_, None, one)


def _split(file: OpenFile, where: tuple[int, int] | None) -> list[bytes]:
    """Return the modules of a range of bytes."""
    found, data = [], b"" if where is None else file.read_at(where[1], where[0])
    while data:
        size = LENGTH_SIZE + int.from_bytes(data[:LENGTH_SIZE], "little")
        assert size <= len(data)
        found.append(bytes(data[:size]))
        data = data[size:]
    return found


# --- the chain -----------------------------------------------------------------------------------

class Game:
    """A file, its keys, its rows, and all that was ever in it."""

    def __init__(self, case: Case, path: Path):
        self.case, self.path = case, path
        self.keys: Any = None
        self._write(random_table(case, case.random.choice([0, 1, 10, 500, 3000])))
        self.rows = _plain(secure_bloom.read_table(self.path, self.keys))
        self._shown = _shown(self.rows)
        self.version = Version.of(self.path, self.keys)
        self._opened: Version | None = None  # the current version, if a step has opened it
        self.nonces = set(self.version.nonces())
        self.data_keys = self.version.keys()

    def _write(self, table: pa.Table) -> None:
        case, options = self.case, random_options(self.case)
        options["row_group_size"] = max(case.random.choice([7, 100, 10_000]), table.num_rows // 8)
        writer = case.random.choice(["ours", "ours", "ours", "pyarrow", "polars", "duckdb"])
        case.counts[writer] += 1
        if writer == "ours":
            mode = case.random.choice(MODES)
            mode.write(table, self.path, column_keys(case, table),
                       bloom_filters=case.random.choice([True, ["id"]]), **options)
            self.keys = mode.keys
        elif writer == "pyarrow":
            pq.write_table(table, self.path, write_page_checksum=True, **options)
        elif writer == "polars":
            pl.from_arrow(_plain(table)).write_parquet(self.path, row_group_size=500)
        else:
            self._write_by_duckdb(table, case.random.choice(["v1", "v2"]))
            try:
                pq.read_table(self.path)
            except OSError:  # pyarrow cannot read some deltas of 32 bits
                self._write_by_duckdb(table, "v1")

    def _write_by_duckdb(self, table: pa.Table, version: str) -> None:
        with duckdb.connect() as connection:
            connection.register("t", _plain(table))
            connection.execute(f"COPY t TO '{self.path}' (FORMAT parquet, PARQUET_VERSION "
                               f"{version})")

    def play(self) -> None:
        """Do some random steps."""
        steps = [self._encrypt, self._reencrypt, self._decrypt, self._erase, self._attach,
                 self._seal, self._rotate]
        for _ in range(self.case.random.choice([4, 8, 16])):
            step = self.case.random.choice([self._encrypt, self._reencrypt, *steps])
            before = self.path.read_bytes()
            os.utime(self.path, (0, 0))  # readers wait for the clock if a file is new
            try:
                step()
                self._check(is_new=self.path.read_bytes() != before)
            except Exception as error:
                error.add_note(f"step {step.__name__}; keys {self.keys!r}")
                raise
            self.case.tried += 1
            self.case.counts[step.__name__.strip("_")] += 1

    def _encrypt(self) -> None:
        encryption = self._encryption()
        result = secure_bloom.encrypt(self.path, self.keys, encryption=encryption, new_keys=_KMS,
                                      keep_times=self.case.random.choice([True, False]))
        if self._is_refused(result):
            return
        self.keys = _KMS
        self._check_new(result)
        assert result.unchanged or not [one for one in secure_bloom.audit(
            self.path, _KMS, scan=True).findings if one.severity == "error"]

    def _reencrypt(self) -> None:
        if self.keys is None or self.keys is _KMS or isinstance(self.keys, InMemoryKms):
            to = dict([self.case.random.sample(sorted(MASTER_KEYS), 2)])
            try:
                result = secure_bloom.reencrypt(self.path, self.keys or _KMS, master_keys=to)
            except KeyNotFoundError:  # the file has another one
                result = secure_bloom.reencrypt(self.path, self.keys or _KMS)
        else:
            result = secure_bloom.reencrypt(self.path, self.keys, encryption=self._encryption(),
                                            new_keys=_KMS)
            if self._is_refused(result):
                return
            self.keys = _KMS
        self._check_new(result)

    def _decrypt(self) -> None:
        result = secure_bloom.decrypt(self.path, self.keys, plaintext=True)
        self.keys = None
        self._check_new(result)
        assert not Version.of(self.path, None).modules

    def _erase(self) -> None:
        names = [name for name in self.rows.column_names if name not in LEAVES]
        name = self.case.random.choice(names)
        values = distinct_values(self.rows[name]).to_pylist()
        erased = self.case.random.sample(values, min(len(values), 2))
        if not erased:
            return
        try:
            assert secure_bloom.erase(self.path, name, erased, self.keys, max_share=1).ok
        except UnsupportedError as error:  # what other writers store is not always repeatable
            assert "pyarrow cannot write its values" in str(error)
            self.case.counts["erasures refused"] += 1
            return
        gone = pc.fill_null(pc.is_in(self.rows[name], pa.array(erased, self.rows[name].type)),
                            False)
        self.rows = self.rows.filter(pc.invert(gone))
        self._shown = _shown(self.rows)

    def _attach(self) -> None:
        assert secure_bloom.attach(self.path, ["id"], self.keys, replace=True).ok

    def _seal(self) -> None:
        assert secure_bloom.seal(self.path, self.keys).ok

    def _rotate(self) -> None:
        if isinstance(self.keys, InMemoryKms):
            old, new = self.case.random.sample(sorted(MASTER_KEYS), 2)
            with suppress(KeyNotFoundError):  # the file has another one
                assert rotate_master_keys(self.path, self.keys, old=old, new=new).ok

    def _encryption(self) -> EncryptionConfiguration:
        choose = self.case.random.choice
        options = {"double_wrapping": choose([True, False]),
                   "data_key_length_bits": choose([128, 192, 256]),
                   "encryption_algorithm": choose(["AES_GCM_V1", "AES_GCM_CTR_V1"])}
        if choose([True, False]):
            return EncryptionConfiguration("kf", uniform_encryption=True, **options)
        options["plaintext_footer"] = choose([True, False])
        if choose([True, False]):
            return EncryptionConfiguration("kf", column_keys(self.case, self.rows), **options)
        with OpenFile(str(self.path), self.keys) as file:
            return EncryptionConfiguration("kf", {"kc1": [one.path for one in file.columns]},
                                           **options)

    def _is_refused(self, result: Any) -> bool:
        if not result.ok:
            [message] = result.failed.values()
            assert "would be in plaintext" in message, message
            self.case.counts["refused, because a column would be opened"] += 1
        return not result.ok

    def _check_new(self, result: Any) -> None:
        """Check that a version has nothing of the old one but its pages before encryption."""
        assert result.ok, result.failed
        if not result.changed:
            return
        old = self.version
        new = self._opened = Version.of(self.path, self.keys)
        assert new.pages == old.pages, "other pages"
        assert not new.keys() & self.data_keys, "an old data key"
        if self.keys is not None:
            assert not self.nonces & set(new.nonces()) - {b""}, "an old nonce"
        for before in self._some(old.modules):
            for after in self._some(new.modules):
                assert not before.opens_as(after), "an old module opens in the new file"
                assert not after.opens_as(before), "a new module opens with the old key"
                self.case.counts["modules tried elsewhere"] += 2
        for one in self._some(new.modules):
            assert one.opens_as(one)
            assert not any(one.opens_as(other) for other in self._some(new.modules)
                           if other.data != one.data), "a module opens at another place"

    def _some(self, modules: list[Module]) -> list[Module]:
        """Return some modules that AES-GCM authenticates."""
        found = [one for one in modules
                 if one.modules.by_gcm or one.type not in _NOT_AUTHENTICATED]
        return self.case.random.sample(found, min(len(found), 12))

    def _check(self, *, is_new: bool) -> None:
        found = _plain(secure_bloom.read_table(self.path, self.keys))
        assert _shown(found) == self._shown, "other rows"
        if is_new:
            self.version, self._opened = self._opened or Version.of(self.path, self.keys), None
            found_nonces = [one for one in self.version.nonces() if one]
            assert len(set(found_nonces)) == len(found_nonces), "a nonce was used twice"
            self.nonces |= set(found_nonces)
            self.data_keys |= self.version.keys()
            self.case.counts["nonces"] += len(found_nonces)


def _shown(rows: pa.Table) -> str:
    """Return rows as text, in which NaN is equal to NaN."""
    return repr(rows.to_pydict())


def _plain(table: pa.Table) -> pa.Table:
    return pa.table({name: plain(table[name]) for name in table.column_names})


def _try(case: Case) -> None:
    """Write a random file, do random steps, and look all values up in its filters."""
    with in_memory(case) as folder:
        game = Game(case, folder / "a.parquet")
        game.play()
        verified = secure_bloom.verify_file(game.path, game.keys)
        assert verified.ok, verified


CHECK = Check("reencrypt", "what is encrypted again has the same rows and pages, and nothing of it "
              "opens with an old key", "steps", 20_000, _try)
