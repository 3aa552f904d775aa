"""Batch work with real consumers that are killed at random; used by the lab's tests and by the bench of traffic."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fleetctl.adapters.routers.work.board import WorkSplit
from fleetctl.adapters.routers.work.ledger import Ledger
from fleetctl.adapters.routers.work.sqs import LOOK_S, SqsBoard
from fleetctl.domain.ids import CellId, PoolId, Token
from fleetctl.domain.split import Applied, Split
from tests.fakes.alb_plane import client
from tests.lab.haproxy_lab import until

ROOT = Path(__file__).resolve().parents[2]
MEMORY = Path("/dev/shm")
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
    """Let four consumers work and kill one at random `rounds` times; the target's share is half, then 0.

    The files lie in memory where there is such a place: a killed process loses nothing that it has written, on a disk or not.
    """
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else folder) as fast:
        return _kills(Path(fast), jobs, rounds, seed)


def _kills(folder: Path, jobs: int, rounds: int, seed: int) -> Killed:
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
        ended = -1
        while (now := ledger.counts(CELL)["good"]) < jobs:
            assert now > ended, f"no job has ended for 60 s: {now} of {jobs}"
            ended = now
            with suppress(AssertionError):  # however slow the machine is, as long as some end
                until(lambda ended=ended: ledger.counts(CELL)["good"] > min(ended + 200, jobs - 1), "more have ended", 60.0)  # type: ignore[misc]
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


SQS_CONSUMER = """
import sys, time
from pathlib import Path
from fleetctl.adapters.routers.work.ledger import Ledger
from fleetctl.adapters.routers.work.sqs import SqsBoard, SqsConsumer
from fleetctl.domain.ids import CellId
from tests.fakes.alb_plane import client
url, queue, results, arm, n, done = sys.argv[1:]
cell, sqs = CellId("nightly"), client(url, "sqs")
board = SqsBoard(lambda: sqs, {cell: queue}, lambda *_: None)
ledger = Ledger(Path(results), log=Path(results).parent / "log" / "work-1.log")
consumer = SqsConsumer(board, sqs, queue, cell, arm, index=int(n) // 2, of=2, results=ledger, hold_s=3, most_tries=1000)
while True:
    message = consumer.take()
    if message is None:
        time.sleep(0.02)
        continue
    time.sleep(0.01)
    with open(done, "a") as out:
        if consumer.done(message):
            out.write(message.id + "\\n")
"""


def sqs_kills(folder: Path, url: str, jobs: int, rounds: int, seed: int) -> Killed:
    """Do the same at an SQS queue of moto, an emulated AWS, whose messages come back 3 s after their consumer took them."""
    rng, sqs = random.Random(seed), client(url, "sqs")
    made = sqs.create_queue(QueueName=f"nightly-{seed}")
    queue = made["QueueUrl"].replace("localhost", "127.0.0.1")
    results = Ledger(folder / "results.db", log=folder / "log" / "work-1.log")
    split = WorkSplit(
        "nightly", SqsBoard(lambda: sqs, {CELL: queue}, lambda c, since: results.taken(c, since)), sources={CELL: PoolId("nvidia")}
    )
    token = Token(1)
    assert isinstance(split.fence(CELL, token), Split)
    lease = datetime.now(UTC) + timedelta(minutes=3)

    def share(bp: int) -> None:
        assert isinstance(split.set(Split(cell=CELL, target_bp=bp, cap_bp=10_000, token=token, lease_until=lease)), Applied)

    def start(n: int) -> subprocess.Popen[bytes]:
        arm = "canary" if n % 2 else "baseline"
        argv = [sys.executable, "-c", SQS_CONSUMER, url, queue, str(folder / "results.db"), arm, str(n), str(folder / f"done-{n}.txt")]
        return subprocess.Popen(argv, cwd=ROOT, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"})

    for n in range(jobs):
        sqs.send_message(QueueUrl=queue, MessageBody=str(n))
    share(5_000)
    workers = [start(n) for n in range(4)]
    try:
        for _ in range(rounds):
            ended = results.counts(CELL)["good"]
            with suppress(AssertionError):
                until(lambda ended=ended: results.counts(CELL)["good"] > min(ended + rng.randrange(4), jobs - 1), "some end", 20.0)  # type: ignore[misc]
            n = rng.randrange(4)
            workers[n].send_signal(signal.SIGKILL)
            workers[n].wait()
            workers[n] = start(n)
        share(0)
        home = datetime.now(UTC)
        until(lambda: results.counts(CELL)["good"] == jobs, "every job has ended", 300.0)
    finally:
        for worker in workers:
            with suppress(ProcessLookupError):
                worker.kill()
            worker.wait()
    results.tell()
    lines = [json.loads(line) for line in (folder / "log" / "work-1.log").read_text().splitlines()]
    late = sum(row["a"] == "canary" and row["t0"] / 1_000 > home.timestamp() + LOOK_S + 1 for row in lines)
    told = [job for n in range(4) if (folder / f"done-{n}.txt").exists() for job in (folder / f"done-{n}.txt").read_text().split()]
    lost = max(jobs - results.counts(CELL)["good"], jobs - len(lines))
    return Killed(jobs=jobs, lost=lost, double=len(told) - len(set(told)), late=late)
