"""Evidence, domain layer: what the series of engines and GPU exporters mean, by version, and their sums. Never I/O, never a guess.

A series is known by its exporter's system and version. What is not in the table is reported, never read as something near to it;
what is absent stays absent and is never zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import TypeVar

_T = TypeVar("_T")

SYSTEMS = ("vllm", "sglang", "tgi", "triton", "llamacpp", "dcgm", "amd_exporter", "haproxy", "envoy", "node")
ENGINES = ("vllm", "sglang", "tgi", "triton", "llamacpp")
VENDOR_EXPORTERS: Mapping[str, str] = {"nvidia": "dcgm", "amd": "amd_exporter"}
"""Which exporter tells of a vendor's GPUs."""

CANONICAL: Mapping[str, tuple[str, str]] = {
    "requests_total": ("requests", "counter"),
    "errors_total": ("requests", "counter"),
    "served_total": ("requests", "counter"),
    "finish_reason": ("requests", "counter"),
    "corrupted_total": ("requests", "counter"),
    "prompt_tokens_total": ("tokens", "counter"),
    "cached_tokens_total": ("tokens", "counter"),
    "output_tokens_total": ("tokens", "counter"),
    "ttft_seconds": ("seconds", "histogram"),
    "time_per_output_token_seconds": ("seconds", "histogram"),
    "e2e_seconds": ("seconds", "histogram"),
    "queue_seconds": ("seconds", "histogram"),
    "output_length_tokens": ("tokens", "histogram"),
    "running": ("requests", "gauge"),
    "waiting": ("requests", "gauge"),
    "kv_cache_ratio": ("ratio", "gauge"),
    "gpu_util_ratio": ("ratio", "gauge"),
    "gpu_mem_used_bytes": ("bytes", "gauge"),
    "gpu_mem_total_bytes": ("bytes", "gauge"),
    "gpu_power_watts": ("watts", "gauge"),
    "gpu_energy_joules": ("joules", "counter"),
    "gpu_temp_celsius": ("celsius", "gauge"),
    "gpu_ecc_uncorrected_total": ("errors", "counter"),
    "gpu_xid": ("code", "gauge"),
    "gpu_throttle": ("count", "gauge"),
    "gpu_health": ("healthy", "gauge"),
}
"""Canonical metrics: unit and kind. gpu_health is 1 for a healthy GPU whatever the exporter says."""

_SENTINELS = (140737488355328.0, 9223372036854775792.0)
_PLAUSIBLE: Mapping[str, tuple[float, float]] = {
    "gpu_util_ratio": (0.0, 1.0),
    "gpu_temp_celsius": (-40.0, 150.0),
    "gpu_power_watts": (0.0, 3000.0),
    "kv_cache_ratio": (0.0, 1.0),
}
"""Values outside are dropped: exporters print spikes and marks for "not supported". Source: DCGM issues 199, 312; metric_names.csv."""
_ZERO_MEANS_UNKNOWN = ("gpu_temp_celsius", "gpu_power_watts", "gpu_energy_joules", "gpu_mem_total_bytes")
"""Canonical metrics whose 0 is no measurement: fields that amd-smi calls N/A were exported as 0 up to 1.3.1, partitions report 0."""

_ZERO_WITHOUT: Mapping[str, tuple[tuple[str, str], ...]] = {
    "tgi": (("requests_total", "errors_total"),),
    "triton": (("requests_total", "errors_total"),),
}
"""Metrics whose family is left out until its first event: absent beside the first metric they are 0. Source: metric_names.csv."""

