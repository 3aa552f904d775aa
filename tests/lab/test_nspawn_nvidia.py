"""NVIDIA nodes on a real host: a working driver is left alone, the way home touches no package, what came with us goes again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fleetctl.domain.provision import HostResult
from fleetctl.lab.standins import NEW, OLD
from tests.lab import nspawn_bench as nb
from tests.lab import nspawn_lab as nl

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.timeout(3000),
    pytest.mark.skipif(bool(nl.why_not()), reason=nl.why_not() or "it can"),
]
EXPORTER = {"dcgm_exporter_packages": [{"name": "standin-exporter", "version": OLD}], "dcgm_exporter_service": "standin-exporter"}
DRIVER_THERE = """#!/bin/sh
# STAND-IN: the driver that the image came with.
case "$1" in
  --list-gpus) for n in 0 1 2 3 4 5 6 7; do echo "GPU $n: NVIDIA H100"; done ;;
  nvlink) echo "GPU 0: NVIDIA H100"; echo "	 Link 0: 26.562 GB/s" ;;
  *) echo 550.1 ;;
esac
"""
KERNEL_LOG = """#!/bin/sh
# STAND-IN for dmesg.
echo "[    0.000000] Linux version 6.8"
echo "[   99.000000] NVRM: Xid (PCI:0000:41:00): {xid}, pid=4242, name=python3, what happened"
"""
DRIVER = [{"name": "standin-nvidia-utils", "version": OLD}]


@pytest.fixture(scope="module")
def bench() -> Iterator[nb.Bench]:
    with nb.bench(1) as made:
        yield made


def only(results: tuple[HostResult, ...]) -> HostResult:
    (result,) = results
    return result


def _is(h: nl.RealHost, unit: str, state: str) -> None:
    assert h.ssh("systemctl", "is-active", unit).stdout == f"{state}\n"


def test_without_driver_and_packages_it_is_refused_and_with_them_installed_and_removed(bench: nb.Bench) -> None:
    h = bench.lab.hosts[0]
    packages, tags = nb.packages(h), ["apt_ready", "nvidia_driver"]
    refused = only(bench.run("nvidia_node", bench.repository.variables(), tags=tags))
    assert refused.state == "failed"
    assert "configure.driver: nothing was changed" in refused.detail
    variables = bench.repository.variables() | {"nvidia_driver_packages": DRIVER}
    for changed in (True, False):
        result = only(bench.run("nvidia_node", variables, tags=tags))
        assert (result.state, result.detail, bool(result.changed)) == ("ok", "", changed)
    assert only(bench.run("uninstall", variables)).state == "ok"
    assert nb.packages(h) == packages


def test_a_working_driver_is_left_alone_and_the_way_home_touches_no_package(bench: nb.Bench) -> None:
    h = bench.lab.hosts[0]
    there = h.root / "usr/local/bin/nvidia-smi"
    there.write_text(DRIVER_THERE)
    there.chmod(0o755)
    log = h.root / "usr/local/bin/dmesg"
    log.write_text(KERNEL_LOG.format(xid=31))
    log.chmod(0o755)
    difference, before = nb.remember(h), nb.packages(h)
    variables = bench.repository.variables() | EXPORTER | {"nvidia_driver_packages": [{"name": "standin-nvidia-utils", "version": NEW}]}

    predicted = only(bench.run("nvidia_node", variables, check=True))
    assert (predicted.state, predicted.detail) == ("ok", "")
    assert difference() == {}
    first = only(bench.run("nvidia_node", variables))
    assert (first.state, first.detail) == ("ok", "")
    assert not any("standin-nvidia-utils" in line for line in nb.packages(h)), "a driver that works is left alone"
    _is(h, "standin-exporter.service", "active")
    _is(h, "fleetctl-chat.service", "active")
    assert only(bench.run("nvidia_node", variables)).changed == 0, sorted(bench.changed_roles())

    serving = nb.packages(h)
    assert only(bench.run("drain", variables)).state == "ok"
    _is(h, "fleetctl-chat.service", "inactive")
    # On the way home nothing deep is run, nothing is rebooted, and what a program did to itself is no reason to stay away.
    told = variables | {"health_gate_profile": "h100", "health_gate_tier": "deep", "health_gate_may_reboot": True}
    home = only(bench.run("fallback_nvidia", told))
    assert (home.state, home.detail) == ("ok", "")
    _is(h, "fleetctl-chat.service", "active")
    log.write_text(KERNEL_LOG.format(xid=79))
    bad = only(bench.run("fallback_nvidia", told))
    assert (bad.state, "configure.unhealthy: xid_errors" in bad.detail) == ("failed", True)
    _is(h, "fleetctl-chat.service", "active")
    assert nb.packages(h) == serving
    assert only(bench.run("health_gate", variables)).state == "ok"

    assert only(bench.run("uninstall", variables)).state == "ok"
    assert nb.packages(h) == before
    assert difference() == {}
    assert there.exists()
