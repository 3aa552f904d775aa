"""Evidence, domain layer: what a comparison of the source with itself showed, and the margins that it allows. Never I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleetctl.domain.ids import CellId, WorkloadId
from fleetctl.domain.units import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One request as one host of the source served it.

    Args:
        host: the server's name at the router; started_ms: epoch milliseconds; latency_ms: None where it must not be timed.
        arm_key: "baseline", "canary", or the cohort that a header or tenant names.
    """

    host: str
    started_ms: int
    failed: bool
    latency_ms: float | None
    arm_key: str = "baseline"


@dataclass(frozen=True, slots=True, kw_only=True)
class HalvesVerdict:
    """How the judge took one half of the source for the canary.

    Args:
        split: how the halves were made: "hosts b1 | b2", or "requests" where there is one host; kind: the last verdict.
        e_value: the highest of any look; looks: how many there were; failed: a FAIL, which must not be.
    """

    split: str
    kind: str
    e_value: float
    looks: int
    failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The newest comparison of a cell's source with itself, kept as a record.

    Args:
        requests: that it rests on; hosts: of the source; span_s: between the first and the last.
        error_ratio, log_sd: of the source; host_sd: of latency between hosts and minutes beyond chance, as a ratio; 0 with one host.
        error_sd: the same of error ratios, points / 100.
        least_margins, least_fail_margins: per guardrail, in its unit; what a policy may not go below.
        halves: A/A verdicts; refused: what of the policy is smaller, one line each.
    """

    cell: CellId
    workload: WorkloadId
    at: Instant
    requests: int
    hosts: tuple[str, ...]
    span_s: float
    error_ratio: float
    log_sd: float
    host_sd: float
    error_sd: float
    least_margins: Mapping[str, float]
    least_fail_margins: Mapping[str, float]
    halves: tuple[HalvesVerdict, ...]
    refused: tuple[str, ...] = ()
    canary_hosts: int = 1
