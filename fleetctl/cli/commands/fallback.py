"""`fleetctl fallback`, shell layer: home at once by a person's order, store or not. Never decides."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import can_ask, confirm_option, dry_run_option, output_option, pass_app, require_confirmation
from fleetctl.cli.rebuild import WAIT as REBUILT_WAIT
from fleetctl.cli.rebuild import gone_sources
from fleetctl.errors import EXIT_DONE, EXIT_FAILED, EXIT_PENDING, FleetctlError, Interrupted, UsageError

if TYPE_CHECKING:
    from fleetctl.domain.home import WayHome
    from fleetctl.usecases.home import HomePorts, Results
    from fleetctl.usecases.home_choice import Choice, Failure
    from fleetctl.usecases.home_reconcile import Reconciled

WAIT = timedelta(seconds=60)
"""How long cells that are home in part wait for their source to warm up, where nothing else is said."""
_LOOK = timedelta(seconds=1)
MOST_FILES = 16_384
"""Open files that 250 cells with 64 hung replicas each may need."""


@click.command("fallback")
@click.argument("names", nargs=-1, metavar="[WORKLOAD|CELL]...")
@click.option("--all", "everything", is_flag=True, help="Every cell that has a way home.")
@click.option("--region", "regions", multiple=True, metavar="REGION", help="Only cells of this region; may be repeated.")
@click.option("--tenant", "tenants", multiple=True, metavar="TENANT", help="Only cells of this tenant; may be repeated.")
@click.option("--class", "classes", multiple=True, metavar="CLASS", help="Only realtime, online or batch; may be repeated.")
@click.option("--wave", "waves", type=click.IntRange(1), multiple=True, metavar="N", help="Only this wave of the newest plan.")
@click.option("--unproven", is_flag=True, help="Go home all the way though some or all replicas of the source answer nothing.")
@click.option("--wait", "wait", metavar="TIME", default=None, help="How long to wait for a source that is warming up.  [default: 60s]")
@click.option("--kill-streams", is_flag=True, help="Once home, end what the target still answers; its clients see broken answers.")
@click.option("--rebuild", is_flag=True, help="Where the source was given back: make it anew, prepare its hosts, then go home.")
@click.option("--reconcile", "only_reconcile", is_flag=True, help="Only tell the store of returns made while it was down.")
@click.option("--paper", is_flag=True, help="Print the raw commands for when fleetctl itself is gone; with -o html a page to print.")
@confirm_option
@dry_run_option
@output_option("table", "json", "html")
@pass_app
def command(
    app: App,
    names: tuple[str, ...],
    everything: bool,
    regions: tuple[str, ...],
    tenants: tuple[str, ...],
    classes: tuple[str, ...],
    waves: tuple[int, ...],
    unproven: bool,
    wait: str | None,
    kill_streams: bool,
    rebuild: bool,
    only_reconcile: bool,
    paper: bool,
    confirm: str | None,
    dry_run: bool,
    output: str,
) -> None:
    """Bring workloads back to the source now: the router first; no plan, Terraform, approval, target or store is needed.

    Cells must fit all that is asked for: --region eu --class online is online work in eu. A cell goes as far as the replicas of its source
    that answer real completions can take it, and on as more of them do. A source that was given back is not there to go home to: then
    nothing moves, and what is left is ranked. --rebuild takes of that what ends at home without a plan: provision and configure make the
    pool anew (store and fleet file are needed for it), and its cells go home as its replicas answer; it waits for them 30 min.

    \b
    Examples:
      fleetctl fallback chat                         one workload
      fleetctl fallback --region eastus2 --dry-run   list what would go, no more
      fleetctl fallback --all                        everything
      fleetctl fallback chat --rebuild               after its source was released
    """
    from fleetctl.domain.home import Wanted
    from fleetctl.usecases.home_choice import choose, readable

    w = app.wiring
    if output == "html" and not paper:
        raise UsageError("usage.output", "-o html is the form of --paper only.", hint="Add: --paper")
    if only_reconcile:
        _only_reconcile(app)
        return
    wanted = Wanted(names=names, regions=regions, tenants=tenants, classes=classes, waves=waves, everything=everything)
    if wanted.is_empty:
        hint = "Run: fleetctl fallback WORKLOAD"
        raise UsageError("usage.names", "say which workloads or cells, --region, --tenant, --class or --wave, or --all.", hint=hint)
    until = _span(wait)
    good, bad = readable(w.ways_home)
    choice = choose(good, wanted, bad)
    if paper or dry_run:
        if rebuild and not paper:
            from fleetctl.cli.rebuild import would_rebuild

            would_rebuild(app, gone_sources(choice.ways, w.home_ports()))
        _say(app, choice, output, paper=paper)
        return
    how = _How(unproven=unproven, wait=until if wait is not None else None, cut=kill_streams, rebuild=rebuild, confirm=confirm)
    sys.exit(_bring_home(app, choice, output, how))


@dataclass(frozen=True, slots=True, kw_only=True)
class _How:
    """What the flags say; see the command's options. `wait`: None where nothing was said."""

    unproven: bool
    wait: timedelta | None
    cut: bool
    rebuild: bool
    confirm: str | None


