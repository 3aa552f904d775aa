"""Contract of ports.traffic.EvidenceSource, over the fake, over HAProxy's log and over a recording (synthetic files)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from fleetctl.adapters.recording.evidence import RecordedEvidence
from fleetctl.adapters.routers.evidence import RouterLogEvidence
from fleetctl.domain.evidence import LADDER, Arm, Cursor, ladder_key
from fleetctl.domain.ids import CellId
from fleetctl.domain.records import Attempt
from fleetctl.errors import EvidenceUnavailable
from fleetctl.formats.recording import to_line
from fleetctl.ports.traffic import EvidenceSource
from tests.fakes.evidence import FakeEvidence, Served

CHAT, OTHER = CellId("chat"), CellId("summary")
START = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass
class World:
    """A source under test, its clock, and the traffic that it should see."""

    source: EvidenceSource
    again: Callable[[], EvidenceSource]
    write: Callable[[Served], None]
    break_: Callable[[], None]
    clock: list[datetime] = field(default_factory=lambda: [START])

    def serve(self, n: int, arm: Arm, *, cell: CellId = CHAT, seed: int = 1, errors: float = 0.0, factor: float = 1.0) -> None:
        """Let n requests start, 50 ms apart, and the clock move on with them."""
        rng = np.random.default_rng(seed)
        for latency, luck in zip(rng.lognormal(4.0, 0.25, n), rng.random(n), strict=True):
            failed = bool(luck < errors)
            took = None if failed else float(round(latency * factor))
            self.write(
                Served(cell=cell, arm=arm, started=self.clock[0], latency_ms=took, failed=failed, prompt_tokens=40, cached_tokens=10)
            )
            self.clock[0] += timedelta(milliseconds=50)


def _fake(tmp_path: Path) -> World:
    clock = [START]
    fake = FakeEvidence(lambda: clock[0])
    return World(fake, lambda: fake, fake.add, lambda: setattr(fake, "down", True), clock)


def line(a: Served) -> str:
    """Return HAProxy's line for an attempt."""
    server = "c1" if a.arm == "canary" else "b1"
    row = {
        "c": a.cell,
        "a": a.arm,
        "srv": server,
        "st": 503 if a.failed else 200,
        "ts": "--",
        "t0": round(a.started.timestamp() * 1000),
        "ta": 5 if a.latency_ms is None else int(a.latency_ms),
        "tr": 3,
        "b": 800,
        "pt": -1 if a.failed else a.prompt_tokens,
        "ct": -1 if a.failed else 16,
        "cc": -1 if a.failed else a.cached_tokens,
        "bp": 5000,
        "p": "-",
        "rc": "0",
    }
    return json.dumps(row, separators=(",", ":"))


def _haproxy(tmp_path: Path) -> World:
    folder = tmp_path / "log"
    folder.mkdir()
    clock = [START]

    def write(a: Served) -> None:
        with (folder / "haproxy-1.log").open("a") as log:
            log.write(line(a) + "\n")

    def make() -> RouterLogEvidence:
        return RouterLogEvidence(folder, now=lambda: clock[0])

    return World(make(), make, write, lambda: shutil.rmtree(folder), clock)


def _recorded(tmp_path: Path) -> World:
    folder = tmp_path / "recordings"
    folder.mkdir()
    clock = [START]

    def write(a: Served) -> None:
        ms = round(a.started.timestamp() * 1000)
        took = 5 if a.latency_ms is None else int(a.latency_ms)
        attempt = Attempt(
            cell=a.cell,
            arm=a.arm,
            started_ms=ms,
            ended_ms=ms + took,
            failed=a.failed,
            latency_ms=None if a.failed else a.latency_ms,
            prompt_tokens=-1 if a.failed else a.prompt_tokens,
            cached_tokens=-1 if a.failed else a.cached_tokens,
        )
        with (folder / f"{a.cell}-20260101.jsonl").open("a") as f:
            f.write(to_line(attempt) + "\n")

    def make() -> RecordedEvidence:
        return RecordedEvidence(folder, now=lambda: clock[0])

    return World(make(), make, write, lambda: shutil.rmtree(folder), clock)


