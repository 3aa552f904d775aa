"""Plan, pure layer: what keeps a cell out of a pool beyond room, memory and price: network path, end of capacity, cooling. Never I/O.

path     needed where region and cloud both change, and it must be private behind a router that takes private addresses only
round    of a declared path: at most the least latency margin of the policy times the SLO's latency, or that of its first token
         (batch has no such limit)
first    an SLO that promises a first token or a time per token needs a run of the target that kept it (fleetctl.planning.slo_limits)
ends     a target's capacity must outlast the policy's horizon: in that time the move earns back its cost
cooling  an accelerator that needs liquid has no place in a region that cools by air
egress   bytes of prompts and answers that cross the path, USD per hour; counted like the move's own cost
"""

from __future__ import annotations

from datetime import date, timedelta

from fleetctl.domain.catalog import Catalog, Performance
from fleetctl.domain.fleet import Fleet, NetworkPath, Policy
from fleetctl.domain.people import Reason
from fleetctl.domain.units import Instant
from fleetctl.domain.workload import Cell, Traffic, Workload
from fleetctl.planning.candidates import Site, refusal
from fleetctl.planning.placement import Refusal
from fleetctl.planning.slo_limits import is_shown
from fleetctl.planning.speed import DECLARED_KEY

DEFAULT_MARGIN = 0.10
"""Of the SLO's latency, where the policy has no latency guardrail. Source: evidence.md 2, its least latency margin."""
PROMPT_BYTES_PER_TOKEN = 4.0
"""Source: about 4 characters of English a token (tokenizers' documentation); estimated."""
STREAM_BYTES_PER_TOKEN = 250.0
"""Of a streamed answer: one server-sent chunk of the OpenAI API a token, counted by hand; estimated."""
PRIVATE_ONLY = frozenset({"alb"})
"""Routers whose targets by address must be private. Source: AWS, Application Load Balancer target groups, target type ip."""


def ends_before(ends: str, at: Instant) -> bool:
    """Tell whether capacity that ends after a day (ISO date, "" for never) is gone at an instant."""
    return bool(ends) and date.fromisoformat(ends) < at.date()


def latency_margin(policy: Policy) -> float:
    """Return the least latency margin of the policy's judged steps, a ratio."""
    margins = [g.margin for s in policy.steps for g in s.guardrails if g.name == "latency" and g.judged]
    return min(margins, default=DEFAULT_MARGIN)


def egress_usd_per_hour(traffic: Traffic, path: NetworkPath | None) -> float:
    """Return what the traffic of one cell costs that crosses a path; 0 where no price is declared."""
    if path is None or not path.egress_usd_per_gb:
        return 0.0
    each = STREAM_BYTES_PER_TOKEN if traffic.streaming else PROMPT_BYTES_PER_TOKEN
    octets = traffic.input_tokens * PROMPT_BYTES_PER_TOKEN + traffic.output_tokens * each
    return traffic.requests_per_s * 3600 * octets / 1e9 * path.egress_usd_per_gb


