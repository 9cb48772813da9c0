"""Files that readers do not see are found by an audit if their rows may be in plaintext."""

import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from secure_bloom import ParquetWriter, audit, write_table
from secure_bloom.cli import main
from secure_bloom.index import build
from secure_bloom.policy import Policy
from secure_bloom.storage.commit import Job
from tests.maintain.helpers import ENCRYPTED, KMS, SIGNED, TABLE
from tests.storage.objects import Objects, new_objects
from tests.storage.s3 import BUCKET

_JOB = "0123456789abcdef" * 2
PLACES = [".a.parquet.0123456789abcdef.tmp", "day=1/.a.parquet.0123456789abcdef.unlocked",
          f"_staging/{_JOB}/day=1/part-00000-{_JOB}-{_JOB}.parquet",
          "_temporary/0/_temporary/attempt_1_m_000000_0/part-00000-c000.snappy.parquet",
          ".spark-staging-4f1d/day=1/part-00000.parquet", ".hive-staging_hive_1/-ext-1/000000_0"]


@pytest.fixture
def lake(tmp_path):
    """A folder with an encrypted file."""
    write_table(TABLE, tmp_path / "b.parquet", bloom_filters={}, encryption=ENCRYPTED, keys=KMS)
    return tmp_path


def put(folder, name, content):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def parquet(folder, encryption=None):
    write_table(TABLE, folder.parent / "other", bloom_filters={}, encryption=encryption,
                keys=None if encryption is None else KMS)
    return (folder.parent / "other").read_bytes()


def found(folder, *arguments, **options):
    return {(finding.kind, finding.severity, finding.file.removeprefix(f"{folder}/"))
            for finding in audit(folder, *arguments, **options).findings}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("keys", [None, KMS], ids=["stranger", "keys"])
def test_plaintext_that_a_killed_writer_left_is_an_error(lake, place, keys):
    plain = parquet(lake)
    for content in (plain, plain[:-9], plain[:4]):
        put(lake, place, content)
        assert found(lake, keys) == {("leftover", "error", place)}
    shown = CliRunner().invoke(main, ["audit", str(lake)])
    assert shown.exit_code == 1 and "error (leftover): " in shown.stdout
    for content in (parquet(lake, ENCRYPTED), parquet(lake, ENCRYPTED)[:50],
                    parquet(lake, SIGNED), b"", b"crc\\0"):
        put(lake, place, content)
        assert found(lake, keys) == set()


@pytest.mark.parametrize("in_place", [False, True])
def test_files_of_a_job_that_did_not_commit(lake, in_place):
    """On an object store, they have their final names."""
    job = Job(pa_fs.LocalFileSystem(), str(lake), overwrite=False)
    job.in_place = in_place
    job.start()
    pq.write_table(TABLE, path := job.new_file(0))
    assert found(lake) == {("leftover", "error", path.removeprefix(f"{lake}/"))}


def test_of_a_folder_without_secrets_nothing_is_reported(tmp_path):
    put(tmp_path / "t", PLACES[0], parquet(tmp_path / "t"))
    policy = Policy(["ssn"])
    assert found(tmp_path / "t") == set()
    assert ("leftover", "error", PLACES[0]) in found(tmp_path / "t", policy=policy)
    write_table(TABLE.select(["number"]), tmp_path / "t" / "b.parquet")
    assert "leftover" not in {kind for kind, *_ in found(tmp_path / "t", policy=policy)}


def test_a_file_that_is_not_complete_yet(lake):
    with ParquetWriter(lake / "c.parquet", TABLE.schema, bloom_filters={}) as writer:
        writer.write_table(TABLE)
        [name] = {path.name for path in lake.iterdir()} - {"b.parquet"}
        assert found(lake) == {("leftover", "error", name)}


def test_what_is_found_in_a_store_is_what_is_found_in_a_folder(tmp_path):
    """Its folders are listed one by one, for readers without those that have no rows."""
    folder = tmp_path / "lake"
    folder.mkdir()
    write_table(TABLE, folder / "a.parquet")
    build(folder, "ssn", encryption=None)
    write_table(TABLE, folder / "b.parquet", bloom_filters={}, encryption=ENCRYPTED, keys=KMS)
    for place in PLACES:
        put(folder, place, parquet(folder))
    objects = new_objects()
    for path in folder.rglob("*"):
        if path.is_file():
            objects.put(f"{BUCKET}/lake/{path.relative_to(folder)}", path.read_bytes())
    policy = Policy(columns={"ssn": {"key": "pii"}})

    def kinds(source, **options):
        return sorted((finding.kind, finding.file.rpartition("/lake/")[2])
                      for finding in audit(source, policy=policy, **options).findings)

    expected = kinds(folder)
    assert {"index", "leftover"} <= {kind for kind, _ in expected}
    assert kinds(f"{BUCKET}/lake", filesystem=Objects(objects)) == expected
