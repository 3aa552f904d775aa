"""When the health gate reboots a node: the condition itself, as Ansible evaluates it, over rows as the checks write them."""

from __future__ import annotations

import pytest

from tests.fakes.role_tasks import holds, task_of

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
