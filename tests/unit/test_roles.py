"""Every role: arguments specified with their defaults, only builtin modules or its own, an undo; thresholds that the gate accepts."""

from __future__ import annotations

import importlib.util
import json
import re
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from tests.fakes.ansible_world import PLAYBOOKS

ROLES = sorted(p.parents[1] for p in PLAYBOOKS.glob("roles/*/meta/argument_specs.yml"))
NODE = [r for r in ROLES if r.name != "lab_serving"]
WORDS = {
    "name",
    "when",
    "loop",
    "loop_control",
    "register",
    "vars",
    "tags",
    "notify",
    "listen",
    "block",
    "until",
    "retries",
    "delay",
    "timeout",
}
WORDS |= {"changed_when", "failed_when", "check_mode", "no_log", "delegate_to", "become", "environment"}
ASIDE = {"preflight", "lab_serving", "apt_packages"}
"""Roles that change nothing that lasts, or that other roles use."""


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def spec_of(role: Path) -> dict[str, dict[str, Any]]:
    options: dict[str, dict[str, Any]] = load(role / "meta" / "argument_specs.yml")["argument_specs"]["main"]["options"]
    return options


@pytest.mark.parametrize("role", NODE, ids=lambda r: r.name)
def test_defaults_are_those_of_the_specs_documented_and_prefixed(role: Path) -> None:
    defaults, options = load(role / "defaults" / "main.yml"), spec_of(role)
    assert {name: option["default"] for name, option in options.items()} == defaults
    assert all(name.startswith(f"{role.name}_") for name in options)
    assert all(option["description"] and option["type"] for option in options.values())
    text = (role / "defaults" / "main.yml").read_text("utf-8")
    assert all(re.search(rf"^# .+\n{name}:", text, re.MULTILINE) for name in defaults)


def _tasks(data: Any) -> list[dict[str, Any]]:
    found = []
    for task in data or []:
        found.append(task)
        found += _tasks(task.get("block"))
    return found


@pytest.mark.parametrize("role", ROLES, ids=lambda r: r.name)
def test_a_role_uses_builtin_modules_or_its_own_and_no_shell(role: Path) -> None:
    own = {p.stem for p in role.glob("library/*.py")}
    for file in [*role.glob("tasks/*.yml"), *role.glob("handlers/*.yml")]:
        for task in _tasks(load(file)):
            modules = set(task) - WORDS
            assert len(modules) <= 1, (file, modules)
            assert all(m in own or (m.startswith("ansible.builtin.") and not m.endswith((".shell", ".raw"))) for m in modules), (
                file,
                modules,
            )


@pytest.mark.parametrize("role", NODE, ids=lambda r: r.name)
def test_no_task_names_the_folder_of_records_but_by_a_variable(role: Path) -> None:
    """An operator may move it."""
    for file in [*role.glob("tasks/*.yml"), *role.glob("templates/*"), *role.glob("vars/*.yml")]:
        assert "/var/lib/fleetctl/before" not in file.read_text("utf-8"), file


SECRET_ROWS = re.compile(r"\b(model_server_units|model_store_files|container_engine_registries)\b")
"""Variables whose rows may hold secrets: environments, signed addresses, headers, passwords."""
SAFE_KEYS = {"name", "argv", "path", "source", "address"}


@pytest.mark.parametrize("role", ROLES, ids=lambda r: r.name)
def test_no_task_tells_an_item_that_may_hold_a_secret(role: Path) -> None:
    """Ansible prints the item of a loop, and what was registered of one, when a task fails; only no_log keeps that in."""
    for file in [*role.glob("tasks/*.yml"), *role.glob("handlers/*.yml")]:
        whole: set[str] = set()
        for task in _tasks(load(file)):
            text = str(task.get("loop", ""))
            texts = [text, *(str(v) for k, v in (task.get("vars") or {}).items() if k in text)]
            secret = any(SECRET_ROWS.search(t) and not _attributes(t) for t in texts) or any(f"{name}.results" in text for name in whole)
            assert not secret or _attributes(text) or task.get("no_log") is True, (file, task["name"])
            whole |= {task["register"]} if secret and "register" in task else set()


