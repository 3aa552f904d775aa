"""The first wave of a careful team: a batch cell goes through all its phases, judged by what came of its jobs, and home where they fail.

The queue is a real file that splits itself; ticks, judge and store are the shipped ones, on a made-up clock."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from fleetctl.adapters.routers.evidence import RouterLogEvidence
from fleetctl.adapters.routers.work.board import WorkSplit
from fleetctl.adapters.routers.work.ledger import Job, Ledger
from fleetctl.domain.evidence import Arm
from fleetctl.domain.ids import CellId
from fleetctl.domain.rollout import Order
from fleetctl.domain.split import Drained
from fleetctl.usecases.tick import TickPorts
from tests.lab.work_kills import MEMORY
from tests.rollouts import CELL, PERSON
from tests.simulator import SOURCE, TARGET, Simulation, tiny

ARMS: tuple[Arm, ...] = ("canary", "baseline")


class BatchWave(Simulation):
    """Jobs that come all the time, and consumers of both sides that take what the split lets them and finish it within half a second."""

    def __init__(self, folder: Path, *, failing: float = 0.0, dying: float = 0.0) -> None:
        super().__init__(of=tiny(), rate_per_s=20.0, failing=failing)
        self.dying = dying
        self.ledger = Ledger(folder / "work.db", log=folder / "log" / "work-1.log", hold_s=20.0, now=self.clock.now)
        self.ledger.add_cell(CELL)
        self.split = WorkSplit("nightly", self.ledger, sources={CELL: SOURCE})
        self.router = lambda _: self.split  # type: ignore[assignment,return-value]
        self.results_log = RouterLogEvidence(folder / "log", now=self.clock.now)
        self.n, self.done = 0, Counter[str]()
        (folder / "log").mkdir()

    def ports(self) -> TickPorts:
        return replace(super().ports(), evidence=lambda _: self.results_log)

    def bp(self, c: CellId = CELL) -> int:
        return self.split.read(c).target_bp

    def serve(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.5)):
            self._half_a_second()

    def _half_a_second(self) -> None:
        for _ in range(round(self.rate_per_s * 0.5)):
            self.n += 1
            self.ledger.put(CELL, f"job-{self.n}", b"{}")
        taken: list[Job] = []
        for arm in ARMS:
            while (job := self.ledger.take(CELL, arm, "w")) is not None:
                if not (arm == "canary" and self.random.random() < self.dying):  # else its consumer is gone
                    taken.append(job)
        ends = sorted((0.5 * self.random.random() ** 2, n) for n in range(len(taken)))
        self.random.shuffle(taken)
        now = 0.0
        for end_s, n in ends:
            self.clock.advance(timedelta(seconds=end_s - now))
            now, job = end_s, taken[n]
            ok = not (job.arm == "canary" and self.random.random() < self.failing)
            self.done[job.id] += self.ledger.finish(job, ok=ok)
        self.clock.advance(timedelta(seconds=0.5 - now))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else tmp_path) as fast:
        yield Path(fast)


def _steps(s: BatchWave) -> list[object]:
    return [e.data["to_bp"] for e in s.store.events(CELL, 0) if e.kind == "traffic.set"]


def test_a_batch_cell_goes_all_the_way_on_the_results_of_its_jobs_and_home_by_a_persons_word(folder: Path) -> None:
    s = BatchWave(folder)
    s.begin()
    s.run(600, lambda: bool(s.rollout().ended))
    assert (s.rollout().ended, s.bp()) == ("complete", 10_000), s.rollout()
    assert _steps(s) == [5_000, 9_500, 10_000]
    assert sum(e.kind == "rollout.step" and "PASS on" in e.text for e in s.store.events(CELL, 0)) == 3, "by evidence, none by time alone"
    s.store.order(CELL, Order(kind="fallback", actor=PERSON, at=s.clock.now()))
    s.look_now()
    s.run(60, lambda: s.rollout().ended == "fell_back")
    assert s.bp() == 0
    s.ledger.put(CELL, "one more", b"{}")
    assert s.ledger.take(CELL, "canary", "w") is None
    assert s.split.drain(CELL, TARGET, s.split.read(CELL).token) == Drained(open_streams=0)
    assert set(s.done.values()) == {1}
    assert len(s.done) == s.n, "no job is lost"


@pytest.mark.parametrize(("failing", "dying"), [(0.4, 0.0), (0.0, 0.4)])
def test_a_batch_cell_whose_jobs_fail_on_the_target_or_kill_its_consumers_goes_home_by_itself(
    folder: Path, failing: float, dying: float
) -> None:
    s = BatchWave(folder, failing=failing, dying=dying)
    s.begin()
    s.run(400, lambda: bool(s.rollout().ended))
    assert (s.rollout().ended, s.bp()) == ("rolled_back", 0), s.rollout()
    s.run(60)
    assert s.split.drain(CELL, TARGET, s.split.read(CELL).token) == Drained(open_streams=0), "what its consumers left is free again"
    assert max(s.done.values()) == 1
    counts = s.ledger.counts(CELL)
    assert counts["good"] + counts["bad"] + counts["dead"] + counts["taken"] + counts["waiting"] == s.n, counts
