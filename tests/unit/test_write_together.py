"""Start-up files: what waits is written together, the newest order of a cell last; one slow write holds a cell up once."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fleetctl.adapters.routers.haproxy.maps import Standing, read_standing, write_standing
from fleetctl.adapters.routers.late import LateWriter
from fleetctl.adapters.routers.lock import write_together
from fleetctl.domain.ids import CellId

CELL = CellId("chat-lab")


def test_what_waits_is_written_in_one_go_and_a_failure_reaches_each_that_waited(tmp_path: Path) -> None:
    batches: list[list[int]] = []
    begun, release = threading.Event(), threading.Event()

    def write(items: Sequence[int]) -> None:
        batches.append(list(items))
        begun.set()
        assert release.wait(5)
        if 7 in items:
            raise OSError(28, "No space left on device")

    with ThreadPoolExecutor(10) as pool:
        first = pool.submit(write_together, tmp_path / "lock", 0, write)
        assert begun.wait(5)
        others = [pool.submit(write_together, tmp_path / "lock", n, write) for n in range(1, 9)]
        _until_waiting(tmp_path / "lock", 8)
        release.set()
        assert first.exception() is None
        assert {str(f.exception()) for f in others} == {"[Errno 28] No space left on device"}
    assert sorted(map(len, batches)) == [1, 8]
    write_together(tmp_path / "lock", 9, lambda items: batches.append(list(items)))
    assert batches[-1] == [9], "a failure leaves nobody waiting"


def _until_waiting(path: Path, count: int) -> None:
    from fleetctl.adapters.routers import lock

    end = time.monotonic() + 5
    while len(lock._GROUPS[path].waiting) < count:
        assert time.monotonic() < end
        time.sleep(0.001)


def test_cells_that_are_raised_and_lowered_together_all_stand_there_after(tmp_path: Path) -> None:
    cells = [CellId(f"cell-{n}") for n in range(40)]
    for c in cells:
        write_standing(tmp_path, c, Standing(bp=2_500, cap_bp=10_000, token=1, lease_ms=5))
    wanted = {c: Standing(bp=0 if n % 2 else 5_000, cap_bp=9_000, token=2, lease_ms=6) for n, c in enumerate(cells)}
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda c: write_standing(tmp_path, c, wanted[c]), cells))
        list(pool.map(lambda c: write_standing(tmp_path, c, Standing(bp=10_000, cap_bp=1, token=1, lease_ms=9)), cells))
    assert {c: read_standing(tmp_path, c) for c in cells} == wanted


def test_a_slow_write_holds_a_cell_up_once(tmp_path: Path) -> None:
    late, release = LateWriter("edge"), threading.Event()

    def slow() -> None:
        release.wait(5)

    began = time.monotonic()
    said = [late.write(CELL, slow, 0.2) for _ in range(4)]
    assert time.monotonic() - began < 0.6
    assert all("not written within" in text for text in said)
    release.set()
    end = time.monotonic() + 5
    while late.write(CELL, lambda: None, 0.2):
        assert time.monotonic() < end

    def broken() -> None:
        raise OSError(5, "gone")

    assert "gone" in late.write(CELL, broken, 0.2)
