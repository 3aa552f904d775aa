"""Lab: what the split of a real HAProxy keeps - exact, stable, fenced, capped, and kept over a restart."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fleetctl.adapters.deadline import Deadline
from fleetctl.adapters.routers.haproxy.maps import Standing, read_standing, write_standing
from fleetctl.adapters.routers.haproxy.wire import AdminSocket, value_of
from fleetctl.adapters.routers.served import last_new_request_ms
from fleetctl.domain.evidence import Cursor
from fleetctl.domain.ids import CellId, Token
from fleetctl.domain.split import Applied, Drained, Split, Stale
from fleetctl.errors import TrafficNotApplied
from tests.lab.haproxy_lab import CELL, SOURCE, STREAM, TARGET, Rig, in_an_hour, put, rig, until

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def shared() -> Iterator[Rig]:
    with rig() as found:
        yield found


@pytest.fixture
def own() -> Iterator[Rig]:
    with rig() as found:
        yield found


def _now() -> datetime:
    """Return now in whole milliseconds, as the log has it."""
    return datetime.fromtimestamp(time.time_ns() // 1_000_000 / 1_000, UTC)


def _floor(shared: Rig) -> int:
    return shared.router().read(CELL).token


def test_ten_percent_is_ten_percent_and_growth_moves_new_buckets_only(shared: Rig) -> None:
    keys = [f"conversation-{n}" for n in range(2_000)]
    router = shared.router()
    token = _floor(shared) + 1
    put(router, 1_000, token=token)
    at_10 = shared.split(keys)
    put(router, 2_500, token=token)
    some = keys[:800]
    at_25 = shared.split(some)
    on_10, on_25 = ({key for key, side in found.items() if side == "c"} for found in (at_10, at_25))
    assert 0.09 <= len(on_10) / len(keys) <= 0.11
    assert 0.21 <= len(on_25) / len(some) <= 0.29
    assert on_10 & set(some) < on_25, "nobody who was on the target came back"
    put(router, 1_000, token=token)
    again = keys[:200]
    assert {key for key, side in shared.split(again).items() if side == "c"} == on_10 & set(again)


def test_of_four_racing_writers_the_highest_token_stands(shared: Rig) -> None:
    first = _floor(shared) + 1
    tokens = range(first, first + 400)
    outcomes: dict[int, str] = {}

    def write(mine: list[int]) -> None:
        router = shared.router()
        for token in mine:
            fenced = router.fence(CELL, Token(token))
            if isinstance(fenced, Stale):
                outcomes[token] = "fenced off"
                continue
            done = router.set(Split(cell=CELL, target_bp=token % 9_000, cap_bp=10_000, token=Token(token), lease_until=in_an_hour()))
            outcomes[token] = "set" if isinstance(done, Applied) else "stale"

    writers = [threading.Thread(target=write, args=(list(tokens[n::4]),)) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(outcomes) == 400
    standing = shared.router().read(CELL)
    assert standing.token == tokens[-1]
    last_set = max(token for token, how in outcomes.items() if how == "set")
    assert last_set == tokens[-1]
    assert standing.target_bp == tokens[-1] % 9_000
    in_file = read_standing(shared.folder, CELL)
    assert in_file is not None
    assert (in_file.bp, in_file.token) == (standing.target_bp, standing.token), "the start-up files hold the winner too"


def test_the_router_itself_refuses_stale_and_senseless_orders(shared: Rig) -> None:
    token = _floor(shared) + 1
    put(shared.router(), 700, token=token)
    admin = AdminSocket(shared.process.socket)
    refusals = {
        f"fleetctl set {CELL} 900 10000 {token - 1} 1": f"stale {token}",
        f"fleetctl set {CELL} 900 10000 {token + 1} 1": f"stale {token}",
        f"fleetctl set {CELL} -5 10000 {token} 1": "bad number",
        f"fleetctl set {CELL} 10001 10001 {token} 1": "bad range",
        f"fleetctl set {CELL} 99999999999999999999 10000 {token} 1": "bad number",
        f"fleetctl set {CELL} 900 800 {token} 1": "bad range",
        f"fleetctl set {CELL} 9.5 10000 {token} 1": "bad number",
        f"fleetctl set {CELL} 0x10 10000 {token} 1": "bad number",
        f"fleetctl set {CELL}": "bad number",
        f"fleetctl fence {CELL} {token}": f"stale {token}",
        f"fleetctl fence {CELL} -1": "bad token",
        "fleetctl read nobody": "unknown",
        "fleetctl read": "unknown",
    }
    assert {command: admin.ask(command, Deadline()) for command in refusals} == refusals
    assert shared.router().read(CELL).target_bp == 700


def test_a_foreign_write_is_shown_and_does_not_hold_up_going_home(shared: Rig) -> None:
    token = _floor(shared) + 1
    router = shared.router()
    put(router, 500, token=token, cap=1_000)
    AdminSocket(shared.process.socket).ask(f"set map {shared.folder}/weight.map {CELL} 9000", Deadline())
    found = router.read(CELL)
    assert (found.target_bp, found.cap_bp) == (9_000, 9_000)
    put(router, 0, token=token, cap=1_000)
    assert router.read(CELL).target_bp == 0


def test_a_file_that_fails_or_is_slow_never_holds_up_going_home(shared: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    router = shared.router()
    token = _floor(shared) + 1
    put(router, 5_000, token=token)
    release = threading.Event()

    def slow(folder: Path, cell: str, new: Standing) -> None:
        release.wait(5)

    monkeypatch.setattr("fleetctl.adapters.routers.haproxy.router.write_standing", slow)
    began = time.monotonic()
    late = put(router, 1_000, token=token)
    assert time.monotonic() - began < 1
    assert "within 200 ms" in late.reported
    release.set()

    def full(folder: Path, cell: str, new: Standing) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fleetctl.adapters.routers.haproxy.router.write_standing", full)
    assert "No space left" in put(router, 0, token=token).reported
    assert router.read(CELL).target_bp == 0
    monkeypatch.undo()
    assert put(router, 0, token=token).reported == "", "the next set writes the file"
    standing = read_standing(shared.folder, CELL)
    assert standing is not None
    assert standing.bp == 0


def test_words_for_many_cells_do_what_the_same_words_alone_do(own: Rig) -> None:
    router, nobody = own.router(), CellId("nobody")
    for c in (CELL, STREAM):
        put(router, 3_000, token=7, cell=c)
    assert router.fence(STREAM, Token(50)) == replace(router.read(STREAM), token=Token(50))
    found = router.read_many((CELL, nobody, STREAM))
    assert (found[CELL], found[STREAM]) == (router.read(CELL), router.read(STREAM))
    refused = found[nobody]
    assert isinstance(refused, TrafficNotApplied)
    assert refused.code == "traffic.unknown_cell"

    fenced = router.fence_many({CELL: Token(20), STREAM: Token(20), nobody: Token(20)})
    assert fenced[CELL] == router.read(CELL)
    assert fenced[STREAM] == Stale(cell=STREAM, seen=Token(50))
    assert router.read(CELL).token == 20
    standing = read_standing(own.folder, CELL)
    assert standing is not None
    assert (standing.bp, standing.token) == (3_000, 20)
    assert isinstance(own.router().fence(CELL, Token(20)), Stale), "another writer with the same token is refused"

    def wanted(c: CellId, bp: int, token: int) -> Split:
        return Split(cell=c, target_bp=bp, cap_bp=10_000, token=Token(token), lease_until=in_an_hour())

    done = router.set_many([wanted(CELL, 0, 20), wanted(STREAM, 0, 20), wanted(nobody, 0, 20)])
    assert done[CELL] == Applied(split=router.read(CELL))
    assert done[STREAM] == Stale(cell=STREAM, seen=Token(50))
    assert (router.read(CELL).target_bp, router.read(STREAM).target_bp) == (0, 3_000)
    both = router.set_many([wanted(CELL, 500, 20), wanted(STREAM, 0, 50)])
    assert all(isinstance(a, Applied) and a.reported == "" for a in both.values())
    own.process.restart()
    assert (router.read(CELL).target_bp, router.read(STREAM).target_bp) == (500, 0), "the start-up files hold both"
    assert (router.read(CELL).token, router.read(STREAM).token) == (20, 50)


def test_many_words_without_our_lua_do_what_they_do_alone() -> None:
    with rig(lua=False) as bare:
        router = bare.router()
        for c in (CELL, STREAM):
            put(router, 3_000, token=7, cell=c)
        assert router.read_many((CELL, STREAM)) == {c: router.read(c) for c in (CELL, STREAM)}
        assert all(isinstance(s, Split) for s in router.fence_many({CELL: Token(9), STREAM: Token(9)}).values())
        zero = [Split(cell=c, target_bp=0, cap_bp=10_000, token=Token(9), lease_until=in_an_hour()) for c in (CELL, STREAM)]
        assert all(isinstance(a, Applied) for a in router.set_many(zero).values())
        assert {router.read(c).target_bp for c in (CELL, STREAM)} == {0}


def test_more_commands_than_a_line_holds_are_told_apart_and_none_can_hide_a_second(shared: Rig) -> None:
    admin, path = AdminSocket(shared.process.socket), shared.folder / "weight.map"
    put(shared.router(), 700, token=_floor(shared) + 1)
    many = [command for _ in range(300) for command in (f"fleetctl read {CELL}", f"get map {path} {CELL}", "fleetctl read nobody")]
    found = admin.ask_many(many, Deadline())
    assert len(found) == 900
    assert {a.split(" ")[1] for a in found[::3]} == {"700"}
    assert {value_of(a) for a in found[1::3]} == {"700"}
    assert set(found[2::3]) == {"unknown"}
    assert admin.ask_many((), Deadline()) == ()
    with pytest.raises(TrafficNotApplied) as refused:
        admin.ask_many([f"fleetctl read {CELL}", f"fleetctl read {CELL};fleetctl home {CELL}"], Deadline())
    assert refused.value.code == "traffic.unsafe_command"
    assert shared.router().read(CELL).target_bp == 700


def test_a_file_with_a_higher_token_is_left_alone(tmp_path: Path) -> None:
    high = Standing(bp=100, cap_bp=1_000, token=9, lease_ms=5)
    write_standing(tmp_path, CELL, high)
    write_standing(tmp_path, CELL, Standing(bp=5_000, cap_bp=10_000, token=8, lease_ms=5))
    assert read_standing(tmp_path, CELL) == high


def test_a_restart_keeps_split_fence_and_lease(own: Rig) -> None:
    lease = in_an_hour()
    put(own.router(), 2_500, token=5, cap=4_000, lease=lease)
    before = own.router().read(CELL)
    own.process.restart()
    assert own.router().read(CELL) == before
    assert own.router().set(Split(cell=CELL, target_bp=0, cap_bp=0, token=Token(4), lease_until=lease)) == Stale(cell=CELL, seen=Token(5))
    assert [path.name for path in sorted(own.process.log_folder.glob("haproxy-*.log"))] == ["haproxy-1.log", "haproxy-2.log"]


def test_a_dead_source_keeps_the_cap_and_a_dead_target_is_answered_by_the_source(own: Rig) -> None:
    own.healthy()
    put(own.router(), 2_000, token=1)
    keys = [f"k{n}" for n in range(200)]
    on_target = {key for key, side in own.split(keys).items() if side == "c"}
    for name in ("b1", "b2"):
        own.backends[CELL][name].stop()
    until(lambda: own.status(CELL)["b1"][0] == own.status(CELL)["b2"][0] == "DOWN", "the source is DOWN")
    answers = {key: own.ask(key=key).status for key in keys}
    assert {key for key, status in answers.items() if status == 200} == on_target
    assert set(answers.values()) == {200, 503}

    for name in ("b1", "b2"):
        own.backends[CELL][name].start()
    own.healthy()
    own.backends[CELL]["c1"].stop()
    until(lambda: own.status(CELL)["c1"][0] == "DOWN", "the target is DOWN")
    began = _now()
    assert all(own.ask(key=key).status == 200 for key in keys)
    until(lambda: len([row for row in own.log() if row["t0"] >= began.timestamp() * 1_000]) >= 200, "all logged")
    rows = [row for row in own.log() if row["t0"] >= began.timestamp() * 1_000 and row["a"] == "canary"]
    assert len(rows) == len(on_target)
    assert all(row["srv"].startswith("b") for row in rows), "the log names who answered"
    served = own.router().served(CELL, Cursor(position="", since=began))
    assert (served.baseline, served.canary) == (200, 0)


@pytest.mark.slow
def test_a_source_killed_at_any_weight_sends_nobody_more_to_the_target(own: Rig) -> None:
    keys = [f"k{n}" for n in range(300)]
    for token, weight_bp in enumerate((100, 500, 1_000, 2_500, 5_000), start=1):
        own.healthy()
        put(own.router(), weight_bp, token=token)
        on_target = {key for key, side in own.split(keys).items() if side == "c"}
        for name in ("b1", "b2"):
            own.backends[CELL][name].stop()
        until(lambda: own.status(CELL)["b1"][0] == own.status(CELL)["b2"][0] == "DOWN", "the source is DOWN")
        answers = {key: own.ask(key=key).status for key in keys}
        assert {key for key, status in answers.items() if status == 200} == on_target, f"at {weight_bp} bp"
        for name in ("b1", "b2"):
            own.backends[CELL][name].start()


def _load(own: Rig, n: int, stop: threading.Event, statuses: list[int]) -> None:
    link = http.client.HTTPConnection("127.0.0.1", own.port, timeout=10)
    i = 0
    while not stop.is_set():
        i += 1
        link.request("POST", f"/{CELL}/v1/completions", "{}", {"x-conversation-id": f"{n}-{i}", "content-type": "application/json"})
        answer = link.getresponse()
        answer.read()
        statuses.append(answer.status)
    link.close()


def test_in_twenty_of_twenty_runs_the_last_new_request_comes_within_two_seconds(own: Rig) -> None:
    own.healthy()
    router = own.router()
    statuses: list[int] = []
    stop = threading.Event()
    workers = [threading.Thread(target=_load, args=(own, n, stop, statuses)) for n in range(4)]
    for worker in workers:
        worker.start()
    lags: list[float] = []
    try:
        for _ in range(20):
            put(router, 5_000, token=1)
            so_far = len(statuses)
            until(lambda so_far=so_far: len(statuses) > so_far + 20, "load on the target")  # type: ignore[misc]
            ordered = _now()
            put(router, 0, token=1)
            so_far = len(statuses)
            until(lambda so_far=so_far: len(statuses) > so_far + 20, "load at home")  # type: ignore[misc]
            lags.append(last_new_request_ms(own.process.log_folder, CELL, ordered))
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    print(f"order to last new request: median {sorted(lags)[10]:.0f} ms, most {max(lags):.0f} ms of {len(lags)}; {len(statuses)} requests")
    assert len(lags) == 20
    assert max(lags) <= 2_000
    assert set(statuses) == {200}, "no client saw an error"


def test_going_home_under_load_cuts_nothing_and_is_over_within_two_seconds(own: Rig) -> None:
    own.healthy()
    own.healthy(STREAM)
    router = own.router()
    put(router, 5_000, token=1)
    put(router, 10_000, token=1, cell=STREAM)
    streams: list[bytes] = []
    statuses: list[int] = []
    stop = threading.Event()

    workers = [threading.Thread(target=_load, args=(own, n, stop, statuses)) for n in range(4)]
    workers += [threading.Thread(target=lambda: streams.append(own.ask(STREAM).body)) for _ in range(5)]
    for worker in workers:
        worker.start()
    until(lambda: router.drain(STREAM, TARGET, Token(1)) == Drained(open_streams=5), "five streams are open on the target")
    until(lambda: len(statuses) > 50, "load runs")
    ordered = _now()
    put(router, 0, token=1)
    put(router, 0, token=1, cell=STREAM)
    took = (datetime.now(UTC) - ordered).total_seconds() * 1_000
    assert router.drain(STREAM, TARGET, Token(1)) == Drained(open_streams=5), "streams go on"
    so_far = len(statuses)
    until(lambda: len(statuses) > so_far + 100, "load goes on")
    stop.set()
    for worker in workers:
        worker.join()
    assert set(statuses) == {200}
    assert len(streams) == 5
    assert all(body.endswith(b"[DONE]\n\n") for body in streams), "every stream finished on its own server"
    until(lambda: router.drain(STREAM, TARGET, Token(1)) == Drained(open_streams=0), "drained")
    assert router.drain(STREAM, SOURCE, Token(1)) == Drained(open_streams=0)
    last = last_new_request_ms(own.process.log_folder, CELL, ordered)
    print(f"two cells home in {took:.1f} ms, last new request {last:.1f} ms after the order")
    assert last <= 2_000
    late = [
        row for row in own.log() if row["a"] == "canary" and row["t0"] > (ordered + timedelta(milliseconds=took)).timestamp() * 1_000 + 1
    ]
    assert late == []
