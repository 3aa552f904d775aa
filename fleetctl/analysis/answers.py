"""Evidence, analysis layer: whole answers, scores and embeddings of both arms, paired by item. Pure; no text is kept.

Source: canary.md 4.1 (cosine of at least 0.999 across GPUs once pooling is right), 4.4 (margin of 2 points of accuracy, invalid share).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, exp, fsum, isfinite, log
from typing import TYPE_CHECKING

from fleetctl.analysis import signs
from fleetctl.analysis.scoring import is_valid
from fleetctl.analysis.shadow import FAIL_BOUND, PASS_BOUND, compare
from fleetctl.domain.evidence import VerdictKind
from fleetctl.domain.quality import Choice, Form, Spoken

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LEAST_COSINE_P1 = 0.999
LEAST_OVERLAP = 0.99
NEIGHBOURS = 10
ACCURACY_MARGIN = 0.02
LEAST_SCORE = 0.1
"""Items of which the source itself gets fewer right show nothing: the wrong prompt format looks like that on both sides."""


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
class FreeSpec:
    """What free answers may differ by.

    Args:
        margin: answers that leave the reference's, over the repeat's, points / 100; invalid_margin: the same of answers not of their form.
        length_ratio: most that answers may be longer or shorter, above 1; near_tie_nat: gap under which tokens count as tied.
        least: answers on which a FAIL or a PASS must rest.
    """

    margin: float = 0.10
    invalid_margin: float = 0.05
    length_ratio: float = 1.15
    near_tie_nat: float = 0.125
    least: int = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeRun:
    """What free answers of (reference, repeat, canary) show.

    Args:
        diverged, floor: share of answers that leave the reference's at a token that is no near tie: canary, repeat.
        length_ratio: geometric mean of the canary's length over the reference's; finish: reasons of reference and canary.
        invalid, invalid_floor: shares of canary and repeat; e_fail: that either is worse than the repeat; e_pass: that neither is by
            its margin; missing: answers still needed for a PASS if both sides are equal, None: no end.
    """

    kind: VerdictKind
    why: str
    answers: int
    diverged: float
    floor: float
    length_ratio: float
    finish: Mapping[str, tuple[int, int]]
    invalid: float
    invalid_floor: float
    e_fail: float
    e_pass: float
    missing: int | None


def free_run(triples: Sequence[tuple[Answered, Answered, Answered]], spec: FreeSpec) -> FreeRun:
    """Compare whole answers; e_fail averages the sign processes of divergence and of validity, e_pass is the lesser of them."""
    n = len(triples)
    off = [(_leaves(a, c, spec.near_tie_nat), _leaves(a, b, spec.near_tie_nat)) for a, b, c in triples]
    bad = [(a.is_valid and not c.is_valid, a.is_valid and not b.is_valid) for a, b, c in triples]
    only = [(sum(c and not r for c, r in rows), sum(r and not c for c, r in rows)) for rows in (off, bad)]
    margins = (spec.margin, spec.invalid_margin)
    e_fail = fsum(signs.as_e(signs.log_fail(c, r)) for c, r in only) / 2
    e_pass = min(signs.as_e(signs.log_pass(n, c, r, m)) for (c, r), m in zip(only, margins, strict=True))
    over = [(c - r) / n if n else 0.0 for c, r in only]
    ratio = exp(fsum(log(max(1, len(c.choices)) / max(1, len(a.choices))) for a, _, c in triples) / n) if n else 1.0
    need = max(signs.missing_trials(n, c, r, m, 1.0, PASS_BOUND) for (c, r), m in zip(only, margins, strict=True))
    here, there = Counter(a.finish for a, _, _ in triples), Counter(c.finish for _, _, c in triples)
    kind, why = _free_kind(n, over, ratio, e_fail, e_pass, spec)
    return FreeRun(
        kind=kind,
        why=why,
        answers=n,
        diverged=sum(c for c, _ in off) / n if n else 0.0,
        floor=sum(r for _, r in off) / n if n else 0.0,
        length_ratio=ratio,
        finish={k: (here[k], there[k]) for k in sorted({*here, *there})},
        invalid=sum(not c.is_valid for _, _, c in triples) / n if n else 0.0,
        invalid_floor=sum(not b.is_valid for _, b, _ in triples) / n if n else 0.0,
        e_fail=e_fail,
        e_pass=e_pass,
        missing=0 if kind == "PASS" else ceil(need) if isfinite(need) else None,
    )


def _free_kind(n: int, over: Sequence[float], ratio: float, e_fail: float, e_pass: float, spec: FreeSpec) -> tuple[VerdictKind, str]:
    if not n:
        return "NO_DATA", "nothing was compared"
    found = f"{over[0]:.1%} more answers part from the source's than its own repeats, {over[1]:.1%} more are not of their form"
    if n >= spec.least and e_fail >= FAIL_BOUND and (over[0] > spec.margin or over[1] > spec.invalid_margin):
        return "FAIL", found
    if n < spec.least:
        return "INCONCLUSIVE", f"{n} of {spec.least} answers"
    if not 1 / spec.length_ratio <= ratio <= spec.length_ratio:
        return "INCONCLUSIVE", f"answers are x{ratio:.2f} as long, at most x{spec.length_ratio:g} may be"
    return ("PASS", "") if e_pass >= PASS_BOUND else ("INCONCLUSIVE", found)


def answered(spoken: Spoken, form: Form) -> Answered:
    """Return what is compared of an answer; without log-probabilities its words stand for tokens, and there are no near ties."""
    words = tuple(Choice(token=w, logprob=0.0, top=((w, 0.0),)) for w in spoken.text.split())
    return Answered(choices=spoken.choices or words, finish=spoken.finish, is_valid=is_valid(form, spoken.text))


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
    elif e_pass >= log(PASS_BOUND) and sum(b for b, _ in items) >= LEAST_SCORE * n:
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
    baseline: Sequence[Sequence[float]],
    canary: Sequence[Sequence[float]],
    *,
    least: int = 100,
    neighbours: int = NEIGHBOURS,
    least_cosine: float = LEAST_COSINE_P1,
    least_overlap: float = LEAST_OVERLAP,
) -> Embedded:
    """Compare vectors of the same texts, in the same order.

    Args:
        least: texts on which a PASS or a FAIL must rest; least_cosine, least_overlap: what a PASS needs.

    Raises:
        ValueError: not as many vectors, or of another length.
    """
    if len(baseline) != len(canary) or any(len(a) != len(b) for a, b in zip(baseline, canary, strict=True)):
        raise ValueError("both arms must give as many vectors of the same length")
    n = len(baseline)
    if not n:
        return Embedded(kind="NO_DATA", texts=0, cosine_p1=0.0, cosine_least=0.0, overlap=0.0)
    import numpy as np

    def unit(vectors: Sequence[Sequence[float]]) -> NDArray[np.float64]:
        found = np.asarray(vectors, dtype=np.float64)
        size = np.linalg.norm(found, axis=1, keepdims=True)
        return found / np.where(size > 0, size, 1.0)

    def nearest(vectors: NDArray[np.float64], k: int) -> NDArray[np.int64]:
        near = vectors @ vectors.T
        np.fill_diagonal(near, -2.0)
        return np.argsort(-near, axis=1, kind="stable")[:, :k]

    one, other = unit(baseline), unit(canary)
    cosines = np.sort(np.sum(one * other, axis=1))
    p1 = float(cosines[int(0.01 * (n - 1))])
    k = min(neighbours, n - 1)
    here, there = nearest(one, k), nearest(other, k)
    overlap = sum(len({*here[i].tolist()} & {*there[i].tolist()}) for i in range(n)) / (n * k) if k else 1.0
    kind: VerdictKind = "INCONCLUSIVE"
    if n >= least:
        kind = "PASS" if p1 >= least_cosine and overlap >= least_overlap else "FAIL"
    return Embedded(kind=kind, texts=n, cosine_p1=p1, cosine_least=float(cosines[0]), overlap=overlap)
