"""`fleetctl guard`, shell layer: takes home a weight that nobody renews, beside a router that cannot. Never raises one."""

from __future__ import annotations

import signal
import sys
import time

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import output_option, pass_app
from fleetctl.domain.ids import CellId
from fleetctl.errors import EXIT_DONE, EXIT_FAILED


@click.command("guard")
@click.option("--once", is_flag=True, help="Look once and end: 1 where a weight could not be taken home whole.")
@click.option("--every", "every_s", type=click.FloatRange(0.2, 60.0), default=5.0, show_default=True, help="Seconds between looks.")
@click.option("--print-unit", is_flag=True, help="Print a systemd unit that runs this all the time; changes nothing.")
@output_option("table", "json")
@pass_app
def command(app: App, once: bool, every_s: float, print_unit: bool, output: str) -> None:
    """Watch the leases of weights on routers that keep none themselves (Envoy, ALB, Gateway API, an HAProxy without our Lua).

    A lease that has lapsed means that nobody judges that cell any more. Its weight goes to 0 if a replica of its source answers a real
    completion, as far as those that do can take it; the rest is held, and the fleet file's channels are told once. What the guard
    inside an HAProxy with our Lua took home or holds is told too; nothing is written there. It needs the ways home and the routers; no
    store, plan or approval.

    \b
    Examples:
      fleetctl guard                   until it is stopped
      fleetctl guard --print-unit > fleetctl-guard.service
    """
    if print_unit:
        app.out(app.wiring.guard_unit(every_s).rstrip("\n"))
        return
    from fleetctl.usecases.guard import Shown, guard, notices

    stopping: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda n, _: stopping.append(n))
    said: dict[str, str] = {}
    told: dict[CellId, str] = {}
    shown: Shown = {}
    notifier = app.wiring.guard_notifier()
    if not once:
        app.note("guarding")
    while True:
        ports = app.wiring.home_ports()
        looks = guard(ports, shown)
        for look in looks:
            if look.text and (said.get(look.cell) != look.kind or look.kind == "part"):
                if output == "json":
                    app.line("guard.look", look)
                else:
                    app.out(f"cell/{look.cell} {look.text}")
            said[look.cell] = look.kind
        for event in notices(looks, told, ports.clock.now()):
            notifier.send(event)
        if once:
            if output != "json":
                app.note(f"{len(looks)} cells looked at")
            sys.exit(EXIT_FAILED if any(look.kind in ("part", "held", "lost") for look in looks) else EXIT_DONE)
        end = time.monotonic() + every_s
        while time.monotonic() < end and not stopping:
            time.sleep(min(0.1, every_s))
        if stopping:
            return
