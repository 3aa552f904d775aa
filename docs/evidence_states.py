"""Write the truth table of evidence by asking the judge and the rollout themselves. Used by docs/generate.py; changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import get_args

from fleetctl.analysis.judge import fresh, judge
from fleetctl.domain.evidence import Arm, ClusterSums, Counts, Cursor, Evidence, JudgeState, SignalState, VerdictKind
from fleetctl.domain.fleet import PhaseSpec
from fleetctl.domain.ids import CellId, PlanId, PoolId, Token
from fleetctl.domain.rollout import Notify, Observation, Rollout, RolloutSpec
from fleetctl.domain.split import Split
from fleetctl.domain.workload import Guardrail, GuardrailSpec, Lane
from fleetctl.rollout.decide import PROVIDER_CELLS, decide

STATES: tuple[SignalState, ...] = get_args(SignalState)
T0 = datetime(2026, 1, 1, 12, tzinfo=UTC)
CELL = CellId("chat")
ERRORS = GuardrailSpec(name=Guardrail("errors"), margin=0.02, fail_margin=0.0)
HOME_AFTER = timedelta(seconds=120)
COUNTS = {
    "open": (Counts(attempts=400, errors=2), Counts(attempts=40, errors=0)),
    "worse": (Counts(attempts=4_000, errors=20), Counts(attempts=4_000, errors=1_200)),
    "good": (Counts(attempts=40_000, errors=200), Counts(attempts=40_000, errors=200)),
    "off": (Counts(attempts=20_000, errors=100), Counts(attempts=20_000, errors=100)),
}
"""What both arms counted: nothing settled, a target that is worse, one as good, half of the traffic where 10 % was set."""
MANY_DUE: Mapping[Arm, int] = {"baseline": 400, "canary": 400}
"""Requests of the other arm since an arm's newest one."""

INTRO = """\
# Truth table: states of evidence, verdicts, and what a rollout does

Made by `docs/evidence_states.py`, which asks the judge (`fleetctl/analysis/judge.py`) and the rollout (`fleetctl/rollout/decide.py`)
themselves, so that this page cannot say anything else than they do. A test asks for every row by name.

## Five verdicts

| verdict | means | raises a weight | takes home |
| --- | --- | --- | --- |
| PASS | every judged guardrail is shown to be less than its margin worse | yes, after bake time | no |
| FAIL | a guardrail is shown to be worse; it latches | no | at once |
| INCONCLUSIVE | there is evidence and it settles nothing yet | no | no |
| NO_DATA | an arm shows no request, or none lately | no | by the rule for lost evidence, where requests were due |
| PROVIDER_ERROR | what the source says cannot be right | no | by the rule for lost evidence |

## States of an arm

| state | what the source found |
| --- | --- |
| ok | fresh requests |
| empty | no request since the step began; where only errors are absent while requests are there, that is no error, and the state is ok |
| stale | requests, and none for 10 s, or for eight of its usual gaps where those are longer |
| nan | numbers that are none |
| reset | a log was cut, or a counter began again |
| down | a replica's page, or the whole source, does not answer |
| mislabelled | a series has another name in this version, is unknown, or names an impossible server; or both arms count otherwise |
| same_series | both arms are read from the same series or replica |

A missing series is a state, never a zero: a GPU metric that is absent, marked as not supported or a text says nothing, and an engine
that exports no count of errors (llama.cpp, and without their HTTP metrics vLLM before 0.13.0 and SGLang) is *mislabelled* as a leading
source.

## Every combination

The states are those of all of a cell's sources together, of each arm the worst. *Open* counts settle nothing, *worse* and *good* ones
would settle it. *Alone* is what follows after {home} s without evidence where one or two cells have lost theirs; *many*, where three or
more have: they hold for as long as it takes, and the first of them pages, once for all. With one or two cells nobody can tell the
provider from the cell, so home is the safe side.

In rows with a quiet arm (*empty* or *stale*) beside one that is *ok*, 20 or more of its requests were due, by the other arm's and the
weight: a target that hangs, or a split that is not what was set. In rows with two quiet arms nothing shows that their source is at work.
Below the table is what follows otherwise.

| baseline | canary | open | worse | good | rollout | alone | many |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""

REST = """\

