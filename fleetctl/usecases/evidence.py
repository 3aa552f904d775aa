"""Evidence, use-case layer: sources made of ports: one of counters, and one that puts several together. Never imports an adapter."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from fleetctl.analysis.buckets import METRICS, BucketTally, freeze_edges
from fleetctl.analysis.counted import counted_alike, is_usable
from fleetctl.analysis.gpu_marks import gpu_marks
from fleetctl.domain.evidence import ARMS, FINISHED, Arm, Counts, Cursor, Evidence, Series, SignalState, Thresholds
from fleetctl.domain.ids import CellId
from fleetctl.domain.units import Instant
from fleetctl.errors import ConfigInvalid, EvidenceUnavailable
from fleetctl.ports.traffic import EvidenceSource, Probes, Scraper

_TALLIES_PER_CELL = 3
WORST: tuple[SignalState, ...] = ("same_series", "mislabelled", "down", "nan", "reset", "stale", "empty", "ok")
"""States from the worst to the best; of several sources the worst counts."""
QUIET_OR_OK: tuple[SignalState, ...] = ("ok", "empty", "stale")
"""States in which what a source has counted can be used."""

_DOWN: Mapping[Arm, SignalState] = {"baseline": "down", "canary": "down"}


@dataclass(slots=True, kw_only=True)
class _Kept:
    """A tally and the newest scrape that it has seen."""

    tally: BucketTally
    after: Instant | None = None


_REPLAY, _LOG = "replay", "log"


class CounterEvidence:
    """EvidenceSource over scraped counters: detection and shares over bounds, never a percentage.

    Args:
        settle_s: of the slowest normal request; counting begins that much after a cursor.
        slo_latency_ms: promised latency per cell; now: the clock; leads: whether a cell's requests and errors are these counters'.
    """

    def __init__(
        self,
        scraper: Scraper,
        *,
        now: Callable[[], Instant],
        settle_s: float = 30.0,
        slo_latency_ms: Mapping[CellId, float] | None = None,
        leads: Callable[[CellId], bool] = lambda _: True,
    ) -> None:
        self._scraper = scraper
        self._now = now
        self._settle_s = settle_s
        self._leads = leads
        self._slo = dict(slo_latency_ms or {})
        self._kept: dict[CellId, OrderedDict[Cursor, _Kept]] = {}

    def mark(self, c: CellId) -> Cursor:
        """Return a cursor at now, without thresholds, with how the canary's GPUs stand."""
        try:
            position = gpu_marks(self._scraper.newest(c))
        except EvidenceUnavailable:
            position = ""  # then the first scrape is what they are held against
        return Cursor(position=position, since=self._now())

    def freeze(self, c: CellId, scales: tuple[float, ...], least: int) -> Thresholds | None:
        """Take the bounds nearest to the baseline's quantiles; None where fewer than `least` requests are there.

        Raises:
            ConfigInvalid: config.series: an unknown series is needed, both arms are read from the same replica, or they count otherwise.
        """
        scrapes = tuple(self._scraper.newest(c))
        wrong = sorted({f"{s.arm} {s.replica}: {s.trouble}" for s in scrapes if s.up and s.trouble})
        arms = [{s.replica for s in scrapes if s.arm == arm} for arm in ARMS]
        wrong += [f"both arms are read from {name}" for name in sorted(arms[0] & arms[1])]
        if self._leads(c):
            wrong += filter(None, [counted_alike((s.arm, s.values) for s in scrapes if is_usable(s))[1]])
        if wrong:
            text = f"the evidence of {c} cannot be read as the fleet file says: {'; '.join(wrong)[:500]}."
            raise ConfigInvalid("config.series", text, hint="Look: fleetctl doctor")
        return freeze_edges(scrapes, scales, least, slo_latency_ms=self._slo.get(c))

    def read(self, c: CellId, since: Cursor) -> Evidence:
        """Return cumulative counts since the cursor."""
        kept = self._kept.setdefault(c, OrderedDict())
        if since not in kept:
            tally = BucketTally(c, since, settle_s=self._settle_s, slo_latency_ms=self._slo.get(c), leads=self._leads(c))
            kept[since] = _Kept(tally=tally)
        kept.move_to_end(since)
        while len(kept) > _TALLIES_PER_CELL:
            kept.popitem(last=False)
        mine = kept[since]
        start = datetime.fromtimestamp(mine.tally.start_ms / 1_000, UTC)
        for scrape in self._scraper.scrapes(c, start, mine.after):
            mine.tally.add(scrape)
            at = datetime.fromtimestamp(scrape.at_ms / 1_000, UTC)
            mine.after = at if mine.after is None else max(mine.after, at)
        return mine.tally.evidence(self._now(), self._scraper.query(c))

    def describe(self, c: CellId) -> tuple[Series, ...]:
        """List what the newest scrape of each arm holds."""
        out: list[Series] = []
        scrapes = tuple(self._scraper.newest(c))
        for arm in ARMS:
            own = [s for s in scrapes if s.arm == arm]
            up = [s for s in own if s.up and not s.is_nan]
            keys = {key.partition("/")[0] for s in up for key in (*s.values, *s.buckets)}
            silent = ", ".join(s.replica for s in own if s not in up)
            out.append(
                Series(
                    arm=arm,
                    name="scrapes",
                    present=bool(up),
                    detail=f"{len(up)} of {len(own)} answer" + (f"; not {silent}" if silent else ""),
                )
            )
            for name in ("requests_total", "errors_total", *METRICS.values(), "cached_tokens_total", "gpu_health"):
                out.append(Series(arm=arm, name=name, present=name in keys))
            unknown = sorted({name for s in up for name in s.unknown})
            trouble = sorted({s.trouble for s in up if s.trouble})
            if unknown or trouble:
                out.append(
                    Series(arm=arm, name="names", present=False, detail="; ".join([*trouble, *(f"unknown {n}" for n in unknown[:5])])[:300])
                )
        return tuple(out)


