"""What must hold for every KMS client."""

import base64
import gzip
import os
import pickle
import signal
import subprocess
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pyarrow as pa
import pytest

import secure_bloom
from secure_bloom.keys.remote import LONGEST_RESPONSE
from tests.peers.loopback import Loopback

KEY = b"SECRET data key!"


def round_trip(make_client, key: bytes, name: str) -> str:
    """A key is wrapped and unwrapped, also by another client; returns it wrapped."""
    client = make_client()
    wrapped = client.wrap_key(key, name)
    assert make_client().unwrap_key(wrapped, name) == key
    assert client.unwrap_key(wrapped.encode(), name) == key
    assert client.wrap_key(key, name) != wrapped
    return wrapped


def files_round_trip(client, footer_name: str, column_name: str, folder) -> None:
    """Files with a filter, double and single wrapping, written and read through the client."""
    table = pa.table({"ssn": [f"{i:09}" for i in range(100)], "x": range(100)})
    for double_wrapping in (True, False):
        path = folder / f"{double_wrapping}.parquet"
        secure_bloom.write_table(
            table, path, keys=client, bloom_filters={"ssn": True},
            encryption=secure_bloom.EncryptionConfiguration(
                footer_name, {column_name: ["ssn"]}, double_wrapping=double_wrapping))
        for filters, count in ((None, 100), ([("ssn", "==", "000000042")], 1),
                               ([("ssn", "==", "none")], 0)):
            read = secure_bloom.read_table(path, keys=client, filters=filters)
            assert read.num_rows == count
        assert read.schema.names == ["ssn", "x"]
        with secure_bloom.ParquetFile(path, client) as file:
            assert file.prune([("ssn", "==", "000000042")]) == [0]
            assert file.prune([("ssn", "==", "none")]) == []


def through_a_child(client, wrapped: str, name: str, environment: dict | None = None) -> bytes:
    """What a new interpreter unwraps with the client that it unpickles."""
    code = ("import sys, pickle\n"
            "client, wrapped, name = pickle.load(sys.stdin.buffer)\n"
            "assert client.unwrap_key(client.wrap_key(b'k' * 32, name), name) == b'k' * 32\n"
            "print(client.unwrap_key(wrapped, name).hex())")
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False,
                            input=pickle.dumps((client, wrapped, name)), timeout=60,
                            env={**os.environ, **(environment or {})})
    assert result.returncode == 0, result.stderr.decode()
    return bytes.fromhex(result.stdout.decode())


def through_a_fork(call):
    """What a call returns in a forked child, as text."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # a lock of a thread that it does not have would hold it forever
        try:
            os.write(writer, str(call()).encode())
        except BaseException as error:
            os.write(writer, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        result = pipe.read().decode()
    os.waitpid(child, 0)
    return result


def other_processes(client, name: str) -> None:
    """New and forked processes use the client, which stays usable."""
    wrapped = client.wrap_key(KEY, name)
    assert through_a_child(client, wrapped, name) == KEY
    assert through_a_fork(lambda: client.unwrap_key(wrapped, name)) == str(KEY)
    assert client.unwrap_key(wrapped, name) == KEY


def connections_of_its_own_after_a_fork(client, name: str) -> None:
    """A forked process does not use the connections of its parent."""
    def connection():
        client.wrap_key(KEY, name)
        return client._connection.get(None)

    before = connection()
    assert through_a_fork(lambda: connection() is before) == "False"
    assert connection() is before


def in_threads(client, name: str, threads: int = 8, calls: int = 100) -> None:
    """Keys of different threads do not get mixed up."""
    def work(number):
        key = bytes([number]) * 32
        for _ in range(calls // threads):
            assert client.unwrap_key(client.wrap_key(key, name), name) == key
        return number

    with ThreadPoolExecutor(threads) as pool:
        assert sorted(pool.map(work, range(threads))) == list(range(threads))


def no_proxy_sees_keys(make_client, name: str, monkeypatch) -> None:
    """A client of an http:// endpoint does not use the proxies that the environment names."""
    with Loopback(lambda request: None) as proxy:
        for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(variable, proxy.url)
        for variable in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(variable, raising=False)
        client = make_client()
        assert client.unwrap_key(client.wrap_key(KEY, name), name) == KEY
    assert proxy.requests == []


def padded(server):
    """A fault: the server's own response, in which too many blanks come first."""
    def fault(request):
        status, headers, body = server._respond(request)
        return status, headers, b" " * LONGEST_RESPONSE + body
    return fault


def stalled(server):
    """A fault: the server's own response, of which the last byte never comes."""
    def fault(request):
        status, headers, body = server._respond(request)
        return status, {**headers, "Content-Length": str(len(body) + 1)}, body
    return fault


def compressed(fault):
    """A fault whose body is compressed."""
    def smaller(request):
        status, headers, body = fault(request)
        return status, {**headers, "Content-Encoding": "gzip"}, gzip.compress(body)
    return smaller


def refused(kind, call, *words: str, secrets=()):
    """The error of a call, which shows no secret, whatever prints it."""
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind
    for word in words:
        assert word in str(caught.value)
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    without_secrets(shown, *secrets)
    shown = variables_of(caught.value)
    assert not [secret for secret in secrets if secret in shown]
    return caught.value


def variables_of(error: BaseException) -> str:
    """The variables of secure_bloom, as programs show them that report errors."""
    shown, shown_next = [], error
    while shown_next is not None:
        for frame, _ in traceback.walk_tb(shown_next.__traceback__):
            if frame.f_globals["__name__"].startswith("secure_bloom"):
                for value in list(frame.f_locals.values()):
                    with suppress(AttributeError):  # of an object that was never finished
                        shown.append(repr(value))
        shown_next = shown_next.__cause__
    return " ".join(shown)


def without_secrets(text: str, *secrets: str | bytes) -> None:
    """No secret is in the text, in any form that a program might print."""
    for secret in (KEY, *secrets):
        raw = secret.encode() if isinstance(secret, str) else secret
        forms = {raw.decode(), raw.hex(), base64.b64encode(raw).decode(), "SECRET"}
        assert not [form for form in forms if form in text]


class paused:
    """Asserts that a block took so many seconds; and not as long as a library's own time limit."""

    def __init__(self, at_least: float):
        self._at_least = at_least

    def __enter__(self):
        self._start = time.monotonic()

    def __exit__(self, kind, *_):
        if kind is None:
            assert self._at_least <= time.monotonic() - self._start < 60
