"""parquet-cli, parquet-java's command line, as a peer in tests: Maven fetches it."""

import json
import subprocess
from base64 import b64encode
from collections.abc import Mapping
from os import PathLike, fspath

from tests.peers.maven import classpath
from tests.peers.parquet_java import SOURCES, compiled, jars
from tests.peers.process import PeerError, find_tool

VERSION = "1.15.2"
_KEY_TOOLS = {
    "parquet.crypto.factory.class":
        "org.apache.parquet.crypto.keytools.PropertiesDrivenCryptoFactory",
    "parquet.encryption.kms.client.class": "PeerKeys$MemoryKms",
}
# Everything that it prints is a message of its log.
_LOG = [f"-Dorg.slf4j.simpleLogger.{name}=false" for name in ("showThreadName", "showLogName")]


def run(
    command: str,
    path: str | PathLike[str],
    *options: str,
    master_keys: Mapping[str, bytes] | None = None,
) -> list[str]:
    """Return the lines that a command prints about a file.

    Parameters
    ----------
    master_keys
        What the key tools get from their KMS client, which Hadoop's settings name.

    Raises
    ------
    PeerError
        If the command fails, with the class of the exception.
    PeerUnavailable
        If parquet-cli is not available.
    """
    settings = [f"-D{name}={value}" for name, value in _settings(master_keys).items()]
    done = subprocess.run(
        [*java_command(), *settings, command, fspath(path), *options],
        capture_output=True, text=True,
    )
    lines = [line.removeprefix("INFO ") for line in done.stderr.splitlines()]
    if done.returncode:
        name, _, message = next(line for line in lines if "Exception" in line).partition(": ")
        raise PeerError(name, message)
    return done.stdout.splitlines() + lines


def _settings(master_keys: Mapping[str, bytes] | None) -> dict[str, str]:
    if master_keys is None:
        return {}
    encoded = {name: b64encode(key).decode() for name, key in master_keys.items()}
    return {**_KEY_TOOLS, "peer.master.keys": json.dumps(encoded)}


def java_command() -> list[str]:
    """Return the command line, with Hadoop and Guava from the jars of pyspark.

    Raises
    ------
    PeerUnavailable
        If parquet-cli is not available.
    """
    fetched = classpath(f"org.apache.parquet:parquet-cli:{VERSION}",
                        "org.slf4j:slf4j-simple:1.7.33")
    places = [compiled(SOURCES), *fetched, jars() / "*"]
    return [find_tool("java"), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *_LOG,
            "-cp", ":".join(map(str, places)), "org.apache.parquet.cli.Main"]
