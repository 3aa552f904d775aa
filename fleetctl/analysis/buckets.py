"""Judge, pure layer: scraped counters of one cell since one cursor as evidence. Never a percentage, never a scrape, never a verdict.

Counters tell of requests when they end, so counting begins once the slowest normal request of the step before is over. How many of the
requests between two scrapes failed is known, and not which: for the breaker they are taken as spread evenly (no order is more careful),
and clusters show as a number of errors that changes more from scrape to scrape than chance has it. Bounds of buckets
near to the baseline's quantiles make a ladder that can show a regression; a canary's request must be over the first bound that is at
least (1 + margin) times as high. What an engine does not export is absent, never zero. Source: evidence.md 6 (traps 1 and 4).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite, log, sqrt

from fleetctl.analysis.caches import CONFOUNDED_SCALE
from fleetctl.analysis.counted import (
    counted_alike,
    evenly,
    gaps_alone,
    is_usable,
    of_requests,
    oldest_ms,
    own_counter,
    requests_of,
    went_back,
)
from fleetctl.analysis.faults import HARD_XIDS
from fleetctl.analysis.gpu_marks import ECC, XID, gpu_values, read_marks
from fleetctl.analysis.tally import BASELINE_OUTCOMES, OUTCOMES, STALE_GAPS, instant, milliseconds
from fleetctl.domain.evidence import (
    ARMS,
    LADDER,
    Arm,
    ClusterSums,
    Counts,
    Cursor,
    Evidence,
    Quantiles,
    SignalState,
    Thresholds,
    ladder_key,
)
from fleetctl.domain.ids import CellId
from fleetctl.domain.metrics import MetricTable, Totals, is_counter
from fleetctl.domain.records import Scrape
from fleetctl.domain.units import FULL_BP, Instant

METRICS: Mapping[str, str] = {"latency": "e2e_seconds", "ttft": "ttft_seconds", "token_time": "time_per_output_token_seconds"}
"""Ladder metrics by the canonical histogram that tells them."""
LEAST_ABOVE, MOST_ABOVE = 0.004, 0.90
"""Share of requests over a bound between which it can be used. Source: evidence.md 6, trap 4."""
STALE_S = 15.0
STALE_SCRAPES = 3.0
LEAST_INTERVAL = 20
"""Requests of a replica that are held against as many before; scrapes with fewer are put together."""
ASSUMED_EFFECT, ASSUMED_INTERVALS, DEVIATIONS = 5.0, 10.0, 1.5
"""Few intervals tell little of clusters: that of a mean size of 3 is assumed as if from ten of them, and 1.5 deviations of what is seen are
added. Source: simulation, `tests/unit/test_counter_errors.py`: without this 3 to 10 % false rollbacks at a mean cluster of 3, with it at
most 0.5 %, for 1.6 times the requests to a FAIL."""


@dataclass(slots=True, kw_only=True)
class _Replica:
    """What one replica's counters were when counting began, when they could last be used, and its newest scrape of any kind."""

    base: Scrape | None = None
    good: Scrape | None = None
    last: Scrape | None = None
    reset: bool = False
    gap_ms: float = 0.0
    new: tuple[float, float] = (0.0, 0.0)
    before: tuple[float, float] = (0.0, 0.0)


@dataclass(slots=True, kw_only=True)
class _Clusters:
    """Of an arm's replicas: errors, squared differences from interval to interval, and how many intervals there were."""

    errors: float = 0.0
    spread: float = 0.0
    intervals: int = 0


@dataclass(slots=True, kw_only=True)
class _Grown:
    """How much an arm's counters have grown since counting began."""

    values: dict[str, float] = field(default_factory=dict)
    buckets: dict[str, dict[float, float]] = field(default_factory=dict)


