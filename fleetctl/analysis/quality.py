"""Evidence, analysis layer: does the canary say the same next, beyond what the reference itself repeats? Pure; no text is kept.

The reference's own text is forced on all sides, so every position is compared in the same context. Exact equality is no gate: the
reference differs from itself (batching, kernels). So the same position is asked twice of the reference, and the canary is judged on what
it differs MORE than the repeat does. Near ties count as agreement.

PASS: the excess is shown to be below the tolerated one (e-value 20), the mean KL is within its bound, and texts beyond the prefill chunk
were among them. FAIL: the canary differs more often (e-value 100) on at least 20 texts and by more than the tolerated excess.

Source: canary.md 4.2-4.4, evidence.md 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, fsum, isfinite, log

from fleetctl.analysis import signs
from fleetctl.analysis.shadow import FAIL_BOUND, PASS_BOUND, is_near_tie, top_kl
from fleetctl.domain.quality import Choice, QualityBucket, QualityReport, QualitySpec, Triple
from fleetctl.domain.units import Instant

EDGES = (64, 512)
"""Class bounds of lengths in tokens, beside the prefill chunk."""


def quality_report(triples: Sequence[Triple], spec: QualitySpec, at: Instant, model: str = "") -> QualityReport:
    """Judge all triples so far; adapter models are judged by their own name, each with its own triples.

    Args:
        triples: in any order, of one model name.
    """
    edges = sorted({e for e in EDGES if e < spec.prefill_chunk} | {spec.prefill_chunk})
    buckets = tuple(
        _bucket(name, mine, spec) for name, low, high in _classes(edges) if (mine := [t for t in triples if low <= t.prompt_len < high])
    )
    whole = _bucket("all", triples, spec)
    effect = signs.design_effect(_by_prompt(triples, spec))
    b, c, n = whole.only_canary, whole.only_repeat, whole.positions
    e_fail = signs.log_fail(b, c, effect)
    e_pass = signs.log_pass(n, b, c, spec.excess, effect)
    kind, why = _kind(whole, e_fail, e_pass, spec, beyond=any(t.prompt_len > spec.prefill_chunk for t in triples))
    missing = signs.missing_trials(n, b, c, spec.excess, effect, PASS_BOUND)
    return QualityReport(
        model=model,
        at=at,
        kind=kind,
        whole=whole,
        buckets=buckets,
        e_fail=signs.as_e(e_fail),
        e_pass=signs.as_e(e_pass),
        effect=effect,
        missing=0 if kind == "PASS" else ceil(missing) if isfinite(missing) else None,
        why=why,
        settings={"excess": spec.excess, "near_tie_nat": spec.near_tie_nat, "kl_excess": spec.kl_excess, "chunk": spec.prefill_chunk},
    )


def _kind(whole: QualityBucket, e_fail: float, e_pass: float, spec: QualitySpec, *, beyond: bool) -> tuple[str, str]:
    if not whole.positions:
        return "NO_DATA", "nothing was compared"
    excess = (whole.only_canary - whole.only_repeat) / whole.positions
    kl = whole.kl - (whole.kl_floor or 0.0) if whole.kl is not None else None
    if e_fail >= log(FAIL_BOUND) and excess > spec.excess and whole.prompts >= spec.least_prompts:
        return "FAIL", f"differs on {excess:.1%} more positions than the reference from itself"
    if whole.prompts < spec.least_prompts:
        return "INCONCLUSIVE", f"{whole.prompts} of {spec.least_prompts} texts"
    if not beyond:
        return "INCONCLUSIVE", f"no text is longer than the prefill chunk of {spec.prefill_chunk} tokens"
    if kl is not None and kl > spec.kl_excess:
        return "INCONCLUSIVE", f"mean KL is {kl:.4f} nat above the reference's own, at most {spec.kl_excess:g} may be"
    if e_pass >= log(PASS_BOUND):
        return "PASS", ""
    return "INCONCLUSIVE", f"the excess of {excess:.1%} is not yet shown to be below {spec.excess:.1%}"


def _classes(edges: Sequence[int]) -> list[tuple[str, int, int]]:
    bounds = [0, *(e + 1 for e in edges), 10**9]
    names = [f"to {e}" for e in edges] + [f"over {edges[-1]}"]
    return [(name, low, high) for name, low, high in zip(names, bounds, bounds[1:], strict=False)]


def differs(a: Choice, b: Choice, near_tie_nat: float) -> bool:
    """Tell whether two sides would say something else next, near ties aside."""
    return a.token != b.token and not is_near_tie(a, b, near_tie_nat)


def _by_prompt(triples: Sequence[Triple], spec: QualitySpec) -> list[tuple[int, int]]:
    found: dict[str, list[int]] = {}
    for t in triples:
        row = found.setdefault(t.prompt, [0, 0])
        canary, repeat = differs(t.reference, t.canary, spec.near_tie_nat), differs(t.reference, t.repeat, spec.near_tie_nat)
        row[0] += canary and not repeat
        row[1] += repeat and not canary
    return [(b, c) for b, c in found.values()]


def _bucket(name: str, triples: Sequence[Triple], spec: QualitySpec) -> QualityBucket:
    n = len(triples)
    canary = [differs(t.reference, t.canary, spec.near_tie_nat) for t in triples]
    repeat = [differs(t.reference, t.repeat, spec.near_tie_nat) for t in triples]
    ties = sum(t.reference.token != t.canary.token and not d for t, d in zip(triples, canary, strict=True))
    deltas = sorted(d for t in triples if (d := _delta(t)) is not None)
    kl = [k for t in triples if (k := top_kl(t.reference, t.canary)) is not None]
    kl_floor = [k for t in triples if (k := top_kl(t.reference, t.repeat)) is not None]
    return QualityBucket(
        name=name,
        prompts=len({t.prompt for t in triples}),
        positions=n,
        same_top=1 - sum(canary) / n if n else 0.0,
        floor=sum(repeat) / n if n else 0.0,
        delta_mean=fsum(deltas) / len(deltas) if deltas else None,
        delta_p99=deltas[min(len(deltas) - 1, int(0.99 * len(deltas)))] if deltas else None,
        kl=fsum(kl) / len(kl) if kl else None,
        kl_floor=fsum(kl_floor) / len(kl_floor) if kl_floor else None,
        only_canary=sum(c and not r for c, r in zip(canary, repeat, strict=True)),
        only_repeat=sum(r and not c for c, r in zip(canary, repeat, strict=True)),
        near_ties=ties,
    )


def _delta(t: Triple) -> float | None:
    here, there = _logprob(t.reference, t.forced), _logprob(t.canary, t.forced)
    return abs(here - there) if here is not None and there is not None else None


def _logprob(choice: Choice, token: str) -> float | None:
    return choice.logprob if choice.token == token else dict(choice.top).get(token)
