"""The reference is made from the program and is current: commands, exit codes, error codes, settings, fleet file, example."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import jsonschema
import pytest

from fleetctl.cli.registry import COMMANDS
from fleetctl.cli.topics import EXIT_CODES
from fleetctl.formats.fleet_schema import json_schema
from fleetctl.formats.settings import SPECS
from fleetctl.formats.sources import SOURCES
from fleetctl.formats.yaml_source import read_yaml

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    """Return docs/generate.py as a module."""
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_command_that_is_there_is_documented() -> None:
    page = (REFERENCE / "commands.md").read_text(encoding="utf-8")
    for name, entry in COMMANDS.items():
        if importlib.util.find_spec(entry.module(name)) is not None:
            assert f"### fleetctl {name}\n" in page


def test_every_exit_code_is_documented() -> None:
    from fleetctl import errors

    page = (REFERENCE / "commands.md").read_text(encoding="utf-8")
    constants = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    assert constants == {code for code, _ in EXIT_CODES}
    assert all(f"| {code} | {text} |" in page for code, text in EXIT_CODES)


def test_every_error_code_is_documented(generate: ModuleType) -> None:
    page = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    codes = {raised.code for raised in generate.raised_errors()}
    assert {"config.invalid", "config.missing", "usage.no_command", "internal"} <= codes
    assert [code for code in sorted(codes) if f"| `{code}` |" not in page] == []


def test_a_code_that_is_not_documented_is_seen(generate: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text('raise errors.PlanStale("plan.brand_new", f"Plan {p} is old.", hint="Run: fleetctl plan")\n')
    (raised,) = generate.raised_errors(tmp_path)
    assert raised == ("plan.brand_new", 7, "Plan … is old.", "Run: fleetctl plan")
    assert "plan.brand_new" not in (REFERENCE / "errors.md").read_text(encoding="utf-8")


def test_every_setting_is_documented() -> None:
    page = (REFERENCE / "settings.md").read_text(encoding="utf-8")
    assert all(f"| `{spec.name}` | `FLEETCTL_{spec.name.upper()}` |" in page for spec in SPECS)


def test_every_variable_of_the_environment_is_documented() -> None:
    page = (REFERENCE / "settings.md").read_text(encoding="utf-8")
    between_our_own = {"FLEETCTL_PERMIT", "FLEETCTL_EVENTS", "FLEETCTL_PIN_KEY", "FLEETCTL_COMPLETE"}
    found: set[str] = set()
    for file in (ROOT / "fleetctl").rglob("*.py"):
        found |= set(re.findall(r"\bFLEETCTL_[A-Z][A-Z_]*[A-Z]\b", file.read_text(encoding="utf-8")))
    assert "FLEETCTL_WORKSPACE" in found
    assert sorted(name for name in found - between_our_own if f"`{name}`" not in page) == []


def test_every_page_is_current() -> None:
    run = subprocess.run(
        [sys.executable, str(ROOT / "docs/generate.py"), "--check"], capture_output=True, text=True, check=False, timeout=120
    )
    assert (run.returncode, run.stdout) == (0, ""), "Run: python docs/generate.py"


def test_the_schema_accepts_the_example_and_refuses_mistakes() -> None:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    example = read_yaml((ROOT / "inventory/example/fleet.yaml").read_text(encoding="utf-8")).value
    assert [e.message for e in validator.iter_errors(example)] == []
    for spoil in ({"colour": 1}, {"name": "Not A Name"}, {"policy": {"warm_up": 5}}, {"policy": {"steps": "fast"}}):
        assert list(validator.iter_errors({**example, **spoil})) != [], spoil


def test_every_source_of_the_inventory_has_its_page() -> None:
    for kind, spec in SOURCES.items():
        page = (ROOT / f"docs/how-to/inventory-{'files' if kind == 'table' else kind}.md").read_text(encoding="utf-8")
        assert f"kind: {kind}\n" in page
        assert f"--from {kind}" in page or kind in ("table", "ansible")
        for setting in spec.settings:
            assert setting in page or setting in ("endpoint", "ca_file", "kubeconfig"), (kind, setting)


def test_access_files_are_what_the_clouds_take() -> None:
    role = json.loads((ROOT / "inventory/example/access/azure-role.json").read_text())
    assert set(role) == {"Name", "IsCustom", "Description", "Actions", "NotActions", "DataActions", "NotDataActions", "AssignableScopes"}
    policy = json.loads((ROOT / "inventory/example/access/aws-policy.json").read_text())
    assert policy["Version"] == "2012-10-17"
    assert all(set(s) == {"Sid", "Effect", "Action", "Resource"} and s["Effect"] == "Allow" for s in policy["Statement"])
