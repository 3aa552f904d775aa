"""End to end: prices change, and a cell moves to AMD and back under a standing approval; a run that is killed is gone on with."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from fleetctl.domain.ids import CellId
from fleetctl.domain.plan import Plan
from fleetctl.domain.rebalance import RebalanceRun
from fleetctl.domain.rollout import Rollout
from fleetctl.lab.lifecycle import FLEET_FILE
from tests.lab.e2e import CHAT, QUICK, Lab
from tests.lab.lab_tools import until

pytestmark = pytest.mark.lab
PINNED = "    workload: chat\n    region: lab\n    source: nvidia-lab\n    target: mi300x-lab\n"
FREE = PINNED.replace("    target: mi300x-lab\n", "")
TWO, ONE = "    replicas: 2\n    accelerators_per_replica: 2\n", "    replicas: 1\n    accelerators_per_replica: 4\n"
"""summary's: two replicas are kept on two machines, so that only with one of them does a cell that leaves free a machine."""
NOW = ("--dwell", "0s")
"""A cell of a test does not stay for two weeks."""


@contextmanager
def unpinned(lab: Lab) -> Iterator[None]:
    """Leave chat-lab's target to the planner, and have it be what keeps a second machine; put that, and the prices, back at the end."""
    path = lab.workspace / FLEET_FILE
    text = path.read_text()
    assert PINNED in text
    path.write_text(text.replace(PINNED, FREE).replace(TWO, ONE))
    try:
        yield
    finally:
        path.write_text(path.read_text().replace(FREE, PINNED).replace(ONE, TWO))
        (lab.workspace / ".fleetctl" / "catalog" / "prices.csv").unlink(missing_ok=True)
        lab.home()  # the run has made the target as it needed it; other tests find it as it was
        for command in ("plan", "provision", "configure"):
            lab.run(command, within_s=240)


def price(lab: Lab, usd: str) -> None:
    """Set today's list price of an emulated MI300X machine."""
    table = lab.workspace / "today.csv"
    table.write_text(f"sku,usd_per_hour\nlab-mi300x,{usd}\n")
    lab.run("catalog", "import", "prices", str(table), "--book", "list", "--source", "a test's", "--as-of", "2026-11-30")


def runs(lab: Lab) -> tuple[RebalanceRun, ...]:
    store = lab.store()
    try:
        return store.all(RebalanceRun)
    finally:
        store.close()


def out_of_window(lab: Lab) -> None:
    """Date the runs of earlier tests in this lab two hours back: what they moved must not use up the share of GPUs in a window."""
    store = lab.store()
    try:
        for run in store.all(RebalanceRun):
            store.put(run.id, replace(run, at=run.at - timedelta(hours=2)))
    finally:
        store.close()


def plan_of(lab: Lab) -> str:
    """Return the plan under which chat-lab moved last."""
    store = lab.store()
    try:
        r = store.load(CellId(CHAT))
        return "" if r is None else r.plan
    finally:
        store.close()


def newest(lab: Lab) -> str:
    store = lab.store()
    try:
        plan = store.newest(Plan)
        assert plan is not None
        return plan.id
    finally:
        store.close()


def ready(lab: Lab) -> None:
    """Have a lab whose chat-lab a schedule may move: a person has tried again since evidence sent it home, if it ever did."""
    lab.fresh(replace(QUICK, shadow=False), ticker=True)
    lab.run("migrate", CHAT, "--phase", "preflight")
    lab.run("abort", CHAT)


def ended(lab: Lab, how: str) -> Rollout:
    lab.plan_id = newest(lab) if how == "complete" else lab.plan_id
    return lab.wait(CHAT, lambda r: r.ended == how, f"{CHAT} {how}", 240)


