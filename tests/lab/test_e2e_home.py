"""End to end: regressions are found and taken home, how fast the switch is, and that no client notices it."""

from __future__ import annotations

import http.client
import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from fleetctl.domain.ids import CellId, PoolId, Token
from fleetctl.domain.split import Split, Stale
from fleetctl.ports.traffic import Router
from tests.lab.e2e import CHAT, HALF, STREAM, SUMMARY, Lab, ms, of_kind
from tests.lab.lab_tools import until

pytestmark = pytest.mark.lab
HOME_WITHIN_S = 30.0
SWITCH_WITHIN_MS = 2_000.0


def regression_round(lab: Lab) -> dict[str, float]:
    """Bring both cells to 50 %, make one twice as slow and the other fail 5 %, and watch both go home."""
    seqs = {c: lab.seq(c) for c in (CHAT, SUMMARY)}
    errors = lab.errors(CHAT)
    child = lab.start("migrate", CHAT, SUMMARY, "--phase", "canary")
    for c in (CHAT, SUMMARY):
        lab.wait_phase(c, "canary")
    faulty = time.time() * 1000
    lab.fault("latency", CHAT, "--factor", "2")
    lab.fault("errors", SUMMARY, "--ratio", "0.05")
    done = child.end(5, within_s=HOME_WITHIN_S + 10)
    took = {}
    for c in (CHAT, SUMMARY):
        events = lab.events(c, seqs[c])
        home = [e for e in of_kind(events, "traffic.set") if e.data["to_bp"] == 0][-1]
        took[c] = (ms(home.at) - faulty) / 1000
        assert took[c] < HOME_WITHIN_S, f"{c} was home {took[c]:.1f} s after the fault: {done.err}"
        assert lab.weight(c) == 0
        r = lab.rollout(c)
        assert r is not None
        assert r.ended == "rolled_back"
        assert r.latched is not None
    fail = of_kind(lab.events(CHAT, seqs[CHAT]), "verdict.fail")[0]
    last = max(row["t0"] for row in lab.requests(CHAT) if row["a"] == "canary")
    took["switch_ms"] = last - ms(fail.at)
    assert took["switch_ms"] < SWITCH_WITHIN_MS
    assert lab.errors(CHAT) == errors, "the switch cost a client an error"
    lab.clear()
    return took


def repeat_regressions(lab: Lab, rounds: int) -> None:
    lab.fresh(HALF, ticker=True)
    for n in range(rounds):
        if n:
            lab.run("retry", CHAT, SUMMARY)
        took = regression_round(lab)
        print(f"round {n + 1}: {took}")


def test_a_regression_at_half_the_traffic_goes_home(whole_lab: Lab) -> None:
    repeat_regressions(whole_lab, 3)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_regression_at_half_the_traffic_goes_home_20_of_20(whole_lab: Lab) -> None:
    repeat_regressions(whole_lab, 20)


def switch_round(lab: Lab, streams: int) -> dict[str, float]:
    """Show 50 % of chat-lab and stream-lab on the target, open streams, take both home by the router alone."""
    router = lab.router()
    errors = lab.errors(CHAT, STREAM)
    for cell in (CHAT, STREAM):
        show(router, cell, 5_000)
    shown = time.time() * 1000
    until(lambda: sum(r["a"] == "canary" and r["t0"] > shown for r in lab.requests(CHAT)) > 20, "requests on the target", 20.0)
    with ThreadPoolExecutor(max_workers=streams) as pool:
        open_ = [pool.submit(stream, lab.record.url, f"s{n}") for n in range(streams)]
        time_out = time.monotonic() + 10
        while sum(lab_open(router)) < streams // 4 and time.monotonic() < time_out:
            time.sleep(0.01)
        before = time.time() * 1000
        for cell in (CHAT, STREAM):
            show(router, cell, 0)
        after = time.time() * 1000
        ended = [f.result() for f in open_]
    assert all(ended), f"{ended.count(False)} of {streams} open streams were cut"
    until(lambda: lab.requests(CHAT)[-1]["t0"] > after + 500, "requests after the switch", 20.0)
    rows = lab.requests(CHAT)
    last = max(r["t0"] for r in rows if r["a"] == "canary")
    survived = [r for r in lab.requests(STREAM) if r["a"] == "canary" and r["t0"] < after < r["t0"] + r["ta"]]
    assert survived, "no stream was open on the target at the switch, so nothing was proven"
    assert {(r["st"], r["ts"]) for r in survived} == {(200, "--")}
    assert {r["st"] for r in rows if r["t0"] > shown} == {200}
    assert lab.errors(CHAT, STREAM) == errors
    return {"switch_ms": last - before, "set_ms": after - before, "streams_finished": len(survived)}


def show(router: Router, cell: str, bp: int) -> None:
    c = CellId(cell)
    token = Token(router.read(c).token + 1)
    assert not isinstance(router.fence(c, token), Stale)
    done = router.set(Split(cell=c, target_bp=bp, cap_bp=10_000, token=token, lease_until=datetime.now(UTC) + timedelta(minutes=5)))
    assert not isinstance(done, Stale)


def lab_open(router: Router) -> list[int]:
    """Return how many streams are open on the target."""
    cell = CellId(STREAM)
    drained = router.drain(cell, PoolId("mi300x-lab"), router.read(cell).token)
    assert not isinstance(drained, Stale)
    return [drained.open_streams]


def stream(url: str, conversation: str) -> bool:
    """Read one long stream to its end."""
    body = json.dumps(
        {"model": "emulated-stream-8b", "stream": True, "max_tokens": 400, "messages": [{"role": "user", "content": "go on"}]}
    )
    host = url.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=30)
    try:
        headers = {"content-type": "application/json", "x-conversation-id": conversation}
        connection.request("POST", f"/{STREAM}/v1/chat/completions", body, headers)
        answer = connection.getresponse()
        return answer.status == 200 and answer.read().rstrip().endswith(b"[DONE]")
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def repeat_switches(lab: Lab, rounds: int) -> None:
    lab.fresh(HALF)
    for n in range(rounds):
        took = switch_round(lab, 12)
        assert took["switch_ms"] < SWITCH_WITHIN_MS
        print(f"switch {n + 1}: {took}")
    store = lab.store()
    for cell in (CHAT, STREAM):  # the store takes over the tokens that were written past it
        store.raise_token(CellId(cell), lab.router().read(CellId(cell)).token)
    store.close()


def test_the_switch_costs_no_client_anything(whole_lab: Lab) -> None:
    repeat_switches(whole_lab, 3)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_switch_costs_no_client_anything_20_of_20(whole_lab: Lab) -> None:
    repeat_switches(whole_lab, 20)