_VERSION = re.compile(r"[^0-9]*(\d+(?:\.\d+)+)")
_ROLE = re.compile(r"(?P<canonical>[a-z0-9_]+)(?:\[(?P<where>[^\]]*)\])?(?:>=(?P<since>[0-9.]+))?\Z")
_SUFFIXES = ("_bucket", "_sum", "_count")
_GPU_LABELS = ("gpu", "gpu_id", "UUID", "serial_number", "GPU_I_ID", "gpu_partition_id")
_PREFIXES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "vllm": (("ray_vllm:", "vllm:"), ("ray_vllm_", "vllm:")),
    "sglang": (("sglang_", "sglang:"),),
    "amd_exporter": (("amd_gpu_", "gpu_"), ("amd_pcie_", "pcie_"), ("amd_xgmi_", "xgmi_")),
}
_OWN: Mapping[str, tuple[str, ...]] = {
    "vllm": ("vllm:",),
    "sglang": ("sglang:",),
    "tgi": ("tgi_",),
    "triton": ("nv_",),
    "llamacpp": ("llamacpp:",),
    "dcgm": ("DCGM_",),
    "amd_exporter": ("gpu_",),
    "haproxy": ("haproxy_server_", "haproxy_backend_"),
    "envoy": ("envoy_cluster_",),
    "node": (),
}
"""How the names begin that only this system exports: one of them outside the table is an unknown series."""


def is_counter(key: str) -> bool:
    """Tell whether a value only grows: a canonical counter, or one of the fleet file's own (`counter.NAME...`)."""
    return key.startswith("counter.") or CANONICAL[key.partition("/")[0]][1] == "counter"


def version_of(text: str) -> tuple[int, ...]:
    """Return the numbers of a version ("0.11.0rc1", "v3.3.7", "0.5.10.post1"); () where there are none."""
    found = _VERSION.match(text)
    return tuple(int(part) for part in found[1].split(".")) if found else ()


