"""Runbooks: the shape of their files, every command of theirs, and what they look like for a cell."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
import pytest

from fleetctl.analysis.faults import KINDS
from fleetctl.cli.main import cli
from fleetctl.cli.registry import COMMANDS
from fleetctl.domain.home import WayHome
from fleetctl.domain.ids import CellId
from fleetctl.domain.people import Actor
from fleetctl.domain.runbook import MENDED, Timing, spreads
from fleetctl.errors import ConfigInvalid, RunbookFailed, StoreUnavailable, UnsafeFallback
from fleetctl.formats.runbook_file import ORDER, load_runbook, parse_runbook
from fleetctl.lab.faults import check_fault
from fleetctl.usecases.drill import Rehearsed
from fleetctl.usecases.runbook import END, bind, find_cell, look
from fleetctl.views.game_day import game_day_lines
from fleetctl.views.runbook import list_foot, runbook_lines, triage_lines
from tests.fakes.runbook import CELL, World, way

ROOT = Path(__file__).resolve().parents[2]


def test_every_file_is_listed_and_holds() -> None:
    there = {p.stem for p in (ROOT / "fleetctl/formats/runbooks").glob("*.yaml")}
    assert there == set(ORDER)
    for name in ORDER:
        book = load_runbook(name)
        assert book.id == name
        assert END not in {s.id for s in book.all_steps}
        if book.fault is not None and book.fault.kind not in MENDED:
            check_fault(book.fault.kind, book.fault.numbers)


def parsed(words: Sequence[str]) -> click.Context:
    """Parse a command line as the program would, without running it."""
    command: click.Command = cli
    context = click.Context(cli, info_name="fleetctl", **cli.context_settings)
    rest = list(words[1:])
    while isinstance(command, click.Group):
        inner = command.get_command(context, rest[0])
        assert inner is not None, f"no command {rest[0]}"
        if isinstance(inner, click.Group):
            command, context = inner, click.Context(inner, info_name=rest.pop(0), parent=context)
        else:
            return inner.make_context(rest[0], rest[1:], parent=context)
    raise AssertionError(words)


@pytest.mark.parametrize("name", ORDER)
def test_every_command_parses_as_one_of_the_program(name: str) -> None:
    world = World()
    for step in world.bound(name).runbook.all_steps:
        if step.command:
            assert "{" not in " ".join(step.command)
            assert parsed(step.command).command is not None


def test_a_command_that_does_not_parse_is_seen() -> None:
    with pytest.raises(click.UsageError):
        parsed(("fleetctl", "fallback", "--brand-new"))


PROSE = {"checks", "itself", "counts", "moves", "sees", "cannot", "does", "was", "and"}
"""Words after the program's name in sentences about it."""


@pytest.mark.parametrize("name", ORDER)
def test_every_command_that_a_text_names_is_there(name: str) -> None:
    text = (ROOT / f"fleetctl/formats/runbooks/{name}.yaml").read_text()
    for first, second in re.findall(r"(?<!\.)fleetctl ([a-z]+)(?: ([a-z]+))?", text):
        if first in PROSE:
            continue
        assert first in COMMANDS, first
        if first in ("runbook", "audit"):
            parent = click.Context(cli, info_name="fleetctl", **cli.context_settings)
            group = cli.get_command(parent, first)
            assert isinstance(group, click.Group)
            assert group.get_command(parent, second) is not None, (first, second)


