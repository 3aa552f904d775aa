"""Evidence, analysis layer: do both sides give the same answers to the same prompts? Pure; no text is kept, none is needed.

Answers are greedy, so after the first position where the sides choose differently their contexts differ and nothing more can be
compared. Each compared position is one trial that ends a comparison at its first failure; near ties are no failures.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from fleetctl.domain.evidence import Look, Pair, Verdict, VerdictKind
from fleetctl.domain.quality import Choice
from fleetctl.domain.units import Instant
from fleetctl.domain.workload import Guardrail, ShadowSpec

QUALITY = Guardrail("quality")
FAIL_BOUND, PASS_BOUND = 100.0, 20.0
"""What the e-values are held against: alpha 1 % and 5 %. Source: design 7."""
LEAST_PAIRS_TO_FAIL = 20
"""Positions of one answer share its prompt; a FAIL rests on at least this many answers that could be compared."""
ODDS = (1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0, 1000.0)
"""Alternatives of the e-values: odds of a mismatch times (FAIL) or over (PASS) those at the bound, weighed alike."""
_MOST = 1e12
_LEAST_RATIO = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The counted fields of a `Pair`."""

    positions: int
    same_top: int
    first_divergence: int | None
    near_tie: bool
    logprob_delta: float
    kl: float | None


def compare(baseline: Sequence[Choice], canary: Sequence[Choice], near_tie_nat: float) -> Comparison:
    """Compare two greedy answers to one prompt, position by position, up to and including the first divergence.

    An answer that ends where the other goes on has diverged there, without a near tie: the end's own log-probability is not told.

    Args:
        near_tie_nat: two tokens count as tied where, on both sides, their log-probabilities are at most this far apart.
    """
    same = 0
    while same < min(len(baseline), len(canary)) and baseline[same].token == canary[same].token:
        same += 1
    diverged = same < max(len(baseline), len(canary))
    both_chose = diverged and same < min(len(baseline), len(canary))
    tied = both_chose and is_near_tie(baseline[same], canary[same], near_tie_nat)
    deltas = [abs(b.logprob - c.logprob) for b, c in zip(baseline[:same], canary[:same], strict=True)]
    seen = same + both_chose
    kls = [k for b, c in zip(baseline[:seen], canary[:seen], strict=True) if (k := top_kl(b, c)) is not None]
    return Comparison(
        positions=same + diverged,
        same_top=same,
        first_divergence=same if diverged else None,
        near_tie=tied,
        logprob_delta=math.fsum(deltas) / same if same else 0.0,
        kl=math.fsum(kls) / len(kls) if kls else None,
    )


def top_kl(baseline: Choice, canary: Choice) -> float | None:
    """Return the KL divergence (nat) of the canary's next-token distribution from the baseline's; None without shared tokens.

    Tokens that both sides told are taken one by one and all others as one, so this never exceeds the full divergence
    (data-processing inequality).
    """
    told = dict(canary.top)
    shared = [(b, told[token]) for token, b in baseline.top if token in told]
    if not shared:
        return None
    floor = 1e-9
    rest_b = max(floor, 1 - math.fsum(math.exp(b) for b, _ in shared))
    rest_c = max(floor, 1 - math.fsum(math.exp(c) for _, c in shared))
    return max(0.0, math.fsum(math.exp(b) * (b - c) for b, c in shared) + rest_b * math.log(rest_b / rest_c))


def shadow_verdict(pairs: Sequence[Pair], spec: ShadowSpec, at: Instant | None = None) -> Verdict:
    """Judge all comparisons so far on the guardrail "quality".

    FAIL where the share of mismatched positions is above `spec.max_mismatch_ratio` beyond doubt (e-value of 100, at least 20
    answers); PASS where at least `spec.positions` were compared and the share is below it beyond doubt (e-value of 20), so that looking
    again and again until it happens to be low helps nothing; else INCONCLUSIVE, with the comparisons still needed if the share stays as
    it is; NO_DATA where there is none.

    Args:
        at: time of this look; that of the newest comparison where None.
    """
    good = [p for p in pairs if not p.error and p.positions > 0]
    positions = sum(p.positions for p in good)
    mismatches = sum(1 for p in good if p.first_divergence is not None and not p.near_tie)
    fail_e, pass_e = mismatch_e_values(mismatches, positions, spec.max_mismatch_ratio)
    missing: int | None = None
    if not good:
        kind: VerdictKind = "NO_DATA"
    elif fail_e >= FAIL_BOUND and len(good) >= LEAST_PAIRS_TO_FAIL:
        kind = "FAIL"
    elif positions >= spec.positions and pass_e >= PASS_BOUND:
        kind, missing = "PASS", 0
    else:
        kind, missing = "INCONCLUSIVE", _missing(mismatches, positions, len(good), pass_e, spec)
    look = Look(
        at=at or (pairs[-1].at if pairs else datetime(1970, 1, 1, tzinfo=UTC)),
        baseline_n=positions,
        canary_n=positions,
        baseline_events=0,
        canary_events=mismatches,
        share=0.0,
    )
    return Verdict(
        kind=kind,
        guardrail=QUALITY,
        e_value=fail_e,
        pass_e_value=pass_e,
        fail_bound=FAIL_BOUND,
        pass_bound=PASS_BOUND,
        missing=missing,
        look=look,
        detail=_detail(pairs, good, positions, mismatches, spec),
    )


