"""`--kill-streams` at a real HAProxy: only the target's open answers are cut, and only after everybody new goes to the source."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection, HTTPException

import pytest

from fleetctl.adapters.deadline import Deadline
from fleetctl.adapters.routers.haproxy.router import cut_streams
from fleetctl.adapters.routers.haproxy.wire import AdminSocket
from fleetctl.errors import TrafficNotApplied
from fleetctl.wiring.routers import cut_streams as cut_at
from tests.lab.haproxy_lab import STREAM, Rig, put, rig, until

pytestmark = pytest.mark.lab


@pytest.fixture
def own() -> Iterator[Rig]:
    with rig() as found:
        yield found


def stream(port: int, into: list[bytes], n: int) -> None:
    """Read one stream to its end, or to where it is cut."""
    link = HTTPConnection("127.0.0.1", port, timeout=10)
    headers = {"content-type": "application/json", "x-conversation-id": f"user-{n}"}
    with suppress(OSError, HTTPException):
        link.request("POST", f"/{STREAM}/v1/completions", "{}", headers)
        answer = link.getresponse()
        while part := answer.read1(64):
            into[n] += part
    link.close()


def test_only_the_targets_streams_are_cut_once_it_is_home(own: Rig) -> None:
    own.healthy(STREAM)
    router = own.router()
    put(router, 5_000, token=1, cell=STREAM)
    got = [b""] * 40
    threads = [threading.Thread(target=stream, args=(own.port, got, n)) for n in range(40)]
    for thread in threads:
        thread.start()
    until(lambda: all(got), "every stream has begun")
    names = {n: name for name, b in own.backends[STREAM].items() for _, h, _ in b.seen for n in [int(h["x-conversation-id"][5:])]}
    on_target = {n for n, name in names.items() if name.startswith("c")}
    assert 0 < len(on_target) < 40
    put(router, 0, token=1, cell=STREAM)
    assert cut_streams(own.connection, STREAM, {}) >= 1
    for thread in threads:
        thread.join(20)
    whole = {n for n in range(40) if got[n].endswith(b"data: [DONE]\n\n")}
    assert whole >= set(range(40)) - on_target, "nobody of the source's is cut"
    assert not whole & on_target, "the target's are"
    rows = AdminSocket(own.process.socket).servers(f"{STREAM}_canary", Deadline())
    assert sum(row.sessions for row in rows if not row.backup) == 0


def test_a_router_that_cannot_says_so(own: Rig) -> None:
    from dataclasses import replace

    with pytest.raises(TrafficNotApplied) as refused:
        cut_at(replace(own.connection, kind="envoy"), STREAM, {})
    assert refused.value.code == "traffic.cannot_cut"
