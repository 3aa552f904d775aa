"""Evidence, analysis layer: two sets of requests as two arms for the judge: halves of a source (A/A), or cohorts by header or tenant (A/B).

Pure: requests in, evidence look by look out. The judge is the same as of a canary; nothing here decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import ceil, fsum, log, sqrt

from fleetctl.analysis.judge import fresh, judge, needed_scales
from fleetctl.domain.calibration import HalvesVerdict, Sample
from fleetctl.domain.evidence import ARMS, LADDER, Arm, ClusterSums, Counts, Cursor, Evidence, Thresholds, Verdict, ladder_key
from fleetctl.domain.ids import CellId
from fleetctl.domain.workload import GuardrailSpec

FREEZE_LEAST = 1_000
"""Requests of the baseline arm that thresholds are frozen from; those after them are judged."""
LOOK_EVERY = 50
"""Requests of both arms between two looks."""


def frozen_of(samples: Sequence[Sample], specs: Sequence[GuardrailSpec]) -> Thresholds | None:
    """Freeze quantiles from requests of one arm; None where fewer than half of them are timed."""
    timed = sorted(s.latency_ms for s in samples if s.latency_ms is not None)
    if not samples or 2 * len(timed) < len(samples):
        return None
    return Thresholds(
        class_edges=(),
        latency_ms=(tuple(timed[ceil(rung * len(timed)) - 1] for rung in LADDER),),
        scales=needed_scales(specs),
        baseline_n=len(samples),
        baseline_error_ratio=sum(s.failed for s in samples) / len(samples),
        log_sd=log_sd(timed),
    )


def log_sd(latencies: Sequence[float]) -> float:
    """Return the standard deviation of log latencies, 0 for fewer than two."""
    logs = [log(max(v, 1e-3)) for v in latencies]
    if len(logs) < 2:
        return 0.0
    mean = fsum(logs) / len(logs)
    return sqrt(fsum((v - mean) ** 2 for v in logs) / (len(logs) - 1))


def looks(
    samples: Sequence[Sample], arm_of: Mapping[str, Arm], frozen: Thresholds | None, *, cell: CellId, by: str, every: int = LOOK_EVERY
) -> Iterator[Evidence]:
    """Yield cumulative evidence after every `every` requests, in order of start.

    Args:
        arm_of: arm per host or cohort; by: "host" or "arm_key", what the mapping is keyed by; requests of others are left out.
    """
    ordered = sorted((s for s in samples if getattr(s, by) in arm_of), key=lambda s: s.started_ms)
    if not ordered:
        return
    start = datetime.fromtimestamp(ordered[0].started_ms / 1000, UTC)
    cursor = Cursor(position=f"{ordered[0].started_ms}", since=start, thresholds=frozen)
    tallies = {arm: _Tally(frozen) for arm in ARMS}
    outcomes: list[str] = []
    for i, s in enumerate(ordered, 1):
        arm = arm_of[getattr(s, by)]
        tallies[arm].add(s)
        if arm == "canary":
            outcomes.append("x" if s.failed else ".")
        if i % every == 0 or i == len(ordered):
            recent = tallies["baseline"].newest()
            yield Evidence(
                cell=cell,
                at=datetime.fromtimestamp(s.started_ms / 1000, UTC),
                arms={a: t.counts() for a, t in tallies.items()},
                state={a: "ok" if t.attempts else "empty" for a, t in tallies.items()},
                cursor=cursor,
                canary_outcomes="".join(outcomes[-4 * every :]),
                baseline_recent=len(recent),
                baseline_recent_errors=sum(recent),
            )


class _Tally:
    """Cumulative counts of one arm."""

    def __init__(self, frozen: Thresholds | None) -> None:
        self._frozen = frozen
        self.attempts = self._errors = self._timed = 0
        scales = frozen.scales if frozen is not None else ()
        self._ladders = {scale: [0] * len(LADDER) for scale in scales}
        self._by_second: dict[int, int] = {}
        self._last: list[bool] = []

    def add(self, s: Sample) -> None:
        self.attempts += 1
        self._errors += s.failed
        self._last = [*self._last[-99:], s.failed]
        if s.failed:
            second = s.started_ms // 1000
            self._by_second[second] = self._by_second.get(second, 0) + 1
        if s.latency_ms is None or self._frozen is None:
            return
        self._timed += 1
        for scale, rungs in self._ladders.items():
            for r, edge in enumerate(self._frozen.latency_ms[0]):
                rungs[r] += s.latency_ms > scale * edge

    def newest(self) -> list[bool]:
        return self._last

    def counts(self) -> Counts:
        squares = sum(n * n for n in self._by_second.values())
        return Counts(
            attempts=self.attempts,
            errors=self._errors,
            timed=self._timed,
            ladders={ladder_key(scale): tuple(rungs) for scale, rungs in self._ladders.items()},
            clusters=ClusterSums(clusters=len(self._by_second), errors=self._errors, sum_sq=squares),
        )


def judged(
    samples: Sequence[Sample],
    arm_of: Mapping[str, Arm],
    specs: Sequence[GuardrailSpec],
    *,
    cell: CellId,
    by: str = "host",
    split: str = "",
    every: int = LOOK_EVERY,
) -> tuple[HalvesVerdict, tuple[Verdict, ...]]:
    """Judge one set of requests as the canary of the other, looking all the time; return the summary and the last look's verdicts.

    Args:
        samples: thresholds are frozen from the baseline's first 1,000 (a third of all where there are fewer); the later ones are judged.
    """
    ordered = sorted((s for s in samples if getattr(s, by) in arm_of), key=lambda s: s.started_ms)
    base = [s for s in ordered if arm_of[getattr(s, by)] == "baseline"]
    head = base[: min(FREEZE_LEAST, len(base) // 3)]
    begin = head[-1].started_ms if head else 0
    frozen = frozen_of(head, specs) if head else None
    state, highest, count = fresh(1), 0.0, 0
    verdicts: tuple[Verdict, ...] = ()
    failed = False
    for e in looks([s for s in ordered if s.started_ms > begin], arm_of, frozen, cell=cell, by=by, every=every):
        state, verdicts = judge(state, e, specs)
        count += 1
        highest = max(highest, verdicts[0].e_value)
        failed = failed or verdicts[0].kind == "FAIL"
    kind = verdicts[0].kind if verdicts else "NO_DATA"
    return HalvesVerdict(split=split, kind=kind, e_value=min(highest, 1e300), looks=count, failed=failed), verdicts
