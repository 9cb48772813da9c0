"""Encrypt an existing plaintext file: against reading and writing it with pyarrow.

parquet-java's rewriter, in a warm JVM, encrypts without decoding, too. The last peer copies the
file, and encrypts as many bytes with AES-GCM: nothing can be faster that writes every byte
encrypted. The file has a million rows and 20 columns, of which all are encrypted.
Times are CPU time, and all files are in the page cache.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from pathlib import Path

import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import secure_bloom
from benchmarks.compare import Comparison, compare, table
from benchmarks.kernel_peers import Peer, parquet_java
from benchmarks.pages import _rows
from benchmarks.section import Plan, Section
from secure_bloom.arrow.keys import crypto_factory
from secure_bloom.keys import InMemoryKms

ROWS, FILES, ROWS_OF_SMALL = 1_000_000, 1_000, 2_000
LARGE_FILES, GROUPS_OF_LARGE = 10, 6  # row groups, of ROWS rows
KMS = InMemoryKms({"footer": b"f" * 16})
ENCRYPTION = secure_bloom.EncryptionConfiguration("footer", uniform_encryption=True)
PYARROW, BYTES, OURS = "pyarrow, read and write", "copy, and AES-GCM", "encrypt"
JAVA = "parquet-java, ParquetRewriter"
_WARM = 3  # more runs until the JVM has compiled what is hot
_PAGE = 1 << 20  # bytes that are encrypted in one call


def run(plan: Plan) -> Section:
    """Run the benchmark."""
    found = [_one_file(plan), _small_files(plan)]
    [large, small] = found
    if plan.large:
        found.append(_large_files(plan))
    against_bytes, against_java = (statistics.median(
        own / peer for own, peer in zip(large.seconds[OURS], large.seconds[peer], strict=True))
        for peer in (BYTES, JAVA))
    lines = [f"- One file: {statistics.median(large.ratios(OURS)):.1f} times as fast as pyarrow "
             f"(target 6), {1 / against_java:.1f} times as fast as parquet-java's ParquetRewriter "
             f"(target 2), and {against_bytes:.2f} times the time of copying and encrypting its "
             "bytes (target 1.5).",
             f"- Small files: {statistics.median(small.ratios(OURS)):.2f} times as fast as "
             "pyarrow (target 6)."]
    lines += [f"- {one.work}: {one.ratios(OURS)[0]:.1f} times as fast as pyarrow (target 6)."
              for one in found[2:]]
    return Section(f"{table(found)}\n\n" + "\n".join(lines), [one.to_json() for one in found])


def _one_file(plan: Plan) -> Comparison:
    path = plan.folder / "plain.parquet"
    rows = plan.size(ROWS, 1000)
    pq.write_table(_rows(rows), path, row_group_size=rows // 4, write_page_index=True)
    with parquet_java("JavaRewriter") as peer:
        java = _Java(peer, path, plan.folder / "java.parquet")
        for _ in range(_WARM):
            java.rewrite()
        return compare(f"20 columns, {rows:,} rows, {path.stat().st_size >> 20} MB, CPU", {
            PYARROW: lambda: _by_pyarrow([path], plan.folder / "out"),
            JAVA: java.rewrite,
            BYTES: lambda: _bytes(path, plan.folder / "bytes"),
            OURS: lambda: _ours(path, plan.folder / "ours")}, plan.rounds,
            clock=lambda: time.process_time() + java.seconds)


def _large_files(plan: Plan) -> Comparison:
    """Compare once, as it takes minutes and 20 GB of the disk."""
    folder, seconds = plan.folder / "large", {}
    folder.mkdir()
    part = _rows(plan.size(ROWS, 1000))
    paths = [folder / f"{number}.parquet" for number in range(LARGE_FILES)]
    with pq.ParquetWriter(paths[0], part.schema, write_page_index=True) as writer:
        for _ in range(GROUPS_OF_LARGE):
            writer.write_table(part)
    for path in paths[1:]:
        shutil.copyfile(paths[0], path)
    size = sum(path.stat().st_size for path in paths)
    for name, contestant in {
            PYARROW: lambda: [_by_pyarrow([path], plan.folder / "out") for path in paths],
            OURS: lambda: _ours(folder, plan.folder / "out")}.items():
        start = time.process_time()
        contestant()
        seconds[name] = [time.process_time() - start]
        shutil.rmtree(plan.folder / "out")
    shutil.rmtree(folder)
    return Comparison(f"{LARGE_FILES} files of {size / LARGE_FILES / 1e9:.1f} GB, CPU", seconds)


def _small_files(plan: Plan) -> Comparison:
    folder, number = plan.folder / "small", plan.size(FILES, 4)
    folder.mkdir()
    data = _rows(ROWS_OF_SMALL)
    paths = [folder / f"{one}.parquet" for one in range(number)]
    for path in paths:
        pq.write_table(data, path)
    return compare(f"{number:,} files x {ROWS_OF_SMALL:,} rows, 20 columns, CPU", {
        PYARROW: lambda: _by_pyarrow(paths, plan.folder / "out"),
        OURS: lambda: _ours(folder, plan.folder / "ours-small")}, plan.rounds,
        clock=time.process_time)


class _Java:
    """parquet-java, and the CPU seconds of its thread so far: neither of its compiler nor start."""

    def __init__(self, peer: Peer, path: Path, output: Path):
        self.seconds = 0.0
        self._peer = peer
        self._request = "\t".join([str(path), str(output), *pq.read_schema(path).names])

    def rewrite(self) -> None:
        self.seconds += self._peer.run(self._request).cpu


def _by_pyarrow(paths: list[Path], output: Path) -> None:
    output.mkdir(exist_ok=True)
    factory, connection = crypto_factory(KMS), pe.KmsConnectionConfig()
    configuration = pe.EncryptionConfiguration("footer", uniform_encryption=True)
    for path in paths:
        properties = factory.file_encryption_properties(connection, configuration)
        source = pq.ParquetFile(path)
        with pq.ParquetWriter(output / path.name, source.schema_arrow, write_page_index=True,
                              encryption_properties=properties) as writer:
            for group in range(source.num_row_groups):
                writer.write_table(source.read_row_group(group))


def _bytes(path: Path, output: Path) -> None:
    shutil.copyfile(path, output)
    cipher = AESGCM(b"k" * 16)
    with open(path, "rb") as source, open(output, "wb") as target:
        while data := source.read(_PAGE):
            target.write(cipher.encrypt(os.urandom(12), data, None))


def _ours(path: Path, output: Path) -> None:
    done = secure_bloom.encrypt(path, KMS, encryption=ENCRYPTION, output=output)
    if not done.ok or not done.changed:
        raise RuntimeError(f"nothing was encrypted: {done}")
