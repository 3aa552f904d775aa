"""Provision: every module and stack is formatted, valid, and keeps what its own tests say, by a real Terraform.

azurerm is the lab double (schema of 5.2 from facts); aws is the genuine provider, where FLEETCTL_TF_MIRROR names a mirror that has it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.doubles.arm import ArmDouble
from tests.doubles.mirror import MIRROR, aws_mirror, make_mirror

ROOT = Path(__file__).resolve().parents[2] / "terraform"
TERRAFORM = shutil.which("terraform")
AZURE = sorted(p.name for p in (ROOT / "modules").glob("*azure"))
AWS = sorted(p.name for p in (ROOT / "modules").iterdir() if p.name.endswith("aws") or p.name.startswith("alb"))
EXAMPLES = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "modules").glob("*/examples/*"))
pytestmark = [pytest.mark.lab, pytest.mark.skipif(TERRAFORM is None, reason="terraform is not on PATH")]
needs_aws = pytest.mark.skipif(aws_mirror() is None, reason=f"{MIRROR} names no mirror with the genuine aws provider")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a copy of terraform/ and a mirror."""
    pytest.importorskip("tf", reason="the package tf (a development dependency) is not installed")
    folder = tmp_path_factory.mktemp("modules")
    shutil.copytree(ROOT, folder / "terraform")
    make_mirror(folder)
    return folder


def run(bench: Path, folder: str, *argv: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run Terraform in a folder of the copy."""
    assert TERRAFORM is not None
    env = {k: v for k, v in os.environ.items() if not k.startswith("TF_")}
    env |= {"TF_CLI_CONFIG_FILE": str(bench / "terraform.rc"), "TF_IN_AUTOMATION": "1", **(environ or {})}
    return subprocess.run(
        [TERRAFORM, *argv], cwd=bench / "terraform" / folder, env=env, capture_output=True, text=True, timeout=240, check=False
    )


def ready(bench: Path, folder: str) -> None:
    """Initialize a folder without its backend."""
    done = run(bench, folder, "init", "-backend=false", "-input=false", "-no-color")
    assert done.returncode == 0, done.stderr


def test_everything_is_formatted(bench: Path) -> None:
    done = run(bench, "", "fmt", "-check", "-recursive", "-no-color")
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    "stack", ["azure", pytest.param("lab", marks=pytest.mark.slow), pytest.param("aws", marks=[needs_aws, pytest.mark.slow])]
)
def test_the_stack_is_valid(bench: Path, stack: str) -> None:
    ready(bench, f"stacks/{stack}")
    done = run(bench, f"stacks/{stack}", "validate", "-no-color")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "module",
    [
        *(pytest.param(m, marks=[] if m == "gpu_vms_azure" else pytest.mark.slow) for m in AZURE),
        *(pytest.param(m, marks=[needs_aws, pytest.mark.slow]) for m in AWS),
    ],
)
def test_the_module_keeps_its_own_tests(bench: Path, module: str, tmp_path: Path) -> None:
    ready(bench, f"modules/{module}")
    with ArmDouble(tmp_path) as arm:
        done = run(bench, f"modules/{module}", "test", "-no-color", environ=arm.environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 failed" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "example", [pytest.param(e, marks=[needs_aws] if e.split("/")[1] in AWS else []) for e in EXAMPLES], ids=lambda e: e.replace("/", "-")
)
def test_an_example_is_valid(bench: Path, example: str) -> None:
    ready(bench, example)
    done = run(bench, example, "validate", "-no-color")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_a_misspelled_argument_is_refused_by_the_double_as_by_azurerm(bench: Path, tmp_path: Path) -> None:
    folder = bench / "terraform" / "modules" / "misspelled"
    folder.mkdir()
    shutil.copy(ROOT / "modules" / "network_azure" / "versions.tf", folder)
    (folder / "main.tf").write_text('resource "azurerm_resource_group" "x" {\n  name     = "x"\n  locaton = "eastus2"\n}\n')
    try:
        ready(bench, "modules/misspelled")
        done = run(bench, "modules/misspelled", "validate", "-no-color")
        assert done.returncode != 0
        assert "locaton" in done.stderr + done.stdout
    finally:
        shutil.rmtree(folder)