class Probed:
    """EvidenceSource over what probes have recorded; the probes are kept going for as long as somebody reads.

    Args:
        recorded: what they write to; least: pairs from which quantiles are frozen, since a probe's rate is low.
    """

    def __init__(self, probes: Probes, recorded: EvidenceSource, *, least: int = 200) -> None:
        self._probes, self._recorded, self._least = probes, recorded, least

    def mark(self, c: CellId) -> Cursor:
        """Return a cursor at now, without thresholds."""
        self._probes.keep(c)
        return self._recorded.mark(c)

    def freeze(self, c: CellId, scales: tuple[float, ...], least: int) -> Thresholds | None:
        """Take the baseline's quantiles from its newest probes; None where too few are there."""
        self._probes.keep(c)
        return self._recorded.freeze(c, scales, min(least, self._least))

    def read(self, c: CellId, since: Cursor) -> Evidence:
        """Return cumulative counts since the cursor."""
        self._probes.keep(c)
        return replace(self._recorded.read(c, since), query=self._probes.query(c))

    def describe(self, c: CellId) -> tuple[Series, ...]:
        """List what the newest probes hold per arm."""
        return self._recorded.describe(c)


class Combined:
    """EvidenceSource of several: the first tells attempts, errors and the share, the others what it does not measure.

    Args:
        sources: by name, the first is the leading one: without it nothing can be read; another one that cannot be read is `down`.
        tolerant: names of sources whose silence is no lost evidence (shown, and judged while it is there).
    """

    def __init__(self, sources: Mapping[str, EvidenceSource], *, tolerant: Sequence[str] = ()) -> None:
        self._sources = dict(sources)
        self._tolerant = frozenset(tolerant)

    def mark(self, c: CellId) -> Cursor:
        """Return a cursor at now that holds the place in every source."""
        marks = {name: source.mark(c) for name, source in self._sources.items()}
        return Cursor(position=json.dumps({name: m.position for name, m in marks.items()}), since=max(m.since for m in marks.values()))

    def freeze(self, c: CellId, scales: tuple[float, ...], least: int) -> Thresholds | None:
        """Take the quantiles of every source; None until each has enough. Each is asked: what is wrong with one shows at once."""
        found = [source.freeze(c, scales, least) for source in self._sources.values()]
        whole: Thresholds | None = None
        for own in found:
            if own is None:
                return None
            whole = own if whole is None else _joined(whole, own)
        return whole

    def read(self, c: CellId, since: Cursor) -> Evidence:
        """Return what all of them have counted since the cursor."""
        whole: Evidence | None = None
        led: Mapping[Arm, SignalState] = {}
        for name, source in self._sources.items():
            try:
                own = source.read(c, replace(since, position=_position(since, name)))
            except (EvidenceUnavailable, ConfigInvalid) as e:
                if whole is None:
                    raise
                if name not in self._tolerant:
                    whole = _worse(whole, _DOWN, f"{name}: {e.message}")
                continue
            own = replace(own, query=f"{name}: {own.query}" if own.query else name, detail=f"{name}: {own.detail}" if own.detail else "")
            if whole is None:
                whole, led = own, own.state
            else:
                whole = merged(whole, own, name, is_tolerated=name in self._tolerant)
        if whole is None:
            raise EvidenceUnavailable("evidence.down", f"{c} has no source of evidence.", hint="Run: fleetctl doctor")
        return replace(whole, cursor=since, led=led if led != whole.state else {})

    def describe(self, c: CellId) -> tuple[Series, ...]:
        """List what there is per arm, by source."""
        return tuple(replace(s, name=f"{name}.{s.name}") for name, source in self._sources.items() for s in source.describe(c))


