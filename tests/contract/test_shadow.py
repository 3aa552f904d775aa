"""The contract of Shadow, and what its files owe: reading on, half-written lines, a file begun anew."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fleetctl.adapters.shadow import files as shadow_files
from fleetctl.adapters.shadow.files import ShadowFiles
from fleetctl.domain.canonical import canonical, decode
from fleetctl.domain.evidence import Cursor, Pair
from fleetctl.domain.fleet import Connection
from fleetctl.domain.ids import CellId, Token
from fleetctl.errors import EvidenceUnavailable
from fleetctl.ports.traffic import Shadow
from fleetctl.wiring.traffic import Traffic
from tests.fakes.clock import START
from tests.fakes.rollouts import CHAT, SUMMARY
from tests.fakes.shadow import GivenShadow, pair


class Rig:
    """A shadow with a hand that makes comparisons and an eye on its rates."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.rates: dict[CellId, float] = {}
        self.shadow: Shadow
        self.give: Callable[[CellId, Pair], None]
        if kind == "fake":
            fake = GivenShadow()
            self.shadow, self.rates = fake, fake.rates
            self.give = lambda c, p: fake.made.setdefault(c, []).append(p)
        else:
            self.shadow = ShadowFiles(folder, lambda c, milli: self.rates.__setitem__(c, milli / 1000))
            self.give = lambda c, p: append(folder, c, canonical(p) + b"\n")


def append(folder: Path, c: str, data: bytes) -> None:
    (folder / "pairs").mkdir(parents=True, exist_ok=True)
    with open(folder / "pairs" / f"{c}.jsonl", "ab") as f:
        f.write(data)


@pytest.fixture(params=["fake", "files"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Rig:
    return Rig(request.param, tmp_path)


def test_start_and_stop_may_be_repeated(rig: Rig) -> None:
    for _ in range(2):
        rig.shadow.start(CHAT, 2.5, Token(1))
        assert rig.rates == {CHAT: 2.5}
    for _ in range(2):
        rig.shadow.stop(CHAT)
        assert rig.rates == {CHAT: 0.0}
    for bad in (0, -1, 1001, float("nan")):
        with pytest.raises(ValueError, match="copies a second"):
            rig.shadow.start(CHAT, bad, Token(1))


def test_pairs_come_oldest_first_since_the_cursor(rig: Rig) -> None:
    assert rig.shadow.pairs(CHAT, None) == ()
    made = [pair(seconds=n) for n in range(4)]
    for p in made[:3]:
        rig.give(CHAT, p)
    rig.give(SUMMARY, pair(error="canary: status 500"))
    assert rig.shadow.pairs(CHAT, None) == tuple(made[:3])
    rig.give(CHAT, made[3])
    assert rig.shadow.pairs(CHAT, Cursor(position="", since=START + timedelta(seconds=2))) == tuple(made[2:])
    assert rig.shadow.pairs(CHAT, None) == tuple(made)
    assert [p.error for p in rig.shadow.pairs(SUMMARY, None)] == ["canary: status 500"]


@pytest.fixture
def files(tmp_path: Path) -> ShadowFiles:
    return ShadowFiles(tmp_path, lambda c, milli: None)


def test_half_a_line_is_waited_for_and_a_bad_one_is_counted(files: ShadowFiles, tmp_path: Path) -> None:
    line = canonical(pair(1)) + b"\n"
    append(tmp_path, CHAT, line + line[:20])
    assert files.pairs(CHAT, None) == (pair(1),)
    append(tmp_path, CHAT, line[20:] + b'{"_":"Pair"}\n\xff\n\n[]\n' + canonical(pair(2)) + b"\n")
    assert files.pairs(CHAT, None) == (pair(1), pair(1), pair(2))
    assert files.unreadable(CHAT) == 3


def test_file_begun_anew_is_read_anew(files: ShadowFiles, tmp_path: Path) -> None:
    path = tmp_path / "pairs" / f"{CHAT}.jsonl"
    append(tmp_path, CHAT, canonical(pair(1)) + b"\n" + canonical(pair(2)) + b"\n")
    assert len(files.pairs(CHAT, None)) == 2
    path.write_bytes(canonical(pair(3)) + b"\n")
    assert files.pairs(CHAT, None) == (pair(3),)
    new = path.with_suffix(".new")
    new.write_bytes((canonical(pair(4)) + b"\n") * 3)
    os.replace(new, path)
    assert files.pairs(CHAT, None) == (pair(4),) * 3
    path.unlink()
    assert files.pairs(CHAT, None) == ()


def counting(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return the lines that are understood from now on."""
    found: list[bytes] = []

    def noting(kind: type[Pair], line: bytes) -> Pair:
        found.append(line)
        return decode(kind, line)

    monkeypatch.setattr(shadow_files, "decode", noting)
    return found


def test_what_earlier_rollouts_compared_is_not_understood_again_and_is_there_for_who_asks(
    files: ShadowFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    understood = counting(monkeypatch)
    for n in range(10):
        append(tmp_path, CHAT, canonical(pair(n)) + b"\n")
    append(tmp_path, CHAT, b"[]\n")
    for least in (8, 8, 9):
        assert files.pairs(CHAT, Cursor(position="", since=START + timedelta(seconds=least))) == tuple(pair(n) for n in range(least, 10))
        assert len(understood) == 3, "two pairs and what is none, once"
    assert files.unreadable(CHAT) == 1
    append(tmp_path, CHAT, canonical(pair(10)) + b"\n")
    assert files.pairs(CHAT, Cursor(position="", since=START + timedelta(seconds=9))) == (pair(9), pair(10))
    assert files.pairs(CHAT, Cursor(position="", since=START + timedelta(seconds=5))) == tuple(pair(n) for n in range(5, 11))
    assert files.pairs(CHAT, None) == tuple(pair(n) for n in range(11))


def test_each_tick_reads_on_where_the_one_before_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the composition root hands it out: once for each cell, however often it is asked."""
    understood = counting(monkeypatch)
    edge = Connection(name="edge", kind="haproxy", settings={"shadow_folder": str(tmp_path)})
    root: Any = SimpleNamespace(_shadows={}, _connection_of=lambda _: edge, _forbids_copies=lambda _: "")
    for n in range(5):
        append(tmp_path, CHAT, canonical(pair(n)) + b"\n")
        assert len(Traffic.shadow_of(root, CHAT).pairs(CHAT, Cursor(position="", since=START))) == n + 1
        assert len(understood) == n + 1
    assert Traffic.shadow_of(root, SUMMARY).pairs(SUMMARY, None) == ()


def test_file_that_cannot_be_read_is_named(files: ShadowFiles, tmp_path: Path) -> None:
    (tmp_path / "pairs" / f"{CHAT}.jsonl").mkdir(parents=True)
    with pytest.raises(EvidenceUnavailable) as caught:
        files.pairs(CHAT, None)
    assert caught.value.code == "evidence.down"


def test_rate_is_passed_in_thousandths(tmp_path: Path) -> None:
    asked: list[tuple[str, int]] = []
    shadow = ShadowFiles(tmp_path, lambda c, milli: asked.append((c, milli)))
    shadow.start(CHAT, 0.4, Token(1))
    shadow.start(CHAT, 0.0001, Token(1))
    shadow.stop(CHAT)
    assert asked == [(CHAT, 400), (CHAT, 1), (CHAT, 0)]
