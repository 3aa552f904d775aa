"""`fleetctl status`, shell layer: where each cell stands now. Never decides; imports click, sqlite3 and little else."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import output_option, pass_app

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleetctl.adapters.store.status import StatusRow as Stored
    from fleetctl.views.status import StatusRow

WATCH_S = 0.5


@click.command("status")
@click.option("--watch", is_flag=True, help="Follow until Ctrl-C.")
@click.option("--jobs", is_flag=True, help="Instead: the jobs of batch cells, and their poison jobs by id.")
@output_option("table", "json", "name")
@pass_app
def command(app: App, watch: bool, jobs: bool, output: str) -> None:
    """Where each cell stands: phase, weight set and served, verdict, what comes next."""
    if jobs:
        _jobs(app, output)
        return
    if watch and output == "table":
        _watch(app)
        return
    rows = app.wiring.status_rows()
    match output:
        case "json":
            held = app.wiring.held_pools()
            shown = [r._asdict() | {"verdicts": [v._asdict() for v in r.verdicts], "held": held.get(r.cell, "")} for r in rows]
            app.line("status", shown)
        case "name":
            for r in rows:
                app.out(f"cell/{r.cell}")
        case _:
            from fleetctl.views.status import render_status

            app.out(render_status(_shown(rows, app.wiring.held_pools()), width=app.width, colour=app.color).rstrip("\n"))


def _jobs(app: App, output: str) -> None:
    from fleetctl.views.jobs import jobs_table
    from fleetctl.wiring.jobs import jobs_of

    found = jobs_of(app.wiring.fleet)
    names = tuple(f"{row.cell}/{job.id}" for row in found for job in row.poison)
    app.show(output, "jobs", found, jobs_table(found), names)


def _shown(rows: Sequence[Stored], held: Mapping[str, str]) -> list[StatusRow]:
    from fleetctl.views.status import StatusRow

    return [
        StatusRow(
            cell=r.cell,
            phase=r.phase,
            weight_bp=r.weight_bp,
            served_bp=None if r.ended else r.served_bp,
            verdict=_worst(r),
            next=next_of(r, held.get(r.cell, "")),
            ended=r.ended,
            paused=r.paused,
            missing=max((v.missing for v in r.verdicts if v.missing is not None), default=None),
        )
        for r in rows
    ]


_ORDER = ("FAIL", "PROVIDER_ERROR", "NO_DATA", "INCONCLUSIVE", "PASS")


def _worst(r: Stored) -> str:
    kinds = {v.kind for v in r.verdicts}
    return next((k for k in _ORDER if k in kinds), "")


ENDS = " ends in "
"""Stands in the part of a look that names the end of a pool, as fleetctl.rollout.deadlines writes it (a test compares)."""


def next_of(r: Stored, held: str = "") -> str:
    """Say what a cell waits for, or what a person must do; empty where there is nothing to say.

    Args:
        held: the pool whose minimum is held for it, "" where none is.
    """
    if r.ended == "complete":
        return "; ".join(([f"minimum still held: fleetctl release {held}"] if held else []) + _ends(r.look))
    if r.ended:
        return r.hold_reason
    if r.hold_reason == "stale" or r.hold_reason.startswith("traffic."):
        return f"HELD ({r.hold_reason}): fleetctl audit list {r.cell}"
    first, *more = waits_for(r).split("; ")
    return "; ".join((first, *(part for part in more if ENDS in part)))


def _ends(look: str) -> list[str]:
    """Return when a finished cell's target ends; it is looked at so seldom that "in 4 days" may be old, and the time is not."""
    found = (part.partition(ENDS) for part in look.split("; ") if ENDS in part)
    return [f"{side} ends {rest.partition(', ')[2]}" for side, _, rest in found]


def waits_for(r: Stored) -> str:
    """Say what a cell waits for, in all its parts."""
    return r.look.removeprefix(f"{r.phase}: ").removeprefix("waiting for ") if r.look else "first look is due"


def _watch(app: App) -> None:
    from fleetctl.views.status import render_live

    try:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        console = Console(no_color=not app.color)
        with Live(console=console, auto_refresh=False, screen=False) as live:
            while True:
                text = render_live(_shown(app.wiring.status_rows(), app.wiring.held_pools()), width=console.width, colour=app.color)
                live.update(Text.from_ansi(text), refresh=True)
                time.sleep(WATCH_S)
    except KeyboardInterrupt:
        return
