"""Evidence, fake: requests that a test writes down one by one, counted by brute force into looks. Never a file, a clock or chance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from math import exp

from fleetctl.domain.evidence import ARMS, LADDER, Arm, ClusterSums, Counts, Cursor, Evidence, SignalState, Thresholds, ladder_key
from fleetctl.domain.ids import CellId

START = datetime(2026, 1, 1, tzinfo=UTC)


def even(n: int, quantile: Sequence[float], factor: float = 1.0) -> list[float]:
    """Return n latencies spread evenly over a law given by its quantile table: the same shape every time."""
    return [quantile[int((i + 0.5) * len(quantile) / n)] * factor for i in range(n)]


def lognormal_table(log_sd: float, size: int = 2000) -> list[float]:
    """Return quantiles of a lognormal with median 50, ascending."""
    from statistics import NormalDist

    return [50.0 * exp(log_sd * NormalDist().inv_cdf((i + 0.5) / size)) for i in range(size)]


class Recorder:
    """Both arms' requests since a step began, over thresholds frozen from `frozen`.

    Args:
        frozen: latencies of the baseline before the step, in ms; errors_before: of as many requests.
    """

    def __init__(
        self, frozen: Sequence[float], *, scales: tuple[float, ...] = (1.0, 1.1, 1.25, 1.5), log_sd: float = 0.3, errors_before: int = 0
    ) -> None:
        ordered = sorted(frozen)
        self.thresholds = Thresholds(
            class_edges=(),
            latency_ms=(tuple(ordered[int(q * len(ordered))] for q in LADDER),),
            scales=scales,
            baseline_n=len(ordered),
            baseline_error_ratio=errors_before / len(ordered),
            log_sd=log_sd,
        )
        self.times: dict[Arm, list[float]] = {"baseline": [], "canary": []}
        self.failed: dict[Arm, list[int]] = {"baseline": [], "canary": []}
        self.outcomes = ""
        self._baseline_then = (0, 0)

    def serve(self, arm: Arm, latencies: Sequence[float], errors: int = 0, second: int = 0) -> None:
        """Let good requests with these latencies and so many failed ones, two seconds apart, have ended."""
        self.times[arm] += list(latencies)
        self.failed[arm] += [second + 2 * i for i in range(errors)]
        if arm == "canary":
            n = len(latencies) + errors
            self.outcomes += "".join("x" if (i + 1) * errors // n > i * errors // n else "." for i in range(n))

    def look(self, second: float, states: tuple[SignalState, SignalState] = ("ok", "ok"), served_bp: int | None = 5000) -> Evidence:
        """Return what a source would count now; the baseline's newest requests are those since the look before."""
        counts = {arm: self._counts(arm) for arm in ARMS}
        base, then = counts["baseline"], self._baseline_then
        self._baseline_then = (base.attempts, base.errors)
        return Evidence(
            cell=CellId("chat"),
            at=START + timedelta(seconds=second),
            arms=counts,
            state=dict(zip(ARMS, states, strict=True)),
            cursor=Cursor(position="1:0", since=START, thresholds=self.thresholds),
            served_bp=served_bp,
            canary_outcomes=self.outcomes[-1000:],
            baseline_recent=base.attempts - then[0],
            baseline_recent_errors=base.errors - then[1],
        )

    def _counts(self, arm: Arm) -> Counts:
        times, seconds = self.times[arm], Counter(self.failed[arm])
        rungs = self.thresholds.latency_ms[0]
        return Counts(
            attempts=len(times) + seconds.total(),
            errors=seconds.total(),
            timed=len(times),
            ladders={ladder_key(s): tuple(sum(t > s * q for t in times) for q in rungs) for s in self.thresholds.scales},
            clusters=ClusterSums(clusters=len(seconds), errors=seconds.total(), sum_sq=sum(v * v for v in seconds.values())),
            quantiles_ms=tuple(sorted(times)[int(q * len(times))] for q in LADDER) if times else (),
        )
