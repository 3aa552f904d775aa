"""No cell starts while its SLO budget is spent or nobody can tell; going home and what moves already never ask."""

from __future__ import annotations

import inspect
from dataclasses import replace

import pytest

from fleetctl.domain.ids import CellId, PlanId
from fleetctl.errors import ConfigInvalid, EvidenceUnavailable, StillPending
from fleetctl.usecases import guard, home
from fleetctl.usecases.budget import BudgetGate, ask_budget
from fleetctl.wiring.budget import budget_gate
from tests.cases.planning_fleet import lab_fleet
from tests.fakes.json_double import json_double
from tests.fakes.store import MemoryStore
from tests.rollouts import CELL, rollout

URL, QUERY = "slo_budget.prometheus", "slo_budget.query"


@pytest.mark.parametrize(("left", "least", "starts"), [(0.5, 0.0, True), (0.0, 0.0, False), (-0.2, 0.0, False), (0.1, 0.1, False)])
def test_what_is_left_decides(left: float, least: float, starts: bool) -> None:
    gate = BudgetGate(left=lambda _: left, least=least)
    if starts:
        gate([CELL])
        return
    with pytest.raises(StillPending) as refused:
        gate([CELL])
    assert refused.value.code == "pending.budget"
    assert "no cell was started" in refused.value.message
    assert f"{left:.1%} left" in refused.value.details[0]


def test_an_unknown_budget_starts_nobody_and_a_silent_source_is_not_asked_for_each_of_thousands() -> None:
    asked: list[CellId] = []

    def silent(c: CellId) -> float:
        asked.append(c)
        raise EvidenceUnavailable("evidence.budget", "it does not answer")

    with pytest.raises(StillPending) as refused:
        BudgetGate(left=silent)([CellId(f"c{i}") for i in range(1_000)])
    assert len(asked) == 3
    assert len(refused.value.details) == 1_000
    assert "not known: it does not answer" in refused.value.details[0]
    with pytest.raises(StillPending):
        BudgetGate(left=lambda _: float("nan"))([CELL])


def test_what_moves_already_goes_on_and_nothing_configured_asks_nothing() -> None:
    store, spent = MemoryStore(), BudgetGate(left=lambda _: 0.0)
    plan = rollout().plan
    store.start(rollout(), ())
    ask_budget(plan, [CELL], store, spent)
    ask_budget(plan, [CellId("another")], store, None)
    with pytest.raises(StillPending):
        ask_budget(plan, [CellId("another")], store, spent)
    with pytest.raises(StillPending):
        ask_budget(PlanId("p2"), [CELL], store, spent)


def test_going_home_knows_no_budget() -> None:
    assert "budget" not in (inspect.getsource(home) + inspect.getsource(guard)).lower()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"result": [{"metric": {}, "value": [0, "0.4"]}]}, ""),
        ({"result": []}, "gives 0 numbers"),
        ({"result": [{"metric": {}, "value": [0, "NaN"]}]}, "gives 0 numbers"),
        ({"result": [{"metric": {"a": "1"}, "value": [0, "1"]}, {"metric": {"a": "2"}, "value": [0, "1"]}]}, "gives 2 numbers"),
    ],
)
def test_the_query_of_the_fleet_file_must_give_one_number(answer: dict[str, object], said: str) -> None:
    data = {"status": "success", "data": {"resultType": "vector", **answer}}
    with json_double({"/api/v1/query": data}) as double:
        fleet = replace(lab_fleet(), settings={URL: double.url, QUERY: 'slo:left{cell="CELL",region="REGION"}'})
        gate = budget_gate(fleet)
        assert gate is not None
        cell = fleet.cells[0].id
        if not said:
            assert gate.left(cell) == 0.4
            assert double.asked[0][2]["query"] == [f'slo:left{{cell="{cell}",region="{fleet.cells[0].region}"}}']
        else:
            with pytest.raises(EvidenceUnavailable, match=said):
                gate.left(cell)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({QUERY: "x"}, "slo_budget.prometheus is missing"),
        ({URL: "http://127.0.0.1:1"}, "slo_budget.query is missing"),
        ({URL: "http://127.0.0.1:1", QUERY: "x", "slo_budget.least": "half"}, "no share from 0 to 1"),
        ({URL: "http://127.0.0.1:1", QUERY: "x", "slo_budget.lest": "0"}, "slo_budget.lest is not known"),
    ],
)
def test_a_gate_that_is_half_configured_is_an_error_not_an_open_one(settings: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigInvalid, match=said):
        budget_gate(replace(lab_fleet(), settings=settings))
    assert budget_gate(lab_fleet()) is None
