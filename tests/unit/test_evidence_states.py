"""The truth table of evidence, cell by cell: what each combination of states must give, by rules written here by hand."""

from __future__ import annotations

import importlib.util
import sys
from datetime import timedelta
from itertools import product
from pathlib import Path
from types import ModuleType

import pytest

from fleetctl.domain.evidence import SignalState
from fleetctl.rollout.decide import PROVIDER_CELLS

ROOT = Path(__file__).resolve().parents[2]
QUIET = {"empty", "stale"}
STATES: tuple[SignalState, ...] = ("ok", "empty", "nan", "stale", "reset", "down", "mislabelled", "same_series")


def _module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_evidence_states", ROOT / "docs" / "evidence_states.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


TABLE = _module()


@pytest.mark.parametrize(("baseline", "canary"), list(product(STATES, STATES)))
def test_cell_of_the_truth_table(baseline: SignalState, canary: SignalState) -> None:
    row = TABLE.row(baseline, canary)
    both = {baseline, canary}
    if both == {"ok"}:
        assert (row.open, row.worse, row.good) == ("INCONCLUSIVE", "FAIL", "PASS")
        assert (row.now, row.alone, row.many) == ("waits", "waits", "waits")
    elif both <= QUIET | {"ok"}:
        assert (row.open, row.worse, row.good) == ("NO_DATA", "FAIL", "NO_DATA"), "never PASS; what is there can still FAIL"
        lost = bool(both & QUIET)  # of a quiet arm beside an ok one many requests were due
        assert (row.now, row.alone, row.many) == (("holds", "home", "holds, pages") if lost else ("waits", "waits", "waits"))
    else:
        assert (row.open, row.worse, row.good) == ("PROVIDER_ERROR",) * 3, "nothing of it is used, neither for nor against"
        assert (row.now, row.alone, row.many) == ("holds", "home", "holds, pages")


def test_a_quiet_arm_waits_until_its_requests_were_due_and_a_lull_as_long_as_its_source_is_at_work() -> None:
    def acts(baseline: SignalState, canary: SignalState, **more: object) -> str:
        return str(TABLE.acts(TABLE.evidence(baseline, canary, "open", **more), lost_for=timedelta(seconds=120)))

    for quiet in ("empty", "stale"):
        assert acts("ok", quiet, missed={"canary": 19}) == "waits"
        assert acts("ok", quiet, missed={"canary": 20}) == "home"
        assert acts(quiet, "ok", missed={"baseline": 20}) == "home"
        assert acts(quiet, "stale", source_at=TABLE.T0 - timedelta(seconds=30)) == "waits"
        assert acts(quiet, "stale") == "home", "nobody can tell that the source is at work"
    old = TABLE.evidence("stale", "stale", "open", source_at=TABLE.T0 - timedelta(hours=9))
    asked = {seconds: TABLE.acts(old, proof_at=TABLE.T0 - timedelta(seconds=seconds)) for seconds in (5, 6, 10**5)}
    assert asked == {5: "waits", 6: "holds", 10**5: "waits"}, "asked and waiting; asked in vain; not asked since it last wrote"


def test_the_states_are_all_there_are_and_the_page_shows_every_combination() -> None:
    assert set(TABLE.STATES) == set(STATES)
    page = (ROOT / "docs" / "explanation" / "evidence-states.md").read_text("utf-8")
    for baseline, canary in product(STATES, STATES):
        row = TABLE.row(baseline, canary)
        line = f"| {baseline} | {canary} | {row.open} | {row.worse} | {row.good} | {row.now} | {row.alone} | {row.many} |"
        assert page.count(line) == 1


def test_no_combination_but_ok_and_ok_raises_and_only_a_fail_or_lost_evidence_goes_home() -> None:
    for baseline, canary in product(STATES, STATES):
        good, worse = (TABLE.acts(TABLE.evidence(baseline, canary, counts)) for counts in ("good", "worse"))
        assert (good == "raises") == ({baseline, canary} == {"ok"})
        assert (worse == "home") == (TABLE.row(baseline, canary).worse == "FAIL")


def test_counts_that_went_back_hold_and_go_home() -> None:
    before, _ = TABLE.judge(TABLE.fresh(1), TABLE.evidence("ok", "ok", "good"), (TABLE.ERRORS,))
    back = TABLE.evidence("ok", "ok", "open")
    assert TABLE.acts(back, before=before) == "holds"
    assert TABLE.acts(back, before=before, lost_for=timedelta(seconds=120)) == "home"


def test_an_unrealisable_share_is_never_raised() -> None:
    assert TABLE.acts(TABLE.evidence("ok", "ok", "off"), weight_bp=1_000) == "home", "half the customers at a tenth: such a router is left"


def test_one_and_two_cells_go_home_after_120_s_and_three_hold_with_one_page() -> None:
    lost = timedelta(seconds=120)
    for e in (None, TABLE.evidence("down", "down", "open")):
        assert TABLE.acts(e, lost_for=lost - timedelta(seconds=1)) == "holds"
        assert TABLE.acts(e, lost_for=lost) == "home"
        assert TABLE.acts(e, lost_for=lost, cells=PROVIDER_CELLS - 1) == "home"
        assert TABLE.acts(e, lost_for=timedelta(hours=5), cells=PROVIDER_CELLS) == "holds, pages"
        assert TABLE.acts(e, lost_for=timedelta(hours=5), cells=PROVIDER_CELLS, paged=True) == "holds", "one page for all of them"
