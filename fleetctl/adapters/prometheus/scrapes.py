"""Evidence, adapter layer: counters of a cell's replicas as Prometheus has stored them. Never a rate, never a verdict.

Raw samples are asked for, not `rate()` or `histogram_quantile()`: counts over frozen bounds are what can be judged, and every sample is
its target's whole page of one moment. Names in queries are the table's; addresses and counters are the fleet file's, escaped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import isfinite

from fleetctl.adapters.prometheus.client import PrometheusApi, Trace
from fleetctl.analysis.buckets import scrape_of
from fleetctl.domain.evidence import ARMS, Arm
from fleetctl.domain.ids import CellId
from fleetctl.domain.metrics import Family, MetricTable, Series
from fleetctl.domain.records import Scrape
from fleetctl.domain.units import Instant
from fleetctl.errors import EvidenceUnavailable, FleetctlError

READ = (
    "requests_total",
    "errors_total",
    "prompt_tokens_total",
    "cached_tokens_total",
    "output_tokens_total",
    "ttft_seconds",
    "time_per_output_token_seconds",
    "e2e_seconds",
    "gpu_health",
    "gpu_xid",
    "gpu_ecc_uncorrected_total",
)
"""Canonical metrics that are asked for."""
FIRST_WINDOW_S = 60
LONGEST_WINDOW_S = 3_600
LOOK_BACK_S = 300
"""How long before a window a series of an own counter is looked for, to tell one that began in it from one that was there."""
_SERIES = re.compile(r'[a-zA-Z_:][a-zA-Z0-9_:]*(\{([a-zA-Z_][a-zA-Z0-9_]*(=|!=|=~|!~)"[^"\\\n]*",?)*\})?\Z')


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One scraped target of an arm.

    Args:
        instance: value of the label that names it.
        system, version: of its exporter; needs: canonical metrics without which it is of no use.
    """

    arm: Arm
    instance: str
    system: str
    version: str = ""
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCounter:
    """A counter of the fleet file's own: events among all, told apart by a label with the arm's name.

    Args:
        events, of: series selectors such as `shop_failed_total{shop="eu"}`.
    """

    name: str
    events: str
    of: str


def checked_series(text: str) -> str:
    """Return a selector of one name with plain matchers.

    Raises:
        ValueError: it is none.
    """
    plain = "".join(text.split())
    if not _SERIES.match(plain) or len(plain) > 300:
        raise ValueError(f'{text[:80]!r} is no series: write NAME or NAME{{label="value"}}')
    return plain


