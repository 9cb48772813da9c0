"""An HTTP server on a loopback address which can be told to fail."""

import json
import ssl
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Request:
    """What a client has sent."""

    method: str
    path: str
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


def answer(status: int, document, **headers):
    """A fault: another answer than the server's own."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return lambda request: (status, {key.replace("_", "-"): value
                                     for key, value in headers.items()}, body)


def hang_up(request):
    """A fault: the connection is closed without an answer."""


def slow(seconds: float):
    """A fault: the answer comes late, and is none."""
    def fault(request):
        time.sleep(seconds)
    return fault


class Loopback:
    """Serves until ``stop``.

    Parameters
    ----------
    respond : callable
        From a request to status, headers and body; None to hang up.
    tls : tuple of path, optional
        Certificate and key.

    Attributes
    ----------
    faults : list
        What answers the next requests in place of ``respond``; each is used once.
    always : callable or None
        What answers all requests in place of ``respond``.
    requests : list of Request
    """

    def __init__(self, respond, tls=None):
        self.faults, self.always, self.requests = [], None, []
        self._respond = respond
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # a body would wait 40 ms for the headers to arrive

            def do_POST(self):
                outer._handle(self)

            do_GET = do_PUT = do_POST

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        scheme = "http"
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self._server.handle_error = lambda *_: None
            scheme = "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def _handle(self, handler):
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        request = Request(handler.command, handler.path, dict(handler.headers), body)
        self.requests.append(request)
        fault = self.faults.pop(0) if self.faults else self.always
        response = (fault or self._respond)(request)
        if response is None:
            handler.close_connection = True
            return
        status, headers, content = response
        try:
            handler.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(content)
        except OSError:  # the client has gone
            handler.close_connection = True

    def stop(self):
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
