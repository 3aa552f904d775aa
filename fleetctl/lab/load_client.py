"""Lab, lab layer: a bare HTTP client with kept-alive connections for the load. Never retries; every failure has a kind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

IDLE_S = 3.0
"""A connection idle for longer is not used again, so that a server's own time-out never looks like an error."""

MAX_ANSWER = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one request ended.

    Args:
        error: kind: empty, or connect, reset, timeout, malformed, status_<code>.
        body: of the answer, chunks joined.
        ttft_s: seconds from sending to the first byte of the body.
        whole_s: seconds from sending to the end.
    """

    error: str
    body: bytes
    ttft_s: float
    whole_s: float


class _Connection(asyncio.Protocol):
    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._loop = pool.loop
        self._transport: asyncio.Transport | None = None
        self.idle_since = 0.0
        self._reset()

    def _reset(self) -> None:
        self._done: Callable[[Outcome], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._buffer = bytearray()
        self._body = bytearray()
        self._status = 0
        self._left = -1
        self._chunked = False
        self._close = False
        self._sent_at = 0.0
        self._first_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - narrows the type
        self._transport = transport

    def send(self, data: bytes, timeout_s: float, done: Callable[[Outcome], None]) -> None:
        self._reset()
        self._done = done
        self._sent_at = self._loop.time()
        self._timer = self._loop.call_later(timeout_s, self._fail, "timeout")
        if self._transport is not None:
            self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        if self._done is None:
            self.abort()
            return
        self._buffer += data
        try:
            if not self._status and not self._read_head():
                return
            if self._first_at == 0.0 and (self._buffer or self._left == 0):
                self._first_at = self._loop.time()
            if self._read_chunks() if self._chunked else self._read_rest():
                self._succeed()
            elif len(self._body) > MAX_ANSWER:
                raise ValueError("answer too large")
        except (ValueError, IndexError):
            self._fail("malformed")

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        first, *rest = bytes(self._buffer[:end]).lower().split(b"\r\n")
        del self._buffer[: end + 4]
        self._status = int(first.split(b" ")[1])
        for line in rest:
            if line.startswith(b"content-length:"):
                self._left = int(line[15:])
            elif line.startswith(b"transfer-encoding:") and b"chunked" in line:
                self._chunked = True
            elif line.startswith(b"connection:") and b"close" in line:
                self._close = True
        return True

    def _read_rest(self) -> bool:
        self._body += self._buffer
        self._buffer.clear()
        return 0 <= self._left <= len(self._body)

    def _read_chunks(self) -> bool:
        while True:
            end = self._buffer.find(b"\r\n")
            if end < 0:
                return False
            size = int(bytes(self._buffer[:end]).split(b";")[0], 16)
            if len(self._buffer) < end + size + 4:
                return False
            self._body += self._buffer[end + 2 : end + 2 + size]
            del self._buffer[: end + size + 4]
            if size == 0:
                return True

    def _succeed(self) -> None:
        now = self._loop.time()
        error = "" if 200 <= self._status < 300 else f"status_{self._status}"
        outcome = Outcome(error, bytes(self._body), self._first_at - self._sent_at, now - self._sent_at)
        done = self._finish()
        if self._close:
            self.abort()
        else:
            self.idle_since = now
            self._pool.give_back(self)
        if done is not None:
            done(outcome)

    def _fail(self, kind: str) -> None:
        done = self._finish()
        self.abort()
        if done is not None:
            done(Outcome(kind, b"", 0.0, self._loop.time() - self._sent_at))

    def _finish(self) -> Callable[[Outcome], None] | None:
        done, self._done = self._done, None
        if self._timer is not None:
            self._timer.cancel()
        return done

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._pool.forget(self)
        if self._done is not None:
            is_whole = self._status and self._left < 0 and not self._chunked
            if is_whole:
                self._close = True
                self._succeed()
            else:
                self._fail("reset")

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()


class Pool:
    """Kept-alive connections to one port of 127.0.0.1."""

    def __init__(self, port: int, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._port = port
        self._idle: list[_Connection] = []

    async def send(self, data: bytes, timeout_s: float) -> Outcome:
        """Send one whole request and wait for its answer, at most `timeout_s` seconds; never raises for a failure."""
        connection = self._take()
        if connection is None:
            began = self.loop.time()
            try:
                async with asyncio.timeout(timeout_s):
                    _, connection = await self.loop.create_connection(lambda: _Connection(self), "127.0.0.1", self._port)
            except (OSError, TimeoutError):
                return Outcome("connect", b"", 0.0, self.loop.time() - began)
        answer: asyncio.Future[Outcome] = self.loop.create_future()

        def done(outcome: Outcome) -> None:
            if not answer.done():
                answer.set_result(outcome)

        connection.send(data, timeout_s, done)
        return await answer

    def _take(self) -> _Connection | None:
        now = self.loop.time()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and now - connection.idle_since < IDLE_S:
                return connection
            connection.abort()
        return None

    def give_back(self, connection: _Connection) -> None:
        """Keep a connection for later."""
        self._idle.append(connection)

    def forget(self, connection: _Connection) -> None:
        """Drop a connection that is closed."""
        if connection in self._idle:
            self._idle.remove(connection)

    def close(self) -> None:
        """Close all idle connections."""
        for connection in tuple(self._idle):
            connection.abort()
        self._idle.clear()
