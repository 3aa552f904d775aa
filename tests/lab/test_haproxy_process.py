"""Lab: HAProxy's own process - started once, told clearly why not, and gone after a stop."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fleetctl.adapters.routers.haproxy.config import RouterConfig, write_files
from fleetctl.adapters.routers.haproxy.process import HaproxyProcess, find_binary
from fleetctl.adapters.routers.route import CellRoute
from fleetctl.domain.ids import CellId
from fleetctl.errors import ConfigInvalid, LabFailed, ToolMissing
from tests.lab.haproxy_lab import PIN_KEY, Rig, free_port, put, rig, until

pytestmark = pytest.mark.lab


def _lives(pid: int) -> bool:
    """Tell whether a process is there; one that has ended and whose parent has not looked yet is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def own() -> Iterator[Rig]:
    with rig() as found:
        yield found


def test_a_second_start_finds_the_first_and_stop_leaves_nothing(own: Rig) -> None:
    pid = own.process.pid()
    assert pid is not None
    assert own.process.start() == pid
    assert os.getsid(pid) == pid, "in its own session"
    assert PIN_KEY.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    assert own.process.stop() is True
    assert not _lives(pid)
    assert own.process.is_running() is False
    assert own.process.stop() is False


def test_a_stop_waits_for_one_whose_command_line_has_gone_before_it(own: Rig, tmp_path: Path) -> None:
    """An ending process loses its memory, and so its command line, well before it is gone."""
    folder = tmp_path / "own"
    folder.mkdir()
    slow = HaproxyProcess(folder=folder, socket=folder / "none", binary=Path("/bin/false"))
    code = "import signal, time; signal.signal(15, lambda *_: (time.sleep(0.5), exit())); print('ready', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code, str(folder / "haproxy.cfg")], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        (folder / "haproxy.pid").write_text(f"{child.pid}\n", encoding="ascii")
        assert slow.pid() == child.pid
        with pytest.MonkeyPatch.context() as patch:
            asked = iter([True])
            patch.setattr(HaproxyProcess, "_is_mine", lambda self, pid: next(asked, False))
            assert slow.stop() is True
        assert not _lives(child.pid)


def test_a_killed_haproxy_comes_back_with_its_split(own: Rig) -> None:
    put(own.router(), 1_500, token=2)
    pid = own.process.pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: not own.process.is_running(), "dead")
    own.process.start()
    standing = own.router().read(next(iter(own.backends)))
    assert (standing.target_bp, standing.token) == (1_500, 2)


def _bound(holder: socket.socket, port: int) -> bool:
    """Take the port, unless what was stopped still has it."""
    try:
        holder.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True


def test_a_taken_port_is_named(own: Rig) -> None:
    own.process.stop()
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        until(lambda: _bound(holder, own.port), "the port of the stopped router is free", 20.0)
        holder.listen()
        with pytest.raises(LabFailed) as refused:
            own.process.start()
    assert refused.value.code == "lab.router_start"
    assert str(own.port) in refused.value.message
    assert own.process.is_running() is False


def test_a_bad_configuration_is_told_in_haproxys_words(own: Rig) -> None:
    own.process.stop()
    (own.folder / "haproxy.cfg").write_text("global\n    nonsense yes\n")
    with pytest.raises(ConfigInvalid) as refused:
        own.process.start()
    assert "nonsense" in refused.value.message


def test_a_pid_of_somebody_else_is_not_haproxy(own: Rig) -> None:
    own.process.stop()
    (own.folder / "haproxy.pid").write_text(str(os.getpid()))
    assert own.process.is_running() is False
    assert own.process.stop() is False


def test_a_missing_program_is_named(own: Rig) -> None:
    own.process.stop()
    missing: HaproxyProcess = replace(own.process, binary=Path("/nowhere/haproxy"))
    with pytest.raises(ToolMissing) as refused:
        missing.start()
    assert refused.value.code == "tool.haproxy"
    assert find_binary().exists()


@pytest.mark.parametrize("lua", [True, False])
@pytest.mark.parametrize("collector", [0, 9])
def test_the_systems_own_haproxy_takes_the_draft_or_says_which_one_it_needs(tmp_path: Path, lua: bool, collector: int) -> None:
    """That of the distribution, where there is one: 2.6 knows neither arguments nor the queues of our Lua."""
    found = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        pytest.skip("no haproxy of the system is installed")
    told = subprocess.run([found, "-v"], capture_output=True, text=True, check=True).stdout
    version = tuple(int(n) for n in told.split("version ")[1].split(".")[:2])
    cell = CellRoute(cell=CellId("chat"), model="m", baseline=("127.0.0.1:9",), canary=("127.0.0.1:9",))
    config = RouterConfig(
        cells=(cell,),
        port=free_port(),
        socket=tmp_path / "s",
        map_folder=tmp_path / "maps",
        collector_port=collector if lua else 0,
        lua=lua,
    )
    write_files(config, tmp_path)
    process = HaproxyProcess(folder=tmp_path, socket=config.socket, binary=Path(found), pin_key=PIN_KEY)
    if version >= (2, 8) or not lua:
        process.check()
        return
    with pytest.raises(ConfigInvalid) as refused:
        process.check()
    assert "needs HAProxy 2.8 or newer" in refused.value.message