def _attributes(text: str) -> bool:
    """Whether a loop goes over single fields of its rows, none of which may hold a secret."""
    found = set(re.findall(r"map\(attribute='(\w+)'", text))
    return bool(found) and found <= SAFE_KEYS


HARMLESS = {"accelerator_access rules", "model_server units"}
"""udevd reads changed rules by itself; a unit that is stopped and gone is forgotten at the next reload."""


@pytest.mark.parametrize("role", NODE, ids=lambda r: r.name)
def test_what_a_role_must_do_does_not_hang_on_what_this_run_has_changed_alone(role: Path) -> None:
    """A run that is cut off between a change and what follows from it leaves no change for the next run to see."""
    for file in sorted(role.glob("tasks/*.yml")):
        if file.name == "absent.yml":
            continue
        for task in _tasks(load(file)):
            assert task.get("notify") is None or task["notify"] in HARMLESS, (file, task["name"])
            if " is changed" in str(task):
                assert re.search(r" is changed or .*(\.stat\.exists|reject\('in')", str(task["when"])), (file, task["name"])
            assert "attr('changed')" not in str(task), (file, task["name"])


def test_uninstall_undoes_every_role_that_changes_something_last_first() -> None:
    (play,) = load(PLAYBOOKS / "uninstall.yml")
    first, *roles = play["roles"]
    assert (first["role"], first["vars"]) == ("apt_packages", {"apt_packages_state": "mended"})
    undone = [r["role"] for r in roles]
    assert set(undone) == {r.name for r in ROLES} - ASIDE
    assert all(r["vars"] == {f"{r['role']}_state": "absent"} for r in roles)
    assert undone[-1] == "node_manifest"
    assert undone.index("model_server") < undone.index("gpu_exporter") < undone.index("amdgpu_driver") < undone.index("apt_ready")
    assert all((PLAYBOOKS / "roles" / r / "tasks" / "absent.yml").exists() for r in undone)


@pytest.mark.parametrize("play", ["rocm_node", "nvidia_node", "upgrade"])
def test_what_was_there_is_on_record_before_a_play_changes_packages(play: str) -> None:
    (found,) = load(PLAYBOOKS / f"{play}.yml")
    roles = [(r["role"], r.get("vars", {}).get(f"{r['role']}_state")) for r in found["roles"]]
    assert roles[:3] == [("preflight", None), ("apt_packages", "mended"), ("node_manifest", "begun")]


@pytest.mark.parametrize("play", ["rocm_node", "nvidia_node", "health_gate", "drain", "fallback_nvidia", "uninstall", "upgrade"])
def test_a_play_goes_in_waves_and_stops_at_the_first_failure(play: str) -> None:
    (found,) = load(PLAYBOOKS / f"{play}.yml")
    assert "node_serial" in found["serial"]
    # On the way home a node that fails keeps none of the others from serving.
    assert found["max_fail_percentage"] == f"{{{{ node_max_fail | default({100 if play == 'fallback_nvidia' else 0}) }}}}"
    assert all(r["tags"] for r in found["roles"])


def _gates(play: str) -> list[tuple[int, dict[str, Any]]]:
    """Return the health gates of a play: their place among its roles, and what they are told."""
    (found,) = load(PLAYBOOKS / f"{play}.yml")
    return [(n, r["vars"]) for n, r in enumerate(found["roles"]) if r["role"] == "health_gate"]


