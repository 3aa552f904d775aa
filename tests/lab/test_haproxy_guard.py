"""Lab: the guard, the pin header, the prober, the log's tokens and the shadow tee of a real HAProxy."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fleetctl.adapters.deadline import Deadline
from fleetctl.adapters.routers.haproxy.router import replicas_of
from fleetctl.adapters.routers.haproxy.wire import AdminSocket
from fleetctl.adapters.routers.prober import CompletionProber
from fleetctl.domain.home import HOME_TOKEN_STEP
from fleetctl.domain.ids import CellId, PoolId, Token
from fleetctl.domain.split import Readiness, Stale
from fleetctl.errors import TrafficNotApplied
from tests.lab.haproxy_lab import CELL, PIN_KEY, SOURCE, STREAM, TARGET, Backend, Rig, put, rig, until

pytestmark = pytest.mark.lab


@pytest.fixture
def own() -> Iterator[Rig]:
    with rig() as found:
        yield found


@pytest.fixture(scope="module")
def shared() -> Iterator[Rig]:
    with rig() as found:
        found.healthy()
        yield found


def _past() -> datetime:
    return datetime.now(UTC) - timedelta(seconds=1)


def test_the_guard_takes_a_lapsed_weight_home_and_a_restart_does_not_undo_it(own: Rig) -> None:
    own.healthy()
    router = own.router()
    put(router, 1_000, token=1)
    put(router, 1_000, token=1, cell=STREAM)
    put(router, 1_000, token=1, lease=_past())
    until(lambda: router.read(CELL).target_bp == 0, "home", within_s=2)
    assert router.read(STREAM).target_bp == 1_000, "a lease that runs keeps its weight"
    assert f"guard {CELL} home" in own.log_text()
    late = replace(router.read(CELL), target_bp=1_000, token=Token(1))
    assert isinstance(router.set(late), Stale), "a holder that was stopped before the guard cannot write after it"
    own.process.restart()
    assert router.read(CELL).target_bp == 0
    assert isinstance(router.set(late), Stale), "nor after a restart"
    assert router.read(STREAM).target_bp == 1_000


def test_the_guard_holds_while_the_source_is_not_proven_and_says_so_once(own: Rig) -> None:
    own.healthy()
    router = own.router()
    for name in ("b1", "b2"):
        own.backends[CELL][name].stop()
    until(lambda: own.status(CELL)["b1"][0] == own.status(CELL)["b2"][0] == "DOWN", "the source is DOWN")
    put(router, 9_000, token=1, lease=_past())
    until(lambda: f"guard {CELL} holds" in own.log_text(), "the guard speaks")
    threading.Event().wait(1.2)  # two more looks of the guard
    assert router.read(CELL).target_bp == 9_000
    assert own.log_text().count(f"guard {CELL} holds") == 1
    own.backends[CELL]["b1"].start()
    until(lambda: router.read(CELL).target_bp == 5_000, "as many home as the half of the source can take")
    own.process.restart()
    assert router.read(CELL).target_bp == 5_000, "a restart brings nobody back"
    until(lambda: own.status(CELL)["b2"][0] == "DOWN", "the other half is DOWN")
    assert router.read(CELL).target_bp == 5_000
    own.backends[CELL]["b2"].start()
    until(lambda: router.read(CELL).target_bp == 0, "home as soon as the whole source is proven")


def test_only_the_right_key_pins_and_no_server_sees_it(shared: Rig) -> None:
    put(shared.router(), 0, token=shared.router().read(CELL).token + 1)
    target = shared.backends[CELL]["c1"]
    target.seen.clear()
    good = shared.ask(headers={"x-fleetctl-pin": f"{PIN_KEY}:canary"})
    assert good.headers["x-fleetctl-server"] == "c1"
    assert len(target.seen) == 1
    for wrong in ("canary", ":canary", "wrong-key-wrong-key:canary", f"{PIN_KEY}:other", f"{PIN_KEY}", f"{PIN_KEY[:-1]}:canary"):
        answer = shared.ask(headers={"x-fleetctl-pin": wrong, "x-fleetctl-check": "1x"})
        assert answer.status == 200
        assert "x-fleetctl-server" not in answer.headers
    assert len(target.seen) == 1
    for backend in shared.backends[CELL].values():
        assert not [name for _, headers, _ in backend.seen for name in headers if name.startswith("x-fleetctl")]
    until(lambda: len([row for row in shared.log() if row["p"] == "-"]) >= 6, "logged")
    assert [row["a"] for row in shared.log() if row["p"] == "canary"] == ["canary"]


def test_without_a_key_nobody_pins(own: Rig) -> None:
    own.process.stop()
    bare = type(own.process)(folder=own.folder, socket=own.process.socket, binary=own.process.binary)
    bare.start()
    for key in ("", PIN_KEY):
        assert "x-fleetctl-server" not in own.ask(headers={"x-fleetctl-pin": f"{key}:canary"}).headers


def test_the_log_keeps_the_contract_and_no_token_is_lost(shared: Rig) -> None:
    servers = shared.backends[CELL]
    try:
        for backend in servers.values():
            backend.answer_bytes = 40_000
        before = len(shared.log())
        assert len(shared.ask(key="k").body) > 40_000
        until(lambda: len(shared.log()) > before, "logged")
        row = shared.log()[-1]
    finally:
        for backend in servers.values():
            backend.answer_bytes = 1
    assert list(row) == ["c", "a", "srv", "st", "ts", "t0", "ta", "tr", "b", "pt", "ct", "cc", "bp", "p", "rc"]
    assert (row["c"], row["st"], row["ts"], row["pt"], row["ct"], row["cc"], row["p"], row["rc"]) == (CELL, 200, "--", 7, 3, 2, "-", "0")
    assert abs(row["t0"] / 1_000 - time.time()) < 5
    assert shared.ask(CellId("no-such-cell")).status == 404
    until(lambda: shared.log()[-1]["st"] == 404, "logged")
    assert shared.log()[-1]["c"] == "-"


def test_a_stream_logs_no_tokens(shared: Rig) -> None:
    assert shared.ask(STREAM).body.endswith(b"[DONE]\n\n")
    until(lambda: any(row["c"] == STREAM for row in shared.log()), "logged")
    row = next(row for row in shared.log() if row["c"] == STREAM)
    assert (row["pt"], row["ct"], row["cc"], row["ts"]) == (-1, -1, -1, "--")
    assert row["ta"] >= 1_400


def _prober(found: Rig) -> CompletionProber:
    return CompletionProber(
        found.connection, replicas=replicas_of(found.connection, {}), pin_key=lambda: PIN_KEY, sources={CELL: SOURCE, STREAM: SOURCE}
    )


def test_the_prober_counts_distinct_replicas_by_completions(own: Rig) -> None:
    own.healthy()
    prober = _prober(own)
    asked_of: list[Readiness] = []

    def all_answer() -> bool:
        asked_of.append(prober.ready(SOURCE, CELL))
        return asked_of[-1].share == 1.0

    until(all_answer, "both replicas of the source answer", 20.0)  # on a busy machine a check may fail, and its server is DOWN for a moment
    source, target = asked_of[-1], prober.ready(TARGET, CELL)
    assert (source.ready, source.total) == (2, 2), asked_of
    assert (target.ready, target.total) == (1, 1)
    assert source.age_s < 2
    asked = json.loads(own.backends[CELL]["c1"].seen[-1][2])
    assert (asked["model"], asked["max_tokens"]) == ("listed-model", 1)

    own.backends[CELL]["b2"].status = 500
    own.backends[CELL]["c1"].stop()
    until(lambda: own.status(CELL)["c1"][0] == "DOWN", "the target is DOWN")
    half, none = prober.ready(SOURCE, CELL), prober.ready(TARGET, CELL)
    assert (half.ready, half.total) == (1, 2)
    assert "b2" in half.detail
    assert (none.ready, none.total) == (0, 1), "an answer of the source in the target's place proves nothing"
    assert "b" in none.detail


def test_the_prober_is_bounded_and_tells_a_dead_router(own: Rig) -> None:
    own.healthy()
    for backend in own.backends[CELL].values():
        backend.sleep_s = 20
    began = time.monotonic()
    assert _prober(own).ready(SOURCE, CELL).ready == 0
    assert time.monotonic() - began < 6
    own.process.stop()
    with pytest.raises(TrafficNotApplied) as refused:
        _prober(own).ready(SOURCE, CELL)
    assert refused.value.code == "traffic.router_down"
    with pytest.raises(TrafficNotApplied):
        _prober(own).ready(PoolId("p"), CellId("x y"))


def test_the_tee_never_copies_more_than_its_share_however_often_it_is_told(own: Rig) -> None:
    own.healthy()
    router = own.router()
    for n in range(60):
        router.set_shadow(CELL, 1_000, 0.1)  # as every tick of the phase does
        assert own.ask(key=f"s{n}").status == 200
    until(lambda: router.tee_counts()["waiting"] == 0 and router.tee_counts()["sent"] >= 6, "sent")
    assert router.tee_counts()["sent"] == 6
    router.set_shadow(CELL, 1_000, 0.0)
    assert own.ask(key="none").status == 200
    assert router.tee_counts()["sent"] == 6
    with pytest.raises(TrafficNotApplied, match="is not within 0 to 1"):
        router.set_shadow(CELL, 1, 1.5)


def test_the_tee_copies_bodies_without_credentials_and_keeps_its_rate(own: Rig) -> None:
    own.healthy()
    router = own.router()
    router.set_shadow(CELL, 1_000)
    secret = {"authorization": "Bearer secret", "cookie": "session=secret"}
    assert own.ask(headers=secret, body={"prompt": "copy me"}).status == 200
    until(lambda: len(own.collector.seen) == 1, "one copy")
    path, headers, body = own.collector.seen[0]
    assert path == f"/shadow/{CELL}"
    assert json.loads(body) == {"prompt": "copy me"}
    assert "secret" not in str(headers)
    threading.Event().wait(0.02)
    own.ask(body={"prompt": "act", "tools": [{"name": "pay"}]})
    own.ask(body={"prompt": "x" * 20_000})
    own.ask(headers={"x-fleetctl-pin": f"{PIN_KEY}:canary"})
    own.ask(STREAM)
    until(lambda: router.tee_counts()["refused"] == 1, "a call with tools is refused")
    assert router.tee_counts() == {"sent": 1, "dropped": 0, "failed": 0, "refused": 1, "waiting": 0}
    router.set_shadow(CELL, 2)
    for _ in range(40):
        own.ask()
    until(lambda: router.tee_counts()["waiting"] == 0, "sent")
    assert 1 <= router.tee_counts()["sent"] - 1 <= 4
    router.set_shadow(CELL, 0)
    sent = router.tee_counts()["sent"]
    own.ask()
    assert router.tee_counts()["sent"] == sent
    with pytest.raises(TrafficNotApplied):
        router.set_shadow(CellId("nobody"), 1)
    with pytest.raises(TrafficNotApplied):
        router.set_shadow(CELL, -1)


@pytest.mark.parametrize("fault", ["slow", "dead"])
def test_a_slow_or_dead_collector_costs_copies_and_no_client_anything(own: Rig, fault: str) -> None:
    own.healthy()
    router = own.router()
    plain = sorted(own.ask(key=f"{n}").seconds for n in range(100))[50]
    collector: Backend = own.collector
    if fault == "slow":
        collector.sleep_s = 3
    else:
        collector.stop()
    router.set_shadow(CELL, 1_000)
    teed = []
    for n in range(150):
        teed.append(own.ask(key=f"{n}").seconds)
    counts = router.tee_counts()
    assert counts["waiting"] <= 64
    if fault == "slow":
        assert counts["dropped"] > 20
    else:
        until(lambda: router.tee_counts()["failed"] > 20, "failures counted")
    print(f"median without tee {plain * 1_000:.1f} ms, with a {fault} collector {sorted(teed)[75] * 1_000:.1f} ms, {counts}")
    assert sorted(teed)[75] < plain * 2 + 0.005
    assert max(teed) < 1


def test_the_paper_way_home_makes_every_live_controller_stale_and_survives_a_restart(own: Rig) -> None:
    own.healthy()
    router = own.router()
    put(router, 5_000, token=1)
    socket = AdminSocket(own.process.socket, "edge")
    assert socket.ask(f"fleetctl home {CELL}", Deadline()).startswith("ok 0 ")
    shown = router.read(CELL)
    assert (shown.target_bp, shown.token) == (0, 1 + HOME_TOKEN_STEP)
    assert isinstance(router.set(replace(shown, target_bp=5_000, token=Token(1))), Stale)
    assert isinstance(router.fence(CELL, Token(2)), Stale)
    assert socket.ask("fleetctl home nobody", Deadline()).strip() == "unknown"
    own.process.restart()
    assert router.read(CELL).target_bp == 0
    assert isinstance(router.fence(CELL, Token(2)), Stale), "a controller that comes back after a restart is stale too"
