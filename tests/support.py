"""Helpers for several test modules."""

import contextlib
import functools
import io
import os
import subprocess
import sys
import threading

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, settings
from pyarrow.parquet.encryption import (
    CryptoFactory,
    EncryptionConfiguration,
    KmsClient,
    KmsConnectionConfig,
)
from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.Thrift import TType
from thrift.transport.TTransport import TMemoryBuffer
from xxhash import xxh64_intdigest

from secure_bloom import ExplicitKeys, UniformKey
from secure_bloom.arrow.encryption import file_encryption
from secure_bloom.errors import KeyAccessError
from secure_bloom.kernels import native
from secure_bloom.keys import InMemoryKms
from secure_bloom.parquet import compiled_footers
from secure_bloom.parquet.compiled_footers import CompiledFooters
from secure_bloom.parquet.footer import Footer
from secure_bloom.sbbf import filter as sbbf
from secure_bloom.sbbf import hashing, kernel_choice
from tests.tiers import number_of_examples


@contextlib.contextmanager
def named_pipe(path):
    """Make a pipe without a writer; whoever waits for one reads nothing after some seconds."""
    os.mkfifo(path, 0o600)
    ended = threading.Event()

    def release():
        while not ended.wait(3):
            with contextlib.suppress(OSError):  # nobody waits
                os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))

    thread = threading.Thread(target=release)
    thread.start()
    try:
        yield path
    finally:
        ended.set()
        thread.join()


def examples(count: int):
    """Return settings for a hypothesis test; ``make check`` runs fewer examples."""
    phases = [phase for phase in Phase if phase != Phase.explain]  # which takes minutes
    return settings(max_examples=number_of_examples(count), deadline=None, phases=phases,
                    suppress_health_check=[HealthCheck.too_slow])


def _built_levels() -> list[str]:
    """Return the built kernels that this CPU can execute; none if the build is missing or stale."""
    try:
        return native.usable_levels()
    except (native.NotUsableError, OSError):
        return []


# Kernels by the names of SECURE_BLOOM_KERNELS, the fastest first.
COMPILED = [*_built_levels(), "numba"]
IMPLEMENTATIONS = ["numpy", COMPILED[0]]
#: the same as parameters of tests; numba, which compiles for seconds, is not tried by `make check`
EACH_COMPILED = [pytest.param(name, marks=pytest.mark.slow if name == "numba" else ())
                 for name in COMPILED]


@functools.cache
def implementation(name: str) -> kernel_choice.Choice:
    """Return kernels by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(kernel_choice.VARIABLE, name)
        return kernel_choice.chosen.__wrapped__()


def use_implementation(monkeypatch, name: str):
    """Make all hashing and filter code use these kernels."""
    module = implementation(name).bulk
    for user in (hashing, sbbf):
        monkeypatch.setattr(user, "kernels_for", lambda count: module)
    return module


def footer_kernels(name: str) -> CompiledFooters:
    """Return the compiled functions for footers of these kernels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled_footers, "chosen", lambda: implementation(name))
        return compiled_footers.compiled_footers.__wrapped__()


