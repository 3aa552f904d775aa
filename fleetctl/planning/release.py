"""Plan, pure layer: what the release of source VMs between waves makes room for. Never decides, never I/O.

Cells that only a shared limit keeps where they are (power, budget, share of AMD) may go once enough source VMs are given back: the plan
says after which wave, and that it is to be made again then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fleetctl.domain.calendar import Calendar, Release
from fleetctl.domain.ids import CellId, PoolId
from fleetctl.domain.plan import Outcome
from fleetctl.planning.candidates import Choice, Site
from fleetctl.planning.conflict import Limit
from fleetctl.planning.cost import PoolCost


def with_releases(
    outcomes: Mapping[CellId, Outcome],
    choices: Mapping[CellId, Sequence[Choice]],
    calendar: Calendar | None,
    sites: Sequence[Site],
    pools: Sequence[PoolCost],
    limits: Sequence[Limit],
) -> dict[CellId, Outcome]:
    """Return the outcomes, those that wait for a release saying so.

    Args:
        choices: what each cell was offered; pools: VMs today and after the plan, as `sites`.
    """
    out = dict(outcomes)
    if calendar is None or not calendar.releases:
        return out
    index = {s.pool.id: i for i, s in enumerate(sites)}
    by_name = {limit.name: limit for limit in limits}
    for cell, o in outcomes.items():
        if o.kind != "infeasible" or not o.reason.code.startswith("limit."):
            continue
        limit = next((by_name[n] for n in by_name if n in o.reason.text and n.startswith(o.reason.code.removeprefix("limit."))), None)
        if limit is None:
            continue
        least = min((limit.weights[c.pool] * -(-c.padded // sites[c.pool].size) for c in choices.get(cell, ())), default=float("inf"))
        when = _first(limit, least, calendar, index, pools)
        if when is not None:
            text = f"Wave {when.wave} (over {when.at:%Y-%m-%d}) and the release of its source make room: run fleetctl plan again then."
            out[cell] = replace(o, change=f"{text} Or: {o.change}")
    return out


def _first(limit: Limit, need: float, calendar: Calendar, index: Mapping[PoolId, int], pools: Sequence[PoolCost]) -> Release | None:
    """Return the release after which `need` more of the limit fits, None where all of them are not enough."""
    used = sum(w * max(p.vms_now, p.vms_then) for w, p in zip(limit.weights, pools, strict=True))
    for release in calendar.releases:
        used -= limit.weights[index[release.pool]] * release.vms
        if used + need <= limit.most + 1e-9:
            return release
    return None
