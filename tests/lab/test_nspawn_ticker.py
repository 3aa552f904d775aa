"""A detached migration's timer on a real systemd jump host: fired by systemd itself, over a reboot, to an end nobody else brings about.

The jump host is an nspawn machine; router, servers and workspace are the lab of this machine, mounted there at the same paths. What is
emulated is the way between them: the jump host's loopback is relayed to this machine's.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from fleetctl.domain.ids import CellId
from fleetctl.domain.people import Actor
from fleetctl.domain.rollout import Order
from fleetctl.formats.fleet_file import read_fleet
from fleetctl.lab.lifecycle import FLEET_FILE
from tests.lab import nspawn_lab as nl
from tests.lab.e2e import CHAT, HALF, ROOT, Lab, make_lab
from tests.lab.lab_tools import until

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(bool(nl.why_not()), reason=nl.why_not() or "it can"),
]
RELAY = """\
import socket, socketserver, sys, threading
folder, side, ports = sys.argv[1], sys.argv[2], sys.argv[3:]
def pump(a, b):
    try:
        while data := a.recv(65536):
            b.sendall(data)
    except OSError:
        pass
    for s in (a, b):
        try:
            s.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
def handler(port):
    class Relay(socketserver.BaseRequestHandler):
        def handle(self):
            there = socket.socket(socket.AF_UNIX if side == "in" else socket.AF_INET)
            there.connect(f"{folder}/{port}" if side == "in" else ("127.0.0.1", int(port)))
            threading.Thread(target=pump, args=(self.request, there), daemon=True).start()
            pump(there, self.request)
    return Relay
class Tcp(socketserver.ThreadingTCPServer):
    daemon_threads, allow_reuse_address, request_queue_size = True, True, 128
class Unix(socketserver.ThreadingUnixStreamServer):
    daemon_threads, request_queue_size = True, 128
servers = [Tcp(("127.0.0.1", int(p)), handler(p)) if side == "in" else Unix(f"{folder}/{p}", handler(p)) for p in ports]
for s in servers:
    threading.Thread(target=s.serve_forever, daemon=True).start()
print("relaying", flush=True)
threading.Event().wait()
"""


@contextmanager
def relayed(h: nl.RealHost, folder: Path, ports: list[str]) -> Iterator[None]:
    """Let the host's loopback reach this machine's, port by port."""
    sockets = folder / "relay"
    sockets.mkdir()
    script = folder / "relay.py"
    script.write_text(RELAY)
    with ExitStack() as stack:
        for side, before in (("out", []), ("in", ["ip", "netns", "exec", h.netns])):
            argv = [*before, sys.executable, str(script), str(sockets), side, *ports]
            process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
            stack.callback(process.wait)
            stack.callback(process.kill)
            assert process.stdout is not None
            stack.callback(process.stdout.close)
            assert process.stdout.readline() == "relaying\n"
        yield


@contextmanager
def mounted(h: nl.RealHost, *folders: Path) -> Iterator[None]:
    """Show this machine's folders on the host, at the same paths."""
    h.stop()
    with ExitStack() as stack:
        for folder in folders:
            there = h.root / str(folder).lstrip("/")
            there.mkdir(parents=True, exist_ok=True)
            subprocess.run(["mount", "--bind", str(folder), str(there)], check=True)
            stack.callback(subprocess.run, ["umount", "--lazy", str(there)], check=True)
        stack.callback(h.stop)
        h.start()
        yield


@pytest.fixture
def lab() -> Iterator[Lab]:
    """A lab of this machine whose folder a host may mount: /tmp is every host's own."""
    folder = Path("/var/tmp") / f"fl-jump-{uuid.uuid4().hex[:6]}"
    try:
        with contextmanager(make_lab)(folder) as made:
            yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def program(h: nl.RealHost, lab: Lab, *argv: str) -> subprocess.CompletedProcess[str]:
    return h.ssh("sudo", "env", "NO_COLOR=1", sys.executable, "-m", "fleetctl.cli.main", "-C", str(lab.workspace), *argv)


def test_a_detached_migration_goes_on_by_its_timer_over_a_reboot_of_its_jump_host(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYSTEMD_NSPAWN_TMPFS_TMP", "0")  # the lab's run folder lies in /tmp
    lab.fresh(HALF)
    unit = f"fleetctl-ticker-{read_fleet(lab.workspace / FLEET_FILE).name}"
    ports = sorted(set(re.findall(r"127\.0\.0\.1:(\d+)", (lab.workspace / FLEET_FILE).read_text())))
    with nl.nspawn_lab(1) as hosts, ExitStack() as stack:
        (h,) = hosts.hosts
        stack.enter_context(mounted(h, lab.workspace, lab.record.folder, ROOT, Path(sys.base_prefix)))
        stack.enter_context(relayed(h, tmp_path, ports))
        begun = program(h, lab, "migrate", CHAT, "--phase", "canary", "--detach")
        assert begun.returncode == 8, begun.stdout + begun.stderr
        assert "the timer ticks" in begun.stderr
        assert h.ssh("systemctl", "is-enabled", f"{unit}.timer").stdout.strip() == "enabled"
        lab.wait_phase(CHAT, "canary", 240.0)  # nobody ticks but the timer, which fires each minute
        assert lab.weight(CHAT) == 5_000
        h.stop()
        assert lab.weight(CHAT) == 5_000, "the router keeps what it shows"
        h.start()
        store = lab.store()
        store.order(CellId(CHAT), Order(kind="abort", actor=Actor(kind="person", name="ada"), at=lab.events(CHAT)[-1].at))
        store.close()
        lab.wait(CHAT, lambda r: r.ended == "aborted", "the timer's ticker obeys after the reboot", 240.0)
        assert lab.weight(CHAT) == 0
        until(lambda: h.ssh("systemctl", "is-active", f"{unit}.service").stdout.strip() == "inactive", "it ends with its work", 120)
        lab.run("audit", "verify")
        assert "removed" in program(h, lab, "migrate", "--detach", "off").stdout
        assert h.ssh("systemctl", "list-unit-files", f"{unit}*", "--no-legend").stdout.strip() == ""
