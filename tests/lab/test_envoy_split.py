"""Lab: what the split of a real Envoy keeps - exact, stable, capped, kept over a restart - and its log, pins and mirror."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from fleetctl.adapters.deadline import Deadline
from fleetctl.adapters.routers.envoy.router import EnvoyRouter, replicas_of
from fleetctl.adapters.routers.envoy.runtime import RUNTIME_FILE, Admin, read_runtime_file, weight_key
from fleetctl.adapters.routers.evidence import RouterLogEvidence
from fleetctl.adapters.routers.prober import CompletionProber
from fleetctl.adapters.routers.served import last_new_request_ms
from fleetctl.domain.evidence import Cursor
from fleetctl.domain.home import HOME_TOKEN_STEP
from fleetctl.domain.ids import Token
from fleetctl.domain.split import Drained, Split, Stale
from fleetctl.domain.workload import AffinityKey
from fleetctl.errors import TrafficNotApplied
from tests.fakes.paper import on_paper
from tests.lab.envoy_lab import SOURCES, EnvoyRig, envoy_rig
from tests.lab.haproxy_lab import CELL, PIN_KEY, SOURCE, STREAM, TARGET, in_an_hour, put, until

pytestmark = pytest.mark.lab


NAMES = """authorization proxy-authorization cookie x-api-key api-key apikey x-auth-token x-amz-security-token x-goog-api-key x-csrf-token
x-ms-client-id x-session-id x-jwt-assertion x-forwarded-user x-forwarded-client-cert x-client-secret x-hub-signature x-user-email"""
SECRETS = dict.fromkeys(NAMES.split(), "hidden")


@pytest.fixture(scope="module")
def shared() -> Iterator[EnvoyRig]:
    with envoy_rig() as found:
        yield found


@pytest.fixture
def own() -> Iterator[EnvoyRig]:
    with envoy_rig() as found:
        yield found


def _now() -> datetime:
    return datetime.fromtimestamp(time.time_ns() // 1_000_000 / 1_000, UTC)


def _up(rig: EnvoyRig, name: str, wanted: bool) -> None:
    until(lambda: all(row.is_up is wanted for row in rig.hosts() if row.name == name), f"{name} is {'up' if wanted else 'down'}")


def _floor(rig: EnvoyRig) -> int:
    return rig.router().read(CELL).token


def test_ten_percent_is_ten_percent_and_growth_moves_new_buckets_only(shared: EnvoyRig) -> None:
    keys = [f"conversation-{n}" for n in range(2_000)]
    router, token = shared.router(), _floor(shared) + 1
    put(router, 1_000, token=token)
    at_10 = shared.split(keys)
    put(router, 2_500, token=token)
    at_25 = shared.split(keys)
    on_10, on_25 = ({key for key, side in found.items() if side == "c"} for found in (at_10, at_25))
    assert 0.09 <= len(on_10) / len(keys) <= 0.11
    assert 0.23 <= len(on_25) / len(keys) <= 0.27
    assert on_10 < on_25, "nobody who was on the target came back"
    put(router, 1_000, token=token)
    some = keys[:300]
    assert {key for key, side in shared.split(some).items() if side == "c"} == on_10 & set(some), "lowering brings home the newest only"


def test_a_cookie_is_a_key_too() -> None:
    with envoy_rig(affinity=AffinityKey(kind="cookie", name="conversation")) as found:
        put(found.router(), 1_000, token=1)
        keys = [f"c-{n}" for n in range(2_000)]
        first = found.split(keys, as_cookie=True)
        on_target = {key for key, side in first.items() if side == "c"}
        assert 0.09 <= len(on_target) / len(keys) <= 0.11
        some = keys[:200]
        assert found.split(some, as_cookie=True) == {key: first[key] for key in some}


@pytest.mark.parametrize("token", [5, HOME_TOKEN_STEP + 7, 2**52 + 1])
def test_a_restart_keeps_split_fence_and_lease(own: EnvoyRig, token: int) -> None:
    put(own.router(), 2_500, token=token, cap=4_000)
    before = own.router().read(CELL)
    own.stop()
    own.start()
    assert own.router().read(CELL) == before
    stale = Split(cell=CELL, target_bp=0, cap_bp=0, token=Token(4), lease_until=in_an_hour())
    assert own.router().set(stale) == Stale(cell=CELL, seen=Token(token))
    assert (own.folder / RUNTIME_FILE).stat().st_mode & 0o777 == 0o600


def test_lowering_writes_the_file_before_the_router_so_a_restart_never_shows_more(own: EnvoyRig, monkeypatch: pytest.MonkeyPatch) -> None:
    router = own.router()
    put(router, 2_500, token=1)
    seen: list[tuple[int, int]] = []
    real = Admin.modify

    def spy(self: Admin, values: Any, deadline: Deadline, **named: Any) -> None:
        seen.append((int(values[weight_key(f"{CELL}_canary")]), read_runtime_file(own.folder / RUNTIME_FILE)[CELL].bp))
        real(self, values, deadline, **named)

    monkeypatch.setattr(Admin, "modify", spy)
    put(router, 5_000, token=1)
    put(router, 100, token=1)
    assert seen == [(5_000, 2_500), (100, 100)], "(asked of Envoy, already in the file)"


def test_a_dead_source_keeps_the_cap_and_a_dead_target_is_answered_by_the_source(own: EnvoyRig) -> None:
    put(own.router(), 2_000, token=1)
    keys = [f"k{n}" for n in range(200)]
    on_target = {key for key, side in own.split(keys).items() if side == "c"}
    for name in ("b1", "b2"):
        own.backends[CELL][name].stop()
        _up(own, name, wanted=False)
    answers = {key: own.ask(key=key).status for key in keys}
    assert {key for key, status in answers.items() if status == 200} == on_target, "never the target for what is the source's"
    assert set(answers.values()) == {200, 503}

    for name in ("b1", "b2"):
        own.backends[CELL][name].start()
        _up(own, name, wanted=True)
    own.backends[CELL]["c1"].stop()
    _up(own, "c1", wanted=False)
    source = RouterLogEvidence(own.config.log.parent, now=lambda: datetime.now(UTC))
    mark, began = source.mark(CELL), _now()
    source.read(CELL, mark)
    failed = [key for key in keys if own.ask(key=key).status != 200]
    assert not failed, [row for row in own.log() if row["t0"] >= began.timestamp() * 1_000 and row["st"] != 200]
    until(lambda: len([row for row in own.log() if row["t0"] >= began.timestamp() * 1_000]) >= 200, "all logged")
    served = own.router().served(CELL, Cursor(position="", since=began))
    assert (served.baseline, served.canary) == (200, 0)
    counts = source.read(CELL, mark).arms["canary"]
    assert (counts.attempts, counts.errors) == (len(on_target), len(on_target)), "what the source answered in its place is its failure"


def test_errors_retries_and_clients_that_leave_are_told_apart(shared: EnvoyRig) -> None:
    put(shared.router(), 10_000, token=_floor(shared) + 1)
    source = RouterLogEvidence(shared.config.log.parent, now=lambda: datetime.now(UTC))
    mark = source.mark(CELL)
    source.read(CELL, mark)
    target = shared.backends[CELL]["c1"]
    lines = len(shared.log())
    assert shared.ask().status == 200
    target.status = 500
    assert shared.ask().status == 500
    target.status = 200
    target.sleep_s = 0.5
    link = http.client.HTTPConnection("127.0.0.1", shared.config.port, timeout=5)
    link.request("POST", f"/{CELL}/v1/completions", "{}", {"content-type": "application/json"})
    until(lambda: any(json.loads(b or b"{}") == {} for _, _, b in target.seen[-1:]), "the request has come")
    link.close()
    target.sleep_s = 0.0
    until(lambda: len(shared.log()) >= lines + 3, "three requests logged")
    counts = source.read(CELL, mark).arms["canary"]
    assert (counts.attempts, counts.errors) == (2, 1), shared.log()[lines:]


def test_a_pinned_probe_reaches_its_side_counts_nowhere_and_needs_the_key(shared: EnvoyRig) -> None:
    put(shared.router(), 0, token=_floor(shared) + 1)
    began = _now()
    target = shared.backends[CELL]["c1"]
    before = len(target.seen)
    pinned = shared.ask(headers={"x-fleetctl-pin": f"{PIN_KEY}:canary"})
    assert (pinned.status, pinned.headers["x-fleetctl-server"]) == (200, "c1")
    assert "x-fleetctl-pin" not in target.seen[-1][1], "the key stays here"
    forged = shared.ask(headers={"x-fleetctl-pin": "0123456789abcdef-fake:canary"})
    assert forged.status == 200
    assert "x-fleetctl-server" not in forged.headers
    assert len(target.seen) == before + 1
    until(lambda: len([row for row in shared.log() if row["t0"] >= began.timestamp() * 1_000]) >= 2, "both logged")
    served = shared.router().served(CELL, Cursor(position="", since=began))
    assert (served.baseline, served.canary) == (1, 0)


def test_every_replica_is_proven_each_time_though_envoy_takes_them_in_turn(shared: EnvoyRig) -> None:
    shared.healthy()
    prober = CompletionProber(shared.connection, replicas=replicas_of(shared.connection, {}), pin_key=lambda: PIN_KEY, sources=SOURCES)
    for pool, replicas in ((SOURCE, 2), (TARGET, 1)) * 15:
        found = prober.ready(pool, CELL)
        assert (found.ready, found.total) == (replicas, replicas), found.detail


def test_mirrored_requests_reach_the_collector_without_credentials_and_never_delay_a_client(shared: EnvoyRig) -> None:
    router = shared.router()
    put(router, 0, token=_floor(shared) + 1)
    shared.collector.sleep_s = 1.0
    router.set_shadow(CELL, 1.0)
    shared.collector.seen.clear()
    took = []
    for n in range(20):
        answer = shared.ask(key=f"m{n}", headers=SECRETS)
        assert answer.status == 200
        took.append(answer.seconds)
    until(lambda: len(shared.collector.seen) >= 20, "twenty copies")
    assert sorted(took)[10] < 0.5, "the collector answers a second late, and nobody waits for it"
    for _, headers, body in shared.collector.seen:
        assert headers["x-fleetctl-shadow"] == CELL
        assert not set(SECRETS) & set(headers)
        assert "hidden" not in str(headers)
        assert headers["content-type"] == "application/json"
        assert b"hello" in body
    router.set_shadow(CELL, 0)
    shared.collector.sleep_s = 0.0
    seen = len(shared.collector.seen)
    for n in range(5):
        shared.ask(key=f"n{n}")
    assert len(shared.collector.seen) == seen


def test_t43_only_completions_are_mirrored_marked_and_counted_where_they_arrive(shared: EnvoyRig) -> None:
    router = shared.router()
    put(router, 0, token=_floor(shared) + 1)
    router.set_shadow(CELL, 1.0)
    shared.collector.seen.clear()
    link = http.client.HTTPConnection("127.0.0.1", shared.config.port, timeout=10)
    calls = [
        ("POST", "v1/completions"),
        ("GET", "v1/models"),
        ("POST", "v1/embeddings"),
        ("POST", "v1/files"),
        ("POST", "v1/chat/completions"),
    ]
    for method, path in calls:
        link.request(method, f"/{CELL}/{path}", "{}" if method == "POST" else None, {"content-type": "application/json"})
        assert link.getresponse().read()
    link.close()
    until(lambda: len(shared.collector.seen) >= 2, "two copies")
    assert shared.ask().status == 200
    until(lambda: len(shared.collector.seen) >= 3, "the next one's copy")
    assert [path for path, _, _ in shared.collector.seen] == ["/v1/completions", "/v1/chat/completions", "/v1/completions"]
    assert all(headers["x-fleetctl-shadow"] == CELL and "-shadow" in headers["host"] for _, headers, _ in shared.collector.seen)
    router.set_shadow(CELL, 0)


def test_a_foreign_write_is_shown_and_does_not_hold_up_going_home(shared: EnvoyRig) -> None:
    router, token = shared.router(), _floor(shared) + 1
    put(router, 500, token=token, cap=1_000)
    admin = Admin(shared.connection.settings["admin"], "x")
    admin.modify({weight_key(f"{CELL}_canary"): "9000", weight_key(f"{CELL}_baseline"): "1000"}, Deadline())
    found = router.read(CELL)
    assert (found.target_bp, found.cap_bp) == (9_000, 9_000)
    put(router, 0, token=token, cap=1_000)
    assert router.read(CELL).target_bp == 0
    admin.modify({weight_key(f"{CELL}_canary"): "10000"}, Deadline())
    assert router.read(CELL).target_bp == 5_000, "Envoy takes weights as shares of their sum"
    put(router, 0, token=token, cap=1_000)
    admin.modify({weight_key(f"{CELL}_canary"): "many"}, Deadline())
    with pytest.raises(TrafficNotApplied, match="which are none"):
        router.read(CELL)
    on_paper(shared.connection, CELL)
    assert router.read(CELL).target_bp == 0, "the way on paper brings it home"


def test_a_fence_that_comes_after_a_return_home_brings_nobody_back(own: EnvoyRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller has read the weight; a person brings the cell home; the controller goes on with what it had read."""
    late, person, homes = own.router(), own.router(), list[int]()
    put(late, 2_500, token=10)
    real = EnvoyRouter._standing

    def meanwhile(self: EnvoyRouter, cell: Any, deadline: Deadline) -> Any:
        found = real(self, cell, deadline)
        if self is late and homes:
            put(person, 0, token=homes.pop())
        return found

    monkeypatch.setattr(EnvoyRouter, "_standing", meanwhile)
    homes.append(10 + 2**20)
    late.fence(CELL, Token(11))
    assert own.router().read(CELL).target_bp == 0
    put(person, 2_500, token=2**21)
    homes.append(2**22)
    stale = late.set(Split(cell=CELL, target_bp=5_000, cap_bp=10_000, token=Token(2**21), lease_until=in_an_hour()))
    assert stale == Stale(cell=CELL, seen=Token(2**22))
    assert own.router().read(CELL).target_bp == 0, "the last word of a writer that was fenced off is home"


