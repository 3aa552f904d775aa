"""A source that was given back: what ways home say of it through plans, until it is made again; and what fallback does about it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from fleetctl.cli.app import App
from fleetctl.cli.commands import release
from fleetctl.cli.commands.fallback import _released
from fleetctl.cli.commands.orders import give_order
from fleetctl.domain.fleet import Connection
from fleetctl.domain.ids import CellId, HostId, PoolId
from fleetctl.domain.people import Reason
from fleetctl.domain.plan import ARRIVED, Plan
from fleetctl.domain.pool import Host
from fleetctl.domain.release import ReleaseView
from fleetctl.domain.rollout import OrderKind
from fleetctl.domain.split import Readiness
from fleetctl.errors import UnsafeFallback
from fleetctl.usecases.capacity import PoolHosts
from fleetctl.usecases.home import HomePorts
from fleetctl.usecases.release import ReleasePorts
from fleetctl.wiring import Wiring
from tests.cases.planning_fleet import lab_fleet, plan_of
from tests.fakes.store import MemoryStore
from tests.rollouts import rollout

CHAT, OTHER, SOURCE = CellId("chat-lab"), CellId("summary-lab"), PoolId("nvidia-lab")
HOSTS = (Host(id=HostId("n-1"), pool=SOURCE, address="10.0.0.1"),)
ROUTER = Connection(name="lab", kind="haproxy", settings={"socket": "/nowhere/s", "map_folder": "/nowhere"})


@pytest.fixture
def wiring(tmp_path: Path) -> Wiring:
    """A workspace whose ways home were written by a plan and whose source was then given back."""
    made = Wiring(tmp_path, lambda: tmp_path / "fleet.yaml", store=tmp_path / ".fleetctl" / "store.db", actor="ada")
    made.__dict__ |= {"fleet": lab_fleet(routers=(ROUTER,)), "store": MemoryStore()}
    made.save_ways_home(plan_of(made.fleet))
    assert said(made) == {CHAT: False, OTHER: False}
    made.note_released(SOURCE)
    assert said(made) == {CHAT: True, OTHER: True}
    return made


def said(w: Wiring) -> dict[CellId, bool]:
    return {c: w.ways_home.read(c).released for c in (CHAT, OTHER)}


def arrived(w: Wiring, *cells: CellId) -> Plan:
    """Return a plan by which these cells are on their target already."""
    plan = plan_of(w.fleet)
    on_target = Reason(code=ARRIVED, text="there")
    return replace(plan, outcomes=tuple(replace(o, reason=on_target) if o.cell in cells else o for o in plan.outcomes))


def test_a_plan_carries_the_release_over_even_where_the_way_home_changed(wiring: Wiring) -> None:
    moved = replace(ROUTER, settings={"socket": "/elsewhere/s", "map_folder": "/nowhere"})
    wiring.__dict__["fleet"] = replace(wiring.fleet, routers=(moved,))
    wiring.save_ways_home(arrived(wiring, CHAT))
    assert wiring.ways_home.read(CHAT).router == moved
    assert said(wiring) == {CHAT: True, OTHER: False}, "the plan moves the other from its source: it has one"
    wiring.note_released(SOURCE)
    wiring.renew_ways_home()
    assert said(wiring) == {CHAT: True, OTHER: True}
    assert wiring.old_ways_home() == ()


def test_another_source_in_the_fleet_file_is_not_released(wiring: Wiring) -> None:
    cells = tuple(replace(c, source=PoolId("mi300x-lab")) if c.id == CHAT else c for c in wiring.fleet.cells)
    wiring.__dict__["fleet"] = replace(wiring.fleet, cells=cells)
    assert wiring.old_ways_home() == (CHAT,)
    wiring.renew_ways_home()
    assert said(wiring) == {CHAT: False, OTHER: True}


def test_a_source_that_is_made_again_is_one_with_the_store_down_too(wiring: Wiring) -> None:
    wiring.note_made()
    assert said(wiring) == {CHAT: True, OTHER: True}, "nothing was made"
    wiring.store.put(SOURCE, PoolHosts(pool=SOURCE, hosts=HOSTS))
    assert {CHAT, OTHER} <= set(wiring.old_ways_home()), "doctor tells"
    wiring.note_made()
    assert said(wiring) == {CHAT: False, OTHER: False}
    assert wiring.old_ways_home() == ()


def test_a_source_that_was_handed_to_its_owner_counts_as_given_back(
    wiring: Wiring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for c in (CHAT, OTHER):
        wiring.ways_home.write(replace(wiring.ways_home.read(c), released=False))
    checked = SimpleNamespace(still=(), blind="nobody saw them", is_gone=False)
    for name, does in (("ask", None), ("hand_over", ()), ("verify", checked)):
        monkeypatch.setattr(f"fleetctl.usecases.release.{name}", lambda *_, does=does: does)
    monkeypatch.setattr("fleetctl.views.release.handoff_text", lambda *_: "")
    app = App(workspace=str(tmp_path))
    app.__dict__["wiring"] = wiring
    found = SimpleNamespace(release=SimpleNamespace(pool=SOURCE, id="r1", step="handed_over"))
    release._hand_over(app, cast("ReleaseView", found), cast("ReleasePorts", SimpleNamespace(run=tmp_path)), None, "", "json")
    assert said(wiring) == {CHAT: True, OTHER: True}


@pytest.mark.parametrize("ready", [0, 1])
def test_a_released_source_that_answers_is_one_and_a_silent_one_is_refused(wiring: Wiring, ready: int) -> None:
    """Its owner has not taken it yet, or built it anew: a real completion proves that, and no record is needed."""
    app = App()
    app.__dict__["wiring"] = wiring
    prober = SimpleNamespace(ready=lambda pool, c: Readiness(pool=pool, cell=c, ready=ready, total=2, age_s=0.1))
    ports = cast("HomePorts", SimpleNamespace(prober=lambda _: prober))
    refused = _released(app, (wiring.ways_home.read(CHAT),), ports)
    assert [f.error.code for f in refused] == ([] if ready else ["fallback.released"])


@pytest.mark.parametrize("kind", ["abort", "rollback"])
def test_nobody_is_ordered_home_to_a_source_that_was_given_back(kind: OrderKind, wiring: Wiring) -> None:
    wiring.store.start(replace(rollout(), cell=CHAT, ended="complete", weight_bp=10_000), ())
    app = cast(App, SimpleNamespace(wiring=wiring))
    with pytest.raises(UnsafeFallback, match="nothing to go home to"):
        give_order(app, kind, (CHAT,), "", dry_run=False)
    found = wiring.store.load(CHAT)
    assert found is not None
    assert found.orders == ()