@pytest.mark.parametrize(
    ("play", "driver"), [("rocm_node", "amdgpu_driver"), ("upgrade", "amdgpu_driver"), ("nvidia_node", "nvidia_driver")]
)
def test_the_hardware_is_judged_before_any_server_takes_it_and_servers_after_they_are_started(play: str, driver: str) -> None:
    (found,) = load(PLAYBOOKS / f"{play}.yml")
    names = [(r["role"], r.get("vars", {}).get(f"{r['role']}_state")) for r in found["roles"]]
    (hardware, of_hardware), (answers, of_answers) = _gates(play)
    assert names.index((driver, None)) < hardware < names.index(("model_store", None)) < names.index(("model_server", None)) < answers
    assert (of_hardware["health_gate_units"], of_answers["health_gate_checks"]) == ([], [])
    assert of_hardware.get("health_gate_tier") == ("deep" if play == "upgrade" else None)


def test_on_the_way_home_servers_are_asked_first_and_nothing_takes_their_accelerators_or_reboots() -> None:
    (answers, of_answers), (hardware, of_hardware) = _gates("fallback_nvidia")
    assert answers < hardware
    assert of_answers["health_gate_checks"] == []
    told = {k: v for k, v in of_hardware.items() if k not in ("health_gate_checks", "health_gate_units")}
    assert told == {"health_gate_tier": "quick", "health_gate_wait": 0, "health_gate_may_reboot": False}


def test_only_quick_checks_are_tried_again_and_after_a_reboot_for_as_long_as_the_driver_takes() -> None:
    tasks = _tasks(load(PLAYBOOKS / "roles/health_gate/tasks/hardware.yml"))
    runs = [t for t in tasks if "health_checks" in t]
    assert [(t["health_checks"]["tier"], "until" in t) for t in runs] == [("quick", True), ("quick", True), ("deep", False)]
    assert all("strftime" in t["until"] for t in runs if "until" in t), "by time: a try may take two minutes itself"
    gate, driver = (load(PLAYBOOKS / f"roles/{r}/defaults/main.yml") for r in ("health_gate", "amdgpu_driver"))
    render_nodes = next(t for t in load(PLAYBOOKS / "roles/amdgpu_driver/tasks/present.yml") if t["name"] == "Wait for the render nodes")
    slowest = driver["amdgpu_driver_wait"] + driver["amdgpu_driver_settle"] + render_nodes["retries"] * render_nodes["delay"]
    assert gate["health_gate_boot_wait"] >= slowest


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, PLAYBOOKS / "roles" / "health_gate" / "library" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def gate() -> ModuleType:
    return _module("health_checks")


@pytest.fixture(scope="module")
def answers() -> ModuleType:
    return _module("model_answers")


def test_the_shipped_thresholds_are_checks(gate: ModuleType) -> None:
    thresholds = load(PLAYBOOKS / "vars" / "thresholds.yml")["health_thresholds"]
    assert set(thresholds) == {"none", "mi300x", "h100", "h200"}
    assert [gate.mistakes(checks) for checks in thresholds.values()] == [[], [], [], []]
    mi300x = {c["name"]: c for c in thresholds["mi300x"]}
    assert mi300x["accelerators"]["equals"] == 8
    assert mi300x["rccl_all_reduce"]["at_least"] == 314
    assert (mi300x["host_to_device"]["at_least"], mi300x["device_to_host"]["at_least"]) == (48, 44)
    bandwidths = {gpu: [c["at_least"] for c in thresholds[gpu] if c.get("unit") == "GB/s"] for gpu in ("h100", "h200")}
    links = next(c for c in thresholds["h200"] if c["name"] == "nvlink_inactive")
    shown = "GPU 0: NVIDIA H200\n\t Link 0: 26.562 GB/s\n\t Link 1: %s\n"
    assert [gate.result_of({**links, "argv": ["printf", shown % last]})["state"] for last in ("26.562 GB/s", "<inactive>")] == ["ok", "bad"]
    assert gate.result_of({**links, "argv": ["true"]})["state"] == "unknown"
    assert bandwidths == {"h100": [52, 460], "h200": [55, 480]}


