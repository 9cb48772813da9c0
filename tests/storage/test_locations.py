"""Which paths are URIs, and what their schemes mean."""

import os
import subprocess
import sys
import traceback
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.fs as pa_fs
import pytest

import secure_bloom
from secure_bloom.display import without_credentials
from secure_bloom.errors import OptionError, UnsupportedError
from secure_bloom.spark.options.kms import kms_client, kms_uri
from secure_bloom.spark.options.options import Options, locate
from secure_bloom.storage import locations
from secure_bloom.storage.files import resolve
from tests.storage.s3 import BUCKET

TABLE = pa.table({"id": [1, 2]})


@pytest.mark.parametrize("path, advice", [
    ("dbfs:/people/a.parquet", "write /dbfs/people/a.parquet"),
    ("dbfs:///people/a.parquet", "write /dbfs/people/a.parquet"),
    ("DBFS:/Volumes/main/x/a.parquet", "write /Volumes/main/x/a.parquet"),
    ("wasbs://c@account/a.parquet", "the scheme wasbs: is unknown; available are s3a, s3n, file"),
    ("http://host/a.parquet", "the scheme http: is unknown"),
    ("ab:/a.parquet", "the scheme ab: is unknown")])
def test_unknown_schemes_are_refused_everywhere(tmp_path, monkeypatch, path, advice):
    monkeypatch.chdir(tmp_path)
    for action in (lambda: secure_bloom.write_table(TABLE, path, bloom_filters={}),
                   lambda: secure_bloom.read_table(path), lambda: secure_bloom.ParquetFile(path),
                   lambda: secure_bloom.attach(path, {"id": True}),
                   lambda: secure_bloom.audit(path)):
        with pytest.raises(UnsupportedError, match=advice):
            action()
    with pytest.raises(OptionError, match=f"option path: .*{advice}"):
        locate(path)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("path", ["a:b/c", "C:/x", "./ab:/c", "a b:/c", "day=1:/c", "12:30/c",
                                  "ab:c", ":/x"])