def _bring_home(app: App, choice: Choice, output: str, how: _How) -> int:
    """Move, tell, reconcile and, where asked, cut streams; return the exit code."""
    from fleetctl.usecases.home import fallback
    from fleetctl.usecases.home_reconcile import reconcile

    _more_files()
    w = app.wiring
    ports = w.home_ports()
    silent = gone_sources(choice.ways, ports) if how.rebuild else ()
    gone: tuple[Failure, ...] = () if how.rebuild else _released(app, choice.ways, ports)
    ways = tuple(x for x in choice.ways if x.cell not in {f.cell for f in gone} | {y.cell for y in silent})
    if how.cut and (how.confirm is not None or not can_ask()):
        _confirm_cut(ways, how.confirm)
    _unknown(app, choice)
    if ways:
        app.note(f"Going home: {_some([x.cell for x in ways])}")
    results: Results = fallback(ways, ports, w.actor, unproven=how.unproven)
    until, patient = WAIT if how.wait is None else how.wait, how.wait is not None
    if how.rebuild:  # whoever has a source is home by now
        made, gone = _rebuilt(app, silent, output)
        ways, results = (*ways, *made), (*results, *fallback(made, ports, w.actor))
        until, patient = (REBUILT_WAIT if made and how.wait is None else until), patient or bool(made)
    results = (*results, *choice.refused, *gone)
    results = _warming(app, ways, results, ports, until, patient=patient)
    _told(app, results, output)
    _reconciled(reconcile(ports))
    _rehearsed(app, results)
    streams = _kill(app, ways, results, ports, how.confirm) if how.cut else EXIT_DONE
    return _code(results) or streams


def _rebuilt(app: App, gone: Sequence[WayHome], output: str) -> tuple[tuple[WayHome, ...], tuple[Failure, ...]]:
    """Have sources made anew that were given back; return their cells, and those that have none with the cause."""
    from fleetctl.cli.rebuild import rebuild_sources
    from fleetctl.usecases.home_choice import Failure

    if not gone:
        app.note("No source of these cells was given back: nothing is made anew.")
        return (), ()
    try:
        return rebuild_sources(app, gone, output)
    except Interrupted:
        raise
    except FleetctlError as e:
        return (), tuple(Failure(cell=way.cell, error=e) for way in gone)