def test_prices_move_a_cell_to_amd_and_back_under_a_standing_approval(whole_lab: Lab) -> None:
    lab = whole_lab
    ready(lab)
    errors = lab.all_errors()
    with unpinned(lab):
        price(lab, "40")
        before = newest(lab)
        shown = lab.run("rebalance", "--moves", "2", "--share", "100%", *NOW)
        assert "Nothing was changed and nothing was saved." in shown.out
        assert newest(lab) == before
        assert "error[rebalance.no_standing]" in lab.run("rebalance", "--apply", *NOW, code=7).err
        assert runs(lab) == (), "a run has been here already (a kept lab?): its moves count"
        lab.run("rebalance", "--approve", "--until", "2999-12-31", "--moves", "2", "--share", "100%", "--window", "1h")

        killed = lab.start("rebalance", "--apply", *NOW)
        until(lambda: plan_of(lab) != before, "the run began the move", 90)
        killed.kill()
        killed.end(None)  # until it is reaped it counts as alive
        again = lab.run("rebalance", "--apply", *NOW, within_s=120)
        assert "Nothing" in again.out, "what has begun is not begun again"
        done = ended(lab, "complete")
        assert lab.weight(CHAT) == 10_000
        assert [r.begun for r in runs(lab)] == [(CHAT,)]
        starts = [e for e in lab.events(CHAT) if e.kind == "rollout.start" and e.data["plan"] == done.plan]
        assert [(e.actor.kind, e.actor.via) for e in starts] == [("schedule", "timer")]
        assert "Nothing is worth moving" in lab.run("rebalance", "--apply", *NOW).out

        price(lab, "400")
        home = lab.run("rebalance", "--apply", *NOW, "-o", "json", within_s=120)
        (shift,) = json.loads(home.out.splitlines()[0] if home.out.startswith('{"') else home.out)["shifts"]
        assert (shift["cell"], shift["source"], shift["target"], shift["order"]) == (CHAT, "mi300x-lab", "nvidia-lab", "home")
        ended(lab, "fell_back")
        assert lab.weight(CHAT) == 0
        price(lab, "40")
        spent = lab.run("rebalance", "--apply", *NOW)
        assert "may still move in this window" in spent.out, "two moves are what the envelope allows"
        assert lab.all_errors() == errors, "no client noticed"
        lab.run("audit", "verify")


def made(lab: Lab, name: str) -> int:
    """Count the run folders of a kind."""
    return len(list((lab.workspace / ".fleetctl" / "runs").glob(f"*-{name}-*")))


KILLED_AT: dict[str, Callable[[Lab, str, int, int], bool]] = {
    "its plan is saved": lambda lab, plan, _p, _c: newest(lab) != plan,
    "it provisions": lambda lab, _plan, provisions, _c: made(lab, "provision") > provisions,
    "it configures": lambda lab, _plan, _p, configures: made(lab, "configure") > configures,
    "its move has begun": lambda lab, plan, _p, _c: plan_of(lab) not in ("", plan) and plan_of(lab) == newest(lab),
}


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.timeout(900)
@pytest.mark.parametrize("moment", sorted(KILLED_AT))
def test_killed_at_any_stage_and_run_again_moves_the_cell_once(whole_lab: Lab, moment: str) -> None:
    lab = whole_lab
    ready(lab)
    with unpinned(lab):
        price(lab, "40")
        out_of_window(lab)
        lab.run("rebalance", "--approve", "--until", "2999-12-31", "--moves", "50", "--share", "100%", "--window", "1h")
        before, provisions, configures = newest(lab), made(lab, "provision"), made(lab, "configure")
        known, seq = len(runs(lab)), lab.seq(CHAT)
        limits = (*NOW, "--moves", "50")
        killed = lab.start("rebalance", "--apply", *limits)
        until(lambda: KILLED_AT[moment](lab, before, provisions, configures), moment, 120)
        killed.kill()
        killed.end(None)  # until it is reaped it counts as alive
        again = lab.run("rebalance", "--apply", *limits, within_s=240, code=None)  # 0, or 8 while it soaks
        began = [e for e in lab.events(CHAT, seq) if e.kind == "rollout.start"]
        assert len(began) == 1, f"{moment}: {again.out}{again.err}"
        counted = [r for r in runs(lab)[known:] if r.begun]
        assert [r.begun for r in counted] == [(CHAT,)], "what began is counted once"
        assert not any(r.open for r in runs(lab))
        lab.run("abort", CHAT)
        lab.run("audit", "verify")
