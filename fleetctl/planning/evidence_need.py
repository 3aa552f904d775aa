"""Plan, pure layer: how many canary requests and hours a step needs before it can PASS. Never looks at real evidence, never I/O.

Canary requests to PASS when both arms are equal: c x ln(1 / 0.05) / KL*, with
  KL*  = kl(canary, null) + ((1 - w) / w) kl(baseline, null), the null that is hardest to exclude, w = share of the canary
  c    = 1.0 for the median and 2.1 for the p90 of runs
Errors: null = the canary is worse by the margin. Latency: per rung q of the baseline's ladder, canary requests slower than
(1 + margin) x the rung against baseline requests slower than the rung; latencies lognormal with the given log-sd.

Source: limit formula: evidence.md 1; c fitted to the tables of evidence.md 2 (p90 within 40 % in every cell, within 25 % in most).
The judge's own planner (fleetctl.analysis.power) has the same signature and is passed in where it is at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from math import ceil, inf, log
from statistics import NormalDist
from typing import Protocol

from fleetctl.domain.evidence import LADDER, LADDER_METRICS, SETTLE_S
from fleetctl.domain.fleet import Connection, PhaseSpec, Policy
from fleetctl.domain.plan import GuardrailNeed, StepNeed
from fleetctl.domain.workload import REFUSALS, SLOW_MARGINS, Cell, Guardrail, GuardrailSpec, Lane, Requests, Workload, model_guardrails

PASS_ALPHA = 0.05
P90_FACTOR = 2.1
LEAST_REQUESTS = 100
NEVER: Requests = 10**12
"""Stands for a number of requests that no traffic will bring."""
ASSUMED_ERROR_RATIO = 0.005
ASSUMED_LOG_SD = 0.6
"""Where nothing was measured or declared. Source: evidence.md 2, the case its default margins were set for."""
LANE_LIMIT_HOURS = 72.0
"""Above this an `own` lane is refused. Source: evidence.md 2."""
_SLOW_RATE = 0.10
DEFAULT_PAIRS_PER_S = 1.0
"""Of paired probes that name no rate."""

PlannedFails = Callable[[Guardrail, float, float, float, float], tuple[Requests, Requests]]
"""(guardrail, effect beyond the FAIL margin, error ratio of the baseline, log-sd, share) -> (median, p90) canary requests to FAIL."""


class PlannedRequests(Protocol):
    """Works out canary requests to a PASS."""

    def __call__(
        self, guardrail: Guardrail, margin: float, base_rate: float, log_sd: float, share: float, /, *, rungs: tuple[float, ...] = ()
    ) -> tuple[Requests, Requests]:
        """Return (median, p90); margin, error ratio of the baseline, log-sd of latency, share of the canary; margins of the rungs."""
        ...


RAISING = frozenset({"canary", "ramp", "full"})
"""Phases whose end raises the weight: the longer bake time of a signed acceptance holds there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What verdicts cost in canary requests.

    Args:
        passes: to a PASS; fails: to a FAIL, None where it is not worked out.
    """

    passes: PlannedRequests
    fails: PlannedFails | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What a workload's source side looks like.

    Args:
        error_ratio: 0 to 1; log_sd: of latency, natural log; origin: "measured", "declared" or "assumed".
        least_margins: smallest PASS margin per guardrail that the fleet's own A/A comparison allows; {} before calibration.
        least_fail_margins: the same of FAIL margins.
    """

    error_ratio: float
    log_sd: float
    origin: str
    least_margins: Mapping[str, float] = field(default_factory=dict, hash=False)
    least_fail_margins: Mapping[str, float] = field(default_factory=dict, hash=False)


def baseline_of(workload: Workload, measured: Mapping[str, Baseline]) -> Baseline:
    """Return the measured baseline, else what the workload's serving section declares, else the assumed one."""
    if workload.id in measured:
        return measured[workload.id]
    if "log_sd" in workload.serving:
        try:
            ratio, log_sd = float(workload.serving.get("error_ratio", "0")), float(workload.serving["log_sd"])
        except ValueError:
            ratio, log_sd = -1.0, 0.0
        if 0 <= ratio < 1 and 0 < log_sd < inf:
            return Baseline(error_ratio=ratio, log_sd=log_sd, origin="declared")
    return Baseline(error_ratio=ASSUMED_ERROR_RATIO, log_sd=ASSUMED_LOG_SD, origin="assumed")


