"""Files whose keys a reader has only in part."""

import functools

import pyarrow as pa

import secure_bloom
from secure_bloom import EncryptionConfiguration
from secure_bloom.arrow import masking
from secure_bloom.keys import InMemoryKms
from tests.support import WatchedKms

KEYS = {"footer": b"0123456789012345", "pii": b"1234567890123450", "money": b"2345678901234501"}
Kms = functools.partial(WatchedKms, KEYS)
ALL = InMemoryKms(KEYS)
TABLE = pa.table({"ssn": ["ssn-0", "ssn-1", "ssn-2"], "city": ["Rome", "Oslo", "Rome"],
                  "pay": [10, 20, 30],
                  "home": [{"street": "A", "zip": 1}, None, {"street": None, "zip": 2}]})
MARK = {b"secure_bloom.masked": b"true"}


def put(where, columns, table=TABLE, *, plaintext_footer=False, **options):
    """Write a file whose columns have these keys."""
    options = {"bloom_filters": ["ssn", "city"], "row_group_size": 2} | options
    secure_bloom.write_table(table, where, keys=ALL, **options, encryption=EncryptionConfiguration(
        "footer", columns, plaintext_footer=plaintext_footer))
    return where


def forget_warnings():
    """Let the next read warn, as in a new process."""
    masking._warned.clear()


def nulls(table, *names):
    """Return the values of a table in which some columns are null."""
    return [row | dict.fromkeys(names) for row in table.to_pylist()]
