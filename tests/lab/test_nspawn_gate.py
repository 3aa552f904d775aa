"""The health gate on a real host that reboots: one reboot for what a reboot may mend, never a second; STAND-IN tools say the numbers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from fleetctl.domain.provision import HostResult
from tests.lab import nspawn_bench as nb
from tests.lab import nspawn_lab as nl

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(nl.why_not()), reason=nl.why_not() or "it can"),
]
UNTIL_REBOOT, LASTING, WEAK, LATE = "run/standin-fault", "var/lib/standin-fault", "var/lib/standin-weak", "var/lib/standin-late"
RAN = "var/lib/standin-deep-runs"
LATE_S = 12
TOOLS = {
    "rocminfo": f"""n=8
if [ -e /{LATE} ]; then
  [ -e /run/standin-begun ] || date +%s >/run/standin-begun
  [ $(( $(date +%s) - $(cat /run/standin-begun) )) -ge {LATE_S} ] || n=0
fi
[ ! -e /{UNTIL_REBOOT} ] && [ ! -e /{LASTING} ] || n=7
while [ $n -gt 0 ]; do echo "  Name:                    gfx942"; n=$((n-1)); done""",
    "find": "for n in 1 2 3 4 5 6 7 8; do echo /dev/dri/renderD$n; done",
    "dmesg": "echo '[    0.000000] Linux version 6.8'",
    "nproc": "echo 96",
    "free": f"[ -e /{WEAK} ] && echo 'Mem: 1000' || echo 'Mem: 1900000'",
    "swapon": "true",
    # As the real one: a server holds most of the memory, so that it fails beside one.
    "all_reduce_perf": f"""echo run >>/{RAN}
