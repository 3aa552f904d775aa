"""Plan, adapters layer: one bounded GET for price feeds. Never another scheme than https, but for loopback; never a redirect elsewhere."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any
from urllib.parse import urlsplit

from fleetctl.errors import InventoryFailed

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
MOST_BYTES = 64 * 1024 * 1024
TIMEOUT_S = 30


def get(url: str, feed: str) -> bytes:
    """Return the body.

    Raises:
        InventoryFailed: catalog.feed, with the feed's name.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme != "https" and not (parts.scheme == "http" and host in LOOPBACK):
        raise _failed(feed, f"{parts.scheme or 'no scheme'} is not https")
    try:
        if parts.scheme == "https":
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, parts.port, timeout=TIMEOUT_S, context=ssl.create_default_context()
            )
        else:
            connection = http.client.HTTPConnection(host, parts.port, timeout=TIMEOUT_S)
        try:
            connection.request("GET", parts.path + (f"?{parts.query}" if parts.query else ""), headers={"User-Agent": "fleetctl"})
            answer = connection.getresponse()
            body = answer.read(MOST_BYTES + 1)
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError) as e:
        raise _failed(feed, str(e) or type(e).__name__) from e
    if answer.status != 200:
        raise _failed(feed, f"it answered {answer.status}")
    if len(body) > MOST_BYTES:
        raise _failed(feed, "its answer is too large")
    return body


def get_json(url: str, feed: str) -> dict[str, Any]:
    """Return the body as a JSON object. Raises InventoryFailed (catalog.feed)."""
    try:
        found = json.loads(get(url, feed))
    except ValueError as e:
        raise _failed(feed, "its answer is not JSON") from e
    if not isinstance(found, dict):
        raise _failed(feed, "its answer is not a JSON object")
    return found


def _failed(feed: str, why: str) -> InventoryFailed:
    text = f"{feed} cannot be read: {why[:200]}."
    return InventoryFailed("catalog.feed", text, hint="The dated rows that are here still count: fleetctl catalog check")
