"""Evidence, adapter layer: calls of an inference server's API, bounded in time and size. Never a redirect, never a retry."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Mapping
from typing import Any

from fleetctl.adapters.engines.wire import MOST_BYTES, base_of
from fleetctl.domain.identity import ContractAnswer

MOST_EVENTS = 20_000


class Api:
    """One inference server, or one arm of a cell behind its router.

    Args:
        url: address, with the path that all calls begin with (a router's cell).
        headers: sent with every call (what pins an arm, a key); timeout_s: of one call, above 0.
    """

    def __init__(self, url: str, *, headers: Mapping[str, str] | None = None, timeout_s: float = 60.0, ca_file: str = "") -> None:
        self._scheme, self._host, self._port = base_of(url)
        rest = url.split("://", 1)[-1]
        self._prefix = "/" + rest.split("/", 1)[1].strip("/") if "/" in rest.rstrip("/") else ""
        self._headers = {"User-Agent": "fleetctl", **(headers or {})}
        self._timeout_s = timeout_s
        self._ca_file = ca_file

    def call(self, method: str, path: str, body: object = None, *, timeout_s: float | None = None) -> ContractAnswer:
        """Return what came back; a body that is a text is sent as it is, anything else as JSON. Never raises."""
        limit = timeout_s or self._timeout_s
        end = time.monotonic() + limit
        sent = body.encode() if isinstance(body, str) else None if body is None else json.dumps(body).encode()
        headers = self._headers | ({"Content-Type": "application/json"} if sent is not None else {})
        link = self._link(limit)
        try:
            link.request(method, self._prefix + path, body=sent, headers=headers)
            answer = link.getresponse()
            data = _read(answer, end)
            if "text/event-stream" in (answer.getheader("content-type") or ""):
                events, ended = _events(data)
                return ContractAnswer(status=answer.status, events=events, ended=ended)
            return ContractAnswer(status=answer.status, body=_parsed(data))
        except (OSError, http.client.HTTPException, ValueError) as e:
            return ContractAnswer(status=0, error=f"{type(e).__name__}: {e}"[:160])
        finally:
            link.close()

    def _link(self, timeout: float) -> http.client.HTTPConnection:
        if self._scheme == "http":
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        context = ssl.create_default_context(cafile=self._ca_file or None)
        return http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=context)


def _read(answer: http.client.HTTPResponse, end: float) -> bytes:
    data = bytearray()
    while chunk := answer.read1(65536):
        data += chunk
        if len(data) > MOST_BYTES:
            raise ValueError("its answer is too long")
        if time.monotonic() > end:
            raise ValueError("its answer takes too long")
    return bytes(data)


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _events(data: bytes) -> tuple[tuple[object, ...], bool]:
    """Return the parsed events of a stream, and whether it ended in [DONE]."""
    found: list[object] = []
    for line in data.split(b"\n"):
        if not line.startswith(b"data:"):
            continue
        text = line[5:].strip()
        if text == b"[DONE]":
            return tuple(found), True
        if len(found) < MOST_EVENTS:
            found.append(_parsed(text))
    return tuple(found), False
