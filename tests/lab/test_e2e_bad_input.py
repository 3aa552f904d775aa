"""End to end: bad input and half-way failures: one clear error with its code and the next command, and a rerun that mends it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.lab.lifecycle import FLEET_FILE
from tests.lab.e2e import ROOT, Done, Lab

pytestmark = pytest.mark.lab


def one_error(done: Done, code: str) -> str:
    """Return the only error that a command gave; it must have this code, say what to do next, and show no traceback."""
    assert done.err.count("error[") == 1, done.err
    assert f"error[{code}" in done.err, done.err
    assert "Traceback" not in done.err
    line = next(text for text in done.err.splitlines() if "error[" in text)
    assert "fleetctl " in line, f"no next command: {line}"
    return done.err


@pytest.fixture
def made(tmp_path: Path) -> Lab:
    """Return a workspace with the example fleet that `init` writes."""
    lab = Lab(tmp_path)
    lab.run("init")
    return lab


def fleet_file(lab: Lab) -> Path:
    return next(lab.workspace.glob("inventory/*/fleet.yaml"))


def test_no_fleet_file(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    for command in ("plan", "migrate"):
        one_error(lab.run(command, code=2), "config.")
    assert not (tmp_path / ".fleetctl" / "store.db").exists()
    lab.run("init")
    lab.run("plan")


def test_every_mistake_at_once_with_its_line(made: Lab) -> None:
    path = fleet_file(made)
    good = path.read_text()
    bad = re.sub(r"^( +)weight: 1%.*$|weight: [0-9.]+%", "weight: -5%", good, count=1, flags=re.MULTILINE)
    bad = bad.replace("\npolicy:", "\npolicy:\n  wamr_up: 3s", 1)
    path.write_text(bad)
    said = one_error(made.run("plan", code=2), "config.")
    assert re.search(r"fleet\.yaml:\d+: .*wamr_up", said), said
    path.write_text(good)
    made.run("plan")


def test_a_negative_weight(made: Lab) -> None:
    path = fleet_file(made)
    good = path.read_text()
    path.write_text(re.sub(r"\npolicy:\n", "\npolicy:\n  cap: -5%\n", good, count=1))
    said = one_error(made.run("plan", code=2), "config.")
    assert re.search(r"fleet\.yaml:\d+: .*-5%", said), said
    path.write_text(good)
    made.run("plan")


def test_a_full_disk_under_the_store(made: Lab) -> None:
    limited = (
        "import resource, runpy, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "sys.argv = ['fleetctl', 'plan']\n"
        "runpy.run_module('fleetctl.cli.main', run_name='__main__')\n"
    )
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    made.run("plan")
    full = subprocess.run(
        [sys.executable, "-c", limited], cwd=made.workspace, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    one_error(Done(args=("plan",), code=full.returncode, out=full.stdout, err=full.stderr, seconds=0.0), "store.")
    assert full.returncode == 1
    made.run("plan")
    made.run("audit", "verify")


@contextlib.contextmanager
def tiny_disk(at: Path) -> Iterator[None]:
    """Mount 400 kB at a folder, where this user may."""
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(at)], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip("a tiny tmpfs cannot be mounted here (needs root with CAP_SYS_ADMIN)")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)


def test_a_disk_that_fills_up(made: Lab) -> None:
    state = made.workspace / ".fleetctl"
    state.mkdir(mode=0o700, exist_ok=True)
    with tiny_disk(state):
        made.run("plan")
        filler = state / "filler"
        with contextlib.suppress(OSError), filler.open("wb") as out:
            while True:
                out.write(b"x" * 4096)
                out.flush()
        full = made.run("plan", code=1)
        assert full.err.count("error[store.full]") == 1, full.err
        assert full.err.count("error[") == 1
        filler.unlink()
        made.run("plan")
        made.run("audit", "verify")


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Lab]:
    """Return a lab of its own whose target pool is still to be made."""
    lab = Lab(tmp_path)
    try:
        lab.run("lab", "up", "--no-llm", "--no-load", "--no-ticker", within_s=120)
        yield lab
    finally:
        lab.run("lab", "down", code=None)


def test_what_does_not_fit_and_a_terraform_that_fails_half_way(bare: Lab) -> None:
    lab, path = bare, bare.workspace / FLEET_FILE
    one_error(lab.run("lab", "fault", "latency", "chat-lab", code=1), "lab.no_unit")
    text = path.read_text()
    path.write_text(text.replace("parameters_billion: 23.6", "parameters_billion: 2360"))
    made = json.loads(lab.run("plan", "-o", "json").out)
    outcome = next(o for o in made["outcomes"] if o["cell"] == "summary-lab")
    assert outcome["kind"] == "infeasible"
    assert "GiB" in outcome["reason"]["text"]
    path.write_text(text)
    one_error(lab.run("provision", code=7), "plan.stale")
    lab.run("plan")
    one_error(lab.run("configure", code=1), "configure.no_hosts")
    blocked = lab.record.hosts / "mi300x-lab-2"
    blocked.write_text("a file where the host's folder belongs\n")
    half = lab.run("provision", code=1, within_s=120)
    assert "mi300x-lab-1" in one_error(half, "provision."), "what was made is named"
    blocked.unlink()
    lab.run("provision", within_s=120)
    assert "no changes" in lab.run("provision").out


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_port_that_is_taken_when_servers_are_started(bare: Lab) -> None:
    lab = bare
    lab.run("plan")
    lab.run("provision", within_s=120)
    with socket.socket() as squatter:
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        squatter.bind(("127.0.0.1", lab.record.cell("chat-lab").canary[0]))
        squatter.listen()
        said = one_error(lab.run("configure", code=1, within_s=240), "configure.failed")
        assert "mi300x-lab-1" in said
    lab.run("configure", within_s=240)
    again = lab.run("configure", within_s=240).out
    assert again.count(" 0 changed") == 2