GOOD = (ROOT / "fleetctl/formats/runbooks/one-region.yaml").read_text()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("title: ", "colour: red\ntitle: ", "colour: Extra inputs"),
        ("severity: SEV 1", "severity: SEV 9", "severity"),
        ("command: fleetctl fallback {region_cells}\n", "command: rm -rf {cell}\n", "begins with fleetctl"),
        ("command: fleetctl fallback {region_cells}\n", "command: fleetctl fallback $(id)\n", "no plain word"),
        ("command: fleetctl fallback {region_cells}\n", "command: fleetctl fallback {secret}\n", "no plain word"),
        ("command: fleetctl fallback {region_cells}\n", "command: fleetctl fallback {cell} --unproven\n", "severe and carries no danger"),
        ("command: fleetctl fallback {region_cells}\n", "by_hand: Go.\n", "done by hand"),
        ("    budget: 10s\n", "", "budget"),
        ("id: go-home", "id: look", "stands twice"),
        ("{region} go home.", "{nowhere} go home.", "knows no {nowhere}"),
        ("kind: errors", "kind: meteor", "fault.kind"),
        ('pattern: "(?m)^{cell}$"', 'pattern: "((("', "regular expression"),
        ('    shows: One line per cell, then "n of n home".\n', "", "steps.1.shows: Field required"),
        ('    pattern: "(?m)^{cell}$"\n', "", "step look has a command whose output nothing is held against"),
        ("live: migration}", "}", "decisions.0.live: Field required"),
        ("format_version: 1", "format_version: 2", "format_version"),
        ("format_version: 1", "format_version: !!python/object:os.system 1", "tag"),
    ],
)
def test_a_mistake_in_a_file_is_named_with_its_line(old: str, new: str, said: str) -> None:
    assert old in GOOD
    with pytest.raises(ConfigInvalid) as e:
        parse_runbook("one-region", GOOD.replace(old, new, 1))
    assert any(said in d and d.startswith("one-region.yaml:") for d in e.value.details), e.value.details


def test_an_unknown_runbook_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match="there is no runbook"):
        load_runbook("../../etc/passwd")


HEADS = ["WHEN", "IMPACT", "NOW (read only)", "DECIDE", "NEEDS", "DO", "VERIFY", "TELL PEOPLE", "CALL", "AFTER", "NOT COVERED"]


@pytest.mark.parametrize("name", ORDER)
def test_each_runbook_has_every_part_with_live_values_and_fits_80_columns(name: str) -> None:
    bound = World().bound(name)
    book, lines = bound.runbook, runbook_lines(bound, None)
    assert max(map(len, lines)) <= 80
    assert "{" not in "\n".join(lines)
    parts = {h: [] for h in HEADS}  # type: dict[str, list[str]]
    at = ""
    for line in lines:
        at = line if line in parts else at
        if at and line != at:
            parts[at].append(line.strip())
    assert all(parts[h] for h in HEADS if h != "NEEDS" or book.needs), name
    assert [h for h in lines if h in parts] == [h for h in HEADS if parts[h]]
    assert f"({book.severity})" in lines[0]
    assert any(x.startswith("- Alert: ") for x in parts["WHEN"])
    assert len([x for x in parts["WHEN"] if x.startswith("- ")]) >= 2, "a trigger beside the alert"
    assert re.search(r"\b[a-z]+\.[a-z_*]+|fleetctl (status|runbook)", book.alert), "an alert names an event, an error or where it is seen"
    whole = " ".join(parts["DECIDE"])
    for c in book.decisions:
        assert f"({c.live} now: {bound.live[c.live].text[:20]}" in whole, "a decision is told by a live value"
    for head, steps in (("DO", book.steps), ("VERIFY", book.verification)):
        said = " ".join(parts[head])
        numbers = [int(m) for m in re.findall(r"(?:^|\n)(\d+)\. ", "\n".join(parts[head]))]
        assert numbers == list(range(1, len(steps) + 1))
        assert said.count("Expect: ") == said.count(" Time: ") == said.count(" Undo: ") == len(steps)
        assert said.count("$ fleetctl ") + said.count("By hand: ") == len(steps)
        assert said.count("DANGER: ") == sum(1 for s in steps if s.danger)
    assert all(s.command for s in book.verification), "what verifies is a command that anyone can run"
    assert lines[-1] == "Last rehearsal: never rehearsed"


def test_what_may_hurt_is_marked_and_nothing_else() -> None:
    marked = {(n, s.id) for n in ORDER for s in load_runbook(n).all_steps if s.danger}
    assert marked == {(n, s.id) for n in ORDER for s in load_runbook(n).all_steps if "--unproven" in s.command}
    assert marked


def test_a_step_back_is_taken_back_by_what_raises_again() -> None:
    undone = [s.undo for n in ORDER for s in load_runbook(n).all_steps if s.command[1:2] == ("rollback",)]
    assert len(undone) == 3
    assert all(u.startswith("Run: fleetctl migrate {cell}; ") for u in undone)


