"""Batch work with real consumers that are killed at random; used by the lab's tests and by the bench of traffic."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fleetctl.adapters.routers.work.board import WorkSplit
from fleetctl.adapters.routers.work.ledger import Ledger
from fleetctl.domain.ids import CellId, PoolId, Token
from fleetctl.domain.split import Applied, Split
from tests.lab.haproxy_lab import until

ROOT = Path(__file__).resolve().parents[2]
CELL = CellId("nightly")
CONSUMER = """
import sys, time
from pathlib import Path
from fleetctl.adapters.routers.work.ledger import Ledger
from fleetctl.domain.ids import CellId
ledger = Ledger(Path(sys.argv[1]), log=Path(sys.argv[2]), hold_s=1.5, most_tries=1000)
while True:
    job = ledger.take(CellId("nightly"), sys.argv[3], sys.argv[4])
    if job is None:
        time.sleep(0.02)
        continue
    time.sleep(0.004)
    with open(sys.argv[5], "a") as done:
        if ledger.finish(job, ok=True):
            done.write(job.id + "\\n")
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    """What became of the jobs: lost, told twice that they count, begun on the target after the way home."""

    jobs: int
    lost: int
    double: int
    late: int


def kills(folder: Path, jobs: int, rounds: int, seed: int) -> Killed:
    """Let four consumers work and kill one at random `rounds` times; the target's share is half, then 0."""
    rng = random.Random(seed)
    path, log = folder / "work.db", folder / "log" / "work-1.log"
    ledger = Ledger(path, log=log, hold_s=1.5, most_tries=1000)
    ledger.add_cell(CELL)
    split = WorkSplit("nightly", ledger, sources={CELL: PoolId("nvidia")})
    token = Token(0)

    def share(bp: int) -> None:
        nonlocal token
        token = Token(token + 1)
        assert isinstance(split.fence(CELL, token), Split)
        lease = datetime.now(UTC) + timedelta(minutes=3)
        assert isinstance(split.set(Split(cell=CELL, target_bp=bp, cap_bp=10_000, token=token, lease_until=lease)), Applied)

    def start(n: int) -> subprocess.Popen[bytes]:
        arm = "canary" if n % 2 else "baseline"
        argv = [sys.executable, "-c", CONSUMER, str(path), str(log), arm, f"w{n}-{time.monotonic_ns()}", str(folder / f"done-{n}.txt")]
        return subprocess.Popen(argv, cwd=ROOT, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"})

    for n in range(jobs):
        ledger.put(CELL, f"job-{n}", b"{}")
    share(5_000)
    workers = [start(n) for n in range(4)]
    try:
        for _ in range(rounds):
            time.sleep(rng.uniform(0.1, 0.4))
            n = rng.randrange(4)
            workers[n].send_signal(signal.SIGKILL)
            workers[n].wait()
            workers[n] = start(n)
        share(0)
        home = datetime.now(UTC)
        until(lambda: ledger.counts(CELL)["good"] == jobs, "every job has ended", 60.0)
        late = ledger.taken(CELL, home + timedelta(milliseconds=1)).canary
    finally:
        for worker in workers:
            with suppress(ProcessLookupError):
                worker.kill()
            worker.wait()
    ledger.tell()
    counts = ledger.counts(CELL)
    told = [job for n in range(4) if (folder / f"done-{n}.txt").exists() for job in (folder / f"done-{n}.txt").read_text().split()]
    told_of = log.read_bytes().count(b"\n")
    lost = max(jobs - counts["good"], jobs - told_of)
    return Killed(jobs=jobs, lost=lost, double=len(told) - len(set(told)), late=late)