def planned_requests(
    guardrail: Guardrail, margin: float, base_rate: float, log_sd: float, share: float, *, rungs: tuple[float, ...] = ()
) -> tuple[Requests, Requests]:
    """Return (median, p90) of the canary requests after which this guardrail PASSes if both arms are equal.

    Args:
        margin: points / 100 for shares, a ratio for latency; base_rate: of errors, 0 to 1; log_sd: of latency, above 0.
        share: of the canary, above 0 and below 1. NEVER where no number of requests is enough.
    """
    if not 0 < share < 1 or margin <= 0:
        return NEVER, NEVER
    if guardrail in LADDER_METRICS:
        margins = rungs or (margin,) * len(LADDER)
        information = min(_latency_information(q, log_sd, m, share) for q, m in zip(LADDER, margins, strict=True))
    else:
        information = _ratio_information(base_rate, margin, share)
    if information <= 0:
        return NEVER, NEVER
    median = log(1 / PASS_ALPHA) / information
    return _enough(median), _enough(P90_FACTOR * median)


def _enough(requests: float) -> Requests:
    return max(LEAST_REQUESTS, ceil(requests / 10) * 10)


def _kl(a: float, b: float) -> float:
    left = a * log(a / b) if a > 0 else 0.0
    right = (1 - a) * log((1 - a) / (1 - b)) if a < 1 else 0.0
    return left + right


def _ratio_information(ratio: float, margin: float, share: float) -> float:
    if margin <= 0 or ratio + margin >= 1:
        return 0.0

    def distance(null: float) -> float:
        return _kl(ratio, null + margin) + (1 - share) / share * _kl(ratio, null)

    low, high = 1e-12, 1 - margin - 1e-12
    for _ in range(100):  # convex in the null: a ternary search finds its least value
        third = (high - low) / 3
        if distance(low + third) < distance(high - third):
            high -= third
        else:
            low += third
    return distance(low)


def _latency_information(rung: float, log_sd: float, margin: float, share: float) -> float:
    if margin <= 0 or log_sd <= 0:
        return 0.0
    normal = NormalDist()
    slow_baseline = 1 - rung
    slow_canary = 1 - normal.cdf(normal.inv_cdf(rung) + log(1 + margin) / log_sd)
    null = share * slow_canary + (1 - share) * slow_baseline
    return _kl(slow_canary, null) + (1 - share) / share * _kl(slow_baseline, null)


def phases_for(policy: Policy, workload: Workload, lane: Lane | None = None) -> tuple[PhaseSpec, ...]:
    """Return the policy's steps as they hold for one cell: shadow only where declared, a stream's latency shown but not judged.

    Quality is judged where answers are compared (shadow), not at steps with weight, where nobody compares any.

    Args:
        lane: a longer bake time of it holds at every step whose end raises the weight.
    """
    longer = lane.bake if lane is not None else timedelta(0)
    steps = (s for s in policy.steps if s.phase != "shadow" or workload.shadow is not None)
    return tuple(
        PhaseSpec(
            phase=s.phase,
            weight_bp=s.weight_bp,
            bake=max(s.bake, longer) if s.phase in RAISING else s.bake,
            guardrails=_guardrails(s.guardrails, workload),
        )
        for s in steps
    )


def distinct_needed(phases: Sequence[PhaseSpec]) -> int:
    """Return how many different requests a replay must hold: 3 / margin of them without one failure exclude a share at it with 95 %.

    The same few sent again and again, at temperature 0, tell nothing of the kinds of request that are not among them.
    """
    specs = [s for p in phases if p.weight_bp > 0 for s in p.guardrails if s.judged and s.needs_pass and s.margin > 0]
    margins = [s.margin for s in specs if s.name in ("errors", "slo_misses") or s.name.startswith("finish_")]
    return ceil(round(3 / min(margins), 6)) if margins else 1


def _guardrails(specs: tuple[GuardrailSpec, ...], workload: Workload) -> tuple[GuardrailSpec, ...]:
    kept = tuple(
        GuardrailSpec(
            name=g.name,
            margin=g.margin,
            fail_margin=g.fail_margin,
            judged=g.judged and g.name != "quality" and not (workload.traffic.streaming and g.name == "latency"),
            rungs=g.rungs,
        )
        for g in specs
        if g.name in workload.guardrails
    )
    return (*kept, *_adapters(kept, workload)) if workload.adapters else kept


