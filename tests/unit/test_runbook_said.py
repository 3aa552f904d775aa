"""What `runbook run` prints fits the terminal, and a page names the runbook that is for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from fleetctl.adapters.notify.messages import LONGEST, text_of
from fleetctl.cli.app import App
from fleetctl.cli.commands.runbook import _asker, _tell
from fleetctl.domain.event import Event
from fleetctl.domain.ids import CellId
from fleetctl.domain.runbook import BOOKS, BY_GUARDRAIL, Bound, runbook_for
from fleetctl.formats.runbook_file import ORDER, load_runbook
from tests.rollouts import PERSON, T0

CELL = CellId("chat-eastus2")


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("name", ORDER)
def test_every_line_of_a_step_fits_and_loses_no_word(
    name: str, width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(App, "width", width)
    app, book = App(), load_runbook(name)
    ask = _asker(app, cast("Bound", SimpleNamespace(cell=CELL)), yes=True, confirm=None)
    for step in (*book.steps, *book.verification):
        ask(step, "the last look is 90 s old, and the source of evidence has not said anything since then at all")
        _tell(app, step, None, "skipped, since a person has to do it")
        said = capsys.readouterr().err
        lines = said.splitlines()
        assert [line for line in lines if len(line) > width] == []
        words = " ".join(said.split())
        for part in (step.text, step.undo, *([] if step.command else [step.by_hand])):
            assert " ".join(part.split()) in words
        assert "expect: " in words


def notice(cause: str, text: str, level: str = "page", cell: str = CELL) -> Event:
    return Event(at=T0, kind=f"notify.{level}", actor=PERSON, text=text, cell=CellId(cell), data={"cause": cause, "ended": ""})


@pytest.mark.parametrize(
    ("cause", "text", "book"),
    [
        ("traffic.router_down", "edge does not answer", "router-down"),
        ("evidence.provider", "3 cells have no evidence", "metrics-down"),
        ("home.lost_evidence", "home: lost evidence", "metrics-down"),
        ("home.rolled_back", "home: latency FAIL (E 120)", "latency-regression"),
        ("home.rolled_back", "home: errors FAIL (E 120)", "errors"),
        ("home.rolled_back", "home: breaker FAIL (E 0)", "errors"),
        ("home.rolled_back", "home: quality FAIL (E 101)", "quality-drift"),
        ("home.source_not_ready", "cannot go home", "partial-fallback"),
        ("notice.target", "spot", "spot-eviction"),
        ("source.not_ready", "source answers on 50 %", "capacity-lost"),
        ("lifted.failing", "fails", "capacity-lost"),
        ("foreign_write", "kubectl set 0 %", "full-fallback"),
    ],
)
def test_a_page_names_its_runbook(cause: str, text: str, book: str) -> None:
    assert text_of((notice(cause, text),)) == f"{text} Runbook: fleetctl runbook show {CELL} {book}"


def test_every_runbook_that_a_page_names_is_shipped() -> None:
    assert {book for _, book in (*BOOKS, *BY_GUARDRAIL)} | {runbook_for("", "")} <= set(ORDER)


def test_a_page_of_many_cells_names_one_and_a_long_text_does_not_cut_it() -> None:
    said = text_of((notice("evidence.provider", "x " * LONGEST), notice("evidence.provider", "y", cell="summary-eastus2")))
    assert len(said) <= LONGEST
    assert said.endswith(f"Runbook: fleetctl runbook show {CELL} metrics-down")


def test_who_is_not_paged_is_sent_to_no_runbook() -> None:
    assert text_of((notice("complete", "all of it is there", level="info"),)) == "all of it is there"
    assert "Runbook" not in text_of((notice("evidence.lost", "holding", level="warning"),))
