"""Help and inventory at 80 columns, exactly. After a wanted change: FLEETCTL_GOLDEN=write pytest tests/golden/test_cli_golden.py"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from fleetctl.cli.main import main
from fleetctl.domain.event import GENESIS, Event, chained
from fleetctl.domain.ids import CellId
from fleetctl.domain.people import Actor
from fleetctl.domain.pool import Pool
from fleetctl.domain.units import Money
from fleetctl.domain.workload import Workload
from fleetctl.formats.example import EXAMPLE_LINEAGE, fleet_text
from fleetctl.formats.fleet_file import parse_fleet
from fleetctl.usecases.inventory import list_inventory
from fleetctl.views.audit import render_events
from fleetctl.views.inventory import cell_text, inventory_table
from fleetctl.views.output import render

HERE = Path(__file__).parent / "cli"
T0 = datetime(2026, 11, 30, 12, tzinfo=UTC)
ADA = Actor(kind="person", name="ada")
TICKER = Actor(kind="schedule", name="ticker", via="timer")
EVENTS = (
    chained(Event(at=T0, kind="plan.approved", actor=ADA, text="approved p0123456789a for chat-eastus2", data={"serial": 3}), 1, GENESIS),
    chained(
        Event(
            at=T0 + timedelta(minutes=7),
            kind="traffic.set",
            actor=TICKER,
            text="preflight done (both pools answer real completions of the newest prompt set); next canary at 10 %",
            cell=CellId("chat-eastus2"),
            data={"from_bp": 0, "to_bp": 1_000, "token": 4},
        ),
        1,
        GENESIS,
    ),
    chained(Event(at=T0 + timedelta(hours=1), kind="order.abort", actor=ADA, text="abort\x1b[2J", cell=CellId("a" * 60)), 1, GENESIS),
)
"""A person's approval, what a timer did, and an order with a name and a text that would break a line."""


def agree(name: str, text: str, *, width: int | None = 80) -> None:
    """Compare with the golden file of that name; nothing is wider than `width`."""
    file = HERE / name
    if os.environ.get("FLEETCTL_GOLDEN") == "write":
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")
    assert width is None or all(len(line) <= width for line in text.splitlines())


def price(workload: Workload, pool: Pool) -> Money:
    """Price a workload's replicas as if each pool had 8 GPUs a VM."""
    share = Decimal(workload.replicas * workload.accelerators_per_replica) / 8
    return Money(amount=(pool.price_usd_per_hour or Decimal(0)) * share)


def test_help(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["--help"]) == 0
    agree("help.txt", capsys.readouterr().out)


@pytest.mark.parametrize("topic", ["init", "inventory", "doctor", "completion", "exit-codes", "output"])
def test_help_of(topic: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["help", topic]) == 0
    agree(f"help-{topic}.txt", capsys.readouterr().out)


@pytest.mark.parametrize("output", ["table", "wide", "json", "yaml"])
def test_inventory(output: str) -> None:
    inventory = list_inventory(parse_fleet(fleet_text("example", EXAMPLE_LINEAGE), file="fleet.yaml"), price)
    text = render(output, kind="inventory", value=inventory, table=inventory_table(inventory), width=80)
    agree(f"inventory.{output}", text + "\n", width=80 if output == "table" else None)
    if output == "table":
        agree("inventory-cell.txt", cell_text(inventory.rows[0]) + "\n")


@pytest.mark.parametrize("wide", [False, True])
def test_audit_show(wide: bool) -> None:
    agree(f"audit-show{'-wide' if wide else ''}.txt", render_events(EVENTS, wide=wide), width=80)
