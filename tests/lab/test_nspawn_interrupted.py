"""A run that is cancelled, or loses its host's power, in the middle of a build is mended by the next; a lock of apt is waited for."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from fleetctl.adapters.ansible.configurator import AnsibleConfigurator
from fleetctl.domain.ids import Token
from fleetctl.domain.provision import HostResult, Progress
from fleetctl.errors import ConfigureFailed
from tests.lab import nspawn_bench as nb
from tests.lab import nspawn_lab as nl

pytestmark = [
    pytest.mark.lab,
    pytest.mark.crash,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(nl.why_not()), reason=nl.why_not() or "it can"),
]
TWO = ("apt_ready", "amdgpu_driver")


@pytest.fixture(scope="module")
def bench() -> Iterator[nb.Bench]:
    with nb.bench(1) as made:
        yield made


def converges(bench: nb.Bench, tags: tuple[str, ...]) -> None:
    """Prove that running it again ends well, and once more changes nothing."""
    variables = bench.repository.variables()
    (again,) = bench.run("rocm_node", variables, tags=tags)
    assert (again.state, again.detail) == ("ok", "")
    (settled,) = bench.run("rocm_node", variables, tags=tags)
    assert (settled.state, settled.changed) == ("ok", 0), bench.changed_roles()


def undo(bench: nb.Bench, tags: tuple[str, ...] = ()) -> None:
    (undone,) = bench.run("uninstall", bench.repository.variables(), tags=(*tags, "node_manifest") if tags else ())
    assert (undone.state, undone.detail) == ("ok", "")


def lose_power(bench: nb.Bench) -> Callable[[], None]:
    def disturb() -> None:
        h = bench.lab.hosts[0]
        h.kill()
        h.start()

    return disturb


def test_a_cancelled_run_leaves_nothing_running_here_or_on_the_host(bench: nb.Bench) -> None:
    configurator = bench.configurator(tags=TWO)
    at = 0.0

    def on(p: Progress) -> None:
        nonlocal at
        if "apt_ready" in p.step and not at:
            at = time.monotonic()
            configurator.cancel()

    (result,) = configurator.run("rocm_node", [bench.lab.hosts[0].host], bench.repository.variables(), Token(1), on)
    assert result.state == "cancelled"
    until = time.monotonic() + 10
    while nb.running_ansible(bench.lab) or bench.lab.hosts[0].ssh("pgrep", "-f", "[A]nsiballZ").stdout:
        assert time.monotonic() < until, nb.running_ansible(bench.lab)
        time.sleep(0.1)
    undo(bench, TWO)


def in_the_middle_of_a_build(bench: nb.Bench, disturb: Callable[[AnsibleConfigurator], None]) -> HostResult | None:
    """Run until the driver's package is being built on the host, disturb it there, and return what the run came to."""
    h = bench.lab.hosts[0]
    assert h.ssh("sudo", "touch", "/run/standin-slow").returncode == 0
    configurator = bench.configurator(tags=TWO)
    found: list[HostResult] = []

    def run() -> None:
        with suppress(ConfigureFailed):
            found.extend(configurator.run("rocm_node", [h.host], bench.repository.variables(), Token(1), lambda p: None))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        until = time.monotonic() + 800
        while not h.running("amdgpu-dkms.postinst"):
            assert time.monotonic() < until
            assert thread.is_alive(), found
            time.sleep(0.5)
        disturb(configurator)
    finally:
        configurator.cancel()
        thread.join(120)
    assert not thread.is_alive()
    h.ssh("sudo", "rm", "-f", "/run/standin-slow")
    return found[0] if found else None


def test_a_run_cancelled_in_the_middle_of_a_build_is_gone_from_the_host_within_5_s_and_is_mended(bench: nb.Bench) -> None:
    h = bench.lab.hosts[0]
    took = 0.0

    def disturb(configurator: AnsibleConfigurator) -> None:
        nonlocal took
        at = time.monotonic()
        configurator.cancel()
        while nb.running_ansible(bench.lab) or h.running("postinst") or h.running("AnsiballZ") or h.running("apt-get"):
            assert time.monotonic() - at < 60, (nb.running_ansible(bench.lab), h.running(""))
            time.sleep(0.05)
        took = time.monotonic() - at

    result = in_the_middle_of_a_build(bench, disturb)
    assert result is not None
    assert result.state == "cancelled"
    assert "amdgpu-dkms" in h.ssh("sudo", "dpkg", "--audit").stdout
    converges(bench, TWO)
    undo(bench, TWO)
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    print(f"gone after {took:.1f} s at {load:.1f} runnable processes per core")
    assert took < 5 * max(1.0, load)


def test_power_lost_in_the_middle_of_a_build_is_mended_by_the_next_run(bench: nb.Bench) -> None:
    in_the_middle_of_a_build(bench, lambda _: lose_power(bench)())
    converges(bench, TWO)
    undo(bench, TWO)


def test_a_lock_of_apt_is_waited_for(bench: nb.Bench) -> None:
    h = bench.lab.hosts[0]
    holder = "import fcntl,time;f=open('/var/lib/dpkg/lock-frontend','w');fcntl.lockf(f,2);print('held',flush=True);time.sleep(60)"
    key = bench.lab.folder / "id"
    argv = ["ssh", "-i", str(key), "-o", f"UserKnownHostsFile={bench.lab.known_hosts}", f"{nl.USER}@{h.address}"]
    with subprocess.Popen([*argv, f'sudo python3 -c "{holder}"'], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as held:
        assert held.stdout is not None
        assert held.stdout.readline() == b"held\n"
        (result,) = bench.run("rocm_node", bench.repository.variables(), tags=TWO)
        held.kill()
    assert (result.state, result.detail) == ("ok", "")
    undo(bench, TWO)
