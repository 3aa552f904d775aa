"""A log that is cut, replaced or removed loses a part of the evidence once: that is told, and reading and judging go on after it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fleetctl.adapters.recording.evidence import RecordedEvidence
from fleetctl.adapters.routers.evidence import RouterLogEvidence
from fleetctl.analysis.judge import fresh, judge
from fleetctl.analysis.looks import replay, seen_of
from fleetctl.analysis.memory import unpack
from fleetctl.domain.evidence import Arm, Cursor, Evidence, JudgeState, LookRow
from fleetctl.domain.ids import CellId
from fleetctl.domain.records import Attempt
from fleetctl.domain.workload import Guardrail, GuardrailSpec
from fleetctl.formats.recording import to_line
from fleetctl.ports.traffic import EvidenceSource
from tests.unit.test_haproxy_log_rules import row

CELL = CellId("chat")
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
T0 = round(NOW.timestamp() * 1000)
ERRORS = GuardrailSpec(name=Guardrail("errors"), margin=0.02, fail_margin=0.0)


def routed(arm: Arm, at_ms: int, *, failed: bool = False) -> bytes:
    return row(a=arm, srv="c1" if arm == "canary" else "b1", t0=at_ms, st=500 if failed else 200)


def recorded(arm: Arm, at_ms: int, *, failed: bool = False) -> bytes:
    took = None if failed else 50.0
    return to_line(Attempt(cell=CELL, arm=arm, started_ms=at_ms, ended_ms=at_ms + 50, failed=failed, latency_ms=took)).encode()


class World:
    """One file that grows, and sources over it."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.seconds, self._line = 0, routed if kind == "router" else recorded
        self.path = folder / ("haproxy-1.log" if kind == "router" else f"{CELL}-20260101.jsonl")
        self._make: Callable[..., EvidenceSource] = RouterLogEvidence if kind == "router" else RecordedEvidence
        self.serve(20, 20)
        self.source = self.again()
        self.cursor = replace(self.source.mark(CELL), since=NOW)

    def again(self) -> EvidenceSource:
        return self._make(self.path.parent, now=lambda: NOW + timedelta(seconds=self.seconds))

    def serve(self, baseline: int, canary: int, *, failed: int = 0) -> None:
        self.seconds += 1
        at = T0 + 1_000 * self.seconds
        with self.path.open("ab") as log:
            for i in range(max(baseline, canary)):
                if i < baseline:
                    log.write(self._line("baseline", at) + b"\n")
                if i < canary:
                    log.write(self._line("canary", at, failed=i < failed) + b"\n")

    def cut(self) -> None:
        os.truncate(self.path, 0)

    def replace(self) -> None:
        self.path.rename(self.path.with_suffix(".old"))
        self.path.touch()

    def remove(self) -> None:
        self.path.unlink()


def counted(e: Evidence) -> tuple[int, int, str]:
    return e.arms["baseline"].attempts, e.arms["canary"].attempts, e.state["canary"]


@pytest.mark.parametrize("kind", ["router", "recording"])
@pytest.mark.parametrize("how", ["cut", "replace", "remove"])
def test_a_loss_is_told_once_and_reading_goes_on_in_the_new_file(kind: str, how: str, tmp_path: Path) -> None:
    w = World(kind, tmp_path)
    w.serve(30, 30)
    assert counted(w.source.read(CELL, w.cursor)) == (30, 30, "ok")
    getattr(w, how)()
    w.serve(5, 5)
    e = w.source.read(CELL, w.cursor)
    assert counted(e) == (35, 35, "reset")
    assert "cut or removed" in e.detail
    for total in (40, 45):
        w.serve(5, 5)
        assert counted(w.source.read(CELL, w.cursor)) == (total, total, "ok")
    new = w.again()
    assert counted(new.read(CELL, w.cursor)) == (15, 15, "reset"), "a new process has what is left"
    w.serve(5, 5)
    assert counted(new.read(CELL, w.cursor)) == (20, 20, "ok")


def test_a_log_that_was_cut_and_has_grown_beyond_where_it_was_read_is_found_too(tmp_path: Path) -> None:
    w = World("router", tmp_path)
    w.serve(3, 3)
    w.source.read(CELL, w.cursor)
    w.cut()
    w.path.write_bytes(b'{"other": "line of another length"}\n')
    w.serve(50, 50)
    assert counted(w.source.read(CELL, w.cursor)) == (53, 53, "reset")