def test_a_threshold_that_is_none_is_refused(gate: ModuleType) -> None:
    bad = [{"name": "a", "argv": ["x"], "pattern": "("}, {"name": "b", "pattern": "x", "at_least": 1, "shell": "id"}]
    assert len(gate.mistakes(bad)) == 4
    both = {"name": "c", "argv": ["x"], "pattern": "x", "key": "x", "at_least": 1, "exit_codes": "1"}
    assert len(gate.mistakes([both])) == 2


KERNEL = "[    0.000000] Linux version 6.8\n[   12.3] amdgpu 0000:05:00.0: amdgpu: {}\n"
BANDWIDTH = "# Out of bounds values : {}\n# Avg bus bandwidth    : 320.1\n"


@pytest.mark.parametrize(
    ("name", "output", "code", "state"),
    [
        ("rccl_all_reduce", BANDWIDTH.format("0 OK"), 0, "ok"),
        ("rccl_all_reduce", BANDWIDTH.format("3 FAILED"), 1, "bad"),
        ("rccl_all_reduce", BANDWIDTH.format("3 FAILED"), 0, "bad"),
        ("rccl_all_reduce", BANDWIDTH.format("0 OK"), 134, "bad"),
        ("rccl_all_reduce", BANDWIDTH.format("0 OK").replace("320.1", "280"), 0, "bad"),
        ("rccl_all_reduce", "unhandled cuda error\n", 1, "unknown"),
        ("driver_faults", "dmesg: read kernel buffer failed: Operation not permitted\n", 1, "unknown"),
        ("driver_faults", KERNEL.format("ring gfx timeout"), 0, "bad"),
        ("driver_faults", KERNEL.format("Fatal error during GPU init"), 0, "bad"),
        ("driver_faults", KERNEL.format("RAS poison is enabled"), 0, "ok"),
        ("memory_faults", KERNEL.format("RAS poison is enabled"), 0, "ok"),
        ("memory_faults", KERNEL.format("0 uncorrectable hardware errors detected in UMC block"), 0, "ok"),
        ("memory_faults", KERNEL.format("10 uncorrectable hardware errors detected in UMC block"), 0, "bad"),
        ("memory_faults", KERNEL.format("poison is consumed by gfx"), 0, "bad"),
        ("memory_faults", "", 0, "unknown"),
        ("uncorrectable_memory_errors", '{"gpu_data": [{"gpu": 0, "ecc": {"total_uncorrectable_count": 0}}]}', 0, "ok"),
        ("uncorrectable_memory_errors", '[{"gpu": 0, "ecc": {"total_uncorrectable_count": 2}}]', 0, "bad"),
        ("uncorrectable_memory_errors", '[{"gpu": 0, "ecc": {"total_uncorrectable_count": "N/A"}}]', 0, "unknown"),
        ("uncorrectable_memory_errors", "no json", 0, "unknown"),
        ("xgmi_errors", '[{"gpu": 0, "xgmi_err": "AMDSMI_XGMI_STATUS_NO_ERRORS"}]', 0, "ok"),
        ("xgmi_errors", '[{"xgmi_err": "AMDSMI_XGMI_STATUS_NO_ERRORS"}, {"xgmi_err": "AMDSMI_XGMI_STATUS_ERROR"}]', 0, "bad"),
        ("xgmi_errors", '[{"gpu": 0, "xgmi_err": "N/A"}]', 0, "unknown"),
        ("bad_pages", '[{"gpu": 0, "pending": "No bad pages found."}]', 0, "ok"),
        ("bad_pages", '[{"gpu": 0, "pending": []}]', 0, "ok"),
        ("bad_pages", '[{"gpu": 0, "pending": [{"page_address": 1}]}]', 0, "bad"),
        ("bad_pages", '[{"gpu": 0, "pending": "N/A"}]', 0, "unknown"),
        ("accelerators", "  Name: gfx942\n" * 8, 1, "unknown"),
    ],
)
def test_a_sick_accelerator_is_never_ok(gate: ModuleType, tmp_path: Path, name: str, output: str, code: int, state: str) -> None:
    checks = {c["name"]: c for c in load(PLAYBOOKS / "vars" / "thresholds.yml")["health_thresholds"]["mi300x"]}
    row = gate.result_of({**checks[name], "argv": _tool(tmp_path, output, code)})
    assert row["state"] == state, row
    assert (row["text"] == "") == (state == "ok")
    assert not (row["reboot_helps"] and "memory" in name), "a reboot would wipe what the memory said"


