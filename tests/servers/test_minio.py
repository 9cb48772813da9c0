"""What stand-ins for S3 do not have: versions of objects, locks, and a server that is killed."""

import uuid
from pathlib import Path

import boto3
import pyarrow as pa
import pyarrow.fs as pa_fs
import pytest

import secure_bloom
from secure_bloom.errors import SecureBloomError
from secure_bloom.storage.files import open_output
from tests.erasing.helpers import ENCRYPTION, KMS, people, ssn
from tests.servers import chosen
from tests.soak.check import Case
from tests.soak.checks import storage_faults
from tests.soak.checks.crashes import OPERATIONS, Outcome
from tests.soak.faulty_store import FaultyStore
from tests.storage.s3 import BUCKET, CREDENTIALS
from tests.storage.stores import Acts, later_jobs, server_store


@pytest.fixture
def minio(s3):
    if chosen.name != "minio":
        pytest.skip("it runs with --server minio")
    return s3


@pytest.fixture
def client(minio):
    return boto3.client("s3", endpoint_url=f"http://{minio.address}", region_name="us-east-1",
                        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
                        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"])


def numbers(filesystem, folder):
    found = secure_bloom.read_table(folder, KMS, filesystem=filesystem)
    return sorted(found["number"].to_pylist())


@pytest.mark.parametrize("mode", ["", "GOVERNANCE", "COMPLIANCE"])
def test_a_bucket_that_keeps_or_locks_versions_is_used_as_any_other(minio, client, mode):
    """But all that was erased stays in it, as the docs say, until the versions are removed."""
    bucket = f"versions-{uuid.uuid4().hex}"
    client.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=bool(mode))
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    if mode:
        rule = {"DefaultRetention": {"Mode": mode, "Days": 1}}
        client.put_object_lock_configuration(
            Bucket=bucket, ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": rule})
    filesystem, folder = minio.filesystem_of(), f"{bucket}/t"
    for write in ("append", "append", "overwrite"):
        secure_bloom.write_dataset(people(*range(1, 9)), folder, encryption=ENCRYPTION, keys=KMS,
                                   mode=write, filesystem=filesystem, bloom_filters=["ssn"])
    assert numbers(filesystem, folder) == list(range(1, 9))
    result = secure_bloom.erase(folder, "ssn", ssn(3), KMS, max_share=1, filesystem=filesystem)
    assert result.ok and numbers(filesystem, folder) == [1, 2, 4, 5, 6, 7, 8]
    old, = (one for one in client.list_object_versions(Bucket=bucket, Prefix="t/")["Versions"]
            if f"{bucket}/{one['Key']}" == result.files[0].file)
    content = client.get_object(Bucket=bucket, Key=old["Key"], VersionId=old["VersionId"])["Body"]
    found = secure_bloom.read_table(pa.py_buffer(content.read()), KMS)
    assert 3 in found["number"].to_pylist()


def test_an_upload_that_is_given_up_leaves_parts_and_no_object(minio, client):
    key = f"{uuid.uuid4().hex}/a"
    output = open_output(f"{BUCKET}/{key}", minio.filesystem_of())
    output.write(bytes(30 << 20))
    output.abort()
    assert minio.filesystem_of().get_file_info(f"{BUCKET}/{key}").type == pa_fs.FileType.NotFound
    [upload] = client.list_multipart_uploads(Bucket=BUCKET, Prefix=key)["Uploads"]
    client.abort_multipart_upload(Bucket=BUCKET, Key=key, UploadId=upload["UploadId"])
    assert "Uploads" not in client.list_multipart_uploads(Bucket=BUCKET, Prefix=key)


@pytest.mark.parametrize("again", [False, True], ids=["down", "restarted"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_server_that_is_killed_in_the_middle_of_a_commit(minio, monkeypatch, overwrite, again):
    store = server_store(minio, uuid.uuid4().hex)
    outcomes = set()
    for at in range(3, 60, 4):
        folder = store.below(f"{at}")
        folder.write(1, 2)
        job = folder.job(overwrite)
        files = [folder.stage(job, 3), folder.stage(job, 4, 1)]
        acts = Acts(at, lambda: (minio.kill(), again and minio.start()))
        job.filesystem = folder.with_faults(acts)
        try:
            job.commit(files)
            done = True
        except (OSError, SecureBloomError):
            done = False
        if not (acts.done and again):
            minio.kill()
            minio.start()
        seen = folder.values()
        new = [3, 4] if overwrite else [1, 2, 3, 4]
        assert seen == new or (seen == [1, 2] and not done)
        outcomes.add(tuple(seen))
        folder.write(7)
        later_jobs(folder, monkeypatch)
        assert folder.values() == folder.all_values() == sorted([*seen, 7])
        assert folder.staged() == []
        if not acts.done:
            break
    assert not acts.done and len(outcomes) == (1 if again else 2)


@pytest.mark.parametrize("name", [name for name, one in OPERATIONS.items() if one.on_stores])
def test_connections_that_are_slow_cut_or_lose_answers(minio, tmp_path, monkeypatch, name):
    faulty = FaultyStore(minio.address)
    monkeypatch.setattr(storage_faults, "_store", lambda: (minio, faulty))
    case = Case.of("storage_faults", 0, Path(tmp_path), 60)
    outcome = Outcome.of(OPERATIONS[name], tmp_path / "base", tmp_path / "new")
    storage_faults._on_a_store(case, name, outcome)
    assert case.tried
