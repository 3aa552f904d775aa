"""`fleetctl analyze`: recorded evidence judged again; the same verdicts as look by look, and every mistake of the command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import inf
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.analysis.judge import fresh, judge
from fleetctl.analysis.tally import Tally
from fleetctl.cli.main import main
from fleetctl.domain.evidence import ARMS, Arm, Cursor, Evidence, Look, Verdict
from fleetctl.domain.ids import CellId
from fleetctl.domain.records import Attempt, GaveUp, Scrape
from fleetctl.domain.workload import Guardrail, GuardrailSpec
from fleetctl.errors import UsageError
from fleetctl.formats.recording import from_line, to_line
from fleetctl.usecases.analyze import AnalyzeSettings, _bounded, analyze
from fleetctl.wiring.evidence import read_recording
from tests.unit.test_complaints_source import line

CELL = CellId("chat")
START = datetime(2026, 1, 1, 12, tzinfo=UTC)
T0 = round(START.timestamp() * 1000)
ERRORS = GuardrailSpec(name=Guardrail("errors"), margin=0.02, fail_margin=0.005)
LATENCY = GuardrailSpec(name=Guardrail("latency"), margin=0.25, fail_margin=0.1)
BOTH = AnalyzeSettings(guardrails=(ERRORS, LATENCY))


def traffic(
    n: int = 4_000, *, factor: float = 1.0, errors: float = 0.005, share: float = 0.5, seed: int = 1, before: int = 600
) -> list[Attempt]:
    """Return recorded attempts, 20 a second: `before` of the baseline alone, then both arms."""
    rng = np.random.default_rng(seed)
    out = []
    for i in range(before + n):
        arm: Arm = "canary" if i >= before and rng.random() < share else "baseline"
        worse = factor if arm == "canary" else 1.0
        failed = bool(rng.random() < (errors if arm == "canary" else 0.005))
        took = float(rng.lognormal(4.5, 0.3) * worse)
        start = T0 + 50 * i
        latency = None if failed else took
        out.append(Attempt(cell=CELL, arm=arm, started_ms=start, ended_ms=start + int(took), failed=failed, latency_ms=latency))
    return out


def test_alike_arms_pass_a_slower_one_and_a_failing_one_fail() -> None:
    good = analyze(traffic(), CELL, BOTH)
    assert good.kind == "PASS"
    assert good.frozen_from == "600 baseline attempts before the canary"
    slow = analyze(traffic(factor=1.5), CELL, BOTH)
    assert (slow.kind, slow.decided_at is not None) == ("FAIL", True)
    assert 0 < slow.decided_n < 1_000
    assert analyze(traffic(errors=0.06), CELL, BOTH).kind == "FAIL"


def test_every_look_holds_what_recomputing_it_by_hand_needs() -> None:
    found = analyze(traffic(1_500), CELL, BOTH, query="file chat")
    assert len(found.looks) == 1 + int(1_500 * 0.05 / 10)
    last = found.looks[-1]
    assert last.query == "file chat"
    v = last.verdicts[0]
    assert v.look.canary_n == last.arms["canary"].attempts
    assert v.look.share == pytest.approx(v.look.canary_n / (v.look.canary_n + v.look.baseline_n))
    state = fresh(1)
    cursor = Cursor(position="", since=found.looks[0].at - BOTH.look_every, thresholds=found.thresholds)
    for look in found.looks:
        e = Evidence(cell=CELL, at=look.at, arms=look.arms, state={"baseline": "ok", "canary": "ok"}, cursor=cursor)
        state, verdicts = judge(state, e, BOTH.guardrails)
        assert [x.e_value for x in verdicts if x.guardrail == "latency"] == [x.e_value for x in look.verdicts if x.guardrail == "latency"]


def test_any_settings_may_be_asked_and_change_the_answer() -> None:
    records = traffic(3_000, factor=1.12)
    strict = AnalyzeSettings(guardrails=(replace(LATENCY, margin=0.05, fail_margin=0.0),))
    lax = AnalyzeSettings(guardrails=(replace(LATENCY, margin=1.0, fail_margin=0.5),))
    assert analyze(records, CELL, strict).kind == "FAIL"
    assert analyze(records, CELL, lax).kind == "PASS"
    early = analyze(records, CELL, replace(strict, alpha=0.2))
    late = analyze(records, CELL, replace(strict, alpha=0.0001))
    assert early.decided_at is not None
    assert late.decided_at is None or early.decided_at <= late.decided_at
    assert analyze(records, CELL, replace(lax, warm_up=timedelta(seconds=60))).looks[0].at == analyze(records, CELL, lax).looks[
        0
    ].at + timedelta(seconds=60)


def _colder(n: int, warm: int, cold: int) -> list[Attempt]:
    """Return equal arms, of which the canary's cache is cold."""
    return [replace(a, prompt_tokens=100, cached_tokens=cold if a.arm == "canary" else warm) for a in traffic(n)]