def _more_files() -> None:
    """Raise this process's limit of open files as far as it may: sources that hang keep a connection each."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < MOST_FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (MOST_FILES if hard == resource.RLIM_INFINITY else min(MOST_FILES, hard), hard))


def _unknown(app: App, choice: Choice) -> None:
    for what in choice.unknown:
        app.note(f"No way home that can be read has {what}; one that cannot be read may have it.")


def _released(app: App, ways: Sequence[WayHome], ports: HomePorts) -> tuple[Failure, ...]:
    """Return those whose source was given back and is silent; where fleet file and store answer, with what is left to do."""
    from fleetctl.usecases.home import silent
    from fleetctl.usecases.ways_back import refuse_released

    said = [way for way in ways if way.released]
    nothing = silent(said, ports) if said else frozenset()
    said = [way for way in said if way.cell in nothing]
    if not said:
        return ()
    w = app.wiring
    try:
        return refuse_released(said, w.fleet, w.store, w.store)
    except FleetctlError:
        return refuse_released(said, None, None, None)


def _only_reconcile(app: App) -> None:
    from fleetctl.usecases.home_choice import readable
    from fleetctl.usecases.home_reconcile import Reconciled, catch_up, reconcile

    w = app.wiring
    ports = w.home_ports()
    found = reconcile(ports)
    _reconciled(found)
    if found.why_not:
        sys.exit(EXIT_FAILED)
    more = catch_up(readable(w.ways_home)[0], ports, w.actor)
    _reconciled(Reconciled(cells=more))
    if found.failed:
        sys.exit(EXIT_FAILED)
    if not found.cells and not more:
        click.echo("Nothing to reconcile.", err=True)


def _span(wait: str | None) -> timedelta:
    from fleetctl.formats.quantities import parse_duration

    if wait is None:
        return WAIT
    try:
        return parse_duration(wait)
    except ValueError as e:
        raise click.BadParameter(str(e), param_hint="--wait") from e


def _say(app: App, choice: Choice, output: str, *, paper: bool) -> None:
    """List exactly the cells, or print their paper; nothing is written."""
    from fleetctl.views.home import page, paper_text

    ways, refused = choice.ways, choice.refused
    if output == "html":
        app.out(page(ways))
    elif output == "json":
        rows: list[dict[str, object]] = [
            {"cell": w.cell, "workload": w.workload, "region": w.region, "tenant": w.tenant, "class": w.klass} for w in ways
        ]
        if paper:
            rows = [{**row, "commands": list(way.paper)} for row, way in zip(rows, ways, strict=True)]
        app.line("fallback.cells", {"cells": rows, "refused": [f.cell for f in refused]})
    elif paper:
        app.out(paper_text(ways))
    else:
        for way in ways:
            app.out(way.cell)
    for f in refused:
        app.note(f"cell/{f.cell} {f.error}")
    _unknown(app, choice)
    app.note("Nothing was changed.")
    sys.exit(EXIT_FAILED if refused else EXIT_DONE)


def _warming(app: App, ways: Sequence[WayHome], results: Results, ports: HomePorts, wait: timedelta, *, patient: bool) -> Results:
    """Go on while the source warms up, and say how many are home; Ctrl-C ends the waiting and nothing else."""
    from fleetctl.usecases.home import go_on, is_open

    end, said = ports.clock.now() + wait, ""
    try:
        while any(is_open(r, patient=patient) for r in results) and ports.clock.now() < end:
            waiting = _some([r.cell for r in results if is_open(r, patient=patient)])
            unseen = any(getattr(r, "unseen", "") for r in results)
            text = f"{_home(results)} of {len(results)} home; waiting for {'what routes' if unseen else 'the source of'} {waiting}"
            if text != said:
                app.note(f"{text} (Ctrl-C stops waiting; --unproven goes all the way now)")
                said = text
            ports.clock.wait(min(end, ports.clock.now() + _LOOK), lambda: False)
            known = {w.cell for w in ways}
            mine, others = tuple(r for r in results if r.cell in known), tuple(r for r in results if r.cell not in known)
            results = (*go_on(ways, mine, ports, app.wiring.actor, patient=patient), *others)
    except KeyboardInterrupt:
        app.note("Stopped waiting; what is home stays home.")
    return results


def _told(app: App, results: Results, output: str) -> None:
    slowest = max((r.ms_to_zero for r in results if not _is_failure(r)), default=0.0)  # type: ignore[union-attr]
    if output == "json":
        failed = sum(map(_is_failure, results))
        app.line("fallback", {"home": [_row(r) for r in results], "ms_to_zero": round(slowest, 1), "failed": failed})
        return
    for r in results:
        click.echo(_line(r))
    click.echo(f"{_home(results)} of {len(results)} home; slowest to zero: {slowest:.0f} ms")


def _home(results: Results) -> int:
    from fleetctl.domain.home import Returned

    return sum(1 for r in results if isinstance(r, Returned) and r.is_home)


def _code(results: Results) -> int:
    if any(map(_is_failure, results)):
        return EXIT_FAILED
    return EXIT_DONE if _home(results) == len(results) else EXIT_PENDING


def _some(cells: Sequence[str], most: int = 20) -> str:
    return ", ".join(cells[:most]) + (f" and {len(cells) - most} more" if len(cells) > most else "")


def _kill(app: App, ways: Sequence[WayHome], results: Results, ports: HomePorts, confirm: str | None) -> int:
    """End the target's streams of the cells that are home, once the name was typed; going home has not waited for that."""
    from fleetctl.usecases.home import cut_streams

    _confirm_cut(ways, confirm)
    cut = cut_streams(ways, results, ports)
    for cell, n in cut.items():
        app.note(f"cell/{cell} {n}" if isinstance(n, FleetctlError) else f"cell/{cell} {n} streams ended")
    return EXIT_FAILED if any(isinstance(n, FleetctlError) for n in cut.values()) else EXIT_DONE


