"""Configure, bench: what fleetctl adds to plain ansible-playbook, how fast a run is cancelled, how fast 1,000 hosts are listed.

Run: make bench-configure. FLEETCTL_BENCH_HOSTS (8), FLEETCTL_BENCH_RUNS (1) and FLEETCTL_BENCH_TAGS (roles, all) make it smaller or calmer.
The last line is one JSON object; where only some roles were run it says which.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from fleetctl.adapters.ansible.inventory import inventory_yaml
from fleetctl.adapters.ansible.settings import close_connections, find_program
from fleetctl.domain.ids import HostId, PoolId, Token
from fleetctl.domain.pool import Host
from fleetctl.domain.provision import Progress
from tests.fakes.ansible_world import PLAYBOOKS
from tests.lab import nspawn_bench as nb
from tests.lab import nspawn_lab as nl

PLAIN = """\
[defaults]
host_key_checking = True
roles_path = {playbooks}/roles
private_key_file = {key}
forks = {forks}
interpreter_python = auto_silent
inject_facts_as_vars = False
[ssh_connection]
pipelining = True
ssh_args = -C -o ControlMaster=auto -o ControlPersist=60s -o UserKnownHostsFile={known}
"""


TAGS = [t for t in os.environ.get("FLEETCTL_BENCH_TAGS", "").split(",") if t]


def say(text: str) -> None:
    """Write a line of progress."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def plain_seconds(b: nb.Bench, hosts: Sequence[nl.RealHost], variables: dict[str, object]) -> float:
    """Return how long plain ansible-playbook takes for the same tasks on the same hosts."""
    folder = Path(tempfile.mkdtemp(prefix="plain-", dir=b.lab.folder))
    by_host = variables["by_host"]
    assert isinstance(by_host, dict)
    common = {k: v for k, v in variables.items() if k != "by_host"}
    for name in ("node_manifest_copies", "preflight_reports"):
        (folder / name).mkdir()
        common[name] = str(folder / name)
    (folder / "inventory.yml").write_text(inventory_yaml([h.host for h in hosts], common=common, by_host=by_host))
    (folder / "ansible.cfg").write_text(
        PLAIN.format(playbooks=PLAYBOOKS, key=b.lab.folder / "id", forks=8, known=b.lab.known_hosts),
    )
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "ANSIBLE_CONFIG": str(folder / "ansible.cfg"), "LC_ALL": "C.UTF-8"}
    begun = time.monotonic()
    argv = [str(find_program()), "--inventory", str(folder / "inventory.yml"), str(PLAYBOOKS / "rocm_node.yml")]
    argv += ["--tags", ",".join(TAGS)] if TAGS else []
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=False)
    took = time.monotonic() - begun
    close_connections(folder / ".ansible" / "cp")  # plain Ansible leaves them open for a minute, and what is cancelled later is not theirs
    assert done.returncode == 0, done.stdout[-2000:]
    return took


def ours_seconds(b: nb.Bench, hosts: Sequence[nl.RealHost], variables: dict[str, object]) -> tuple[float, int]:
    """Return how long fleetctl takes, and how much it changed."""
    begun = time.monotonic()
    results = b.run("rocm_node", variables, hosts=hosts, tags=TAGS)
    took = time.monotonic() - begun
    assert {r.state for r in results} == {"ok"}, results
    return took, sum(r.changed for r in results)


def ratio(b: nb.Bench, hosts: Sequence[nl.RealHost], runs: int) -> tuple[float, int]:
    """Return the middle of the ratios of second runs, taken in turns, and how much they changed."""
    variables = {**b.repository.variables(), "by_host": {}}
    ours_seconds(b, hosts, variables)
    found, changed = [], 0
    for n in range(runs):
        if n % 2:
            plain = plain_seconds(b, hosts, variables)
            ours, more = ours_seconds(b, hosts, variables)
        else:
            ours, more = ours_seconds(b, hosts, variables)
            plain = plain_seconds(b, hosts, variables)
        changed += more
        found.append(ours / plain)
        say(f"{len(hosts)} hosts, second run: fleetctl {ours:.1f} s, plain {plain:.1f} s, {more} changed")
    return sorted(found)[len(found) // 2], changed


def cancel_seconds(b: nb.Bench) -> float:
    """Return how long it takes until nothing of a cancelled run is left, here and on the host."""
    h = b.lab.hosts[0]
    variables = {**b.repository.variables(), "by_host": {}}
    configurator = b.configurator(tags=TAGS)
    begun = threading.Event()

    def on(p: Progress) -> None:
        if p.state == "started" and p.step.startswith("node_manifest"):
            begun.set()

    thread = threading.Thread(target=configurator.run, args=("rocm_node", [h.host], variables, Token(1), on))
    thread.start()
    assert begun.wait(300)
    at = time.monotonic()
    configurator.cancel()
    thread.join(60)
    while nb.running_ansible(b.lab) or h.running("BECOME-SUCCESS") or h.running("AnsiballZ"):
        assert time.monotonic() - at < 60, nb.running_ansible(b.lab)
        time.sleep(0.05)
    return time.monotonic() - at


def inventory_seconds(count: int = 1000) -> float:
    """Return how long it takes to make the inventory of so many hosts and have Ansible read it."""
    hosts = [
        Host(id=HostId(f"node-{n}"), pool=PoolId(f"pool-{n % 10}"), address=f"10.0.{n // 250}.{n % 250 + 1}", user="ops")
        for n in range(count)
    ]
    by_host: dict[str, dict[str, object]] = {
        h.id: {"model_server_units": [{"name": "chat", "argv": ["/bin/x", "{{ 1 }}"], "port": 8000, "model": "m"}]} for h in hosts
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "inventory.yml"
        begun = time.monotonic()
        path.write_text(inventory_yaml(hosts, by_host=by_host))
        env = {"PATH": os.environ["PATH"], "HOME": folder, "LC_ALL": "C.UTF-8"}
        argv = [str(find_program("ansible-inventory")), "--inventory", str(path), "--list"]
        done = subprocess.run(argv, env=env, cwd=folder, capture_output=True, text=True, check=True)
        took = time.monotonic() - begun
    assert len(json.loads(done.stdout)["_meta"]["hostvars"]) == count
    return took


def main() -> int:
    """Measure and print."""
    figures: dict[str, float | int | str] = {"inventory_1000_seconds": round(inventory_seconds(), 2)}
    if why := nl.why_not():
        print(json.dumps(figures | {"skipped": why}))
        return 0
    count, runs = int(os.environ.get("FLEETCTL_BENCH_HOSTS", "8")), int(os.environ.get("FLEETCTL_BENCH_RUNS", "1"))
    with nb.bench(1) as b:
        one, changed = ratio(b, b.lab.hosts, runs)
        figures |= {"overhead_1_host_ratio": round(one, 2), "second_run_changed": changed, "cancel_seconds": round(cancel_seconds(b), 2)}
        if count > 1:
            for n in range(1, count):
                b.lab.add(f"node-{n + 1}")
            many, more = ratio(b, b.lab.hosts, runs)
            figures |= {f"overhead_{count}_hosts_ratio": round(many, 2), "second_run_changed": changed + more}
    print(json.dumps(figures | ({"roles": ",".join(TAGS)} if TAGS else {})))
    return 0


if __name__ == "__main__":
    sys.exit(main())
