"""The contract of WaysHome, and what its files owe: one changed byte is refused, keys are ours alone."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from fleetctl.adapters.home.files import WayHomeFiles, make_key
from fleetctl.domain.fleet import Connection, SecretRef
from fleetctl.domain.home import WayHome
from fleetctl.domain.ids import CellId, PoolId, Token, WorkloadId
from fleetctl.errors import CredentialsMissing, UnsafeFallback
from fleetctl.ports.home import WaysHome
from fleetctl.usecases.home_choice import readable_marks
from tests.fakes.clock import START
from tests.fakes.home import MemoryWaysHome
from tests.fakes.rollouts import ANN, CHAT, SUMMARY

ROUTER = Connection(
    name="edge",
    kind="haproxy",
    settings={"socket": "/tmp/fl-00000000/haproxy/haproxy.sock", "url": "http://127.0.0.1:20001"},
    secrets={"pin_key": SecretRef(kind="file", name="/tmp/fl-00000000/haproxy/pin.key")},
)


def way(cell: CellId = CHAT) -> WayHome:
    return WayHome(
        fleet="lab",
        cell=cell,
        workload=WorkloadId("chat"),
        region="lab",
        tenant="team-ä",
        klass="online",
        router=ROUTER,
        source=PoolId("nvidia-lab"),
        cap_bp=10_000,
        paper=('echo "set map ..." | socat - haproxy.sock',),
        made_at=START,
    )


@pytest.fixture
def files(tmp_path: Path) -> WayHomeFiles:
    assert make_key(tmp_path / "w" / "key")
    return WayHomeFiles(tmp_path / "w" / "home", tmp_path / "w" / "key")


@pytest.fixture(params=["memory", "files"])
def ways(request: pytest.FixtureRequest, files: WayHomeFiles) -> WaysHome:
    return MemoryWaysHome() if request.param == "memory" else files


def pipe(key: Path) -> None:
    key.unlink()
    os.mkfifo(key, 0o600)


def code_of(e: pytest.ExceptionInfo[UnsafeFallback] | pytest.ExceptionInfo[CredentialsMissing]) -> str:
    return e.value.code


def test_what_was_written_is_read_and_replaced(ways: WaysHome) -> None:
    assert ways.read_all() == ()
    ways.write(way(SUMMARY))
    ways.write(way())
    newer = replace(way(), cap_bp=5000)
    ways.write(newer)
    assert ways.read(CHAT) == newer
    assert ways.read_all() == (newer, way(SUMMARY))
    assert ways.cells() == (CHAT, SUMMARY)


def test_missing_way_home_is_named(ways: WaysHome) -> None:
    with pytest.raises(UnsafeFallback) as caught:
        ways.read(CHAT)
    assert code_of(caught) == "fallback.no_way_home"


def test_marks_keep_the_higher_token_until_cleared(ways: WaysHome) -> None:
    assert ways.marked() == ()
    ways.write(way())
    first = ways.mark(CHAT, Token(2**20 + 7), START, ANN)
    assert ways.mark(CHAT, Token(9), START + timedelta(seconds=1), ANN) == first
    second = ways.mark(CHAT, Token(2**21 + 7), START + timedelta(seconds=2), ANN)
    other = ways.mark(SUMMARY, Token(1), START, ANN)
    assert readable_marks(ways) == ((second, other), ())
    assert ways.cells() == (CHAT,), "a mark is no way home"
    ways.clear_mark(CHAT)
    ways.clear_mark(CHAT)
    assert readable_marks(ways) == ((other,), ())


def test_every_flipped_byte_is_refused(files: WayHomeFiles, tmp_path: Path) -> None:
    files.write(way())
    path = tmp_path / "w" / "home" / "chat-lab.json"
    good = path.read_bytes()
    for at in range(len(good)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(UnsafeFallback) as caught:
            files.read(CHAT)
        assert code_of(caught) == "fallback.tampered", at
    for bad in (b"", good[:-1], good + b"\n", b" " + good, b"x" * 10, good.replace(b",", b", ", 1)):
        path.write_bytes(bad)
        with pytest.raises(UnsafeFallback) as caught:
            files.read_all()
        assert code_of(caught) == "fallback.tampered"
    path.write_bytes(good)
    assert files.read(CHAT) == way()


def test_one_cells_file_in_anothers_place_is_refused(files: WayHomeFiles, tmp_path: Path) -> None:
    files.write(way())
    files.mark(CHAT, Token(5), START, ANN)
    home = tmp_path / "w" / "home"
    (home / "summary-lab.json").write_bytes((home / "chat-lab.json").read_bytes())
    (home / "summary-lab.returned.json").write_bytes((home / "chat-lab.returned.json").read_bytes())
    (home / "chat-lab.returned.json").write_bytes((home / "chat-lab.json").read_bytes())
    for read in (lambda: files.read(SUMMARY), lambda: files.read_mark(SUMMARY), lambda: files.read_mark(CHAT)):
        with pytest.raises(UnsafeFallback) as caught:
            read()
        assert code_of(caught) == "fallback.tampered"


def test_damaged_mark_is_written_over(files: WayHomeFiles, tmp_path: Path) -> None:
    files.mark(CHAT, Token(2**30), START, ANN)
    (tmp_path / "w" / "home" / "chat-lab.returned.json").write_bytes(b"{")
    other = files.mark(SUMMARY, Token(6), START, ANN)
    good, bad = readable_marks(files)
    assert (good, [(f.cell, f.error.code) for f in bad]) == ((other,), [(CHAT, "fallback.tampered")]), "it stands in no other's way"
    files.clear_mark(SUMMARY)
    new = files.mark(CHAT, Token(5), START, ANN)
    assert readable_marks(files) == ((new,), ())


def test_another_key_refuses(files: WayHomeFiles, tmp_path: Path) -> None:
    files.write(way())
    assert make_key(tmp_path / "other")
    with pytest.raises(UnsafeFallback) as caught:
        WayHomeFiles(tmp_path / "w" / "home", tmp_path / "other").read(CHAT)
    assert code_of(caught) == "fallback.tampered"


def test_key_is_made_once_and_is_ours_alone(tmp_path: Path) -> None:
    key = tmp_path / "w" / "key"
    assert make_key(key)
    text = key.read_text()
    assert not make_key(key)
    assert key.read_text() == text
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
    assert os.listdir(key.parent) == ["key"]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda key: key.chmod(0o640), "credentials.open_file"),
        (lambda key: key.unlink(), "credentials.missing"),
        (lambda key: key.write_text("short"), "credentials.missing"),
        (lambda key: key.write_text("ab" * 31), "credentials.missing"),
        (pipe, "credentials.open_file"),
    ],
    ids=["open", "gone", "no-hex", "short", "pipe"],
)
def test_bad_key_is_refused(files: WayHomeFiles, tmp_path: Path, change: object, code: str) -> None:
    files.write(way())
    change(tmp_path / "w" / "key")  # type: ignore[operator]
    for act in (lambda: files.read(CHAT), lambda: files.write(way())):
        with pytest.raises(CredentialsMissing) as caught:
            act()
        assert code_of(caught) == code


def test_files_are_ours_alone_and_nothing_half_written_stays(files: WayHomeFiles, tmp_path: Path) -> None:
    files.write(way())
    home = tmp_path / "w" / "home"
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert os.listdir(home) == ["chat-lab.json"]
    assert stat.S_IMODE((home / "chat-lab.json").stat().st_mode) == 0o600


def test_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    assert make_key(tmp_path / "key")
    (tmp_path / "file").write_text("")
    with pytest.raises(UnsafeFallback) as caught:
        WayHomeFiles(tmp_path / "file" / "home", tmp_path / "key").write(way())
    assert code_of(caught) == "fallback.unwritable"


def test_name_that_leaves_the_folder_is_refused(files: WayHomeFiles) -> None:
    with pytest.raises(ValueError, match="is not a name"):
        files.read(CellId("../key"))


def test_import_is_light() -> None:
    code = "import sys, fleetctl.adapters.home.files; print(*sys.modules)"
    loaded = set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())
    assert "fleetctl.adapters.home.files" in loaded
    assert not {"fleetctl.domain.home", "fleetctl.domain.canonical", "dataclasses", "sqlite3", "asyncio", "logging"} & loaded
