"""Lab, lab layer: what real target hosts need beside themselves: bridge, repository of stand-ins, nodes file. Never boots or prepares one.

`fleetctl provision` boots them (fleetctl.lab.machine), `fleetctl configure` prepares them over ssh.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import CellId
from fleetctl.errors import LabFailed
from fleetctl.lab.cells import TARGET_HOSTS, TARGET_POOL
from fleetctl.lab.machine import host_of, network_of
from fleetctl.lab.nspawn import FIRST_ADDRESS, USER, NspawnLab, unpacked_root
from fleetctl.lab.nspawn_needs import why_not
from fleetctl.lab.record import LabRecord, write_private
from fleetctl.lab.standins import FAULTS_FOLDER, OLD, Repository
from fleetctl.lab.units import UnitConfig, python_env, unit_for, unit_name, write_unit

NODES_FILE = "inventory/lab/nodes.yaml"
PACKAGES = "packages"
ENGINE = "emulated-engine"


def refuse() -> None:
    """Refuse where this machine cannot run real hosts; nothing was started.

    Raises:
        LabFailed: lab.hosts.
    """
    if why := why_not():
        raise LabFailed("lab.hosts", f"real hosts cannot run here: it {why}. Nothing was started.", hint="Run: fleetctl lab up")


def address(network: str, host: str) -> str:
    """Return the address of a target host, which is known before it is made."""
    return f"{network}.{FIRST_ADDRESS + 1 + TARGET_HOSTS.index(host)}"


def endpoints(network: str, ports: Sequence[int]) -> tuple[str, ...]:
    """Return where a cell's target replicas will answer: its ports spread over the hosts in turn."""
    return tuple(f"{address(network, TARGET_HOSTS[i % len(TARGET_HOSTS)])}:{port}" for i, port in enumerate(ports))


def network(record: LabRecord) -> NspawnLab:
    """Return the bridge of a lab with real hosts."""
    return network_of(record.folder, record.network)


def make_network(record: LabRecord) -> None:
    """Make bridge, prepared root and repository where they are not there.

    Raises:
        LabFailed: lab.machine, lab.packages.
    """
    unpacked_root()
    made = network(record)
    made.make()
    repository = _repository(record)
    if not (repository.folder / "key.asc").exists():
        shutil.rmtree(repository.folder, ignore_errors=True)
        try:
            repository.build()
        finally:
            repository.stop_agent()
        write_private(repository.folder / "fingerprint", repository.fingerprint)
        write_private(repository.folder / "key.asc", repository.key)
    argv = [sys.executable, "-m", "fleetctl.lab.standins", str(repository.folder), repository.address, str(repository.port)]
    config: UnitConfig = {"settle_s": 0.5}
    write_unit(record.folder / "units", PACKAGES, {"argv": argv, "env": python_env(), "config": config})


def _repository(record: LabRecord) -> Repository:
    made = network(record)
    folder = made.folder / "repo"
    known = Repository(folder=folder, address=made.gateway, port=record.packages_port)
    if (folder / "key.asc").exists():
        known.fingerprint, known.key = (folder / "fingerprint").read_text(), (folder / "key.asc").read_text()
    return known


def write_nodes(record: LabRecord, fleet: Fleet) -> None:
    """Write the nodes file that says what the target hosts become: what `fleetctl configure` reads."""
    repository = _repository(record)
    folder = repository.folder
    (folder / "matrix.json").write_text(repository.matrix_text())
    given = repository.roles()
    given["container_engine_packages"] = [{"name": ENGINE, "version": OLD}]
    units = _units(record, fleet)
    file = {
        "pool": TARGET_POOL,
        "vendor": "amd",
        "release": f"standin-{OLD}",
        "layer": "native",
        "container": False,
        "matrix": str(folder / "matrix.json"),
        "keys": {"standin": str(folder / "key.asc")},
        "known_hosts": str(network(record).known_hosts),
        "identity": str(network(record).folder / "id"),
        "hosts": {
            h: {"address": address(record.network, h), "user": USER, "roles": {"model_server_units": units[h]}} for h in TARGET_HOSTS
        },
        "roles": given,
    }
    path = Path(record.workspace) / NODES_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    write_private(path, _HEAD + json.dumps(file, indent=2) + "\n")


_HEAD = """\
# What the lab's target hosts become. Written by each `fleetctl lab up --hosts nspawn`; JSON is YAML.
# STAND-INS: the packages under AMD's names are none of AMD's, and the engines are emulated. Real: hosts, systemd, ssh, apt, Ansible.
"""


def _units(record: LabRecord, fleet: Fleet) -> Mapping[str, list[dict[str, object]]]:
    """Return the model servers per host: an emulated engine per replica, where its endpoint says."""
    hosts = {address(record.network, h): h for h in TARGET_HOSTS}
    found: dict[str, list[dict[str, object]]] = {h: [] for h in TARGET_HOSTS}
    for c in record.cells:
        cell = fleet.cell(CellId(c.cell))
        for index, endpoint in enumerate(cell.router.canary_endpoints, start=1):
            place, _, port = endpoint.rpartition(":")
            if place not in hosts:
                continue
            unit = unit_for(cell=cell, workload=fleet.workload(cell.workload), side="target", index=index, folder=Path("/"))
            name = unit_name(cell.id, "target", index)
            # Only this machine reaches the bridge, and the health gate asks on the host's own loopback.
            said = json.dumps({**unit["config"], "address": "0.0.0.0"}, sort_keys=True)  # noqa: S104
            argv = [f"/usr/lib/{ENGINE}/serve", name, said]
            found[hosts[place]].append({"name": name, "argv": argv, "port": int(port), "model": c.model})
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One model server that a host's systemd has a unit of.

    Args:
        pid: as this machine counts; 0 where it does not run. faults: where the lab writes its faults, as seen from this machine.
    """

    name: str
    host: str
    address: str
    port: int
    pid: int
    faults: Path


def servers(record: LabRecord, cell: str = "") -> tuple[Server, ...]:
    """Return the model servers of the real hosts, of one cell where it is named; read from outside, so nothing is started on them."""
    found = []
    lines: dict[str, Mapping[int, str]] = {}
    for c in record.cells if record.machines else ():
        for index, endpoint in enumerate(endpoints(record.network, c.canary), start=1):
            name = unit_name(CellId(c.cell), "target", index)
            place, _, port = endpoint.rpartition(":")
            host = next(h for h in TARGET_HOSTS if address(record.network, h) == place)
            root = record.hosts / host / "root"
            if cell not in ("", c.cell) or not (root / f"etc/systemd/system/fleetctl-{name}.service").exists():
                continue
            if host not in lines:
                lines[host] = host_of(record.hosts / host, TARGET_HOSTS.index(host) + 1, record.network).command_lines()
            pid = next((p for p, line in lines[host].items() if f"/serve {name} " in line), 0)
            faults = root / FAULTS_FOLDER / f"{name}.faults.json"
            found.append(Server(name=name, host=host, address=place, port=int(port), pid=pid, faults=faults))
    return tuple(found)


def remove_network(record: LabRecord) -> None:
    """End every machine of a lab and remove what it has outside of its run folder, also what a crash has left. Idempotent.

    Raises:
        LabFailed: lab.machine; the run folder must then stay.
    """
    network(record).remove()
