"""Lab, lab layer: a small HTTP/1.1 server on bare asyncio for the emulated engine. Never knows what is served.

Keep-alive, bodies by length or in chunks, one request at a time per connection; answers whole or as a stream of chunks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus

MAX_HEAD = 16 * 1024
MAX_BODY = 1024 * 1024
_REASONS = {s.value: s.phrase for s in HTTPStatus}


class Request:
    """One request; header names in lower case."""

    __slots__ = ("body", "headers", "method", "path")

    def __init__(self, method: str, path: str, headers: dict[str, str]) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.body = b""


class BadRequestError(Exception):
    """What the client sent is not HTTP that this server reads."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class Connection(asyncio.Protocol):
    """One client's connection; the handler answers through it, at once or later.

    Args:
        handle: called with a request and this connection; must call `respond`, or `begin`, `send` and `end`, once.
        fixed: header lines that every answer carries, each ending in CRLF.
    """

    __slots__ = (
        "_body_left",
        "_buffer",
        "_busy",
        "_chunked",
        "_fixed",
        "_handle",
        "_keep",
        "_open",
        "_request",
        "_server",
        "_transport",
        "gone",
    )

    def __init__(self, handle: Callable[[Request, Connection], None], fixed: bytes, server: Server) -> None:
        self._handle = handle
        self._fixed = fixed
        self._server = server
        self._buffer = bytearray()
        self._request: Request | None = None
        self._body_left = 0
        self._chunked = False
        self._busy = False
        self._keep = True
        self._open = False
        self._transport: asyncio.Transport | None = None
        self.gone: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport (called by asyncio)."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - narrows the type
        self._transport = transport
        self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection; tell the handler that its client is gone (called by asyncio)."""
        self._transport = None
        self._server.connections.discard(self)
        if self.gone is not None:
            gone, self.gone = self.gone, None
            gone()

    def data_received(self, data: bytes) -> None:
        """Take bytes from the client (called by asyncio)."""
        self._buffer += data
        if not self._busy:
            self._advance()
        elif len(self._buffer) > MAX_HEAD + MAX_BODY and self._transport is not None:
            self._transport.abort()

    @property
    def is_busy(self) -> bool:
        """Whether a request is being answered."""
        return self._busy

    def _advance(self) -> None:
        try:
            request = self._read()
        except BadRequestError as e:
            self._busy = True
            self._keep = False
            self.respond(e.status, b'{"error":{"message":"%s","type":"bad_request"}}' % e.text.encode())
            return
        if request is not None:
            self._busy = True
            self._handle(request, self)

    def _read(self) -> Request | None:
        request = self._request
        if request is None:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                if len(self._buffer) > MAX_HEAD:
                    raise BadRequestError(431, "header too large")
                return None
            request = self._request = self._parse_head(bytes(self._buffer[:end]))
            del self._buffer[: end + 4]
        if self._chunked:
            body = self._read_chunks()
            if body is None:
                return None
            request.body = body
        elif self._body_left:
            if len(self._buffer) < self._body_left:
                return None
            request.body = bytes(self._buffer[: self._body_left])
            del self._buffer[: self._body_left]
        self._request = None
        return request

    def _parse_head(self, head: bytes) -> Request:
        first, *rest = head.decode("latin-1").split("\r\n")
        parts = first.split(" ")
        if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
            raise BadRequestError(400, "not an HTTP/1 request")
        headers: dict[str, str] = {}
        for line in rest:
            name, colon, value = line.partition(":")
            if not colon:
                raise BadRequestError(400, "a header without a colon")
            headers[name.lower()] = value.strip()
        connection = headers.get("connection", "").lower()
        self._keep = connection != "close" if parts[2] == "HTTP/1.1" else connection == "keep-alive"
        self._chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()):
            raise BadRequestError(400, "content-length is not a number")
        self._body_left = int(length)
        if self._body_left > MAX_BODY:
            raise BadRequestError(413, "body too large")
        return Request(parts[0], parts[1].partition("?")[0], headers)

    def _read_chunks(self) -> bytes | None:
        """Return the body once all its chunks are there; reads from the start each time, which is enough for small bodies."""
        out, at = bytearray(), 0
        while True:
            end = self._buffer.find(b"\r\n", at)
            if end < 0:
                return None
            try:
                size = int(bytes(self._buffer[at:end]).split(b";")[0], 16)
            except ValueError:
                raise BadRequestError(400, "a chunk without a size") from None
            if size < 0 or len(out) + size > MAX_BODY:
                raise BadRequestError(413, "body too large")
            if len(self._buffer) < end + 2 + size + 2:
                return None
            out += self._buffer[end + 2 : end + 2 + size]
            at = end + 2 + size + 2
            if size == 0:
                del self._buffer[:at]
                return bytes(out)

    def respond(self, status: int, body: bytes, content_type: str = "application/json") -> None:
        """Answer as a whole and go on to the next request."""
        if self._transport is not None:
            head = f"HTTP/1.1 {status} {_REASONS.get(status, '')}\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n"
            self._transport.write(b"".join((head.encode(), self._fixed, self._tail(), body)))
        self._done()

    def begin(self, content_type: str) -> None:
        """Begin an answer of unknown length."""
        if self._transport is not None:
            head = f"HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n"
            self._transport.write(b"".join((head.encode(), self._fixed, self._tail())))

    def send(self, data: bytes) -> None:
        """Send one chunk, not empty, of an answer that has begun."""
        if self._transport is not None:
            self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self) -> None:
        """End an answer that has begun and go on to the next request."""
        if self._transport is not None:
            self._transport.write(b"0\r\n\r\n")
        self._done()

    def close(self) -> None:
        """Close after what has been written."""
        if self._transport is not None:
            self._transport.close()

    def _tail(self) -> bytes:
        if self._server.is_closing:
            self._keep = False
        return b"\r\n" if self._keep else b"connection: close\r\n\r\n"

    def _done(self) -> None:
        self._busy = False
        self.gone = None
        if self._transport is None:
            return
        if not self._keep:
            self._transport.close()
        elif self._buffer:
            self._advance()


class Server:
    """Listens on one loopback port and hands each request to `handle`."""

    def __init__(self, handle: Callable[[Request, Connection], None], fixed: bytes = b"") -> None:
        self._handle = handle
        self._fixed = fixed
        self._server: asyncio.Server | None = None
        self.connections: set[Connection] = set()
        self.is_closing = False

    async def start(self, port: int, address: str = "127.0.0.1") -> int:
        """Listen and return the port (0 chooses one).

        Raises:
            OSError: the port is taken.
        """
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self._handle, self._fixed, self), address, port, backlog=512)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self, grace_s: float) -> None:
        """Stop listening, let what is being answered end for at most `grace_s` seconds, then close all."""
        self.is_closing = True
        if self._server is not None:
            self._server.close()
        loop = asyncio.get_running_loop()
        until = loop.time() + grace_s
        while loop.time() < until and any(c.is_busy for c in self.connections):
            await asyncio.sleep(0.02)
        for connection in tuple(self.connections):
            connection.close()
        await asyncio.sleep(0)
