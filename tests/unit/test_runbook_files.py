"""Runbooks: the shape of their files, every command of theirs, and what they look like for a cell."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
import pytest

from fleetctl.cli.main import cli
from fleetctl.cli.registry import COMMANDS
from fleetctl.domain.people import Actor
from fleetctl.domain.runbook import Timing, spreads
from fleetctl.errors import ConfigInvalid, RunbookFailed, StoreUnavailable, UnsafeFallback
from fleetctl.formats.runbook_file import ORDER, load_runbook, parse_runbook
from fleetctl.lab.faults import check_fault
from fleetctl.usecases.runbook import END, bind, find_cell, look
from fleetctl.views.runbook import rehearsal_lines, runbook_lines, triage_lines
from tests.fakes.runbook import CELL, World, way

ROOT = Path(__file__).resolve().parents[2]


def test_every_file_is_listed_and_holds() -> None:
    there = {p.stem for p in (ROOT / "fleetctl/formats/runbooks").glob("*.yaml")}
    assert there == set(ORDER)
    for name in ORDER:
        book = load_runbook(name)
        assert book.id == name
        assert END not in {s.id for s in book.all_steps}
        if book.fault is not None:
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
        ('    shows: One line per cell, then "n of n home".\n', "", "has a pattern, and says nothing"),
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


@pytest.mark.parametrize("name", ORDER)
def test_a_page_fits_80_columns_and_has_every_part(name: str) -> None:
    lines = runbook_lines(World().bound(name), None)
    assert max(map(len, lines)) <= 80
    heads = ["WHEN", "IMPACT", "NOW (read only)", "DECIDE", "DO", "VERIFY", "TELL PEOPLE", "CALL", "AFTER", "NOT COVERED"]
    assert [x for x in lines if x in heads] == heads
    assert "{" not in "\n".join(lines)
    assert lines[-1] == "Last rehearsal: never rehearsed"


def test_a_region_is_named_cell_by_cell() -> None:
    world = World(way(), way("search-east"), way("chat-west", "westus"))
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
    assert all(line.isprintable() for line in rehearsal_lines(bad, spreads([bad]), 90.0))
