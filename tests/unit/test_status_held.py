"""Status names what holds a cell when no look could be made; else it says what the last look said."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleetctl.adapters.store.sqlite import SqliteStore
from fleetctl.adapters.store.status import HELD, StatusRow, held_pools
from fleetctl.cli.commands.status import next_of
from fleetctl.domain.holds import OPEN_PINS, Pin, PinState
from fleetctl.domain.ids import CellId, PoolId

NOW = datetime(2026, 11, 30, tzinfo=UTC)


def _row(hold_reason: str, ended: str = "") -> StatusRow:
    return StatusRow(
        cell="chat-lab",
        plan="p0123456789a",
        phase="canary",
        step=1,
        steps=6,
        weight_bp=1000,
        want_bp=1000,
        until="soak",
        direction="forward",
        ended=ended,
        paused=False,
        step_done=False,
        hold_reason=hold_reason,
        attempt=1,
        verdicts=(),
        look="canary: baking 5 s more; and more",
        looked_at=None,
        served_bp=None,
        due_in_s=0.0,
        orders=0,
        holder="",
        token=7,
        updated_at=NOW,
    )


@pytest.mark.parametrize(
    ("hold_reason", "ended", "said"),
    [
        ("", "", "baking 5 s more"),
        ("evidence.lost", "", "baking 5 s more"),
        ("stale", "", "HELD (stale): fleetctl audit list chat-lab"),
        ("traffic.router_down", "", "HELD (traffic.router_down): fleetctl audit list chat-lab"),
        ("fell back", "fell_back", "fell back"),
    ],
)
def test_what_comes_next(hold_reason: str, ended: str, said: str) -> None:
    assert next_of(_row(hold_reason, ended)) == said


def test_a_complete_cell_says_that_its_sources_minimum_is_still_held_and_how_to_give_it_back() -> None:
    assert next_of(_row("", "complete"), "h100") == "minimum still held: fleetctl release h100"
    assert next_of(_row("", "complete")) == ""
    assert next_of(_row("", ""), "h100") == "baking 5 s more"


def test_which_pools_are_held_is_read_from_the_store_of_record(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    pin = Pin(pool=PoolId("h100"), ref="asg", name="asg", was=2, to=8, cells=(CellId("a"), CellId("b")), at=NOW)
    states: tuple[PinState, ...] = ("pinning", "pinned", "restoring", "restored", "left", "refused")
    for state in states:
        store.put("h100-asg", replace(pin, state=state))
        assert held_pools(tmp_path / "store.db") == (dict.fromkeys("ab", "h100") if state in OPEN_PINS else {})
    assert set(HELD) == OPEN_PINS
