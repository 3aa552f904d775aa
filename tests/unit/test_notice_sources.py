"""Where each pool's notices are had: the fleet file's words, and answers that are read in the background."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleetctl.adapters.notices import polled
from fleetctl.adapters.notices.polled import AllNotices, PolledNotices
from fleetctl.domain.fleet import Connection, Fleet
from fleetctl.domain.ids import PoolId
from fleetctl.domain.people import Signal
from fleetctl.errors import ConfigInvalid
from fleetctl.ports.traffic import Notices
from fleetctl.usecases.no_notices import NoNotices
from fleetctl.wiring.notices import notices_of
from tests.cases.planning_fleet import lab_fleet as fleet

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
POOL = PoolId("mi300x-a")
GOES = Signal(subject="h-1", kind="aws.block_end", severity="critical", seen_at=NOW)


def test_an_answer_is_read_in_the_background_and_kept() -> None:
    asked: list[Signal] = []

    def read() -> tuple[Signal, ...]:
        asked.append(GOES)
        return (GOES,)

    notices = PolledNotices({POOL: read}, lambda: NOW, first_s=5.0)
    assert notices.watches(POOL)
    assert [(s.subject, s.pool) for s in notices.read(POOL)] == [("h-1", POOL)]
    assert notices.read(POOL) == notices.read(POOL)
    assert len(asked) == 1
    assert notices.read(PoolId("other")) == ()


def test_a_reader_that_hangs_holds_up_nobody_and_is_silence_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    notices = PolledNotices({POOL: lambda: (GOES,) if go.wait(10) else ()}, lambda: NOW, first_s=0.05)
    began = time.monotonic()
    assert notices.read(POOL) == ()
    assert notices.read(POOL) == ()
    assert time.monotonic() - began < 5, "one wait of 0.05 s at most"
    monkeypatch.setattr(polled, "STUCK_S", 0.0)
    assert [s.kind for s in notices.read(POOL)] == ["notices.silent"]
    go.set()


def test_a_reader_that_fails_is_silence_and_what_it_said_before_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Signal | Exception] = [GOES, OSError("no route"), RecursionError()]

    def read() -> tuple[Signal, ...]:
        got = answers.pop(0)
        if isinstance(got, Exception):
            raise got
        return (got,)

    monkeypatch.setattr(polled, "EVERY_S", -1.0)
    notices = PolledNotices({POOL: read}, lambda: NOW, first_s=5.0)
    seen = [s.kind for s in notices.read(POOL)]
    assert seen == ["aws.block_end"]
    deadline = time.monotonic() + 10
    while answers and time.monotonic() < deadline:
        notices.read(POOL)
    while "notices.silent" not in (kinds := [s.kind for s in notices._kept[POOL].signals]) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert kinds == ["aws.block_end", "notices.silent"], "silence is told once, and takes back nothing"


def test_several_sources_are_one() -> None:
    one = PolledNotices({POOL: lambda: (GOES,)}, lambda: NOW, first_s=5.0)
    both: Notices = AllNotices((NoNotices(), one))
    assert (both.watches(POOL), both.watches(PoolId("other"))) == (True, False)
    assert [s.subject for s in both.read(POOL)] == ["h-1"]


def _fleet(words: str | None, *, by: str = "existing", clusters: int = 1) -> Fleet:
    made = fleet()
    sources = tuple(Connection(name=f"c{n}", kind="kubernetes", settings={}) for n in range(clusters))
    pools = tuple(replace(p, provisioned_by=by) for p in made.pools[:1])
    settings = {} if words is None else {f"pool.{pools[0].id}.notices": words}
    return replace(made, pools=pools, settings=settings, sources=sources, cells=(), workloads=())


@pytest.mark.parametrize(
    ("words", "by", "watched"),
    [
        (None, "existing", False),
        ("no", "aws", False),
        (None, "aws", True),
        (None, "azure", False),
        ("aws", "existing", True),
        ("http://{address}:9102/", "azure", True),
        ("http://{address}:9102/ aws", "existing", True),
        ("kubernetes:agentpool=mi300x", "existing", True),
        ("kubernetes/c0:agentpool=mi300x,tier!=test", "existing", True),
    ],
)
def test_the_fleet_file_says_where_notices_are_had(words: str | None, by: str, watched: bool, tmp_path: Path) -> None:
    given = _fleet(words, by=by)
    assert notices_of(given, tmp_path, lambda _: (), lambda: NOW).watches(given.pools[0].id) is watched


@pytest.mark.parametrize(
    ("words", "clusters"),
    [
        ("azure", 1),
        ("kubernetes", 1),
        ("kubernetes:", 1),
        ("kubernetes:a=b", 0),
        ("kubernetes:a=b", 2),
        ("kubernetes/c9:a=b", 2),
        ("http://a:1/ http://b:1/", 1),
        ("no aws", 1),
        ("ftp://{address}/", 1),
        ("no\x1b[31m", 1),
    ],
)
def test_what_is_no_source_of_notices_is_refused_by_name(words: str, clusters: int, tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid) as e:
        notices_of(_fleet(words, clusters=clusters), tmp_path, lambda _: (), lambda: NOW)
    assert e.value.code == "config.notices"
    assert f"pool.{_fleet(None).pools[0].id}.notices" in e.value.message
    assert "\x1b" not in e.value.message
