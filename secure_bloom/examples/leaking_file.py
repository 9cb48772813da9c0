"""A leaking file for trying audit and seal: python -m secure_bloom.examples.leaking_file FOLDER

arrow-rs encrypts columns, but writes their Bloom filters in plaintext, after the pages of each row
group. This module creates such a file from real data: flights from New York in 2013, whose tail
numbers are encrypted. It also writes a keyring, a policy, and guesses: all tail numbers of five
digits.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from secure_bloom.encryption import Encryption, EncryptionConfiguration, UniformKey
from secure_bloom.keys import Keyring
from secure_bloom.maintain.build import build_filter
from secure_bloom.parquet import thrift
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.header import encode_header
from secure_bloom.policy import NO_POLICY
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.sbbf.options import BloomFilterOptions
from secure_bloom.table_writing import write_table
from secure_bloom.verify.measure import ColumnHashes

_OFFSETS = 9, 10, 11  # ColumnMetaData fields: data, index and dictionary page offsets


def leaking_file(table: pa.Table, columns: Iterable[str], keys: Any = None, *,
                 encryption: Encryption, **writer: Any) -> bytes:
    """Create an encrypted file with plaintext filters, in the layout of arrow-rs.

    Parameters
    ----------
    table : pyarrow.Table
    columns : iterable of str
        Dotted paths of the columns that get plaintext filters.
    keys : optional
        For reading the file and, with an EncryptionConfiguration, for writing it.
    encryption, **writer
        Arguments of :func:`secure_bloom.write_table`.
    """
    sink = pa.BufferOutputStream()
    write_table(table, sink, bloom_filters={}, encryption=encryption, policy=NO_POLICY,
                write_page_index=False,
                keys=None if isinstance(encryption, UniformKey) else keys, **writer)
    file = OpenFile(sink.getvalue(), keys)
    hashes, wanted = ColumnHashes(file, keys), set(columns)
    data, taken = bytearray(), 0
    for number, chunks in enumerate(file.footer.row_groups):
        end = max(sum(chunk.pages or ()) for chunk in chunks)
        shift = len(data) - taken
        data += file.read_at(end - taken, taken)
        taken = end
        for chunk in chunks:
            _shift(chunk, shift)
        for chunk in (chunk for chunk in chunks if chunk.column.path in wanted):
            filter_ = build_filter(hashes, chunk, file.footer.row_group_num_rows(number),
                                   BloomFilterOptions())
            start = len(data)
            data += encode_header(filter_.num_bytes) + filter_.bitset
            chunk.set_bloom_filter(start, len(data) - start)
    return bytes(data + file.footer.to_bytes())


def _shift(chunk: ColumnChunk, by: int) -> None:
    for meta in chunk.metadata_to_change():
        for field in _OFFSETS:
            if offset := meta.get_int(field):
                meta.set_int(field, thrift.I64, offset + by)


POLICY = """\
# Columns that must be encrypted, in every file.
sensitive = ["tailnum"]
"""


def main(folder: str) -> None:
    """Write the example files."""
    from secure_bloom.examples.flights import load
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    keyring = Keyring.create(target / "keyring.json")
    for name in ("footer", "pii"):
        keyring.add(name)
    data = leaking_file(
        load("flights.csv.zip"), ["tailnum", "dest"], keyring,
        encryption=EncryptionConfiguration("footer", {"pii": ["tailnum"]}, plaintext_footer=True),
        row_group_size=100_000)
    (target / "flights").mkdir()
    (target / "flights" / "2013.parquet").write_bytes(data)
    (target / "policy.toml").write_text(POLICY)
    guesses = (f"N{number}" for number in range(10_000, 100_000))
    (target / "guesses.txt").write_text("\n".join(guesses) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