def _bucketed() -> list[Scrape]:
    """Return pages of equal arms: times over the bounds of buckets."""
    out = []
    for i in range(60):
        for arm in ARMS:
            n = 200.0 * (i + 10)
            times = {0.5: n * 0.5, 1.0: n * 0.9, 2.0: n * 0.99, 4.0: n, inf: n}
            values = {"requests_total/engine": n, "errors_total/engine": 0.0}
            out.append(Scrape(cell=CELL, arm=arm, replica=arm, at_ms=T0 + 5_000 * i, values=values, buckets={"e2e_seconds": times}))
    return out


SLO = GuardrailSpec(name=Guardrail("slo_misses"), margin=0.5, fail_margin=0.1)
WIDE = replace(LATENCY, margin=1.0, fail_margin=0.5)
EASY = replace(ERRORS, margin=0.5, fail_margin=0.1)
BLOCKED: dict[str, tuple[Sequence[Attempt | Scrape], tuple[GuardrailSpec, ...], float | None, str]] = {
    "the caches differ": (_colder(3_000, 80, 10), (LATENCY, EASY), None, "cached"),
    "fewer than 100 requests": (traffic(150), (EASY,), None, ""),
    "buckets only detect": (_bucketed(), (WIDE, EASY), None, "buckets can show"),
    "no bound is the promised latency": (_bucketed(), (SLO, EASY), 700.0, "no bound of the buckets"),
    "nothing is judged": (traffic(1_000), (replace(EASY, judged=False),), None, "shown only"),
    "nobody tells it": (traffic(1_000), (EASY, replace(EASY, name=Guardrail("counter_orders"))), None, ""),
}


