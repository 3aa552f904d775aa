"""Use cases of inventory and doctor: order, gaps, checks that fail hide no other."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal

from fleetctl.domain.people import Facts, Gap
from fleetctl.domain.pool import Pool
from fleetctl.domain.units import Money
from fleetctl.domain.workload import Workload
from fleetctl.errors import ToolMissing
from fleetctl.formats.example import EXAMPLE_LINEAGE, fleet_text
from fleetctl.formats.fleet_file import parse_fleet
from fleetctl.usecases.doctor import Need, NeedCheck, diagnose
from fleetctl.usecases.inventory import list_inventory, scan_fleet
from fleetctl.views.inventory import inventory_table
from fleetctl.views.output import render_table

FLEET = parse_fleet(fleet_text("example", EXAMPLE_LINEAGE), file="fleet.yaml")


def price(workload: Workload, pool: Pool) -> Money | None:
    """Price by name; one workload has none."""
    known = {"assistant": "196.64", "summaries": "32.77"}
    return Money(amount=Decimal(known[workload.id])) if workload.id in known else None


class Source:
    """A source that knows one fact and one gap."""

    def scan(self, scope: str) -> Iterator[Facts | Gap]:
        """Yield both."""
        yield Facts(values={"scope": scope}, source="fake", seen_at=datetime(2026, 12, 1, tzinfo=UTC))
        yield Gap(scope="aws", reason="no credential", source="fake")


def test_most_expensive_first_and_unpriced_last() -> None:
    inventory = list_inventory(FLEET, price)
    assert [row.cell for row in inventory.rows] == ["assistant-eastus2", "summaries-eastus2", "code-complete-eastus2"]
    assert (inventory.usd_per_hour, inventory.unpriced) == (Decimal("229.41"), 1)


def test_gaps_are_stated() -> None:
    fleet, gaps = scan_fleet(FLEET, [Source(), Source()], "x")
    assert len(fleet.provenance) == 2
    text = render_table(inventory_table(list_inventory(fleet, price, gaps[:1])), width=80)
    assert "Not known: aws: no credential (fake)" in text
    assert "229.41 USD an hour (1 cell without a known price)" in text


def test_a_check_that_fails_hides_no_other() -> None:
    def broken() -> Need:
        raise ToolMissing("tool.terraform", "terraform is too old.", hint="Run: pip install x")

    def buggy() -> Need:
        raise KeyError("x")

    good = Need(name="c", state="ok", detail="fine")
    diagnosis = diagnose([NeedCheck(name="a", look=broken), NeedCheck(name="b", look=buggy), NeedCheck(name="c", look=lambda: good)])
    assert [need.state for need in diagnosis.needs] == ["missing", "missing", "ok"]
    assert diagnosis.needs[0].detail == "terraform is too old. [tool.terraform]"
    assert diagnosis.needs[0].mend == "pip install x"
    assert not diagnosis.is_healthy
    assert diagnose([NeedCheck(name="c", look=lambda: good)]).is_healthy
