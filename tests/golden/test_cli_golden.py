"""Help and inventory at 80 columns, exactly. After a wanted change: FLEETCTL_GOLDEN=write pytest tests/golden/test_cli_golden.py"""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path

import pytest

from fleetctl.cli.main import main
from fleetctl.domain.pool import Pool
from fleetctl.domain.units import Money
from fleetctl.domain.workload import Workload
from fleetctl.formats.example import EXAMPLE_LINEAGE, fleet_text
from fleetctl.formats.fleet_file import parse_fleet
from fleetctl.usecases.inventory import list_inventory
from fleetctl.views.inventory import cell_text, inventory_table
from fleetctl.views.output import render

HERE = Path(__file__).parent / "cli"


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
