"""Inventory, adapter layer: one bounded HTTP GET of an inference server. Never follows a redirect, never sends a credential by itself."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
from typing import Any
from urllib.parse import urlsplit

MOST_BYTES = 8 * 1024 * 1024
"""Largest answer that is read. Source: a TGI scrape with its 1,024 bounds is the longest known, about 0.3 MB."""


class Silent(Exception):
    """Nothing answers there."""


def base_of(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port of an engine's address; "host:port" means http.

    Raises:
        ValueError: it is none.
    """
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or any(c.isspace() for c in url):
        raise ValueError(f"{url[:80]!r} is no http(s) address of a server")
    return parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)


def engine_id(url: str) -> str:
    """Return "host:port", the name that an engine has in every source."""
    _, host, port = base_of(url)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _cut(link: http.client.HTTPConnection) -> None:
    """End a connection whose answer comes so slowly that no single read times out."""
    if link.sock is not None:
        with contextlib.suppress(OSError):
            link.sock.shutdown(socket.SHUT_RDWR)


class Server:
    """One inference server.

    Args:
        url: its address; deadline_s: for all of its answers together.

    `refused` is the last 401 or 403 that it answered, 0 for none.
    """

    def __init__(self, url: str, *, deadline_s: float = 6.0, ca_file: str = "", headers: dict[str, str] | None = None) -> None:
        self._scheme, self._host, self._port = base_of(url)
        self._end = time.monotonic() + deadline_s
        self._ca_file = ca_file
        self.refused = 0
        self._headers = {"Accept": "*/*", "User-Agent": "fleetctl", **(headers or {})}

    def get(self, path: str, method: str = "GET") -> tuple[int, bytes]:
        """Return status and body.

        Raises:
            Silent: no connection, no answer in time, or one that is too long.
        """
        left = self._end - time.monotonic()
        if left <= 0:
            raise Silent("no answer in time")
        link = self._link(min(left, 4.0))
        watch = threading.Timer(left, _cut, (link,))
        watch.daemon = True
        watch.start()
        try:
            link.request(method, path, headers=self._headers)
            answer = link.getresponse()
            body = bytearray()
            while len(body) <= MOST_BYTES and time.monotonic() < self._end:
                chunk = answer.read1(65536)
                if not chunk and answer.length:
                    raise Silent("its answer is cut off or too slow")
                if not chunk:
                    self.refused = answer.status if answer.status in (401, 403) else self.refused
                    return answer.status, bytes(body)
                body += chunk
            raise Silent("its answer is too long or too slow")
        except (OSError, http.client.HTTPException) as e:
            said = "no answer in time" if time.monotonic() >= self._end else f"{type(e).__name__}: {e}"[:160]
            raise Silent(said) from e
        finally:
            watch.cancel()
            link.close()

    def json(self, path: str, method: str = "GET") -> Any:
        """Return a JSON answer; None where the path is not there or is not JSON. Raises Silent."""
        status, body = self.get(path, method)
        if status != 200:
            return None
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            return None

    def _link(self, timeout: float) -> http.client.HTTPConnection:
        if self._scheme == "http":
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        context = ssl.create_default_context(cafile=self._ca_file or None)
        return http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=context)
