"""A proxy before an S3 server that refuses, delays, cuts and loses answers, or answers falsely."""

from __future__ import annotations

import contextlib
import http.client
import random
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

#: what may happen to a request
HONEST = ("500", "503", "403", "slow", "cut", "lost answer", "time-out")
#: as stores answered before they were consistent: a list, or an object, as it was before
LAGGING = ("missing", "old list")
_TIMEOUT = 1.5  # seconds; clients wait for one
_PASSED_ON = ("connection", "transfer-encoding", "content-length", "date", "server", "expect")


class FaultyStore:
    """A server on this machine, whose faults can be switched on and off.

    Parameters
    ----------
    address : str
        Of the S3 server, without scheme.

    Attributes
    ----------
    address : str
        Of the proxy.
    counts : Counter
        How often each fault has occurred.
    """

    def __init__(self, address: str):
        self.target, self.counts = address, Counter[str]()
        self._lists: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self._lock = threading.Lock()
        self.be_well()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def be_well(self) -> None:
        """Pass every request on."""
        self._kinds: tuple[str, ...] = ()
        self._random, self._share = random.Random(0), 0.0

    def be_faulty(self, choose: random.Random, kinds: tuple[str, ...], share: float) -> None:
        """From now on, let a share of the requests fail in one of some ways."""
        self._kinds, self._random, self._share = kinds, choose, share

    def fault(self) -> str:
        """Return what happens to the next request; "" for nothing."""
        with self._lock:
            if self._random.random() >= self._share:
                return ""
            kind = self._random.choice(self._kinds)
            self.counts[kind] += 1
            return kind

    def listed(self, path: str, answer: tuple[int, dict[str, str], bytes]) \
            -> tuple[int, dict[str, str], bytes]:
        """Note the answer to a request for a list; return the answer before it."""
        with self._lock:
            before = self._lists.get(path, answer)
            self._lists[path] = answer
            return before


def _handler(store: FaultyStore) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body, fault = self._body(), store.fault()
            is_list = self.command == "GET" and "list-type" in urlsplit(self.path).query
            is_read = self.command in ("GET", "HEAD")
            if fault in ("500", "503", "403"):
                code = {"500": "InternalError", "503": "SlowDown", "403": "AccessDenied"}[fault]
                return self._send(int(fault), {}, _error(code))
            if fault == "missing" and is_read and not is_list:
                return self._send(404, {}, _error("NoSuchKey"))
            if fault == "time-out":
                time.sleep(_TIMEOUT)
                return self._drop()
            answer = self._passed_on(body)
            if is_list:
                before = store.listed(self.path, answer)
                answer = before if fault == "old list" else answer
            if fault == "slow":
                time.sleep(0.2)
            if fault == "lost answer":
                return self._drop()
            return self._send(*answer, cut=fault == "cut")

        def _body(self) -> bytes:
            if "chunked" not in self.headers.get("Transfer-Encoding", ""):
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass  # trailers
            return b"".join(parts)

        def _passed_on(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
            connection = http.client.HTTPConnection(store.target, timeout=60)
            headers = {name: value for name, value in self.headers.items()
                       if name.lower() not in _PASSED_ON}
            with contextlib.closing(connection):
                connection.request(self.command, self.path, body,
                                   headers | {"Content-Length": str(len(body))})
                found = connection.getresponse()
                return found.status, dict(found.getheaders()), found.read()

        def _send(self, status: int, headers: dict[str, str], body: bytes,
                  cut: bool = False) -> None:
            self.send_response_only(status)
            length = headers.get("Content-Length", str(len(body))) \
                if self.command == "HEAD" else str(len(body))
            for name, value in headers.items():
                if name.lower() not in _PASSED_ON:
                    self.send_header(name, value)
            self.send_header("Content-Length", length)
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else body[:len(body) // 2] if cut
                             else body)
            if cut:
                self._drop()

        def _drop(self) -> None:
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer

    return Handler


def _error(code: str) -> bytes:
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>planned</Message></Error>" \
        .encode()
