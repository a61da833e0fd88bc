"""A store of objects on this machine, with the latency of a request and the bandwidth of a link.

It answers HEAD, GET with a range and lists of a bucket as S3 does, for clients that sign their
requests and for those that do not. ``/stats`` returns the requests and bytes since it was asked
before.

    python -m benchmarks.store_server LATENCY BANDWIDTH FILE…

prints its port. A file is the object ``/logs/topic-0/NAME``.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from pathlib import Path

_PIECE = 1 << 18
_RANGE = re.compile(rb"\r\nrange: bytes=(\d+)-(\d*)", re.IGNORECASE)
_COMMON = b'ETag: "1"\r\nLast-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\nAccept-Ranges: bytes\r\n'


class Link:
    """What all connections share: the objects, the bandwidth and the counters."""

    def __init__(self, latency: float, bandwidth: float, files: list[Path]) -> None:
        self.latency = latency
        self.bandwidth = bandwidth
        self.objects = {f"/logs/topic-0/{file.name}": file.read_bytes() for file in files}
        self.requests = self.bytes = 0
        self._free = 0.0

    async def send(self, size: int) -> None:
        """Wait until the link has transferred so many bytes."""
        now = time.monotonic()
        self._free = max(self._free, now) + size / self.bandwidth
        if self._free - now > 0.002:
            await asyncio.sleep(self._free - now)

    def list_objects(self) -> bytes:
        """Return all objects of the only bucket and folder."""
        listed = (
            f"<Contents><Key>{name.removeprefix('/logs/')}</Key><Size>{len(data)}</Size>"
            '<LastModified>2024-01-01T00:00:00.000Z</LastModified><ETag>"1"</ETag></Contents>'
            for name, data in self.objects.items()
        )
        return f"<ListBucketResult>{''.join(listed)}</ListBucketResult>".encode()

    def take_stats(self) -> bytes:
        """Return the counters, and begin again."""
        found = f"{self.requests} {self.bytes}".encode()
        self.requests = self.bytes = 0
        return found


class Connection(asyncio.Protocol):
    """Answers the requests of a connection, one after the other."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._received = b""
        self._requests: asyncio.Queue[bytes] = asyncio.Queue()
        self._can_write = asyncio.Event()
        self._can_write.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._task = asyncio.ensure_future(self._answer_all())

    def connection_lost(self, error: Exception | None) -> None:
        self._task.cancel()

    def pause_writing(self) -> None:
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._can_write.set()

    def data_received(self, data: bytes) -> None:
        self._received += data
        while b"\r\n\r\n" in self._received:
            request, self._received = self._received.split(b"\r\n\r\n", 1)
            self._requests.put_nowait(request)

    async def _answer_all(self) -> None:
        while True:
            request = await self._requests.get()
            method, path, _ = request.split(b"\r\n", 1)[0].decode().split(" ")
            if path == "/stats":
                self._write(b"200 OK", self._link.take_stats())
                continue
            self._link.requests += 1
            await asyncio.sleep(self._link.latency)
            data = self._link.objects.get(path.partition("?")[0])
            if "list-type=2" in path:
                self._write(b"200 OK", self._link.list_objects())
            elif data is None:
                self._write(b"404 Not Found", b"")
            elif method == "HEAD":
                self._write_head(b"200 OK", len(data), _COMMON)
            else:
                await self._send(data, _RANGE.search(request))

    async def _send(self, data: bytes, asked: re.Match[bytes] | None) -> None:
        first, last = 0, len(data) - 1
        if asked is not None:
            first, last = int(asked[1]), min(int(asked[2] or last), last)
            place = b"Content-Range: bytes %d-%d/%d\r\n" % (first, last, len(data))
            self._write_head(b"206 Partial Content", last - first + 1, _COMMON + place)
        else:
            self._write_head(b"200 OK", len(data), _COMMON)
        self._link.bytes += last - first + 1
        view = memoryview(data)
        for start in range(first, last + 1, _PIECE):
            stop = min(start + _PIECE, last + 1)
            await self._can_write.wait()
            await self._link.send(stop - start)
            self._transport.write(view[start:stop])

    def _write(self, status: bytes, body: bytes) -> None:
        self._write_head(status, len(body), b"")
        self._transport.write(body)

    def _write_head(self, status: bytes, size: int, fields: bytes) -> None:
        self._transport.write(
            b"HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n" % (status, fields, size)
        )


async def serve(link: Link) -> None:
    """Serve until the process is stopped."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(link), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    latency, bandwidth, *files = sys.argv[1:]
    asyncio.run(serve(Link(float(latency), float(bandwidth), [Path(file) for file in files])))