def _adapters(kept: tuple[GuardrailSpec, ...], workload: Workload) -> Iterator[GuardrailSpec]:
    """Yield a guardrail for errors and for slow requests of every adapter model: each can FAIL, and only one that is named must PASS."""
    errors = next((g for g in kept if g.name == "errors" and g.judged), None)
    timed = any(g.name in ("latency", "ttft") and g.judged for g in kept)
    for adapter in workload.adapters:
        failed, slow = model_guardrails(adapter)
        if errors is not None and failed not in workload.guardrails:
            yield replace(errors, name=failed, needs_pass=False)
        if timed and slow not in workload.guardrails:
            yield GuardrailSpec(name=slow, margin=SLOW_MARGINS[0], fail_margin=SLOW_MARGINS[1], needs_pass=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """Paired probes of a cell: each pair asks both arms, so they come at their own rate and at a share of one half, whatever the traffic.

    Args:
        source: its name in the fleet file; per_s: pairs per second, above 0.
    """

    source: str
    per_s: float

    def tells(self, guardrail: Guardrail) -> bool:
        """Tell whether this guardrail's evidence is the probes' (the router's log has no such times, and no finish reasons)."""
        return guardrail in LADDER_METRICS[1:] or guardrail.startswith("finish_") or guardrail == f"errors_{self.source}"


def probed_of(cell: Cell, sources: Iterable[Connection]) -> Probed | None:
    """Return the paired probes that a cell names, None where it names none."""
    found = next((s for name in cell.evidence for s in sources if s.name == name and s.kind == "probes"), None)
    return Probed(source=found.name, per_s=float(found.settings.get("pairs_per_s", DEFAULT_PAIRS_PER_S))) if found is not None else None


def with_probes(phases: tuple[PhaseSpec, ...], probed: Probed | None) -> tuple[PhaseSpec, ...]:
    """Return the steps with the errors of paired probes judged beside errors, with refusals' margin: they can FAIL, and no step waits.

    Args:
        probed: None where the cell has none, or where they are its first source, whose errors are the guardrail itself.
    """
    if probed is None:
        return phases
    name = Guardrail(f"errors_{probed.source}")
    out = []
    for phase in phases:
        errors = next((g for g in phase.guardrails if g.name == "errors" and g.judged), None)
        if errors is not None and all(g.name != name for g in phase.guardrails):
            own = replace(errors, name=name, fail_margin=max(errors.fail_margin, errors.margin), needs_pass=False)
            phase = replace(phase, guardrails=(*phase.guardrails, own))
        out.append(phase)
    return tuple(out)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast evidence comes.

    Args:
        per_s: requests per second on both arms; trough_per_s: in the quietest hour, 0 where unknown.
        share: of the canary where it is not the step's weight (a replay asks both arms alike); None: the step's.
        needs_pass: False where the lane asks for no PASS (accepted): only time counts.
        probed: what is measured by paired probes, at their pace.
    """

    per_s: float
    trough_per_s: float = 0.0
    share: float | None = None
    needs_pass: bool = True
    probed: Probed | None = None

    def of(self, guardrail: Guardrail, weight: float, *, at_trough: bool = False) -> tuple[float, float]:
        """Return the canary's share and its requests per second that count for a guardrail at a step of this weight, 0 to 1."""
        if self.probed is not None and self.probed.tells(guardrail):
            return 0.5, self.probed.per_s
        share = weight if self.share is None else self.share
        return share, (self.trough_per_s if at_trough else self.per_s) * share


def step_needs(
    cell: Cell,
    workload: Workload,
    policy: Policy,
    baseline: Baseline,
    costs: Costs,
    pace: Pace | None = None,
) -> tuple[StepNeed, ...]:
    """Return per step what one cell needs and how long that takes; hours may be infinite.

    Args:
        pace: how fast its evidence comes; None: at its own rate, by its declared lane.
    """
    traffic = workload.traffic
    pace = pace or Pace(per_s=traffic.requests_per_s, trough_per_s=traffic.trough_per_s, needs_pass=cell.lane.kind != "accepted")
    out: list[StepNeed] = []
    warm_up = policy.warm_up.total_seconds()
    for phase in phases_for(policy, workload, cell.lane):
        seconds = phase.bake.total_seconds()
        positions = 0
        if phase.phase == "shadow" and workload.shadow is not None:
            positions = workload.shadow.positions
            seconds = max(seconds, _shadow_seconds(workload))
        if phase.weight_bp > 0 and warm_up:
            seconds, warm_up = seconds + warm_up, 0.0
        gating = gating_of(phase) if pace.needs_pass else ()
        weight = phase.weight_bp / 10_000
        needs = tuple(_need(g, baseline, costs, pace, weight, workload) for g in gating)
        took = {n.guardrail: _seconds(n.passes[1], pace.of(n.guardrail, weight)[1]) + _settling(n, workload, pace) for n in needs}
        quiet = [_seconds(n.passes[1], pace.of(n.guardrail, weight, at_trough=True)[1]) + _settling(n, workload, pace) for n in needs]
        binding = max(needs, key=lambda n: (took[n.guardrail], n.passes[1]), default=None)
        out.append(
            StepNeed(
                phase=phase.phase,
                weight_bp=phase.weight_bp,
                requests={n.guardrail: n.passes[1] for n in needs},
                hours=_rounded(max(seconds, *took.values(), 0.0) / 3600),
                trough_hours=_rounded(max(seconds, *quiet, 0.0) / 3600) if pace.trough_per_s > 0 else None,
                positions=positions,
                binding=binding.guardrail if binding is not None else "",
                guardrails=needs,
            )
        )
    return tuple(out)


def _settling(need: GuardrailNeed, workload: Workload, pace: Pace) -> float:
    """Return how long a PASS on errors of streams waits until none of the requests that it rests on still runs, seconds.

    A replay and paired probes end in time.
    """
    is_of_streams = workload.traffic.streaming and need.guardrail == "errors" and pace.share is None
    return SETTLE_S if is_of_streams and need.pairs_per_s is None else 0.0


def base_rate(guardrail: Guardrail, workload: Workload, baseline: Baseline) -> tuple[float, str]:
    """Return a share's rate on the baseline and where that is from: measured, declared or assumed.

    Failed requests have the error ratio, slow ones of an adapter model what is above a p90; others are as the workload's serving section
    declares them (`rate_<guardrail>`), else assumed to be as rare as errors.
    """
    if guardrail in LADDER_METRICS or guardrail in ("errors", REFUSALS) or guardrail.startswith(("errors_", "model_errors_")):
        return baseline.error_ratio, baseline.origin
    if guardrail.startswith("model_slow_"):
        return _SLOW_RATE, "declared"
    try:
        declared = float(workload.serving.get(f"rate_{guardrail}", "-1"))
    except ValueError:
        declared = -1.0
    return (declared, "declared") if 0 <= declared < 1 else (baseline.error_ratio, "assumed")


def _seconds(requests: Requests, per_s: float) -> float:
    if not requests:
        return 0.0
    return requests / per_s if per_s > 0 and requests < NEVER else inf


def _need(g: GuardrailSpec, baseline: Baseline, costs: Costs, pace: Pace, weight: float, workload: Workload) -> GuardrailNeed:
    share, _ = pace.of(g.name, weight)
    rate, origin = base_rate(g.name, workload, baseline)

    def passes(part: float) -> tuple[Requests, Requests]:
        rungs = tuple(m * part for m in g.rungs)
        return costs.passes(g.name, g.margin * part, rate, baseline.log_sd, share, rungs=rungs)

    effect = 2 * g.margin - g.fail_margin
    return GuardrailNeed(
        guardrail=g.name,
        margin=g.margin,
        fail_margin=g.fail_margin,
        rungs=g.rungs,
        error_ratio=rate,
        log_sd=baseline.log_sd,
        origin=origin,
        passes=passes(1.0),
        half=passes(0.5),
        fails=costs.fails(g.name, effect, rate, baseline.log_sd, share) if costs.fails is not None else None,
        least_margin=baseline.least_margins.get(g.name),
        replicas=(workload.replicas, workload.replicas),
        pairs_per_s=pace.probed.per_s if pace.probed is not None and pace.probed.tells(g.name) else None,
    )


def gating_of(phase: PhaseSpec) -> tuple[GuardrailSpec, ...]:
    """Return what must PASS before this step may end: all that is judged up to 50 %, errors alone while the control is 5 %."""
    if not 0 < phase.weight_bp < 10_000 or phase.phase not in {"canary", "ramp", "full", "soak"}:
        return ()
    return tuple(g for g in phase.guardrails if g.judged and g.needs_pass and (phase.phase in {"canary", "ramp"} or g.name == "errors"))


def _shadow_seconds(workload: Workload) -> float:
    shadow, traffic = workload.shadow, workload.traffic
    if shadow is None:
        return 0.0
    per_s = min(shadow.sample_per_s, traffic.requests_per_s) * traffic.output_tokens
    return shadow.positions / per_s if per_s > 0 else inf


def _rounded(hours: float) -> float:
    return hours if hours == inf else round(hours, 6)


def hours_to_soak(needs: tuple[StepNeed, ...]) -> float:
    """Return the planned hours of all steps before soak; infinite where one can never end."""
    return sum(n.hours for n in needs if n.phase not in {"soak", "complete", "release"})