def _missing(mismatches: int, positions: int, answers: int, pass_e: float, spec: ShadowSpec) -> int | None:
    """Return the answers still to be compared; None where the share as it is can never pass."""
    needed = float(spec.positions - positions)
    if pass_e < PASS_BOUND:
        p = min(max(spec.max_mismatch_ratio, _LEAST_RATIO), 1 - _LEAST_RATIO)
        share = max(mismatches / positions, _LEAST_RATIO / 2)
        if share >= p:
            return None
        drift = _likelihood_ratio(mismatches, positions, p, share) / positions
        needed = max(needed, (math.log(PASS_BOUND) - math.log(max(pass_e, 1 / _MOST))) / drift)
    return math.ceil(needed * answers / positions)


def mismatch_e_values(mismatches: int, positions: int, bound: float) -> tuple[float, float]:
    """Return the evidence against "the mismatch ratio is at most `bound`" and against "it is at least `bound`".

    Each is a mixture, over fixed alternatives, of exact binomial likelihood ratios, hence an e-value at every look: under its
    hypothesis the mean is at most 1, for ratios beyond the bound as well, since every ratio is monotone in the outcome.
    Source: Ville's inequality; Grünwald, de Heide and Koolen, Safe Testing (2024).

    Args:
        bound: 0 to 1; taken as 0.0001 to 0.9999.
    """
    p = min(max(bound, _LEAST_RATIO), 1 - _LEAST_RATIO)
    odds = p / (1 - p)
    above = [_likelihood_ratio(mismatches, positions, p, odds * k / (1 + odds * k)) for k in ODDS]
    below = [_likelihood_ratio(mismatches, positions, p, odds / k / (1 + odds / k)) for k in ODDS]
    return _mean_of_exp(above), _mean_of_exp(below)


def _likelihood_ratio(mismatches: int, positions: int, p: float, q: float) -> float:
    return mismatches * math.log(q / p) + (positions - mismatches) * math.log((1 - q) / (1 - p))


def _mean_of_exp(logs: Sequence[float]) -> float:
    top = max(logs)
    total = top + math.log(math.fsum(math.exp(x - top) for x in logs) / len(logs))
    return math.exp(total) if total < math.log(_MOST) else _MOST


def is_near_tie(baseline: Choice, canary: Choice, near_tie_nat: float) -> bool:
    """Tell whether two different choices are at most `near_tie_nat` apart on both sides."""
    on_baseline, on_canary = dict(baseline.top).get(canary.token), dict(canary.top).get(baseline.token)
    if on_baseline is None or on_canary is None:
        return False
    return abs(baseline.logprob - on_baseline) <= near_tie_nat and abs(canary.logprob - on_canary) <= near_tie_nat


def _detail(pairs: Sequence[Pair], good: Sequence[Pair], positions: int, mismatches: int, spec: ShadowSpec) -> str:
    failed = Counter(p.error for p in pairs if p.error)
    text = "no comparison yet"
    if good:
        ties = sum(1 for p in good if p.near_tie)
        text = (
            f"{mismatches} of {positions} token positions differ ({mismatches / positions:.1%}, at most {spec.max_mismatch_ratio:.1%} may,"
            f" {ties} near ties, {spec.positions} positions needed)"
        )
    if failed:
        what, _ = failed.most_common(1)[0]
        text += f"; {failed.total()} comparisons failed, most often: {what}"
    return text
