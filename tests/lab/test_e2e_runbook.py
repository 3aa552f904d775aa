"""End to end: runbooks stepped through in the lab, their expected outputs held, and rehearsals timed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleetctl.domain.provision import Drill
from fleetctl.domain.runbook import Step
from fleetctl.formats.runbook_file import ORDER, load_runbook
from fleetctl.ports.runbook import Ended
from fleetctl.usecases.runbook import unexpected
from tests.lab.e2e import CHAT, HALF, SUMMARY, Done, Lab, of_kind

pytestmark = pytest.mark.lab


def to_half(lab: Lab, *cells: str) -> None:
    """Bring cells to 50 %, judged."""
    lab.start("migrate", *cells, "--phase", "canary")
    for c in cells:
        lab.wait_phase(c, "canary")
        assert lab.weight(c) == 5_000


def live(lab: Lab) -> dict[str, str]:
    """Return what `show` knows of the cell."""
    whole = json.loads(lab.run("runbook", "show", CHAT, "full-fallback", "-o", "json").out)
    return {v["name"]: v["text"] for v in whole["live"]}


def test_the_full_fallback_is_stepped_through_and_brings_everything_home(whole_lab: Lab) -> None:
    lab = whole_lab.fresh(HALF, ticker=True)
    to_half(lab, CHAT, SUMMARY)
    known = live(lab)
    assert known["weight"].startswith("50 % on the target")
    assert known["source"].startswith("2 of 2 replicas of nvidia-lab")
    assert known["migration"].startswith("canary at 50 %")
    done = lab.run("runbook", "run", CHAT, "full-fallback", "--yes", within_s=120)
    assert f"runbook/full-fallback of {CHAT} is through, 1 left out" in done.out
    for step in ("look", "go-home", "reconcile", "at-zero", "nothing-moves"):
        assert f"  {step}: as expected" in done.err
    for c in (CHAT, SUMMARY):
        assert lab.weight(c) == 0
        lab.wait(c, lambda r: r.ended == "fell_back", "the rollout ended as fallen back")
    assert of_kind(lab.events(CHAT), "runbook.done")
    lab.run("audit", "verify")


def test_a_runbook_is_refused_for_a_cell_that_is_not_there(whole_lab: Lab) -> None:
    assert "error[fallback.unknown]" in whole_lab.run("runbook", "run", "nobody", "errors", "--yes", code=1).err
    assert "error[usage.confirm]" in whole_lab.run("runbook", "run", CHAT, "errors", code=2).err


@pytest.mark.slow
@pytest.mark.parametrize("name", ORDER)
def test_every_runbook_holds_in_the_lab(whole_lab: Lab, name: str) -> None:
    lab = whole_lab.fresh(HALF, ticker=True)
    to_half(lab, CHAT)
    lab.run("runbook", "run", CHAT, name, "--yes", "--again", within_s=240)


CHOICES = [(name, s.id) for name in ORDER for s in load_runbook(name).steps if s.choice and s.command]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "id_"), CHOICES)
def test_every_step_that_is_a_persons_choice_holds_in_the_lab(whole_lab: Lab, name: str, id_: str) -> None:
    lab = whole_lab.fresh(HALF, ticker=True)
    to_half(lab, CHAT)
    book = json.loads(lab.run("runbook", "show", CHAT, name, "-o", "json").out)["runbooks"][0]["runbook"]
    (words,) = [s["command"] for s in book["steps"] if s["id"] == id_]
    done: Done = lab.run(*words[1:], code=None, within_s=240)
    (step,) = [s for s in load_runbook(name).steps if s.id == id_]
    assert unexpected(_of(step), Ended(exit_code=done.code, output=done.out + done.err, seconds=done.seconds)) == ""


def _of(step: Step) -> Step:
    from dataclasses import replace

    return replace(step, expect=replace(step.expect, pattern=step.expect.pattern.replace("{cell}", CHAT)))


@pytest.mark.slow
def test_a_rehearsal_is_green_and_counts_for_the_release_gate(whole_lab: Lab, tmp_path: Path) -> None:
    lab = whole_lab.fresh(HALF, ticker=True)
    assert "error[runbook.no_traffic]" in lab.run("runbook", "drill", CHAT, code=1).err
    to_half(lab, CHAT)
    report = tmp_path / "report.json"
    done = lab.run("runbook", "drill", CHAT, "--out", str(report), "-o", "json", within_s=240)
    timing = done.last["timing"]
    assert timing["is_ok"], timing
    assert timing["detect_s"] <= timing["zero_s"] <= timing["verified_s"]
    assert json.loads(report.read_text())["timing"] == timing
    assert "green" in lab.run("runbook", "list").out
    kept = lab.store().get(Drill, CHAT)
    assert kept is not None
    assert kept.ok
    assert lab.weight(CHAT) == 0
