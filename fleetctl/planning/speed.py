"""Plan, pure layer: how fast a target accelerator is against the source's, per SLO class, from records. Never guesses above 1.

factor = tokens/s per target GPU over tokens/s per source GPU, same model, precision, SLO class and round
    measured  the user's own runs of the workload's model on both; else both have a record of it in one round
    derived   they have records of another model: the least of the ratios of that class (else of the stricter classes)
    bound     no record on one side: at most 1; less where the target has less bandwidth or FLOPS, or where it has a record against a
              stronger source (then that ratio times what the stronger one has more)

Source: MLPerf Inference: MI300X does 79 % of an H200 offline, 73 % as a server and 38 % interactively (planning.md 0), so one factor
per pair of GPUs is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil

from fleetctl.domain.catalog import Catalog, Gpu, Performance
from fleetctl.domain.plan import Speed
from fleetctl.domain.pool import Sku
from fleetctl.domain.workload import Slo, Workload
from fleetctl.planning.slo_limits import keeps, plain_model

SpeedOf = Callable[[Workload, Sku, Sku], Speed]
EMULATED = Speed(factor=1.0, kind="emulated", source="emulated machines: replicas as declared")
DECLARED_KEY = "target_speed"
"""Key of a workload's serving section with the user's own measured factor."""


class Speeds:
    """Answers with a factor and where it comes from; the same question is answered once.

    Args:
        amd_factor: multiplies every AMD throughput (sensitivity), 1.0 as recorded.
    """

    def __init__(self, catalog: Catalog, *, amd_factor: float = 1.0) -> None:
        self._catalog, self._amd = catalog, amd_factor
        self._gpus = {g.name: g for g in catalog.gpus}
        self._records: dict[tuple[str, str], list[Performance]] = {}
        for record in catalog.performance:
            self._records.setdefault((record.gpu, record.klass), []).append(record)
        self._rows: dict[tuple[str, ...], dict[str, Speed]] = {}
        self._row: dict[str, Speed] = {}
        self._recorded: dict[tuple[str, ...], Speed] = {}
        self._asked: tuple[Workload | None, Sku | None] = (None, None)

    def __call__(self, workload: Workload, source: Sku, target: Sku) -> Speed:
        """Return the factor of the target against the source for this workload."""
        if workload is not self._asked[0] or source is not self._asked[1]:
            w = workload
            promised = f"{w.slo.ttft_ms} {w.slo.tpot_ms}"
            key = (w.model.name, w.model.precision, w.klass, source.name, w.serving.get(DECLARED_KEY, ""), promised)
            self._asked = (workload, source)
            self._row = self._rows.setdefault(key, {})
        found = self._row.get(target.name)
        if found is None:
            found = self._row[target.name] = self._fresh(workload, source, target)
        return found

    def _fresh(self, workload: Workload, source: Sku, target: Sku) -> Speed:
        if "lab" in (source.cloud, target.cloud):
            return EMULATED
        declared = workload.serving.get(DECLARED_KEY, "") if (source.vendor, target.vendor) == ("nvidia", "amd") else ""
        return self._swayed(self._find(workload, source.gpu, target.gpu, declared), source, target)

    def _swayed(self, speed: Speed, source: Sku, target: Sku) -> Speed:
        sway = (self._amd if target.vendor == "amd" else 1.0) / (self._amd if source.vendor == "amd" else 1.0)
        return speed if sway == 1.0 else Speed(factor=speed.factor * sway, kind=speed.kind, source=speed.source)

    def _find(self, workload: Workload, source: str, target: str, declared: str) -> Speed:
        if source == target:
            return Speed(factor=1.0, kind="measured", source="the same accelerator")
        try:
            own = float(declared) if declared else 0.0
        except ValueError:
            own = 0.0
        if own > 0:
            return Speed(factor=own, kind="declared", source="the fleet file's target_speed")
        key = (workload.model.name, workload.klass, source, target, f"{workload.slo.ttft_ms} {workload.slo.tpot_ms}")
        if key not in self._recorded:
            self._recorded[key] = self._from_records(workload, source, target)
        return self._recorded[key]

    def _from_records(self, workload: Workload, source: str, target: str) -> Speed:
        own = list(self._own(workload, source, target))
        if own:
            factor, text = min(own)
            return Speed(factor=factor, kind="measured", source=text)
        for klass in _classes(workload.klass):
            pairs = list(self._pairs(source, target, klass, workload.slo))
            same = [(f, s) for f, s, model in pairs if model == plain_model(workload.model.name)]
            if same:
                return Speed(factor=min(same)[0], kind="measured" if klass == workload.klass else "derived", source=min(same)[1])
            if pairs:
                factor, text, _ = min(pairs)
                return Speed(factor=factor, kind="derived", source=text)
        return self._bounded(workload, source, target)

    def _bounded(self, workload: Workload, source: str, target: str) -> Speed:
        old, new = self._gpus.get(source), self._gpus.get(target)
        factor = min(1.0, _roofline(old, new))
        text = "no record: at most 1, less where bandwidth or FLOPS are less"
        stronger = [g for g in self._gpus.values() if g.name != source and _roofline(old, g) >= 1]
        pairs = [(g, *pair) for g in stronger for pair in self._shown(g.name, target, workload)]
        for gpu, ratio, record, _ in pairs:
            least = min(1.0, ratio * _roofline(old, gpu))
            if least < factor:
                factor, text = least, f"no record of {source}: from {gpu.name}, {record}"
        return Speed(factor=factor, kind="bound", source=text)

    def _shown(self, source: str, target: str, workload: Workload) -> list[tuple[float, str, str]]:
        """Return the pairs of the loosest class that keeps what the workload promises, its own first."""
        classes = _classes(workload.klass) if workload.slo.ttft_ms is not None or workload.slo.tpot_ms is not None else (workload.klass,)
        return next((pairs for k in classes if (pairs := list(self._pairs(source, target, k, workload.slo)))), [])

    def _own(self, workload: Workload, source: str, target: str) -> Iterator[tuple[float, str]]:
        """Yield the ratios of the user's own runs of this model in this class; two days and two engines are compared here alone."""
        for precision in {r.precision for r in self._records.get((target, workload.klass), ()) if r.kind == "own"}:
            new = self._fastest(workload, target, precision, workload.route)
            old = self._fastest(workload, source, precision, "native")
            if new is not None and old is not None:
                text = f"own runs of {new.model} {new.klass}: {new.engine} ({new.as_of}) against {old.engine} ({old.as_of})"
                yield new.tokens_per_s / old.tokens_per_s, text

    def _fastest(self, workload: Workload, gpu: str, precision: str, route: str) -> Performance | None:
        """Return the point of the user's curve with the most tokens at which the SLO was met, by one route."""
        mine = [
            r
            for r in self._records.get((gpu, workload.klass), ())
            if r.kind == "own"
            and r.precision == precision
            and plain_model(r.model) == plain_model(workload.model.name)
            and keeps(r, workload.slo)
            and (r.engine.partition("; route ")[2] or "native") == route
        ]
        return max(mine, key=lambda r: r.tokens_per_s, default=None)

    def _pairs(self, source: str, target: str, klass: str, slo: Slo) -> Iterator[tuple[float, str, str]]:
        for new in self._records.get((target, klass), ()):
            for old in self._records.get((source, klass), ()):
                if (new.model, new.precision, new.as_of) == (old.model, old.precision, old.as_of) and keeps(new, slo) and keeps(old, slo):
                    text = f"{new.model} {klass}, {new.precision}: {new.source}, {new.as_of}"
                    yield new.tokens_per_s / old.tokens_per_s, text, plain_model(new.model)


def _classes(klass: str) -> tuple[str, ...]:
    """Return the class, then those that promise no more than it (a looser class flatters, so it is never taken for a stricter one)."""
    order = ("batch", "online", "realtime")
    return order[order.index(klass) :] if klass in order else order


def _roofline(source: Gpu | None, target: Gpu | None) -> float:
    """Return the lesser ratio of bandwidth and FLOPS, target over source; 1 where neither is known."""
    ratios = []
    if source is not None and target is not None:
        if source.memory_bandwidth_tb_s and target.memory_bandwidth_tb_s:
            ratios.append(target.memory_bandwidth_tb_s / source.memory_bandwidth_tb_s)
        if source.bf16_dense_tflops and target.bf16_dense_tflops:
            ratios.append(target.bf16_dense_tflops / source.bf16_dense_tflops)
    return min(ratios, default=1.0)


def replicas_on(workload: Workload, speed: Speed) -> int:
    """Return the replicas that carry the same load at the same SLO; two stay two, since one lost replica is not to be all of them."""
    return max(min(2, workload.replicas), ceil(workload.replicas / speed.factor - 1e-9))