@pytest.mark.parametrize("beta", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("case", BLOCKED)
def test_what_blocks_a_pass_blocks_it_under_any_bound(case: str, beta: float) -> None:
    records, specs, slo, why = BLOCKED[case]
    asked = AnalyzeSettings(guardrails=specs, beta=beta, slo_latency_ms=slo, look_every=timedelta(seconds=20), settle=timedelta(0))
    found = analyze(records, CELL, asked)
    assert found.kind == "INCONCLUSIVE"
    assert not any(look.verdicts[0].kind == "PASS" for look in found.looks)
    part = next(v for v in found.looks[-1].verdicts if v.guardrail == specs[-1 if case == "nobody tells it" else 0].name)
    assert part.kind != "PASS"
    assert why in part.detail


@pytest.mark.parametrize("beta", [0.01, 0.1, 0.5])
def test_equal_arms_that_nothing_blocks_pass_under_any_bound(beta: float) -> None:
    found = analyze(traffic(), CELL, AnalyzeSettings(guardrails=(EASY, WIDE), beta=beta, look_every=timedelta(seconds=20)))
    assert found.kind == "PASS"
    assert found.decided_n >= 100


@pytest.mark.parametrize("blocked", ["", "whole", "errors", "latency"])
def test_a_whole_that_waits_and_a_part_that_is_blocked_are_no_pass(blocked: str) -> None:
    look = Look(at=START, baseline_n=1_000, canary_n=1_000, baseline_events=0, canary_events=0, share=0.5)
    whole, *parts = (
        Verdict(kind="PASS", guardrail=Guardrail(name), e_value=0.1, pass_e_value=1e6, look=look, blocked=name == blocked)
        for name in ("whole", "errors", "latency")
    )
    assert (_bounded((whole, *parts), 1_000, BOTH)[0].kind == "PASS") == (not blocked)


@pytest.mark.parametrize("name", ["breaker", "gave_up"])
def test_a_fail_by_another_bound_stays_one(name: str) -> None:
    look = Look(at=START, baseline_n=1_000, canary_n=1_000, baseline_events=0, canary_events=0, share=0.5)
    parts = [Verdict(kind="PASS", guardrail=g.name, e_value=0.1, pass_e_value=1e6, look=look) for g in BOTH.guardrails]
    whole = Verdict(kind="FAIL", guardrail=Guardrail("all"), e_value=0.1, pass_e_value=1e6, look=look, detail=f"failed on {name}")
    own = Verdict(kind="FAIL", guardrail=Guardrail(name), e_value=2e3, fail_bound=1e3, look=look)
    found = _bounded((whole, *parts, own), 1_000, replace(BOTH, alpha=1e-6))
    assert (found[0].kind, found[-1]) == ("FAIL", own)


def test_the_order_of_lines_does_not_matter() -> None:
    records = traffic(800)
    shuffled = list(records)
    np.random.default_rng(3).shuffle(shuffled)
    assert analyze(shuffled, CELL, BOTH).state == analyze(records, CELL, BOTH).state


def test_scrapes_alone_are_judged_too() -> None:
    records = []
    for i in range(40):
        for arm, bad in (("baseline", 0.005), ("canary", 0.05)):
            n = 100.0 * (i + 10)
            values = {"requests_total/engine": n, "errors_total/engine": float(int(n * bad))}
            side: Arm = "baseline" if arm == "baseline" else "canary"
            records.append(Scrape(cell=CELL, arm=side, replica=arm, at_ms=T0 + 5_000 * i, values=values))
    found = analyze(records, CELL, AnalyzeSettings(guardrails=(ERRORS,), settle=timedelta(0)))
    assert (found.kind, found.scrapes) == ("FAIL", 80)


def test_nothing_of_an_arm_is_refused() -> None:
    with pytest.raises(UsageError, match="nothing of the canary"):
        analyze([a for a in traffic(200) if a.arm == "baseline"], CELL, BOTH)


@given(
    st.builds(
        Attempt,
        cell=st.just("chat"),
        arm=st.sampled_from(["baseline", "canary"]),
        started_ms=st.integers(1, 10**13),
        ended_ms=st.just(10**13),
        failed=st.booleans(),
        latency_ms=st.none() | st.floats(0, 1e6).map(lambda v: round(v, 6)),
        prompt_tokens=st.integers(-1, 10**6),
        cached_tokens=st.integers(-1, 10**6),
        output_tokens=st.integers(-1, 10**6),
        ttft_ms=st.none() | st.floats(0, 1e6).map(lambda v: round(v, 6)),
        token_ms=st.none() | st.floats(0, 1e6).map(lambda v: round(v, 6)),
        nll=st.none() | st.floats(0, 20).map(lambda v: round(v, 6)),
        finish=st.sampled_from(["", "stop", "length"]),
        pair=st.integers(-1, 1 << 56),
        fault=st.sampled_from(["", "xid"]),
    )
)
@settings(max_examples=60, deadline=None)
def test_a_recorded_attempt_reads_back_the_same(a: Attempt) -> None:
    assert from_line(to_line(a)) == a


@pytest.mark.parametrize(
    "line",
    [
        "nope",
        "[]",
        "{" * 2_000,
        '{"k":"attempt"}',
        '{"k":"attempt","c":"chat","a":"both","t0":1,"t1":2,"ok":true}',
        '{"k":"attempt","c":"chat","a":"canary","t0":5,"t1":2,"ok":true}',
        '{"k":"attempt","c":"chat","a":"canary","t0":1,"t1":2,"ok":1}',
        '{"k":"attempt","c":"chat","a":"canary","t0":1,"t1":2,"ok":true,"lat":-1}',
        '{"k":"attempt","c":"chat","a":"canary","t0":1,"t1":2,"ok":true,"lat":1e999}',
        '{"k":"attempt","c":"ch\\u001b[2Jat","a":"canary","t0":1,"t1":2,"ok":true}',
        '{"k":"scrape","c":"chat","a":"canary","r":"x","t":1,"v":{"speed":1},"b":{}}',
        '{"k":"scrape","c":"chat","a":"canary","r":"x","t":1,"v":{},"b":{"ttft_seconds":[["a",1]]}}',
    ],
)
def test_a_hostile_line_is_refused_with_a_reason(line: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        from_line(line)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEETCTL_WORKSPACE", str(tmp_path))
    monkeypatch.setenv("NO_COLOR", "1")
    return tmp_path


def test_the_command_judges_a_file_and_its_exit_code_tells(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = folder / "good.jsonl", folder / "bad.jsonl"
    good.write_text("".join(to_line(a) + "\n" for a in traffic()))
    bad.write_text("".join(to_line(a) + "\n" for a in traffic(errors=0.06)) + "not a line\n")
    assert main(["analyze", str(good), "-g", "errors=2points/0.5points", "-g", "latency=25%/10%"]) == 0
    assert "PASS for chat at 2026-01-01" in capsys.readouterr().out
    assert main(["analyze", str(bad), "-o", "json"]) == 5
    said = json.loads(capsys.readouterr().out)
    assert said["format_version"]
    assert "not" in json.dumps(said)
    assert main(["analyze", str(good), "--until", "2026-01-01T12:00:40Z"]) == 6


def test_the_command_reads_a_routers_log(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = folder / "log"
    logs.mkdir()
    with (logs / "haproxy-1.log").open("w") as log:
        for a in sorted(traffic(), key=lambda a: a.ended_ms):
            row = {"c": "chat", "a": a.arm, "srv": "c1" if a.arm == "canary" else "b1", "st": 503 if a.failed else 200, "ts": "--"}
            row |= {"t0": a.started_ms, "ta": a.ended_ms - a.started_ms, "p": "-", "rc": "0"}
            log.write(json.dumps(row) + "\n")
    assert main(["analyze", str(logs), "-g", "errors=2points/0.5points", "-g", "latency=25%/10%"]) == 0
    assert "PASS for chat" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["--cell", "other"], "analyze.cell"),
        (["-g", "errors=5%"], "usage.bad"),
        (["-g", "errors=0points"], "usage.bad"),
        (["-g", "errors=1points/2points"], "usage.bad"),
        (["-g", "latency=2points"], "usage.bad"),
        (["-g", "erors=1points"], "usage.bad"),
        (["-g", "latncy=10%"], "usage.bad"),
        (["-g", "quality=1points"], "analyze.untold"),
        (["-g", "slo_misses=1points"], "analyze.untold"),
        (["-g", "counter_orders=1points"], "analyze.untold"),
        (["-g", "nll=10%"], "analyze.untold"),
        (["--every", "1ms"], "usage.bad"),
        (["--every", "soon"], "usage.bad"),
        (["--since", "noon"], "usage.bad"),
        (["--alpha", "0"], "usage.bad"),
        (["--alpha", "1"], "usage.bad"),
        (["--beta", "2"], "usage.bad"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything(
    folder: Path, argv: list[str], code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "r.jsonl"
    path.write_text("".join(to_line(a) + "\n" for a in traffic(100)))
    assert main(["analyze", str(path), *argv]) == 2
    assert f"error[{code}]" in capsys.readouterr().err


def with_quits(records: list[Attempt], share: float) -> list[Attempt | GaveUp]:
    """Some clients of the canary go away: nothing but that is seen of them."""
    rng = np.random.default_rng(3)
    gone = [a for a in records if a.arm == "canary" and rng.random() < share]
    quits = [GaveUp(cell=a.cell, arm=a.arm, started_ms=a.started_ms, ended_ms=a.ended_ms + 9_000) for a in gone]
    return [*(a for a in records if a not in gone), *quits]


def test_clients_that_go_away_count_as_in_a_rollout() -> None:
    records = with_quits(traffic(2_000), 0.15)
    found = analyze(records, CELL, BOTH)
    assert (found.kind, found.looks[-1].verdicts[0].detail) == ("FAIL", "failed on gave_up")
    kept = analyze(records, CELL, replace(BOTH, sticky=True))
    assert kept.kind != "FAIL"
    assert "keeps to one side" in kept.looks[-1].verdicts[0].detail, "one client may be all of them"


@pytest.mark.parametrize(("streaming", "sticky"), [(False, False), (True, False), (False, True)])
def test_the_same_records_and_settings_give_a_rollouts_verdicts_look_by_look(streaming: bool, sticky: bool) -> None:
    records = with_quits([replace(a, refused=i % 50 == 0) for i, a in enumerate(traffic(3_000, factor=1.05))], 0.02)
    asked = replace(BOTH, streaming=streaming, sticky=sticky, settle_errors=timedelta(seconds=60), steps=6)
    found = analyze(records, CELL, asked)
    begin = found.looks[0].at - asked.look_every
    settle_ms = 60_000 if streaming else 0
    tally = Tally(
        CELL,
        Cursor(position="", since=begin, thresholds=found.thresholds),
        streaming=streaming,
        slo_latency_ms=None,
        refusals=True,
        settle_ms=settle_ms,
    )
    state, left = fresh(6, 2), sorted(records, key=lambda r: r.ended_ms, reverse=True)
    for look in found.looks:
        while left and left[-1].ended_ms <= look.at.timestamp() * 1_000:
            r = left.pop()
            tally.add(r) if isinstance(r, Attempt) else tally.give_up(r)
        e = replace(tally.evidence(look.at), sticky=sticky)
        state, verdicts = judge(state, e, asked.guardrails)
        assert verdicts == look.verdicts
    assert state == found.state


def test_a_streams_errors_pass_once_none_of_its_requests_still_runs() -> None:
    only = replace(BOTH, guardrails=(ERRORS,))
    soon = analyze(traffic(12_000), CELL, only)
    late = analyze(traffic(12_000), CELL, replace(only, streaming=True, settle_errors=timedelta(seconds=300)))
    assert (soon.kind, late.kind) == ("PASS", "PASS")
    assert soon.decided_at is not None
    assert late.decided_at is not None
    assert late.decided_at >= START + timedelta(seconds=330)
    assert late.decided_at > soon.decided_at


def test_a_routers_log_is_read_with_those_who_went_away(tmp_path: Path) -> None:
    path = tmp_path / "haproxy-1.log"
    path.write_text(f"{line(1, 'baseline')}\n{line(2, 'canary', ts='CD', st=-1)}\n")
    records, notes = read_recording(tmp_path)
    assert [type(r) for r in records] == [Attempt, GaveUp]
    assert notes == ()
