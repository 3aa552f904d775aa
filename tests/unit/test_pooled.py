"""Evidence of equal cells together: when it passes, and when it must not."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from math import log

import pytest

from fleetctl.analysis.judge import fresh, judge
from fleetctl.analysis.pooled import Member, pooled, stop_of
from fleetctl.domain.evidence import JudgeState, Verdict
from fleetctl.domain.ids import CellId
from fleetctl.domain.rollout import RolloutSpec
from fleetctl.domain.workload import Guardrail, GuardrailSpec, Lane
from tests.fakes.simulated_evidence import Setting, looks
from tests.rollouts import spec, verdict
from tests.simulator import Simulation

SPECS = (GuardrailSpec(name=Guardrail("errors"), margin=0.02, fail_margin=0.0),)
FEW = Setting(per_s=0.4, share=0.5, errors0=0.0, errors1=0.0, look_s=30, looks=12)
OTHER = CellId("summary-lab")


def seen(setting: Setting, seed: int, specs: tuple[GuardrailSpec, ...] = SPECS) -> tuple[JudgeState, tuple[Verdict, ...], object]:
    state, last = fresh(), None
    verdicts: tuple[Verdict, ...] = ()
    for e in looks(setting, seed):
        state, verdicts = judge(state, e, specs)
        last = e
    assert last is not None
    return state, verdicts, last


def together(n: int, setting: Setting = FEW, **member: bool) -> tuple[Verdict, ...]:
    state, verdicts, last = seen(setting, 0)
    members = tuple(Member(cell=CellId(f"c{i}"), state=seen(setting, i)[0], **member) for i in range(1, n))
    return pooled(verdicts, state, last, members, SPECS)  # type: ignore[arg-type]


def test_enough_equal_cells_pass_together_and_say_so() -> None:
    assert together(1)[0].kind == "INCONCLUSIVE"
    whole, errors = together(6)[:2]
    assert (whole.kind, errors.kind) == ("PASS", "PASS")
    assert errors.pass_e_value >= 20
    assert "with 5 equal cells" in errors.detail


def test_what_cannot_pass_alone_is_not_made_up_for_by_siblings() -> None:
    state, verdicts, last = seen(FEW, 0)
    members = tuple(Member(cell=CellId(f"c{i}"), state=seen(FEW, i)[0]) for i in range(1, 6))
    held = tuple(replace(v, blocked=True) if v.guardrail == "errors" else v for v in verdicts)
    assert pooled(verdicts, state, last, members, SPECS)[0].kind == "PASS"  # type: ignore[arg-type]
    assert [v.kind for v in pooled(held, state, last, members, SPECS)[:2]] == ["INCONCLUSIVE"] * 2  # type: ignore[arg-type]


def test_never_below_100_canary_requests_together() -> None:
    tiny = replace(FEW, looks=4, share=0.1)
    assert together(3, tiny)[0].kind != "PASS"


def test_a_cell_that_failed_holds_all() -> None:
    whole = together(6, failed=True)[0]
    assert whole.kind == "INCONCLUSIVE"


def test_a_detail_alone_blocks_nothing_and_a_block_needs_no_detail() -> None:
    state, verdicts, last = seen(FEW, 0)
    members = tuple(Member(cell=CellId(f"c{i}"), state=seen(FEW, i)[0]) for i in range(1, 6))
    told = tuple(replace(v, detail="shown to people") for v in verdicts)
    assert [v.kind for v in pooled(told, state, last, members, SPECS)[:2]] == ["PASS"] * 2  # type: ignore[arg-type]


def test_a_cell_that_has_passed_counts_its_bound_and_no_more() -> None:
    state, verdicts, last = seen(FEW, 0)
    passed = stop_of(seen(replace(FEW, looks=40), 1)[0], 1)
    assert dict(passed.passes) == {"errors": log(20)}
    gone = (Member(cell=OTHER, state=None, stop=passed),)
    assert pooled(verdicts, state, last, gone, SPECS)[0].kind == "PASS"  # type: ignore[arg-type]
    worse = replace(FEW, errors1=0.06, looks=10)
    state, verdicts, last = seen(worse, 3)
    assert verdicts[0].kind == "INCONCLUSIVE"
    assert pooled(verdicts, state, last, gone, SPECS)[0].kind == "INCONCLUSIVE"  # type: ignore[arg-type]


def test_a_cell_that_left_on_the_groups_evidence_counts_what_it_had_shown_itself() -> None:
    left = [stop_of(seen(FEW, i)[0], 1) for i in range(1, 6)]
    assert all(value < log(20) for s in left for _, value in s.passes)
    state, verdicts, last = seen(replace(FEW, looks=4), 0)
    for n in range(1, 6):
        gone = tuple(Member(cell=CellId(f"c{i}"), state=None, stop=s) for i, s in enumerate(left[:n]))
        here = tuple(Member(cell=CellId(f"c{i}"), state=seen(FEW, i)[0]) for i in range(1, n + 1))
        own, alike = (pooled(verdicts, state, last, m, SPECS) for m in (gone, here))  # type: ignore[arg-type]
        assert own == alike, "leaving a step neither adds to nor takes from what was shown there"
    bad = replace(left[0], passes=(("errors", -9.0),))
    assert pooled(verdicts, state, last, (*gone, Member(cell=OTHER, state=None, stop=bad)), SPECS)[0].kind == "INCONCLUSIVE"  # type: ignore[arg-type]


@pytest.mark.slow
def test_five_cells_that_are_all_worse_by_the_margin_rarely_pass_together() -> None:
    passed = 0
    for run in range(200):
        states = [fresh() for _ in range(5)]
        streams = [list(looks(replace(FEW, per_s=1.0, errors1=0.02, looks=20), 1000 * run + i)) for i in range(5)]
        for row in zip(*streams, strict=True):
            verdicts: tuple[Verdict, ...] = ()
            for i, e in enumerate(row):
                states[i], found = judge(states[i], e, SPECS)
                verdicts = verdicts or found
            members = tuple(Member(cell=CellId(f"c{i}"), state=s) for i, s in enumerate(states[1:], 1))
            if pooled(verdicts, states[0], row[0], members, SPECS)[0].kind == "PASS":
                passed += 1
                break
    assert passed <= 20  # 5 % of 200 and four standard errors


def pooled_spec(cells: tuple[CellId, ...]) -> RolloutSpec:
    made = spec(lane=Lane(kind="pooled", reason="given by the plan"), bake_s=2.0)
    errors = tuple(replace(p, guardrails=SPECS if p.guardrails else ()) for p in made.phases)
    return replace(made, phases=errors, group=cells, warm_up=timedelta(0))


def test_cells_that_alone_would_wait_go_through_together_in_the_tick() -> None:
    cells = (CellId("chat-lab"), CellId("summary-lab"), CellId("third-lab"))
    s = Simulation(cells=cells, of=pooled_spec(cells), rate_per_s=30)
    s.begin()
    s.run(60, lambda: all((r := s.store.load(c)) is not None and r.step >= 2 for c in cells))
    alone = Simulation(cells=cells[:1], of=pooled_spec(cells[:1]), rate_per_s=30)
    alone.begin()
    alone.run(60, lambda: (r := alone.store.load(cells[0])) is not None and r.step >= 2)
    assert s.clock.now() < alone.clock.now()
    left = [r for c in cells if (r := s.store.load(c)) is not None]
    assert all(1 in r.shown for r in left)
    own = [dict(stop.passes)["errors"] for r in left for stop in r.stops if stop.step == 1]
    assert len(own) == len(cells)
    assert min(own) < log(20) <= sum(own) + 1e-9, "each kept its own evidence, and only together it was enough"


def test_an_equal_cell_that_fails_keeps_the_others_where_they_are() -> None:
    cells = (CellId("chat-lab"), CellId("summary-lab"))
    s = Simulation(cells=cells, of=pooled_spec(cells), rate_per_s=30)
    s.begin()
    s.run(20, lambda: all((r := s.store.load(c)) is not None and r.phase == "canary" for c in cells))
    first = s.store.load(cells[0])
    assert first is not None
    failed = replace(first, latched=verdict("FAIL"), ended="rolled_back", direction="home")
    s.store._rollouts[cells[0]][-1] = failed
    s.run(60)
    other = s.store.load(cells[1])
    assert other is not None
    assert (other.phase, other.step_done, other.ended) == ("canary", False, "")