class BucketTally:
    """Counts of one cell since one cursor, out of scrapes.

    Args:
        settle_s: how long after the cursor counting begins: the slowest normal request of the step before must be over.
        leads: what is counted is the cell's requests and errors: arms that count them differently are mislabelled. Beside another source
            those counts alone are left out.
    """

    def __init__(self, cell: CellId, cursor: Cursor, *, settle_s: float, slo_latency_ms: float | None = None, leads: bool = True) -> None:
        self._leads = leads
        self._cell = cell
        self._cursor = cursor
        self._start_ms = milliseconds(cursor.since) + settle_s * 1_000
        frozen = cursor.thresholds
        known = {m: frozen.quantiles(m) for m in METRICS} if frozen is not None else {}
        self._recorded = {m for m, own in known.items() if own is not None and not own.edges_only}
        self._slo = frozen.slo_latency_ms if frozen is not None and frozen.slo_latency_ms is not None else slo_latency_ms
        self._replicas: dict[tuple[Arm, str], _Replica] = {}
        self._outcomes: dict[Arm, deque[str]] = {"baseline": deque(maxlen=BASELINE_OUTCOMES), "canary": deque(maxlen=OUTCOMES)}
        self._told: dict[Arm, tuple[int, int]] = {}
        self._clusters: dict[Arm, _Clusters] = {arm: _Clusters() for arm in ARMS}
        self._missed: dict[Arm, int] = dict.fromkeys(ARMS, 0)
        self._grew_ms: dict[Arm, float] = {}
        self._gpus = read_marks(cursor.position)
        self._gpu_at: dict[str, int] = {}
        self._faults: set[str] = set()

    @property
    def start_ms(self) -> float:
        """Return when counting begins, epoch milliseconds."""
        return self._start_ms

    def bases(self) -> tuple[Scrape, ...]:
        """Return what was there when counting began, to go on from in another process."""
        return tuple(r.base for r in self._replicas.values() if r.base is not None)

    def add(self, s: Scrape) -> None:
        """Use one scrape: one before counting begins for GPU faults alone, one older than that replica's newest not at all."""
        if s.cell != self._cell:
            return
        if s.arm == "canary" and is_usable(s):
            self._watch(s)
        if s.at_ms < self._start_ms:
            return
        replica = self._replicas.setdefault((s.arm, s.replica), _Replica())
        if replica.last is not None and s.at_ms <= replica.last.at_ms:
            return
        if is_usable(s) and own_counter(s):
            _add_own(replica, s)
        elif is_usable(s):
            replica.base = replica.base or s
            replica.reset = replica.reset or s.reset or (replica.good is not None and went_back(replica.good, s))
            if replica.good is not None and not replica.reset:
                self._note_clusters(replica, replica.good, s)
            replica.good = s
        if replica.last is not None:
            replica.gap_ms = (
                max(replica.gap_ms, float(s.at_ms - replica.last.at_ms)) if replica.gap_ms else float(s.at_ms - replica.last.at_ms)
            )
        replica.last = s

    def evidence(self, at: Instant, query: str = "") -> Evidence:
        """Return what has been counted, as seen at `at`."""
        grown = {arm: self._grown(arm) for arm in ARMS}
        common = _common(grown)
        key, why = counted_alike((arm, r.good.values) for (arm, _), r in self._replicas.items() if r.good is not None)
        told = {arm: (0.0, 0.0) if why else requests_of(grown[arm].values, key) for arm in ARMS}
        counts = {arm: self._counts(arm, grown[arm], common, told[arm]) for arm in ARMS}
        self._note_missed({arm: self._note_outcomes(arm, counts[arm]) for arm in ARMS}, at)
        timed = {arm: any(_above(grown[arm].buckets.get(key, {})).get(0.0) for key, _ in common.values()) for arm in ARMS}
        state = {arm: self._state(arm, at, counts[arm], why, is_timed=timed[arm]) for arm in ARMS}
        if self._arms_share_a_replica():
            state = dict.fromkeys(ARMS, "same_series")
        total = sum(c.attempts for c in counts.values())
        seen = [r.last.at_ms for r in self._replicas.values() if r.last is not None and r.last.up]
        return Evidence(
            cell=self._cell,
            at=at,
            arms=counts,
            state=state,
            cursor=self._cursor,
            served_bp=round(FULL_BP * counts["canary"].attempts / total) if total else None,
            first_canary_at=instant(self._start_ms) if counts["canary"].attempts else None,
            last_at=instant(max(seen)) if seen else None,
            canary_outcomes="".join(self._outcomes["canary"]),
            baseline_outcomes="".join(self._outcomes["baseline"]),
            missed=dict(self._missed),
            detail=self._detail(at, why),
            faults=tuple(sorted(self._faults)),
            query=query,
            source_at=instant(max(seen)) if seen else None,
        )

    def _of(self, arm: Arm) -> list[_Replica]:
        return [r for (a, _), r in self._replicas.items() if a == arm]

    def _arms_share_a_replica(self) -> bool:
        names = [{name for (arm, name) in self._replicas if arm == a} for a in ARMS]
        return bool(names[0] & names[1])

    def _grown(self, arm: Arm) -> _Grown:
        out = _Grown()
        for r in self._of(arm):
            if r.base is None or r.good is None:
                continue
            for key, value in r.good.values.items():
                if is_counter(key):
                    out.values[key] = out.values.get(key, 0.0) + value - r.base.values.get(key, 0.0)
            for key, edges in r.good.buckets.items():
                mine, then = out.buckets.setdefault(key, {}), r.base.buckets.get(key, {})
                for edge, count in edges.items():
                    mine[edge] = mine.get(edge, 0.0) + count - then.get(edge, 0.0)
        return out

    def _note_clusters(self, replica: _Replica, then: Scrape, now: Scrape) -> None:
        """Hold new errors of a replica against those of as many requests before: by chance the squared difference is about their number."""
        (n, k), (n0, k0) = requests_of(now.values), requests_of(then.values)
        n, k = n - n0 + replica.new[0], k - k0 + replica.new[1]
        if n < LEAST_INTERVAL:
            replica.new = n, k
            return
        n0, k0 = replica.before
        spread = (k - k0 * n / n0) ** 2 / (1 + n / n0) if n0 else k
        mine = self._clusters[now.arm]
        mine.errors, mine.spread, mine.intervals = mine.errors + k, mine.spread + spread, mine.intervals + 1
        replica.before, replica.new = (n, k), (0.0, 0.0)

    def _note_missed(self, new: Mapping[Arm, int], at: Instant) -> None:
        """Count what one arm has answered since the other one's newest request; where both did, nobody knows which was last."""
        for arm, other in (ARMS, ARMS[::-1]):
            self._missed[arm] = 0 if new[arm] else self._missed[arm] + max(0, new[other])
            if new[arm]:
                self._grew_ms[arm] = milliseconds(at)

    def _note_outcomes(self, arm: Arm, counts: Counts) -> int:
        """Take in what is new since the last evidence, failures spread evenly; a new process has no outcomes of what was before it."""
        now, then, outcomes = (counts.attempts, counts.errors), self._told.get(arm), self._outcomes[arm]
        self._told[arm] = now
        n, k = (now[0] - then[0], now[1] - then[1]) if then is not None else (0, 0)
        if n < 0 or k < 0:
            outcomes.clear()
        elif n:
            outcomes.extend(evenly(n, k) if n <= OUTCOMES else evenly(OUTCOMES, round(k * OUTCOMES / n)))
        return n if then is not None else now[0]

    def _counts(
        self, arm: Arm, grown: _Grown, common: Mapping[str, tuple[str, tuple[float, ...]]], answered: tuple[float, float]
    ) -> Counts:
        requests, errors = answered
        attempts = int(max(requests, 0.0))
        failed = min(int(max(errors, 0.0)), attempts)
        ladders: dict[str, tuple[int, ...]] = {}
        timed_of: dict[str, int] = {}
        misses, told = 0, _shares(grown)
        for metric, (key, edges) in common.items():
            if metric in self._recorded:  # by another source: who tells ladders tells over how many
                continue
            above = _above(grown.buckets.get(key, {}))
            timed_of[metric] = above.get(0.0, 0)
            ladders |= self._ladders(metric, above, edges)
            if metric == "latency" and self._slo is not None:
                over = next((e for e in edges if e * 1_000 >= self._slo * (1 - 1e-9)), None)
                misses = above.get(over, 0) if over is not None else 0
                if _at(edges, self._slo / 1_000) is not None:
                    told["slo_misses"] = timed_of[metric], misses
        n, outputs = max(attempts - failed, 0), grown.values.get("output_tokens_total")
        return Counts(
            attempts=attempts,
            errors=failed,
            misses=misses,
            timed=timed_of.pop("latency", 0),
            ladders=ladders,
            clusters=cluster_sums(self._clusters, arm),
            cached_tokens=int(grown.values.get("cached_tokens_total", 0.0)),
            prompt_tokens=int(grown.values.get("prompt_tokens_total", 0.0)) if "cached_tokens_total" in grown.values else 0,
            timed_of=timed_of,
            shares=told,
            means={"output_tokens": outputs / n} if outputs is not None and n else {},
        )

    def _ladders(self, metric: str, above: Mapping[float, int], edges: Sequence[float]) -> dict[str, tuple[int, ...]]:
        thresholds = self._cursor.thresholds
        own = thresholds.quantiles(metric) if thresholds is not None else None
        if thresholds is None or own is None or not own.edges_only:
            return {}
        wanted = [ms / 1_000 for ms in own.rows[0]]
        if any(_at(edges, edge) is None for edge in wanted):
            return {}
        out = {}
        for scale in sorted({1.0, *thresholds.scales}):
            counts = []
            for edge in wanted:
                over = _at(edges, edge) if scale == 1.0 else next((e for e in edges if e >= edge * scale * (1 - 1e-9)), None)
                counts.append(above.get(over, 0) if over is not None else 0)
            out[ladder_key(scale, metric)] = tuple(counts)
        return out

    def _state(self, arm: Arm, at: Instant, counts: Counts, why: str, *, is_timed: bool) -> SignalState:
        replicas = self._of(arm)
        newest = [r.last for r in replicas if r.last is not None]
        if not newest:
            return "empty"
        if any(not s.up for s in newest):
            return "down"
        if any(s.trouble for s in newest) or (why and self._leads):
            return "mislabelled"
        if any(s.is_nan for s in newest):
            return "nan"
        if any(r.reset for r in replicas):
            return "reset"
        late = max(STALE_S * 1_000, STALE_SCRAPES * max(r.gap_ms for r in replicas))
        if milliseconds(at) - oldest_ms(newest) > late:
            return "stale"
        if why:
            return "ok"
        if not counts.attempts:
            return "ok" if is_timed else "empty"
        grew = self._grew_ms.get(arm, self._start_ms)  # its engines may tell their numbers and answer nobody
        usual = STALE_GAPS * (grew - self._start_ms) / counts.attempts
        return "stale" if milliseconds(at) - grew > max(late, usual) else "ok"

    def _watch(self, s: Scrape) -> None:
        """Note hard faults of a canary's GPUs: unhealthy, or uncorrected ECC or an XID of the hardware since it was last known."""
        now = gpu_values(s)
        if not now or s.at_ms <= self._gpu_at.get(s.replica, -1):
            return
        self._gpu_at[s.replica] = s.at_ms
        then = self._gpus.get(s.replica)
        if now.get("gpu_health") == 0.0:
            self._faults.add(f"{s.replica} GPU is unhealthy")
        if then is not None:
            if any(key.startswith(ECC) and value > then.get(key, inf) for key, value in now.items()):
                self._faults.add(f"{s.replica} uncorrected ECC errors")
            codes = {key: code for key, code in now.items() if key.startswith(XID)}
            for key, code in codes.items():  # an older release has kept one code for all GPUs
                if code != then.get(key, code if XID in then else None) and int(code) in HARD_XIDS:
                    self._faults.add(f"{s.replica} XID {int(code)}")
        self._gpus[s.replica] = {**(then or {}), **now}

    def _detail(self, at: Instant, why: str) -> str:
        parts = [why] if why else []
        parts += gaps_alone([r.good.buckets for r in self._replicas.values() if r.good is not None], METRICS)
        left = (self._start_ms - milliseconds(at)) / 1_000
        if left > 0:
            parts.append(f"waiting {left:.0f} s for requests of the step before to end")
        for (arm, name), r in sorted(self._replicas.items()):
            if r.last is not None and (not r.last.up or r.last.trouble):
                parts.append(f"{arm} {name}: {r.last.trouble or 'does not answer'}")
            if r.last is not None and r.last.unknown:
                parts.append(f"{arm} {name} exports unknown series: {', '.join(r.last.unknown[:5])}")
        return "; ".join(dict.fromkeys(parts))[:600]


