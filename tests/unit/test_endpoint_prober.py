"""Replicas asked at their own addresses: one that answers byte by byte is told as not ready, in time, and holds up no other."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

import pytest

from fleetctl.adapters.routers import prober
from fleetctl.adapters.routers.prober import EndpointProber
from fleetctl.domain.ids import CellId, PoolId

CELL, SOURCE = CellId("chat"), PoolId("nvidia")


def serve(listener: socket.socket, over: threading.Event, *, trickles: bool) -> None:
    """Answer each completion whole, or byte by byte without an end."""
    body = b'{"choices": [{"text": "ok"}]}'

    def answer(link: socket.socket) -> None:
        with link, suppress(OSError):
            link.recv(65_536)
            if not trickles:
                link.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
                return
            link.sendall(b"HTTP/1.1 200 OK\r\nx: ")
            while not over.wait(0.05):
                link.sendall(b"a")

    with suppress(OSError):
        while True:
            threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()


def test_a_replica_that_trickles_is_not_ready_within_the_limit_and_the_other_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prober, "PROBE_LIMIT_S", 0.5)
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as slow, socket.create_server(("127.0.0.1", 0)) as sound:
        for listener in (slow, sound):
            threading.Thread(target=serve, args=(listener, over), kwargs={"trickles": listener is slow}, daemon=True).start()
        places = tuple(f"127.0.0.1:{listener.getsockname()[1]}" for listener in (slow, sound))
        asked = EndpointProber(lambda *_: places, sources={CELL: SOURCE}, models={CELL: "m"})
        began = time.monotonic()
        try:
            found = asked.ready(SOURCE, CELL)
        finally:
            over.set()
    assert time.monotonic() - began < 3.0
    assert (found.ready, found.total) == (1, 2)
    assert places[0] in found.detail
    assert "no answer within" in found.detail
