"""HDFS: Hadoop's mini cluster from Maven, and the native library through which pyarrow calls it.

The library is part of Hadoop's distribution, which is in no registry. A crate of Rust has its
source.
"""

import subprocess
import tempfile
from pathlib import Path
from typing import Self

import pyspark

from tests.peers.maven import classpath
from tests.peers.process import PeerUnavailable, cached_build, find_tool

_JARS = Path(pyspark.__file__).parent / "jars"
_MAIN = Path(__file__).with_name("MiniHdfs.java")
_CARGO = """[package]
name = "hdfs"
version = "0.1.0"
[lib]
path = "lib.rs"
[dependencies]
hdfs-sys = "=0.3.1"
"""
#: what the client needs of Spark's jars
_CLIENT = ("hadoop-client-api", "hadoop-client-runtime", "commons-lang3", "commons-logging",
           "slf4j-api")
_SMALL_JVM = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class MiniHdfs:
    """A running HDFS, of the version of Spark's jars; a context manager.

    Attributes
    ----------
    uri : str
        ``hdfs://localhost:port``.
    environment : dict of str to str
        What a process needs that uses it through pyarrow.
    """

    def __init__(self) -> None:
        [api] = _JARS.glob("hadoop-client-api-*.jar")
        version = api.stem.rpartition("-")[2]
        jars = classpath(f"org.apache.hadoop:hadoop-client-minicluster:{version}")
        java = Path(find_tool("javac")).resolve().parents[1]
        library = cached_build([], "libhdfs 3.3", lambda folder: _compile(java, folder))
        found = [jar for name in _CLIENT for jar in _JARS.glob(f"{name}-[0-9]*.jar")]
        self.environment = {"JAVA_HOME": str(java), "ARROW_LIBHDFS_DIR": str(library),
                            "CLASSPATH": ":".join(map(str, found)),
                            "LIBHDFS_OPTS": " ".join(_SMALL_JVM)}
        self._folder = tempfile.TemporaryDirectory()
        self._process = subprocess.Popen(
            [java / "bin" / "java", *_SMALL_JVM, "-cp", ":".join(map(str, jars)), _MAIN,
             self._folder.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, cwd=self._folder.name)
        assert self._process.stdout is not None
        self.uri = self._process.stdout.readline().strip()
        if not self.uri.startswith("hdfs://"):
            self.__exit__()
            raise PeerUnavailable("Hadoop's mini cluster did not start")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._folder.cleanup()


def _compile(java: Path, folder: Path) -> None:
    """Compile the library into a folder."""
    (folder / "Cargo.toml").write_text(_CARGO)
    (folder / "lib.rs").touch()
    done = subprocess.run([find_tool("cargo"), "vendor", "-q"], cwd=folder, capture_output=True,
                          text=True)
    if done.returncode:
        raise PeerUnavailable(f"cargo did not get the source of libhdfs: {done.stderr[-2000:]}")
    source = folder / "vendor" / "hdfs-sys" / "libhdfs" / "hdfs_3_3"
    headers = [source, source.parent, source / "include", source / "os", source / "os" / "posix",
               java / "include", java / "include" / "linux"]
    jvm = java / "lib" / "server"
    subprocess.run(
        [find_tool("gcc"), "-O1", "-shared", "-fPIC", "-w", "-o", folder / "libhdfs.so",
         *source.glob("*.c"), *source.glob("os/posix/*.c"), *(f"-I{one}" for one in headers),
         f"-L{jvm}", "-ljvm", f"-Wl,-rpath,{jvm}"], check=True, capture_output=True)
