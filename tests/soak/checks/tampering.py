"""A changed byte is noticed, or changes nothing."""

from __future__ import annotations

import secure_bloom
from secure_bloom.errors import SecureBloomError
from tests.modes import ENCRYPTED
from tests.soak.check import Case, Check
from tests.soak.generators import small_file

_COLUMNS = "secret", "name", "open"
_BYTES = 40


def _try(case: Case) -> None:
    """Change bytes one at a time; ask for everything that the keys protect."""
    gcm = [mode for mode in ENCRYPTED if "ctr" not in mode.name and not mode.plaintext_footer
           and mode.is_uniform]
    data, mode, _ = small_file(case, case.random.choice(gcm))
    right = _answers(data, mode.keys)
    for _ in range(_BYTES):
        place = case.random.randrange(len(data))
        value = case.random.choice([byte for byte in range(256) if byte != data[place]])
        changed = data[:place] + bytes([value]) + data[place + 1:]
        try:
            answers = _answers(changed, mode.keys)
        except SecureBloomError as error:
            case.counts[type(error).__name__] += 1
        else:
            assert answers == right, f"byte {place} of {len(data)} of {mode}: {value}"
            case.counts["same answer"] += 1
        case.tried += 1


def _answers(data: bytes, keys: object) -> tuple:
    with secure_bloom.ParquetFile(data, keys) as file:
        rows = file.read()
        filters = [file.read_bloom_filter(group, name) for group in range(file.num_row_groups)
                   for name in _COLUMNS]
        return rows.to_pydict(), [bytes(one.bitset) if one else None for one in filters]


CHECK = Check("tampering", "a changed byte of an encrypted file is noticed, or changes nothing",
              "changes", 10**7, _try)
