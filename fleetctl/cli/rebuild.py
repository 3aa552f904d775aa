"""`fleetctl fallback --rebuild`, shell layer: has sources made anew that were given back. Never decides, moves no traffic."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.cli.app import App

if TYPE_CHECKING:
    from fleetctl.domain.home import WayHome
    from fleetctl.usecases.home import HomePorts
    from fleetctl.usecases.home_choice import Failure
    from fleetctl.usecases.rebuild import Rebuild, RebuildPorts

WAIT = timedelta(minutes=30)
"""How long cells wait for a source that was made anew to answer, where nothing else is said: engines load models for minutes."""


def gone_sources(ways: Sequence[WayHome], ports: HomePorts) -> tuple[WayHome, ...]:
    """Return the cells whose source was given back and answers nothing, whatever was made of it since."""
    from fleetctl.usecases.home import silent

    said = [way for way in ways if way.released]
    nothing = silent(said, ports) if said else frozenset()
    return tuple(way for way in said if way.cell in nothing)


def rebuild_sources(app: App, ways: Sequence[WayHome], output: str) -> tuple[tuple[WayHome, ...], tuple[Failure, ...]]:
    """Make the sources of these cells anew; return the cells that have one now, and why the others have none.

    Raises:
        StoreUnavailable: whoever makes machines must hold the pool's lease; Interrupted: the same command goes on.
    """
    from fleetctl.usecases.rebuild import chosen, rebuild

    w = app.wiring
    ports = _ports(app, output)
    wanted, failed = chosen(ways, w.fleet, ports)
    for one in wanted:
        say(app, one)
    failed = (*failed, *rebuild(wanted, w.fleet, ports))
    bad = {f.cell for f in failed}
    return tuple(w.ways_home.read(way.cell) for way in ways if way.cell not in bad), failed


def would_rebuild(app: App, ways: Sequence[WayHome]) -> None:
    """Say which way would be taken for these cells; nothing is written."""
    from fleetctl.usecases.rebuild import chosen

    wanted, failed = chosen(ways, app.wiring.fleet, _ports(app, "table"))
    for one in wanted:
        say(app, one)
    for f in failed:
        app.note(f"cell/{f.cell} {f.error}")


def say(app: App, one: Rebuild) -> None:
    """Say what is made for whom, and which better ways need a plan."""
    for better in one.passed:
        app.note(f"Better, but only by a plan (fleet file, then: fleetctl plan): {better}")
    cells = ", ".join(way.cell for way in one.cells[:20])
    app.note(f"Making {one.spec.count} x {one.spec.sku} in {one.spec.region} as {one.spec.pool} again, for {cells}. {one.way.text}")


def _ports(app: App, output: str) -> RebuildPorts:
    from fleetctl.cli.commands.configure import prepare_source
    from fleetctl.cli.commands.provision import make_source
    from fleetctl.usecases.rebuild import RebuildPorts

    w = app.wiring
    return RebuildPorts(
        store=w.store,
        records=w.store,
        clock=w.clock,
        actor=w.actor,
        make=lambda plan: make_source(app, plan, output),
        prepare=lambda plan: prepare_source(app, plan, output),
        made=w.note_made,
    )
