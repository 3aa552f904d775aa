"""Adapter models by name and cohorts of an A/B test: how they are logged, counted, judged and asked for."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from math import exp
from pathlib import Path

import numpy as np
import pytest

from fleetctl.adapters.paired.runner import record_of
from fleetctl.adapters.paired.stream import Answer
from fleetctl.adapters.routers.haproxy.config import RouterConfig, render
from fleetctl.adapters.routers.log import parse
from fleetctl.adapters.routers.route import CellRoute
from fleetctl.analysis import sudden
from fleetctl.analysis.clusters import effect_on
from fleetctl.analysis.guardrails import share_log_fail
from fleetctl.analysis.judge import fresh, judge
from fleetctl.analysis.memory import unpack
from fleetctl.analysis.tally import Tally
from fleetctl.cli.main import main
from fleetctl.domain.evidence import LADDER, Arm, Cursor, Thresholds, VerdictKind
from fleetctl.domain.ids import CellId
from fleetctl.domain.records import Attempt
from fleetctl.domain.workload import AffinityKey, Guardrail, GuardrailSpec, model_guardrails
from fleetctl.errors import ConfigInvalid, UsageError
from fleetctl.formats.fleet_file import parse_fleet
from fleetctl.formats.recording import from_line, to_line
from fleetctl.planning.evidence_need import gating_of, phases_for
from fleetctl.rollout.gates import gate
from fleetctl.usecases.analyze import analyze, by_cohort
from tests.rollouts import evidence, rollout, seeing, verdict
from tests.unit.test_analyze import BOTH, CELL, START, T0, traffic
from tests.unit.test_evidence_in_fleet_file import TEXT

SQL_ERRORS, SQL_SLOW = model_guardrails("team/sql-LoRA")


def test_a_name_of_an_adapter_becomes_a_guardrails() -> None:
    assert (SQL_ERRORS, SQL_SLOW) == ("model_errors_team_sql_lora", "model_slow_team_sql_lora")


def config(**changes: object) -> RouterConfig:
    route = CellRoute(cell=CellId("chat"), model="m", baseline=("10.0.0.1:1",), **changes)  # type: ignore[arg-type]
    plain = CellRoute(cell=CellId("plain"), model="m", baseline=("10.0.0.2:1",))
    return RouterConfig(cells=(route, plain), port=1, socket=Path("/s"), map_folder=Path("/m"))


def test_the_router_names_only_what_was_declared_and_only_for_that_cell() -> None:
    text = render(config(adapters=("sql",), cohort=AffinityKey(kind="header", name="x-team")))
    lines = [line.strip() for line in text.splitlines() if "txn.m" in line or "txn.co" in line or "request wait-for-body" in line]
    assert lines[1:] == [
        "http-request set-var(txn.m) str(-)",
        "http-request set-var(txn.co) str(-)",
        "http-request wait-for-body time 600s if METH_POST { var(txn.c) -m str chat }",
        "http-request set-var(txn.m) str(sql) if { var(txn.c) -m str chat } { req.body,json_query('$.model') -m str sql }",
        "http-request set-var(txn.co) req.fhdr(x-team),bytes(0,64),json(utf8s) if { var(txn.c) -m str chat }",
    ]
    assert '"m":"%[var(txn.m)]","co":"%[var(txn.co)]"' in lines[0]
    assert "txn.m)" not in render(config())
    for bad in ({"adapters": ("a b",)}, {"adapters": ('x"}',)}, {"cohort": AffinityKey(kind="header", name="x team")}):
        with pytest.raises(ConfigInvalid):
            render(config(**bad))


def test_a_line_and_a_recording_tell_model_and_cohort() -> None:
    row = {"c": "chat", "a": "canary", "srv": "c1", "st": 200, "ts": "--", "t0": 1000, "ta": 50, "p": "-", "rc": "0", "m": "sql", "co": "b"}
    found = parse(json.dumps(row).encode())
    assert isinstance(found, Attempt)
    assert (found.model, found.cohort) == ("sql", "b")
    assert from_line(to_line(found)) == found
    for odd in (None, 7, "-", "", "a\u001b[2J", ["x"]):
        other = parse(json.dumps({**row, "m": odd, "co": odd}).encode())
        assert isinstance(other, Attempt)
        assert (other.model, other.cohort) == ("", "")
    assert record_of(Answer(started_ms=1, failed=False), CELL, "canary", 1, model="sql").model == "sql"


def with_adapter(*, share: float = 0.2, errors: float = 0.0, factor: float = 1.0, n: int = 6_000) -> list[Attempt]:
    """Return traffic of which a share asks for an adapter model that fails or is slower on the canary alone."""
    rng = np.random.default_rng(5)
    out = []
    for a in traffic(n):
        if rng.random() >= share:
            out.append(a)
            continue
        worse = a.arm == "canary"
        failed = a.failed or (worse and bool(rng.random() < errors))
        latency = a.latency_ms * (factor if worse else 1.0) if a.latency_ms is not None and not failed else None
        out.append(replace(a, model="team/sql-LoRA", failed=failed, latency_ms=latency))
    return out


WATCHED = (
    GuardrailSpec(name=SQL_ERRORS, margin=0.02, fail_margin=0.005, needs_pass=False),
    GuardrailSpec(name=SQL_SLOW, margin=0.2, fail_margin=0.1, needs_pass=False),
)


def ended(records: list[Attempt]) -> tuple[VerdictKind, str]:
    found = analyze(records, CELL, replace(BOTH, guardrails=(*BOTH.guardrails, *WATCHED)))
    worst = max(found.looks[-1].verdicts[1:], key=lambda v: v.e_value)
    return found.kind, worst.guardrail


def test_an_adapter_that_fails_or_is_slow_alone_fails_the_canary_by_its_name() -> None:
    assert ended(with_adapter(errors=0.06)) == ("FAIL", SQL_ERRORS)
    assert ended(with_adapter(factor=1.6)) == ("FAIL", SQL_SLOW)


@pytest.mark.parametrize("factor", [2.0, 3.0])
def test_a_slow_adapter_does_not_pass_since_its_fast_requests_end_first(factor: float) -> None:
    """Answers of some 20 s, half of them on the canary, looked at from the first second on."""
    rng = np.random.default_rng(11)
    base = rng.lognormal(np.log(20_000), 0.6, 4_000)
    rows = (tuple(float(np.quantile(base, rung)) for rung in LADDER),)
    frozen = Thresholds(class_edges=(), latency_ms=rows, scales=(1.0, 1.5), baseline_n=4_000, baseline_error_ratio=0.0, log_sd=0.6)
    cursor = Cursor(position="", since=START, thresholds=frozen)
    tally, state = Tally(CELL, cursor, streaming=False, slo_latency_ms=None), fresh(1, 1)
    spec = GuardrailSpec(name=SQL_SLOW, margin=0.2, fail_margin=0.1)
    coming = []
    for i in range(6_000):  # 2,000 a minute
        arm: Arm = "canary" if i % 2 else "baseline"
        took = float(rng.lognormal(np.log(20_000), 0.6)) * (factor if arm == "canary" else 1.0)
        at = round(START.timestamp() * 1_000) + 30 * i
        a = Attempt(cell=CELL, arm=arm, started_ms=at, ended_ms=at + round(took), failed=False, latency_ms=took, model="team/sql-LoRA")
        coming.append(a)
    coming.sort(key=lambda a: a.ended_ms)
    kinds = set()
    for second in range(2, 180, 2):
        now = START + timedelta(seconds=second)
        while coming and coming[0].ended_ms <= now.timestamp() * 1_000:
            tally.add(coming.pop(0))
        state, verdicts = judge(state, tally.evidence(now), (spec,))
        kinds.add(verdicts[0].kind)
        if verdicts[0].kind == "FAIL":
            break
    assert "PASS" not in kinds
    assert "FAIL" in kinds


def test_a_good_adapter_and_one_without_traffic_hold_up_no_pass() -> None:
    assert ended(with_adapter())[0] == "PASS"
    assert ended(traffic())[0] == "PASS"
    needed = tuple(replace(w, needs_pass=True) for w in WATCHED)
    assert analyze(traffic(), CELL, replace(BOTH, guardrails=(*BOTH.guardrails, *needed))).kind != "PASS"


def test_errors_of_an_adapter_come_in_clusters_like_all_errors() -> None:
    """Every second that fails on the canary fails whole: as the errors of all, and unlike a share that comes one by one."""
    tally = Tally(CELL, Cursor(position="", since=START), streaming=False, slo_latency_ms=None)
    for a in traffic(2_000, before=0):
        failed = a.arm == "canary" and (a.started_ms // 1_000) % 20 == 0
        tally.add(replace(a, model="x", failed=failed, latency_ms=None))
    name = model_guardrails("x")[0]
    seen = tally.evidence(START.replace(minute=2))
    arms = {arm: replace(c, shares={**c.shares, "counter_x": c.shares[name]}) for arm, c in seen.arms.items()}
    specs = tuple(GuardrailSpec(name=Guardrail(n), margin=0.02, fail_margin=0.0) for n in ("errors", name, "counter_x"))
    state, verdicts = judge(fresh(1), replace(seen, arms=arms, state={"baseline": "ok", "canary": "ok"}), specs)
    e = {v.guardrail: v.e_value for v in verdicts}
    memory = unpack(state)
    of_all = share_log_fail(memory, "errors", effect_on(memory, "errors"))
    assert e[name] == e[Guardrail("errors")] == pytest.approx(exp(sudden.beside(memory.sudden("errors"), sudden.SHARES, of_all)))
    assert e[name] < e[Guardrail("counter_x")] / 10


LINE = "    guardrails: [errors, ttft, token_time, nll, counter_failed_orders]\n"
ADAPTED = TEXT.replace(LINE, "    adapters: [sql, legal]\n    guardrails: [errors, ttft]\n")


def test_every_adapter_of_a_workload_is_watched_and_one_that_is_named_must_pass() -> None:
    fleet = parse_fleet(ADAPTED.replace("[errors, ttft]", "[errors, ttft, model_errors_sql]"), file="f.yaml")
    canary = next(p for p in phases_for(fleet.policy, fleet.workloads[0]) if p.phase == "canary")
    found = {g.name: g.needs_pass for g in canary.guardrails}
    assert found == {
        "errors": True,
        "ttft": True,
        "model_errors_sql": True,
        "model_slow_sql": False,
        "model_errors_legal": False,
        "model_slow_legal": False,
    }
    assert {g.name for g in gating_of(canary)} == {"errors", "ttft", "model_errors_sql"}
    with pytest.raises(ConfigInvalid) as e:
        parse_fleet(ADAPTED.replace("[errors, ttft]", "[errors, model_errors_sq]"), file="f.yaml")
    assert "none of its adapters has that name" in " ".join(e.value.details)


def test_the_gate_waits_for_no_pass_of_what_is_only_watched() -> None:
    r = rollout()
    canary = r.spec.phases[1]
    watched = replace(canary, guardrails=(*canary.guardrails, *WATCHED))
    r = replace(r, spec=replace(r.spec, phases=(r.spec.phases[0], watched, *r.spec.phases[2:])), step=1, settled_at=START)
    later = START.replace(minute=30)
    verdicts = (verdict("PASS", "errors"), verdict("PASS", "latency"), verdict("INCONCLUSIVE", SQL_ERRORS))
    assert gate(r, seeing(later, 1000, verdicts, evidence(later)), later).open


def ab(*, factor: float = 1.0) -> list[Attempt]:
    """Return traffic of one arm alone, in two cohorts, of which the second is slower."""
    out = []
    for i, a in enumerate(traffic(5_000)):
        cohort = "variant" if i % 2 else "control"
        worse = factor if cohort == "variant" else 1.0
        latency = None if a.latency_ms is None else a.latency_ms * worse
        out.append(replace(a, arm="baseline", cohort=cohort, latency_ms=latency))
    return out


def test_cohorts_are_judged_by_the_same_engine() -> None:
    assert analyze(by_cohort(ab(), ("control", "variant")), CELL, BOTH).kind == "PASS"
    assert analyze(by_cohort(ab(factor=1.4), ("control", "variant")), CELL, BOTH).kind == "FAIL"
    assert analyze(by_cohort(ab(factor=1.4), ("variant", "control")), CELL, BOTH).kind != "FAIL"


def test_cohorts_may_be_taken_from_one_arm_or_one_model_alone() -> None:
    records: list[Attempt] = [replace(a, arm="canary" if i % 3 else "baseline", model="sql" if i % 5 else "") for i, a in enumerate(ab())]
    arms: tuple[Arm, ...] = ("baseline", "canary")
    for arm in arms:
        found = by_cohort(records, ("control", "variant"), arm=arm)
        assert len(found) == sum(r.arm == arm for r in records)
    assert len(by_cohort(records, None, model="sql")) == sum(r.model == "sql" for r in records)
    assert by_cohort(records, None) == records


@pytest.mark.parametrize(
    ("cohorts", "model", "code", "says"),
    [
        (("control", "other"), "", "analyze.cohort", "no request is of the cohort 'other'"),
        (("control", "control"), "", "analyze.cohort", "cannot be compared with itself"),
        (None, "sql", "analyze.model", "no request asked for the model 'sql'"),
    ],
)
def test_a_cohort_or_model_that_is_not_there_is_a_mistake(cohorts: tuple[str, str] | None, model: str, code: str, says: str) -> None:
    with pytest.raises(UsageError) as e:
        by_cohort(ab(), cohorts, model=model)
    assert (e.value.code, says in e.value.message) == (code, True)


def test_the_command_judges_an_ab_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FLEETCTL_WORKSPACE", str(tmp_path))
    path = tmp_path / "ab.jsonl"
    path.write_text("".join(to_line(a) + "\n" for a in ab(factor=1.4)))
    assert main(["analyze", str(path), "--cohort", "control:variant", "-g", "latency=25%/10%"]) == 5
    assert main(["analyze", str(path), "--cohort", "control"]) == 2
    assert "error[usage.bad]" in capsys.readouterr().err
    assert main(["analyze", str(path), "--cohort", "control:nobody"]) == 2
    assert T0 > 0
