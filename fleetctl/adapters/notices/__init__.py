"""Migrate, adapters layer: the port Notices by asking each host of a pool for its cloud's notice document. Never acts on one.

A cloud's metadata service answers on the host alone, so a relay on the host hands its document on; what it says is hostile until parsed.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from fleetctl.domain.ids import PoolId
from fleetctl.domain.people import Signal
from fleetctl.domain.pool import Host
from fleetctl.domain.units import Instant
from fleetctl.errors import ConfigInvalid
from fleetctl.formats.pool_words import NOTICES_HINT, is_address

WAIT_S = 1.5
"""Longest that all hosts of a pool are waited for."""
KEEP_S = 2.0
"""How long an answer is good for: every cell of a pool asks, and a notice may leave 30 s."""
KEEP_SILENT_S = 5.0
"""The same where a host was waited for in vain: other cells wait for this tick."""
MOST_BYTES = 256 * 1024
_AT_ONCE = 16
Parse = Callable[[object, str, Mapping[str, str], Instant], tuple[Signal, ...]]
"""(document, the host that gave it, cloud name of each host of the pool -> its id, now) -> signals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeSource:
    """Where a pool's notices are had.

    Args:
        url: with {address} for the host's address, such as "http://{address}:9102/notices"; ca: file with certificates to trust.
        parse: of the pool's cloud.
    """

    url: str
    parse: Parse
    ca: str = ""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow nothing."""


class HostNotices:
    """Asks the hosts of the pools that have a source.

    Args:
        sources: by pool; hosts: of a pool now; now: the clock.
    """

    def __init__(
        self, sources: Mapping[PoolId, NoticeSource], hosts: Callable[[PoolId], Sequence[Host]], now: Callable[[], Instant]
    ) -> None:
        for pool, source in sources.items():
            if not is_address(source.url):
                text = f"pool.{pool}.notices: {source.url[:80]!r} is no address."
                raise ConfigInvalid("config.notices", text, hint=NOTICES_HINT)
        self._sources = dict(sources)
        self._hosts = hosts
        self._now = now
        self._kept: dict[PoolId, tuple[float, tuple[Signal, ...]]] = {}

    def watches(self, pool: PoolId) -> bool:
        """Tell whether the pool has a source."""
        return pool in self._sources

    def read(self, pool: PoolId) -> tuple[Signal, ...]:
        """Ask every host at once; one that does not answer in time is a signal of kind "notices.silent", which moves nobody."""
        source = self._sources.get(pool)
        if source is None:
            return ()
        kept = self._kept.get(pool)
        if kept is not None and time.monotonic() < kept[0]:
            return kept[1]
        hosts = tuple(self._hosts(pool))
        names: dict[str, str] = {name: str(h.id) for h in hosts for name in (_cloud_name(h), str(h.id))}
        found: dict[tuple[str, str], Signal] = {}
        pool_of_threads = ThreadPoolExecutor(max_workers=min(_AT_ONCE, len(hosts) or 1), thread_name_prefix="notices")
        asked = {pool_of_threads.submit(_ask, source, h): h for h in hosts}
        wait(asked, timeout=WAIT_S)
        pool_of_threads.shutdown(wait=False, cancel_futures=True)
        for future, host in asked.items():
            document = future.result() if future.done() and not future.cancelled() else None
            signals = _parsed(source, document, host, names, self._now())
            for s in signals:
                found.setdefault((s.subject, s.kind), _of_pool(s, pool))
        keep_s = KEEP_SILENT_S if any(s.kind == "notices.silent" for s in found.values()) else KEEP_S
        self._kept[pool] = (time.monotonic() + keep_s, tuple(found.values()))
        return self._kept[pool][1]


def _cloud_name(h: Host) -> str:
    """Return what the cloud calls a host: the last part of its id there, else our own id."""
    return dict(h.variables).get("cloud_id", "").rpartition("/")[2] or str(h.id)


def _of_pool(s: Signal, pool: PoolId) -> Signal:
    return Signal(subject=s.subject, kind=s.kind, severity=s.severity, seen_at=s.seen_at, deadline=s.deadline, source=s.source, pool=pool)


def _parsed(source: NoticeSource, document: object, host: Host, names: Mapping[str, str], now: Instant) -> Sequence[Signal]:
    """Return what a document says; one that nobody can read is silence."""
    if document is None:
        return (_silent(host, now),)
    try:
        return tuple(source.parse(document, host.id, names, now))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError):
        return (_silent(host, now),)


def _silent(host: Host, now: Instant) -> Signal:
    return Signal(subject=host.id, kind="notices.silent", severity="info", seen_at=now, source="relay")


def _read(answer: Any) -> bytes:
    """Return the body; one that trickles is cut off, so that no thread lives on.

    Raises:
        OSError: it is longer, or takes longer, than a document does.
    """
    deadline, whole = time.monotonic() + WAIT_S, b""
    while part := answer.read1(65536):
        whole += part
        if len(whole) > MOST_BYTES or time.monotonic() > deadline:
            raise OSError("too long")
    return whole


def _ask(source: NoticeSource, host: Host) -> object:
    """Return the document, {} where there is none (404), None where nobody answers with JSON; whatever a relay does, it is no exception."""
    url = source.url.replace("{address}", f"[{host.address}]" if ":" in host.address else host.address)
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect(), urllib.request.ProxyHandler({})]
    try:
        if url.startswith("https"):
            handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=source.ca or None)))
        request = urllib.request.Request(url, headers={"User-Agent": "fleetctl", "Metadata": "true"})  # noqa: S310 - http(s) only, checked above
        with urllib.request.build_opener(*handlers).open(request, timeout=WAIT_S) as answer:
            found: object = json.loads(_read(answer))
    except urllib.error.HTTPError as e:
        return {} if e.code == 404 else None
    except (OSError, ValueError, OverflowError, RecursionError, http.client.HTTPException):
        return None
    rows = isinstance(found, list) and all(isinstance(row, dict) for row in found)  # AWS's maintenance document is a list
    return found if rows or isinstance(found, dict) else None
