"""Provision and configure, domain layer: what a run shows, does and returns. Never I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from fleetctl.domain.canonical import LATER
from fleetctl.domain.ids import CellId, HostId, PoolId, Sha256
from fleetctl.domain.people import Actor
from fleetctl.domain.plan import Approval
from fleetctl.domain.pool import Priority
from fleetctl.domain.units import Instant, Scalar

PriceFrom = Literal["list", "contract"]
"""Whose price a cost is by: the catalogue's list, or what the fleet file says that the pool costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceChange:
    """One line of a Terraform plan.

    Args:
        actions: Terraform's own words, such as ("create",) or ("delete", "create").
        pool: the pool it belongs to by its tag, None where it carries none.
        reason: Terraform's word for why it would be replaced or deleted, such as "replace_because_tainted"; "" where it gives none.
        machines: how many more (below 0: fewer) a group of machines would keep; 0 for what is no group.
        changed: names of the attributes that an update in place would change, by name; () for anything else.
    """

    address: str
    type: str
    actions: tuple[str, ...]
    pool: PoolId | None = None
    reason: str = ""
    machines: int = 0
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisionPlan:
    """What apply would do, bound by digest to the file that apply runs.

    Args:
        path: the plan file (0600, never leaves the run folder); digest: SHA-256 of its bytes.
        state_lineage, state_serial: of the state it was made from ("" and 0 where there is none yet).
        outputs_change: what the state says of the hosts is not what is there: a run died before it wrote that, or a group replaced one.
    """

    pools: tuple[PoolId, ...]
    path: str
    digest: Sha256
    changes: tuple[ResourceChange, ...]
    state_lineage: str
    state_serial: int
    stack: str
    tool: str
    outputs_change: bool = False

    @property
    def is_empty(self) -> bool:
        """Tell whether no resource would change."""
        return all(c.actions in {("no-op",), ("read",)} for c in self.changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One line of live progress of a long run.

    Args:
        subject: resource address, or host; step: task or action; state: what it came to.
        last: the subject has come to the end of its run, and the run goes on with others.
    """

    subject: str
    step: str
    state: Literal["started", "running", "ok", "changed", "skipped", "failed", "unreachable"]
    text: str = ""
    seconds: float = 0.0
    last: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Provisioned:
    """Apply finished."""

    added: int
    changed: int
    destroyed: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisionFailure:
    """Apply ended without success; what it made is in `made` and in the state.

    Args:
        code: stable, such as "provision.apply_failed" or "provision.interrupted".
        details: every complaint in full, for the classifier of errors.
        at_work: the run was asked to stop and left behind, still at work; it holds the state's lock.
    """

    code: str
    text: str
    made: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    at_work: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasePermit:
    """Proof that a pool may be destroyed; made only by usecases/release from approvals and a green drill."""

    pool: PoolId
    approvals: tuple[Approval, ...]
    drill: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostResult:
    """What a play came to on one host.

    Args:
        state: unreachable is a different thing from failed.
        ok, changed, failed, skipped: task counts.
    """

    host: HostId
    state: Literal["ok", "failed", "unreachable", "cancelled"]
    ok: int
    changed: int
    failed: int
    skipped: int
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityVerdict:
    """Whether capacity is to be had; "unknown" is an answer.

    Args:
        reason: the first of `reasons`, which holds all that were found; zone: "" for the region.
    """

    sku: str
    region: str
    count: int
    priority: Priority
    kind: Literal["yes", "no", "unknown"]
    reason: str
    zone: str = ""
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A long piece of work by name, with scalar arguments."""

    name: str
    args: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who else writes a pool's size or a cell's route.

    Args:
        name: for people, such as "AWS Auto Scaling group h100"; kind: "autoscaler" or "gitops".
        ref: where its minimum stands, for the adapter; "" where it has none.
        minimum, maximum: that it keeps, None where it has none; size: what it has now, machines or replicas of one deployment.
        cell: whose route it writes, None for a pool's size.
        default: what it sets where it cannot measure, never below its minimum; None where it has no such number.
    """

    name: str
    kind: str
    pool: PoolId
    ref: str = ""
    minimum: int | None = None
    maximum: int | None = None
    size: int = 0
    counts: Literal["machines", "replicas"] = "machines"
    cell: CellId | None = None
    default: int | None = field(default=None, metadata=LATER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """One rehearsal of going home.

    Args:
        cell: that came home, None where it is not known; ms_to_zero: from the order to the router showing 0, milliseconds.
    """

    at: Instant
    actor: Actor
    ms_to_zero: float
    ok: bool
    detail: str = ""
    cell: CellId | None = None