def _add_own(replica: _Replica, s: Scrape) -> None:
    """Use a page of one series of an own counter: one that begins again, or began (`reset`) since counting did, counts on from 0."""
    if replica.base is None or replica.good is None:
        replica.base = replace(s, values=dict.fromkeys(s.values, 0.0)) if s.reset else s
    elif went_back(replica.good, s):
        base, good = replica.base.values, replica.good.values
        replica.base = replace(s, values={key: base.get(key, 0.0) - good.get(key, 0.0) for key in s.values})
    replica.good = s


def cluster_sums(both: Mapping[Arm, _Clusters], arm: Arm) -> ClusterSums:
    """Return an arm's errors, and their spread where clusters are as large as the intervals of both arms leave possible."""
    errors, intervals = sum(c.errors for c in both.values()), sum(c.intervals for c in both.values())
    if not intervals:
        return ClusterSums(spread=0.0)
    seen = sum(c.spread for c in both.values()) / errors if errors else 1.0
    effect = max(1.0, (seen * intervals + ASSUMED_EFFECT * ASSUMED_INTERVALS) / (intervals + ASSUMED_INTERVALS))
    mine = int(both[arm].errors)
    return ClusterSums(errors=mine, spread=mine * effect * (1 + DEVIATIONS * sqrt(2 / intervals)))


