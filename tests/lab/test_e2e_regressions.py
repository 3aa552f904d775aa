"""End to end: what must go home does, and what must not does not: wrong tokens, cold starts, failures that retries hide, metrics gone."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from statistics import median

import pytest

from fleetctl.domain.plan import Plan
from fleetctl.lab.lifecycle import FLEET_FILE
from tests.lab.e2e import CHAT, HALF, STREAM, SUMMARY, WIDE, Lab, Policy, of_kind
from tests.lab.lab_tools import until

pytestmark = pytest.mark.lab
WARM_UP_S = 8
COLD = Policy(steps=(("canary", 50, 2), ("ramp", 60, 110), ("complete", 100, 0)), margins=WIDE, shadow=True, warm_up=f"{WARM_UP_S}s")


def test_wrong_tokens_get_no_customer_and_a_cold_start_takes_nobody_home(whole_lab: Lab) -> None:
    lab = whole_lab.fresh(COLD, ticker=True)
    seqs, began = {c: lab.seq(c) for c in (CHAT, SUMMARY)}, time.time()
    lab.fault("wrong_tokens", CHAT, "--ratio", "0.3")
    lab.fault("latency", SUMMARY, "--factor", "4")  # as a replica that has not compiled its kernels yet
    lab.start("migrate", CHAT, SUMMARY, "--phase", "ramp")
    until(lambda: lab.weight(SUMMARY) == 5_000, "customers on a cold target", 40.0)
    shown = time.time()
    until(lambda: time.time() - shown > WARM_UP_S / 2, "a cold start", WARM_UP_S)
    lab.clear(SUMMARY)
    r = lab.wait(CHAT, lambda r: bool(r.ended), "home: its answers differ", 30.0)
    assert r.ended == "rolled_back"
    assert r.latched is not None
    assert r.latched.guardrail == "quality"
    assert [row for row in lab.requests(CHAT) if row["a"] == "canary" and row["t0"] > began * 1000] == [], "no customer was ever there"
    cold = lab.wait_phase(SUMMARY, "ramp", 60.0)
    assert (cold.ended, cold.latched) == ("", None)
    assert of_kind(lab.events(SUMMARY, seqs[SUMMARY]), "verdict.fail") == []
    rows = [row for row in lab.requests(SUMMARY) if shown * 1000 < row["t0"] < (shown + WARM_UP_S / 2 - 0.5) * 1000]
    times = {arm: median([row["ta"] for row in rows if row["a"] == arm]) for arm in ("baseline", "canary")}
    assert times["canary"] > 2 * times["baseline"], "it was cold while customers were there"


def with_pages(lab: Lab) -> str:
    """Name the engines' own pages as evidence of three cells; returns the file as it was."""
    path = lab.workspace / FLEET_FILE
    before = path.read_text()
    head, cells = before.split("\ncells:\n", 1)
    head = head.replace("\n# Cells:", "\nevidence:\n  pages:\n    kind: scrape\n    settings: {every: 1s, settle: 1s}\n\n# Cells:", 1)
    parts = cells.split("    on_source_loss:")
    path.write_text(f"{head}\ncells:\n" + "    evidence: [log, pages]\n    on_source_loss:".join(parts))
    lab.run("plan")
    plan = lab.store().newest(Plan)
    assert plan is not None
    lab.plan_id = plan.id
    return before


@pytest.fixture
def paged(whole_lab: Lab, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A lab whose cells are judged on their engines' pages too, by a policy whose `lost_evidence_home` is the test's."""
    lab = whole_lab.fresh(Policy(steps=(("canary", 50, 300), ("complete", 100, 0)), margins=WIDE, lost=request.param))
    before = with_pages(lab)
    lab.ticker(on=True)
    try:
        yield lab
    finally:
        (lab.workspace / FLEET_FILE).write_text(before)


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


@pytest.mark.parametrize("paged", ["4s", pytest.param("120s", marks=[pytest.mark.slow, pytest.mark.timeout(600)])], indirect=True)
def test_one_cell_whose_metrics_are_gone_goes_home_when_its_time_is_over_and_no_sooner(paged: Lab, request: pytest.FixtureRequest) -> None:
    lab, lost = paged, seconds(request.node.callspec.params["paged"])
    lab.start("migrate", CHAT, SUMMARY, "--phase", "canary")
    for c in (CHAT, SUMMARY):
        lab.wait_phase(c, "canary", 60.0)
    gone = time.time()
    lab.fault("metrics", CHAT, "--state", "gone")
    r = lab.wait(CHAT, lambda r: bool(r.ended), "home without evidence", lost + 40.0)
    assert (r.ended, lab.weight(CHAT)) == ("lost_evidence", 0)
    assert time.time() - gone >= lost, "it waited for its evidence to come back"
    assert lab.weight(SUMMARY) == 5_000, "the other cell's evidence is there"
    assert of_kind(lab.events(CHAT), "verdict.fail") == [] or r.latched is None


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("paged", ["5s"], indirect=True)
def test_three_cells_whose_metrics_are_gone_hold_and_one_page_is_sent(paged: Lab) -> None:
    lab = paged
    lab.start("migrate", CHAT, SUMMARY, STREAM, "--phase", "canary")
    for c in (CHAT, SUMMARY, STREAM):
        lab.wait_phase(c, "canary", 90.0)
    log = lab.record.folder / "units" / "ticker.log"
    before = log.read_text().count("notify.page")
    for c in (CHAT, SUMMARY, STREAM):
        lab.fault("metrics", c, "--state", "gone")
    for c in (CHAT, SUMMARY, STREAM):
        lab.wait(c, lambda r: r.hold_reason == "evidence.provider", "held, since the provider is at fault")
    began = time.time()
    until(lambda: time.time() - began > 15, "three times as long as one cell would wait", 20.0)
    assert [lab.weight(c) for c in (CHAT, SUMMARY, STREAM)] == [5_000] * 3
    assert log.read_text().count("notify.page") == before + 1
    lab.clear()
    for c in (CHAT, SUMMARY, STREAM):
        lab.wait(c, lambda r: r.hold_reason == "", "goes on by itself")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_failures_that_the_router_hides_by_trying_again_are_the_targets_all_the_same(whole_lab: Lab) -> None:
    lab = whole_lab.fresh(HALF)

    def restart(retries: int) -> None:
        os.kill(lab.haproxy_pid(), signal.SIGKILL)
        lab.run("lab", "up", "--no-llm", "--no-ticker", "--retries", str(retries))

    restart(2)
    try:
        lab.ticker(on=True)
        child = lab.start("migrate", CHAT, "--phase", "canary")
        lab.wait_phase(CHAT, "canary")
        errors, began = lab.errors(CHAT), time.time() * 1000
        lab.fault("errors", CHAT, "--ratio", "0.3")
        r = lab.wait(CHAT, lambda r: bool(r.ended), "home")
        assert (r.ended, lab.weight(CHAT)) == ("rolled_back", 0)
        assert r.latched is not None
        assert r.latched.guardrail in ("errors", "breaker")
        child.end(5, within_s=60.0)
        rows = [row for row in lab.requests(CHAT) if row["t0"] > began]
        hidden = [row for row in rows if row["rc"] not in ("0", "+0") and row["st"] == 200]
        assert len(hidden) >= 5, "the router made good what the target failed"
        assert {row["a"] for row in hidden} == {"canary"}
        assert lab.errors(CHAT) - errors < len(hidden) / 2, "clients saw next to nothing of it"
    finally:
        lab.ticker(on=False)
        restart(0)
