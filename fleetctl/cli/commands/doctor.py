"""Doctor, shell layer: which needs this fleet has, use case, view. Read-only: never mends by itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import output_option, pass_app
from fleetctl.errors import EXIT_DONE, EXIT_FAILED, FleetctlError

if TYPE_CHECKING:
    from fleetctl.adapters.needs import Found
    from fleetctl.domain.fleet import Connection, Fleet
    from fleetctl.usecases.doctor import NeedCheck

CLOUDS = {"azure": "access/azure-role.json", "aws": "access/aws-policy.json"}
"""Stacks that need a cloud's credential, and the file with its exact rights."""
LOOPBACK = ("http://127.", "http://localhost", "http://[::1]")


@click.command("doctor")
@output_option()
@pass_app
def command(app: App, output: str) -> int:
    """Check every need of this workspace: ok, warn or missing, and the command that mends it.

    Ends with 1 where something is missing. Looks only: nothing is changed, no cloud is called.
    """
    from fleetctl.usecases.doctor import diagnose
    from fleetctl.views.doctor import doctor_names, doctor_table

    diagnosis = diagnose(checks(app))
    app.show(output, "doctor", diagnosis.needs, doctor_table(diagnosis), doctor_names(diagnosis))
    return EXIT_DONE if diagnosis.is_healthy else EXIT_FAILED


def checks(app: App) -> Iterator[NeedCheck]:
    """Yield every check of this workspace: those of the machine here, those of adapters from wiring.doctor_checks(app, fleet)."""
    from fleetctl import wiring
    from fleetctl.adapters import needs

    fleet, problem = _fleet(app)
    yield _check("python", needs.python)
    yield _check("fleet file", lambda: _fleet_found(app, fleet, problem))
    made = fleet is not None and any(pool.provisioned_by != "existing" for pool in fleet.pools)
    yield _check("terraform", lambda: needs.terraform(needed=made))
    yield _check("ansible", lambda: needs.ansible(needed=made or (fleet is not None and bool(fleet.hosts))))
    yield from _credentials(app, fleet)
    yield _check("state folder", lambda: needs.state_folder(app.settings.state))
    yield _check("key", lambda: needs.key(app.settings.state / "key"))
    yield _check("store", lambda: needs.store(app.settings.store))
    routers: tuple[Connection, ...] = fleet.routers if fleet is not None else ()
    for router in routers:
        for what, ref in router.secrets.items():
            yield _check(f"secret {router.name}.{what}", lambda ref=ref: needs.secret(ref.kind, ref.name, os.environ))  # type: ignore[misc]
    one_machine = bool(routers) and all(r.settings.get("url", "").startswith(LOOPBACK) for r in routers)
    yield _check("clock", lambda: needs.clock(one_machine=one_machine))
    more = getattr(wiring, "doctor_checks", None)
    if more is not None and fleet is not None:
        yield from more(app, fleet)


def _fleet(app: App) -> tuple[Fleet | None, FleetctlError | None]:
    try:
        return app.fleet(), None
    except FleetctlError as e:
        return None, e


def _fleet_found(app: App, fleet: Fleet | None, problem: FleetctlError | None) -> Found:
    from fleetctl.adapters.needs import Found

    if fleet is None or problem is not None:
        raise problem or RuntimeError("no fleet")
    return Found("ok", f"{fleet.name}: {len(fleet.pools)} pools, {len(fleet.cells)} cells")


def _credentials(app: App, fleet: Fleet | None) -> Iterator[NeedCheck]:
    from fleetctl.adapters import needs
    from fleetctl.adapters.needs import Found

    used = {pool.provisioned_by for pool in fleet.pools} if fleet is not None else set()
    looks = {"azure": needs.azure_credential, "aws": needs.aws_credential}
    for cloud, look in looks.items():
        file = f"inventory/{fleet.name if fleet is not None else 'example'}/{CLOUDS[cloud]}"
        if cloud in used:
            yield _check(f"{cloud} credential", lambda look=look, file=file: look(os.environ, file))  # type: ignore[misc]
        else:
            yield _check(f"{cloud} credential", lambda: Found("not configured", "this fleet makes nothing there"))


def _check(name: str, look: Callable[[], Found]) -> NeedCheck:
    from fleetctl.usecases.doctor import Need, NeedCheck

    def need() -> Need:
        found = look()
        return Need(name=name, state=found.state, detail=found.detail, mend=found.mend)

    return NeedCheck(name=name, look=need)
