"""Writers of one store are killed with SIGKILL at random: no event is lost or doubled, chains hold, one lease at a time.

Each process works like a tick: acquire, load, record. After a record returned it writes a receipt, so that what was promised
can be held against what is there.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from fleetctl.adapters.store.sqlite import SqliteStore
from fleetctl.domain.event import broken_link
from fleetctl.domain.ids import CellId
from tests.fakes.rollouts import rollout

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.crash

WRITER = """
import dataclasses, os, sys
from datetime import timedelta
from fleetctl.adapters.store.sqlite import SqliteStore
from fleetctl.domain.ids import CellId
from fleetctl.ports.state import Lease, Lost
from tests.fakes.rollouts import event
path, receipts, me, cells = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4].split(",")
store = SqliteStore(path)
out = os.open(receipts, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
n = 0
while True:
    cell = CellId(cells[n % len(cells)])
    n += 1
    lease = store.acquire(cell, f"{me}:{os.getpid()}", timedelta(seconds=0.3))
    if not isinstance(lease, Lease):
        continue
    before = store.load(cell)
    after = dataclasses.replace(before, attempt=before.attempt + 1)
    text = f"{me}:{os.getpid()}:{n}:{lease.token}:{after.attempt}"
    os.write(out, f"try {cell} {text}\\n".encode())
    if store.record(lease, before, after, (event(cell, text=text), event(None, text=text)), timedelta(0)) is None:
        os.write(out, f"done {cell} {text}\\n".encode())
"""

RACER = """
import os, sys
from datetime import timedelta
from fleetctl.adapters.store.sqlite import SqliteStore
from fleetctl.ports.state import Lease
path, guard, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = SqliteStore(path)
won = 0
print("ready", flush=True)
sys.stdin.readline()
while won < rounds:
    lease = store.acquire("fleet", f"r:{os.getpid()}", timedelta(seconds=60))
    if not isinstance(lease, Lease):
        continue
    fd = os.open(guard, os.O_CREAT | os.O_EXCL | os.O_WRONLY)  # fails if the other is inside too
    print(lease.token, flush=True)
    os.close(fd)
    os.unlink(guard)
    store.release(lease)
    won += 1
"""


@contextlib.contextmanager
def started(code: str, *args: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", code, *args],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def receipts_of(path: Path) -> dict[str, set[tuple[str, str]]]:
    found: dict[str, set[tuple[str, str]]] = {"try": set(), "done": set()}
    for line in path.read_text().splitlines() if path.exists() else ():
        what, cell, text = line.split()
        found[what].add((cell, text))
    return found


def kill_at_random(path: Path, receipts: Path, kills: int, cells: list[str], seed: int) -> None:
    """Keep two writers going and kill one after the other, each after a random span of its work."""
    dice = random.Random(seed)
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(started(WRITER, str(path), str(receipts), f"w{i}", ",".join(cells))) for i in range(2)]
        for n in range(kills):
            victim = n % 2
            wanted = len(receipts_of(receipts)["done"]) + dice.randrange(3, 12)
            deadline = time.monotonic() + 30
            while len(receipts_of(receipts)["done"]) < wanted:
                if time.monotonic() > deadline:
                    writers[victim].kill()
                    pytest.fail(f"the writers stopped writing: {writers[victim].communicate()[1][-2000:]}")
                time.sleep(0.002 + dice.random() * 0.01)
            writers[victim].send_signal(signal.SIGKILL)
            writers[victim].wait()
            writers[victim] = stack.enter_context(started(WRITER, str(path), str(receipts), f"w{n + 2}", ",".join(cells)))


def check(path: Path, receipts: Path, cells: list[str]) -> int:
    """Hold the store against the receipts; return how many records were promised."""
    found = receipts_of(receipts)
    store = SqliteStore(path)
    try:
        assert store.verify() == []
        fleet = list(store.events(None, 0))
        assert broken_link(fleet) is None
        kept: set[tuple[str, str]] = set()
        for cell in cells:
            events = list(store.events(CellId(cell), 0))
            texts = [e.text for e in events]
            assert len(set(texts)) == len(texts), "an event is there twice"
            tokens = [int(t.split(":")[3]) for t in texts]
            assert tokens == sorted(set(tokens)), "two records under one token, or an older token after a newer one"
            attempts = [int(t.split(":")[4]) for t in texts]
            assert attempts == list(range(2, len(texts) + 2)), "a record was built on a state that was not the last one"
            now = store.load(CellId(cell))
            assert now is not None
            assert now.attempt == len(texts) + 1, "rollout and events differ"
            kept |= {(cell, t) for t in texts}
        assert {t for _, t in kept} == {e.text for e in fleet}, "one transaction was kept in part"
        assert found["done"] <= kept, "a record that had returned is lost"
        assert kept <= found["try"], "an event that nobody wrote"
        with store._db.read() as q:
            assert q.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    finally:
        store.close()
    return len(found["done"])


@pytest.mark.parametrize("kills", [12, pytest.param(100, marks=pytest.mark.slow)])
def test_killed_writers_lose_and_double_nothing(tmp_path: Path, kills: int) -> None:
    path, receipts, cells = tmp_path / "store.db", tmp_path / "receipts", ["chat-lab", "summary-lab"]
    store = SqliteStore(path)
    for cell in cells:
        store.start(rollout(CellId(cell)), ())
    store.close()
    kill_at_random(path, receipts, kills, cells, seed=kills)
    assert check(path, receipts, cells) >= kills * 3


def test_two_processes_never_hold_one_lease(tmp_path: Path) -> None:
    path, rounds = tmp_path / "store.db", 150
    SqliteStore(path).close()
    with (
        started(RACER, str(path), str(tmp_path / "guard"), str(rounds)) as a,
        started(RACER, str(path), str(tmp_path / "guard"), str(rounds)) as b,
    ):
        for process in (a, b):
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        outs = []
        for process in (a, b):
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in (a, b):
            out, err = process.communicate(timeout=60)
            assert process.returncode == 0, err
            outs.append([int(t) for t in out.split()])
    assert sorted(outs[0] + outs[1]) == list(range(1, 2 * rounds + 1)), "a token was given twice or left out"
    for tokens in outs:
        assert tokens == sorted(tokens)


def test_processes_may_make_the_store_at_the_same_moment(tmp_path: Path) -> None:
    path = tmp_path / "w" / "store.db"
    code = (
        "import sys\nfrom fleetctl.adapters.store.sqlite import SqliteStore\nfrom tests.fakes.rollouts import event\n"
        "print('ready', flush=True)\nsys.stdin.readline()\nSqliteStore(sys.argv[1]).append([event()])\n"
    )
    with contextlib.ExitStack() as stack:
        makers = [stack.enter_context(started(code, str(path))) for _ in range(4)]
        for process in makers:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in makers:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in makers:
            _, err = process.communicate(timeout=180)
            assert process.returncode == 0, err
    store = SqliteStore(path, create=False)
    assert [e.seq for e in store.events(CellId("chat-lab"), 0)] == [1, 2, 3, 4]
    assert store.verify() == []
    store.close()


def test_killed_holder_is_followed_after_its_lease(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    code = (
        "import sys, time\nfrom datetime import timedelta\nfrom fleetctl.adapters.store.sqlite import SqliteStore\n"
        "print(SqliteStore(sys.argv[1]).acquire('fleet', 'gone', timedelta(seconds=1)).token, flush=True)\ntime.sleep(60)\n"
    )
    with started(code, str(path)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        process.kill()
    held = store.acquire("fleet", "next", timedelta(seconds=5))
    assert type(held).__name__ == "Held"
    deadline = time.monotonic() + 10
    while type(held).__name__ == "Held" and time.monotonic() < deadline:
        time.sleep(0.02)
        held = store.acquire("fleet", "next", timedelta(seconds=5))
    assert getattr(held, "token", None) == 2
    store.close()
