"""`fleetctl approve`, shell layer: a person's yes to exactly one plan. Never decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import dry_run_option, pass_app

if TYPE_CHECKING:
    from fleetctl.domain.release import Release


@click.command("approve")
@click.argument("plan_id", metavar="PLAN")
@click.option("--note", default="", help="Kept with the approval in the audit log.")
@dry_run_option
@pass_app
def command(app: App, plan_id: str, note: str, dry_run: bool) -> None:
    """Say yes to exactly one plan, or to one release, by its id."""
    from fleetctl.domain.canonical import digest
    from fleetctl.usecases.approve import approvable, approve

    w = app.wiring
    if plan_id.startswith("r"):
        from fleetctl.usecases.release import approve_release, open_release

        if dry_run:
            found = open_release(plan_id, w.store)
            app.out(f"Would approve release {found.id} as {w.actor.name}{_said_gone(found)}\nNothing was changed.")
            return
        release = approve_release(plan_id, w.store, w.store, w.clock, w.actor, note)
        app.out(
            f"release/{release.id} of pool {release.pool} approved by {w.actor.name} (sha256 {release.digest[:16]}...){_said_gone(release)}"
        )
        app.note(f"Next: fleetctl release {release.pool}{' --handoff' if release.kind == 'handoff' else ''}")
        return
    if dry_run:
        approvable(plan_id, w.fleet, w.store)
        app.out(f"Would approve plan {plan_id} as {w.actor.name}\nNothing was changed.")
        return
    plan, approval, more = approve(plan_id, w.fleet, w.store, w.store, w.clock, w.actor, note)
    app.out(f"plan/{plan.id} approved by {approval.actor.name} (sha256 {digest(plan)[:16]}...)")
    if w.fleet.policy.approvals == 0:
        app.note("Policy asks for no approval and for no second person; this one is on record.")
    elif more:
        app.note(f"{more} more must approve it: fleetctl approve {plan.id}")
    if not more:
        app.note("Next: fleetctl provision")


def _said_gone(r: Release) -> str:
    """Return what the approver must know: of which silent routers it was said that they are gone."""
    return f"\nSaid to be gone for good by {r.asked_by.name}: {', '.join(r.gone)}" if r.gone else ""