def scrape_of(
    table: MetricTable,
    totals: Totals,
    *,
    system: str,
    version: str,
    needs: Iterable[str],
    cell: str,
    arm: Arm,
    replica: str,
    at_ms: int,
) -> Scrape:
    """Return what one page says; a metric that is needed and not there is trouble, with what carries it in which version."""
    missing = [c for c in needs if totals.first(c) is None]
    trouble = "; ".join(table.explain(system, version, c) for c in missing)
    if trouble and totals.unknown:
        trouble += f"; it exports unknown series: {', '.join(totals.unknown[:5])}"
    elif trouble and totals.odd:
        trouble += f"; it exports series of another version: {', '.join(totals.odd[:5])}"
    return Scrape(
        cell=cell,
        arm=arm,
        replica=replica,
        at_ms=at_ms,
        values=totals.values,
        buckets=totals.buckets,
        unknown=totals.unknown[:20],
        is_nan=totals.is_nan,
        trouble=trouble if not totals.is_nan else "",
    )


def _shares(grown: _Grown) -> dict[str, tuple[int, int]]:
    """Return the fleet file's own counters: events among all."""
    out = {}
    for key, n in grown.values.items():
        if key.startswith("counter.") and key.endswith("/of"):
            name = key.removeprefix("counter.").removesuffix("/of")
            out[f"counter_{name}"] = int(n), min(int(n), int(grown.values.get(f"counter.{name}/events", 0.0)))
    return out