## What is not a state of an arm

| what | verdict | rollout |
| --- | --- | --- |
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One combination: verdicts on three kinds of counts, and what the rollout does now, alone after 120 s, and where many lost theirs."""

    open: VerdictKind
    worse: VerdictKind
    good: VerdictKind
    now: str
    alone: str
    many: str


def evidence(baseline: SignalState, canary: SignalState, counts: str, at: datetime = T0, **more: object) -> Evidence:
    """Return one look at these states with these counts; many requests of a quiet arm were due, and nobody can tell of a source at work."""
    base, other = (replace(c, clusters=ClusterSums(clusters=c.errors, errors=c.errors, sum_sq=c.errors)) for c in COUNTS[counts])
    return Evidence(
        cell=CELL,
        at=at,
        arms={"baseline": base, "canary": other},
        state={"baseline": baseline, "canary": canary},
        cursor=Cursor(position="0", since=T0 - timedelta(hours=2)),
        **({"missed": MANY_DUE} | more),  # type: ignore[arg-type]
    )


def verdict(e: Evidence) -> VerdictKind:
    """Return the verdict on all guardrails together."""
    return judge(fresh(1), e, (ERRORS,))[1][0].kind


def rollout(weight_bp: int = 5_000) -> Rollout:
    """Return a rollout in its ramp that has shown its weight for an hour."""
    phase = PhaseSpec(phase="ramp", weight_bp=weight_bp, bake=timedelta(0), guardrails=(ERRORS,))
    spec = RolloutSpec(
        source=PoolId("nvidia"),
        target=PoolId("amd"),
        phases=(phase, replace(phase, phase="full", weight_bp=9_500)),
        warm_up=timedelta(0),
        cap_bp=10_000,
        lane=Lane(),
        weight_lease=timedelta(hours=9),
        lost_evidence_home=HOME_AFTER,
        step_deadline=timedelta(hours=72),
        shadow=None,
    )
    since = T0 - timedelta(hours=1)
    return Rollout(
        cell=CELL,
        plan=PlanId("p0123456789a"),
        spec=spec,
        judge=fresh(1),
        until="complete",
        step=0,
        weight_bp=weight_bp,
        settled_at=since,
        since=Cursor(position="0", since=since),
    )


def acts(
    e: Evidence | None,
    *,
    lost_for: timedelta | None = None,
    cells: int = 1,
    paged: bool = False,
    weight_bp: int = 5_000,
    before: JudgeState | None = None,
    proof_at: datetime | None = None,
) -> str:
    """Return what the rollout does on this evidence: home, raises, holds (and whether it pages) or waits."""
    r = replace(rollout(weight_bp), lost_since=T0 - lost_for if lost_for is not None else None, proof_at=proof_at)
    state, verdicts = judge(before or r.judge, e, (ERRORS,)) if e is not None else (r.judge, ())
    split = Split(cell=CELL, target_bp=weight_bp, cap_bp=10_000, token=Token(1), lease_until=T0 + timedelta(hours=8))
    seen = Observation(
        split=split, evidence=e, verdicts=verdicts, judge=state, source_ready=1.0, target_ready=1.0, providers_lost=cells, is_paged=paged
    )
    decision = decide(r, seen, T0)
    if decision.next.direction == "home":
        return "home"
    if decision.next.step > r.step:
        return "raises"
    pages = any(isinstance(effect, Notify) and effect.level == "page" for effect in decision.effects)
    if decision.why.code.startswith("evidence."):
        return "holds, pages" if pages else "holds"
    return "waits"


def row(baseline: SignalState, canary: SignalState) -> Row:
    """Return one row of the table."""
    e = evidence(baseline, canary, "open")
    return Row(
        open=verdict(e),
        worse=verdict(evidence(baseline, canary, "worse")),
        good=verdict(evidence(baseline, canary, "good")),
        now=acts(e),
        alone=acts(e, lost_for=HOME_AFTER),
        many=acts(e, lost_for=HOME_AFTER, cells=PROVIDER_CELLS),
    )


def _rest() -> Iterator[tuple[str, str, str]]:
    before, _ = judge(fresh(1), evidence("ok", "ok", "good"), (ERRORS,))
    back = evidence("ok", "ok", "open")
    kind = judge(before, back, (ERRORS,))[1][0].kind
    does = f"{acts(back, before=before)}; alone after {HOME_AFTER.seconds} s: {acts(back, before=before, lost_for=HOME_AFTER)}"
    yield "counts that are lower than at an earlier look", kind, does
    yield "the source cannot be read at all", "none", f"{acts(None)}; alone after {HOME_AFTER.seconds} s: {acts(None, lost_for=HOME_AFTER)}"
    many = acts(None, lost_for=HOME_AFTER, cells=PROVIDER_CELLS)
    others = acts(None, lost_for=HOME_AFTER, cells=PROVIDER_CELLS, paged=True)
    yield "the same in three or more cells", "none", f"the first cell {many}; every other one {others}"
    few = evidence("ok", "stale", "open", missed={"baseline": 0, "canary": 19})
    yield "one arm quiet, and fewer than 20 of its requests were due", verdict(few), acts(few)
    lull = evidence("stale", "stale", "open", source_at=T0 - timedelta(seconds=29))
    yield "both arms quiet, and their source wrote something within 30 s: a lull", verdict(lull), acts(lull)
    unasked = evidence("stale", "stale", "open", source_at=T0 - timedelta(hours=1))
    text = "both arms quiet, and their source wrote nothing for 30 s: it is asked by a completion of our own"
    yield (
        text,
        verdict(unasked),
        f"{acts(unasked)}; where not even that shows within 5 s: {acts(unasked, proof_at=T0 - timedelta(seconds=6))}",
    )
    off = evidence("ok", "ok", "off")
    yield "a share that was not realised: 10 % set, 50 % served", verdict(off), f"{acts(off, weight_bp=1_000)}: the gate stays shut"
    yield "as good, at the share that was set", verdict(evidence("ok", "ok", "good")), acts(evidence("ok", "ok", "good"))
    gone = replace(evidence("ok", "empty", "open", missed={}), arms={"baseline": Counts(attempts=400), "canary": _LEFT})
    yield "every client of the canary goes away before the answer", verdict(gone), acts(gone)
    dead = {"led": {"baseline": "ok", "canary": "ok"}, "canary_outcomes": "x" * 10}
    for cells, text in ((1, ""), (PROVIDER_CELLS, ", in three or more cells")):
        failing = evidence("ok", "down", "open", **dead)
        what = f"a second source is down, and the first one shows that the canary fails all it gets{text}"
        yield what, verdict(failing), acts(failing, lost_for=HOME_AFTER, cells=cells)
    yield "worse, at the share that was set", verdict(evidence("ok", "ok", "worse")), acts(evidence("ok", "ok", "worse"))


_LEFT = Counts(gave_up=ClusterSums(clusters=60, errors=60, sum_sq=60))


def page() -> str:
    """Return the page."""
    lines = []
    for baseline in STATES:
        for canary in STATES:
            r = row(baseline, canary)
            lines.append(f"| {baseline} | {canary} | {r.open} | {r.worse} | {r.good} | {r.now} | {r.alone} | {r.many} |")
    rest = [f"| {what} | {kind} | {does} |" for what, kind, does in _rest()]
    return INTRO.format(home=HOME_AFTER.seconds) + "\n".join(lines) + "\n" + REST + "\n".join(rest) + "\n"
