"""`fleetctl capacity`, shell layer: where machines may be had. Never decides, never makes any."""

from __future__ import annotations

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import output_option, pass_app


@click.command("capacity")
@click.argument("pool", required=False, default="")
@output_option("table", "wide", "json", "yaml")
@pass_app
def command(app: App, pool: str, output: str) -> None:
    """Say where the machines of POOL (or of every pool) may be had, and why not: size, quota, reservations, what refused lately.

    \b
    Examples:
      fleetctl capacity
      fleetctl capacity mi300x-eastus2 -o wide
    """
    from fleetctl.errors import UsageError
    from fleetctl.usecases.oracle import capacity
    from fleetctl.views.provision import capacity_table, capacity_text

    w = app.wiring
    if pool and pool not in {p.id for p in w.fleet.pools}:
        raise UsageError("usage.pool", f"there is no pool {pool!r} in the fleet.", hint="Run: fleetctl inventory")
    rows = capacity(w.fleet, w.oracle, w.places, w.pool_source, pool=pool)
    if output == "table":
        app.out(capacity_text(rows, width=app.width))
        return
    app.show(output, "capacity", [{"pool": r.pool.id, "count": r.count, "places": r.verdicts} for r in rows], capacity_table(rows))
