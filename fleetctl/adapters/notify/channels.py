"""Every step, adapters layer: one HTTP call to a channel, bounded as a whole. Never follows a redirect, never tells a secret.

What went wrong is told by a status or the name of an error: neither holds the address, which is a secret of its own.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from fleetctl.adapters.notify.messages import SIGNATURE, pagerduty_body, signature, slack_body, webhook_body
from fleetctl.domain.event import Event
from fleetctl.domain.fleet import Connection, SecretRef
from fleetctl.errors import FleetctlError
from fleetctl.formats.notify_channels import is_safe_url

PAGERDUTY = "https://events.pagerduty.com/v2/enqueue"
CALL_S = 5.0
"""Longest that one call may take as a whole, also where its answer never ends."""
LATER_AGAIN = frozenset({408, 425, 429})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What one try came to.

    Args:
        ok: it was taken; final: trying again is no use; why: without a secret; after_s: what the receiver asked to be waited, seconds.
    """

    ok: bool
    final: bool = False
    why: str = ""
    after_s: float = 0.0


class Channel:
    """One receiver of the fleet file.

    Args:
        resolve: returns a secret when it is needed; call_s: longest time of one call, seconds.
    """

    def __init__(self, connection: Connection, fleet: str, resolve: Callable[[SecretRef], str], *, call_s: float = CALL_S) -> None:
        self.name, self.kind = connection.name, connection.kind
        self.least = connection.settings.get("least", "info")
        self._connection, self._fleet, self._resolve, self._call_s = connection, fleet, resolve, call_s

    def send(self, notices: Sequence[Event]) -> Sent:
        """Send notices of one cause as one message; never raises."""
        try:
            url, body, headers = self._request(notices)
            if not is_safe_url(url):
                return Sent(ok=False, final=True, why="its address is neither https nor on this machine")
            return _bounded(lambda: _post(url, body, headers, self._call_s), self._call_s)
        except FleetctlError as e:
            return Sent(ok=False, why=e.code)
        except Exception as e:  # a receiver's whims never reach a tick
            return Sent(ok=False, why=type(e).__name__)

    def _request(self, notices: Sequence[Event]) -> tuple[str, bytes, dict[str, str]]:
        if self.kind == "pagerduty":
            url = self._connection.settings.get("url", PAGERDUTY)
            return url, pagerduty_body(self._fleet, notices, self._secret("key")), {}
        if self.kind == "slack":
            return self._secret("url"), slack_body(self._fleet, notices), {}
        body = webhook_body(self._fleet, notices)
        return self._secret("url"), body, {SIGNATURE: signature(body, self._secret("key"), int(time.time()))}

    def _secret(self, name: str) -> str:
        return self._resolve(self._connection.secrets[name])


def _bounded(action: Callable[[], Sent], limit_s: float) -> Sent:
    """Do it in a thread of its own: a time-out of a socket counts each read, and a drip of bytes would hold the call for ever."""
    done: list[Sent] = []
    failed: list[Exception] = []

    def run() -> None:
        try:
            done.append(action())
        except Exception as e:
            failed.append(e)

    worker = threading.Thread(target=run, name="notify-call", daemon=True)
    worker.start()
    worker.join(limit_s)
    if failed:
        raise failed[0]
    return done[0] if done else Sent(ok=False, why="TimeoutError")


def _post(url: str, body: bytes, headers: dict[str, str], limit_s: float) -> Sent:
    found = urlsplit(url)
    make = http.client.HTTPSConnection if found.scheme == "https" else http.client.HTTPConnection
    link = make(found.hostname or "", found.port, timeout=limit_s)
    try:
        path = (found.path or "/") + (f"?{found.query}" if found.query else "")
        link.request("POST", path, body=body, headers={"Content-Type": "application/json", "User-Agent": "fleetctl", **headers})
        answer = link.getresponse()
        if 200 <= answer.status < 300:
            return Sent(ok=True)
        wait = answer.getheader("Retry-After", "")
        again = answer.status >= 500 or answer.status in LATER_AGAIN
        return Sent(ok=False, final=not again, why=f"status {answer.status}", after_s=float(wait) if wait.isdigit() else 0.0)
    finally:
        link.close()
