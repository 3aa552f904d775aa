"""Start-up files that could not be written are written once they can, never over a newer order; people hear of a way home that a
restart of the router would undo."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fleetctl.adapters.routers import late
from fleetctl.adapters.routers.late import LateWriter
from fleetctl.domain.ids import CellId
from fleetctl.domain.rollout import Order
from fleetctl.domain.split import Applied, Split, Stale
from tests.fakes.router import FakeRouter
from tests.rollouts import CELL, PERSON
from tests.simulator import Simulation


class Disk:
    """A file that is refused while the disk is full."""

    def __init__(self) -> None:
        self.is_full, self.tries, self.text, self.written = True, 0, "2500", threading.Event()

    def write(self, text: str) -> None:
        self.tries += 1
        if self.is_full:
            raise OSError(28, "No space left on device")
        self.text = text
        self.written.set()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late, "AGAIN_S", 0.01)


def test_a_file_that_failed_on_the_way_home_is_written_once_it_can_be() -> None:
    disk, writer = Disk(), LateWriter("edge")
    assert "No space left" in writer.write(CELL, lambda: disk.write("0"), 0.2)
    while disk.tries < 3:
        time.sleep(0.001)
    disk.is_full = False
    assert disk.written.wait(10)
    assert disk.text == "0"


def test_a_file_that_is_tried_again_is_never_written_over_a_newer_order() -> None:
    disk, writer, others = Disk(), LateWriter("edge"), CellId("code-lab")
    tried: list[tuple[CellId, ...]] = []

    def both(cells: Any) -> None:
        tried.append(tuple(cells))
        disk.write("both")

    assert "No space left" in writer.write_many((CELL, others), both, 0.2)
    assert "No space left" in writer.write(CELL, lambda: disk.write("0"), 0.2)
    while tried[-1] != (others,):
        time.sleep(0.001)
    assert "No space left" in writer.write(others, lambda: disk.write("other"), 0.2)
    disk.is_full = False
    while late._unwritten:
        time.sleep(0.001)
    assert disk.text in ("0", "other"), "both were ordered anew"


def test_a_process_that_ends_waits_a_moment_for_a_file_that_another_process_had_locked(tmp_path: Path) -> None:
    """As `fleetctl fallback` beside a ticker: the lock is held longer than going home waits for it, and free a moment later."""
    program = f"""
import fcntl, os, threading
from pathlib import Path
from fleetctl.adapters.routers.haproxy.maps import LOCK_FILE, Standing, write_standing
from fleetctl.adapters.routers.late import LateWriter
folder = Path({str(tmp_path)!r})
(folder / "weight.map").write_text("chat-lab 2500\\n")
handle = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
fcntl.flock(handle, fcntl.LOCK_EX)
threading.Timer(0.5, os.close, (handle,)).start()
print(LateWriter("edge").write("chat-lab", lambda: write_standing(folder, "chat-lab", Standing(bp=0, cap_bp=1, token=2, lease_ms=3)), 0.2))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert "held by another process" in done.stdout
    assert (tmp_path / "weight.map").read_text() == "chat-lab 0\n"


class Unfiled(FakeRouter):
    """Sets weights, and cannot write its start-up files."""

    def set(self, s: Split) -> Applied | Stale:
        done = super().set(s)
        return Applied(split=done.split, reported="not written: disk full", unfiled=True) if isinstance(done, Applied) else done


def test_people_are_paged_once_where_a_restart_would_undo_a_way_home() -> None:
    s = Simulation()
    router = Unfiled({CELL: s.spec.source}, target=s.target)
    s.router = lambda _: router
    s.begin()
    s.run(300, lambda: s.bp() > 0)
    pages = [n for n in s.notices.sent if n.kind == "notify.page"]
    assert pages == [], "on the way up a restart brings customers home"
    s.store.order(CELL, Order(kind="abort", actor=PERSON, at=s.clock.now()))
    s.run(60, lambda: bool(s.rollout().ended))
    assert (s.bp(), s.rollout().ended) == (0, "aborted")
    told = [n.text for n in s.notices.sent if "restart of its router" in n.text]
    assert told == [
        f"{CELL} is at 0 %, and a restart of its router may bring back the weight before: not written: disk full; it is tried again"
    ]
