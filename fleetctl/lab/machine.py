"""Provision, lab layer: keeps one real host of the lab running: boots it, and again whenever it asks for a reboot. Never decides when.

Run as `python -m fleetctl.lab.machine <JSON>` by the service tool: {"lab": run folder's nspawn folder, "id", "network", "hosts", "name",
"number"}. Writes `ready` into the host's folder once sshd greets; ends, and takes the machine's power away, on SIGTERM.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from pathlib import Path

from fleetctl.domain.ids import is_id
from fleetctl.errors import FleetctlError
from fleetctl.lab.nspawn import NspawnLab, RealHost
from fleetctl.lab.service import start, stop
from fleetctl.lab.units import UnitConfig, python_env, write_unit

UNIT = "machine"
LOOK_EVERY_S = 0.2
BOOT_WAIT_S = 240.0
_NETWORK = re.compile(r"10\.213\.[0-9]{1,3}\Z")
_RUN = re.compile(r"/(?:var/)?tmp/fl-[0-9a-f]{8}\Z")


def network_of(run: Path, network: str) -> NspawnLab:
    """Return the real hosts' bridge of a lab, made or not.

    Raises:
        ValueError: a run folder or network that no lab has.
    """
    if not _RUN.match(str(run)) or not _NETWORK.match(network):
        raise ValueError(f"{str(run)!r} with the network {network!r} is no lab with real hosts")
    return NspawnLab(folder=run / "nspawn", id=f"fl{run.name[3:9]}", network=network, hosts_folder=run / "hosts")


def host_of(folder: Path, number: int, network: str) -> RealHost:
    """Return the real host whose folder that is.

    Raises:
        ValueError: no host of a lab.
    """
    if not is_id(folder.name) or not 1 <= number <= 64 or folder.parent.name != "hosts":
        raise ValueError(f"{folder} with the number {number} is no host of a lab")
    return RealHost(lab=network_of(folder.parents[1], network), name=folder.name, number=number)


def boot(folder: Path, number: int, network: str) -> None:
    """Make a host's machine and wait until sshd greets. Idempotent.

    Raises:
        ValueError: no host of a lab; RuntimeError: it did not come up, with its last words.
    """
    host_of(folder, number, network)
    config: UnitConfig = {"ready_file": str(folder / "ready"), "health_wait_s": BOOT_WAIT_S}
    what = json.dumps({"folder": str(folder), "number": number, "network": network})
    write_unit(folder, UNIT, {"argv": [sys.executable, "-m", "fleetctl.lab.machine", what], "env": python_env(), "config": config})
    result = start(folder, UNIT)
    if result.state == "failed":
        raise RuntimeError(" ".join((result.error, *result.log)))


def forget(folder: Path, number: int, network: str) -> None:
    """Take a host's power away and remove what it has outside of its folder. Idempotent.

    Raises:
        ValueError: no host of a lab; LabFailed: lab.machine, the folder must then stay.
    """
    host = host_of(folder, number, network)
    stop(folder, UNIT)
    host.remove()


def main(argv: list[str]) -> int:
    """Keep the host of `<JSON>` running until SIGTERM or SIGINT. Returns an exit code."""
    stopping: list[int] = []
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, lambda n, _: stopping.append(n))
    try:
        asked = json.loads(argv[0])
        host = host_of(Path(asked["folder"]), int(asked["number"]), str(asked["network"]))
    except (IndexError, KeyError, TypeError, ValueError) as e:
        sys.stderr.write(f"usage: python -m fleetctl.lab.machine <JSON>: {e}\n")
        return 2
    try:
        host.kill()  # what an earlier keeper, killed itself, has left running
        host.make()
        host.start()
        (host.folder / "ready").write_text(f"{host.address}\n")
        while not stopping and host.is_running:
            time.sleep(LOOK_EVERY_S)
        host.kill()
    except FleetctlError as e:
        sys.stderr.write(f"{e.message}\n")
        host.kill()
        return 1
    return 0 if stopping else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