if systemctl is-active --quiet fleetctl-chat.service; then echo 'unhandled cuda error'; exit 1; fi
echo '# Out of bounds values : 0 OK'
echo '# Avg bus bandwidth    : 320.1'""",
}
GATE = {"health_gate_profile": "mi300x", "health_gate_may_reboot": True, "health_gate_boot_wait": 60}
SOON = GATE | {"health_gate_boot_wait": 5}


@pytest.fixture(scope="module")
def bench() -> Iterator[nb.Bench]:
    with nb.bench(1) as made:
        for name, text in TOOLS.items():
            path = made.lab.hosts[0].root / "usr/local/sbin" / name
            path.write_text(f"#!/bin/sh\n# STAND-IN for {name}.\n{text}\n")
            path.chmod(0o755)
        yield made


def gate(bench: nb.Bench, told: dict[str, object] = SOON) -> tuple[HostResult, int]:
    """Judge the host; returns the result and how often it was rebooted for it."""
    before = bench.lab.hosts[0].reboots
    (result,) = bench.run("health_gate", told)
    return result, bench.lab.hosts[0].reboots - before


def verdict(bench: nb.Bench) -> dict[str, object]:
    found: dict[str, object] = json.loads((bench.lab.hosts[0].root / "var/lib/fleetctl/health.json").read_text())
    return found


def test_a_fault_that_a_reboot_mends_costs_one_reboot(bench: nb.Bench) -> None:
    h = bench.lab.hosts[0]
    assert h.ssh("sudo", "touch", f"/{UNTIL_REBOOT}").returncode == 0
    result, reboots = gate(bench)
    assert (result.state, result.detail, reboots) == ("ok", "", 1)
    assert (verdict(bench)["ok"], verdict(bench)["tier"]) == (True, "deep")
    again, reboots = gate(bench)
    assert (again.state, again.changed, reboots) == ("ok", 0, 0)
    assert verdict(bench)["tier"] == "quick", "the first join is over"


def test_after_the_reboot_the_driver_has_the_time_that_it_takes(bench: nb.Bench) -> None:
    h = bench.lab.hosts[0]
    (h.root / LATE).touch()
    assert h.ssh("sudo", "rm", "-f", "/run/standin-begun").returncode == 0
    result, reboots = gate(bench, GATE)
    assert (result.state, result.detail, reboots) == ("ok", "", 1)
    (h.root / LATE).unlink()
    assert gate(bench)[0].state == "ok"
    assert h.ssh("ls", "/var/lib/fleetctl/rebooted").returncode != 0, "the next fault may cost a reboot of its own"


def test_a_fault_that_stays_is_refused_after_one_reboot_and_never_rebooted_for_again(bench: nb.Bench) -> None:
    fault = bench.lab.hosts[0].root / LASTING
    fault.touch()
    for wanted in (1, 0):
        result, reboots = gate(bench)
        assert (result.state, reboots) == ("failed", wanted)
        assert "configure.unhealthy: accelerators: 7, wanted equals 8" in result.detail
        assert verdict(bench)["ok"] is False
    fault.unlink()
    result, reboots = gate(bench)
    assert (result.state, reboots, verdict(bench)["tier"]) == ("ok", 0, "deep"), "after a fault the deep part runs again"


def test_a_fault_that_no_reboot_mends_costs_none(bench: nb.Bench) -> None:
    (bench.lab.hosts[0].root / WEAK).touch()
    result, reboots = gate(bench)
    assert (result.state, reboots) == ("failed", 0)
    assert "memory: 1000 MB, wanted at least" in result.detail


def test_a_fault_that_nobody_must_be_able_to_see_costs_no_reboot_that_would_wipe_it(bench: nb.Bench) -> None:
    h = bench.lab.hosts[0]
    (h.root / WEAK).unlink(missing_ok=True)
    smi = h.root / "usr/local/sbin/amd-smi"
    smi.write_text('#!/bin/sh\n# STAND-IN for amd-smi.\necho \'[{"ecc": {"total_uncorrectable_count": 3}}]\'\n')
    smi.chmod(0o755)
    assert h.ssh("sudo", "touch", f"/{UNTIL_REBOOT}").returncode == 0
    try:
        result, reboots = gate(bench)
    finally:
        smi.unlink()
        h.ssh("sudo", "rm", f"/{UNTIL_REBOOT}")
    assert (result.state, reboots) == ("failed", 0)
    assert "uncorrectable_memory_errors: 3" in result.detail


def deep_runs(bench: nb.Bench) -> int:
    """Return how often a deep check was run on the host."""
    path = bench.lab.hosts[0].root / RAN
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_the_site_play_with_the_gate_on_judges_before_it_serves_and_never_beside_a_server(bench: nb.Bench) -> None:
    h = bench.lab.hosts[0]
    for mark in (WEAK, RAN, "var/lib/fleetctl/deep-passed"):
        (h.root / mark).unlink(missing_ok=True)
    packages = nb.packages(h)
    variables = bench.repository.variables() | GATE
    (first,) = bench.run("rocm_node", variables)
    assert (first.state, first.detail, verdict(bench)["tier"], deep_runs(bench)) == ("ok", "", "deep", 1)
    assert h.ssh("systemctl", "is-active", "fleetctl-chat.service").stdout == "active\n"
    (second,) = bench.run("rocm_node", variables)
    assert (second.state, second.changed, verdict(bench)["tier"], deep_runs(bench)) == ("ok", 0, "quick", 1)

    assert h.ssh("sudo", "touch", f"/{UNTIL_REBOOT}").returncode == 0
    result, reboots = gate(bench)
    assert (result.state, reboots) == ("failed", 0), "a reboot would cut the streams of a server"
    assert "would cut the streams of chat, so fleetctl configure --play drain" in result.detail
    assert h.ssh("sudo", "rm", f"/{UNTIL_REBOOT}").returncode == 0
    (again,) = bench.run("rocm_node", variables)
    assert (again.state, verdict(bench)["tier"], deep_runs(bench)) == ("ok", "quick", 1), "deep is due, and a server serves"
    asked, _ = gate(bench, GATE | {"health_gate_tier": "deep"})
    assert "configure.serving" in asked.detail
    assert deep_runs(bench) == 1

    (drained,) = bench.run("drain", variables)
    assert drained.state == "ok"
    result, _ = gate(bench)
    assert (result.state, verdict(bench)["tier"], deep_runs(bench)) == ("ok", "deep", 2)
    (undone,) = bench.run("uninstall", variables)
    assert (undone.state, undone.detail) == ("ok", "")
    assert nb.packages(h) == packages


def test_a_server_may_load_for_long_and_one_that_never_comes_up_is_not_waited_for(bench: nb.Bench) -> None:
    tags = ["apt_ready", "accelerator_access", "container_engine", "model_server", "health_gate"]
    good = bench.repository.variables()
    units = good["model_server_units"]
    assert isinstance(units, list)
    unit: dict[str, Any] = units[0]
    late = unit | {"argv": ["/bin/sh", "-c", f"sleep {LATE_S}; exec {' '.join(unit['argv'])}"]}
    (result,) = bench.run("rocm_node", good | {"model_server_units": [late]}, tags=tags)
    assert (result.state, result.detail) == ("ok", "")

    crashing = unit | {"argv": ["/bin/sh", "-c", "sleep 15; exit 1"]}
    begun = time.monotonic()
    (result,) = bench.run("rocm_node", good | {"model_server_units": [crashing], "health_gate_answer_wait": 1500}, tags=tags)
    assert result.state == "failed"
    assert "configure.unhealthy: chat gave no completion" in result.detail
    assert "its unit has failed" in result.detail
    assert time.monotonic() - begun < 600
    (undone,) = bench.run("uninstall", good)
    assert undone.state == "ok"