class PrometheusScraper:
    """`Scraper` of what Prometheus stored.

    Args:
        targets: per cell; label: that names a target; own: the fleet file's counters; arm_label: label with the arm's name, for them.
    """

    def __init__(
        self,
        api: PrometheusApi,
        targets: Mapping[CellId, tuple[Target, ...]],
        table: MetricTable,
        *,
        now: Callable[[], Instant],
        label: str = "instance",
        own: tuple[OwnCounter, ...] = (),
        arm_label: str = "arm",
    ) -> None:
        self._api, self._targets, self._table, self._now = api, dict(targets), table, now
        self._label, self._own, self._arm_label = label, own, arm_label

    def scrapes(self, c: CellId, start: Instant, after: Instant | None) -> Iterable[Scrape]:
        """Return every stored scrape since `after`; without it of each target the first ones since `start` and the newest.

        Of own counters it is all of them: their processes may have come and gone in between.
        """
        now = self._now()
        if now < start:
            return []
        if after is not None:
            return self._between(c, after, now) + self._own_scrapes(c, after, now) + self._missing(c, now)
        first_end = min(now.timestamp(), start.timestamp() + FIRST_WINDOW_S)
        found = self._between(c, start, datetime.fromtimestamp(first_end, UTC))
        if now.timestamp() > first_end:
            was_reset = self._resets(c, start, now)
            newest = self._between(c, datetime.fromtimestamp(max(first_end, now.timestamp() - FIRST_WINDOW_S), UTC), now)
            found += [replace(s, reset=True) if s.replica in was_reset else s for s in newest]
        return found + self._own_scrapes(c, start, now) + self._missing(c, now)

    def newest(self, c: CellId) -> Iterable[Scrape]:
        """Return the scrapes of the last minute."""
        now = self._now()
        begin = datetime.fromtimestamp(now.timestamp() - FIRST_WINDOW_S, UTC)
        found = self._between(c, begin, now) + self._own_scrapes(c, begin, now) + self._missing(c, now)
        return found + self._unknown_counters(c, found, now)

    def _unknown_counters(self, c: CellId, found: list[Scrape], now: Instant) -> list[Scrape]:
        """Return a scrape with trouble for every counter of the fleet file that Prometheus does not have for an arm.

        Events that nobody has ever written, not even as 0, are taken for mistyped: they would always be 0, and always pass.
        """
        there = {(s.arm, key) for s in found for key in s.values}
        at_ms = round(now.timestamp() * 1_000)
        out = []
        for own in self._own:
            for arm in ARMS:
                replica = f"counter {own.name} {arm}"
                if (arm, f"counter.{own.name}/of") not in there:
                    trouble = f'Prometheus has no {own.of} with {self._arm_label}="{arm}"'
                    out.append(Scrape(cell=c, arm=arm, replica=replica, at_ms=at_ms, trouble=trouble))
            if not self._knows(own.events):
                trouble = f"Prometheus has no {own.events}: mistyped, or never written (export it as 0 from the start)"
                out.append(Scrape(cell=c, arm="canary", replica=f"counter {own.name}", at_ms=at_ms, trouble=trouble))
        return out

    def _knows(self, selector: str) -> bool:
        try:
            return bool(self._api.query(f"count({selector})"))
        except FleetctlError as e:
            raise self._unavailable(e) from e

    def query(self, c: CellId) -> str:
        """Return the selectors that are asked for."""
        return " ; ".join(f"{self._selector(c, key)}[...]" for key in self._kinds(c))[:1_500]

    def _kinds(self, c: CellId) -> list[tuple[str, str]]:
        return list(dict.fromkeys((t.system, t.version) for t in self._targets.get(c, ())))

    def _selector(self, c: CellId, kind: tuple[str, str]) -> str:
        instances = "|".join(re.escape(t.instance) for t in self._targets[c] if (t.system, t.version) == kind)
        names = "|".join(self._series_names(*kind))
        return f'{{__name__=~"{names}",{self._label}=~"{_escaped(instances)}"}}'

    def _series_names(self, system: str, version: str) -> list[str]:
        wanted = set(self._table.names(system, version, READ))
        out = []
        for f in (f for f in self._table.families if f.system == system and f.name in wanted):
            out += [_spelled(f, part) for part in (("_bucket", "_sum") if f.kind == "histogram" else ("",))]
        return sorted(dict.fromkeys(out))

    def _between(self, c: CellId, begin: Instant, end: Instant) -> list[Scrape]:
        """Return the stored scrapes after `begin` up to `end`, oldest first."""
        window = max(1, min(LONGEST_WINDOW_S, int(end.timestamp() - begin.timestamp()) + 1))
        pages: dict[tuple[str, float], list[Series]] = {}
        for kind in self._kinds(c):
            for trace in self._ask(f"{self._selector(c, kind)}[{window}s]", end.timestamp()):
                for at, value in trace.points:
                    if at > begin.timestamp():
                        name = trace.labels.get("__name__", "")
                        pages.setdefault((trace.labels.get(self._label, ""), at), []).append(
                            Series(name=name, labels=trace.labels, value=value)
                        )
        by_name: dict[str, list[Target]] = {}  # one replica named on both arms is a scrape of each, so that it shows
        for t in self._targets.get(c, ()):
            by_name.setdefault(t.instance, []).append(t)
        found = [self._scrape(c, t, at, page) for (name, at), page in pages.items() for t in by_name.get(name, ())]
        return sorted(found, key=lambda s: s.at_ms)

    def _scrape(self, c: CellId, target: Target, at: float, page: list[Series]) -> Scrape:
        return scrape_of(
            self._table,
            self._table.read(target.system, target.version, page),
            system=target.system,
            version=target.version,
            needs=target.needs,
            cell=c,
            arm=target.arm,
            replica=target.instance,
            at_ms=round(at * 1_000),
        )

    def _own_scrapes(self, c: CellId, begin: Instant, end: Instant) -> list[Scrape]:
        """Return what the fleet file's own counters were after `begin` up to `end`, asked for in pieces of an hour."""
        out, since = [], begin
        while self._own and since < end:
            until = min(end, datetime.fromtimestamp(since.timestamp() + LONGEST_WINDOW_S, UTC))
            out += self._own_piece(c, since, until)
            since = until
        return out

    def _own_piece(self, c: CellId, begin: Instant, end: Instant) -> list[Scrape]:
        """Return the fleet file's own counters as scrapes of a replica per series, since each process is scraped at moments of its own.

        A series that began in this window, beside others of its counter and arm that were there before, is marked (`reset`): all that it
        counts is new.
        """
        window = int(end.timestamp() - begin.timestamp()) + 1
        out: list[Scrape] = []
        for own in self._own:
            traces = [
                (part, arm, trace)
                for part, selector in (("events", own.events), ("of", own.of))
                for trace in self._ask(f"{selector}[{window + LOOK_BACK_S}s]", end.timestamp())
                for arm in ARMS
                if trace.labels.get(self._arm_label) == arm
            ]
            was_there = {arm for _, arm, trace in traces if any(at <= begin.timestamp() for at, _ in trace.points)}
            for part, arm, trace in traces:
                is_old = arm not in was_there or any(at <= begin.timestamp() for at, _ in trace.points)
                labels = ",".join(f"{k}={v}" for k, v in sorted(trace.labels.items()) if k not in ("__name__", self._arm_label))
                replica = f"counter {own.name} {arm} {part} {labels}"
                out += [
                    Scrape(
                        cell=c,
                        arm=arm,
                        replica=replica,
                        at_ms=round(at * 1_000),
                        values={f"counter.{own.name}/{part}": value},
                        reset=not is_old,
                    )
                    for at, value in trace.points
                    if at > begin.timestamp() and isfinite(value)
                ]
        return out

    def _missing(self, c: CellId, now: Instant) -> list[Scrape]:
        """Return a scrape that is not up for every target that Prometheus does not reach, or does not know."""
        targets = self._targets.get(c, ())
        instances = _escaped("|".join(re.escape(t.instance) for t in targets))
        try:
            up = {s.labels.get(self._label, ""): s.value for s in self._api.query(f'up{{{self._label}=~"{instances}"}}')}
        except FleetctlError as e:
            raise self._unavailable(e) from e
        at_ms = round(now.timestamp() * 1_000)
        out = []
        for t in targets:
            if t.instance not in up:
                trouble = f'Prometheus has no target with {self._label}="{t.instance}"'
                out.append(Scrape(cell=c, arm=t.arm, replica=t.instance, at_ms=at_ms, trouble=trouble))
            elif up[t.instance] != 1:
                out.append(Scrape(cell=c, arm=t.arm, replica=t.instance, at_ms=at_ms, up=False, trouble="Prometheus cannot scrape it"))
        return out

    def _resets(self, c: CellId, start: Instant, now: Instant) -> set[str]:
        """Return targets one of whose counters of requests began again between two moments."""
        window = max(1, int(now.timestamp() - start.timestamp()))
        out = set()
        for system, version in self._kinds(c):
            for name in self._table.names(system, version, ("requests_total",)):
                query = f"sum by ({self._label}) (resets({name}[{window}s])) > 0"
                try:
                    out |= {s.labels.get(self._label, "") for s in self._api.query(query)}
                except FleetctlError as e:
                    raise self._unavailable(e) from e
        return out

    def _ask(self, text: str, at: float) -> list[Trace]:
        try:
            return self._api.traces(text, at)
        except FleetctlError as e:
            raise self._unavailable(e) from e

    def _unavailable(self, e: FleetctlError) -> EvidenceUnavailable:
        return EvidenceUnavailable("evidence.down", e.message, hint=e.hint or "Run: fleetctl doctor")


def _spelled(f: Family, part: str) -> str:
    """Return a pattern of a family's series name, with the prefix that its exporter may put before it."""
    name = re.escape(f.name + part).replace("\\", "\\\\")
    return f"(amd_)?{name}" if f.system == "amd_exporter" else name


def _escaped(pattern: str) -> str:
    return pattern.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "")
