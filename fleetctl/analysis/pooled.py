"""Judge, pure layer: PASS on the evidence of equal cells together (lane pooled). Never a FAIL: each cell fails by itself; never I/O.

The cells' requests are independent and their effect is the same (equal model, revision, image and SKU), so the product of their PASS
processes at one step is again an e-process for "the canary is worse by the margin". A process that has reached 20 is stopped there and
counts 20 and no more. One that left the step earlier (on the group's PASS, a person's word, or home) is stopped where it stood then, be
that below 1; a cell that has not begun the step counts 1. One cell that failed holds all of them.

Source: products of independent e-values, Vovk and Wang, "E-values: calibration, combination and applications" (2021); evidence.md 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log

from fleetctl.analysis import clusters
from fleetctl.analysis.guardrails import PASS_BOUND, pass_log
from fleetctl.analysis.judge import ALL, all_specs
from fleetctl.analysis.memory import Memory, unpack
from fleetctl.analysis.power import LEAST_CANARY
from fleetctl.domain.evidence import Evidence, JudgeState, Verdict
from fleetctl.domain.ids import CellId
from fleetctl.domain.rollout import Stop
from fleetctl.domain.workload import GuardrailSpec

_BOUND = log(PASS_BOUND)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """Another cell of the group as it stands at the same step.

    Args:
        state: its judge's state; None where it is not at the step.
        stop: what it had shown when it left the step, None where it has not; failed: it has failed anywhere on its way.
    """

    cell: CellId
    state: JudgeState | None
    stop: Stop | None = None
    failed: bool = False


def stop_of(state: JudgeState, step: int) -> Stop:
    """Return what a judge's state has shown at a step that is being left."""
    memory = unpack(state)
    passes = tuple((name, _stopped(memory, name)) for name in sorted(memory.passes))
    return Stop(step=step, canary=memory.arm("canary").attempts, passes=passes)


def pooled(
    verdicts: Sequence[Verdict], state: JudgeState, evidence: Evidence, members: Sequence[Member], specs: Sequence[GuardrailSpec]
) -> tuple[Verdict, ...]:
    """Return a cell's verdicts with PASS where the group has shown it together; all others stay as they are.

    Args:
        verdicts, state: of the cell's own judge at this look, state after it.
    """
    specs = all_specs(specs, evidence)
    failed = next((m.cell for m in members if m.failed), None)
    if failed is not None:
        return tuple(replace(v, kind="INCONCLUSIVE", detail=f"equal cell {failed} failed") if v.kind == "PASS" else v for v in verdicts)
    others = [*(m.stop for m in members if m.stop is not None), *(stop_of(m.state, 0) for m in members if m.state is not None)]
    canary = evidence.arms["canary"].attempts + sum(o.canary for o in others)
    logs = [dict(o.passes) for o in (stop_of(state, 0), *others)]
    judged: dict[str, float] = {s.name: _product(logs, s.name) for s in specs if s.judged and s.needs_pass}
    out = []
    for v in verdicts:
        value = judged.get(v.guardrail)
        if value is None or v.kind != "INCONCLUSIVE" or v.blocked or canary < LEAST_CANARY:
            out.append(v)
        elif value >= _BOUND:
            text = f"with {len(members)} equal cells, {canary:,} canary requests together"
            out.append(replace(v, kind="PASS", pass_e_value=exp(min(value, 700.0)), missing=0, detail=text))
        else:
            out.append(replace(v, pass_e_value=exp(max(min(value, 700.0), -700.0))))
    return tuple(_whole(v, out, judged) if v.guardrail == ALL else v for v in out)


def _whole(whole: Verdict, parts: Sequence[Verdict], judged: dict[str, float]) -> Verdict:
    mine = [v for v in parts if v.guardrail in judged]
    if whole.kind != "INCONCLUSIVE" or whole.blocked or not mine or any(v.kind != "PASS" for v in mine):
        return whole
    return replace(whole, kind="PASS", pass_e_value=min(v.pass_e_value for v in mine), missing=0, detail="")


def _product(logs: Sequence[Mapping[str, float]], guardrail: str) -> float:
    """Return the log of the group's PASS process: the least over the guardrail's rungs."""
    names = {n for own in logs for n in own if n == guardrail or n.startswith(f"{guardrail}/")}
    return min((sum(own.get(n, 0.0) for own in logs) for n in names), default=0.0)


def _stopped(memory: Memory, name: str) -> float:
    bank = memory.passes[name]
    effect = clusters.effect_on_pass(memory, name)
    return _BOUND if bank.reached else pass_log(bank, effect)
