"""The health gate on a real host that reboots: one reboot for what a reboot may mend, never a second; STAND-IN tools say the numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator

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
UNTIL_REBOOT, LASTING, WEAK = "run/standin-fault", "var/lib/standin-fault", "var/lib/standin-weak"
TOOLS = {
    "rocminfo": f"""n=8
[ ! -e /{UNTIL_REBOOT} ] && [ ! -e /{LASTING} ] || n=7
while [ $n -gt 0 ]; do echo "  Name:                    gfx942"; n=$((n-1)); done""",
    "find": "for n in 1 2 3 4 5 6 7 8; do echo /dev/dri/renderD$n; done",
    "dmesg": "true",
    "nproc": "echo 96",
    "free": f"[ -e /{WEAK} ] && echo 'Mem: 1000' || echo 'Mem: 1900000'",
    "swapon": "true",
    "all_reduce_perf": "echo '# Avg bus bandwidth    : 320.1'",
}
GATE = {"health_gate_profile": "mi300x", "health_gate_may_reboot": True}


@pytest.fixture(scope="module")
def bench() -> Iterator[nb.Bench]:
    with nb.bench(1) as made:
        for name, text in TOOLS.items():
            path = made.lab.hosts[0].root / "usr/local/sbin" / name
            path.write_text(f"#!/bin/sh\n# STAND-IN for {name}.\n{text}\n")
            path.chmod(0o755)
        yield made


def gate(bench: nb.Bench) -> tuple[HostResult, int]:
    """Judge the host; returns the result and how often it was rebooted for it."""
    before = bench.lab.hosts[0].reboots
    (result,) = bench.run("health_gate", GATE)
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
