"""End to end with a real Envoy as the lab's router: a cell through all its phases, a regression home by itself, all home by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fleetctl.domain.ids import CellId, Token
from fleetctl.domain.split import Applied, Split
from tests.lab.e2e import CHAT, QUICK, SUMMARY, Lab, make_lab, ms, of_kind
from tests.lab.lab_tools import until

pytestmark = pytest.mark.lab


def test_a_migration_through_envoy_from_shadow_to_complete_and_home(tmp_path: Path) -> None:
    for lab in make_lab(tmp_path, "envoy"):
        _whole(lab)


def _whole(lab: Lab) -> None:
    lab.fresh(QUICK, ticker=True)
    assert "envoy" in lab.run("lab", "status", code=None).out
    errors = lab.all_errors()
    child = lab.start("migrate", CHAT, "--phase", "soak")
    bad = lab.start("migrate", SUMMARY, "--phase", "canary")
    lab.wait_phase(SUMMARY, "canary")
    lab.fault("errors", SUMMARY, "--ratio", "0.3")
    bad.end(5, within_s=60)
    r = lab.rollout(SUMMARY)
    assert r is not None
    assert r.ended == "rolled_back"
    assert lab.weight(SUMMARY) == 0
    fail = of_kind(lab.events(SUMMARY), "verdict.fail")[0]
    last = max(row["t0"] for row in lab.requests(SUMMARY) if row["a"] == "canary")
    assert last - ms(fail.at) < 2_000, "from the verdict to the last new request on the target, ms"
    child.end(None, within_s=90)
    weights = [e.data["to_bp"] for e in of_kind(lab.events(CHAT), "traffic.set")]
    assert weights[:3] == [4_000, 5_000, 9_500], weights
    assert list((lab.record.folder / "shadow" / "pairs").glob("chat-lab.jsonl")), "mirrored requests were compared"
    reached = lab.rollout(CHAT)
    assert reached is not None
    assert reached.phase in ("soak", "complete")
    assert lab.errors(CHAT) == 0, "no client of the healthy cell saw an error"
    lab.run("fallback", "--all")
    assert [lab.weight(c) for c in (CHAT, SUMMARY)] == [0, 0]
    _nobody_renews(lab)
    assert lab.all_errors() - errors <= lab.errors(SUMMARY)


def _nobody_renews(lab: Lab) -> None:
    """A weight whose controller is gone for good: the guard beside Envoy takes it home when its lease lapses."""
    lab.ticker(on=False)
    router, cell = lab.router(), CellId(CHAT)
    token = Token(router.read(cell).token + 1)
    assert isinstance(router.fence(cell, token), Split)
    until_ = datetime.now(UTC) + timedelta(seconds=2)
    assert isinstance(router.set(Split(cell=cell, target_bp=500, cap_bp=10_000, token=token, lease_until=until_)), Applied)
    until(lambda: lab.weight(CHAT) == 0, "home by the guard", 15.0)
    assert datetime.now(UTC) >= until_, "not before its lease has lapsed"