def test_names_with_a_colon_are_local_paths(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    secure_bloom.write_table(TABLE, path, bloom_filters={})
    assert os.path.isfile(path) and secure_bloom.read_table(path).equals(TABLE)
    assert locate(path)[1] == os.path.abspath(path)


def test_local_uris(tmp_path):
    path = f"{tmp_path}/a.parquet"
    for uri in (f"file:{path}", f"file://{path}", f"FILE:{path}"):
        secure_bloom.write_table(TABLE, uri, bloom_filters={})
        assert secure_bloom.read_table(path).equals(TABLE)
        os.unlink(path)
        assert locate(uri)[1] == path


def test_in_spark_nothing_is_percent_encoded(tmp_path):
    assert locate(f"file:{tmp_path}/a%20b")[1] == f"{tmp_path}/a%20b"
    assert resolve(f"file:{tmp_path}/a%20b")[1] == f"{tmp_path}/a b"  # a URI for Python


@pytest.mark.parametrize("scheme, key, path", [
    ("s3a", "a%20b/x y", "bucket/a%20b/x y"), ("s3n", "x", "bucket/x"), ("S3A", "x", "bucket/x"),
    ("s3", "a%20b", "bucket/a b"), ("s3a", "", "bucket")])
def test_hadoops_names_of_s3(scheme, key, path):
    options = "?region=us-east-1&endpoint_override=127.0.0.1:9&scheme=http"
    filesystem, found = locations.open_uri(f"{scheme}://bucket/{key}{options}")
    assert filesystem.type_name == "s3" and found.rstrip("/") == path


@pytest.mark.parametrize("uri, type_name", [
    ("gs://bucket/x", "gcs"), ("abfs://c@account.dfs.core.windows.net/x", "abfs"),
    ("abfss://c@account.dfs.core.windows.net/x", "abfs")])
def test_schemes_of_pyarrow(uri, type_name):
    assert resolve(uri)[0].type_name == type_name


def test_what_is_wrong_with_a_uri_is_said_if_that_shows_no_password():
    with pytest.raises(pa.ArrowInvalid, match="Missing bucket name"):
        locations.open_uri("s3:/people")


@pytest.mark.parametrize(("location", "uri"), [
    ("s3://b/a b%2", "s3://b/a%20b%252"), ("s3a://b/a b", "s3a://b/a b"), ("/x/a b", "/x/a b")])
def test_locations_are_literal_and_uris_percent_encoded(location, uri):
    assert locations.as_uri(location) == uri


def test_hdfs_must_answer(tmp_path, monkeypatch):
    """pyarrow takes an error of the server for a file that does not exist.

    What HDFS itself does is tried by tests/spark/test_hdfs.py, for which Hadoop is fetched.
    """
    hdfs = pa_fs.SubTreeFileSystem(str(tmp_path / "hdfs"), pa_fs.LocalFileSystem())
    opened = SimpleNamespace(from_uri=lambda uri: (hdfs, "/people"))
    monkeypatch.setattr(locations.pa_fs, "FileSystem", opened)
    with pytest.raises(OSError, match="HDFS does not answer"):
        locations.open_uri("hdfs://host:1/people")
    (tmp_path / "hdfs").mkdir()
    assert locations.open_uri("hdfs://host:1/people") == (hdfs, "/people")


def test_a_folder_by_its_s3a_name(s3):
    uri = s3.uri("people/a.parquet").replace("s3://", "s3a://")
    secure_bloom.write_table(TABLE, uri, bloom_filters={})
    assert s3.filesystem_of().get_file_info(
        f"{BUCKET}/people/a.parquet").type == pa_fs.FileType.File
    assert secure_bloom.read_table(uri).equals(TABLE)


@pytest.mark.parametrize("uri", [
    "wasbs://user:hunter2@account/x", "s3://user:hunter2@b ucket/x", "s3://user:hunter2%@bucket/x",
    "s3://user:hunter2/y+@bucket/x", "s3a://user:hunter2/y+@bucket/x"])
def test_errors_hide_the_credentials_of_a_uri(tmp_path, uri):
    path = tmp_path / "a.parquet"
    secure_bloom.write_table(TABLE, path)
    for action in (lambda: locate(uri), lambda: secure_bloom.read_table(uri),
                   lambda: secure_bloom.write_table(TABLE, uri),
                   lambda: secure_bloom.dataset([uri]),
                   lambda: secure_bloom.read_table(path, policy=uri)):
        with pytest.raises((OptionError, UnsupportedError, pa.ArrowInvalid)) as caught:
            action()
        assert "hunter2" not in "".join(traceback.format_exception_only(caught.value))
        assert caught.value.__context__ is None or "hunter2" not in str(caught.value.__context__)


def test_a_writer_hides_the_credentials_of_its_uri():
    uri = "s3://user:hunter2@bucket/x?endpoint_override=127.0.0.1:9&scheme=http&region=eu"
    with pytest.raises(UnsupportedError) as caught:
        secure_bloom.write_table(pa.table({"x": [["a"]]}), uri, data_page_size=1)
    assert "bucket" in str(caught.value) and "hunter2" not in str(caught.value)


@pytest.mark.parametrize("text, expected", [
    ("s3://a:b@c/d@e: x", "s3://c/d@e: x"), ("s3://c/d@e", "s3://c/d@e"),
    ("abfss://c@account/x", "abfss://c@account/x"), ("http://h:80/a@b", "http://h:80/a@b"),
    ("a:b@c", "a:b@c"), ("s3://a:b/c@d/e", "s3://d/e")])
def test_what_is_removed_from_a_uri(text, expected):
    assert without_credentials(text) == expected


def test_a_keyring_is_a_local_file():
    assert kms_uri(Options({"keys": "file:/keys/k.json"})) == "keyring:/keys/k.json"
    for path in ("dbfs:/k.json", "s3a://bucket/k.json"):
        with pytest.raises(OptionError, match=r"option keys: unknown KMS URI scheme"):
            kms_client(kms_uri(Options({"keys": path})))


@pytest.mark.slow
def test_hdfs_without_hadoop_is_a_short_error_that_says_what_to_set(tmp_path):
    """In a process of its own, because pyarrow looks for the libraries only once."""
    program = ("import secure_bloom\ntry: secure_bloom.dataset('hdfs://host:1/people')\n"
               "except secure_bloom.errors.UnsupportedError as error: print(error)")
    nothing = dict.fromkeys(("JAVA_HOME", "HADOOP_HOME", "ARROW_LIBHDFS_DIR"), str(tmp_path))
    done = subprocess.run([sys.executable, "-c", program], env=os.environ | nothing,
                          capture_output=True, text=True)
    assert "pyarrow needs Java and Hadoop's native library: Unable to load" in done.stdout
    assert "dlopen" not in done.stdout and "set JAVA_HOME, HADOOP_HOME" in done.stdout