def _load(own: EnvoyRig, n: int, stop: threading.Event, statuses: list[int]) -> None:
    link = http.client.HTTPConnection("127.0.0.1", own.config.port, timeout=10)
    i = 0
    while not stop.is_set():
        i += 1
        link.request("POST", f"/{CELL}/v1/completions", "{}", {"x-conversation-id": f"{n}-{i}", "content-type": "application/json"})
        answer = link.getresponse()
        answer.read()
        statuses.append(answer.status)
    link.close()


def test_going_home_under_load_cuts_nothing_and_is_over_within_two_seconds(own: EnvoyRig) -> None:
    router = own.router()
    put(router, 5_000, token=1)
    put(router, 10_000, token=1, cell=STREAM)
    streams: list[bytes] = []
    statuses: list[int] = []
    lags: list[float] = []
    stop = threading.Event()
    workers = [threading.Thread(target=_load, args=(own, n, stop, statuses)) for n in range(4)]
    workers += [threading.Thread(target=lambda: streams.append(own.ask(STREAM).body)) for _ in range(5)]
    for worker in workers:
        worker.start()
    try:
        until(lambda: router.drain(STREAM, TARGET, Token(1)) == Drained(open_streams=5), "five streams are open on the target")
        put(router, 0, token=1, cell=STREAM)
        assert router.drain(STREAM, TARGET, Token(1)) == Drained(open_streams=5), "streams go on"
        for _ in range(10):
            put(router, 5_000, token=1)
            so_far = len(statuses)
            until(lambda so_far=so_far: len(statuses) > so_far + 20, "load on the target")  # type: ignore[misc]
            ordered = _now()
            put(router, 0, token=1)
            so_far = len(statuses)
            until(lambda so_far=so_far: len(statuses) > so_far + 40, "load at home")  # type: ignore[misc]
            lags.append(last_new_request_ms(own.config.log.parent, CELL, ordered))
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    assert len(lags) == 10
    assert max(lags) <= 2_000
    assert set(statuses) == {200}, "no client saw an error"
    assert len(streams) == 5
    assert all(body.endswith(b"[DONE]\n\n") for body in streams), "every stream finished on its own server"
    until(lambda: router.drain(STREAM, TARGET, Token(1)) == Drained(open_streams=0), "drained")
