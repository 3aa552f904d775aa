"""Inventory, adapter layer: what Prometheus measured of engines and machines over a window. Never builds a query from discovered text.

The only thing that varies in a query is the window, which is a number and a unit.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from fleetctl.adapters.prometheus.client import PrometheusApi, Sample
from fleetctl.domain.people import Facts, Gap
from fleetctl.domain.tags import short
from fleetctl.domain.units import Instant, Scalar
from fleetctl.errors import FleetctlError, InventoryFailed

_WINDOW = re.compile(r"[1-9][0-9]{0,3}[smhd]\Z")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_BY = "by (instance, model_name)"

ENGINE_QUERIES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "vllm": (
        ("requests_per_s", f"sum {_BY} (rate(vllm:request_success_total[{{w}}]))"),
        ("input", f"sum {_BY} (rate(vllm:prompt_tokens_total[{{w}}]))"),
        ("output", f"sum {_BY} (rate(vllm:generation_tokens_total[{{w}}]))"),
        ("p95_s", "histogram_quantile(0.95, sum by (instance, model_name, le) (rate(vllm:e2e_request_latency_seconds_bucket[{w}])))"),
        ("trough_per_s", f"min_over_time(sum {_BY} (rate(vllm:request_success_total[5m]))[{{w}}:{{step}}])"),
    ),
    "sglang": (
        ("requests_per_s", f"sum {_BY} (rate(sglang:num_requests_total[{{w}}]))"),
        ("input", f"sum {_BY} (rate(sglang:prompt_tokens_total[{{w}}]))"),
        ("output", f"sum {_BY} (rate(sglang:generation_tokens_total[{{w}}]))"),
        ("p95_s", "histogram_quantile(0.95, sum by (instance, model_name, le) (rate(sglang:e2e_request_latency_seconds_bucket[{w}])))"),
    ),
    "tgi": (
        ("requests_per_s", "sum by (instance) (rate(tgi_request_count[{w}]))"),
        ("input", "sum by (instance) (rate(tgi_request_input_length_sum[{w}]))"),
        ("output", "sum by (instance) (rate(tgi_request_generated_tokens_sum[{w}]))"),
        ("p95_s", "histogram_quantile(0.95, sum by (instance, le) (rate(tgi_request_duration_bucket[{w}])))"),
    ),
    "triton": (("requests_per_s", "sum by (instance) (rate(nv_inference_request_success[{w}]))"),),
    "llama.cpp": (("output", "sum by (instance) (rate(llamacpp:tokens_predicted_total[{w}]))"),),
}
"""Per engine. Source: as the families of the engines' own pages; the same names are asked."""

MACHINE_QUERIES = (
    ("gpu_use", "avg by (Hostname, hostname, instance) (avg_over_time((DCGM_FI_DEV_GPU_UTIL <= 100)[{w}:{step}])) / 100"),
    ("gpu_use", "avg by (hostname, instance) (avg_over_time(gpu_gfx_activity[{w}])) / 100"),
)
"""GPU use as a share. Source: dcgm-exporter default-counters.csv (after 4.5.3, label Hostname before, hostname after), values over 100 and
sentinels occur and are dropped; ROCm device-metrics-exporter 1.5.2. Looked up 2026-11-30."""


class PrometheusDiscovery:
    """`PartedDiscovery` of one Prometheus; one part per engine, and one for the GPUs.

    Args:
        name: of this source; window: how far back the means go, such as "24h"; now: the time.
    """

    def __init__(self, name: str, api: PrometheusApi, now: Callable[[], Instant], *, window: str = "24h") -> None:
        if not _WINDOW.match(window):
            raise InventoryFailed("inventory.prometheus", f"the window {window[:20]!r} is no time.", hint="Write it as 30m, 24h or 7d")
        self._name = name
        self._api = api
        self._now = now
        self._window = window
        self._step = f"{max(1, int(window[:-1]) * _SECONDS[window[-1]] // 60)}s"

    @property
    def name(self) -> str:
        """Return "prometheus" and the source's name."""
        return f"prometheus {self._name}"

    def parts(self) -> tuple[str, ...]:
        """Return the engines, and "gpus"."""
        return (*ENGINE_QUERIES, "gpus")

    def scan(self, scope: str) -> Iterator[Facts | Gap]:
        """Yield means of one part, or all of them."""
        for part in [scope] if scope else self.parts():
            yield from self._gpus() if part == "gpus" else self._engines(part)

    def _whole(self, query: str) -> str:
        return query.replace("{w}", self._window).replace("{step}", self._step)

    def _engines(self, engine: str) -> Iterator[Facts | Gap]:
        rows: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
        for what, query in ENGINE_QUERIES[engine]:
            try:
                samples = self._api.query(self._whole(query))
            except FleetctlError as e:
                if what == "requests_per_s" or e.code.startswith("credentials."):
                    raise
                yield Gap(scope=engine, reason=f"{what}: {e.message}", source=self.name, code=e.code, mend=e.hint)
                continue
            for sample in samples:
                rows[sample.labels.get("instance", ""), sample.labels.get("model_name", "")][what] = sample.value
        now = self._now()
        for (instance, model), row in sorted(rows.items()):
            if instance:
                yield Facts(values=_engine(instance, model, engine, row), source=self.name, seen_at=now)

    def _gpus(self) -> Iterator[Facts | Gap]:
        now = self._now()
        for what, query in MACHINE_QUERIES:
            for sample in self._api.query(self._whole(query)):
                values = _machine(sample, what)
                if values:
                    yield Facts(values=values, source=self.name, seen_at=now)


def _engine(instance: str, model: str, engine: str, row: Mapping[str, float]) -> dict[str, Scalar]:
    values: dict[str, Scalar] = {"engine": short(instance), "address": _host(instance), "software": engine}
    if model:
        values["model"] = short(model)
    rate = row.get("requests_per_s")
    if rate is not None:
        values["requests_per_s"] = round(rate, 4)
    if rate:
        values |= {f"{what}_tokens": round(row[what] / rate, 1) for what in ("input", "output") if what in row}
    if "p95_s" in row:
        values["p95_ms"] = round(row["p95_s"] * 1000, 1)
    if "trough_per_s" in row:
        values["trough_per_s"] = round(row["trough_per_s"], 4)
    return values


def _machine(sample: Sample, what: str) -> dict[str, Scalar]:
    host = sample.labels.get("Hostname") or sample.labels.get("hostname") or _host(sample.labels.get("instance", ""))
    if not host or not 0 <= sample.value <= 1:
        return {}
    name = "_".join(short(host).split())
    return {"machine": name, "name": name, "address": _host(sample.labels.get("instance", "")) or name, what: round(sample.value, 4)}


def _host(instance: str) -> str:
    host, colon, port = instance.rpartition(":")
    text = host if colon and port.isdigit() else instance
    return "_".join(short(text).strip("[]").split())
