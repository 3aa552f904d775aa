"""Which arm pays for a line of HAProxy's log, and what the source makes of broken, cut, renewed and streaming logs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fleetctl.adapters.routers import evidence as evidence_module
from fleetctl.adapters.routers.evidence import RouterLogEvidence
from fleetctl.adapters.routers.log import LogTail, Position, Skipped, newest_lines, parse, read_position
from fleetctl.analysis.freeze import class_edges, quantiles
from fleetctl.domain.evidence import Cursor, ladder_key
from fleetctl.domain.ids import CellId
from fleetctl.domain.records import Attempt, GaveUp

CHAT = CellId("chat")
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
T0 = round(NOW.timestamp() * 1000)


def row(**changes: object) -> bytes:
    base: dict[str, object] = {
        "c": "chat", "a": "canary", "srv": "c1", "st": 200, "ts": "--", "t0": T0, "ta": 52, "tr": 50, "b": 900,
        "pt": 40, "ct": 16, "cc": 8, "bp": 5000, "p": "-", "rc": "0",
    }  # fmt: skip
    return json.dumps(base | changes, separators=(",", ":")).encode()


NUMBERS = ("st", "t0", "ta", "pt", "cc", "ct", "tr", "bp", "ac")


@pytest.mark.parametrize("value", ["1e999", "-1e999", "NaN", "1e30", "-1e30", "null", "[]", '"x"', "1" + "0" * 5_000, "4102444800001"])
@pytest.mark.parametrize("key", NUMBERS)
def test_no_number_in_a_line_stops_the_reading_of_a_log_or_reaches_beyond_a_calendar(key: str, value: str) -> None:
    line = row(**{key: 0}).replace(f'"{key}":0'.encode(), f'"{key}":{value}'.encode())
    found = parse(line)
    if isinstance(found, Attempt):
        assert 0 < found.started_ms <= found.ended_ms < 4_200_000_000_000
        assert -1 <= found.prompt_tokens <= 100_000_000
        assert -1 <= found.cached_tokens <= 100_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "log"
    made.mkdir()
    return made


@pytest.fixture
def append(folder: Path) -> Callable[..., None]:
    def write(*lines: bytes, file: int = 1, end: bytes = b"\n") -> None:
        with (folder / f"haproxy-{file}.log").open("ab") as log:
            log.write(b"\n".join(lines) + end)

    return write


def source(folder: Path, at: datetime = NOW + timedelta(seconds=1), **more: object) -> RouterLogEvidence:
    return RouterLogEvidence(folder, now=lambda: at, **more)  # type: ignore[arg-type]


BEGIN = Cursor(position="0:0", since=NOW)


@pytest.mark.parametrize(
    ("changes", "failed", "timed"),
    [
        ({}, False, True),
        ({"a": "baseline", "srv": "b2"}, False, True),
        ({"srv": "b1"}, True, False),  # a canary request that a source backup answered
        ({"srv": "<NOSRV>", "st": 503, "ts": "SC"}, True, False),
        ({"st": 500}, True, False),
        ({"st": 429}, True, False),
        ({"st": 404}, False, False),
        ({"st": -1, "ts": "SH"}, True, False),
        ({"st": 0}, True, False),
        ({"ts": "sD"}, True, False),  # cut in the middle of the answer
        ({"rc": "1"}, True, False),  # only the second try worked
        ({"rc": "+1"}, True, False),
        ({"ta": -1}, False, False),
    ],
)
def test_who_pays_for_an_attempt(changes: dict[str, object], failed: bool, timed: bool) -> None:
    found = parse(row(**changes))
    assert isinstance(found, Attempt)
    assert (found.failed, found.latency_ms is not None) == (failed, timed)


def test_a_client_that_went_away_is_no_attempt_and_counted_by_arm() -> None:
    for line in (row(ts="CD"), row(ts="CH", st=-1), row(rf="DC")):
        found = parse(line)
        assert isinstance(found, GaveUp)
        assert (found.arm, found.ended_ms - found.started_ms) == ("canary", 52)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (row(p="canary"), "pinned"),
        (row(a="-"), "mislabelled"),
        (row(a="baseline", srv="c1"), "mislabelled"),
        (b"guard chat: the lease has lapsed", "other"),
        (b"", "other"),
        (row()[:-9], "broken"),
        (b'{"c":"chat"}', "broken"),
        (row(t0="soon"), "broken"),
        (row(t0=-1), "broken"),
        (row(c=7), "broken"),
        (b'{"c":"chat","t0":-,"ta":3}', "broken"),
        (b"{" * 3000, "broken"),
        (b'{"\xff\xfe":1}', "broken"),
    ],
)
def test_what_is_no_evidence(line: bytes, why: str) -> None:
    assert parse(line) == why


def test_latency_is_the_active_time(folder: Path, append: Callable[..., None]) -> None:
    append(row(ta=40), row(ta=60))
    assert source(folder).read(CHAT, BEGIN).arms["canary"].mean_latency_ms == 50.0


def test_a_line_counts_once_its_end_is_there(folder: Path, append: Callable[..., None]) -> None:
    live = source(folder)
    append(row(), row()[:40], end=b"")
    assert live.read(CHAT, BEGIN).arms["canary"].attempts == 1
    append(row()[40:], row())
    e = live.read(CHAT, BEGIN)
    assert e.arms["canary"].attempts == 3
    assert "broken" not in e.detail


def test_broken_lines_are_counted_and_harmless(folder: Path, append: Callable[..., None]) -> None:
    live = source(folder)
    append(row(), b'{"c":"chat","a":', b"\x00\xff junk", row())
    assert live.read(CHAT, BEGIN).detail == "1 broken"
    append(b'{"half', row(p="baseline"), row(ts="CD"))
    e = live.read(CHAT, BEGIN)
    assert e.detail == "1 aborted, 2 broken, 1 pinned"
    assert e.arms["canary"].attempts == 2
    assert source(folder).read(CHAT, BEGIN) == e


def test_a_restart_brings_a_new_file_and_nothing_counts_twice(folder: Path, append: Callable[..., None]) -> None:
    append(row(), row())
    live = source(folder)
    cursor = replace(live.mark(CHAT), since=NOW)
    assert cursor.position.startswith("1:")
    append(row(srv="b1"))
    assert live.read(CHAT, cursor).arms["canary"].attempts == 1
    append(row(), row(a="baseline", srv="b1"), file=2)
    append(row(), file=10)
    e = live.read(CHAT, cursor)
    assert (e.arms["canary"].attempts, e.arms["canary"].errors, e.arms["baseline"].attempts) == (3, 1, 1)
    assert source(folder).read(CHAT, cursor) == e
    assert live.mark(CHAT).position.startswith("10:")


def test_lines_of_the_wrong_arm_make_the_source_mislabelled(folder: Path, append: Callable[..., None]) -> None:
    append(*[row(a="baseline", srv="c1")] * 2, *[row()] * 20)
    assert source(folder).read(CHAT, BEGIN).state == {"baseline": "mislabelled", "canary": "mislabelled"}


def test_a_slow_trickle_is_not_stale(folder: Path, append: Callable[..., None]) -> None:
    append(*[row(t0=T0 + 15_000 * i) for i in range(5)])
    assert source(folder, NOW + timedelta(seconds=95)).read(CHAT, BEGIN).state["canary"] == "ok"
    assert source(folder, NOW + timedelta(seconds=600)).read(CHAT, BEGIN).state["canary"] == "stale"


def test_a_stream_is_never_timed(folder: Path, append: Callable[..., None]) -> None:
    lines = [row(a=a, srv=s, pt=-1, ct=-1, cc=-1) for a, s in (("baseline", "b1"), ("canary", "c1")) for _ in range(120)]
    append(*lines)
    live = source(folder, streaming=[CHAT], slo_latency_ms={CHAT: 1.0})
    frozen = live.freeze(CHAT, (1.1,), 100)
    assert frozen is not None
    assert (frozen.latency_ms, frozen.scales, frozen.log_sd) == ((), (), 0.0)
    canary = live.read(CHAT, replace(BEGIN, thresholds=frozen)).arms["canary"]
    assert (canary.attempts, canary.timed, canary.misses, dict(canary.ladders)) == (120, 0, 0, {})
    assert [s.present for s in live.describe(CHAT) if s.name == "latency"] == [False, False]


def test_misses_are_requests_slower_than_the_promise(folder: Path, append: Callable[..., None]) -> None:
    append(row(ta=99), row(ta=100), row(ta=101), row(ta=900, st=500))
    assert source(folder, slo_latency_ms={CHAT: 100.0}).read(CHAT, BEGIN).arms["canary"].misses == 1


def test_each_request_is_held_against_its_own_length_class(folder: Path, append: Callable[..., None]) -> None:
    append(*[row(a="baseline", srv="b1", pt=p, ta=t) for p, t in ((10, 20), (1000, 200)) for _ in range(250)])
    live = source(folder)
    frozen = live.freeze(CHAT, (1.25,), 500)
    assert frozen is not None
    assert frozen.class_edges == (1000,)
    assert frozen.latency_ms == ((20.0,) * 5, (200.0,) * 5)
    cursor = replace(live.mark(CHAT), since=NOW, thresholds=frozen)
    append(row(pt=10, ta=30), row(pt=1000, ta=200), row(pt=1000, ta=240), row(pt=-1, ta=20))
    ladders = live.read(CHAT, cursor).arms["canary"].ladders
    assert ladders[ladder_key(1.0)] == (2,) * 5
    assert ladders[ladder_key(1.25)] == (1,) * 5


def test_freezing_uses_the_newest_3000_of_the_baseline(folder: Path, append: Callable[..., None]) -> None:
    append(*[row(a="baseline", srv="b1", ta=500)] * 50, *[row(a="baseline", srv="b1", ta=50), row(ta=9)] * 3000)
    append(row(a="baseline", srv="<NOSRV>", st=503, ts="SC"), file=2)
    frozen = source(folder).freeze(CHAT, (), 200)
    assert frozen is not None
    assert frozen.baseline_n == 3000
    assert frozen.baseline_error_ratio == 1 / 3000
    assert frozen.latency_ms == ((50.0,) * 5,)


@pytest.mark.parametrize(
    ("tokens", "edges"),
    [
        ([], ()),
        ([-1] * 3000, ()),
        ([5] * 3000, ()),
        (list(range(399)), ()),
        (list(range(400)), (200,)),
        (list(range(3000)), (750, 1500, 2250)),
    ],
)
def test_classes_hold_at_least_200_requests(tokens: list[int], edges: tuple[int, ...]) -> None:
    assert class_edges(tokens) == edges


def test_quantiles_are_values_that_occurred() -> None:
    assert quantiles([]) == ()
    assert quantiles([float(v) for v in range(1, 101)]) == (50.0, 75.0, 90.0, 95.0, 99.0)
    assert quantiles([7.0]) == (7.0,) * 5
    assert quantiles([float(v) for v in range(1, 101)], slower=3) == (50.0, 75.0, 90.0, 95.0, 97.0)
    assert quantiles([1.0, 2.0], slower=3) == (1.0,) * 5


def test_positions_read_back() -> None:
    assert read_position(str(Position(file=3, offset=17))) == Position(file=3, offset=17)
    assert read_position("../../etc/passwd") == Position()


def test_newest_lines_are_the_lines_backwards(folder: Path, append: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetctl.adapters.routers.log._CHUNK", 7)
    lines = [f"line {i:03d}".encode() for i in range(40)]
    append(*lines[:25])
    append(*lines[25:], file=2)
    append(b"not whole", file=2, end=b"")
    assert list(newest_lines(folder)) == lines[::-1]
    tail = LogTail(folder)
    assert list(tail.old_lines(Position())) == lines
    append(b" now", b"next", file=2)
    assert list(tail.new_lines()) == [b"not whole now", b"next"]
    assert list(tail.new_lines()) == []


def test_outcomes_keep_only_the_newest(folder: Path, append: Callable[..., None]) -> None:
    append(*[row()] * 6000, row(st=500))
    e = source(folder).read(CHAT, BEGIN)
    assert e.arms["canary"].attempts == 6001
    assert len(e.canary_outcomes) == 5000
    assert e.canary_outcomes.endswith(".x")


def test_a_log_is_read_once_for_all_cells_of_a_router(folder: Path, append: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [CellId(f"cell-{i}") for i in range(40)]
    parsed: list[bytes] = []
    read: list[bytes] = []

    def counted_parse(line: bytes) -> Attempt | GaveUp | Skipped:
        parsed.append(line)
        return parse(line)

    def counted_lines(where: Path) -> Iterator[bytes]:
        for line in newest_lines(where):
            read.append(line)
            yield line

    monkeypatch.setattr(evidence_module, "parse", counted_parse)
    monkeypatch.setattr(evidence_module, "newest_lines", counted_lines)
    append(*[row(c=c, a="baseline", srv="b1", ta=50) for _ in range(30) for c in cells])
    live = source(folder, cells=cells)
    frozen = {c: live.freeze(c, (1.25,), 20) for c in cells}
    assert {f.baseline_n for f in frozen.values() if f is not None} == {30}
    assert (len(read), len(parsed)) == (1_200, 1_200), "read back once, not once per cell"
    cursors = {c: replace(live.mark(c), since=NOW - timedelta(hours=1), thresholds=frozen[c]) for c in cells}
    for c in cells:
        live.read(c, cursors[c])
    parsed.clear()
    append(*[row(c=c, a=a, srv=s) for _ in range(5) for c in cells for a, s in (("baseline", "b1"), ("canary", "c1"))])
    for _ in range(3):
        assert {(e["baseline"].attempts, e["canary"].attempts) for e in (live.read(c, cursors[c]).arms for c in cells)} == {(5, 5)}
    assert len(parsed) == 400, "each new line is parsed once, whatever the number of cells and looks"
    again = live.freeze(cells[0], (1.25,), 20)
    assert again is not None
    assert (again.baseline_n, len(read)) == (35, 1_200), "new lines are added without reading back"


def test_fewer_requests_may_make_a_class_where_the_source_says_so() -> None:
    tokens = [30] * 60 + [200] * 60 + [700] * 60
    assert class_edges(tokens) == ()
    assert class_edges(tokens, 50) == (200, 700)
