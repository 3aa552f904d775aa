"""Provision, domain layer: places where machines may be had, what a cloud says of them, what a try left behind. Never I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from fleetctl.domain.ids import PoolId
from fleetctl.domain.pool import Priority
from fleetctl.domain.units import Instant

Step = Literal["planning", "applying", "compensating", "done", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One place to try.

    Args:
        zone: "" for any of the region.
    """

    sku: str
    region: str
    zone: str = ""
    priority: Priority = "regular"

    @property
    def text(self) -> str:
        """The place in words."""
        where = f"{self.region}, zone {self.zone}" if self.zone else self.region
        return f"{self.sku} in {where}, {'spot' if self.priority == 'spot' else 'on demand'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaRow:
    """One bucket of quota, by the cloud's own name for it (never built from a size's).

    Args:
        limit, used: vCPUs; binds: which priority it binds, or both.
    """

    name: str
    limit: int
    used: int
    binds: Literal["regular", "spot", "both"] = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPlaces:
    """Free places of a reservation that only machines can use which name it.

    Args:
        id: by which it is named, lower case; zone: "" for none; pool: of ours that made it, by its tag, "" for none.
    """

    id: str
    zone: str
    free: int
    pool: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkuReading:
    """What a cloud said of one size in one region, and when.

    Args:
        offered: it is sold there at all; zones: those that offer it, () where the region has none.
        closed: reason code where the subscription may not use it there, "" where it may; closed_zones: zones that are closed to it.
        vcpus: of one machine, 0 where unknown; reserved: free reserved places by zone ("" for none), on demand only, that are there
            for any machine of the size; named: those that are there only for who names their reservation.
        gaps: what could not be read, in words; a gap never counts as a "no".
    """

    sku: str
    region: str
    offered: bool
    read_at: Instant
    zones: tuple[str, ...] = ()
    closed: str = ""
    closed_zones: tuple[str, ...] = ()
    vcpus: int = 0
    quotas: tuple[QuotaRow, ...] = ()
    reserved: tuple[tuple[str, int], ...] = ()
    named: tuple[NamedPlaces, ...] = ()
    gaps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceFailure:
    """A refusal that is remembered until `until`.

    Args:
        scope: how much is closed: the zone, the size there, the region for the size, the spot market of the size.
    """

    place: Candidate
    code: str
    scope: Literal["zone", "region", "size", "spot", "none"]
    until: Instant
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """Something in the cloud that carries an intent's tag.

    Args:
        kind: machine, card, disk or other; state: the cloud's word, such as "Failed"; usd_per_hour is not known here.
        pool: by its tag, "" where it carries none; holder: id of the machine that uses it, or of the group that keeps it, "" for none.
        rank: among others of its kind the lower goes first when they are removed; below 0 before everything (a group that would make more).
    """

    id: str
    kind: Literal["machine", "card", "disk", "other"]
    name: str
    state: str
    region: str = ""
    pool: str = ""
    holder: str = ""
    rank: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try at one place and what came of it ("" for success)."""

    place: Candidate
    code: str
    action: str
    text: str
    at: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisionIntent:
    """What provision means to make for a pool, written before anything is made; one per pool until it is released.

    Args:
        tag: unique, on everything that is made for it; step: the last that was begun.
        asked: what the fleet file wants; place: where it is being, or was, made.
        digest: of the plan that is applied, "" before one was saved.
        fresh: the pool had no host when the intent was made, so nothing of it can serve yet.
        own: the tag was taken by this workspace; else what carries it may be what another one of the team is making.
    """

    pool: PoolId
    tag: str
    step: Step
    asked: Candidate
    place: Candidate
    at: Instant
    fresh: bool = True
    digest: str = ""
    attempts: tuple[Attempt, ...] = field(default=())
    own: bool = True


def until_text(at: datetime) -> str:
    """Return a moment as people read it."""
    return f"{at:%Y-%m-%d %H:%M} UTC"
