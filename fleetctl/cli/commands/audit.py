"""`fleetctl audit`, shell layer: show and verify the hash-chained log. Never decides."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import Group, output_option, pass_app
from fleetctl.errors import EXIT_DONE, EXIT_FAILED, RowUnreadable

if TYPE_CHECKING:
    from fleetctl.domain.units import Instant


@click.group("audit", cls=Group)
def command() -> None:
    """Show and verify the hash-chained log of what happened."""


@command.command("verify")
@output_option("table", "json")
@pass_app
def verify(app: App, output: str) -> None:
    """Recompute every chain, and check every signed approval. Exit 1 where one does not hold.

    An edited, deleted or reordered event is named, and so is a signature that is forged, of a key that is revoked or was not valid then,
    or that the log does not tell of.
    """
    from fleetctl.domain.plan import Approval
    from fleetctl.usecases.proof import SignaturesCheck, check_signatures
    from fleetctl.views.audit import ChainResult, render_audit, render_signatures

    store = app.wiring.store
    faults = {cell: (seq, what) for cell, seq, what in reversed(store.verify())}
    chains = []
    for c in (None, *store.cells()):
        count, head = 0, ""
        with suppress(RowUnreadable):  # that one is among the faults
            for event in store.events(c, 0):
                count, head = count + 1, event.hash
        chains.append(ChainResult(cell=c, events=count, head=head, broken=faults.get(c)))
    try:
        signatures = check_signatures(store, store.events(None, 0), app.wiring.proof) if store.newest(Approval) else SignaturesCheck()
    except RowUnreadable as e:
        signatures = SignaturesCheck(faults=(e.message,))
    ok = not faults and not signatures.faults
    if output == "json":
        app.line("audit.verify", {"ok": ok, "chains": chains, "signatures": signatures})
    else:
        app.out(render_audit(chains) + render_signatures(signatures))
    sys.exit(EXIT_DONE if ok else EXIT_FAILED)


@command.command("looks")
@click.argument("cell")
@output_option("table", "json")
@pass_app
def looks(app: App, cell: str, output: str) -> None:
    """Compute every verdict of a cell again, from its stored looks alone. Exit 1 where one comes out otherwise."""
    from fleetctl.domain.ids import CellId
    from fleetctl.usecases.audit import check_looks
    from fleetctl.views.audit import render_looks

    found = check_looks(CellId(cell), app.wiring.store.rows(CellId(cell), None))
    if output == "json":
        app.line("audit.looks", found)
    else:
        app.out(render_looks(found))
    sys.exit(EXIT_FAILED if found.differing else EXIT_DONE)


@command.command("list")
@click.argument("cell", required=False)
@output_option("table", "json")
@pass_app
def list_(app: App, cell: str | None, output: str) -> None:
    """Print events, oldest first: of one cell, or of the fleet and every cell."""
    from fleetctl.domain.ids import CellId

    store = app.wiring.store
    chains = (CellId(cell),) if cell else (None, *store.cells())
    events = sorted((e for c in chains for e in store.events(c, 0)), key=lambda e: e.at)
    if not events and output != "json":
        app.out("No event yet.")
    for e in events:
        if output == "json":
            app.line("event", e)
        else:
            app.out(f"{e.at:%H:%M:%S} {e.cell or '-':<14} {e.kind:<18} {e.actor.name:<10} {e.text}")


@command.command("show")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--kind", "kinds", multiple=True, help="Kind of event, or its beginning: order, traffic, verdict.fail. May be repeated.")
@click.option("--by", multiple=True, metavar="NAME", help="Who caused it. May be repeated.")
@click.option("--since", default="", metavar="WHEN", help="From then on: 2026-11-30T12:00:00Z, or 2h for the last two hours.")
@click.option("--until", default="", metavar="WHEN", help="Before then.")
@click.option("--last", type=click.IntRange(min=1), default=None, help="The newest so many.")
@output_option("table", "wide", "json")
@pass_app
def show(
    app: App, /, names: tuple[str, ...], kinds: tuple[str, ...], by: tuple[str, ...], last: int | None, output: str, **when: str
) -> None:
    """Print events whole, oldest first: of cells, of workloads, of "fleet" for what belongs to no cell, or all.

    \b
    fleetctl audit show                              everything
    fleetctl audit show chat --kind order            what people ordered of chat
    fleetctl audit show --since 2h --kind traffic    weights of the last two hours
    fleetctl audit show fleet --kind approval        who approved what
    """
    from fleetctl.usecases.audit import EventsWanted, find_events
    from fleetctl.views.audit import render_events

    since, until = (_moment(app, option, when[option]) for option in ("since", "until"))
    wanted = EventsWanted(names=names, kinds=kinds, by=by, since=since, until=until, last=last or 0)
    events = find_events(app.wiring.store, wanted)
    if output != "json":
        app.out(render_events(events, width=app.width, wide=output == "wide").rstrip("\n"))
        return
    for e in events:
        app.line("event", e)


def _moment(app: App, option: str, text: str) -> Instant | None:
    """Return the instant that a person wrote, or so long ago; None for nothing."""
    from fleetctl.errors import UsageError
    from fleetctl.formats.quantities import parse_duration, parse_instant

    if not text:
        return None
    try:
        return app.wiring.clock.now() - parse_duration(text) if text[-1:] in "smhd" else parse_instant(text)
    except ValueError as e:
        raise UsageError("usage.bad", f"--{option}: {e}.", hint="Write it as 2026-11-30T12:00:00Z, or 2h for two hours ago") from e
