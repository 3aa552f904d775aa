"""Copies of customers' requests between two regions, end to end: a real HAProxy with its tee, a real collector, every byte on the wire to
each region's servers counted. Where a cell's data may not be served, nothing of a customer leaves."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fleetctl.domain.ids import CellId, Token
from fleetctl.errors import TrafficNotApplied
from fleetctl.ports.traffic import Shadow
from fleetctl.wiring.traffic import Traffic
from tests.lab.haproxy_lab import CELL, PIN_KEY, STREAM, Rig, rig, until

pytestmark = pytest.mark.lab
ROOT = Path(__file__).resolve().parents[2]
SECRET = "what only this customer says"
CHECK = b"x-fleetctl-check: 1"
HOME, AWAY = "westeurope", "eastus2"


class Wire:
    """The line to one region's servers: passes every byte on, and keeps what goes there, connection by connection."""

    def __init__(self) -> None:
        self.connections: list[bytearray] = []
        self._listeners: list[socket.socket] = []

    def to(self, port: int) -> int:
        """Return a port that leads to the server's own."""
        listener = socket.create_server(("127.0.0.1", 0))
        self._listeners.append(listener)
        threading.Thread(target=self._serve, args=(listener, port), daemon=True).start()
        return int(listener.getsockname()[1])

    def of_customers(self) -> int:
        """Return the bytes that were no health check, which is always the same one token."""
        return sum(len(c) for c in self.connections if c and CHECK not in c.lower())

    def holds(self, text: str) -> bool:
        """Tell whether a text went over it."""
        return any(text.encode() in c for c in self.connections)

    def close(self) -> None:
        for listener in self._listeners:
            listener.close()

    def _serve(self, listener: socket.socket, port: int) -> None:
        with suppress(OSError):
            while True:
                link, _ = listener.accept()
                kept = bytearray()
                self.connections.append(kept)
                threading.Thread(target=_relay, args=(link, port, kept), daemon=True).start()


def _relay(link: socket.socket, port: int, kept: bytearray) -> None:
    with link, suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=20) as there:
        back = threading.Thread(target=_pass, args=(there, link, bytearray()), daemon=True)
        back.start()
        _pass(link, there, kept)
        back.join(20)


def _pass(one: socket.socket, other: socket.socket, kept: bytearray) -> None:
    with suppress(OSError):
        while part := one.recv(65_536):
            kept += part
            other.sendall(part)
    with suppress(OSError):
        other.shutdown(socket.SHUT_WR)


@contextmanager
def collecting(found: Rig) -> Iterator[Path]:
    """Run the real collector where this HAProxy sends its copies."""
    found.collector.stop()
    folder = found.folder / "shadow"
    folder.mkdir()
    key = found.folder / "pin.key"
    key.write_text(PIN_KEY + "\n")
    key.chmod(0o600)
    cells = {CELL: {"streaming": False}, STREAM: {"streaming": False}}
    told = {"port": found.collector.port, "router_url": f"http://127.0.0.1:{found.port}", "pin_key_file": str(key), "folder": str(folder)}
    (folder / "collector.json").write_text(json.dumps({**told, "cells": cells}))
    argv = [sys.executable, "-m", "fleetctl.adapters.shadow.collector", "--config", str(folder / "collector.json")]
    process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline(), "the collector listens"
        yield folder
    finally:
        process.kill()
        process.communicate()


def shadow_of(found: Rig, folder: Path, regions: dict[CellId, tuple[str, ...]], c: CellId) -> Shadow:
    """Return the shadow as the composition root makes it, for a fleet whose two cells have targets in another region."""
    cells = {x: SimpleNamespace(region=HOME, regions=regions[x], workload="w", router=SimpleNamespace(name="edge")) for x in regions}
    fleet = SimpleNamespace(
        cell=cells.__getitem__,
        workload=lambda _: SimpleNamespace(shadow=SimpleNamespace(max_share=1.0), traffic=SimpleNamespace(requests_per_s=50.0)),
        pools=(SimpleNamespace(id="mi300x", region=AWAY),),
    )
    connection = SimpleNamespace(name="edge", kind="haproxy", settings={"shadow_folder": str(folder)})
    root: Any = SimpleNamespace(fleet=fleet, _connection_of=lambda _: connection, router_of=lambda _: found.router(), _shadows={})
    root.store = SimpleNamespace(load=lambda _: SimpleNamespace(spec=SimpleNamespace(target="mi300x")))
    root._forbids_copies = partial(Traffic._forbids_copies, root)
    return Traffic.shadow_of(root, c)


def ask(found: Rig, c: CellId, times: int) -> None:
    """Let a customer ask so often, until each answer is on record."""

    def asked() -> int:
        return sum(row["c"] == c and row["p"] == "-" for row in found.log())

    before = asked()
    for n in range(times):
        assert found.ask(c, key=f"k{n}", body={"prompt": SECRET}).status == 200
    until(lambda: asked() == before + times, "answered", 20.0)


def test_no_byte_of_a_customer_leaves_the_regions_in_which_its_data_may_be_served() -> None:
    wires = {CELL: Wire(), STREAM: Wire()}
    allowed = {CELL: (AWAY,), STREAM: ()}
    try:
        with rig(through=lambda cell, port: wires[cell].to(port)) as found, collecting(found) as folder:
            found.healthy(CELL)
            found.healthy(STREAM)
            shadow_of(found, folder, allowed, CELL).start(CELL, 100.0, Token(1))
            with pytest.raises(TrafficNotApplied) as refused:
                shadow_of(found, folder, allowed, STREAM).start(STREAM, 100.0, Token(1))
            assert refused.value.code == "traffic.copies_forbidden"
            for _ in range(40):
                ask(found, CELL, 1)
                if wires[CELL].holds(SECRET):
                    break
            ask(found, STREAM, 3)
            until(lambda: wires[CELL].holds(SECRET), "copies of the cell that may be copied arrive over there", 20.0)
            assert wires[CELL].of_customers() > 0
            assert (wires[STREAM].of_customers(), wires[STREAM].holds(SECRET)) == (0, False)
            assert any(wires[STREAM].connections), "the line is there and counted: health checks go over it"

            # the fleet file takes the region away while copies are being made
            forbidden: dict[CellId, tuple[str, ...]] = {
                CELL: (),
                STREAM: (),
            }
            with pytest.raises(TrafficNotApplied):
                shadow_of(found, folder, forbidden, CELL).start(CELL, 100.0, Token(1))
            until(lambda: found.router().tee_counts()["waiting"] == 0, "what was copied before has gone", 20.0)
            sent = found.router().tee_counts()["sent"]
            ask(found, CELL, 10)
            assert found.router().tee_counts()["sent"] == sent, "not one copy more is made"
    finally:
        for wire in wires.values():
            wire.close()
