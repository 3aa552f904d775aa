"""Migrate, adapters layer: as much HTTP/1.1 as the collector needs, bounded in every direction. Never TLS, never a redirect."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

MOST_HEAD = 16_384
MOST_CHUNKS = 10_000


class BadMessage(Exception):
    """The other side does not speak HTTP as it should."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A request or an answer: its first line's words, headers (names in lower case), body."""

    first: tuple[str, str, str]
    headers: Mapping[str, str]
    body: bytes

    @property
    def status(self) -> int:
        """The status of an answer; 0 where the line holds none."""
        return int(self.first[1]) if self.first[1].isdigit() else 0


async def read_message(reader: asyncio.StreamReader, most_body: int, *, is_answer: bool) -> Message:
    """Read one message.

    Raises:
        BadMessage: malformed, or over `most_body` bytes; OSError: the connection broke.
    """
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as e:
        raise BadMessage("no whole head") from e
    lines = head.split("\r\n")
    words = lines[0].split(" ", 2)
    if len(words) < 2:
        raise BadMessage("no first line")
    headers: dict[str, str] = {}
    for line in lines[1:-2]:
        name, colon, value = line.partition(":")
        if not colon:
            raise BadMessage("a header without a colon")
        headers[name.strip().lower()] = value.strip()
    body = await _read_body(reader, headers, most_body, is_answer)
    return Message(first=(words[0], words[1], words[2] if len(words) == 3 else ""), headers=headers, body=body)


async def _read_body(reader: asyncio.StreamReader, headers: Mapping[str, str], most: int, is_answer: bool) -> bytes:
    try:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return await _read_chunks(reader, most)
        if "content-length" in headers:
            text = headers["content-length"]
            if not text.isdigit() or len(text) > 12 or int(text) > most:
                raise BadMessage("a body that is too long")
            return await reader.readexactly(int(text))
        if not is_answer:
            return b""
        body = await reader.read(most + 1)
        while len(body) <= most and (more := await reader.read(most + 1 - len(body))):
            body += more
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as e:
        raise BadMessage("a body that ends early") from e
    if len(body) > most:
        raise BadMessage("a body that is too long")
    return body


async def _read_chunks(reader: asyncio.StreamReader, most: int) -> bytes:
    body = b""
    for _ in range(MOST_CHUNKS):
        text = (await reader.readuntil(b"\r\n")).split(b";")[0].strip()
        try:
            size = int(text, 16)
        except ValueError as e:
            raise BadMessage("a chunk without a size") from e
        if size < 0 or len(body) + size > most:
            raise BadMessage("a body that is too long")
        if size == 0:
            while await reader.readuntil(b"\r\n") != b"\r\n":
                pass
            return body
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    raise BadMessage("too many chunks")


async def post(url: str, body: bytes, headers: Mapping[str, str], timeout_s: float, most_body: int) -> Message:
    """POST JSON and return the answer; one connection per call.

    Raises:
        BadMessage, OSError, TimeoutError.
    """
    parts = urlsplit(url)
    async with asyncio.timeout(timeout_s):
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80, limit=MOST_HEAD)
        try:
            lines = [
                f"POST {parts.path} HTTP/1.1",
                f"Host: {parts.netloc}",
                "Content-Type: application/json",
                f"Content-Length: {len(body)}",
                "Connection: close",
                *(f"{name}: {value}" for name, value in headers.items()),
            ]
            writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
            await writer.drain()
            return await read_message(reader, most_body, is_answer=True)
        finally:
            writer.close()


def answer(status: int, reason: str, body: bytes) -> bytes:
    """Return the bytes of a JSON answer that ends the connection."""
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