def _least(text: str) -> tuple[int, ...]:
    """Return the first version that may have a series; "<=1.2.1" and texts without a version bind nothing."""
    return () if text.startswith("<=") or not re.match(r"\d", text) else version_of(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One sample of a metrics page or of Prometheus: its name, labels and value."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """What (a part of) a family counts as.

    Args:
        where: whole-value patterns per label that a series must match ("" matches a label that is not there).
        since: first version from which it may be read so; () is any.
    """

    canonical: str
    where: Mapping[str, str] = field(default_factory=dict)
    since: tuple[int, ...] = ()

    def fits(self, labels: Mapping[str, str]) -> bool:
        """Tell whether a series counts."""
        return all(re.fullmatch(pattern, labels.get(label, "")) for label, pattern in self.where.items())


def parse_roles(text: str) -> tuple[Role, ...]:
    """Read `canonical[label=pattern&label=pattern]>=version`, several separated by ";".

    Raises:
        ValueError: another shape, or a canonical metric that is none.
    """
    out = []
    for part in filter(None, text.split(";")):
        found = _ROLE.match(part)
        if found is None or found["canonical"] not in CANONICAL:
            raise ValueError(f"{part!r} is no role of a series")
        where = dict(pair.partition("=")[::2] for pair in (found["where"] or "").split("&") if pair)
        for pattern in where.values():
            re.compile(pattern)
        out.append(Role(canonical=found["canonical"], where=where, since=version_of(found["since"] or "")))
    return tuple(out)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One row of the table.

    Args:
        kind: counter, gauge, histogram, summary, or prefix, rule and sentinel for rows that tell of many names.
        factor: to the canonical unit; since, until: versions as the source tells them, "" unknown.
        statistic: only equal ones may be compared; rank: of several families with one role the lowest that is there is taken, equal
            ranks are added.
        bounds: of its buckets, in its own unit; () unknown or not fixed.
    """

    system: str
    name: str
    kind: str
    unit: str
    factor: float
    roles: tuple[Role, ...]
    since: str = ""
    until: str = ""
    labels: tuple[str, ...] = ()
    statistic: str = ""
    rank: int = 1
    bounds: tuple[float, ...] = ()
    meaning: str = ""
    source: str = ""
    as_of: str = ""

    def stands_in(self, version: tuple[int, ...]) -> bool:
        """Tell whether that version may export it; an unknown version may export anything."""
        least, last = _least(self.since), version_of(self.until) if re.match(r"\d", self.until) else ()
        return not version or ((not least or version >= least) and (not last or version[: len(last)] <= last))


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What one page says in canonical metrics and units, summed over ranks, models and GPUs.

    Args:
        values: per "canonical" or "canonical/statistic"; a metric that is not there is not in it.
        buckets: per "canonical" or "canonical/statistic": cumulative count by upper bound in canonical units (inf: all).
        unknown: names of this system that the table does not have; odd: names that it has, but for another version;
        unusable: values that are no measurement (text, marks, absurd ones), by name.
    """

    values: Mapping[str, float] = field(default_factory=dict)
    buckets: Mapping[str, Mapping[float, float]] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    odd: tuple[str, ...] = ()
    unusable: tuple[str, ...] = ()
    is_nan: bool = False

    def first(self, canonical: str) -> str | None:
        """Return the key of a canonical metric, with its statistic where it has one; None where it is absent."""
        for key in (*self.values, *self.buckets):
            if key.partition("/")[0] == canonical:
                return key
        return None


class MetricTable:
    """The mapping, engine and version x vendor -> canonical metric, unit, kind."""

    def __init__(self, families: Iterable[Family]) -> None:
        self.families = tuple(families)
        self._by_name: dict[str, dict[str, list[Family]]] = {}
        for f in self.families:
            self._by_name.setdefault(f.system, {}).setdefault(f.name, []).append(f)

    def plain(self, system: str, name: str) -> str:
        """Return a name as its system writes it: without the prefixes of Ray, of SGLang's gateway and of the AMD exporter."""
        for start, instead in _PREFIXES.get(system, ()):
            if name.startswith(start):
                return instead + name.removeprefix(start)
        return name

    def families_of(self, system: str, name: str) -> list[Family]:
        """Return the rows of a series' family; a histogram's parts belong to it, `_total` is never cut off."""
        known = self._by_name.get(system, {})
        if name in known:
            return known[name]
        for suffix in _SUFFIXES:
            if name.endswith(suffix):
                return [f for f in known.get(name.removesuffix(suffix), ()) if f.kind in ("histogram", "summary")]
        return []

    def names(self, system: str, version: str, canonical: Iterable[str]) -> tuple[str, ...]:
        """Return the families that carry these metrics in that version, in the order of the table."""
        wanted, at = set(canonical), version_of(version)
        rows = (f for f in self.families if f.system == system and f.stands_in(at))
        return tuple(dict.fromkeys(f.name for f in rows if any(r.canonical in wanted for r in f.roles)))

    def explain(self, system: str, version: str, canonical: str) -> str:
        """Say what carries a metric in that version, and what no longer or not yet does."""
        at = version_of(version)
        rows = [f for f in self.families if f.system == system and any(r.canonical == canonical for r in f.roles)]
        now = [f.name for f in rows if f.stands_in(at)]
        then = [
            f"{f.name} ({'since ' + f.since if f.since else ''}{' until ' + f.until if f.until else ''})" for f in rows if f.name not in now
        ]
        text = f"{canonical} of {system} {version or 'of any version'} is {', '.join(now) or 'in no family'}"
        return text + (f"; other versions: {', '.join(dict.fromkeys(then))}" if then else "")

    def read(self, system: str, version: str, samples: Iterable[Series]) -> Totals:
        """Sum samples of one exporter into canonical metrics."""
        return _Reader(self, system, version_of(version)).read(samples)


def _which_gpu(labels: Mapping[str, str]) -> str:
    """Return what tells a GPU (or a part of one) from the others of its exporter, "" where nothing does."""
    found = ",".join(labels[name] for name in _GPU_LABELS if labels.get(name))
    return f"#{found[:120]}" if found else ""


class _Reader:
    """One reading of one page."""

    def __init__(self, table: MetricTable, system: str, version: tuple[int, ...]) -> None:
        self._table, self._system, self._version = table, system, version
        self._sums: dict[tuple[str, str, int], float] = {}
        self._buckets: dict[tuple[str, str, int], dict[float, float]] = {}
        self._lows: dict[tuple[str, str, int], float] = {}
        self._unknown: dict[str, None] = {}
        self._odd: dict[str, None] = {}
        self._unusable: dict[str, None] = {}
        self._nans = self._numbers = 0

    def read(self, samples: Iterable[Series]) -> Totals:
        for s in samples:
            self._one(s)
        for shown, absent in _ZERO_WITHOUT.get(self._system, ()):
            there = [key for key in self._sums if key[0] == shown]
            if there and not any(key[0] == absent for key in self._sums):
                self._sums[absent, there[0][1], there[0][2]] = 0.0
        return Totals(
            values={**self._chosen(self._sums), **self._chosen(self._lows)},
            buckets=self._chosen(self._buckets),
            unknown=tuple(self._unknown),
            odd=tuple(self._odd),
            unusable=tuple(self._unusable),
            is_nan=self._nans > 0 and self._numbers == 0,
        )

    def _one(self, s: Series) -> None:
        name = self._table.plain(self._system, s.name)
        if name.endswith("_created"):
            return
        rows = self._table.families_of(self._system, name)
        if not rows:
            if name.startswith(_OWN.get(self._system, ())) and _OWN.get(self._system):
                self._unknown[name[:120]] = None
            return
        fit = [f for f in rows if f.stands_in(self._version)]
        if not fit:
            self._odd[name[:120]] = None
            return
        for role in fit[0].roles:
            if role.since and self._version and self._version < role.since:
                continue
            if role.fits(s.labels):
                self._count(fit[0], role.canonical, name, s)
            elif CANONICAL[role.canonical][1] == "counter" and isfinite(s.value):  # the family is there: what it does not show is 0
                self._sums.setdefault((role.canonical, fit[0].statistic, fit[0].rank), 0.0)

    def _count(self, f: Family, canonical: str, name: str, s: Series) -> None:
        key = (canonical, f.statistic if f.statistic not in ("zero_is_good", "one_is_good") else "", f.rank)
        is_gpu = canonical.startswith("gpu_")
        if canonical == "gpu_ecc_uncorrected_total" or f.statistic == "last_code":  # one that says nothing for a scrape is no 0 of a sum
            key = canonical, f.statistic + _which_gpu(s.labels), f.rank
        if not isfinite(s.value):
            self._nans += not is_gpu
            self._unusable[name[:120]] = None
            return
        value = s.value * f.factor
        low, high = _PLAUSIBLE.get(canonical, (0.0, _SENTINELS[1]))
        unknown_zero = is_gpu and s.value == 0 and canonical in _ZERO_MEANS_UNKNOWN
        if s.value in _SENTINELS or s.value >= _SENTINELS[1] or not low <= value <= high or unknown_zero:
            self._unusable[name[:120]] = None
            return
        self._numbers += 1
        if canonical == "gpu_health":
            good = (value == 0) if f.statistic == "zero_is_good" else (value == 1)
            self._lows[key] = min(self._lows.get(key, 1.0), 1.0 if good else 0.0)
        elif canonical in ("gpu_temp_celsius", "kv_cache_ratio", "gpu_util_ratio") or f.statistic in ("last_code", "last_afid"):
            self._lows[key] = max(self._lows.get(key, value), value)
        elif f.kind == "histogram" and CANONICAL[canonical][1] == "histogram":
            self._bucket(f, key, name, s)
        elif f.kind != "histogram" or name.endswith("_sum"):
            self._sums[key] = self._sums.get(key, 0.0) + value

    def _bucket(self, f: Family, key: tuple[str, str, int], name: str, s: Series) -> None:
        if not name.endswith("_bucket"):
            return
        try:
            bound = float(s.labels["le"]) * f.factor
        except (KeyError, ValueError):
            self._unusable[name[:120]] = None
            return
        edges = self._buckets.setdefault(key, {})
        edges[bound] = edges.get(bound, 0.0) + s.value

    def _chosen(self, found: Mapping[tuple[str, str, int], _T]) -> dict[str, _T]:
        """Keep the lowest rank of each role (equal ranks were added already)."""
        best: dict[str, int] = {}
        for canonical, _, rank in found:
            best[canonical] = min(rank, best.get(canonical, rank))
        return {
            canonical + (f"/{statistic}" if statistic else ""): value
            for (canonical, statistic, rank), value in found.items()
            if rank == best[canonical]
        }
