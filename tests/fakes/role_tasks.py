"""Configure, test stand-in: a role's refusals and templates as Ansible itself evaluates them, without a run. Never a host."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from tests.fakes.ansible_world import PLAYBOOKS


def _load(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8")) if path.exists() else {}


def _trusted(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _trusted(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_trusted(v) for v in value]
    return trust_as_template(value) if isinstance(value, str) else value


def variables_of(role: str, given: Mapping[str, object]) -> dict[str, Any]:
    """Return what a task of the role sees: its defaults, what is given, and its own variables; those that are given are no templates."""
    folder = PLAYBOOKS / "roles" / role
    own = _load(folder / "vars" / "main.yml") or {}
    return {**_trusted(_load(folder / "defaults" / "main.yml")), **given, **_trusted(own)}


def refusals(role: str, given: Mapping[str, object], file: str = "check.yml") -> list[str]:
    """Return the messages of the asserts of a role's file that do not hold, in order.

    What was asked of a host counts as skipped where it is not given.
    """
    found = []
    tasks = _load(PLAYBOOKS / "roles" / role / "tasks" / file)
    given = {**{t["register"]: {"skipped": True, "changed": False} for t in tasks if "register" in t}, **given}
    for task in tasks:
        if (arguments := task.get("ansible.builtin.assert")) is None:
            continue
        templar = Templar(loader=DataLoader(), variables={**variables_of(role, given), **_trusted(task.get("vars", {}))})
        that = arguments["that"] if isinstance(arguments["that"], list) else [arguments["that"]]
        if not all(templar.evaluate_conditional(trust_as_template(str(c))) for c in that):
            found.append(str(templar.template(trust_as_template(arguments["fail_msg"]))))
    return found


def rendered(role: str, template: str, given: Mapping[str, object]) -> str:
    """Return what the role's template makes of variables."""
    text = (PLAYBOOKS / "roles" / role / "templates" / template).read_text("utf-8")
    # As the template module sets it.
    templar = Templar(loader=DataLoader(), variables=variables_of(role, given))
    return str(templar.template(trust_as_template("#jinja2: trim_blocks: True\n" + text), escape_backslashes=False))


def value(role: str, name: str, given: Mapping[str, object]) -> object:
    """Return what a variable of the role comes to."""
    return Templar(loader=DataLoader(), variables=variables_of(role, given)).template(trust_as_template("{{ " + name + " }}"))


def task_of(role: str, file: str, name: str) -> dict[str, Any]:
    """Return a task of a role's file by its name, also one within a block."""

    def within(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [t for task in tasks for t in (task, *within(task.get("block", [])))]

    return next(t for t in within(_load(PLAYBOOKS / "roles" / role / "tasks" / file)) if t["name"] == name)


def holds(role: str, condition: str, given: Mapping[str, object]) -> bool:
    """Tell whether a condition of the role holds, such as a task's `when`."""
    templar = Templar(loader=DataLoader(), variables=variables_of(role, given))
    return bool(templar.evaluate_conditional(trust_as_template(condition)))
