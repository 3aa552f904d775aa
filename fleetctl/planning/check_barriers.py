"""Plan, pure layer: checks paths, cooling and ends of capacity afresh. Shares no code with `barriers`, so that it can disagree."""

from __future__ import annotations

from datetime import date

from fleetctl.domain.catalog import Catalog
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.pool import Pool
from fleetctl.domain.units import Instant
from fleetctl.domain.workload import Cell, Workload
from fleetctl.planning.slo_limits import LIMITS_MS, plain_model


class BarrierCheck:
    """Answers from the fleet file and the catalogue alone."""

    def __init__(self, fleet: Fleet, catalog: Catalog, made_at: Instant) -> None:
        self._fleet = fleet
        self._cloud = {s.name: s.cloud for s in catalog.skus}
        wet = {g.name for g in catalog.gpus if g.cooling == "liquid"}
        runs = [r.gpu for r in catalog.performance]
        self._unseen = {s.name for s in catalog.skus if any(g.name == s.gpu and not g.target and g.name not in runs for g in catalog.gpus)}
        self._wet = {s.name for s in catalog.skus if s.gpu in wet}
        self._gpu, self._runs = {s.name: s.gpu for s in catalog.skus}, catalog.performance
        self._last = (made_at + fleet.policy.horizon).date()
        self._alb = {r.name for r in fleet.routers if r.kind == "alb"}
        found = [g.margin for s in fleet.policy.steps for g in s.guardrails if g.name == "latency" and g.judged]
        self._margin = min(found) if found else 0.1
        self._way = {}
        for p in fleet.paths:
            self._way[p.one, p.other] = self._way[p.other, p.one] = p

    def barred(self, cell: Cell, w: Workload, source: Pool, target: Pool) -> bool:
        """Tell whether the target may not take the cell."""
        if target.ends and date.fromisoformat(target.ends) < self._last:
            return True
        if target.sku in self._unseen:
            return True
        if target.sku in self._wet and self._fleet.policy.cooling.get(target.region) == "air":
            return True
        if self._unproven(w, source, target):
            return True
        if source.region == target.region or source.sku not in self._cloud or target.sku not in self._cloud:
            return False
        way = self._way.get((source.region, target.region))
        if way is None:
            return self._cloud[source.sku] != self._cloud[target.sku]
        promised = [x for x in (w.slo.latency_ms, w.slo.ttft_ms) if x is not None]
        slow = w.klass != "batch" and any(way.round_trip_ms > self._margin * x for x in promised)
        return slow or (cell.router.name in self._alb and not way.is_private)

    def _unproven(self, w: Workload, source: Pool, target: Pool) -> bool:
        """Tell whether a first token or a time per token is promised that no run of the target's accelerator kept."""
        old, new = self._gpu.get(source.sku, ""), self._gpu.get(target.sku, "")
        first, each = w.slo.ttft_ms, w.slo.tpot_ms
        if (
            (first is None and each is None)
            or "" in (old, new)
            or old == new
            or "lab" in (self._cloud[source.sku], self._cloud[target.sku])
        ):
            return False
        if "target_speed" in w.serving and w.serving["target_speed"] and source.vendor == "nvidia" and target.vendor == "amd":
            return False
        for r in self._runs:
            if r.gpu != new or (r.kind == "own" and plain_model(r.model) != plain_model(w.model.name)):
                continue
            kept = (r.ttft_p95_ms, r.tpot_p95_ms) if r.kind == "own" else LIMITS_MS.get((r.model, r.klass), (None, None))
            if (first is None or (kept[0] or float("inf")) <= first) and (each is None or (kept[1] or float("inf")) <= each):
                return False
        return True

    def egress(self, cell: Cell, w: Workload, source: Pool, target: Pool) -> float:
        """Return USD per hour of prompts (4 bytes a token) and answers (250 streamed, else 4) that cross a path with a price."""
        del cell
        way = self._way.get((source.region, target.region))
        if way is None or way.egress_usd_per_gb is None or source.region == target.region:
            return 0.0
        t = w.traffic
        gb_per_s = t.requests_per_s * (4 * t.input_tokens + (250 if t.streaming else 4) * t.output_tokens) / 1e9
        return gb_per_s * 3600 * way.egress_usd_per_gb
