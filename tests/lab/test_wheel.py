"""The wheel that the tree builds works from an empty directory, without the tree."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that holds the unpacked wheel and nothing of the tree."""
    pytest.importorskip("hatchling")
    place = tmp_path_factory.mktemp("wheel")
    build = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", build, str(place)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    wheel = next(place.glob("fleetctl-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place / "site")
    return place / "site"


def run(installed: Path, here: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run the installed program in a folder, away from the tree."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("FLEETCTL_")} | {"PYTHONPATH": str(installed)}
    argv = [sys.executable, "-P", "-m", "fleetctl.cli", *args]
    return subprocess.run(argv, cwd=here, env=env, capture_output=True, text=True, check=False, timeout=240)


def test_the_wheel_holds_what_the_program_ships(installed: Path) -> None:
    for name in (
        "fleetctl/_shipped/playbooks/serving.yml",
        "fleetctl/_shipped/playbooks/roles/lab_serving/meta/argument_specs.yml",
        "fleetctl/_shipped/playbooks/plugins/callback/fleetctl_events.py",
        "fleetctl/_shipped/terraform/stacks/lab/variables.tf",
        "fleetctl/adapters/routers/haproxy/fleetctl.lua",
        "fleetctl/py.typed",
    ):
        assert (installed / name).is_file(), name
    assert not list(installed.rglob("*.tfstate*"))
    assert not (installed / "tests").exists()


def test_init_and_doctor_from_an_empty_directory(installed: Path, tmp_path: Path) -> None:
    here = "import fleetctl, pathlib; print(pathlib.Path(fleetctl.__file__).resolve())"
    env = os.environ | {"PYTHONPATH": str(installed)}
    where = subprocess.run([sys.executable, "-P", "-c", here], cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    assert Path(where.stdout.strip()).is_relative_to(installed.resolve())
    made = run(installed, tmp_path, "init")
    assert made.returncode == 0, made.stderr
    assert list((tmp_path / "inventory").glob("*/fleet.yaml"))
    doctor = run(installed, tmp_path, "doctor")
    assert doctor.returncode in (0, 1)
    assert "store" in doctor.stdout
    assert "Traceback" not in doctor.stdout + doctor.stderr
    planned = run(installed, tmp_path, "plan")
    assert planned.returncode == 0, planned.stderr
    assert "Nothing was changed." in planned.stdout


def test_a_lab_comes_up_from_an_empty_directory_and_goes_down(installed: Path, tmp_path: Path) -> None:
    up = run(installed, tmp_path, "lab", "up", "--no-llm", "--no-ticker")
    try:
        assert up.returncode == 0, up.stderr
        assert "haproxy" in up.stdout
        planned = run(installed, tmp_path, "plan")
        assert planned.returncode == 0, planned.stderr
        provisioned = run(installed, tmp_path, "provision")
        assert provisioned.returncode == 0, provisioned.stderr
        configured = run(installed, tmp_path, "configure")
        assert configured.returncode == 0, configured.stderr
    finally:
        down = run(installed, tmp_path, "lab", "down")
    assert down.returncode == 0, down.stderr
