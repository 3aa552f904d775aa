"""When the health gate reboots a node: the condition itself, as Ansible evaluates it, over rows as the checks write them."""

from __future__ import annotations

import pytest

from tests.fakes.role_tasks import holds, refusals, task_of

DRIVER = {"name": "driver_faults", "state": "bad", "required": True, "reboot_helps": True}
FINE = {"name": "cores", "state": "ok", "required": True, "reboot_helps": False}
ECC = {"name": "uncorrectable_memory_errors", "state": "bad", "required": False, "reboot_helps": False}
WEAK = {"name": "memory", "state": "bad", "required": True, "reboot_helps": False}


def reboots(*rows: dict[str, object], serving: tuple[str, ...] = (), rebooted: bool = False, may: bool = True) -> bool:
    given: dict[str, object] = {
        "health_gate_first": {"ok": False, "checks": [FINE, *rows], "serving": list(serving)},
        "health_gate_rebooted": {"stat": {"exists": rebooted}},
        "health_gate_may_reboot": may,
    }
    return holds("health_gate", task_of("health_gate", "hardware.yml", "Spend one reboot")["when"], given)


def test_a_fault_of_the_driver_alone_costs_one_reboot() -> None:
    assert reboots(DRIVER)
    assert reboots(DRIVER, ECC | {"state": "unknown"}), "a counter that the host keeps to itself is no fault"
    assert not reboots(DRIVER, rebooted=True)
    assert not reboots(DRIVER, may=False)


@pytest.mark.parametrize("fault", [ECC, WEAK, WEAK | {"state": "unknown"}])
def test_a_fault_that_no_reboot_mends_costs_none_whether_its_check_is_required_or_not(fault: dict[str, object]) -> None:
    assert not reboots(fault)
    assert not reboots(DRIVER, fault), "it would wipe the evidence"


def test_no_reboot_cuts_the_streams_of_a_server() -> None:
    assert not reboots(DRIVER, serving=("chat",))


def test_what_is_refused_names_what_failed_alone_and_the_next_step() -> None:
    rows = [FINE, DRIVER, ECC | {"state": "unknown"}]
    first = {"ok": False, "checks": [r | {"text": "it is so"} for r in rows], "serving": ["chat"], "due": "deep"}
    given: dict[str, object] = {
        "health_gate_first": first,
        "health_gate_last": first,
        "health_gate_deep": {"skipped": True},
        "health_gate_rebooted": {"stat": {"exists": False}},
        "health_gate_may_reboot": True,
    }
    (said,) = refusals("health_gate", given, "hardware.yml")
    assert said.startswith(
        "configure.unhealthy: driver_faults: it is so. Next: a reboot may mend it and would cut the streams of chat, so fleetctl "
    )
    (said,) = refusals("health_gate", given | {"health_gate_first": first | {"serving": []}}, "hardware.yml")
    assert "driver_faults: it is so. Next: read /var/lib/fleetctl/health.json" in said
