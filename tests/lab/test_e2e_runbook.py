"""End to end: runbooks stepped through in the lab, their expected outputs held, and rehearsals timed."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest

from fleetctl.domain.provision import Drill
from fleetctl.domain.runbook import Expect, Step
from fleetctl.formats.runbook_file import ORDER, load_runbook
from fleetctl.ports.runbook import Ended
from fleetctl.usecases.runbook import unexpected
from tests.lab.e2e import CHAT, HALF, SUMMARY, Lab, of_kind

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


def commands_in(page: str, head: str) -> list[tuple[list[str], tuple[int, ...], str]]:
    """Return what a person copies from a section of a printed page: each command, its exit codes, and what it should show.

    A step by hand and one that is left to a person's judgement are passed over.
    """
    section = page.split(f"\n{head}\n", 1)[1].split("\n\n", 1)[0].replace("\\\n", " ")
    found = []
    for step in re.split(r"(?m)^  \d+\. ", section)[1:]:
        command = re.search(r"(?m)^ +\$ (fleetctl .*)$", step)
        if command is None or "[only where this says so]" in " ".join(step.split()):
            continue
        told = re.search(r"Expect: exit ([0-9 or]+); it shows: (.*?)\. Time: ", " ".join(step.split()))
        assert told is not None, step
        found.append((shlex.split(command[1]), tuple(map(int, re.findall(r"\d+", told[1]))), told[2]))
    return found


def typed(lab: Lab, words: Sequence[str], code: int | None = 0) -> str:
    """Run a command as a person types it, at 80 columns, and return what it printed."""
    assert words[0] == "fleetctl"
    done = lab.run(*words[1:], code=code, within_s=120, env={"COLUMNS": "80"})
    assert [x for x in done.out.splitlines() if len(x) > 80] == []
    return done.out + done.err


def test_who_has_never_seen_it_brings_a_bad_migration_home_by_the_printed_page_alone(whole_lab: Lab) -> None:
    lab = whole_lab.fresh(HALF, ticker=True)
    to_half(lab, CHAT, SUMMARY)
    errors = lab.errors(CHAT)  # the load may have run for longer than this test
    lab.fault("wrong_tokens", CHAT, "--ratio", "0.5")  # answers are quick and wrong: no guardrail of this cell sees it, people do
    listed = typed(lab, ("fleetctl", "runbook", "list"))
    (name,) = [line.split()[0] for line in listed.splitlines() if "Wrong, cut or strange answers" in line]
    assert CHAT in listed.split("Cells: ")[1]
    triage = typed(lab, ("fleetctl", "runbook", "show", CHAT))
    assert "50 % on the target" in triage
    show, run = (shlex.split(x.replace("NAME", name)) for x in re.findall(r"(?m)^ +\$ (fleetctl runbook .*)$", triage))
    page = typed(lab, show)
    assert shlex.split(re.findall(r"(?m)^ +\$ (fleetctl runbook run .*)$", page)[0]) == run
    for words, exits, _ in commands_in(page, "DO"):
        done = lab.run(*words[1:], code=None, within_s=60)
        assert done.code in exits, (words, done.out, done.err)
    for words, _, shows in commands_in(page, "VERIFY"):
        assert shows == "weight 0 % on the target, and source at least 1 replica that answers"
        said = typed(lab, words)
        assert re.search(r"(?m)^weight +0 % on the target", said), said
        assert re.search(r"(?m)^source +2 of 2 replicas", said), said
    assert lab.weight(CHAT) == 0
    assert lab.weight(SUMMARY) == 5_000, "only the ill one went home"
    lab.wait(CHAT, lambda r: r.ended == "fell_back", "the rollout ended as fallen back")
    assert lab.errors(CHAT) == errors, "no client saw an error on the way home"


LOOKS = ("version", "doctor", "status", "inventory", "provision")
LEAVES_IT = (*LOOKS, "audit", "pause")


def _turn(words: Sequence[str]) -> int:
    """Return when a command's turn is: what looks, what holds, what goes home, and then what proves it."""
    if words[1] in LEAVES_IT or "--dry-run" in words or "--paper" in words:
        return 0 if words[1] != "pause" else 1
    return {"rollback": 2, "fallback": 3, "runbook": 5}[words[1]] + ("--unproven" in words or "--reconcile" in words)


