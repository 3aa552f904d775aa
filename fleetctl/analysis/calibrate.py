"""Evidence, analysis layer: what a source compared with itself says about the least margins. Pure; never I/O, never a rollout's verdict.

Equal machines are not equal: hosts differ by a few per cent, and each drifts. The spread between hosts, minute by minute and beyond
what chance explains, is s. No margin may be below what s alone makes of two sets of hosts:

    latency, FAIL: max(5 %, 2.6 s sqrt(1 / baseline hosts + 1 / canary hosts)), 10 % with one canary host;  PASS: twice that
    errors, PASS: half of the base rate at least, and twice 2.6 s of error ratios;  FAIL: half of it, 0 where hosts fail alike

Source: evidence.md 4 (host effects, false rollbacks at zero margin 0.9 to 33 %), evidence.md 2 (errors never under half the base rate).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import fsum, log, sqrt

from fleetctl.analysis.halves import judged, log_sd
from fleetctl.domain.calibration import Calibration, HalvesVerdict, Sample
from fleetctl.domain.evidence import LADDER_METRICS, Arm
from fleetctl.domain.fleet import PhaseSpec
from fleetctl.domain.ids import CellId, WorkloadId
from fleetctl.domain.units import Instant
from fleetctl.domain.workload import Guardrail, GuardrailSpec

LEAST_REQUESTS = 3_000
"""Below this nothing is calibrated: a third freezes the thresholds, the rest is judged."""
BLOCK_MS = 60_000
LEAST_PER_BLOCK = 20
LEAST_LATENCY = 0.05
ONE_HOST = 0.10
NORMAL_99 = 2.6
MOST_SPLITS = 6
LEAST_ERRORS = 0.0005
"""Spread of error ratios below this is taken for none."""
WIDER, MOST_WIDER = 1.5, 4
"""Where halves of the source FAIL against each other, the margins are made so much wider, at most so often."""


def calibrate(
    samples: Sequence[Sample],
    phases: Sequence[PhaseSpec],
    *,
    cell: CellId,
    workload: WorkloadId,
    at: Instant,
    canary_hosts: int,
) -> Calibration:
    """Measure the source, judge halves of it, and propose the least margins; what the steps set below them is refused by name.

    Args:
        samples: requests of the source alone, LEAST_REQUESTS or more; canary_hosts: replicas of the target, from 1.

    Raises:
        ValueError: too few requests, with how many are missing.
    """
    if len(samples) < LEAST_REQUESTS:
        raise ValueError(f"{len(samples):,} requests of the source were seen, {LEAST_REQUESTS - len(samples):,} more are needed")
    hosts = tuple(sorted({s.host for s in samples}))
    timed = [s.latency_ms for s in samples if s.latency_ms is not None]
    errors = sum(s.failed for s in samples) / len(samples)
    host_sd, error_sd = latency_spread(samples), error_spread(samples)
    least_fail = {"latency": latency_margin(host_sd, len(hosts), canary_hosts), "errors": _error_margin(error_sd, len(hosts), canary_hosts)}
    least = _least(errors, least_fail)
    halves: tuple[HalvesVerdict, ...] = ()
    for left in range(MOST_WIDER, -1, -1):
        least = _least(errors, least_fail)
        halves = tuple(a_a(samples, hosts, least, least_fail, cell))
        if not left or not any(h.failed for h in halves):
            break
        least_fail = {"latency": least_fail["latency"] * WIDER, "errors": max(least_fail["errors"] * WIDER, LEAST_ERRORS)}
    least, least_fail = _of_all_times(least), _of_all_times(least_fail)
    starts = [s.started_ms for s in samples]
    return Calibration(
        cell=cell,
        workload=workload,
        at=at,
        requests=len(samples),
        hosts=hosts,
        span_s=(max(starts) - min(starts)) / 1000,
        error_ratio=errors,
        log_sd=log_sd(timed),
        host_sd=host_sd,
        error_sd=error_sd,
        least_margins={k: round(v, 6) for k, v in least.items()},
        least_fail_margins={k: round(v, 6) for k, v in least_fail.items()},
        halves=halves,
        refused=tuple(_refused(phases, least, least_fail)),
        canary_hosts=canary_hosts,
    )


def _of_all_times(margins: dict[str, float]) -> dict[str, float]:
    """Return the margins with those of a stream's times: a slow host is slow at each of them, and no half of the source tells them."""
    return {**margins, **dict.fromkeys(("ttft", "token_time"), margins["latency"])}


