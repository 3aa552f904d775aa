"""Evidence, analysis layer: whole answers, scores and embeddings of both arms, paired by item. Pure; no text is kept.

Source: canary.md 4.1 (cosine of at least 0.999 across GPUs once pooling is right), 4.4 (margin of 2 points of accuracy, invalid share).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, exp, fsum, isfinite, log, sqrt

from fleetctl.analysis import signs
from fleetctl.analysis.shadow import FAIL_BOUND, PASS_BOUND, compare
from fleetctl.domain.evidence import VerdictKind
from fleetctl.domain.quality import Choice

LEAST_COSINE_P1 = 0.999
LEAST_OVERLAP = 0.99
NEIGHBOURS = 10
ACCURACY_MARGIN = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One side's whole answer to one prompt, at temperature 0.

    Args:
        choices: token by token; finish: the reason; is_valid: it parses, is no refusal of the format.
    """

    choices: tuple[Choice, ...]
    finish: str
    is_valid: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeRun:
    """What free answers of (reference, repeat, canary) show.

    Args:
        diverged, floor: share of answers that leave the reference's at a token that is no near tie: canary, repeat.
        length_ratio: geometric mean of the canary's length over the reference's; finish: reasons of reference and canary.
        invalid, invalid_floor: shares of canary and repeat; e_fail: that either is worse than the repeat.
    """

    answers: int
    diverged: float
    floor: float
    length_ratio: float
    finish: Mapping[str, tuple[int, int]]
    invalid: float
    invalid_floor: float
    e_fail: float


def free_run(triples: Sequence[tuple[Answered, Answered, Answered]], near_tie_nat: float) -> FreeRun:
    """Compare whole answers; e_fail averages the sign processes of divergence and of validity."""
    n = len(triples)
    off = [(_leaves(a, c, near_tie_nat), _leaves(a, b, near_tie_nat)) for a, b, c in triples]
    bad = [(a.is_valid and not c.is_valid, a.is_valid and not b.is_valid) for a, b, c in triples]
    logs = [signs.log_fail(sum(c and not r for c, r in rows), sum(r and not c for c, r in rows)) for rows in (off, bad)]
    ratios = [log(max(1, len(c.choices)) / max(1, len(a.choices))) for a, _, c in triples]
    here, there = Counter(a.finish for a, _, _ in triples), Counter(c.finish for _, _, c in triples)
    return FreeRun(
        answers=n,
        diverged=sum(c for c, _ in off) / n if n else 0.0,
        floor=sum(r for _, r in off) / n if n else 0.0,
        length_ratio=exp(fsum(ratios) / n) if n else 1.0,
        finish={k: (here[k], there[k]) for k in sorted({*here, *there})},
        invalid=sum(not c.is_valid for _, _, c in triples) / n if n else 0.0,
        invalid_floor=sum(not b.is_valid for _, b, _ in triples) / n if n else 0.0,
        e_fail=fsum(signs.as_e(v) for v in logs) / len(logs),
    )


def _leaves(reference: Answered, other: Answered, near_tie_nat: float) -> bool:
    found = compare(reference.choices, other.choices, near_tie_nat)
    return found.first_divergence is not None and not found.near_tie


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """Scores of the same items on both arms, looked at after every item.

    Args:
        drop: baseline's score minus the canary's, points / 100; missing: items still needed for a PASS if both are equal, None: no end.
    """

    kind: VerdictKind
    items: int
    baseline: float
    canary: float
    drop: float
    e_fail: float
    e_pass: float
    missing: int | None


def accuracy(items: Sequence[tuple[bool, bool]], margin: float = ACCURACY_MARGIN) -> Paired:
    """Judge (baseline is right, canary is right) per item: a sequential form of McNemar's test.

    Args:
        margin: drop that is tolerated, points / 100.
    """
    n = len(items)
    lost, won = sum(b and not c for b, c in items), sum(c and not b for b, c in items)
    e_fail, e_pass = signs.log_fail(lost, won), signs.log_pass(n, lost, won, margin)
    need = signs.missing_trials(n, lost, won, margin, 1.0, PASS_BOUND)
    kind: VerdictKind = "INCONCLUSIVE" if n else "NO_DATA"
    if e_fail >= log(FAIL_BOUND) and lost - won > margin * n:
        kind = "FAIL"
    elif e_pass >= log(PASS_BOUND):
        kind = "PASS"
    return Paired(
        kind=kind,
        items=n,
        baseline=sum(b for b, _ in items) / n if n else 0.0,
        canary=sum(c for _, c in items) / n if n else 0.0,
        drop=(lost - won) / n if n else 0.0,
        e_fail=signs.as_e(e_fail),
        e_pass=signs.as_e(e_pass),
        missing=0 if kind == "PASS" else ceil(need) if isfinite(need) else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """Embeddings of the same texts on both arms.

    Args:
        cosine_p1: the first percentile of cosines; overlap: mean share of each text's nearest neighbours that both arms name.
    """

    kind: VerdictKind
    texts: int
    cosine_p1: float
    cosine_least: float
    overlap: float


def embeddings(
    baseline: Sequence[Sequence[float]], canary: Sequence[Sequence[float]], *, least: int = 100, neighbours: int = NEIGHBOURS
) -> Embedded:
    """Compare vectors of the same texts, in the same order.

    Raises:
        ValueError: not as many vectors, or of another length.
    """
    if len(baseline) != len(canary) or any(len(a) != len(b) for a, b in zip(baseline, canary, strict=True)):
        raise ValueError("both arms must give as many vectors of the same length")
    n = len(baseline)
    if not n:
        return Embedded(kind="NO_DATA", texts=0, cosine_p1=0.0, cosine_least=0.0, overlap=0.0)
    cosines = sorted(_cosine(a, b) for a, b in zip(baseline, canary, strict=True))
    p1 = cosines[int(0.01 * (n - 1))]
    k = min(neighbours, n - 1)
    shared = [len(_nearest(baseline, i, k) & _nearest(canary, i, k)) / k for i in range(n)] if k else [1.0]
    overlap = fsum(shared) / len(shared)
    kind: VerdictKind = "INCONCLUSIVE"
    if n >= least:
        kind = "PASS" if p1 >= LEAST_COSINE_P1 and overlap >= LEAST_OVERLAP else "FAIL"
    return Embedded(kind=kind, texts=n, cosine_p1=p1, cosine_least=cosines[0], overlap=overlap)


def _cosine(a: Sequence[float], b: Sequence[float]) -> float:
    size = sqrt(fsum(x * x for x in a) * fsum(x * x for x in b))
    return fsum(x * y for x, y in zip(a, b, strict=True)) / size if size > 0 and isfinite(size) else 0.0


def _nearest(vectors: Sequence[Sequence[float]], i: int, k: int) -> frozenset[int]:
    ranked = sorted((j for j in range(len(vectors)) if j != i), key=lambda j: (-_cosine(vectors[i], vectors[j]), j))
    return frozenset(ranked[:k])