def _confirm_cut(ways: Sequence[WayHome], confirm: str | None) -> None:
    if ways:
        name = ways[0].cell if len(ways) == 1 else ways[0].fleet
        require_confirmation(name, confirm, f"ends every answer that the target still gives to clients of {_some([w.cell for w in ways])}")


def _rehearsed(app: App, results: Results) -> None:
    """Keep what was measured as rehearsals; the store may be down, and nobody waits for it."""
    from fleetctl.domain.home import Returned
    from fleetctl.usecases.release import rehearsed

    w = app.wiring
    try:
        rehearsed([r for r in results if isinstance(r, Returned)], w.store, w.store, w.clock, w.actor)
    except FleetctlError:
        return


def _is_failure(r: object) -> bool:
    from fleetctl.usecases.home_choice import Failure

    return isinstance(r, Failure)


def _row(r: object) -> dict[str, object]:
    from fleetctl.domain.home import Returned

    if isinstance(r, Returned):
        found = {"cell": r.cell, "ms_to_zero": round(r.ms_to_zero, 1), "was_bp": r.was_bp, "source_proven": r.source_proven}
        found |= {"unseen": r.unseen} if r.unseen else {}
        return {**found, "left_bp": r.left_bp, "ready": r.ready, "total": r.total}
    failure: Failure = r  # type: ignore[assignment]
    found = {"cell": failure.cell, "error": failure.error.code, "message": failure.error.message}
    return {**found, "ways": list(failure.error.details)} if failure.error.details else found


def _line(r: object) -> str:
    from fleetctl.domain.home import Returned

    if not isinstance(r, Returned):
        error: FleetctlError = r.error  # type: ignore[attr-defined]
        details = "".join(f"\n    {d}" for d in error.details)
        return f"cell/{r.cell} NOT HOME {error}{details}"  # type: ignore[attr-defined]
    if r.unseen and not r.left_bp:
        way = f"{r.was_bp / 100:g} % -> 0 %" if r.was_bp else "0 %"
        return f"cell/{r.cell} NOT PROVEN HOME: {way} is set, but {r.unseen}; the same command again looks again"
    if r.was_bp == 0:
        return f"cell/{r.cell} {r.reported or 'was home already'}"
    more = f" ({r.reported})" if r.reported else ""
    if r.left_bp:
        way = f"{r.was_bp / 100:g} % -> {r.left_bp / 100:g} %, {r.ready} of {r.total} replicas of the source answer"
        return f"cell/{r.cell} NOT ALL HOME: {way}{more}; the same command again goes on, --unproven goes all the way"
    extra = "" if r.source_proven else ", source unproven"
    return f"cell/{r.cell} home: {r.was_bp / 100:g} % -> 0 % in {r.ms_to_zero:.0f} ms{extra}{more}"


def _reconciled(found: Reconciled) -> None:
    if found.cells:
        click.echo(f"Store reconciled: {', '.join(found.cells)}", err=True)
    if found.why_not:
        click.echo(f"The store does not know yet ({found.why_not}). When it is back, run: fleetctl fallback --reconcile", err=True)
    for f in found.failed:
        click.echo(f"cell/{f.cell} NOT RECONCILED {f.error}\n    To note its return anew: fleetctl fallback {f.cell}", err=True)
