"""Service and host tools: idempotent, not fooled by reused ids, clear when a unit does not start."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from fleetctl.lab.host import create_host, destroy_host
from fleetctl.lab.processes import is_alive, mark
from fleetctl.lab.service import process_of, start, status, stop
from fleetctl.lab.units import UnitConfig, python_env, write_unit
from tests.lab.lab_tools import PYTHON, engine, until

pytestmark = pytest.mark.lab
SLEEPER = "import sys, threading; print('began', flush=True); threading.Event().wait()"


def unit(folder: Path, code: str, name: str = "u", **config: str | int | float) -> None:
    whole: UnitConfig = dict(config)
    write_unit(folder, name, {"argv": [PYTHON, "-c", code], "env": {}, "config": whole})


def tool(*argv: str) -> tuple[int, dict[str, object]]:
    ran = subprocess.run([PYTHON, "-m", *argv], capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **python_env()})
    return ran.returncode, json.loads(ran.stdout) if ran.stdout else {"stderr": ran.stderr}


def test_start_and_stop_change_something_once(tmp_path: Path) -> None:
    unit(tmp_path, SLEEPER)
    try:
        first = start(tmp_path, "u")
        assert first.changed
        assert first.state == "running"
        assert os.getsid(first.pid) == first.pid
        again = start(tmp_path, "u")
        assert not again.changed
        assert again.pid == first.pid
        assert status(tmp_path, "u").pid == first.pid
    finally:
        assert stop(tmp_path, "u").changed
    assert not stop(tmp_path, "u").changed
    assert status(tmp_path, "u").state == "stopped"
    assert not (tmp_path / "u.pid").exists()


def test_a_changed_unit_is_started_again_and_white_space_is_no_change(tmp_path: Path) -> None:
    unit(tmp_path, SLEEPER)
    try:
        first = start(tmp_path, "u")
        path = tmp_path / "u.json"
        path.write_text(json.dumps(json.loads(path.read_text())))
        assert not start(tmp_path, "u").changed
        unit(tmp_path, SLEEPER, note="new")
        second = start(tmp_path, "u")
        assert second.changed
        assert second.pid != first.pid
        assert mark(first.pid) is None
    finally:
        stop(tmp_path, "u")


def test_a_reused_id_is_left_alone(tmp_path: Path) -> None:
    unit(tmp_path, SLEEPER)
    other = subprocess.Popen([PYTHON, "-c", SLEEPER], stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        first = start(tmp_path, "u")
        pid_file = tmp_path / "u.pid"
        written = json.loads(pid_file.read_text())
        written["start_ticks"] -= 500
        stop(tmp_path, "u")
        pid_file.write_text(json.dumps({**written, "pid": other.pid}))
        assert status(tmp_path, "u").state == "stopped"
        assert not stop(tmp_path, "u").changed
        assert other.poll() is None
        pid_file.write_text(json.dumps({**written, "pid": other.pid}))
        second = start(tmp_path, "u")
        assert second.changed
        assert second.pid not in (first.pid, other.pid)
        assert other.poll() is None
    finally:
        stop(tmp_path, "u")
        other.kill()
        other.wait()


def test_what_a_unit_started_ends_with_it_also_when_it_ignores_sigterm(tmp_path: Path) -> None:
    code = (
        (
            "import signal, subprocess, sys, threading\n"
            "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            f"child = subprocess.Popen([sys.executable, '-c', {SLEEPER!r}])\n"
            "open('child', 'w').write(str(child.pid))\n"
            "threading.Event().wait()\n"
        )
        .replace("'child'", repr(str(tmp_path / "child")), 1)
        .replace("open('child'", f"open({str(tmp_path / 'child')!r}")
    )
    unit(tmp_path, code, ready_file=str(tmp_path / "child"))
    import fleetctl.lab.service as service

    grace, service.STOP_GRACE_S = service.STOP_GRACE_S, 0.3
    try:
        assert start(tmp_path, "u").state == "running"
        until(lambda: (tmp_path / "child").read_text() != "", "child")
        child = mark(int((tmp_path / "child").read_text()))
        assert child is not None
    finally:
        assert stop(tmp_path, "u").changed
        service.STOP_GRACE_S = grace
    until(lambda: not is_alive(child), "the child ends too")


def test_a_unit_that_ends_says_why(tmp_path: Path) -> None:
    unit(tmp_path, "print('no such weights'); raise SystemExit(3)", settle_s=2)
    failed = start(tmp_path, "u")
    assert failed.state == "failed"
    assert failed.log == ("no such weights",)
    assert "ended" in failed.error
    write_unit(tmp_path, "u", {"argv": ["/no/such/program"], "env": {}, "config": {}})
    assert "cannot be run" in start(tmp_path, "u").error


def test_a_unit_that_never_answers_says_so(tmp_path: Path) -> None:
    unit(tmp_path, SLEEPER, port=1, health_wait_s=0.3)
    try:
        failed = start(tmp_path, "u")
        assert failed.state == "failed"
        assert "/health on port 1" in failed.error
    finally:
        stop(tmp_path, "u")


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with engine(tmp_path) as port:
        argv = [PYTHON, "-m", "fleetctl.lab.engine", "--config", str(other / "u.json")]
        config: UnitConfig = {"port": port, "model": "m", "ttft_ms": 1, "token_ms": 1, "settle_s": 10}
        write_unit(other, "u", {"argv": argv, "env": python_env(), "config": config})
        failed = start(other, "u")
        stop(other, "u")
    assert failed.state == "failed"
    assert failed.log == (f"port {port} is taken",)


def test_the_tool_prints_one_line(tmp_path: Path) -> None:
    unit(tmp_path, SLEEPER)
    try:
        code, said = tool("fleetctl.lab.service", "start", str(tmp_path), "u")
        assert code == 0
        assert (said["changed"], said["state"], said["emulated"]) == (True, "running", True)
        code, said = tool("fleetctl.lab.service", "start", str(tmp_path), "u")
        assert (code, said["changed"]) == (0, False)
        found = process_of(tmp_path, "u")
        assert found is not None
        assert said["pid"] == found.pid
    finally:
        code, said = tool("fleetctl.lab.service", "stop", str(tmp_path), "u")
    assert (code, said["changed"], said["state"]) == (0, True, "stopped")
    code, said = tool("fleetctl.lab.service", "start", str(tmp_path), "absent")
    assert (code, said["state"]) == (1, "failed")
    assert "no unit absent" in str(said["error"])
    assert tool("fleetctl.lab.service", "start", str(tmp_path), "../u")[0] == 1
    assert tool("fleetctl.lab.service", "restart", str(tmp_path), "u")[0] == 2


def test_a_host_is_made_once_and_goes_with_its_units(tmp_path: Path) -> None:
    folder = tmp_path / "mi300x-lab-1"
    ask = json.dumps({"id": "mi300x-lab-1", "folder": str(folder), "pool": "mi300x-lab", "delay_s": 0})
    assert tool("fleetctl.lab.host", "create", ask) == (0, {"changed": True, "folder": str(folder), "emulated": True})
    assert tool("fleetctl.lab.host", "create", ask)[1]["changed"] is False
    assert folder.stat().st_mode & 0o777 == 0o700
    unit(folder, SLEEPER)
    running = start(folder, "u")
    assert tool("fleetctl.lab.host", "destroy", ask)[1]["changed"] is True
    assert not folder.exists()
    assert mark(running.pid) is None
    assert tool("fleetctl.lab.host", "destroy", ask)[1]["changed"] is False


def test_a_folder_that_is_no_host_is_never_removed(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis").write_text("years of work")
    with pytest.raises(ValueError, match="not the folder"):
        destroy_host(tmp_path / "mine", "mine")
    create_host(tmp_path / "h", {"id": "h"})
    with pytest.raises(ValueError, match="not the folder"):
        destroy_host(tmp_path / "h", "other")
    for bad in (Path("relative"), tmp_path / ".." / "x"):
        with pytest.raises(ValueError, match="absolute"):
            create_host(bad, {"id": "h"})
    with pytest.raises(ValueError, match="does not name"):
        create_host(tmp_path / "h2", {"id": "../h"})
    assert (tmp_path / "mine" / "thesis").exists()