class Replayed:
    """EvidenceSource of lane replay: recorded requests sent to both arms are judged, customers' own stand beside.

    Customers are too few for a verdict, so their log may be silent; where it cannot be right, nothing is.

    Args:
        name: of the replay in the fleet file; replay: what it measures; log: customers' own requests.
    """

    def __init__(self, name: str, replay: EvidenceSource, log: EvidenceSource) -> None:
        self._name, self._replay, self._log = name, replay, log

    def mark(self, c: CellId) -> Cursor:
        """Return a cursor at now that holds the place in both."""
        replay, log = self._replay.mark(c), self._log.mark(c)
        return Cursor(position=json.dumps({_REPLAY: replay.position, _LOG: log.position}), since=max(replay.since, log.since))

    def freeze(self, c: CellId, scales: tuple[float, ...], least: int) -> Thresholds | None:
        """Take the baseline's quantiles from what it answered to the replay."""
        return self._replay.freeze(c, scales, least)

    def read(self, c: CellId, since: Cursor) -> Evidence:
        """Return the replay's counts since the cursor, customers' own beside them; a replay that cannot be read is `down`."""
        log = self._log.read(c, replace(since, position=_position(since, _LOG)))
        try:
            replay = self._replay.read(c, replace(since, position=_position(since, _REPLAY)))
        except (EvidenceUnavailable, ConfigInvalid) as e:
            replay = Evidence(cell=c, at=log.at, arms={arm: Counts() for arm in ARMS}, state=_DOWN, cursor=since, detail=e.message)
        broken = {arm: s for arm, s in log.state.items() if s not in QUIET_OR_OK}
        return replace(
            replay,
            cursor=since,
            state={arm: min(replay.state[arm], broken.get(arm, "ok"), key=WORST.index) for arm in ARMS},
            query=f"{self._name}: {replay.query} | log: {log.query}" if log.query else f"{self._name}: {replay.query}",
            detail="; ".join(d for d in (replay.detail, f"log: {log.detail}" if log.detail else "") if d),
            faults=tuple(sorted({*replay.faults, *log.faults})),
            beside=replace(log, cursor=since),
            cuts=replay.cuts + log.cuts,
        )

    def describe(self, c: CellId) -> tuple[Series, ...]:
        """List what there is per arm, by source."""
        both = ((self._name, self._replay), ("log", self._log))
        return tuple(replace(s, name=f"{name}.{s.name}") for name, source in both for s in source.describe(c))


def _position(cursor: Cursor, name: str) -> str:
    try:
        return str(json.loads(cursor.position)[name])
    except (ValueError, KeyError, TypeError):
        return cursor.position


def _joined(whole: Thresholds, own: Thresholds) -> Thresholds:
    """Return both sources' quantiles: the first one's of a metric, but bounds of buckets give way to quantiles of records, in any order."""
    others = dict(whole.others)
    for metric in ("latency", *dict(own.others)):
        first, other = whole.quantiles(metric), own.quantiles(metric)
        if other is not None and (first is None or (first.edges_only and not other.edges_only)):
            others[metric] = other
    return replace(whole, others=tuple(sorted(others.items())), scales=tuple(sorted({*whole.scales, *own.scales})))