class Barriers:
    """Answers for one fleet; equal questions cost a look into a mapping."""

    def __init__(self, fleet: Fleet, catalog: Catalog, now: Instant) -> None:
        self._paths = {frozenset((p.one, p.other)): p for p in fleet.paths}
        self._margin = latency_margin(fleet.policy)
        self._until = now + fleet.policy.horizon
        self._days = fleet.policy.horizon / timedelta(days=1)
        self._cooling = fleet.policy.cooling
        self._needs = {g.name: g.cooling for g in catalog.gpus}
        self._runs: dict[str, list[Performance]] = {}
        for r in catalog.performance:
            self._runs.setdefault(r.gpu, []).append(r)
        measured = set(self._runs)
        self._announced = frozenset(g.name for g in catalog.gpus if not g.target and g.name not in measured)
        self._private_only = frozenset(r.name for r in fleet.routers if r.kind in PRIVATE_ONLY)

    def key(self, cell: Cell, w: Workload, source: Site) -> tuple[object, ...]:
        """Return all of a question but the target."""
        cloud = source.sku.cloud if source.sku is not None else ""
        is_near = not cell.regions or w.klass == "batch"
        timed = w.slo.ttft_ms is not None or w.slo.tpot_ms is not None
        promised = (w.slo.ttft_ms, w.slo.tpot_ms, w.model.name, w.serving.get(DECLARED_KEY), source.pool.sku) if timed else None
        return cloud, source.pool.region, None if is_near else w.slo.latency_ms, cell.router.name in self._private_only, promised

    def path(self, source: Site, target: Site) -> NetworkPath | None:
        """Return the declared way between two pools, None where there is none or none is needed."""
        if source.pool.region == target.pool.region or not self._paths:
            return None
        return self._paths.get(frozenset((source.pool.region, target.pool.region)))

    def egress(self, w: Workload, path: NetworkPath) -> float:
        """Return what one cell's traffic costs that crosses a path, USD per hour."""
        return egress_usd_per_hour(w.traffic, path)

    def against(self, cell: Cell, w: Workload, source: Site, target: Site) -> Refusal | None:
        """Return what keeps the cell out of the target, None where nothing does."""
        pool, sku = target.pool, target.sku
        if sku is not None and sku.gpu in self._announced:
            text = f"{sku.gpu} is announced: nobody has measured one, and no compiler target is published."
            return refusal("catalog.announced", text, "Measure one (fleetctl bench), or use an accelerator that is to be had.")
        if ends_before(pool.ends, self._until):
            text = f"The capacity of {pool.id} ends on {pool.ends}, within the horizon of {self._days:.0f} days."
            return refusal("ends.target", text, f"Extend it, or shorten policy.horizon; pool {pool.id}.")
        if sku is not None and self._cooling.get(pool.region) == "air" and self._needs.get(sku.gpu) == "liquid":
            text = f"{sku.gpu} needs liquid cooling, {pool.region} cools by air."
            return refusal("cooling", text, "Use an air-cooled accelerator, or a region with liquid cooling.")
        return self._first_token(w, source, target) or self._network(cell, w, source, target)

    def _first_token(self, w: Workload, source: Site, target: Site) -> Refusal | None:
        if (w.slo.ttft_ms is None and w.slo.tpot_ms is None) or source.sku is None or target.sku is None:
            return None
        if "lab" in (source.sku.cloud, target.sku.cloud) or source.sku.gpu == target.sku.gpu:
            return None
        if w.serving.get(DECLARED_KEY) and (source.pool.vendor, target.pool.vendor) == ("nvidia", "amd"):
            return None
        if is_shown(w, self._runs.get(target.sku.gpu, ())):
            return None
        said = [
            f"{name} within {ms:g} ms" for name, ms in (("the first token", w.slo.ttft_ms), ("each token", w.slo.tpot_ms)) if ms is not None
        ]
        text = f"No run shows that {target.sku.gpu} gives {' and '.join(said)}."
        change = f"Measure it with your own trace (fleetctl bench), declare {DECLARED_KEY} from your own runs, or loosen the SLO."
        return refusal("slo.first_token", text, change)

    def _network(self, cell: Cell, w: Workload, source: Site, target: Site) -> Refusal | None:
        here, there = source.pool.region, target.pool.region
        if here == there or source.sku is None or target.sku is None:
            return None
        path = self.path(source, target)
        if path is None:
            if source.sku.cloud == target.sku.cloud:
                return None
            text = f"{target.pool.id} is in another cloud ({target.sku.cloud}, {there}), and no path from {here} is declared."
            return refusal("path.none", text, f"Measure it and declare it under paths: between: [{here}, {there}], round_trip, private.")
        if cell.router.name in self._private_only and not path.is_private:
            text = f"Router {cell.router.name} reaches private addresses only, the path from {here} to {there} is public."
            return refusal("path.public", text, "Peer the networks or use a dedicated line, then declare the path private.")
        promised = [ms for ms in (w.slo.latency_ms, w.slo.ttft_ms) if ms is not None and w.klass != "batch"]
        least = min(promised, default=float("inf"))
        most = self._margin * least
        if path.round_trip_ms > most:
            what = " to the first token" if least == w.slo.ttft_ms else ""
            text = (
                f"A round trip from {here} to {there} takes {path.round_trip_ms:g} ms, more than the margin of {most:.3g} ms "
                f"({self._margin:.0%} of its SLO of {least:g} ms{what})."
            )
            return refusal("path.round_trip", text, "Use a nearer region, or loosen the SLO or the latency margin.")
        return None


def ends_too_soon(source: Site, hours: float, now: Instant) -> Reason | None:
    """Return why a cell's source cannot be held until its soak is over, None where it can."""
    if not ends_before(source.pool.ends, now + timedelta(hours=min(hours, 24 * 3650))):
        return None
    text = f"The capacity of its source {source.pool.id} ends on {source.pool.ends}, before its soak is over: there would be no way home."
    return Reason(code="ends.source", text=text)
