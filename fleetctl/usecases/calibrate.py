"""Evidence, use-case layer: compare a cell's source with itself, keep what it allows, and hand it to planning. Never imports an adapter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from fleetctl.analysis.calibrate import LEAST_REQUESTS, calibrate
from fleetctl.domain.calibration import Calibration
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import CellId
from fleetctl.errors import EvidenceUnavailable, UsageError
from fleetctl.planning.evidence_need import Baseline, phases_for
from fleetctl.ports.state import Clock, Records
from fleetctl.ports.traffic import SampleSource

MOST_REQUESTS = 20_000
"""Newest requests that are read; a look over them all takes seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratePorts:
    """All that calibration touches; samples are per cell."""

    samples: Callable[[CellId], SampleSource]
    records: Records
    clock: Clock


def calibrate_cell(fleet: Fleet, cell: CellId, ports: CalibratePorts, *, save: bool = True) -> Calibration:
    """Measure one cell's source from its newest requests; the newest result is kept and holds for plans made from then on.

    Raises:
        UsageError: usage.no_cell; EvidenceUnavailable: evidence.down, evidence.too_few.
    """
    declared = next((c for c in fleet.cells if c.id == cell), None)
    if declared is None:
        raise UsageError("usage.no_cell", f"no cell is named {cell[:70]!r}.", hint="Run: fleetctl inventory")
    workload = fleet.workload(declared.workload)
    samples = ports.samples(cell).recent(cell, MOST_REQUESTS)
    if len(samples) < LEAST_REQUESTS:
        text = f"{cell}: {len(samples):,} requests of its source were seen; {LEAST_REQUESTS - len(samples):,} more are needed."
        raise EvidenceUnavailable("evidence.too_few", text, hint=f"Let it serve, then run: fleetctl calibrate {cell}")
    found = calibrate(
        samples,
        phases_for(fleet.policy, workload, declared.lane),
        cell=cell,
        workload=workload.id,
        at=ports.clock.now(),
        canary_hosts=max(1, len(declared.router.canary_endpoints) or workload.replicas),
    )
    if save:
        ports.records.put(cell, found)
    return found


def measured_baselines(records: Records, fleet: Fleet) -> Mapping[str, Baseline]:
    """Return per workload what its newest calibrations showed; of several cells the largest least margins hold."""
    known = {c.id for c in fleet.cells}
    newest = {c.cell: c for c in records.all(Calibration) if c.cell in known}
    out: dict[str, Baseline] = {}
    for c in sorted(newest.values(), key=lambda c: c.at):
        mine = Baseline(
            error_ratio=c.error_ratio,
            log_sd=c.log_sd,
            origin="measured",
            least_margins=c.least_margins,
            least_fail_margins=c.least_fail_margins,
        )
        before = out.get(c.workload)
        out[c.workload] = mine if before is None else _wider(before, mine)
    return {w: b for w, b in out.items() if b.log_sd > 0}


def _wider(one: Baseline, other: Baseline) -> Baseline:
    def largest(a: Mapping[str, float], b: Mapping[str, float]) -> dict[str, float]:
        return {k: max(a.get(k, 0.0), b.get(k, 0.0)) for k in {*a, *b}}

    return replace(
        other,
        error_ratio=max(one.error_ratio, other.error_ratio),
        log_sd=max(one.log_sd, other.log_sd),
        least_margins=largest(one.least_margins, other.least_margins),
        least_fail_margins=largest(one.least_fail_margins, other.least_fail_margins),
    )