@pytest.mark.parametrize("name", ORDER)
def test_every_command_that_a_runbook_tells_people_to_run_parses(name: str) -> None:
    book = World().bound(name).runbook
    told = [s.undo for s in book.all_steps] + [n.otherwise for n in book.needs]
    for text in told:
        for words in re.findall(r"Run: fleetctl ([^.;()]+)", text):
            assert parsed(["fleetctl", *words.split()]).command is not None


def test_the_list_and_the_triage_fit_and_say_what_comes_next() -> None:
    world = World()
    lines = triage_lines([world.bound(n) for n in ORDER])
    assert max(map(len, lines)) <= 80
    whole = "\n".join(lines)
    assert all(load_runbook(n).see in whole for n in ORDER), "what people see is never cut"
    assert "$ fleetctl runbook run chat-east NAME" in whole
    assert "In doubt take full-fallback" in whole
    assert list_foot(("chat-east",))[1].endswith("fleetctl runbook show chat-east")
    assert list_foot(())[0].endswith("fleetctl plan")


def test_the_faults_of_a_gpu_are_in_the_runbook_that_speaks_of_them() -> None:
    page = "\n".join(runbook_lines(World().bound("gpu-faults"), None))
    assert "THE FAULTS" in page
    assert all(f"- {k.name}" in page for k in KINDS)


def test_a_region_is_named_cell_by_cell() -> None:
    world = World(way(), way("search-east"), way("chat-west", "westus"))
    words = world.bound("one-region").runbook.steps[1].command
    assert words == ("fleetctl", "fallback", "chat-east", "search-east")


def test_a_cell_whose_way_home_cannot_be_read_may_be_of_the_region_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(way(), way("search-east"), way("chat-west", "westus"))
    read = type(world.ways).read

    def broken(ways: object, c: CellId) -> WayHome:
        if c == "search-east":
            raise UnsafeFallback("fallback.unreadable", "half a file")
        return read(ways, c)  # type: ignore[arg-type]

    monkeypatch.setattr(type(world.ways), "read", broken)
    words = world.bound("one-region").runbook.steps[1].command
    assert words == ("fleetctl", "fallback", "chat-east", "search-east")


def test_with_the_store_down_live_values_say_not_known() -> None:
    world = World()
    world.at = StoreUnavailable("store.unreachable", "the disk is gone.")
    bound = world.bound()
    assert (bound.live["store"].is_good, bound.live["migration"].text) == (False, "not known: the store does not answer")
    assert bound.live["weight"].text.startswith("50 %")
    world.router.target.down = True
    live = world.bound().live
    assert (live["router"].is_good, live["weight"].is_good) == (False, None)


def test_a_tampered_way_home_is_said_and_nothing_of_it_used() -> None:
    world = World()
    world.ways.tampered.add(CELL)
    found = find_cell(CELL, world.look)
    assert isinstance(found, UnsafeFallback)
    live = look(CELL, found, world.look)
    assert live["way_home"].is_good is False
    page = "\n".join(runbook_lines(bind(load_runbook("store-down"), CELL, found, live, world.look), None))
    assert "fallback.tampered" in page


def test_names_that_are_not_there_or_many() -> None:
    world = World(way(), way("chat-west", "westus"))
    with pytest.raises(UnsafeFallback, match="no workload or cell"):
        find_cell("nobody", world.look)
    with pytest.raises(RunbookFailed, match="has 2 cells"):
        find_cell("chat", world.look)


def test_a_cell_is_found_beside_its_cohorts() -> None:
    world = World(way(), replace(way("chat-cohort"), part_of=(CELL, "chat")))
    assert find_cell(CELL, world.look) == way()


def test_hostile_texts_cannot_drive_a_terminal() -> None:
    world = World()
    world.at = "canary \x1b[2J\u202e\r\nVERIFY evil"
    page = runbook_lines(world.bound(), None) + triage_lines([world.bound()])
    assert all(line.isprintable() for line in page)
    bad = Timing(
        at=world.clock.now(), actor=Actor(kind="person", name="\x1b]0;x\x07"), cell=CELL, runbook="r\n", fault="x\x9b", detect_s=None,
        decide_s=1.0, zero_s=2.0, verified_s=None, by="judge", is_ok=False, detail="\x1b[1m",
    )  # fmt: skip
    assert all(line.isprintable() for line in game_day_lines([Rehearsed(timing=bad, spread=spreads([bad]))], 90.0))
