"""Provision, tests: the runner of long commands with a program that does not want to stop. Never Terraform itself."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from fleetctl.adapters.terraform import stream
from fleetctl.adapters.terraform.stream import Ended, follow
from tests.fakes.terraform_bench import wait_for

pytestmark = pytest.mark.lab

STUBBORN = """
import pathlib, signal, sys, time
asked = pathlib.Path(sys.argv[1])
signal.signal(signal.SIGINT, lambda *_: asked.write_text(asked.read_text() + "x"))
asked.write_text("")
print('{"type": "hello"}', flush=True)
end = time.monotonic() + 30
while not asked.with_suffix(".go").exists() and time.monotonic() < end:
    time.sleep(0.02)
print("not json", flush=True)
print('{"type": "bye"}', end="", flush=True)
print(" ", flush=True)
asked.with_suffix(".done").touch()
raise SystemExit(3)
"""
PARENT = """
import pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
pathlib.Path(sys.argv[1]).write_text(str(child.pid))
time.sleep(60)
"""


def _follow(tmp_path: Path, code: str, on_line: Callable[[Mapping[str, object]], None] = lambda _: None) -> Ended:
    argv = [sys.executable, "-c", code, str(tmp_path / "asked")]
    return follow(argv, folder=tmp_path, environ=os.environ, log=tmp_path / "log.jsonl", on_line=on_line, deadline_s=60.0)


def _in_background(body: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=body)
    thread.start()
    return thread


def test_lines_come_as_they_are_written_and_the_log_is_private(tmp_path: Path) -> None:
    seen: list[object] = []

    def on_line(line: Mapping[str, object]) -> None:
        seen.append(line["type"])
        (tmp_path / "asked.go").touch()

    ended = _follow(tmp_path, STUBBORN, on_line)
    assert (ended.status, ended.why, seen) == (3, "", ["hello", "bye"])
    assert {p.stat().st_mode & 0o777 for p in (tmp_path / "log.jsonl", tmp_path / "log.err")} == {0o600}


def test_a_second_interrupt_leaves_the_run_alive_and_asked_only_once(tmp_path: Path) -> None:
    asked = tmp_path / "asked"

    def twice() -> None:
        wait_for(lambda: "hello" in (tmp_path / "log.jsonl").read_text() if (tmp_path / "log.jsonl").exists() else False)
        os.kill(os.getpid(), signal.SIGINT)
        wait_for(lambda: asked.read_text() == "x")
        os.kill(os.getpid(), signal.SIGTERM)

    thread = _in_background(twice)
    ended = _follow(tmp_path, STUBBORN)
    thread.join()
    assert (ended.status, ended.why) == (None, "interrupted")
    os.kill(ended.pid, 0)
    asked.with_suffix(".go").touch()
    wait_for(asked.with_suffix(".done").exists)
    assert asked.read_text() == "x"
    assert [run.wait(timeout=10) for run in stream._left_running if run.pid == ended.pid] == [3]


@pytest.mark.parametrize("how", ["interrupted", "killed"])
def test_what_a_run_leaves_in_its_group_is_ended_when_it_was_stopped_or_killed(how: str, tmp_path: Path) -> None:
    asked = tmp_path / "asked"

    def parent_of(child: int) -> int:
        return int(Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[1])

    def once() -> None:
        wait_for(lambda: asked.exists() and asked.read_text() != "")
        if how == "interrupted":
            os.kill(os.getpid(), signal.SIGINT)
        else:
            os.kill(parent_of(int(asked.read_text())), signal.SIGKILL)

    thread = _in_background(once)
    ended = _follow(tmp_path, PARENT)
    thread.join()
    assert (ended.why, ended.status) == (("interrupted", ended.status) if how == "interrupted" else ("", -signal.SIGKILL))
    child = int(asked.read_text())

    def is_gone() -> bool:
        try:
            return Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
        except FileNotFoundError:
            return True

    wait_for(is_gone)


def test_outside_the_main_thread_signals_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "asked.go").touch()
    found: list[Ended] = []
    before = signal.getsignal(signal.SIGINT)
    thread = _in_background(lambda: found.append(_follow(tmp_path, STUBBORN)))
    thread.join(timeout=20)
    assert [e.status for e in found] == [3]
    assert signal.getsignal(signal.SIGINT) is before


def test_what_a_run_writes_is_its_owner_s_alone(tmp_path: Path) -> None:
    """A state holds all that a provider knows, secrets too."""
    before = os.umask(0o022)
    try:
        assert _follow(tmp_path, "import sys; open(sys.argv[1], 'w').write('state')").status == 0
    finally:
        os.umask(before)
    assert (tmp_path / "asked").stat().st_mode & 0o777 == 0o600
