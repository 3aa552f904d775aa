"""Plan, pure layer: where cells are pinned to what cannot hold them all: a smallest set of lines of the fleet file that conflict. No I/O.

Per limit, the largest pinned cells first until it is exceeded: no smaller set of cells exceeds a pool's limit. A shared limit counts whole
VMs, so what is not needed for the conflict is struck out again one by one. Of all limits the one with the fewest lines is named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from fleetctl.domain.ids import CellId
from fleetctl.domain.plan import Check
from fleetctl.domain.workload import Workload
from fleetctl.planning.candidates import Choice, Site
from fleetctl.planning.outcomes import counted_vms

MOST_NAMED = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A shared limit: what a VM of each pool counts, and the most of it."""

    name: str
    weights: Sequence[float]
    most: float


def conflict(
    sites: Sequence[Site], base: Sequence[float], pins: Mapping[CellId, Choice], limits: Sequence[Limit]
) -> tuple[str, tuple[CellId, ...]] | None:
    """Return a limit (as a line of the fleet file) and a smallest set of pinned cells that it cannot hold; None where all fit.

    Args:
        base: GPUs per pool of today's cells, which stay until both sides are released; pins: the one place of each pinned cell.
    """
    found: list[tuple[str, tuple[CellId, ...]]] = []
    for q, site in enumerate(sites):
        mine = _largest_first({c: p for c, p in pins.items() if p.pool == q})
        cells = _until(mine, _overfills(site, base[q]))
        if cells:
            found.append((_line(site), cells))
    for limit in limits:
        mine = _largest_first({c: p for c, p in pins.items() if limit.weights[p.pool] > 0})
        over = _exceeds(sites, base, limit)
        cells = _until(mine, over)
        if cells:
            most = f"{limit.most:g}" if limit.name != "target_share" else f"at most {limit.most:g} GPUs of AMD"
            found.append((f"policy.{limit.name.replace(' of ', '.')}: {most}", _needed(cells, mine, over)))
    return min(found, key=lambda f: (len(f[1]), f[0]), default=None)


def apart_conflict(
    sites: Sequence[Site],
    pins: Mapping[CellId, Choice],
    stands: Mapping[CellId, int],
    works: Mapping[CellId, Workload],
    refused: Sequence[CellId],
) -> tuple[str, tuple[CellId, ...]] | None:
    """Return the lines that put two cells of a group (`apart`) into one pool, None where no pinned cell is refused for that.

    Args:
        stands: pool of every cell once all is over; works: workload of each; refused: pinned cells that `apart` keeps out.
    """
    for cell in sorted(refused):
        pool, group = pins[cell].pool, works[cell].apart
        others = [c for c, w in works.items() if w.apart == group and c != cell]
        others.sort(key=lambda c: (c not in pins, c))
        rival = next((c for c in others if (pins[c].pool if c in pins else stands[c]) == pool), None)
        if rival is None:
            continue
        both = "; ".join(dict.fromkeys(f"workloads.{works[c].id}.apart: {group}" for c in sorted((cell, rival))))
        if rival in pins:
            return both, tuple(sorted((cell, rival)))
        return f"{both}; cells.{rival}.source: {sites[pool].pool.id}", (cell,)
    return None


def conflict_check(found: tuple[str, tuple[CellId, ...]] | None, pins: Mapping[CellId, Choice]) -> tuple[Check, ...]:
    """Return the failed check that names the lines, () where nothing conflicts."""
    if found is None:
        return ()
    line, cells = found
    named = ", ".join(f"cells.{c}.target ({pins[c].gpus} GPUs)" for c in cells[:MOST_NAMED])
    more = f" and {len(cells) - MOST_NAMED} more" if len(cells) > MOST_NAMED else ""
    text = f"these lines cannot all hold while both sides are up: {line}; {named}{more}. Change any one of them"
    return (Check(name="conflict", ok=False, detail=text),)


def limits_today(sites: Sequence[Site], limits: Sequence[Limit]) -> tuple[Check, ...]:
    """Return the failed check that names the shared limits that today's VMs exceed before anything moves, () where none."""
    over = []
    for limit in limits:
        today = sum(w * s.pool.count for w, s in zip(limit.weights, sites, strict=True))
        if today > limit.most * (1 + 1e-9) + 1e-9:
            over.append(f"policy.{limit.name.replace(' of ', '.')}: {today:,.2f} today, at most {limit.most:,.2f}")
    if not over:
        return ()
    return (Check(name="limits today", ok=False, detail=f"exceeded before anything moves, and no move adds to it: {'; '.join(over)}"),)


def _line(site: Site) -> str:
    pool = site.pool
    if site.closed is not None:
        return f"no capacity for {pool.sku} in {pool.region}, so pools.{pool.id} keeps its {counted_vms(site.most)} of {site.size} GPUs"
    what = "count" if pool.provisioned_by == "existing" else "limit"
    return f"pools.{pool.id}.{what}: {counted_vms(site.most)} of {site.size} GPUs"


def _largest_first(pins: Mapping[CellId, Choice]) -> dict[CellId, Choice]:
    return dict(sorted(pins.items(), key=lambda item: (-item[1].padded, item[0])))


def _until(mine: Mapping[CellId, Choice], over: Callable[[Mapping[CellId, Choice]], bool]) -> tuple[CellId, ...]:
    """Return the first of `mine` that together are too much, () where all of them are not."""
    if not mine or not over(mine):
        return ()
    some: dict[CellId, Choice] = {}
    for cell, pin in mine.items():
        some[cell] = pin
        if over(some):
            break
    return tuple(some)


def _needed(
    cells: tuple[CellId, ...], pins: Mapping[CellId, Choice], over: Callable[[Mapping[CellId, Choice]], bool]
) -> tuple[CellId, ...]:
    kept = list(cells)
    for cell in reversed(cells):
        rest = [c for c in kept if c != cell]
        if over({c: pins[c] for c in rest}):
            kept = rest
    return tuple(kept)


def _overfills(site: Site, held: float) -> Callable[[Mapping[CellId, Choice]], bool]:
    return lambda some: held + sum(p.padded for p in some.values()) > site.most * site.size


def _exceeds(sites: Sequence[Site], base: Sequence[float], limit: Limit) -> Callable[[Mapping[CellId, Choice]], bool]:
    today = sum(w * s.pool.count for w, s in zip(limit.weights, sites, strict=True))

    def over(some: Mapping[CellId, Choice]) -> bool:
        come = [0.0] * len(sites)
        for pin in some.values():
            come[pin.pool] += pin.padded
        peak = sum(
            w * (max(s.pool.count, ceil((b + c) / s.size - 1e-6)) if c else s.pool.count)
            for w, s, b, c in zip(limit.weights, sites, base, come, strict=True)
        )
        return peak > max(limit.most, today) * (1 + 1e-9) + 1e-9

    return over
