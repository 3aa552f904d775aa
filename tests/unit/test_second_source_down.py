"""A second source that is at fault: nothing is compared, yet the breaker goes on from the first one, and a dead target keeps nobody."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from fleetctl.analysis.judge import fresh, judge
from fleetctl.analysis.looks import replay, seen_of
from fleetctl.domain.canonical import canonical, decode
from fleetctl.domain.evidence import ARMS, Arm, Counts, Cursor, Evidence, JudgeState, LookRow, Series, SignalState, Thresholds
from fleetctl.domain.ids import CellId
from fleetctl.domain.workload import Guardrail, GuardrailSpec
from fleetctl.errors import ConfigInvalid, EvidenceUnavailable
from fleetctl.ports.traffic import EvidenceSource
from fleetctl.usecases.evidence import WORST, Combined, Replayed
from fleetctl.usecases.tick import TickPorts
from tests.rollouts import CELL, T0, spec
from tests.simulator import Simulation

BROKEN: tuple[SignalState | type[Exception], ...] = (
    *(s for s in WORST if s not in ("ok", "empty", "stale")),
    EvidenceUnavailable,
    ConfigInvalid,
)
ERRORS = (GuardrailSpec(name=Guardrail("errors"), margin=0.01, fail_margin=0.005),)


class Pages:
    """A second source: it counts nothing by itself, and is as well as the test wants."""

    def __init__(self, well: SignalState | type[Exception] = "ok") -> None:
        self.well: SignalState | type[Exception] = well

    def mark(self, c: CellId) -> Cursor:
        return Cursor(position="", since=T0 - timedelta(days=1))

    def freeze(self, c: CellId, scales: tuple[float, ...], least: int) -> Thresholds | None:
        return Thresholds(class_edges=(), latency_ms=(), scales=scales, baseline_n=9, baseline_error_ratio=0.0, log_sd=0.0)

    def read(self, c: CellId, since: Cursor) -> Evidence:
        if not isinstance(self.well, str):
            raise self.well("evidence.down", "pages cannot be read")
        arms = {arm: Counts() for arm in ARMS}
        return Evidence(cell=c, at=T0, arms=arms, state={"baseline": "ok", "canary": self.well}, cursor=since)

    def describe(self, c: CellId) -> tuple[Series, ...]:
        return ()


class Log:
    """The first source: what the test says that it has counted."""

    def __init__(self) -> None:
        self.outcomes, self.baseline = "", Counts()
        self.state: dict[Arm, SignalState] = {"baseline": "ok", "canary": "ok"}

    def mark(self, c: CellId) -> Cursor:
        return Cursor(position="", since=T0)

    def freeze(self, c: CellId, scales: tuple[float, ...], least: int) -> Thresholds | None:
        return None

    def read(self, c: CellId, since: Cursor) -> Evidence:
        canary = Counts(attempts=len(self.outcomes), errors=self.outcomes.count("x"))
        return Evidence(
            cell=c,
            at=T0,
            arms={"baseline": self.baseline, "canary": canary},
            state=self.state,
            cursor=since,
            canary_outcomes=self.outcomes,
        )

    def describe(self, c: CellId) -> tuple[Series, ...]:
        return ()


class TwoSources(Simulation):
    """Cells whose evidence is the log and pages."""

    def __init__(self, cells: tuple[CellId, ...] = (CELL,), **more: object) -> None:
        super().__init__(cells, **more)  # type: ignore[arg-type]
        self.pages = Pages()
        self.both = Combined({"log": self.evidence, "pages": self.pages})

    def ports(self) -> TickPorts:
        return replace(super().ports(), evidence=lambda _: self.both)


def look(source: EvidenceSource, state: JudgeState, cursor: Cursor) -> tuple[JudgeState, LookRow]:
    """Judge one look; returns the state after it and the row that is stored."""
    e = source.read(CELL, cursor)
    after, verdicts = judge(state, e, ERRORS)
    seen = seen_of(state, e, 0, ERRORS, compared=True)
    row = LookRow(cell=CELL, at=e.at, phase="canary", target_bp=500, served_bp=None, arms=e.arms, verdicts=verdicts, why="", seen=seen)
    return after, decode(LookRow, canonical(row))


@pytest.mark.parametrize("well", BROKEN)
def test_failures_that_the_first_source_shows_trip_the_breaker(well: SignalState | type[Exception]) -> None:
    log, pages, state, failed = Log(), Pages(), fresh(1), 0
    source, cursor = Combined({"log": log, "pages": pages}), Cursor(position="", since=T0)
    rows, kinds = [], dict[str, str]()
    for i in range(290, 330):
        failed += i >= 300
        log.outcomes = "." * min(i, 300) + "x" * (i - 299)
        log.baseline = Counts(attempts=20 * i, errors=i // 50)
        pages.well = well if i >= 300 else "ok"
        state, row = look(source, state, cursor)
        rows.append(row)
        kinds = {v.guardrail: v.kind for v in row.verdicts}
        if kinds["all"] == "FAIL":
            break
    assert (kinds["all"], kinds["breaker"]) == ("FAIL", "FAIL")
    assert failed <= 10
    again = list(replay(rows))
    assert all(r.agrees for r in again), "the log of looks tells it too"
    assert again[-1].state == state


@pytest.mark.parametrize("well", BROKEN)
def test_nothing_else_is_used_meanwhile_and_nothing_is_lost_by_it(well: SignalState | type[Exception]) -> None:
    log, pages, state = Log(), Pages(well), fresh(1)
    source, cursor = Combined({"log": log, "pages": pages}), Cursor(position="", since=T0)
    for i in range(1, 40):
        log.outcomes += "." * 97 + "xxx"  # far worse than its baseline, and not so that the breaker would trip
        log.baseline = Counts(attempts=2_000 * i)
        state, row = look(source, state, cursor)
        assert {v.kind for v in row.verdicts} == {"PROVIDER_ERROR"}
        assert row.verdicts[0].e_value == 1.0
    pages.well = "ok"
    state, row = look(source, state, cursor)
    assert row.verdicts[0].kind == "FAIL", "what went by is used once it can be"


@pytest.mark.parametrize("first", ["nan", "reset", "down", "mislabelled", "same_series"])
def test_a_first_source_that_cannot_be_right_feeds_no_breaker(first: SignalState) -> None:
    log, state = Log(), fresh(1)
    log.state = {"baseline": "ok", "canary": first}
    source = Combined({"log": log, "pages": Pages("down")})
    for i in range(1, 200):
        log.outcomes += "x"
        log.baseline = Counts(attempts=20 * i)
        state, row = look(source, state, Cursor(position="", since=T0))
        assert {v.kind for v in row.verdicts} == {"PROVIDER_ERROR"}


def test_counts_of_the_first_source_that_went_back_feed_no_breaker() -> None:
    log, state = Log(), fresh(1)
    source, cursor = Combined({"log": log, "pages": Pages("down")}), Cursor(position="", since=T0)
    log.outcomes, log.baseline = "." * 500, Counts(attempts=5_000)
    state, _ = look(source, state, cursor)
    log.outcomes = "x" * 499
    state, row = look(source, state, cursor)
    assert {v.kind for v in row.verdicts} == {"PROVIDER_ERROR"}


@pytest.mark.parametrize("well", BROKEN)
def test_customers_own_failures_beside_a_replay_that_is_at_fault_trip_the_breaker(well: SignalState | type[Exception]) -> None:
    log, state = Log(), fresh(1)
    rows: list[LookRow] = []
    source, cursor = Replayed("replay", Pages(well), log), Cursor(position="", since=T0)
    for i in range(1, 40):
        log.outcomes += "x"
        log.baseline = Counts(attempts=20 * i)
        state, row = look(source, state, cursor)
        rows.append(row)
        if row.verdicts[0].kind == "FAIL":
            break
    assert rows[-1].verdicts[0].kind == "FAIL"
    assert len(log.outcomes) <= 10
    assert [r.state for r in replay(rows)][-1] == state


@pytest.mark.parametrize("well", ["down", EvidenceUnavailable])
@pytest.mark.parametrize("cells", [1, 3])
def test_a_dead_target_is_left_at_once_however_many_cells_share_it(cells: int, well: SignalState | type[Exception]) -> None:
    s = TwoSources(tuple(CellId(f"cell-{i}") for i in range(cells)), rate_per_s=40)
    s.begin()
    s.run(2_000, lambda: all(s.rollout(c).phase == "canary" and s.rollout(c).settled_at is not None for c in s.cells))
    s.run(int(spec().warm_up.total_seconds()) + 5)
    assert {s.rollout(c).phase for c in s.cells} == {"canary"}
    s.failing, s.pages.well = 1.0, well
    s.run(30, lambda: all(s.rollout(c).ended for c in s.cells))
    assert {(s.rollout(c).ended, s.bp(c)) for c in s.cells} == {("rolled_back", 0)}
    assert {r.guardrail for c in s.cells if (r := s.rollout(c).latched) is not None} == {"breaker"}
