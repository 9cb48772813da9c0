"""What hostile bytes can reach: a valid input of each kind, and what reads it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pa_fs
from click.testing import CliRunner

import secure_bloom
from secure_bloom import Policy
from secure_bloom.cli import main as command_line
from secure_bloom.errors import SecureBloomError
from secure_bloom.index import Index
from secure_bloom.index.file_entry import FileEntry
from secure_bloom.index.file_table import FileDirectory, FileTable
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.manifest import Body, StoredManifest
from secure_bloom.index.pages import SPARE, Page, PageLayout, Pages
from secure_bloom.index.stamps import Stamp
from secure_bloom.kernels.vectorized import encode_page
from secure_bloom.keys import InMemoryKms, Keyring
from secure_bloom.keys.cache import CachedKms
from secure_bloom.keys.external import read_material
from secure_bloom.keys.material import KeyMaterial, find_material
from secure_bloom.keys.uri import open_kms
from secure_bloom.lance.null_rows import NullRowsBuilder, read_null_rows
from secure_bloom.parquet.footer import Footer
from secure_bloom.parquet.header import decode_header, encode_header
from secure_bloom.parquet.tail import split_tail
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.spark.options.row_filters import parse_filters
from secure_bloom.storage.table_names import material_path
from tests.modes import MASTER_KEYS, Mode

_KMS = InMemoryKms(MASTER_KEYS)
_LOCAL = pa_fs.LocalFileSystem()
_OF_PEOPLE = (SecureBloomError, ValueError, TypeError)  # what people write is not damaged


@dataclass(frozen=True)
class HostileInput:
    """A kind of input.

    Attributes
    ----------
    valid : bytes
        What is damaged.
    read : callable
        Takes damaged bytes.
    errors : tuple of type
        What it may raise.
    """

    valid: bytes
    read: Callable[[bytes], Any]
    errors: tuple[type[BaseException], ...] = (SecureBloomError,)


def in_memory(data: bytes) -> dict[str, HostileInput]:
    """Return the kinds that are read from memory, in much less than a millisecond.

    ``data`` is a Parquet file.
    """
    _, footer, magic = split_tail(data)
    material = KeyMaterial("kf", "d" * 24, b"0123456789012345", "k" * 24, True).serialize()
    return {
        "header": HostileInput(encode_header(1024), decode_header),
        "footer": HostileInput(footer, lambda hostile: _footer(hostile, magic)),
        "key material": HostileInput(material, KeyMaterial.parse),
        "key metadata": HostileInput(
            material, lambda hostile: find_material(hostile, {"a": material.decode()})),
        "null rows": HostileInput(_null_rows(), lambda hostile: list(read_null_rows(hostile))),
        "page of an index": HostileInput(*_page()),
        "policy": HostileInput(
            b'footer_key = "kf"\ndefault = "encrypt"\nsensitive = ["ssn", "*.name"]\n[columns]\n'
            b'ssn = { key = "kc1", bloom_filter = { fpp = 0.001 } }\n'
            b'[[tables]]\npath = "s3://a/*"\nsensitive = ["x"]\n',
            lambda hostile: Policy.from_toml(hostile.decode("utf-8", "replace"))),
        "filters of Spark": HostileInput(
            b'[["a.b", "=", ["int", 7]], ["c", "in", ["list", [["str", "x"]]]]]',
            lambda hostile: parse_filters(hostile.decode("utf-8", "replace"))),
    }


def in_files(data: bytes, mode: Mode, folder: Path) -> dict[str, HostileInput]:
    """Return the kinds that are read from files; ``data`` is a Parquet file of this mode."""
    ring, material = folder / "keyring.json", Path(material_path(str(folder / "a.parquet")))
    Keyring.create(ring).add("k")
    _, footer, magic = split_tail(data)
    before = data[:len(data) - 8 - len(footer)]
    return {
        "file": HostileInput(data, lambda hostile: _read(hostile, mode.keys)),
        "footer of a file": HostileInput(footer, lambda hostile: _read(
            before + hostile + len(hostile).to_bytes(4, "little") + magic, mode.keys)),
        "keyring": HostileInput(ring.read_bytes(), lambda hostile: _keyring(ring, hostile)),
        "external key material": HostileInput(
            json.dumps({"footerKey": "x", "columnKey0": "y"}).encode(),
            lambda hostile: (material.write_bytes(hostile),
                             read_material(_LOCAL, str(folder / "a.parquet")))),
        "CSV": HostileInput(b"ssn,city,n\n078-05-1120,Rome,1\n219-09-9999,Oslo,2.5\n" * 3,
                            lambda hostile: _command(folder, hostile)),
        # The installed packages are asked for an unknown scheme.
        "URI of a KMS": HostileInput(
            b"vault:https://host:8200/transit?namespace=x&timeout=3",
            lambda hostile: open_kms(hostile.decode("utf-8", "replace")), _OF_PEOPLE),
        **_of_an_index(folder),
    }


def _footer(content: bytes, magic: bytes) -> None:
    footer = Footer(content, magic)
    for chunk in footer.column_chunks():
        _ = chunk.encryption, chunk.statistics


def _null_rows() -> bytes:
    builder = NullRowsBuilder()
    builder.add(3, np.array([1, 7, *range(70_000, 70_040)], np.uint64))
    return builder.to_bytes()


def _page() -> tuple[bytes, Callable[[bytes], Any]]:
    layout = PageLayout(4, 5)
    buckets = np.sort(np.arange(40, dtype=np.uint64) % 16)
    content = encode_page(buckets, np.arange(40, dtype=np.uint64), layout.width,
                          layout.bucket_bits)

    def read(hostile: bytes) -> None:
        page = Page(pa.py_buffer(hostile), layout)
        page.decode()
        for bucket in buckets.tolist():
            page.find(bucket, bucket, 20)
        together = Pages(np.frombuffer(2 * hostile + bytes(SPARE), np.uint8),
                         len(hostile) * np.arange(3), layout)
        together.find(np.arange(buckets.size) % 2, buckets, buckets, 20)
    return content, read


def _read(data: bytes, keys: object) -> None:
    with secure_bloom.ParquetFile(io.BytesIO(data), keys) as file:
        file.prune([("secret", "==", 7)])
        _ = file.bloom_filters
        file.might_contain("secret", pa.array([1, 2, 3]))


def _keyring(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    Keyring(path).wrap_key(b"0123456789012345", "k")


def _command(folder: Path, data: bytes) -> None:
    """Convert a CSV file; a command reports errors of ours, and ends with 70 for any other."""
    source = folder / "in.csv"
    source.write_bytes(data)
    done = CliRunner().invoke(command_line, [
        "write", str(source), str(folder / "out.parquet"), "--plaintext", "--overwrite",
        "--bloom", "ssn"])
    if done.exit_code in (1, 70) or not isinstance(done.exception, SystemExit | None):
        raise AssertionError(f"exit code {done.exit_code}: {done.output}") from done.exception
    if done.exit_code:
        raise SecureBloomError("reported by the command")


def _of_an_index(folder: Path) -> dict[str, HostileInput]:
    """Return the parts of an index without encryption, which anyone can seal."""
    lake = folder / "lake"
    secure_bloom.write_dataset(pa.table({"id": range(100)}), lake, bloom_filters=["id"])
    secure_bloom.index.build(lake, "id", encryption=None)
    [segment] = lake.rglob("*.seg")
    stored = IndexFolder(_LOCAL, str(lake), "id").newest()
    assert stored is not None
    body = stored.open("id", None).body
    [part] = lake.glob("*.parquet")
    with OpenFile(part) as file:
        files = FileTable.of([FileEntry.of(file, part.name, Stamp(1, 2))])
    manifest = IndexFolder(_LOCAL, str(lake), "id").manifest_path(stored.version)

    def read_manifest(hostile: bytes) -> None:
        found = StoredManifest.parse(hostile, stored.version)
        if found is not None:
            found.open("id", CachedKms(_KMS))

    def read_page(hostile: bytes) -> None:
        FileTable.stored(files.directory, lambda *_: [pa.py_buffer(hostile)], nullcontext).check()

    def read_segment(hostile: bytes) -> None:
        segment.write_bytes(hostile)
        Index.open(lake).lookup("id", [1, 2])

    return {"manifest": HostileInput(Path(manifest).read_bytes(), read_manifest),
            "content of a manifest": HostileInput(body.to_json(), Body.from_json),
            "file table": HostileInput(files.directory.to_bytes(), FileDirectory.parse),
            "page of files": HostileInput(files.page(0).to_bytes(), read_page),
            "segment": HostileInput(segment.read_bytes(), read_segment)}
