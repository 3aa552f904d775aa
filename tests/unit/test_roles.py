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
ASIDE = {"preflight", "health_gate", "lab_serving", "apt_packages"}
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
    assert found["max_fail_percentage"] == "{{ node_max_fail | default(0) }}"
    assert all(r["tags"] for r in found["roles"])


@pytest.fixture(scope="module")
def gate() -> ModuleType:
    path = PLAYBOOKS / "roles" / "health_gate" / "library" / "health_checks.py"
    spec = importlib.util.spec_from_file_location("health_checks", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
