"""Inventory and provision, domain layer: machines of one shape in one region. Never I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from fleetctl.domain.canonical import LATER
from fleetctl.domain.ids import HostId, PoolId
from fleetctl.domain.units import Money

Vendor = Literal["nvidia", "amd"]
Priority = Literal["regular", "spot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sku:
    """A catalogue row: one VM size, or a lab's stand-in.

    Args:
        accelerators: GPUs per VM, at least 1.
        vram_gib: memory of one GPU in GiB.
        price_usd_per_hour: of the whole VM; None where no price is known (never 0 for unknown).
        source: where the row comes from; as_of: its date (ISO); kind: measured, vendor, derived or bound.
    """

    name: str
    cloud: str
    vendor: Vendor
    gpu: str
    accelerators: int
    vram_gib: float
    price_usd_per_hour: Decimal | None
    source: str
    as_of: str
    region_prices: tuple[tuple[str, Decimal], ...] = ()
    memory_bandwidth_tb_s: float | None = None
    kind: str = field(default="", metadata=LATER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Machines of one SKU in one region.

    Args:
        limit: most VMs that may exist, at least `count`.
        count: VMs that exist now (0 for a pool still to be made).
        provisioned_by: name of the stack that makes it, or "existing" where others built it.
        ends: ISO date after which its capacity is gone (a capacity block, a reservation), "" where it does not end.
    """

    id: PoolId
    vendor: Vendor
    sku: str
    region: str
    count: int
    limit: int
    priority: Priority = "regular"
    provisioned_by: str = "existing"
    price_usd_per_hour: Decimal | None = None
    ends: str = field(default="", metadata=LATER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One machine as Terraform's outputs, or the fleet file, name it.

    Args:
        address: for Ansible; `connection` says how it is reached.
        variables: what its roles need, strings only (every one is written with the unsafe tag).
    """

    id: HostId
    pool: PoolId
    address: str
    connection: Literal["ssh", "local"] = "ssh"
    user: str = ""
    variables: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSpec:
    """What provision is asked for.

    Args:
        count: VMs wanted.
        hold: nothing of this pool may be destroyed or replaced.
        zone: of the cloud, "" for any; intent: tag of everything that is made for it, "" for none.
        serves: it has hosts that others were told of, so its hosts stay under prevent_destroy though nobody holds it.
    """

    pool: PoolId
    vendor: Vendor
    sku: str
    region: str
    count: int
    priority: Priority = "regular"
    hold: bool = False
    stack: str = ""
    zone: str = ""
    intent: str = ""
    serves: bool = field(default=False, metadata=LATER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Where a commitment counts: VMs that match all that is given; what is left empty matches everything.

    Args:
        clouds, regions: by name; skus: names or patterns such as "p5.*"; pools: of the accounts that it is shared with.
    """

    clouds: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    skus: tuple[str, ...] = ()
    pools: tuple[PoolId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Commitment:
    """Capacity already paid for, and until when (ISO date).

    Args:
        pool: its VMs are there, used or not; "" where it counts by `scope`.
        count: VMs; hourly: what one costs, used or not. With `spend`: 0, and what the whole commitment costs an hour.
        scope: wherever it is used: a reservation shared within an account, a savings plan. None: `pool` alone.
        of: size that `count` speaks of where others count by their accelerators against it (size flexibility), "" where a VM is a VM.
        discount: of a commitment to spend: `hourly` buys so much less than the VMs' own price, 0 to 1; None: it is one of VMs.
    """

    pool: PoolId
    count: int
    hourly: Money
    until: str
    scope: Scope | None = field(default=None, metadata=LATER)
    of: str = field(default="", metadata=LATER)
    discount: float | None = field(default=None, metadata=LATER)
    name: str = field(default="", metadata=LATER)
