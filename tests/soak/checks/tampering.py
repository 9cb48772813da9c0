"""A changed byte is noticed, or changes nothing."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.fs as pa_fs
from pyarrow.parquet.encryption import EncryptionConfiguration

import secure_bloom
from secure_bloom.errors import SecureBloomError
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.manifest import StoredManifest
from secure_bloom.keys import InMemoryKms
from secure_bloom.keys.cache import CachedKms
from tests.modes import ENCRYPTED, MASTER_KEYS, Mode
from tests.soak.check import Case, Check
from tests.soak.generators import small_file

_COLUMNS = "secret", "name", "open"
_PLACES = 20  # of each kind, each with all values of a byte
_BYTES_OF_PAGES = 40


def _try(case: Case) -> None:
    """Change bytes one at a time; ask for everything that the keys protect."""
    data, mode, _ = small_file(case, case.random.choice(ENCRYPTED))
    _change_filters(case, data, mode)
    _change_footer(case, data, mode)
    _change_manifest(case)
    if mode.is_uniform and not mode.plaintext_footer and "ctr" not in mode.name:
        _change_anything(case, data, mode)


def _change_filters(case: Case, data: bytes, mode: Mode) -> None:
    source = io.BytesIO(data)
    with secure_bloom.ParquetFile(source, mode.keys) as file:
        filters = [one for one in file.bloom_filters if one.encrypted]
        place_of = [(place, one) for one in filters
                    for place in range(one.offset, one.offset + (one.length or 0))]
        for place, info in case.random.sample(place_of, min(_PLACES, len(place_of))):
            def read(info=info) -> bytes:
                found = file.read_bloom_filter(info.row_group, info.column)
                return b"" if found is None else bytes(found.bitset)
            with source.getbuffer() as content:
                _try_all_values(case, "filter", content, place, read)


def _change_footer(case: Case, data: bytes, mode: Mode) -> None:
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    changed = bytearray(data)
    for place in case.random.sample(range(start, len(data)), _PLACES):
        _try_all_values(case, "footer", changed, place,
                        lambda: _answers(bytes(changed), mode.keys))


def _change_manifest(case: Case) -> None:
    """Change the manifest of an encrypted index, which holds its key's material."""
    lake, kms = case.folder / "lake", InMemoryKms(MASTER_KEYS)
    encryption = EncryptionConfiguration("kf", column_keys={"kc1": ["ssn"]})
    secure_bloom.write_dataset(pa.table({"ssn": ["a", "b"]}), lake, keys=kms, bloom_filters=True,
                               encryption=encryption)
    secure_bloom.index.build(lake, "ssn", kms)
    folder = IndexFolder(pa_fs.LocalFileSystem(), str(lake), "ssn")
    stored = folder.newest()
    assert stored is not None
    with open(folder.manifest_path(stored.version), "rb") as file:
        content = bytearray(file.read())

    def read() -> object:
        found = StoredManifest.parse(content, stored.version)
        return found and found.open("ssn", CachedKms(kms)).body
    for place in case.random.sample(range(len(content)), _PLACES // 4):
        _try_all_values(case, "manifest", content, place, read, others=[None])  # None: torn


def _try_all_values(case: Case, what: str, content: bytearray | memoryview, place: int,
                    read: Callable[[], object], others: Sequence[object] = ()) -> None:
    """Give a byte each value; restore it afterwards."""
    was, right = content[place], read()
    for value in range(256):
        content[place] = value
        try:
            answer = read()
        except SecureBloomError as error:
            case.counts[f"{what}: {type(error).__name__}"] += 1
        else:
            assert answer == right or answer in others, f"{what}, byte {place}: {value}"
            case.counts[f"{what}: same answer"] += 1
    content[place] = was
    case.tried += 255


def _change_anything(case: Case, data: bytes, mode: Mode) -> None:
    """Change a byte anywhere in a file of which all modules are authenticated."""
    right, content = _answers(data, mode.keys), bytearray(data)
    for _ in range(_BYTES_OF_PAGES):
        place = case.random.randrange(len(data))
        content[place] ^= case.random.randrange(1, 256)
        try:
            answers = _answers(bytes(content), mode.keys)
        except SecureBloomError as error:
            case.counts[f"file: {type(error).__name__}"] += 1
        else:
            assert answers == right, f"byte {place} of {len(data)} of {mode}: {content[place]}"
            case.counts["file: same answer"] += 1
        content[place] = data[place]
        case.tried += 1


def _answers(data: bytes, keys: object) -> tuple:
    with secure_bloom.ParquetFile(data, keys) as file:
        rows = file.read()
        filters = [file.read_bloom_filter(group, name) for group in range(file.num_row_groups)
                   for name in _COLUMNS]
        return rows.to_pydict(), [bytes(one.bitset) if one else None for one in filters]


CHECK = Check("tampering", "a changed byte of an encrypted file is noticed, or changes nothing",
              "changes", 10**7, _try)