def run_python(code: str) -> str:
    """Run a program in a new interpreter and return its output."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True,
                          text=True).stdout


# --- files of pyarrow, parsed without secure_bloom -----------------------------------------------

def arrow_file(table, **options) -> bytes:
    """Write a Parquet file with pyarrow, in the form that :func:`plain_values` parses."""
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="none", use_dictionary=False, data_page_version="1.0",
                   write_statistics=False, **options)
    return sink.getvalue()


def plain_values(file: bytes, leaf: int = 0) -> list[bytes]:
    """Return the non-null values of a leaf column as stored in the pages.

    A page of version 1 contains repetition levels and definition levels, each preceded by its
    length and only if the schema has such levels, then the values in plain encoding.
    """
    metadata = pq.read_metadata(io.BytesIO(file))
    column = metadata.schema.column(leaf)
    values = []
    for row_group in range(metadata.num_row_groups):
        chunk = metadata.row_group(row_group).column(leaf)
        position = chunk.data_page_offset
        end = position + chunk.total_compressed_size
        while position < end:
            header_size, page_size = _page_header(file[position:])
            position += header_size
            page = file[position:position + page_size]
            position += page_size
            for levels in (column.max_repetition_level, column.max_definition_level):
                if levels:
                    page = page[4 + int.from_bytes(page[:4], "little"):]
            values += _split(page, column)
    return values


def plain_hashes(file: bytes, leaf: int = 0) -> list[int]:
    """Return the sorted XXH64 hashes of :func:`plain_values`."""
    return sorted(xxh64_intdigest(value) for value in plain_values(file, leaf))


def _page_header(data: bytes) -> tuple[int, int]:
    """Return the sizes of a PageHeader and of the page that follows it."""
    transport = TMemoryBuffer(data)
    protocol = TCompactProtocol(transport)
    page_size = 0
    protocol.readStructBegin()
    while True:
        _, kind, field_id = protocol.readFieldBegin()
        if kind == TType.STOP:
            break
        if field_id == 3:
            page_size = protocol.readI32()
        else:
            protocol.skip(kind)
        protocol.readFieldEnd()
    return transport.cstringio_buf.tell(), page_size


def _split(page: bytes, column) -> list[bytes]:
    values = []
    while page:
        start, width = 0, column.length
        if column.physical_type == "BYTE_ARRAY":
            start, width = 4, int.from_bytes(page[:4], "little")
        elif column.physical_type != "FIXED_LEN_BYTE_ARRAY":
            width = {"INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}[
                column.physical_type]
        values.append(page[start:start + width])
        page = page[start + width:]
    return values


# --- footers -------------------------------------------------------------------------------------

def footer_parts(file: bytes) -> tuple[bytes, bytes]:
    """Return the footer without the last 8 bytes of the file, and the magic."""
    length = int.from_bytes(file[-8:-4], "little")
    return file[-8 - length:-8], file[-4:]


def open_footer(file: bytes, keys=None) -> Footer:
    """Parse the footer of a file in memory."""
    content, magic = footer_parts(file)
    return Footer(content, magic, keys, start=len(file) - 8 - len(content))


# --- encryption ----------------------------------------------------------------------------------

MASTER_KEYS = {"mf": b"master of footer", "mc": b"master of column", "md": b"D" * 32}
FOOTER_KEY = b"0123456789abcdef"


def kms() -> InMemoryKms:
    """Return a KMS with the master keys that :func:`encryptions` names."""
    return InMemoryKms(MASTER_KEYS)


def encryptions(column: str) -> dict:
    """Return ways to encrypt a file: name -> (encryption, kms, keys to read it with).

    The column has its own key if the encryption allows one.
    """
    columns = {"mc": [column]}
    prefix = {"aad_prefix": b"prefix"}
    ways = {
        "plain": None,
        "uniform": EncryptionConfiguration("mf", uniform_encryption=True),
        "column keys": EncryptionConfiguration("mf", column_keys=columns),
        "plaintext footer": EncryptionConfiguration("mf", column_keys=columns,
                                                    plaintext_footer=True),
        "ctr": EncryptionConfiguration("mf", column_keys=columns,
                                       encryption_algorithm="AES_GCM_CTR_V1"),
        "single wrapping": EncryptionConfiguration("mf", column_keys=columns,
                                                   double_wrapping=False,
                                                   data_key_length_bits=256),
        "key": UniformKey(FOOTER_KEY),
        "key, plaintext footer": UniformKey(FOOTER_KEY, plaintext_footer=True, **prefix),
        "key, supplied prefix": UniformKey(FOOTER_KEY, store_aad_prefix=False, **prefix),
    }
    result = {}
    for name, way in ways.items():
        if isinstance(way, UniformKey):
            result[name] = way, None, ExplicitKeys(FOOTER_KEY, aad_prefix=way.aad_prefix)
        else:
            result[name] = way, (kms() if way else None), (kms() if way else None)
    return result


MODES = list(encryptions("a"))


class WatchedKms(InMemoryKms):
    """Notes its calls in their order, and unwraps nothing with the keys that are denied."""

    def __init__(self, keys, *denied, error=KeyAccessError):
        super().__init__(keys)
        self.denied, self.error, self.calls = denied, error, []

    @property
    def wrapped(self) -> list[str]:
        return [name for what, name in self.calls if what == "wrap"]

    @property
    def unwrapped(self) -> list[str]:
        return [name for what, name in self.calls if what == "unwrap"]

    def wrap_key(self, key_bytes, master_key_identifier):
        self.calls.append(("wrap", master_key_identifier))
        return super().wrap_key(key_bytes, master_key_identifier)

    def unwrap_key(self, wrapped_key, master_key_identifier):
        self.calls.append(("unwrap", master_key_identifier))
        if master_key_identifier in self.denied:
            raise self.error(f"master key {master_key_identifier}: the KMS says no")
        return super().unwrap_key(wrapped_key, master_key_identifier)


class ArrowKms(KmsClient):
    """An adapter that makes our KMS client usable in pyarrow's own key tools."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def wrap_key(self, key_bytes, master_key_identifier):
        return self.inner.wrap_key(key_bytes, master_key_identifier)

    def unwrap_key(self, wrapped_key, master_key_identifier):
        return self.inner.unwrap_key(wrapped_key, master_key_identifier)


def encrypted_arrow_file(table, encryption, kms, **options) -> tuple[bytes, object]:
    """Write a file with pyarrow alone, without filters; return it with the keys to read it."""
    if encryption is None or isinstance(encryption, UniformKey):
        written_with = file_encryption(encryption, kms)
        properties, keys = written_with.properties, written_with.keys
    else:
        factory = CryptoFactory(lambda _: ArrowKms(kms))
        properties, keys = factory.file_encryption_properties(KmsConnectionConfig(), encryption), \
            kms
    sink = io.BytesIO()
    pq.write_table(table, sink, encryption_properties=properties, **options)
    return sink.getvalue(), keys
