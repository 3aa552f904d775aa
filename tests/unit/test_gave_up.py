"""Clients that go away before the answer leave no attempt; a target that makes them go is found; silent sources take nobody home."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from fleetctl.analysis.judge import fresh, judge, start_step
from fleetctl.analysis.memory import pack, unpack
from fleetctl.analysis.tally import Tally
from fleetctl.domain.evidence import Arm, ClusterSums, Counts, Cursor, Evidence, JudgeState, Verdict, ladder_key
from fleetctl.domain.ids import CellId
from fleetctl.domain.records import Attempt, GaveUp
from fleetctl.domain.workload import Guardrail, GuardrailSpec
from fleetctl.rollout.decide import decide
from tests.fakes.simulated_evidence import START
from tests.rollouts import GUARDRAILS, all_pass, evidence, rollout, seeing, spec, verdict

ERRORS = (GuardrailSpec(name=Guardrail("errors"), margin=0.02, fail_margin=0.0),)
CHAT = CellId("chat")


def look(second: float, baseline: Counts, canary: Counts) -> Evidence:
    arms: dict[Arm, Counts] = {"baseline": baseline, "canary": canary}
    states: dict[Arm, str] = {arm: "ok" if c.attempts else "empty" for arm, c in arms.items()}
    cursor = Cursor(position="", since=START)
    return Evidence(cell=CHAT, at=START + timedelta(seconds=second), arms=arms, state=states, cursor=cursor)  # type: ignore[arg-type]


def run(
    gone0: float, gone1: float, *, per_s: int = 4, seconds: int = 120, burst: int = 1, seed: int = 1, sticky: bool = False
) -> list[Verdict]:
    """Judge once a second; each client goes away with these chances, `burst` requests at a time. Returns the verdicts of the last look."""
    rng, state = np.random.default_rng(seed), fresh(1)
    n, k, sq = ([0, 0] for _ in range(3))
    verdicts: tuple[Verdict, ...] = ()
    for second in range(1, seconds):
        for i, gone in enumerate((gone0, gone1)):
            left = burst * int(rng.binomial(per_s, gone / burst))
            n[i], k[i], sq[i] = n[i] + max(0, per_s - left), k[i] + left, sq[i] + left * left
        both = [Counts(attempts=n[i], gave_up=ClusterSums(clusters=1, errors=k[i], sum_sq=sq[i])) for i in (0, 1)]
        state, verdicts = judge(state, replace(look(second, *both), sticky=sticky), ERRORS)
        assert pack(unpack(state)) == state
        if verdicts[0].kind == "FAIL":
            break
    return list(verdicts)


@pytest.mark.parametrize(("gone0", "gone1"), [(0.0, 1.0), (0.01, 0.5), (0.1, 0.4)])
def test_a_target_whose_clients_go_away_fails_though_it_leaves_no_attempt(gone0: float, gone1: float) -> None:
    failed = [v for v in run(gone0, gone1) if v.kind == "FAIL"]
    assert [v.guardrail for v in failed] == ["all", "gave_up"]
    assert failed[1].e_value >= failed[1].fail_bound == 1_000
    assert failed[1].look.canary_events > failed[1].look.baseline_events


@pytest.mark.parametrize("gone", [0.0, 0.02, 0.3])
def test_clients_that_go_away_alike_say_nothing_and_a_whole_client_is_one_event(gone: float) -> None:
    for seed in range(10):
        assert run(gone, gone, seed=seed)[0].kind != "FAIL"
        assert run(gone, gone, burst=8, per_s=20, seed=seed)[0].kind != "FAIL"


def test_where_a_client_keeps_to_one_side_the_step_waits_and_nothing_fails() -> None:
    whole, *each = run(0.01, 0.5, sticky=True)
    assert [(v.kind, v.guardrail) for v in each if v.holds] == [("INCONCLUSIVE", "gave_up")]
    assert (whole.kind, whole.blocked) == ("INCONCLUSIVE", True)
    assert "one client" in whole.detail
    step = next(i for i, p in enumerate(spec().phases) if p.phase == "full")
    bp, settled = spec().phases[step].weight_bp, START - timedelta(hours=1)
    r = replace(rollout(), step=step, weight_bp=bp, settled_at=settled, since=Cursor(position="", since=settled))
    e = evidence(START, baseline=1_000 * (10_000 - bp) // 1_000, canary=1_000 * bp // 1_000)
    found = decide(r, seeing(START, bp, (*all_pass(), *(v for v in each if v.holds)), e), START)
    assert (found.next.step, found.next.ended) == (step, "")
    assert "gave_up: clients go away" in found.why.text


def test_a_tally_counts_them_by_arm_and_in_nothing_else() -> None:
    tally = Tally(CHAT, Cursor(position="", since=START), streaming=False, slo_latency_ms=None)
    t0 = int(START.timestamp() * 1_000)
    tally.add(Attempt(cell="chat", arm="baseline", started_ms=t0, ended_ms=t0 + 50, failed=False, latency_ms=50.0))
    for started in (t0 - 1, t0 + 1, t0 + 2):
        tally.give_up(GaveUp(cell="chat", arm="canary", started_ms=started, ended_ms=started + 9_000))
    e = tally.evidence(START + timedelta(seconds=10))
    assert e.arms["canary"] == Counts(gave_up=ClusterSums(clusters=1, errors=2, sum_sq=4)), "the one from before the step is left out"
    assert (e.state["canary"], e.missed, e.baseline_outcomes, e.detail) == ("empty", {"baseline": 0, "canary": 1}, ".", "2 aborted")


def test_a_source_that_falls_silent_is_no_count_that_went_back_and_passes_nothing() -> None:
    key, shares = ladder_key(1.0, "ttft"), {"errors_probes": (900, 3)}
    whole = Counts(attempts=900, timed_of={"ttft": 900}, ladders={key: (400, 200, 90, 40, 9)}, shares=shares)
    probes = (*ERRORS, GuardrailSpec(name=Guardrail("errors_probes"), margin=0.5, fail_margin=0.0))
    state, before = judge(fresh(1), look(1, whole, whole), probes)
    assert [v.kind for v in before] == ["PASS"] * 3
    silent = replace(whole, attempts=950, timed_of={}, ladders={}, shares={})
    state, verdicts = judge(state, look(2, silent, silent), probes)
    assert [v.kind for v in verdicts] == ["INCONCLUSIVE", "PASS", "INCONCLUSIVE"]
    assert (verdicts[2].blocked, verdicts[2].detail) == (True, "the source that tells it is silent")
    back = replace(whole, attempts=990, shares={"errors_probes": (950, 4)})
    state, verdicts = judge(state, look(3, back, back), probes)
    assert [v.kind for v in verdicts] == ["PASS"] * 3
    lower = replace(back, shares={"errors_probes": (10, 0)})
    assert judge(state, look(4, lower, lower), probes)[1][0].kind == "PROVIDER_ERROR"


@pytest.mark.parametrize("phase", ["canary", "full", "soak", "complete"])
def test_an_incident_keeps_every_gate_shut_whatever_has_passed(phase: str) -> None:
    step = next(i for i, p in enumerate(spec().phases) if p.phase == phase)
    bp, now = spec().phases[step].weight_bp, START
    settled = START - timedelta(hours=1)
    r = replace(rollout(), step=step, weight_bp=bp, settled_at=settled, since=Cursor(position="", since=settled))
    e = evidence(now, baseline=1_000 * (10_000 - bp) // 1_000, canary=1_000 * bp // 1_000)
    incident = replace(verdict("INCONCLUSIVE", "breaker"), detail="the baseline is failing too")
    open_, shut = (decide(r, seeing(now, bp, v, e), now) for v in (all_pass(), (*all_pass(), incident)))
    assert open_.next.step > step or open_.next.ended == "complete"
    assert (shut.next.step, shut.next.ended) == (step, "")
    assert "canary requests are failing (the baseline is failing too)" in shut.why.text


def test_states_of_the_release_before_are_read() -> None:
    state, _ = judge(fresh(1), look(1, Counts(attempts=90), Counts(attempts=90)), GUARDRAILS[:1])
    data = json.loads(state.numbers)
    data["breaker"] = data["breaker"][:5]
    data.pop("quits", None)
    old = JudgeState(format_version=1, numbers=json.dumps(data).encode())
    assert unpack(old).breaker.trip == -1
    assert judge(start_step(old), look(2, Counts(attempts=5), Counts(attempts=5)), ERRORS)[1]