def test_every_command_of_every_runbook_prints_what_its_step_says(whole_lab: Lab) -> None:
    lab = whole_lab.fresh(HALF, ticker=True)
    to_half(lab, CHAT, SUMMARY)
    held: dict[tuple[str, ...], list[tuple[str, Step]]] = {}
    for cell in (CHAT, SUMMARY):
        books = json.loads(lab.run("runbook", "show", cell, "--all", "-o", "json").out)["runbooks"]
        assert [b["runbook"]["id"] for b in books] == list(ORDER)
        for b in (x["runbook"] for x in books):
            for s in (*b["steps"], *b["verification"]):
                words = tuple(s["command"])
                if words and (cell == CHAT) != (words[1] == "rollback"):  # one step back is home from the first step: of the other cell
                    expect = Expect(exits=tuple(s["expect"]["exits"]), pattern=s["expect"]["pattern"])
                    step = Step(id=s["id"], text=s["text"], budget_s=s["budget_s"], undo=s["undo"], expect=expect, shows=s["shows"])
                    held.setdefault(words, []).append((b["id"], step))
    run = {(name, step.id) for steps in held.values() for name, step in steps}
    assert run == {(n, s.id) for n in ORDER for s in load_runbook(n).all_steps if s.command}, "none is left out"
    for words in sorted(held, key=lambda w: (_turn(w), w)):
        done = lab.run(*words[1:], code=None, within_s=120)
        ended = Ended(exit_code=done.code, output=done.out + done.err, seconds=done.seconds)
        for name, step in held[words]:
            assert unexpected(step, ended) == "", (name, step.id, words, done.out, done.err)
        if _turn(words) == 4:
            lab.wait(CHAT, lambda r: r.ended == "fell_back", "the rollout ended as fallen back")
    assert (lab.weight(CHAT), lab.weight(SUMMARY)) == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ORDER)
def test_every_runbook_is_stepped_through_in_the_lab(whole_lab: Lab, name: str) -> None:
    lab = whole_lab.fresh(HALF, ticker=True)
    to_half(lab, CHAT)
    lab.run("runbook", "run", CHAT, name, "--yes", "--again", within_s=240)


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


IN_PLACE = ("router-down", "store-down", "capacity-lost", "metrics-down")


@pytest.mark.slow
def test_a_game_day_breaks_router_store_source_and_evidence_and_mends_each(whole_lab: Lab) -> None:
    lab = whole_lab.fresh(HALF, ticker=True)
    to_half(lab, CHAT)
    done = lab.run("runbook", "drill", CHAT, *IN_PLACE, "-o", "json", within_s=400)
    timings = [r["timing"] for r in done.last["rehearsals"]]
    assert [t["runbook"] for t in timings] == list(IN_PLACE)
    assert all(t["is_ok"] and t["detect_s"] is not None and t["zero_s"] is None for t in timings), timings
    assert lab.weight(CHAT) in (0, 5_000), "never more on the target than before"
    assert lab.store().get(Drill, CHAT) is None or not [e for e in of_kind(lab.events(CHAT), "drill.done") if "mended" in e.text]
    assert "mended" in lab.run("runbook", "drill", CHAT, "--mend").out
    lab.run("audit", "verify")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_whole_game_day_is_green_and_reported(whole_lab: Lab) -> None:
    lab = whole_lab.fresh(HALF, ticker=True)
    to_half(lab, CHAT)
    done = lab.run("runbook", "drill", CHAT, "--game-day", "-o", "json", code=None, within_s=1_500)
    assert done.code == 0, done.out[-4_000:] + done.err[-4_000:]
    timings = {r["timing"]["runbook"]: r["timing"] for r in done.last["rehearsals"]}
    assert list(timings) == [n for n in ORDER if load_runbook(n).fault is not None]
    assert all(t["is_ok"] for t in timings.values()), timings
    home = {name: t["zero_s"] for name, t in timings.items() if name not in IN_PLACE}
    assert all(seconds is not None and seconds <= 90 for seconds in home.values()), home
    page = max(lab.workspace.rglob("*-game-day.html")).read_text()  # the newest: the file's name begins with the time
    assert all(name in page for name in timings)
    lab.run("audit", "verify")
