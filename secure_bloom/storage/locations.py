"""URIs of files and folders, and the filesystem that each scheme means.

A path is a URI if it begins with two or more letters or digits, a colon and a slash: ``s3://b/x``,
``file:/x``. ``C:/x``, ``a:b/c`` and ``./ab:/c`` are local paths.
"""

from __future__ import annotations

import re
from urllib.parse import quote

import pyarrow as pa
import pyarrow.fs as pa_fs

from secure_bloom.errors import UnsupportedError

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(/.*)", re.DOTALL)
MAGIC = re.compile(r"[*?\[]")  #: what a glob pattern has
_HADOOP_S3 = ("s3a", "s3n")
_HDFS = ("hdfs", "viewfs")
_OPENED = ("file", "s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss")  # by pyarrow


def is_uri(path: str) -> bool:
    """Whether a path begins with a scheme."""
    return _URI.match(path) is not None


def open_uri(uri: str) -> tuple[pa_fs.FileSystem, str]:
    """Return the filesystem of a URI, and the path in it.

    ``s3a`` and ``s3n``, Hadoop's names for S3, are opened like ``s3``. As in Hadoop, their paths
    are taken literally, so nothing in them is percent-encoded.

    Raises UnsupportedError if no filesystem is known for the scheme, or it needs what is not
    installed; pyarrow.ArrowInvalid if the URI is malformed; OSError if HDFS does not answer. The
    message does not show the URI, which may contain a password.
    """
    match = _URI.fullmatch(uri)
    assert match is not None, "not a URI"
    scheme, rest = match.groups()
    scheme = scheme.lower()
    if scheme in _HADOOP_S3:
        scheme, rest = "s3", _encoded(rest)
    try:
        return (_open_hdfs if scheme in _HDFS else pa_fs.FileSystem.from_uri)(f"{scheme}:{rest}")
    except pa.ArrowInvalid as error:
        message = str(error)
    if scheme not in _OPENED:
        raise UnsupportedError(_advice(scheme, rest))
    if "@" in message or ":/" in message:
        message = f"this URI of {scheme} is malformed; percent-encode special characters, also " \
                  "in a user name and password"
    raise pa.ArrowInvalid(message)


def _open_hdfs(uri: str) -> tuple[pa_fs.FileSystem, str]:
    try:
        filesystem, path = pa_fs.FileSystem.from_uri(uri)
    except OSError as error:
        reason, *_ = str(error).splitlines()  # then come the places where pyarrow has looked
        raise UnsupportedError(
            f"for HDFS, pyarrow needs Java and Hadoop's native library: {reason}. In the "
            "environment, also that of Spark's workers, set JAVA_HOME, HADOOP_HOME (or "
            "ARROW_LIBHDFS_DIR, the folder of libhdfs.so), and CLASSPATH to what 'hadoop classpath "
            "--glob' prints") from None
    # For pyarrow, a file does not exist if the server cannot say anything about it.
    if filesystem.get_file_info("/").type != pa_fs.FileType.Directory:
        raise OSError("HDFS does not answer: check host and port, and whether this user may use it")
    return filesystem, path


def as_uri(location: str) -> str:
    """Return the URI of a location in which nothing is percent-encoded, as Iceberg records it.

    What has no scheme, or a scheme whose paths are taken literally, is returned unchanged.
    """
    match = _URI.fullmatch(location)
    if match is None or match[1].lower() in _HADOOP_S3:
        return location
    return f"{match[1]}:{quote(match[2], safe='/:@')}"


def _encoded(rest: str) -> str:
    """Return ``//bucket/key?options`` with the key percent-encoded."""
    place, mark, options = rest.partition("?")
    bucket, slash, key = place.removeprefix("//").partition("/")
    return f"//{bucket}{slash}{quote(key)}{mark}{options}"


def _advice(scheme: str, rest: str) -> str:
    if scheme == "dbfs":
        path = "/" + rest.lstrip("/")
        local = path if path.startswith("/Volumes/") else f"/dbfs{path}"
        return f"dbfs: cannot be opened; Databricks mounts it as a local folder, so write {local}"
    return (f"the scheme {scheme}: is unknown; available are {', '.join((*_HADOOP_S3, *_OPENED))}. "
            "Write a local path that begins this way as ./... or as an absolute path; in Python, "
            "pass other filesystems, such as those of fsspec, as parameter filesystem")


def is_pattern(path: str, kind: pa_fs.FileType) -> bool:
    """Whether a path at which there is something of this kind, or nothing, is a glob pattern."""
    return kind == pa_fs.FileType.NotFound and MAGIC.search(path) is not None
