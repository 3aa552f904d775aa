"""What `migrate` and orders wait for, and when they stop waiting: pure questions about a rollout, and the resident ticker's loop."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from fleetctl.adapters.store.sqlite import SqliteStore
from fleetctl.cli.app import App
from fleetctl.cli.main import cli
from fleetctl.cli.resident import Resident
from fleetctl.domain.fleet import Phase
from fleetctl.domain.ids import CellId, PoolId
from fleetctl.domain.rollout import Order, Rollout
from fleetctl.domain.split import Readiness
from fleetctl.errors import StoreUnavailable
from fleetctl.usecases.migrate import Driver, arrived, chosen_cells, is_lowered, is_stuck, reached
from fleetctl.usecases.tick import TickSettings
from fleetctl.wiring import Wiring
from tests.fakes.store import MemoryStore
from tests.rollouts import CELL, PERSON, T0, rollout
from tests.simulator import Simulation, quick


def lowered(until: Phase) -> Rollout:
    return replace(rollout(until=until), settled_at=T0)


def test_a_rollback_by_a_person_ends_the_wait_for_a_later_phase() -> None:
    r = lowered("canary")
    assert is_lowered(r, "ramp")
    assert reached(r, "ramp", "phase")
    assert not is_lowered(r, "canary")


def test_an_advance_that_is_not_yet_obeyed_is_no_rollback() -> None:
    r = replace(lowered("canary"), orders=(Order(kind="advance", actor=PERSON, at=T0, until="ramp"),))
    assert not is_lowered(r, "ramp")
    assert not reached(r, "ramp", "phase")


@pytest.mark.parametrize(
    ("reason", "stuck"),
    [("traffic.router_down", True), ("stale", True), ("home.source_not_ready", True), ("step.inconclusive", False), ("", False)],
)
def test_what_keeps_an_order_from_being_obeyed(reason: str, stuck: bool) -> None:
    assert is_stuck(replace(rollout(), hold_reason=reason)) is stuck
    assert not is_stuck(replace(rollout(), hold_reason=reason, ended="aborted"))


def wiring(folder: Path) -> Wiring:
    return Wiring(folder, lambda: folder / "fleet.yaml", store=folder / ".fleetctl" / "store.db", actor="ada")


def test_an_empty_store_never_takes_the_place_of_a_lost_one(tmp_path: Path) -> None:
    home = tmp_path / ".fleetctl" / "home"
    home.mkdir(parents=True)
    (home / "chat-lab.json").write_text("{}")
    for ask in (lambda: wiring(tmp_path).store, lambda: wiring(tmp_path).status_rows()):
        with pytest.raises(StoreUnavailable) as refused:
            ask()
        assert refused.value.code == "store.gone"
    assert not (tmp_path / ".fleetctl" / "store.db").exists()
    (home / "chat-lab.json").unlink()
    wiring(tmp_path).store.close()
    assert (tmp_path / ".fleetctl" / "store.db").exists()


def test_the_resident_ticker_says_each_trouble_once_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetctl.cli.resident.AGAIN_S", 0.0)
    monkeypatch.setattr("fleetctl.cli.resident.IDLE_S", 0.0)
    said: list[str] = []
    rounds: Iterator[bool] = iter([False, False, False, True])
    Resident(lambda: App(workspace=str(tmp_path)), said.append).run(lambda: next(rounds))
    assert len(said) == 1
    assert said[0].startswith("error[config.")


def test_a_store_that_fails_for_long_costs_no_thread_and_no_notifier_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetctl.cli.resident.AGAIN_S", 0.0)
    monkeypatch.setattr("fleetctl.cli.resident.IDLE_S", 0.0)
    assert CliRunner().invoke(cli, ["--workspace", str(tmp_path), "init"]).exit_code == 0
    fleet = tmp_path / "inventory/example/fleet.yaml"
    monkeypatch.setenv("TEAM_HOOK", "http://127.0.0.1:9/x")
    text = re.sub(r"(?ms)^notify:.*?(?=^\S|\Z)", "", fleet.read_text())
    fleet.write_text(text + "notify:\n  lasting: {kind: slack, secrets: {url: {kind: env, name: TEAM_HOOK}}}\n")
    rounds, threads = [0], set[int]()

    def fails(*_: object) -> None:
        rounds[0] += 1
        threads.add(len([t for t in threading.enumerate() if t.name == "notify-lasting" and t.is_alive()]))
        raise StoreUnavailable("store.full", "the disk is full.")

    monkeypatch.setattr(SqliteStore, "acquire", fails)
    said: list[str] = []
    resident = Resident(lambda: App(workspace=str(tmp_path)), said.append)
    resident.run(lambda: rounds[0] >= 20)
    assert said == ["error[store.full]: the disk is full."]
    assert threads == {1}
    kept = [p.read_text() for p in (tmp_path / ".fleetctl/notify/lasting").glob("*.json")]
    assert [("nothing is judged" in text, "store.full" in text) for text in kept] == [(True, True)], "people are told, once"
    fleet.write_text(fleet.read_text().replace("  lasting: {", "  another: {"))
    resident.run(lambda: rounds[0] >= 25)
    until = time.monotonic() + 10
    while any(t.name == "notify-lasting" for t in threading.enumerate()):
        assert time.monotonic() < until, "the old channel's thread goes on"
        time.sleep(0.01)
    assert any(t.name == "notify-another" for t in threading.enumerate())
    assert resident._wiring is not None
    resident._wiring.notifier.close()  # type: ignore[attr-defined]


class SlowProber:
    """A prober whose probes of some cells wait 5 s for a replica that never answers."""

    def __init__(self, s: Simulation, slow: tuple[CellId, ...]) -> None:
        self._s, self._slow = s, slow

    def ready(self, pool: PoolId, c: CellId) -> Readiness:
        if c not in self._slow:
            return Readiness(pool=pool, cell=c, ready=1, total=1, age_s=0.0)
        self._s.clock.advance(timedelta(seconds=5))
        return Readiness(pool=pool, cell=c, ready=0, total=1, age_s=5.0)


def test_cells_that_wait_for_a_dead_replica_do_not_starve_the_others() -> None:
    dead, good = tuple(CellId(f"dead-{i}") for i in range(12)), CellId("good")
    s = Simulation((*dead, good), of=quick(), rate_per_s=1)
    s.begin()
    prober = SlowProber(s, dead)
    ticked: list[tuple[CellId, datetime]] = []
    driver = Driver(
        ports=replace(s.ports(), prober=lambda _: prober),
        settings=TickSettings(holder="a", ttl=timedelta(seconds=15)),
        on_tick=lambda t: ticked.append((t.cell, s.clock.now())),
    )
    for _ in range(60):
        assert driver.is_ticking(), "its lease outlasts one slow tick"
        driver.step()
        s.clock.advance(timedelta(milliseconds=100))
    looks = [at for c, at in ticked if c == good][-20:]
    assert max(b - a for a, b in pairwise(looks)) < timedelta(seconds=7)
    assert {c for c, _ in ticked} == {*dead, good}


def test_the_resident_ticker_survives_what_nobody_expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def burst(_: Resident) -> int:
        raise KeyError("nobody thought of it")

    monkeypatch.setattr("fleetctl.cli.resident.IDLE_S", 0.0)
    monkeypatch.setattr(Resident, "_step", burst)
    said: list[str] = []
    rounds: Iterator[bool] = iter([False, False, True])
    Resident(lambda: App(workspace=str(tmp_path)), said.append).run(lambda: next(rounds))
    assert said == ["unexpected KeyError: 'nobody thought of it'"]


class PlanOf:
    """As much of a plan as the question needs."""

    def __init__(self, plan_id: str, target: str) -> None:
        self.id = plan_id
        self.outcomes = (SimpleNamespace(cell=CELL, workload="chat", kind="move", target=target),)
        self.waves = (SimpleNamespace(index=1, cells=(CELL,), stage=1),)


@pytest.mark.parametrize(
    ("plan_id", "target", "shown", "is_there"),
    [
        ("p-new", "mi300x-lab", 10_000, True),
        ("p-new", "mi300x-lab", 0, False),
        ("p-new", "elsewhere", 10_000, False),
    ],
)
def test_a_new_plan_does_not_send_back_what_has_arrived(plan_id: str, target: str, shown: int, is_there: bool) -> None:
    store = MemoryStore()
    whole = rollout()
    store.start(replace(whole, step=len(whole.spec.phases) - 1, weight_bp=10_000, ended="complete"), ())
    plan: Any = PlanOf(plan_id, target)
    there = arrived(plan, store, lambda _: shown)
    assert (CELL in there) is is_there
    assert chosen_cells(plan, store, (), there) == (() if is_there else (CELL,))
    assert chosen_cells(plan, store, ("chat",), there) == (() if is_there else (CELL,))


def test_the_fleets_chain_vouches_for_a_cell_whose_story_is_told() -> None:
    s = Simulation(of=quick())
    s.begin()
    s.store.order(CELL, Order(kind="abort", actor=PERSON, at=T0))
    driver = Driver(ports=s.ports(), settings=TickSettings(holder="a"), on_tick=lambda _: None)
    assert driver.step() == 1
    (anchor,) = (e for e in s.store.events(None, 0) if e.kind == "audit.anchor")
    last = tuple(s.store.events(CELL, 0))[-1]
    assert anchor.data[CELL] == f"{last.seq}:{last.hash}"
    assert driver.step() == 0


def test_the_fleets_chain_vouches_for_a_cell_whose_story_goes_on() -> None:
    """Soak lasts for days: a chain whose end is cut meanwhile is found by an anchor of at most ten minutes before."""
    s = Simulation(of=quick())
    s.begin()
    s.store.order(CELL, Order(kind="pause", actor=PERSON, at=T0))
    driver = Driver(ports=s.ports(), settings=TickSettings(holder="a"), on_tick=lambda _: None)
    for _ in range(130):
        driver.step()
        s.clock.advance(timedelta(seconds=5))
    assert not s.rollout().ended
    anchored = [e for e in s.store.events(None, 0) if e.kind == "audit.anchor"]
    assert len(anchored) == 1
    assert CELL in anchored[0].data
