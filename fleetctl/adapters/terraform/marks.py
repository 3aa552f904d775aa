"""Migrate, adapters layer: what other people's Terraform states own, by their JSON. Read only; never a provider, never a secret kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from fleetctl.domain.ids import CellId, PoolId
from fleetctl.domain.people import Gap
from fleetctl.domain.provision import Owner
from fleetctl.domain.tags import short
from fleetctl.errors import InventoryFailed

MOST_BYTES = 64 * 2**20
_KEYS = ("arn", "id", "name", "resource_id")


class StateMarks:
    """Owners of a pool or a route by what Terraform states list; `Marks`, and `Scaler` without a minimum.

    Args:
        states: files of format 4; wanted: names, ids and ARNs of the things that are asked about.
    """

    def __init__(self, states: Sequence[Path], wanted: Callable[[], Collection[str]], pool: PoolId, c: CellId | None = None) -> None:
        self._states, self._wanted, self._pool, self._cell = states, wanted, pool, c

    def find(self) -> tuple[Owner | Gap, ...]:
        """List the states that own one of them; a state that cannot be read is a Gap."""
        wanted = {w.casefold() for w in self._wanted() if w}
        found: list[Owner | Gap] = []
        for path in self._states:
            try:
                address = next((a for a, values in _things(path) if wanted & values), "")
            except InventoryFailed as e:
                scope = f"route of {self._cell}" if self._cell is not None else f"pool {self._pool}"
                found.append(Gap(scope=scope, reason=e.message, source="terraform", code=e.code))
                continue
            if address:
                found.append(Owner(name=f"Terraform {path.name} ({address})", kind="gitops", pool=self._pool, cell=self._cell))
        return tuple(found)

    def writer(self) -> str:
        """Return that a state tells no writer."""
        return ""

    def standing(self, ref: str) -> Any:
        """Refuse: a state keeps no minimum of ours."""
        raise InventoryFailed("hold.unnamed", f"{ref[:80]!r} is no autoscaler.")

    def set_minimum(self, ref: str, was: int, to: int, default: int | None = None) -> bool:
        """Refuse: a state is never written."""
        raise InventoryFailed("hold.unnamed", f"{ref[:80]!r} is no autoscaler.")


def _things(path: Path) -> Iterator[tuple[str, set[str]]]:
    """Yield address and names of every managed resource."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InventoryFailed("inventory.terraform", f"the state {path.name} is larger than {MOST_BYTES >> 20} MiB.")
        data = json.loads(path.read_bytes())
        resources = data["resources"] if isinstance(data, dict) and data.get("version") == 4 else None
    except (OSError, ValueError, KeyError, RecursionError) as e:
        raise InventoryFailed("inventory.terraform", f"the state {path.name} cannot be read: {str(e)[:120]}.") from e
    if not isinstance(resources, list):
        raise InventoryFailed("inventory.terraform", f"the state {path.name} is not of format 4.")
    for r in resources:
        if not isinstance(r, dict) or r.get("mode") != "managed":
            continue
        address = short(".".join(str(r[k]) for k in ("module", "type", "name") if r.get(k)))
        for instance in r.get("instances") or ():
            attributes = instance.get("attributes") if isinstance(instance, dict) else None
            if isinstance(attributes, dict):
                yield address, {str(attributes[k]).casefold() for k in _KEYS if attributes.get(k)}