class Judged:
    """A judge that keeps its looks as the store does."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor, self.state = cursor, fresh(2)
        self.rows: list[LookRow] = []
        self.states: list[JudgeState] = []

    def look(self, source: EvidenceSource, **changes: object) -> str:
        e = replace(source.read(CELL, self.cursor), **changes)  # type: ignore[arg-type]
        seen = seen_of(self.state, e, 0, (ERRORS,), compared=True)
        self.state, verdicts = judge(self.state, e, (ERRORS,))
        self.states.append(self.state)
        self.rows.append(
            LookRow(cell=CELL, at=e.at, phase="canary", target_bp=5_000, served_bp=None, arms=e.arms, verdicts=verdicts, why="", seen=seen)
        )
        return verdicts[0].kind

    def used(self) -> tuple[int, int]:
        memory = unpack(self.state)
        return memory.arm("canary").attempts, memory.breaker.total


@pytest.mark.parametrize("kind", ["router", "recording"])
def test_the_judge_goes_on_after_a_loss_in_this_process_and_in_a_new_one_and_uses_nothing_twice(kind: str, tmp_path: Path) -> None:
    w = World(kind, tmp_path)
    judged = Judged(w.cursor)
    w.serve(30, 30)
    assert judged.look(w.source) == "INCONCLUSIVE"
    w.cut()
    w.serve(20, 20)
    assert judged.look(w.source) == "PROVIDER_ERROR"
    w.serve(20, 20)
    assert judged.look(w.source) == "INCONCLUSIVE"
    assert judged.used() == (70, 70), "what was read after the loss counts"
    new = w.again()
    assert judged.look(new) == "PROVIDER_ERROR"
    w.serve(20, 20)
    assert judged.look(new) == "INCONCLUSIVE"
    assert judged.used() == (60, 90), "counts of this source, and 20 new ones"
    for _ in range(12):
        w.serve(20, 20, failed=12)
        judged.look(new)
    assert judged.look(new) == "FAIL", "a regression after the loss is found"
    found = list(replay(judged.rows))
    assert [r.state for r in found] == judged.states
    assert all(r.agrees for r in found)


@pytest.mark.parametrize("how", ["masked", "dropped"])
def test_a_loss_that_no_look_was_told_of_is_taken_in_by_the_next_one(how: str, tmp_path: Path) -> None:
    w = World("router", tmp_path)
    judged = Judged(w.cursor)
    w.serve(30, 30)
    judged.look(w.source)
    w.cut()
    new = w.again()
    w.serve(5, 5)
    if how == "masked":
        assert judged.look(new, state={"baseline": "down", "canary": "reset"}) == "PROVIDER_ERROR"
    else:
        new.read(CELL, w.cursor)
    kinds = []
    for _ in range(3):
        w.serve(5, 5)
        kinds.append(judged.look(new))
    assert "INCONCLUSIVE" in kinds[:2]
    assert kinds[2] == "INCONCLUSIVE"
    found = list(replay(judged.rows))
    assert [r.state for r in found] == judged.states
    assert all(r.agrees for r in found)


def test_customers_counts_that_went_back_beside_a_replay_are_used_only_after_a_gap_that_was_told(tmp_path: Path) -> None:
    w = World("router", tmp_path)
    w.serve(30, 30)
    e = w.source.read(CELL, w.cursor)
    at = NOW + timedelta(seconds=30)
    state, _ = judge(fresh(2), replace(e, at=at, beside=e), (ERRORS,))
    fewer = replace(e, arms={arm: replace(c, attempts=3) for arm, c in e.arms.items()})
    state, verdicts = judge(state, replace(e, at=at, beside=fewer), (ERRORS,))
    assert (verdicts[0].kind, verdicts[0].detail) == ("PROVIDER_ERROR", "counts of baseline and canary went back")
    state, _ = judge(state, replace(e, at=at, beside=fewer, cuts=1), (ERRORS,))
    assert judge(state, replace(e, at=at, beside=fewer, cuts=1), (ERRORS,))[1][0].kind == "INCONCLUSIVE"
