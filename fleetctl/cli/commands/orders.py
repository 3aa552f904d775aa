"""Orders, shell layer: promote, pause, resume, abort and rollback as rows that the next tick obeys. Never decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import CELL, dry_run_option
from fleetctl.errors import FleetctlError

if TYPE_CHECKING:
    from fleetctl.domain.ids import CellId
    from fleetctl.domain.rollout import OrderKind, Rollout


def cells_of(app: App, names: Sequence[str]) -> tuple[CellId, ...]:
    """Resolve cell and workload names to cells that have a rollout."""
    known = app.wiring.store.cells()
    workload = {c.id: c.workload for c in app.wiring.fleet.cells}
    unknown = [n for n in names if n not in known and n not in {workload.get(c) for c in known}]
    if unknown:
        raise FleetctlError("rollout.unknown", f"nothing called {', '.join(unknown)} is moving.", hint="Run: fleetctl status")
    return tuple(c for c in known if c in names or workload.get(c) in names)


def give_order(
    app: App, kind: OrderKind, names: Sequence[str], note: str, *, dry_run: bool, wait: bool = False
) -> tuple[Rollout | None, ...]:
    """Write an order for each cell and wait until it is obeyed.

    Args:
        wait: until the rollouts have ended, not only until the order was taken.

    Raises:
        TrafficNotApplied: traffic.order_waits: the router cannot be set now; the orders stand.
        UnsafeFallback: fallback.released: the source of a cell that is to go home was given back; nothing was ordered.
    """
    from fleetctl.domain.rollout import Order
    from fleetctl.rollout.steps import is_above
    from fleetctl.usecases.migrate import Driver, follow_order

    w = app.wiring
    cells = cells_of(app, names)
    if dry_run:
        click.echo(f"Would order {kind}: {', '.join(cells)}\nNothing was changed.")
        return ()
    if kind in ("abort", "rollback"):
        _require_a_way_home(app, cells)
    for c in cells:
        w.store.order(c, Order(kind=kind, actor=w.actor, at=w.clock.now(), note=note))
    driver = Driver(ports=w.tick_ports(), settings=w.tick_settings(), on_tick=lambda _: None)
    try:
        done = (lambda r: r is None or bool(r.ended)) if wait else (lambda r: r is None or not r.orders)
        rollouts = follow_order(driver, cells, done)
    finally:
        driver.stop()
    for r in rollouts:
        if r is not None:
            did = "going home" if r.direction == "home" else _PAST[kind]
            if kind == "rollback" and not r.ended and is_above(r):
                did = "goes lower as its source answers; so far"
            said = r.ended.replace("_", " ") or f"{did}, {r.phase} at {r.weight_bp / 100:g} %"
            click.echo(f"cell/{r.cell} {said}")
    return rollouts


def _require_a_way_home(app: App, cells: Sequence[CellId]) -> None:
    """Refuse to send cells to a source that was given back: such an order would stand until something else has its name."""
    from fleetctl.usecases.home_choice import readable
    from fleetctl.usecases.ways_back import refuse_released

    w = app.wiring
    ways = [way for way in readable(w.ways_home)[0] if way.cell in cells]
    for gone in refuse_released(ways, w.fleet, w.store, w.store):
        raise gone.error


_PAST = {
    "promote": "promoted",
    "pause": "paused",
    "resume": "resumed",
    "abort": "aborting",
    "rollback": "rolled back one step",
    "fallback": "falling back",
    "advance": "advancing",
    "retry": "retrying",
}
NAMES = click.argument("cells", nargs=-1, required=True, metavar="CELL|WORKLOAD...", type=CELL)
REASON = click.option("--reason", default="", help="Kept with the order in the audit log.")
DRY_RUN = dry_run_option
