"""Which cells `migrate` moves when plans follow each other: one that is there already is left alone, and it starts all or none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleetctl.analysis.memory import unpack
from fleetctl.domain.fleet import Connection, Fleet
from fleetctl.domain.ids import CellId, PlanId
from fleetctl.domain.plan import Plan
from fleetctl.domain.rollout import Ended, Rollout
from fleetctl.domain.workload import REFUSALS, Guardrail
from fleetctl.errors import FleetctlError, StillPending
from fleetctl.planning.rollout_spec import spec_for
from fleetctl.usecases.approve import approvable
from fleetctl.usecases.migrate import arrived, begin, chosen_cells, retry
from tests.cases.planning_fleet import lab_fleet, plan_of
from tests.fakes.clock import FakeClock
from tests.fakes.store import MemoryStore
from tests.rollouts import JUDGE_STATE, PERSON

CHAT, SMOLLM = CellId("chat-lab"), CellId("smollm-lab")


class Plans:
    """An older plan whose first wave ended somehow, and the plan of today for the same fleet."""

    def __init__(self, ended: Ended, cells: tuple[CellId, ...] = (CHAT,)) -> None:
        self.fleet: Fleet = lab_fleet()
        self.new: Plan = plan_of(self.fleet)
        self.old: Plan = replace(self.new, id=PlanId("p0123456789a"))
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock.now)
        for c in cells:
            made = Rollout(
                cell=c, plan=self.old.id, spec=spec_for(self.old, self.fleet, c), judge=JUDGE_STATE, until="complete", ended=ended
            )
            self.store.start(made, ())

    def of_new(self, c: CellId, ended: Ended) -> None:
        """Put a rollout of today's plan in the store that ended so."""
        spec = spec_for(self.new, self.fleet, c)
        self.store.start(Rollout(cell=c, plan=self.new.id, spec=spec, judge=JUDGE_STATE, until="complete", ended=ended), ())

    def chosen(self, *names: str, at_target: bool = True) -> tuple[CellId, ...]:
        there = arrived(self.new, self.store, lambda _: 10_000 if at_target else 0)
        return chosen_cells(self.new, self.store, names, there)

    def begin(self, *cells: CellId) -> None:
        begin(self.new, self.fleet, cells, "complete", self.store, self.clock, PERSON)


def test_a_cell_that_an_older_plan_completed_stays_on_the_target() -> None:
    p = Plans("complete")
    assert p.chosen() == (SMOLLM,)
    assert p.chosen("chat-lab", "smollm-lab") == (SMOLLM,)
    assert p.chosen("chat") == ()


def test_a_wave_that_an_older_plan_completed_holds_up_no_later_one() -> None:
    assert Plans("complete", (CHAT, SMOLLM)).chosen() == (CellId("stream-lab"), CellId("summary-lab"))


@pytest.mark.parametrize("ended", ["aborted", "rolled_back", "fell_back", "lost_evidence"])
def test_a_cell_that_went_home_moves_again_under_a_new_plan(ended: Ended) -> None:
    p = Plans(ended)
    assert p.chosen() == (CHAT, SMOLLM)
    p.begin(CHAT)
    r = p.store.load(CHAT)
    assert r is not None
    assert (r.plan, r.ended) == (p.new.id, "")


@pytest.mark.parametrize("ended", ["rolled_back", "lost_evidence"])
def test_no_wave_begins_by_itself_after_one_that_came_home(ended: Ended) -> None:
    p = Plans("complete")
    p.of_new(CHAT, "complete")
    p.of_new(SMOLLM, ended)
    with pytest.raises(StillPending) as e:
        p.chosen()
    assert e.value.code == "pending.failed_wave"
    assert "fleetctl retry smollm-lab" in e.value.hint
    assert p.chosen("stream-lab") == (CellId("stream-lab"),), "whoever names a cell has decided"
    retry(p.new, p.fleet, (SMOLLM,), p.store, p.clock, PERSON)
    assert p.chosen() == (CHAT, SMOLLM)


@pytest.mark.parametrize("ended", ["aborted", "fell_back", "complete"])
def test_what_people_took_home_holds_up_no_wave(ended: Ended) -> None:
    p = Plans("complete")
    for c in (CHAT, SMOLLM):
        p.of_new(c, ended)
    assert p.chosen() == (CellId("stream-lab"), CellId("summary-lab"))


def test_a_completed_cell_whose_router_shows_it_at_home_moves_again() -> None:
    assert Plans("complete").chosen(at_target=False) == (CHAT, SMOLLM)


def test_one_cell_that_cannot_start_keeps_the_others_from_starting() -> None:
    p = Plans("", (SMOLLM,))
    with pytest.raises(FleetctlError) as refused:
        p.begin(CHAT, SMOLLM)
    assert refused.value.code == "rollout.other_plan"
    assert p.store.load(CHAT) is None


def test_a_retry_starts_all_of_its_cells_or_none() -> None:
    p = Plans("aborted", (CHAT,))
    with pytest.raises(FleetctlError) as e:
        retry(p.new, p.fleet, (CHAT, SMOLLM), p.store, p.clock, PERSON)
    assert e.value.code == "rollout.not_ended"
    first = p.store.load(CHAT)
    assert first is not None
    assert (first.plan, first.ended) == (p.old.id, "aborted"), "the cell named before the bad one was not touched"
    retry(p.new, p.fleet, (CHAT,), p.store, p.clock, PERSON)
    again = p.store.load(CHAT)
    assert again is not None
    assert (again.plan, again.ended, again.attempt, again.until) == (p.new.id, "", first.attempt + 1, "preflight")


def test_only_a_plan_that_is_there_and_current_may_be_approved() -> None:
    p = Plans("aborted")
    records = p.store
    with pytest.raises(FleetctlError) as e:
        approvable("p000000000000", p.fleet, records)
    assert e.value.code == "plan.missing"
    records.put(p.new.id, p.new)
    assert approvable(p.new.id, p.fleet, records) == p.new
    with pytest.raises(FleetctlError) as e:
        approvable(p.new.id, replace(p.fleet, serial=p.fleet.serial + 1), records)
    assert e.value.code == "plan.stale"


@pytest.mark.parametrize(("sources", "is_beside"), [(("log",), False), (("log", "asked"), True), (("asked", "log"), False)])
def test_errors_of_probes_share_the_capital_from_the_first_step_unless_they_are_the_errors(
    sources: tuple[str, ...], is_beside: bool
) -> None:
    p = Plans("aborted", ())
    asked = Connection(name="asked", kind="probes")
    cells = tuple(replace(c, evidence=sources) if c.id == CHAT else c for c in p.fleet.cells)
    p.fleet = replace(p.fleet, cells=cells, evidence=(asked,))
    p.begin(CHAT)
    made = p.store.load(CHAT)
    assert made is not None
    judged = {g.name for phase in made.spec.phases for g in phase.guardrails if g.judged}
    assert (Guardrail("errors_asked") in judged) is is_beside
    assert unpack(made.judge).guardrails == len(judged | {REFUSALS})


def test_refusals_share_the_capital_from_the_first_step_where_the_log_tells_them() -> None:
    p = Plans("aborted", ())
    p.begin(CHAT)
    made = p.store.load(CHAT)
    assert made is not None
    judged = {g.name for phase in made.spec.phases for g in phase.guardrails if g.judged}
    assert unpack(made.judge).guardrails == len(judged | {REFUSALS}) == len(judged) + 1