def _common(grown: Mapping[Arm, _Grown]) -> dict[str, tuple[str, tuple[float, ...]]]:
    """Return per ladder metric the series that both arms have, of the same statistic, and their common bounds in seconds."""
    out = {}
    for metric, canonical in METRICS.items():
        keys = [k for k in of_requests(grown["baseline"].buckets, canonical) if k in grown["canary"].buckets]
        if keys:
            edges = set(grown["baseline"].buckets[keys[0]]) & set(grown["canary"].buckets[keys[0]])
            out[metric] = keys[0], tuple(sorted(e for e in edges if isfinite(e)))
    return out


def _above(cumulative: Mapping[float, float]) -> dict[float, int]:
    """Return how many were over each bound; 0.0: all of them."""
    if not cumulative:
        return {}
    everything = cumulative.get(inf, max(cumulative.values()))
    return {0.0: int(everything), **{edge: int(everything - count) for edge, count in cumulative.items() if isfinite(edge)}}


def _at(edges: Iterable[float], wanted: float) -> float | None:
    return next((e for e in edges if abs(e - wanted) <= 1e-9 * max(1.0, wanted)), None)


def freeze_edges(
    scrapes: Iterable[Scrape], scales: Iterable[float], least: int, *, slo_latency_ms: float | None = None
) -> Thresholds | None:
    """Choose the bounds nearest to the baseline's quantiles out of each replica's newest scrape; None under `least` requests.

    A metric without a bound that 0.4 to 90 % of requests are over has no ladder.
    """
    newest: dict[tuple[Arm, str], Scrape] = {}
    for s in scrapes:
        if is_usable(s):
            newest[s.arm, s.replica] = s
    sums: dict[Arm, _Grown] = {arm: _Grown() for arm in ARMS}
    for (arm, _), s in newest.items():
        for key, value in s.values.items():
            sums[arm].values[key] = sums[arm].values.get(key, 0.0) + value
        for key, edges in s.buckets.items():
            mine = sums[arm].buckets.setdefault(key, {})
            for edge, count in edges.items():
                mine[edge] = mine.get(edge, 0.0) + count
    base = sums["baseline"]
    requests, errors = requests_of(base.values)
    n = max([int(requests), *(_above(b).get(0.0, 0) for b in base.buckets.values())], default=0)
    if n < max(1, least):
        return None
    common = _common(sums if sums["canary"].buckets else {"baseline": base, "canary": base})
    found = {}
    for metric, (key, bounds) in common.items():
        chosen = _rungs(_above(base.buckets[key]), bounds)
        if chosen:
            found[metric] = Quantiles(class_edges=(), rows=(chosen,), n=_above(base.buckets[key])[0.0], log_sd=0.0, edges_only=True)
    return Thresholds(
        class_edges=(),
        latency_ms=(),
        scales=tuple(sorted({1.0, CONFOUNDED_SCALE, *scales})),
        baseline_n=n,
        baseline_error_ratio=errors / requests if requests else 0.0,
        log_sd=0.0,
        slo_latency_ms=slo_latency_ms,
        others=tuple(sorted(found.items())),
    )


def _rungs(above: Mapping[float, int], edges: Sequence[float]) -> tuple[float, ...]:
    """Return per rung the usable bound whose share is nearest (in log odds), in milliseconds; () where no bound can be used."""
    n = above.get(0.0, 0)
    usable = {e: above[e] / n for e in edges if n and e in above and LEAST_ABOVE <= above[e] / n <= MOST_ABOVE}
    if not usable:
        return ()

    def odds(p: float) -> float:
        return log(p / (1 - p))

    return tuple(1_000 * min(usable, key=lambda e: (abs(odds(usable[e]) - odds(1 - rung)), e)) for rung in LADDER)
