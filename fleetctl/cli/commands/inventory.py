"""Inventory, shell layer: options, use case, view. Read-only: never changes a fleet."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import CELL, Group, output_option, pass_app

if TYPE_CHECKING:
    from fleetctl.domain.fleet import Fleet
    from fleetctl.domain.people import Facts, Gap
    from fleetctl.domain.scan import PartScan, Scan
    from fleetctl.usecases.inventory import Inventory
    from fleetctl.usecases.inventory_found import Found


WHAT = (
    "cells",
    "workloads",
    "pools",
    "machines",
    "engines",
    "groups",
    "deployments",
    "services",
    "quotas",
    "sizes",
    "reservations",
    "nodes",
)
"""What `list --what` knows; the views have a table of each."""

what_option = click.option(
    "--what", type=click.Choice(WHAT), default="cells", metavar="KIND", help=f"What to list: {', '.join(WHAT)}.  [default: cells]"
)


@click.group("inventory", cls=Group, invoke_without_command=True)
@output_option()
@click.pass_context
@pass_app
def command(app: App, ctx: click.Context, output: str) -> None:
    """What runs where: traffic, cost, and where each cell would go. Without a subcommand: list.

    \b
    fleetctl inventory                        cells, the most expensive first
    fleetctl inventory scan                   ask every source, keep its word
    fleetctl inventory list --what workloads  model, traffic, cost and class
    fleetctl inventory list --what pools      machines by size and region
    fleetctl inventory show NAME              everything about one thing
    fleetctl inventory diff                   what changed since the scan before
    fleetctl inventory export -o ansible      for ansible-playbook -i
    """
    if ctx.invoked_subcommand is None:
        _list(app, output, "cells")


@command.command("list")
@what_option
@output_option()
@pass_app
def list_command(app: App, what: str, output: str) -> None:
    """List cells, the most expensive first; or what --what names, as the last scan found it."""
    _list(app, output, what)


@command.command("show")
@click.argument("name", type=CELL)
@output_option("table", "json", "yaml")
@pass_app
def show_command(app: App, name: str, output: str) -> None:
    """Show everything about one cell, machine or engine, with the source of each fact."""
    from fleetctl.errors import UsageError
    from fleetctl.views.inventory import cell_text
    from fleetctl.views.inventory_found import thing_text
    from fleetctl.views.output import Table, folded, render

    inventory = _inventory(app)
    row = next((r for r in inventory.rows if r.cell == name), None)
    if row is not None:
        text = "\n".join(folded(cell_text(row).splitlines(), app.width))
        app.out(text if output == "table" else render(output, kind="cell", value=row, table=Table(columns=(), rows=())))
        return
    things = [t for t in inventory.found.things if t.kind != "cell" and name in (t.id, *t.also, *t.text("name").split())]
    if not things:
        from fleetctl.formats.fleet_checks import did_you_mean

        near = did_you_mean(name, [*(r.cell for r in inventory.rows), *(t.id for t in inventory.found.things)][:5000])
        text = f"there is no cell {name!r} in fleet {inventory.fleet}{near}, and no scan found anything of that name."
        raise UsageError("usage.no_cell", text, hint="Run: fleetctl inventory")
    if output == "table":
        app.out("\n\n".join("\n".join(folded(thing_text(t).splitlines(), app.width)) for t in things))
        return
    app.out(render(output, kind="things", value=things, table=Table(columns=(), rows=())))


@command.command("scan")
@click.argument("scope", default="")
@click.option("--from", "sources", multiple=True, metavar="KIND[:WHERE]", help="Ask this source instead of the fleet file's; repeatable.")
@click.option("--fresh", default="0s", metavar="TIME", help="Do not ask again what was seen within this time, such as 15m.")
@click.option("--only-gaps", is_flag=True, help="Ask again only what could not be told last time.")
@output_option("table", "json", "yaml")
@pass_app
def scan_command(app: App, scope: str, sources: tuple[str, ...], fresh: str, only_gaps: bool, output: str) -> None:
    """Ask every source, and keep what each said; show facts of names that begin with SCOPE.

    \b
    fleetctl inventory scan --from aws
    fleetctl inventory scan --from azure:SUBSCRIPTION --from people.csv
    fleetctl inventory scan --from prometheus:http://127.0.0.1:9090
    """
    from fleetctl.errors import CredentialsMissing, InventoryFailed
    from fleetctl.usecases.scan import lacking_credentials, silent
    from fleetctl.views.columns import counted
    from fleetctl.views.inventory_found import scan_table

    scan = _scan(app, sources, fresh, only_gaps)
    facts, gaps = _facts(app, scan, scope)
    _, found = found_of(app, scan)
    told = {"scan": scan.number, "at": scan.at, "facts": facts, "gaps": (*gaps, *found.doubts)}
    app.show(output, "scan", told if output != "table" else None, scan_table(_with_file(app, scan, scope), found.doubts))
    lacking = lacking_credentials(scan)
    if lacking:
        first = lacking[0]
        more = f" ({counted(len(lacking) - 1, 'more gap')} of that kind)" if len(lacking) > 1 else ""
        raise CredentialsMissing(first.code, f"{first.reason}{more}.", hint=first.mend)
    if silent(scan):
        text = "no source that was asked told anything; the gaps above say why."
        raise InventoryFailed("inventory.nothing_told", text, hint="Mend them, then run: fleetctl inventory scan --only-gaps")


@command.command("diff")
@click.option("--back", type=click.IntRange(1, 9), default=1, help="Compare with that many scans before the newest.  [default: 1]")
@click.option("--detailed-exitcode", is_flag=True, help="End with 3 where something changed.")
@output_option("table", "json", "yaml", "name")
@click.pass_context
@pass_app
def diff_command(app: App, ctx: click.Context, back: int, detailed_exitcode: bool, output: str) -> None:
    """Show what came, went or changed between two scans."""
    from fleetctl.errors import EXIT_CHANGES, UsageError
    from fleetctl.usecases.inventory_diff import diff_scans
    from fleetctl.views.inventory_found import diff_table

    after, before = app.wiring.scans.newest(), app.wiring.scans.newest(back)
    if after is None or before is None:
        raise UsageError("usage.no_scan", "there are not enough scans to compare.", hint="Run: fleetctl inventory scan")
    diff = diff_scans(before, after)
    app.show(output, "inventory_diff", diff, diff_table(diff), tuple(f"{c.kind}/{c.id}" for c in diff.changes))
    if diff.changes and detailed_exitcode:
        ctx.exit(EXIT_CHANGES)


@command.command("schema")
@pass_app
def schema_command(app: App) -> None:
    """Print the JSON Schema of the fleet file."""
    from fleetctl.formats.example import schema_text

    app.out(schema_text().rstrip("\n"))


@command.command("export")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), default=None, help="Write to this new file instead of stdout.")
@what_option
@output_option("json", "yaml", "csv", "ansible", "ansible-list", "ansible-script")
@pass_app
def export_command(app: App, out: Path | None, what: str, output: str) -> None:
    """Write the whole fleet with the source of each fact, for other programs.

    \b
    -o csv             cells, or what --what says; safe to open in a spreadsheet
    -o ansible         hosts as YAML, every string marked unsafe
    -o ansible-script  a program for ansible-playbook -i that asks fleetctl
    """
    text = _export(app, what, output)
    if out is None or str(out) == "-":
        app.out(text.rstrip("\n"))
        return
    _write(out, text if text.endswith("\n") else text + "\n", executable=output == "ansible-script")
    app.note(f"{out} written.")


def _export(app: App, what: str, output: str) -> str:
    from fleetctl.errors import UsageError
    from fleetctl.usecases.inventory import WorkloadRow, by_workload
    from fleetctl.usecases.inventory_found import FoundPool
    from fleetctl.usecases.inventory_hosts import hosts_of
    from fleetctl.views.inventory_csv import cells_csv, rows_csv, things_csv
    from fleetctl.views.inventory_found import WHAT as KINDS
    from fleetctl.views.output import Table, render

    if output == "ansible-script":
        return _script(app)
    if output == "csv":
        inventory = _inventory(app)
        if what in KINDS:
            return things_csv(inventory.found.of_kind(KINDS[what][0]))
        if what == "pools":
            return rows_csv(inventory.found.pools, FoundPool)
        return rows_csv(by_workload(inventory), WorkloadRow) if what == "workloads" else cells_csv(inventory)
    if what != "cells":
        raise UsageError("usage.what", f"--what goes with -o csv; -o {output} holds everything.", hint=f"Add: --what {what} -o csv")
    scan = app.wiring.scans.newest()
    fleet, found = found_of(app, scan)
    if output in ("ansible", "ansible-list"):
        hosts, without = hosts_of(fleet, found)
        if without:
            app.note(f"{without} machines have no address or name that Ansible could reach and are left out.")
        return app.wiring.ansible_inventory(hosts, fleet, as_list=output == "ansible-list")
    return render(output, kind="fleet", value=_with_facts(app, fleet, scan), table=Table(columns=(), rows=()))


def _script(app: App) -> str:
    import shlex
    import sys

    argv = [sys.executable, "-m", "fleetctl.cli", "-C", str(app.workspace), "inventory", "export", "-o", "ansible-list"]
    return (
        "#!/bin/sh\n# Inventory for ansible-playbook -i: asks fleetctl; made by fleetctl inventory export -o ansible-script.\n"
        f'case "${{1-}}" in --host) echo "{{}}" ;; *) exec {shlex.join(argv)} ;; esac\n'
    )


def _write(out: Path, text: str, *, executable: bool) -> None:
    import os

    from fleetctl.errors import UsageError

    try:
        fd = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o777 if executable else 0o666)
        with os.fdopen(fd, "w", encoding="utf-8", newline="") as stream:
            stream.write(text)
    except FileExistsError:
        raise UsageError("usage.file_exists", f"{out} is there already.", hint="Add: --out NEWFILE") from None
    except OSError as e:
        raise UsageError("usage.file", f"{out} cannot be written: {e.strerror}.", hint="Add: --out FILE, where you may write") from None


def _list(app: App, output: str, what: str) -> None:
    from fleetctl.usecases.inventory import by_workload
    from fleetctl.views.inventory import inventory_names, inventory_table, workloads_table
    from fleetctl.views.inventory_found import WHAT as KINDS
    from fleetctl.views.inventory_found import pools_table, things_table

    inventory = _inventory(app)
    if what == "pools":
        names = tuple(f"{p.region}/{p.sku}" for p in inventory.found.pools)
        app.show(output, "pools", inventory.found.pools, pools_table(inventory.found), names)
    elif what == "workloads":
        rows = by_workload(inventory)
        app.show(output, "workloads", rows, workloads_table(rows, inventory), tuple(f"workload/{r.workload}" for r in rows))
    elif what in KINDS:
        things = inventory.found.of_kind(KINDS[what][0])
        app.show(output, what, things, things_table(inventory.found, what), tuple(f"{t.kind}/{t.id}" for t in things))
    else:
        app.show(output, "inventory", inventory, inventory_table(inventory), inventory_names(inventory))


def _inventory(app: App) -> Inventory:
    from dataclasses import replace

    from fleetctl.usecases.inventory import list_inventory

    scan = app.wiring.scans.newest()
    fleet, found = found_of(app, scan)
    facts, gaps = _facts(app, None, "")
    return list_inventory(
        replace(fleet, provenance=facts), app.wiring.price(), (*gaps, *(scan.gaps() if scan else ()), *found.doubts), found
    )


def found_of(app: App, scan: Scan | None) -> tuple[Fleet, Found]:
    """Return the fleet of the file, and what the last look found, merged with what the file says."""
    from fleetctl.domain.merge import merge
    from fleetctl.usecases.inventory_found import match_found
    from fleetctl.usecases.inventory_orphans import orphans

    fleet = app.fleet()
    facts, _ = _facts(app, scan, "")
    things, doubts = merge(facts)
    return fleet, match_found(fleet, things, app.wiring.catalog, scan.at if scan else None, (*orphans(fleet, facts), *doubts))


def _facts(app: App, scan: Scan | None, scope: str) -> tuple[tuple[Facts, ...], tuple[Gap, ...]]:
    """Return what the fleet file and the last look say of names that begin with `scope`."""
    from fleetctl.domain.merge import subject_of
    from fleetctl.domain.people import Facts

    said = list(_file(app, scope))
    facts = [f for f in said if isinstance(f, Facts)]
    facts += [f for f in app.wiring.node_facts() if subject_of(f)[1].startswith(scope)]
    gaps = [g for g in said if not isinstance(g, Facts)]
    if scan is not None:
        facts += [f for f in scan.facts() if subject_of(f)[1].startswith(scope)]
        gaps += scan.gaps()
    return tuple(facts), tuple(gaps)


def _file(app: App, scope: str) -> Iterator[Facts | Gap]:
    from fleetctl.adapters.fleet_file import FileDiscovery
    from fleetctl.formats.settings import find_fleet_file

    path = find_fleet_file(app.settings)
    return FileDiscovery(path, app.shown(path), lambda: datetime.now(UTC)).scan(scope)


def _with_file(app: App, scan: Scan, scope: str) -> Scan:
    from dataclasses import replace

    from fleetctl.domain.scan import PartScan

    facts, gaps = _facts(app, None, scope)
    part = PartScan(source="file", part="fleet file", at=scan.at, seconds=0.0, facts=facts, gaps=gaps)
    return replace(scan, parts=(part, *scan.parts))


def _with_facts(app: App, fleet: Fleet, scan: Scan | None) -> Fleet:
    from dataclasses import replace

    return replace(fleet, provenance=_facts(app, scan, "")[0])


def _scan(app: App, texts: tuple[str, ...], fresh: str, only_gaps: bool) -> Scan:
    """Ask the sources and keep the look; parts of sources that are not asked this time stay as they were seen."""
    from dataclasses import replace

    from fleetctl.domain.scan import Scan
    from fleetctl.errors import UsageError
    from fleetctl.formats.quantities import parse_duration
    from fleetctl.formats.sources import source_of_text
    from fleetctl.usecases.scan import ScanRequest, scan_sources

    try:
        request = ScanRequest(fresh=parse_duration(fresh), only_gaps=only_gaps)
    except ValueError as e:
        raise UsageError("usage.time", f"--fresh: {e}.", hint="Add: --fresh 15m") from None
    fleet, wiring = app.fleet(), app.wiring
    endpoints = tuple(e for c in fleet.cells for e in (*c.router.baseline_endpoints, *c.router.canary_endpoints))
    asked = [source_of_text(text, Path.cwd()) for text in texts] or list(fleet.sources)
    sources = [wiring.discovery(source, endpoints) for source in asked]
    last = wiring.scans.newest()
    scan = scan_sources(sources, last, wiring.clock.now, request, on=lambda p: _progress(app, p))
    if texts and last is not None:
        names = {s.name for s in sources}
        lasting = {wiring.discovery(source, endpoints).name for source in fleet.sources}
        others = tuple(replace(p, reused=True) for p in last.parts if p.source not in names and (p.facts or p.source in lasting))
        scan = Scan(number=0, at=scan.at, parts=tuple(sorted((*scan.parts, *others), key=lambda p: (p.source, p.part))))
    return wiring.scans.save(scan) if sources else scan


def _progress(app: App, part: PartScan) -> None:
    if app.live and not part.reused:
        from fleetctl.views.output import clean

        app.note(clean(f"{part.source} {part.part}: {len(part.facts)} facts, {len(part.gaps)} gaps"))
