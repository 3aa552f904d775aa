"""Doctor, shell layer: which needs this fleet has, use case, view. Read-only: never mends by itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import output_option, pass_app
from fleetctl.errors import EXIT_DONE, EXIT_FAILED, FleetctlError

if TYPE_CHECKING:
    from fleetctl.adapters.needs import Found
    from fleetctl.domain.fleet import Connection, Fleet
    from fleetctl.domain.workload import Cell
    from fleetctl.usecases.doctor import Diagnosis, NeedCheck

CLOUDS = {"azure": "access/azure-role.json", "aws": "access/aws-policy.json"}
"""Stacks that need a cloud's credential, and the file with its exact rights."""
MOST_ASKED = 20
"""Cells asked one by one; a fleet of thousands is not read back by a doctor."""
LOOPBACK = ("http://127.", "http://localhost", "http://[::1]")


@click.command("doctor")
@click.option("--bundle", "file", metavar="FILE", default="", help="Pack an evidence bundle for a ticket: a new tar.gz (0600).")
@output_option()
@pass_app
def command(app: App, file: str, output: str) -> int:
    """Check every need of this workspace: ok, warn or missing, and the command that mends it.

    Ends with 1 where something is missing. Looks only: nothing is changed, no cloud is called. The bundle holds versions, settings, fleet,
    ways home, plan, approvals, events, rollouts, looks, rehearsals and runs of runbooks; secrets are taken out, and what customers wrote
    is never in it. Read it before you send it.
    """
    from fleetctl.usecases.doctor import diagnose
    from fleetctl.views.doctor import doctor_names, doctor_table

    diagnosis = diagnose(checks(app))
    app.show(output, "doctor", diagnosis.needs, doctor_table(diagnosis), doctor_names(diagnosis))
    if file:
        _pack(app, diagnosis, Path(file).absolute())
    return EXIT_DONE if diagnosis.is_healthy else EXIT_FAILED


def _pack(app: App, diagnosis: Diagnosis, file: Path) -> None:
    from fleetctl.cli.bundle import bundle

    made, size = bundle(app, diagnosis, _fleet(app)[0], file)
    for part in made.parts:
        if part.missing or part.cut:
            app.note(f"{part.file}: {part.missing or 'more rows than fit; the rest is left out'}")
    app.note(f"Evidence bundle: {app.shown(file)} ({size // 1024 + 1} KiB, readable by you alone). Look at it before you send it.")


def checks(app: App) -> Iterator[NeedCheck]:
    """Yield every check of this workspace: the machine's, then what the fleet's routers and evidence answer."""
    from fleetctl.adapters import needs

    fleet, problem = _fleet(app)
    yield _check("python", needs.python)
    yield _check("fleet file", lambda: _fleet_found(app, fleet, problem))
    made = fleet is not None and any(pool.provisioned_by != "existing" for pool in fleet.pools)
    yield _check("terraform", lambda: _terraform(needed=made))
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
    yield _check("signatures", lambda: _signatures(app, fleet))
    if fleet is not None:
        app.wiring.fleet = fleet  # as read: taking it from wiring would number it in the store, and doctor writes nothing
        yield _check("ways home", lambda: _ways_home(app))
        yield from _routers(app, fleet)
        yield from _owners(app, fleet)
        yield from _evidence(app, fleet)


def _terraform(*, needed: bool) -> Found:
    from fleetctl.adapters.needs import Found
    from fleetctl.adapters.terraform.tool import find_tool
    from fleetctl.errors import ToolMissing

    try:
        return Found("ok", find_tool().label)
    except ToolMissing:
        if needed:
            raise
        return Found("not configured", "every pool of this fleet exists already")


def _routers(app: App, fleet: Fleet) -> Iterator[NeedCheck]:
    for router in fleet.routers:
        cells = [cell for cell in fleet.cells if cell.router.name == router.name]
        yield _check(f"router {router.name}", lambda cells=cells: _router_found(app, cells))  # type: ignore[misc]


def _signatures(app: App, fleet: Fleet | None) -> Found:
    from fleetctl.adapters.needs import Found

    if fleet is None or not fleet.policy.require_signatures:
        return Found("not configured", "approvals are by names that are not proven (policy.require_signatures)")
    name = app.wiring.proof.signatures.me()
    return Found("ok", f"you sign approvals as {name}")


def _owners(app: App, fleet: Fleet) -> Iterator[NeedCheck]:
    """Yield who is asked about the pools that cells move from and to, and the minimums that are pinned now."""
    pools = dict.fromkeys(p.id for p in fleet.pools if p.provisioned_by != "lab")
    if pools:
        yield _check("other hands", lambda: _owners_found(fleet))
    if app.settings.store.exists():
        yield _check("pinned minimums", lambda: _pins_found(app))


def _owners_found(fleet: Fleet) -> Found:
    from fleetctl.adapters.needs import Found
    from fleetctl.wiring.hands import is_unnamed, words_of

    named = [f"{p.id} {' '.join(words)}" for p in fleet.pools if (words := words_of(fleet, p))]
    unnamed = [p.id for p in fleet.pools if is_unnamed(fleet, p)]
    if unnamed:
        shown = f"{', '.join(unnamed[:3])} ({len(unnamed)} in all)" if len(unnamed) > 3 else ", ".join(unnamed)
        text = f"nobody is named who sizes {shown}: no minimum can be held there"
        return Found("warn", "; ".join((text, *named[:3])), "name them, or no: docs/how-to/hold-the-source.md")
    return Found("ok", "; ".join(named[:5]) or "no pool has an owner beside us")