@pytest.fixture(params=[_fake, _haproxy, _recorded], ids=["fake", "haproxy-log", "recording"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    made: World = request.param(tmp_path)
    return made


def frozen_cursor(world: World) -> Cursor:
    world.serve(400, "baseline", seed=7)
    thresholds = world.source.freeze(CHAT, (1.1, 1.25), 400)
    assert thresholds is not None
    return replace(world.source.mark(CHAT), thresholds=thresholds)


def test_a_cursor_starts_now_without_thresholds(world: World) -> None:
    world.serve(5, "baseline")
    cursor = world.source.mark(CHAT)
    assert (cursor.since, cursor.thresholds) == (world.clock[0], None)


def test_only_requests_started_since_the_cursor_count(world: World) -> None:
    world.serve(30, "baseline")
    cursor = world.source.mark(CHAT)
    world.serve(10, "baseline")
    world.serve(4, "canary")
    e = world.source.read(CHAT, cursor)
    assert (e.arms["baseline"].attempts, e.arms["canary"].attempts) == (10, 4)
    later = replace(cursor, since=cursor.since + timedelta(milliseconds=50 * 5))
    assert world.source.read(CHAT, later).arms["baseline"].attempts == 5


def test_cells_are_kept_apart(world: World) -> None:
    cursor, other = world.source.mark(CHAT), world.source.mark(OTHER)
    world.serve(12, "canary", cell=OTHER, errors=1.0)
    world.serve(3, "canary")
    assert world.source.read(CHAT, cursor).arms["canary"].errors == 0
    assert world.source.read(OTHER, other).arms["canary"].errors == 12


def test_freezing_needs_enough_requests(world: World) -> None:
    world.serve(99, "baseline")
    assert world.source.freeze(CHAT, (1.1,), 100) is None
    world.serve(1, "baseline")
    frozen = world.source.freeze(CHAT, (1.1,), 100)
    assert frozen is not None
    assert frozen.baseline_n == 100
    assert {1.0, 1.1, 1.5} <= set(frozen.scales)
    assert all(len(row) == len(LADDER) and list(row) == sorted(row) for row in frozen.latency_ms)
    assert 0.15 < frozen.log_sd < 0.35


def test_the_ladder_counts_requests_slower_than_scale_times_the_quantile(world: World) -> None:
    cursor = frozen_cursor(world)
    world.serve(500, "baseline", seed=8)
    world.serve(500, "canary", seed=9, factor=2.0)
    e = world.source.read(CHAT, cursor)
    plain, wide = e.arms["baseline"].ladders[ladder_key(1.0)], e.arms["canary"].ladders[ladder_key(1.1)]
    assert e.arms["baseline"].timed == 500
    for rung, slower in zip(LADDER, plain, strict=True):
        assert slower / 500 == pytest.approx(1 - rung, abs=0.1)
    assert wide[0] > 480
    assert all(a >= b for a, b in zip(e.arms["canary"].ladders[ladder_key(1.0)], wide, strict=True))
    assert e.arms["canary"].quantiles_ms[0] > 1.7 * e.arms["baseline"].quantiles_ms[0]


def test_errors_are_not_timed_and_are_grouped_by_second(world: World) -> None:
    cursor = frozen_cursor(world)
    world.serve(200, "canary", errors=0.2)
    world.clock[0] += timedelta(seconds=1)  # whoever may still be running is slower than every bound by then
    canary = world.source.read(CHAT, cursor).arms["canary"]
    assert canary.timed + canary.errors == canary.attempts == 200
    assert canary.clusters.errors == canary.errors > 20
    assert canary.clusters.clusters <= 10
    assert canary.clusters.sum_sq >= canary.errors**2 / canary.clusters.clusters


def test_outcomes_are_those_of_the_canary_in_order(world: World) -> None:
    cursor = world.source.mark(CHAT)
    world.serve(3, "canary")
    world.serve(4, "baseline", errors=1.0)
    world.serve(2, "canary", errors=1.0)
    e = world.source.read(CHAT, cursor)
    assert e.canary_outcomes == "...xx"
    assert (e.baseline_recent, e.baseline_recent_errors) == (4, 4)
    assert e.served_bp == round(10_000 * 5 / 9)


def test_reading_in_steps_and_from_scratch_give_the_same_counts(world: World) -> None:
    cursor = frozen_cursor(world)
    for seed in range(5):
        world.serve(37, "canary", seed=seed, errors=0.05)
        world.serve(41, "baseline", seed=seed + 50, errors=0.05)
        stepped = world.source.read(CHAT, cursor)
        assert stepped == world.again().read(CHAT, cursor)
    last = world.source.read(CHAT, cursor)
    assert last.arms["canary"].attempts == 5 * 37
    assert last == world.source.read(CHAT, cursor)


def test_states_tell_silence_from_absence(world: World) -> None:
    cursor = world.source.mark(CHAT)
    world.serve(40, "baseline")
    world.serve(40, "canary")
    e = world.source.read(CHAT, cursor)
    assert e.state == {"baseline": "ok", "canary": "ok"}
    empty = world.source.read(OTHER, cursor)
    assert empty.state == {"baseline": "empty", "canary": "empty"}
    assert empty.served_bp is None
    world.clock[0] += timedelta(seconds=60)
    assert world.source.read(CHAT, cursor).state == {"baseline": "stale", "canary": "stale"}


def test_cached_tokens_are_summed_over_prompt_tokens(world: World) -> None:
    cursor = world.source.mark(CHAT)
    world.serve(10, "canary")
    canary = world.source.read(CHAT, cursor).arms["canary"]
    assert (canary.cached_tokens, canary.prompt_tokens) == (100, 400)


def test_a_source_that_cannot_be_read_says_so(world: World) -> None:
    cursor = world.source.mark(CHAT)
    world.break_()
    with pytest.raises(EvidenceUnavailable) as error:
        world.source.read(CHAT, cursor)
    assert error.value.code == "evidence.down"
    assert error.value.hint


def test_it_describes_what_there_is_per_arm(world: World) -> None:
    world.serve(3, "baseline")
    rows = {s.arm: s.present for s in world.source.describe(CHAT) if s.name == "attempts"}
    assert rows == {"baseline": True, "canary": False}
