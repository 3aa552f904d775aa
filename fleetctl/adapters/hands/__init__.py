"""Migrate, adapters layer: all other hands of a fleet, asked pool by pool and route by route. Never raises for who cannot be asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

from fleetctl.domain.holds import Standing
from fleetctl.domain.ids import CellId, PoolId
from fleetctl.domain.people import Gap
from fleetctl.domain.provision import Owner
from fleetctl.errors import FleetctlError, InventoryFailed
from fleetctl.ports.hands import Marks, Scaler

SEP = "|"


class JoinedHands:
    """`Hands` over what the fleet file names for each pool and route.

    Args:
        scalers: by pool; marks: by cell, made when asked for.
        unnamed: pool -> why nobody is asked about it, a gap of its own; not in it: nothing else sizes it.
    """

    def __init__(
        self,
        scalers: Mapping[PoolId, Sequence[Scaler]],
        marks: Callable[[CellId], Sequence[Marks]],
        unnamed: Mapping[PoolId, str],
    ) -> None:
        self._scalers, self._marks, self._unnamed = dict(scalers), marks, dict(unnamed)

    def of_pool(self, pool: PoolId) -> tuple[Owner | Gap, ...]:
        """List who else writes a pool's size; its minimum's place is kept with the number of the scaler that knows it."""
        found: list[Owner | Gap] = []
        if pool in self._unnamed:
            found.append(Gap(scope=f"pool {pool}", reason=self._unnamed[pool], source="fleet file"))
        scalers = self._scalers.get(pool, ())
        with ThreadPoolExecutor(max_workers=max(1, len(scalers)), thread_name_prefix="hands") as side_by_side:
            for n, one in enumerate(side_by_side.map(lambda s: _found(pool, s), scalers)):
                found.extend(_numbered(x, n) for x in one)
        return tuple(found)

    def of_route(self, c: CellId) -> tuple[Owner | Gap, ...]:
        """List who else writes a cell's route."""
        found: list[Owner | Gap] = []
        try:
            with _understood(f"the route of {c}"):
                for marks in self._marks(c):
                    found.extend(marks.find())
        except FleetctlError as e:
            found.append(Gap(scope=f"route of {c}", reason=e.message, source=e.code, code=e.code, mend=e.hint))
        return tuple(found)

    def writer(self, c: CellId) -> str:
        """Name who wrote a cell's route last beside us, else whose it is, "" where nobody can tell."""
        try:
            with _understood(f"the route of {c}"):
                for marks in self._marks(c):
                    if who := marks.writer():
                        return who
        except FleetctlError:
            return ""
        return next((o.name for o in self.of_route(c) if isinstance(o, Owner)), "")

    def standing(self, pool: PoolId, ref: str) -> Standing:
        """Return a minimum as it stands now."""
        scaler, inner = self._of(pool, ref)
        with _understood(f"pool {pool}"):
            return scaler.standing(inner)

    def set_minimum(self, pool: PoolId, ref: str, was: int, to: int, default: int | None = None) -> bool:
        """Set a minimum that is still `was`; False where it is not."""
        scaler, inner = self._of(pool, ref)
        with _understood(f"pool {pool}"):
            return scaler.set_minimum(inner, was, to, default)

    def _of(self, pool: PoolId, ref: str) -> tuple[Scaler, str]:
        number, _, inner = ref.partition(SEP)
        known = self._scalers.get(pool, ())
        if not number.isdigit() or int(number) >= len(known):
            text = f"the fleet file no longer names what sizes pool {pool}, whose minimum is pinned."
            raise InventoryFailed("hold.unnamed", text, hint=f"Put back: settings pool.{pool}.owners")
        return known[int(number)], inner


def _found(pool: PoolId, scaler: Scaler) -> tuple[Owner | Gap, ...]:
    try:
        with _understood(f"pool {pool}"):
            return tuple(scaler.find())
    except FleetctlError as e:
        return (Gap(scope=f"pool {pool}", reason=e.message, source=e.code, code=e.code, mend=e.hint),)


@contextmanager
def _understood(what: str) -> Iterator[None]:
    """Turn what an adapter cannot read of an answer into an error of ours: nothing that others say ends a tick.

    Raises:
        InventoryFailed: inventory.odd_answer.
    """
    try:
        yield
    except FleetctlError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as e:
        raise InventoryFailed("inventory.odd_answer", f"an answer about {what} cannot be read ({type(e).__name__}).") from e


def _numbered(x: Owner | Gap, n: int) -> Owner | Gap:
    return replace(x, ref=f"{n}{SEP}{x.ref}") if isinstance(x, Owner) and x.ref else x
