"""An HTTP server with ranges and ETags, whose answers can be made to fail."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Fault = Callable[["RangeServer", tuple[int, int]], str | None]


class RangeServer(ThreadingHTTPServer):
    """
    Objects by path, and what was asked for.

    Attributes
    ----------
    objects : dict
        Content by path, such as ``"/topic-0/00000000000000000000.log"``.
    ranges : list of (int, int)
        First and last position of each range that was asked for.
    fault : callable
        Called before each range is answered. It may change the objects, and return ``"busy"``
        (503), ``"cut"`` (the connection breaks off), ``"short"`` (fewer bytes than asked for),
        ``"forbidden"`` (403), ``"unconditional"`` (ignore the ETag) or None.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.ranges: list[tuple[int, int]] = []
        self.fault: Fault = lambda server, asked: None

    @property
    def url(self) -> str:
        """The root of the server."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: RangeServer

    def log_message(self, *args: object) -> None:
        pass

    def _send(self, status: int, data: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _etag(self, data: bytes) -> str:
        return f'"{hashlib.md5(data).hexdigest()}"'

    def do_HEAD(self) -> None:
        data = self.server.objects.get(self.path.partition("?")[0])
        if data is None:
            self._send(404)
            return
        self._send(200, Content_Length=str(len(data)), ETag=self._etag(data), Accept_Ranges="bytes")

    def do_GET(self) -> None:
        first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
        asked = int(first), int(last)
        self.server.ranges.append(asked)
        fault = self.server.fault(self.server, asked)
        data = self.server.objects.get(self.path.partition("?")[0])
        if fault == "busy":
            self._send(503)
        elif fault == "forbidden":
            self._send(403)
        elif data is None:
            self._send(404)
        elif fault != "unconditional" and self.headers.get("If-Match") not in (
            None,
            self._etag(data),
        ):
            self._send(412)
        else:
            self._send_range(data, asked, fault)

    def _send_range(self, data: bytes, asked: tuple[int, int], fault: str | None) -> None:
        part = data[asked[0] : asked[1] + 1]
        part = part[:-1] if fault == "short" else part
        end = asked[0] + len(part) - 1
        sent = part[: len(part) // 2] if fault == "cut" else part
        self._send(
            206,
            sent,
            Content_Length=str(len(part)),
            Content_Range=f"bytes {asked[0]}-{end}/{len(data)}",
            ETag=self._etag(data),
        )
        if fault == "cut":
            self.close_connection = True


@contextmanager
def range_server() -> Iterator[RangeServer]:
    """Run a server in a thread."""
    with RangeServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