def _tool(folder: Path, output: str, code: int = 0) -> list[str]:
    (folder / "said").write_text(output)
    (folder / "tool").write_text(f"#!/bin/sh\ncat {folder}/said\nexit {code}\n")
    (folder / "tool").chmod(0o755)
    return [str(folder / "tool")]


@pytest.mark.parametrize(
    ("xid", "state"), [(13, "ok"), (31, "ok"), (43, "ok"), (45, "ok"), (63, "ok"), (48, "bad"), (79, "bad"), (119, "bad")]
)
def test_an_xid_of_a_program_is_no_fault_of_the_accelerator(gate: ModuleType, tmp_path: Path, xid: int, state: str) -> None:
    for gpu in ("h100", "h200"):
        check = next(c for c in load(PLAYBOOKS / "vars" / "thresholds.yml")["health_thresholds"][gpu] if c["name"] == "xid_errors")
        said = f"[ 1.0] boot\n[ 99.1] NVRM: Xid (PCI:0000:41:00): {xid}, pid=4242, name=python3, and so on\n"
        assert gate.result_of({**check, "argv": _tool(tmp_path, said)})["state"] == state


def test_every_check_of_the_kernels_log_wants_proof_that_it_was_read() -> None:
    every = [c for checks in load(PLAYBOOKS / "vars" / "thresholds.yml")["health_thresholds"].values() for c in checks]
    assert all(c.get("proof") for c in every if c["argv"][0] == "dmesg")
    assert all("shows" in c for c in every if c["argv"][0] == "all_reduce_perf"), "a wrong sum at full speed is no pass"


def test_a_program_is_found_in_the_given_folders_too_and_a_check_may_be_done_without(gate: ModuleType, tmp_path: Path) -> None:
    _tool(tmp_path, "320\n")
    deep = {"name": "deep", "argv": ["tool"], "pattern": r"^(\d+)$", "at_least": 314}
    assert gate.result_of(deep)["state"] == "unknown"
    assert gate.result_of(deep, None, [str(tmp_path)])["state"] == "ok"
    verdict = gate.judged([deep], "deep", str(tmp_path / "records"), without=["deep"])
    assert (verdict["ok"], verdict["checks"], verdict["without"]) == (True, [], ["deep"])


@pytest.mark.parametrize(
    ("shown", "failed"),
    [
        ("ActiveState=failed\nSubState=failed\nNRestarts=0\n", True),
        ("ActiveState=activating\nSubState=auto-restart\nNRestarts=3\n", True),
        ("ActiveState=activating\nSubState=auto-restart\nNRestarts=2\n", False),
        ("ActiveState=active\nSubState=running\nNRestarts=9\n", False),
        ("ActiveState=inactive\nSubState=dead\n", False),
        ("", False),
    ],
)
def test_a_server_that_will_not_come_up_is_told_from_one_that_loads(answers: ModuleType, shown: str, failed: bool) -> None:
    assert answers.has_failed(shown) is failed


