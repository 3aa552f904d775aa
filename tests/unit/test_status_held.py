"""Status names what holds a cell when no look could be made; else it says what the last look said."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from fleetctl.adapters.store.status import StatusRow
from fleetctl.cli.commands.status import next_of


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
        updated_at=datetime(2026, 11, 30, tzinfo=UTC),
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
