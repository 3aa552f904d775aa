"""Provision, tests: a cloud in memory behind `Leftovers`, and a provisioner that refuses by script. Never starts a process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fleetctl.domain.capacity import Leftover
from fleetctl.domain.ids import Token
from fleetctl.domain.pool import PoolSpec
from fleetctl.domain.provision import Progress, Provisioned, ProvisionFailure, ProvisionPlan
from fleetctl.errors import CapacityUnavailable
from tests.fakes.provisioner import FakeProvisioner


class FakeCloud:
    """What carries tags, by id; `removed` is in the order of removal."""

    def __init__(self) -> None:
        self.things: dict[str, tuple[str, Leftover]] = {}
        self.removed: list[str] = []
        self.down = False

    def leave(self, tag: str, id_: str, kind: str = "machine", state: str = "Failed") -> None:
        """Leave something behind."""
        assert kind in {"machine", "card", "disk", "other"}
        self.things[id_] = (tag, Leftover(id=id_, kind=kind, name=id_.rsplit("/", 1)[-1], state=state))  # type: ignore[arg-type]

    def find(self, tag: str) -> tuple[Leftover, ...]:
        """Return what carries the tag."""
        if self.down:
            raise CapacityUnavailable("capacity.unreachable", "the cloud does not answer", hint="Run: fleetctl doctor")
        return tuple(thing for t, thing in self.things.values() if t == tag)

    def remove(self, one: Leftover) -> None:
        """Remove it."""
        self.things.pop(one.id, None)
        self.removed.append(one.id)


class RefusingProvisioner(FakeProvisioner):
    """Refuses applies by script: each answer of `refusals` is used once; "" lets one through.

    Args:
        cloud: gets a failed machine for each refusal that begins with a name in `leaves`.
    """

    def __init__(self, cloud: FakeCloud, refusals: list[str]) -> None:
        super().__init__()
        self.cloud = cloud
        self.refusals = refusals
        self.leaves = ("AllocationFailed", "ZonalAllocationFailed", "Overconstrained")
        self.tried: list[PoolSpec] = []
        self.asked: dict[str, PoolSpec] = {}

    def plan(self, pools: object, run: object) -> ProvisionPlan:
        """Remember what was asked."""
        for spec in pools:  # type: ignore[attr-defined]
            self.asked[spec.pool] = spec
        plain = tuple(replace(spec, intent="") for spec in pools)  # type: ignore[attr-defined]
        return super().plan(plain, run)  # type: ignore[arg-type]

    def apply(self, p: ProvisionPlan, token: Token, on: Callable[[Progress], None]) -> Provisioned | ProvisionFailure:
        """Refuse, or do it."""
        spec = self.asked[p.pools[0]]
        self.tried.append(spec)
        refusal = self.refusals.pop(0) if self.refusals else ""
        if not refusal:
            return super().apply(p, token, on)
        if refusal.startswith(self.leaves):
            self.cloud.leave(spec.intent, f"/vm/new-{len(self.tried)}")
        return ProvisionFailure(code="provision.apply_failed", text=refusal, details=(refusal,))