def _pins_found(app: App) -> Found:
    from fleetctl.adapters.needs import Found
    from fleetctl.domain.holds import Pin

    pins = [p for p in app.wiring.store.all(Pin) if p.is_open]
    if not pins:
        return Found("ok", "none")
    return Found("ok", "; ".join(f"{p.name}: {p.to} (was {p.was}) for {', '.join(p.cells)}" for p in pins[:5]))


_ROUTER_HINTS = {
    "haproxy": "load fleetctl.lua in this router: docs/how-to/bring-your-own-router.md",
    "envoy": "one writer at a time and a resident ticker: docs/how-to/envoy-router.md",
    "alb": "one writer at a time and a resident ticker: docs/how-to/alb-router.md",
    "queue": "a resident ticker: docs/how-to/split-batch-work.md",
    "sqs": "one writer at a time and a resident ticker: docs/how-to/split-batch-work.md",
    "httproute": "a resident ticker: docs/how-to/gateway-api-router.md",
}


def _router_found(app: App, cells: list[Cell]) -> Found:
    from fleetctl.adapters.needs import Found
    from fleetctl.domain.fleet import WORK_ROUTERS
    from fleetctl.ports.traffic import Refusing

    if not cells:
        return Found("not configured", "no cell of this fleet uses it")
    port = app.wiring.router_of(cells[0].id)
    can = port.capabilities()
    asked = cells[:MOST_ASKED]
    shown = [port.read(cell.id) for cell in asked]
    moving = sum(split.target_bp > 0 for split in shown)
    detail = (
        f"{len(shown)} of {len(cells)} cells read back, {moving} with traffic on the target; fence: {can.fence}; lease: {can.weight_lease}"
    )
    kind = app.fleet().router(cells[0].router.name).kind
    if kind not in WORK_ROUTERS:
        off = can.keyless_off
        detail += "; without a key: " + ("drawn by chance" if off is None else f"share off by at most {off} requests")
    refused = [f"{cell.id}: {why}" for cell in asked if isinstance(port, Refusing) and (why := port.refusal(cell.id))]
    if refused:
        return Found("warn", f"no weight would be raised of {'; '.join(refused[:3])}; {detail}"[:600], "mend it at the router")
    if can.fence != "target" or can.weight_lease == "none":
        return Found("warn", detail, _ROUTER_HINTS.get(kind, ""))
    return Found("ok", detail)


def _ways_home(app: App) -> Found:
    from fleetctl.adapters.needs import Found

    if not (app.settings.state / "key").exists():  # looking for them would make one
        return Found("not configured", "the first plan writes them")
    old = app.wiring.old_ways_home()
    if old:
        return Found("warn", f"of another fleet file than now, or damaged: {', '.join(old[:3])} ({len(old)} in all)", "fleetctl plan")
    return Found("ok", f"{len(app.wiring.ways_home.cells())} written, as the fleet file says")


def _evidence(app: App, fleet: Fleet) -> Iterator[NeedCheck]:
    for cell in fleet.cells[:MOST_ASKED]:
        yield _check(f"evidence {cell.id}", lambda cell=cell: _evidence_found(app, cell))  # type: ignore[misc]


def _evidence_found(app: App, cell: Cell) -> Found:
    from fleetctl.adapters.needs import Found

    series = app.wiring.evidence_of(cell.id).describe(cell.id)
    if cell.lane.kind == "stay":
        return Found("not configured", "the cell stays")
    absent = [f"{s.arm} {s.name}" for s in series if not s.present]
    there = [f"{s.arm} {s.name}" for s in series if s.present]
    wrong = [s.detail for s in series if s.name.rpartition(".")[2] == "names"]
    if wrong:
        return Found("missing", "; ".join(wrong)[:400], "name the engine and its version: docs/how-to/choose-evidence.md")
    unread = [f"{s.arm} {s.detail}" for s in series if s.name.rpartition(".")[2] == "log" and not s.present]
    if unread:
        return Found("warn", f"engine logs that cannot be read: {'; '.join(unread)}"[:400], "docs/how-to/choose-evidence.md")
    if not there:
        return Found("warn", "no request of this cell was seen yet", "send it traffic, then: fleetctl doctor")
    if cell.evidence != ("log",):
        return _guardrails_told(app, cell, {(s.arm, s.name.rpartition(".")[2]) for s in series if s.present})
    if any(s.arm == "baseline" and not s.present for s in series):
        return Found("warn", f"absent: {', '.join(absent)}", "compare the log with docs/how-to/bring-your-own-router.md")
    return Found("ok", f"{', '.join(there)}" + (f"; not yet: {', '.join(absent)}" if absent else ""))


TOLD_BY = {
    "errors": ("attempts", "requests_total"),
    "latency": ("latency", "e2e_seconds"),
    "ttft": ("ttft", "ttft_seconds"),
    "token_time": ("token_time", "time_per_output_token_seconds"),
    "nll": ("nll",),
}
"""Series by which a source tells a guardrail."""


def _guardrails_told(app: App, cell: Cell, told: set[tuple[str, str]]) -> Found:
    """Hold what the sources show per arm against what the cell's workload is judged on."""
    from fleetctl.adapters.needs import Found

    judged = [g for g in app.wiring.fleet.workload(cell.workload).guardrails if g in TOLD_BY]
    absent = {arm: [g for g in judged if not any((arm, name) in told for name in TOLD_BY[g])] for arm in ("baseline", "canary")}
    sides = ", ".join(f"{arm} {' '.join(g for g in judged if g not in absent[arm]) or 'nothing'}" for arm in absent)
    if absent["baseline"]:
        wanting = f"not told of the baseline: {', '.join(absent['baseline'])}; told: {sides}"
        return Found("warn", wanting, "docs/how-to/choose-evidence.md")
    return Found("ok", f"{sides} (from {', '.join(cell.evidence)})")


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
