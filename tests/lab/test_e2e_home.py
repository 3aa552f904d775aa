"""End to end: regressions are found and taken home, how fast the switch is, and that no client notices it."""

from __future__ import annotations

import time

import pytest

from fleetctl.domain.ids import CellId, Token
from fleetctl.domain.split import Split
from tests.lab.e2e import CHAT, HALF, SUMMARY, Lab, ms, of_kind
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
    lab.fault("latency", CHAT, "--factor", "2")
    lab.fault("errors", SUMMARY, "--ratio", "0.05")
    faulty = time.time() * 1000
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
    time.sleep(0)
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
