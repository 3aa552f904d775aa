"""Other hands in memory: autoscalers whose minimum can be pinned, GitOps owners, refusals, silence, and what others write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fleetctl.domain.holds import Standing
from fleetctl.domain.ids import CellId, PoolId
from fleetctl.domain.people import Gap
from fleetctl.domain.provision import Owner
from fleetctl.errors import CredentialsMissing, InventoryFailed


@dataclass
class FakeHands:
    """`Hands` of a made-up world.

    Args:
        minimum: by ref; maximum, size: of each; of: ref -> its pool.
        refuses: may read and not write; silent: does not answer; on_write: called before a write, after it (may raise: a kill).
    """

    of: dict[str, PoolId]
    minimum: dict[str, int]
    size: int = 8
    maximum: int | None = 10
    gitops: tuple[str, ...] = ()
    route_owner: str = ""
    gaps: tuple[Gap, ...] = ()
    refuses: bool = False
    silent: bool = False
    last_writer: str = ""
    writes: list[tuple[str, int, int]] = field(default_factory=list)
    on_write: Callable[[str], None] = lambda _: None

    def of_pool(self, pool: PoolId) -> tuple[Owner | Gap, ...]:
        if self.silent:
            return (Gap(scope=f"pool {pool}", reason="no answer", source="fake"),)
        found = [
            Owner(name=f"scaler {ref}", kind="autoscaler", pool=p, ref=ref, minimum=self.minimum[ref], maximum=self.maximum, size=self.size)
            for ref, p in self.of.items()
            if p == pool and ref in self.minimum
        ]
        return (*found, *(Owner(name=g, kind="gitops", pool=pool) for g in self.gitops), *self.gaps)

    def of_route(self, c: CellId) -> tuple[Owner | Gap, ...]:
        return (Owner(name=self.route_owner, kind="gitops", pool=PoolId(""), cell=c),) if self.route_owner else ()

    def writer(self, c: CellId) -> str:
        return self.last_writer

    def standing(self, pool: PoolId, ref: str) -> Standing:
        if self.silent:
            raise InventoryFailed("inventory.fake", "no answer")
        return Standing(minimum=self.minimum.get(ref), writer=self.last_writer)

    def set_minimum(self, pool: PoolId, ref: str, was: int, to: int, default: int | None = None) -> bool:
        if self.refuses:
            raise CredentialsMissing("credentials.fake_rights", "no right to write")
        self.on_write("before")
        if self.silent:
            raise InventoryFailed("inventory.fake", "no answer")
        if self.minimum.get(ref) != was:
            return False
        self.minimum[ref] = to
        self.writes.append((ref, was, to))
        self.on_write("after")
        return True