def _worst(one: Mapping[Arm, SignalState], other: Mapping[Arm, SignalState]) -> dict[Arm, SignalState]:
    return {arm: min(one[arm], other[arm], key=WORST.index) for arm in ARMS}


def _worse(e: Evidence, states: Mapping[Arm, SignalState], why: str) -> Evidence:
    """Return evidence with what another source makes of its states."""
    return replace(e, state=_worst(e.state, states), detail=f"{e.detail}; {why}" if e.detail else why)


def merged(first: Evidence, other: Evidence, name: str, *, is_tolerated: bool) -> Evidence:
    """Return the first source's evidence with what the other one measures besides.

    A tolerated one's state does not count: where its numbers cannot be used (a restart, say) it is as silent as one that does not answer.
    """
    state = dict(first.state)
    is_usable = all(other.state[arm] in QUIET_OR_OK for arm in ARMS)
    if not is_tolerated:
        state = _worst(first.state, other.state)
    elif not is_usable:
        why = ", ".join(f"{arm} {other.state[arm]}" for arm in ARMS if other.state[arm] not in QUIET_OR_OK)
        other = replace(other, detail="; ".join(d for d in (other.detail, f"{name} left out: {why}") if d))
    detail = "; ".join(d for d in (first.detail, other.detail) if d)
    return replace(
        first,
        arms={arm: _both(first.arms[arm], other.arms[arm], name) for arm in ARMS} if is_usable or not is_tolerated else first.arms,
        state=state,
        detail=detail,
        faults=tuple(sorted({*first.faults, *other.faults})),
        query=" | ".join(q for q in (first.query, other.query) if q),
        sticky=first.sticky or other.sticky,
        cuts=first.cuts + (0 if is_tolerated else other.cuts),
    )


def _both(first: Counts, other: Counts, name: str) -> Counts:
    """Add what the first does not measure; nothing is counted twice. The other's errors are a share of their own, `errors_<name>`."""
    told, more = ({key.partition("@")[0] for key in c.ladders} for c in (first, other))  # who tells a ladder tells over how many
    has_latency = "latency" in told or ("latency" not in more and first.timed > 0)
    mine = told | {m for m in first.timed_of if m not in more} | ({"latency"} if has_latency else set())
    ladders = {k: v for k, v in other.ladders.items() if k.partition("@")[0] not in mine}
    has_cache = first.prompt_tokens > 0
    ends = () if FINISHED not in first.shares else ("finish",)
    shares = {k: v for k, v in other.shares.items() if not k.startswith(ends)}
    theirs = {k: v for k, v in other.clusters_of.items() if k.partition("/")[0] not in mine and not k.startswith(ends)}
    if has_latency:
        theirs.pop("slo_misses", None)  # as `misses`
    return replace(
        first,
        ladders={**ladders, **first.ladders},
        timed=first.timed if has_latency else other.timed,
        misses=first.misses if has_latency else other.misses,
        mean_latency_ms=first.mean_latency_ms if has_latency else other.mean_latency_ms,
        quantiles_ms=first.quantiles_ms if has_latency else other.quantiles_ms,
        timed_of={
            **{m: n for m, n in other.timed_of.items() if m not in mine},
            **{m: n for m, n in first.timed_of.items() if m in mine},
        },
        shares={**({f"errors_{name}": (other.attempts, other.errors)} if other.attempts else {}), **shares, **first.shares},
        means={**other.means, **first.means},
        cached_tokens=first.cached_tokens if has_cache else other.cached_tokens,
        prompt_tokens=first.prompt_tokens if has_cache else other.prompt_tokens,
        clusters_of={f"errors_{name}": other.clusters, **theirs, **first.clusters_of},
    )


def measures(e: Evidence, arm: Arm) -> tuple[str, ...]:
    """Return the ladder metrics that an arm has values of."""
    counts = e.arms[arm]
    return tuple(m for m in ("latency", "ttft", "token_time", "nll") if counts.timed_for(m))
