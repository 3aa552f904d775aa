"""Configure, lab layer: what the lab's serving role is told per host of the pools that are made. Never starts anything."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import PoolId
from fleetctl.domain.plan import Plan
from fleetctl.domain.pool import Host
from fleetctl.errors import ConfigInvalid
from fleetctl.lab.units import Side, units_on_hosts


def serving_variables(fleet: Fleet, plan: Plan, hosts: Sequence[Host], side: Side = "target") -> Mapping[str, object]:
    """Return the variables of the play `serving` for the hosts of a plan's pools.

    Args:
        side: "target": of the cells that the plan moves there; "source": of the cells that are to come home there.

    Raises:
        ConfigInvalid: config.host, a host without a folder; config.serving, a workload that the lab cannot start.
    """
    folders = {h.id: Path(dict(h.variables).get("folder", "")) for h in hosts}
    if bare := [h for h, f in folders.items() if not f.is_absolute()]:
        raise ConfigInvalid("config.host", f"host {bare[0]} has no folder: it is not one of the lab's.", hint="Run: fleetctl provision")
    units: dict[str, list[dict[str, object]]] = {h.id: [] for h in hosts}
    moved = [(fleet.cell(o.cell), o.target) for o in plan.outcomes if o.kind == "move" and o.target is not None]
    for cell, pool in moved if side == "target" else [(c, c.source) for c in fleet.cells]:
        mine = _of_pool(hosts, pool)
        if not mine:
            continue
        root = folders[mine[0].id].parent
        for host, made in units_on_hosts(fleet, cell, side, mine, root).items():
            units[host] += [{"name": name, "content": content} for name, content in sorted(made.items())]
    by_host = {h.id: {"lab_serving_folder": str(folders[h.id]), "lab_serving_units": units[h.id]} for h in hosts}
    return {"lab_serving_python": sys.executable, "by_host": by_host}


def _of_pool(hosts: Sequence[Host], pool: PoolId) -> tuple[Host, ...]:
    return tuple(h for h in hosts if h.pool == pool)
