"""`fleetctl approve`, shell layer: a person's yes to exactly one plan. Never decides."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import dry_run_option, pass_app

if TYPE_CHECKING:
    from fleetctl.domain.release import Release


@click.command("approve")
@click.argument("plan_id", metavar="PLAN")
@click.option("--note", default="", help="Kept with the approval in the audit log.")
@click.option("--for", "holds_for", default="14d", show_default=True, help="How long a signed approval may be begun upon, 1h to 90d.")
@dry_run_option
@pass_app
def command(app: App, plan_id: str, note: str, holds_for: str, dry_run: bool) -> None:
    """Say yes to exactly one plan, one release, or one wish to lift a cap, by its id.

    Where the fleet file says require_signatures, the yes is signed with your SSH key, whose name the allowed signers beside the fleet file
    give; it is never the author's, and it ends. Going home never needs one.
    """
    from fleetctl.domain.canonical import digest
    from fleetctl.usecases.approve import approvable, approve

    w = app.wiring
    span = _span(holds_for)
    name = w.proof.signatures.me() if w.fleet.policy.require_signatures else w.actor.name
    if plan_id.startswith("l"):
        _sign_lift(app, plan_id, note, name, dry_run=dry_run)
        return
    if plan_id.startswith("r"):
        from fleetctl.usecases.release import approve_release, open_release

        if dry_run:
            found = open_release(plan_id, w.store)
            app.out(f"Would approve release {found.id} as {name}{_said_gone(found)}\nNothing was changed.")
            return
        release = approve_release(plan_id, w.store, w.store, w.clock, w.actor, note, w.fleet, w.proof)
        said = f"release/{release.id} of pool {release.pool} approved by {name}{_how(app)} (sha256 {release.digest[:16]}...)"
        app.out(f"{said}{_said_gone(release)}")
        _say_names(app)
        app.note(f"Next: fleetctl release {release.pool}{' --handoff' if release.kind == 'handoff' else ''}")
        return
    if dry_run:
        approvable(plan_id, w.fleet, w.store)
        app.out(f"Would approve plan {plan_id} as {name}\nNothing was changed.")
        return
    plan, approval, more = approve(plan_id, w.fleet, w.store, w.store, w.clock, w.actor, note, w.proof, span)
    app.out(f"plan/{plan.id} approved by {approval.actor.name}{_how(app)} (sha256 {digest(plan)[:16]}...)")
    _say_names(app)
    if approval.until is not None:
        app.note(f"It may be begun upon until {approval.until:%Y-%m-%d %H:%M} UTC.")
    if w.fleet.policy.approvals == 0 and not approval.signature:
        app.note("Policy asks for no approval and for no second person; this one is on record.")
    elif more:
        app.note(f"{more} more must approve it: fleetctl approve {plan.id}")
    if not more:
        app.note("Next: fleetctl provision")


def _sign_lift(app: App, id_: str, note: str, name: str, *, dry_run: bool) -> None:
    """Sign a wish to lift a cap; with the last signature wait until the router shows it."""
    from fleetctl.usecases.lift import became, open_lift, sign_lift
    from fleetctl.usecases.migrate import Driver, follow_order

    w = app.wiring
    ports = w.lift_ports()
    if dry_run:
        found = open_lift(id_, ports)
        app.out(f"Would sign lift {found.id} of {found.cell} as {name}\nNothing was changed.")
        return
    wish, more = sign_lift(id_, w.fleet, ports, note)
    app.out(f"lift/{wish.id} of cell/{wish.cell} signed by {name}{_how(app)} (sha256 {wish.digest[:16]}...)")
    if more:
        app.note(f"{more} more must sign it: fleetctl approve {wish.id}")
        return
    driver = Driver(ports=w.tick_ports(), settings=w.tick_settings(), on_tick=lambda _: None)
    try:
        done = follow_order(driver, (wish.cell,), lambda r: r is None or not r.orders)
    finally:
        driver.stop()
    for r in done:
        if r is not None:
            app.out(f"cell/{r.cell} {r.weight_bp / 100:g} % on the target ({became(r)})")


def _how(app: App) -> str:
    """Return how the name is known."""
    return ", by SSH key" if app.wiring.fleet.policy.require_signatures else ""


def _say_names(app: App) -> None:
    """Say that a name is only what the terminal said, where the policy asks for people and for no signatures."""
    from fleetctl.usecases.proof import NAMES_NOT_PROVEN

    policy = app.wiring.fleet.policy
    if policy.approvals and not policy.require_signatures:
        app.note(NAMES_NOT_PROVEN)


def _span(text: str) -> timedelta:
    from fleetctl.formats.quantities import parse_duration

    try:
        span = parse_duration(text)
    except ValueError as e:
        raise click.BadParameter(str(e), param_hint="--for") from e
    if not timedelta(hours=1) <= span <= timedelta(days=90):
        raise click.BadParameter("must be 1h to 90d", param_hint="--for")
    return span


def _said_gone(r: Release) -> str:
    """Return what the approver must know: of which silent routers it was said that they are gone."""
    return f"\nSaid to be gone for good by {r.asked_by.name}: {', '.join(r.gone)}" if r.gone else ""
