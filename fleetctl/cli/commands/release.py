"""`fleetctl release`, shell layer: give a pool's machines back. Never decides."""

from __future__ import annotations

import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import confirm_option, dry_run_option, output_option, pass_app, require_confirmation
from fleetctl.errors import EXIT_DONE, EXIT_PENDING, UsageError

if TYPE_CHECKING:
    from fleetctl.domain.release import ReleaseView
    from fleetctl.usecases.release import ReleasePorts


@click.command("release")
@click.argument("pool", metavar="POOL")
@click.option("--handoff", is_flag=True, help="Write the change for the owner of a pool that others built, and look that it is gone.")
@click.option("--out", metavar="FILE", default="", help="Where --handoff writes; a new run folder where it is left out.")
@click.option(
    "--router-gone",
    "gone",
    metavar="ROUTER",
    multiple=True,
    help="I know that this router, which does not answer, is gone for good or never was; kept on record. May be repeated.",
)
@confirm_option
@dry_run_option
@output_option("table", "json")
@pass_app
def command(app: App, pool: str, handoff: bool, out: str, gone: tuple[str, ...], confirm: str | None, dry_run: bool, output: str) -> None:
    """Give a pool back: destroy one that fleetctl made, or hand one that others built to its owner.

    A pool that served is given back only when every cell has left it and its soak is over, going home was rehearsed in the last 30 days,
    and as many people approved as the policy asks for, not counting whoever asked. fleetctl never destroys what it did not make. A router
    that does not answer may serve from the pool, so it is kept until the router answers or you say that it is gone.

    \b
    Examples:
      fleetctl release mi300x-eastus2 --dry-run
      fleetctl release h100-eastus2 --handoff --out change.md
    """
    from fleetctl.domain.ids import PoolId
    from fleetctl.usecases.release import view
    from fleetctl.views.release import release_lines

    w = app.wiring
    if pool not in {p.id for p in w.fleet.pools}:
        raise UsageError("usage.pool", f"there is no pool {pool!r} in the fleet.", hint="Run: fleetctl inventory")
    known = {*(r.name for r in w.fleet.routers), *(c.id for c in w.fleet.cells), *w.store.cells()}
    if unknown := [g for g in gone if g not in known]:
        raise UsageError("usage.router", f"there is no router {unknown[0]!r} in the fleet.", hint="Run: fleetctl inventory")
    ports = w.release_ports(w.run_folder("release"))
    found = view(PoolId(pool), w.fleet, ports, handoff=handoff, gone=gone)
    price = w.pool_price(PoolId(pool), more=len(found.standing))
    if output == "table":
        app.out("\n".join(release_lines(found, w.fleet, price, width=app.width)))
    if dry_run:
        if output == "json":
            app.line("release", found)
        app.note("Nothing was changed.")
        sys.exit(EXIT_DONE if found.is_open else EXIT_PENDING)
    if handoff:
        sys.exit(_hand_over(app, found, ports, price, out, output))
    _destroy(app, found, ports, confirm, output)


def _destroy(app: App, found: ReleaseView, ports: ReleasePorts, confirm: str | None, output: str) -> None:
    from time import monotonic

    from fleetctl.usecases.release import ask, destroy
    from fleetctl.views.columns import counted, wrapped
    from fleetctl.views.progress import ProgressView

    ask(found, app.wiring.fleet, ports)
    pool = found.release.pool
    require_confirmation(pool, confirm, f"destroys all of pool {pool}")
    with ProgressView(live=app.live and output != "json", title="release", now=monotonic) as on:
        gone = destroy(found, app.wiring.fleet, ports, on)
    app.wiring.note_released(pool)
    if output == "json":
        app.line("release", {"pool": pool, "release": found.release.id, "destroyed": found.release.hosts, "leftovers": gone})
    else:
        more = f", {counted(len(gone), 'leftover')} among it" if gone else ""
        hosts = counted(len(found.release.hosts) + len(found.standing), "host")
        told = wrapped(f"pool/{pool} is destroyed: {hosts}{more}; nothing with its tag is left", app.width)
        app.out("\n".join(told))
    app.note(f"Next: set count 0 of {pool} in the fleet file, or take it out")


def _hand_over(app: App, found: ReleaseView, ports: ReleasePorts, price: Decimal | None, out: str, output: str) -> int:
    from fleetctl.errors import ProvisionFailed
    from fleetctl.usecases.release import ask, hand_over, verify
    from fleetctl.views.release import handoff_text, verified_lines

    w = app.wiring
    ask(found, w.fleet, ports)
    file: Path | None = None
    if out or found.release.step == "asked":
        file = Path(out).absolute() if out else ports.run / f"handoff-{found.release.pool}.md"
        try:
            file.write_text(handoff_text(found, w.fleet, price))
        except OSError as e:
            text = f"{app.shown(file)} cannot be written: {(e.strerror or 'refused').lower()}."
            raise ProvisionFailed("release.file", text, hint="Name another file with --out") from e
        app.note(f"The change for its owner: {app.shown(file)}")
    for said in hand_over(found, w.fleet, ports):
        app.note(said.text)
    w.note_released(found.release.pool)
    checked = verify(found.release, w.fleet, ports)
    if output == "json":
        told = {
            "pool": found.release.pool,
            "release": found.release.id,
            "file": str(file or ""),
            "still": checked.still,
            "blind": checked.blind,
        }
        app.line("release", {**told, "is_gone": checked.is_gone})
    else:
        app.out("\n".join(verified_lines(checked, found.release.pool, width=app.width)))
    if not checked.is_gone:
        app.note(f"When it is done, run again: fleetctl release {found.release.pool} --handoff")
    return EXIT_DONE if checked.is_gone else EXIT_PENDING