def _least(errors: float, least_fail: dict[str, float]) -> dict[str, float]:
    return {"latency": 2 * least_fail["latency"], "errors": max(errors / 2, 2 * least_fail["errors"])}


def latency_margin(host_sd: float, baseline_hosts: int, canary_hosts: int) -> float:
    """Return the least FAIL margin of latency, as a ratio."""
    chance = NORMAL_99 * host_sd * sqrt(1 / max(1, baseline_hosts) + 1 / max(1, canary_hosts))
    return max(ONE_HOST if canary_hosts <= 1 else LEAST_LATENCY, chance)


def _error_margin(error_sd: float, baseline_hosts: int, canary_hosts: int) -> float:
    found = NORMAL_99 * error_sd * sqrt(1 / max(1, baseline_hosts) + 1 / max(1, canary_hosts))
    return found if found >= LEAST_ERRORS else 0.0


def latency_spread(samples: Sequence[Sample]) -> float:
    """Return s of latency: spread of hosts' mean log latency about their minute's mean, less what chance alone gives; 0 with one host."""
    values = [(s, log(max(s.latency_ms, 1e-3))) for s in samples if s.latency_ms is not None]
    return _spread(values)


def error_spread(samples: Sequence[Sample]) -> float:
    """Return s of error ratios between hosts and minutes beyond chance, points / 100; 0 with one host."""
    return _spread([(s, 1.0 if s.failed else 0.0) for s in samples])


def _spread(values: Sequence[tuple[Sample, float]]) -> float:
    """Method of moments over blocks of one minute: between-host mean square less its expectation from the spread within."""
    blocks: dict[int, dict[str, list[float]]] = {}
    for s, v in values:
        blocks.setdefault(s.started_ms // BLOCK_MS, {}).setdefault(s.host, []).append(v)
    between = expected = weight = 0.0
    for by_host in blocks.values():
        full = [v for v in by_host.values() if len(v) >= LEAST_PER_BLOCK]
        if len(full) < 2:
            continue
        means = [fsum(v) / len(v) for v in full]
        middle = fsum(means) / len(means)
        between += fsum((m - middle) ** 2 for m in means) / (len(means) - 1)
        expected += fsum(_variance(v) / len(v) for v in full) / len(full)
        weight += 1
    return sqrt(max(0.0, (between - expected) / weight)) if weight else 0.0


def _variance(values: Sequence[float]) -> float:
    mean = fsum(values) / len(values)
    return fsum((v - mean) ** 2 for v in values) / (len(values) - 1)


def a_a(
    samples: Sequence[Sample], hosts: Sequence[str], least: dict[str, float], least_fail: dict[str, float], cell: CellId
) -> list[HalvesVerdict]:
    """Judge halves of the source at the proposed margins: every split of its hosts up to six, or its requests where it has one host."""
    specs = tuple(
        GuardrailSpec(name=Guardrail(name), margin=max(least[name], 1e-4), fail_margin=least_fail[name]) for name in ("errors", "latency")
    )
    if len(hosts) < 2:
        halved = [
            Sample(host=f"half {i % 2}", started_ms=s.started_ms, failed=s.failed, latency_ms=s.latency_ms) for i, s in enumerate(samples)
        ]
        arms: dict[str, Arm] = {"half 0": "baseline", "half 1": "canary"}
        return [judged(halved, arms, specs, cell=cell, split="every other request")[0]]
    out = []
    for canary in list(combinations(hosts, len(hosts) // 2))[:MOST_SPLITS]:
        of: dict[str, Arm] = {h: "canary" if h in canary else "baseline" for h in hosts}
        rest = ", ".join(h for h in hosts if h not in canary)
        out.append(judged(samples, of, specs, cell=cell, split=f"{rest} | {', '.join(canary)}")[0])
    return out


def _refused(phases: Sequence[PhaseSpec], least: dict[str, float], least_fail: dict[str, float]) -> list[str]:
    found = []
    for p in phases:
        for g in p.guardrails:
            if not g.judged or g.name not in least:
                continue
            for what, value, wanted in (("margin", g.margin, least[g.name]), ("fail_margin", g.fail_margin, least_fail[g.name])):
                if value < wanted - 1e-9:
                    found.append(
                        f"{p.phase} at {p.weight_bp / 100:g} %: {g.name} {what} {_unit(g.name, value)}, at least {_unit(g.name, wanted)}"
                    )
    return found


def _unit(guardrail: str, value: float) -> str:
    return f"{value * 100:.3g}%" if guardrail in LADDER_METRICS else f"{value * 100:.3g} points"
