"""Scans during which something fails; run as a program, because a scan that hangs cannot be ended.

``python -m tests.engines.failing_scans ENGINE FAULT SEED RUNS`` prints how often the rows were
returned, and how often an error was raised. It fails if an error is unclear, or rows are wrong.
"""

import faulthandler
import itertools
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

import pyarrow as pa

import secure_bloom
from secure_bloom import EncryptionConfiguration
from secure_bloom.datasets import scan
from secure_bloom.datasets.dataset_file import DatasetFile
from secure_bloom.keys import InMemoryKms
from tests.support import MASTER_KEYS

FILES, ROWS = 8, 4000
SECONDS = 60  # in which every scan ends, on the slowest machine
_MESSAGE = "the KMS is out of order"


class FailingKms(InMemoryKms):
    """Raises an error from a given request on."""

    requests_left = sys.maxsize

    def unwrap_key(self, wrapped_key, master_key_identifier):
        self.requests_left -= 1
        if self.requests_left < 0:
            raise RuntimeError(_MESSAGE)
        return super().unwrap_key(wrapped_key, master_key_identifier)


def write(folder: Path) -> None:
    way = EncryptionConfiguration("mf", {"mc": ["x", "text"]}, double_wrapping=False)
    for name in range(FILES):
        numbers = range(name * ROWS, (name + 1) * ROWS)
        rows = pa.table({"x": numbers, "text": [f"{number:032}" for number in numbers]})
        with secure_bloom.ParquetWriter(folder / f"{name}.parquet", rows.schema,
                                        bloom_filters=["x"], encryption=way,
                                        keys=InMemoryKms(MASTER_KEYS)) as writer:
            for start in range(0, ROWS, 1000):
                writer.write_table(rows.slice(start, 1000))


# --- faults, at the moment when a file is opened -------------------------------------------------

def vanish(rnd, path: str) -> None:
    os.remove(path)


def truncate(rnd, path: str) -> None:
    os.truncate(path, rnd.randrange(4, os.path.getsize(path)))


def overwrite(rnd, path: str) -> None:
    with open(path, "r+b") as file:
        file.seek(rnd.randrange(4, os.path.getsize(path) // 2))  # pages; filters follow them
        file.write(rnd.randbytes(5000))


FAULTS = {"kms": None, "vanish": vanish, "truncate": truncate, "overwrite": overwrite}


# --- engines -------------------------------------------------------------------------------------

def duckdb_sum(people) -> int:
    import duckdb
    connection = duckdb.connect()
    connection.register("people", people)
    return connection.execute("SELECT sum(x), max(text) FROM people").fetchone()[0]


def datafusion_sum(people) -> int:
    import datafusion
    context = datafusion.SessionContext()
    context.register_dataset("people", people)
    found = context.sql("SELECT sum(x) AS total, max(text) FROM people").collect()
    return found[0].column(0)[0].as_py()


def polars_sum(people) -> int:
    import polars as pl
    lazy = secure_bloom.scan(people).select(pl.col("x").sum(), pl.col("text").max())
    return lazy.collect(engine=random.choice(["in-memory", "streaming"]))["x"][0]


ENGINES = {"duckdb": duckdb_sum, "datafusion": datafusion_sum, "polars": polars_sum}


def run(engine: str, fault: str, rnd, source: Path, *, is_certain: bool) -> str:
    """Scan a copy of the files once; return "rows", or the message of the error.

    ``is_certain``: the fault is in the last file, when the first one is opened.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(shutil.copytree(source, Path(name) / "people"))
        kms = FailingKms(MASTER_KEYS)
        people = secure_bloom.dataset(folder, kms)
        opens, last, is_early = itertools.count(), rnd.randrange(FILES), rnd.random() < 0.5
        victim = str(folder / f"{rnd.randrange(FILES)}.parquet")
        if is_certain:
            last, is_early, victim = 0, True, str(folder / f"{FILES - 1}.parquet")
        opened = DatasetFile.open

        def open_(self):
            is_last = next(opens) == last
            if is_last and is_early:
                FAULTS[fault](rnd, victim)
            found = opened(self)
            if is_last and not is_early:
                FAULTS[fault](rnd, victim)
            return found

        if fault == "kms":
            kms.requests_left = rnd.randrange(FILES)
        else:
            DatasetFile.open = open_
        try:
            total = ENGINES[engine](people)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
            is_clear = _MESSAGE in text if fault == "kms" else f"file {victim}: " in text
            assert is_clear, text
            return text
        finally:
            DatasetFile.open = opened
        assert total == sum(range(FILES * ROWS))  # the file was already open, or already read
        assert fault != "kms" and not is_certain
        return "rows"


def main(engine: str, fault: str, seed: str, runs: str) -> None:
    rnd = random.Random(f"{engine} {fault} {seed}")
    random.seed(rnd.random())
    scan._OPEN_FILES = 2  # so that files are opened during the scan
    outcomes = []
    with tempfile.TemporaryDirectory() as source:
        write(Path(source))
        for number in range(int(runs)):
            faulthandler.dump_traceback_later(SECONDS, exit=True)
            outcomes.append(run(engine, fault, rnd, Path(source), is_certain=number == 0))
            faulthandler.cancel_dump_traceback_later()
    failed = [outcome for outcome in outcomes if outcome != "rows"]
    print(len(outcomes) - len(failed), len(failed))
    print("\n".join(sorted({one.replace("\n", " ")[:300] for one in failed})), file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
