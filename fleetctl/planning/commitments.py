"""Plan, pure layer: commitments that count wherever their scope matches, and what of a bill they cover. Never guesses, never I/O.

units[s, p]   what a VM of pool p uses up of commitment s: 1 (a reservation), its accelerators over those of the reserved size (size
              flexibility), or its price less the discount (a commitment to spend)
funds[s]      what there is of it: VMs, or USD an hour

What is covered costs nothing on top of the commitment, which is paid for anyway; so it saves no cash before it ends.

Source: AWS, Savings Plans user guide (EC2 Instance Savings Plans apply before Compute ones, by the highest saving first); Microsoft,
reservation discount (scope single or shared, instance size flexibility by ratio; reservations before savings plans). Ratios are taken
by accelerators here, where the clouds use tables per family: estimated.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from fleetctl.domain.catalog import Catalog
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.pool import Commitment, Scope
from fleetctl.domain.units import Instant
from fleetctl.planning.candidates import Site


def scoped(fleet: Fleet, now: Instant) -> tuple[Commitment, ...]:
    """Return the commitments by scope that run, in the order in which they are applied: VMs first, then the narrower scope."""
    today = now.date().isoformat()
    running = [c for c in fleet.commitments if c.scope is not None and c.until >= today]
    return tuple(sorted(running, key=lambda c: (c.discount is not None, not (c.scope and c.scope.skus), not (c.scope and c.scope.regions))))


def units_of(commitments: Sequence[Commitment], sites: Sequence[Site], catalog: Catalog) -> tuple[list[list[float]], list[float]]:
    """Return per commitment and pool the units of a VM, 0 where it does not count, and the funds of each."""
    units = [[_unit(c, s, catalog) for s in sites] for c in commitments]
    return units, [float(c.hourly.amount) if c.discount is not None else float(c.count) for c in commitments]


def _unit(c: Commitment, site: Site, catalog: Catalog) -> float:
    sku, price = site.sku, site.price
    if c.scope is None or sku is None or price is None or not _matches(c.scope, site):
        return 0.0
    if c.discount is not None:
        return float(price.amount) * (1 - c.discount)
    of = catalog.sku(c.of) if c.of else None
    return sku.accelerators / of.accelerators if of is not None else 1.0


def _matches(scope: Scope, site: Site) -> bool:
    pool, sku = site.pool, site.sku
    return (
        (not scope.clouds or (sku is not None and sku.cloud in scope.clouds))
        and (not scope.regions or pool.region in scope.regions)
        and (not scope.skus or any(fnmatchcase(pool.sku, pattern) for pattern in scope.skus))
        and (not scope.pools or pool.id in scope.pools)
    )