@pytest.mark.parametrize(
    ("check", "state", "value"),
    [
        ({"argv": ["printf", "1.5\n2.5\n"], "pattern": r"^([\d.]+)$", "at_least": 1.5}, "ok", 1.5),
        ({"argv": ["printf", "1.5\n2.5\n"], "pattern": r"^([\d.]+)$", "at_least": 1.6}, "bad", 1.5),
        ({"argv": ["printf", "1.5\n2.5\n"], "pattern": r"^([\d.]+)$", "take": "max", "at_most": 2}, "bad", 2.5),
        ({"argv": ["printf", "gfx942\ngfx942\n"], "pattern": "^gfx942$", "take": "count", "equals": 8}, "bad", 2.0),
        ({"argv": ["true"], "pattern": "Xid", "take": "count", "equals": 0}, "ok", 0.0),
        ({"argv": ["true"], "pattern": r"(\d+)", "at_least": 0}, "unknown", None),
        ({"argv": ["no-such-tool"], "pattern": "Xid", "take": "count", "equals": 0}, "unknown", None),
        ({"argv": ["printf", "$(id)"], "pattern": "uid=", "take": "count", "equals": 0}, "ok", 0.0),
    ],
)
def test_a_check_is_ok_bad_or_unknown(gate: ModuleType, check: dict[str, Any], state: str, value: float | None) -> None:
    row = gate.result_of({"name": "c", **check})
    assert (row["state"], row["value"]) == (state, value)
    assert (row["text"] == "") == (state == "ok")


def test_a_check_that_hangs_is_ended_with_its_children(gate: ModuleType) -> None:
    begun = time.monotonic()
    row = gate.result_of({"name": "c", "argv": ["sh", "-c", "sleep 30 & sleep 30"], "pattern": "x", "equals": 0, "timeout": 0.3})
    assert (row["state"], row["text"]) == ("unknown", "no answer within 0.3 s")
    assert time.monotonic() - begun < 10


def test_the_deep_part_runs_at_the_first_join_and_after_a_fault_and_never_before_the_quick_part_is_good(
    gate: ModuleType, tmp_path: Path
) -> None:
    quick = {"name": "quick", "argv": ["cat", str(tmp_path / "gpus")], "pattern": "^gfx942$", "take": "count", "equals": 2}
    deep = {"name": "deep", "tier": "deep", "argv": ["printf", "320\\n"], "pattern": r"^(\d+)$", "at_least": 314}
    records = str(tmp_path / "records")

    def judged() -> tuple[bool, str, list[str]]:
        verdict = gate.judged([quick, deep], gate.chosen("auto", records), records)
        assert json.loads((tmp_path / "records" / "health.json").read_text()) == verdict
        return verdict["ok"], verdict["tier"], [r["name"] for r in verdict["checks"]]

    (tmp_path / "gpus").write_text("gfx942\n")
    assert judged() == (False, "deep", ["quick"])
    (tmp_path / "gpus").write_text("gfx942\ngfx942\n")
    assert judged() == (True, "deep", ["quick", "deep"])
    assert judged() == (True, "quick", ["quick"])
    (tmp_path / "gpus").write_text("gfx942\n")
    assert judged() == (False, "quick", ["quick"])
    (tmp_path / "gpus").write_text("gfx942\ngfx942\n")
    assert judged() == (True, "deep", ["quick", "deep"]), "after a fault it is deep again"


def test_the_quick_part_has_one_limit_for_all_of_it(gate: ModuleType, tmp_path: Path) -> None:
    slow = {"name": "slow", "argv": ["sleep", "30"], "pattern": "x", "take": "count", "equals": 0}
    begun = time.monotonic()
    verdict = gate.judged([slow, {**slow, "name": "after"}], "quick", str(tmp_path), 0.3)
    assert time.monotonic() - begun < 10
    assert not verdict["ok"]
    assert [r["state"] for r in verdict["checks"]] == ["unknown", "unknown"]
    assert verdict["checks"][1]["text"] == "no time was left for it"


def test_output_without_proof_is_no_pass(gate: ModuleType) -> None:
    check = {"name": "c", "pattern": "FALSE", "proof": "TRUE|FALSE", "take": "count", "equals": 0}
    assert gate.result_of({**check, "argv": ["printf", "pass: TRUE"]})["state"] == "ok"
    assert gate.result_of({**check, "argv": ["true"]})["state"] == "unknown"
