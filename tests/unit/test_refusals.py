"""4xx answers: alike on both arms they are the clients' fault and no evidence; a target that refuses what the source answers fails."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from fleetctl.adapters.routers.log import parse
from fleetctl.analysis.judge import ONE_CLIENT, all_specs, fresh, judge
from fleetctl.analysis.tally import Tally
from fleetctl.domain.evidence import ARMS, Arm, Cursor, Evidence, Thresholds, Verdict
from fleetctl.domain.ids import CellId
from fleetctl.domain.records import Attempt
from fleetctl.domain.workload import REFUSALS, Guardrail, GuardrailSpec
from fleetctl.errors import ConfigInvalid
from fleetctl.formats.fleet_checks import _share_that_nobody_tells
from fleetctl.formats.fleet_file import parse_fleet
from fleetctl.formats.recording import from_line, to_line
from tests.unit.test_evidence_in_fleet_file import TEXT
from tests.unit.test_haproxy_log_rules import row

CELL = CellId("chat")
START = datetime(2026, 1, 1, 12, tzinfo=UTC)
T0 = round(START.timestamp() * 1000)
ERRORS = GuardrailSpec(name=Guardrail("errors"), margin=0.02, fail_margin=0.0)
FROZEN = Thresholds(class_edges=(), latency_ms=(), scales=(), baseline_n=1_000, baseline_error_ratio=0.005, log_sd=0.0)


def judged(
    share: dict[Arm, float],
    *,
    looks: int = 60,
    per_look: int = 50,
    tells: bool = True,
    seed: int = 3,
    sticky: bool = False,
    until: str = "FAIL PASS",
) -> tuple[Verdict, ...]:
    """Judge requests some of which are refused with 422, until there is one of these verdicts."""
    rng = np.random.default_rng(seed)
    cursor = Cursor(position="", since=START, thresholds=FROZEN)
    tally, state = Tally(CELL, cursor, streaming=False, slo_latency_ms=None, refusals=tells), fresh(guardrails=1)
    verdicts: tuple[Verdict, ...] = ()
    for look in range(looks):
        for i in range(per_look):
            for arm in ARMS:
                at = T0 + 1_000 * look + 20 * i
                line = row(
                    a=arm,
                    srv="c1" if arm == "canary" else "b1",
                    t0=at,
                    st=500 if rng.random() < 0.005 else 422 if rng.random() < share[arm] else 200,
                )
                found = parse(line)
                assert isinstance(found, Attempt)
                tally.add(found)
        seen = replace(tally.evidence(START + timedelta(seconds=look + 1)), sticky=sticky)
        state, verdicts = judge(state, seen, (ERRORS,))
        if verdicts[0].kind in until.split():
            break
    return verdicts


@pytest.mark.parametrize(("status", "refused"), [(200, False), (400, True), (404, True), (422, True), (429, False), (500, False)])
def test_a_4xx_that_is_no_error_is_a_refusal(status: int, refused: bool) -> None:
    found = parse(row(st=status))
    assert isinstance(found, Attempt)
    assert found.refused is refused
    assert from_line(to_line(found)) == found


@pytest.mark.parametrize("share", [0.1, 0.3, 1.0])
def test_a_target_that_refuses_what_the_source_answers_fails(share: float) -> None:
    whole, *each = judged({"baseline": 0.01, "canary": share}, until="FAIL")
    assert (whole.kind, whole.detail) == ("FAIL", f"failed on {REFUSALS}")
    assert [v.kind for v in each if v.guardrail == REFUSALS] == ["FAIL"]


@pytest.mark.parametrize("seed", range(3))
def test_refusals_alike_on_both_arms_are_no_evidence_against_the_target(seed: int) -> None:
    whole, *each = judged({"baseline": 0.05, "canary": 0.05}, looks=200, seed=seed)
    assert whole.kind == "PASS"
    assert {v.guardrail for v in each} == {"errors", REFUSALS}


def test_a_source_that_refuses_more_fails_nobody() -> None:
    assert judged({"baseline": 0.5, "canary": 0.01})[0].kind == "PASS"


def test_where_a_client_keeps_to_one_side_its_refusals_hold_the_step_and_fail_nothing() -> None:
    whole, *each = judged({"baseline": 0.01, "canary": 0.3}, looks=30, sticky=True, until="FAIL")
    own = next(v for v in each if v.guardrail == REFUSALS)
    assert (whole.kind, own.kind, own.blocked) == ("INCONCLUSIVE", "INCONCLUSIVE", True)
    assert whole.detail == own.detail == f"more is refused than on the source, {ONE_CLIENT}"
    assert own.e_value > 1e6 > 100 > whole.e_value
    assert judged({"baseline": 0.05, "canary": 0.05}, looks=200, sticky=True)[0].kind == "PASS"


def test_refusals_that_come_in_bursts_of_one_client_weigh_less() -> None:
    def seen(per_second: int) -> Evidence:
        tally = Tally(CELL, Cursor(position="", since=START), streaming=False, slo_latency_ms=None, refusals=True)
        for i in range(400):
            for arm in ARMS:
                refused = arm == "canary" and i < 40
                at = T0 + 1_000 * (i // per_second if refused else i // 10)
                tally.add(Attempt(cell=CELL, arm=arm, started_ms=at, ended_ms=at + 5, failed=False, latency_ms=None, refused=refused))
        return tally.evidence(START + timedelta(seconds=41))

    values = []
    for per_second in (1, 40):
        _, verdicts = judge(fresh(), seen(per_second), (ERRORS,))
        values.append(next(v.e_value for v in verdicts if v.guardrail == REFUSALS))
    assert values[1] < values[0] ** 0.2


def test_only_a_source_that_tells_them_is_asked_and_the_fleet_files_own_words_hold() -> None:
    tally = Tally(CELL, Cursor(position="", since=START), streaming=False, slo_latency_ms=None)
    silent = tally.evidence(START)
    assert all_specs((ERRORS,), silent) == (ERRORS,)
    telling = Tally(CELL, Cursor(position="", since=START), streaming=False, slo_latency_ms=None, refusals=True).evidence(START)
    added = replace(ERRORS, name=REFUSALS, fail_margin=0.02, needs_pass=False)
    assert all_specs((ERRORS,), telling) == (ERRORS, added)
    off = replace(added, judged=False)
    assert all_specs((ERRORS, off), telling) == (ERRORS, off)
    assert all_specs((replace(ERRORS, judged=False),), telling) == (replace(ERRORS, judged=False),)


def test_the_fleet_file_may_name_them_where_the_routers_log_tells() -> None:
    named = TEXT.replace("guardrails: [errors", "guardrails: [errors, refusals", 1)
    assert named != TEXT
    assert REFUSALS in parse_fleet(named, file="f.yaml").workloads[0].guardrails
    with pytest.raises(ConfigInvalid) as e:
        parse_fleet(named.replace("evidence: [log, asked, pages, prom]", "evidence: [pages, asked, prom]"), file="f.yaml")
    assert "add log" in json.dumps(e.value.details)


def test_a_cell_of_lane_replay_cannot_name_them() -> None:
    shape = SimpleNamespace(lane=SimpleNamespace(kind="replay"), evidence=["replayed", "log"])
    said = _share_that_nobody_tells(REFUSALS, cast(Any, shape), cast(Any, None), {"replayed": "replay"}, frozenset())
    assert "no client's own request" in said
    shape.lane.kind = "own"
    assert _share_that_nobody_tells(REFUSALS, cast(Any, shape), cast(Any, None), {}, frozenset()) == ""
