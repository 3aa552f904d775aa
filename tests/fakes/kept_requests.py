"""Recordings of requests as somebody opted in to them, written for a test."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path

from fleetctl.formats.replay import ReplayHeader, header_line, request_text
from fleetctl.formats.sealed import NONCE_BYTES, Seal, key_id

KEY = bytes(range(32))
KEY_TEXT = b64encode(KEY).decode()
KEY_ID = key_id(KEY)


def sealed_lines(head: ReplayHeader, texts: Iterable[str], key: bytes = KEY) -> list[str]:
    """Return a header and texts as the lines of a recording."""
    first = header_line(head)
    seal = Seal(key, first.encode())
    return [first, *(seal.line(text, i.to_bytes(NONCE_BYTES)) for i, text in enumerate(texts))]


def write_recording(path: Path, head: ReplayHeader, bodies: Iterable[object], *, tenant: str = "acme") -> Path:
    """Write a recording, its key and an empty list of who opted out, all ours alone; returns the recording's path."""
    for name, text in {
        path.name: "\n".join(sealed_lines(head, (request_text(b, tenant) for b in bodies))),
        "kept.key": KEY_TEXT,
        "opted-out.txt": "# nobody",
    }.items():
        (path.parent / name).write_text(text + "\n")
        (path.parent / name).chmod(0o600)
    return path
