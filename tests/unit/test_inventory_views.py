"""What the inventory shows: workloads over their cells, bounded differences, lines that fit, CSV of everything that can be listed."""

from __future__ import annotations

import csv
import io
import json
import sys
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from fleetctl.adapters.azure.client import AzureAccess, credential_of
from fleetctl.catalog import load_catalog
from fleetctl.cli.main import main
from fleetctl.domain.merge import merge
from fleetctl.domain.people import Facts, Gap
from fleetctl.domain.pool import Pool
from fleetctl.domain.scan import PartScan, Scan
from fleetctl.domain.units import Money
from fleetctl.domain.workload import Workload
from fleetctl.errors import CredentialsMissing
from fleetctl.formats.example import EXAMPLE_LINEAGE, fleet_text
from fleetctl.formats.fleet_file import parse_fleet
from fleetctl.usecases.inventory import WorkloadRow, by_workload, list_inventory
from fleetctl.usecases.inventory_diff import diff_scans
from fleetctl.usecases.inventory_found import Found, FoundPool, match_found
from fleetctl.usecases.scan import lacking_credentials
from fleetctl.views.inventory import workloads_table
from fleetctl.views.inventory_csv import rows_csv
from fleetctl.views.inventory_found import MOST_CHANGES, diff_table, pools_table, scan_table, things_table
from fleetctl.views.output import Column, Table, cell_width, folded, render_table

AT = datetime(2026, 12, 1, tzinfo=UTC)
FLEET = parse_fleet(fleet_text("example", EXAMPLE_LINEAGE), file="fleet.yaml")
ID = "/subscriptions/11111111-2222-3333-4444-555555555555/resourcegroups/rg/providers/microsoft.compute/virtualmachines"


def part(name: str, count: int, gaps: tuple[Gap, ...] = (), *, reused: bool = False) -> PartScan:
    values = (
        {"machine": f"{ID}/gpu-{n}", "name": f"gpu-{n}", "sku": "Standard_ND96isr_H100_v5", "region": "eastus2"} for n in range(count)
    )
    facts = tuple(Facts(values=v, source=f"azure {name}", seen_at=AT) for v in values)
    return PartScan(source=f"azure {name}", part=f"{ID[:60]}/eastus2", at=AT, seconds=1.0, facts=facts, gaps=gaps, reused=reused)


def fits(table: Table) -> str:
    text = render_table(table, width=80)
    assert all(len(line) <= 80 for line in text.splitlines()), text
    return text


def test_workloads_are_the_sum_of_their_cells_the_most_expensive_first() -> None:
    cells = [*FLEET.cells, *(replace(c, id=f"{c.id}-b", region="westus3") for c in FLEET.cells if c.workload == "summaries")]  # type: ignore[arg-type]
    prices = {"assistant": 5, "summaries": 4, "code-complete": None}

    def price(workload: Workload, pool: Pool) -> Money | None:
        amount = prices[workload.id]
        return None if amount is None else Money(amount=Decimal(amount))

    inventory = list_inventory(replace(FLEET, cells=tuple(cells)), price)
    rows = by_workload(inventory)
    assert [(r.workload, r.cells, r.usd_per_hour) for r in rows] == [("summaries", 2, 8), ("assistant", 1, 5), ("code-complete", 1, None)]
    assert (rows[0].regions, rows[0].requests_per_s, rows[0].klass, rows[1].gpus) == ("eastus2, westus3", 8, "batch", 24)
    assert "3 workloads, 13.00 USD an hour (1 cell without a known price)" in fits(workloads_table(rows, inventory))


def test_a_difference_of_thousands_is_bounded_and_counted_and_named_by_what_people_know() -> None:
    empty, full = (Scan(number=n, at=AT, parts=(part("prod", count),)) for n, count in ((1, 0), (2, MOST_CHANGES + 50)))
    text = " ".join(fits(diff_table(diff_scans(empty, full))).split())
    assert "+ machine gpu-0" in text
    assert "... and 50 more changes: -o json shows all" in text
    assert "150 changes, +150 machine" in text
    assert text.count("+ machine") == MOST_CHANGES


def test_gaps_and_long_names_stay_within_the_width() -> None:
    gap = Gap(scope=f"{ID}/eastus2", reason="Azure answers 500: " + "word " * 60, source="azure prod", code="inventory.azure")
    text = fits(scan_table(Scan(number=3, at=AT, parts=(part("p" * 40, 2, (gap,)),)), ()))
    assert "scan 3: 2 facts of 1 part, 1 gap" in text
    things, _ = merge(part("prod", 3).facts)
    found = match_found(FLEET, things, load_catalog(), AT)
    assert "3 machines" in fits(pools_table(found))
    assert "Standard_N…_H100_v5" in fits(things_table(found, "machines")) or "H100" in fits(things_table(found, "machines"))


def test_quotas_are_named_by_their_family() -> None:
    fact = Facts(
        values={"quota": "azure/s/eastus2/standardNDSH100v5Family", "used": 1, "limit": 2, "region": "eastus2"}, source="a", seen_at=AT
    )
    things, _ = merge([fact])
    assert fits(things_table(Found(things=tuple(things)), "quotas")).splitlines()[1].split() == [
        "standardNDSH100v5Family",
        "1",
        "2",
        "eastus2",
    ]


def test_a_source_that_was_not_asked_cannot_lack_a_credential() -> None:
    gap = Gap(scope="s", reason="r", source="aws", code="credentials.aws", mend="Run: aws sso login")
    scan = Scan(number=1, at=AT, parts=(part("a", 0, (gap,), reused=True), part("b", 0, (replace(gap, reason="asked"),))))
    assert [g.reason for g in lacking_credentials(scan)] == ["asked"]


def test_what_can_be_listed_can_be_exported_as_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    desk = str(tmp_path)
    assert main(["-C", desk, "init"]) == 0
    capsys.readouterr()
    assert main(["-C", desk, "inventory", "export", "-o", "csv", "--what", "workloads"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert (rows[0]["workload"], rows[0]["class"], rows[0]["cells"]) == ("assistant", "online", "1")
    assert main(["-C", desk, "inventory", "list", "--what", "workloads", "-o", "json"]) == 0
    assert [r["workload"] for r in json.loads(capsys.readouterr().out)["items"]] == [r["workload"] for r in rows]
    assert main(["-C", desk, "inventory", "export", "-o", "csv", "--what", "pools"]) == 0
    assert capsys.readouterr().out.startswith('"cloud","region","sku"')
    assert main(["-C", desk, "inventory", "export", "-o", "json", "--what", "pools"]) == 2
    assert "usage.what" in capsys.readouterr().err
    assert main(["-C", desk, "inventory", "scan"]) == 0
    assert "No source was asked" in capsys.readouterr().out


def test_rows_of_csv_hold_no_formula() -> None:
    words = {"owner": "+1", "cost_centre": "-2", "tenant": "\t=1", "data_class": "x", "regions": "@x", "model": "=cmd|' /C calc'!A0"}
    row = WorkloadRow(workload="w", klass="online", cells=1, requests_per_s=1.0, usd_per_hour=None, gpus=1, **words)
    shape = {"cloud": "=x", "region": "-r", "sku": "+s", "priority": "", "pool": "@p", "vendor": "", "gpu": ""}
    pool = FoundPool(vms=1, running=1, gpus=8, usd_per_hour=None, owners=("=1", "b"), sources=(), **shape)
    for text in (rows_csv([row], WorkloadRow), rows_csv([pool], FoundPool)):
        cells = list(csv.reader(io.StringIO(text)))[1]
        assert not any(c.startswith(("=", "+", "-", "@", "\t")) for c in cells)


def test_a_column_that_wraps_keeps_every_word() -> None:
    columns = (Column(title="A"), Column(title="B", wraps=True, shrink=1, least=10))
    words = [f"word{n}" for n in range(40)]
    text = render_table(Table(columns=columns, rows=(("x", " ".join(words)), ("y", ""))), width=40)
    assert [w for w in text.split() if w.startswith("word")] == words
    assert all(len(line) <= 40 for line in text.splitlines())
    assert text.splitlines()[-1] == "y"


def test_signing_in_to_azure_needs_no_network_before_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert hasattr(credential_of(AzureAccess(subscriptions=("s",))), "get_token")
    monkeypatch.setitem(sys.modules, "azure.identity", None)
    with pytest.raises(CredentialsMissing) as caught:
        credential_of(AzureAccess(subscriptions=("s",)))
    assert "pip install azure-identity" in caught.value.hint


def test_a_machine_of_a_declared_pool_shows_what_the_fleet_file_knows() -> None:
    pool = FLEET.pools[0]
    said = [
        Facts(values={"pool": pool.id, "sku": pool.sku, "region": pool.region}, source="file fleet.yaml", seen_at=AT),
        Facts(values={"machine": "own-1", "name": "own-1", "pool": pool.id}, source="file fleet.yaml", seen_at=AT),
        Facts(values={"machine": "own-2", "name": "own-2", "pool": pool.id, "gpus": 4, "owner": "ada"}, source="ansible site", seen_at=AT),
        Facts(values={"machine": "other", "name": "other"}, source="ansible site", seen_at=AT),
    ]
    things, _ = merge(said)
    found = match_found(FLEET, things, load_catalog(), AT)
    shown = {t.id: t for t in found.of_kind("machine")}
    users = {c.workload for c in FLEET.cells if c.source == pool.id}
    owners = {w.owner for w in FLEET.workloads if w.id in users}
    sku = load_catalog().sku(pool.sku)
    assert sku is not None
    assert [shown["own-1"].values.get(n) for n in ("sku", "region", "gpus", "vendor")] == [
        pool.sku,
        pool.region,
        sku.accelerators,
        "nvidia",
    ]
    assert shown["own-1"].text("workload") == (users.pop() if len(users) == 1 else "")
    assert shown["own-1"].text("owner") == (owners.pop() if len(owners) == 1 else "")
    assert (shown["own-1"].source_of("sku"), shown["own-1"].source_of("gpus")) == ("file fleet.yaml", "catalogue")
    assert (shown["own-2"].number("gpus"), shown["own-2"].text("owner"), shown["own-2"].source_of("sku")) == (4, "ada", "file fleet.yaml")
    assert shown["other"].text("sku") == ""
    assert found.pools == ()  # what only the file declares was not found
    assert pool.region in fits(things_table(found, "machines"))


def test_a_machine_that_names_another_pool_or_size_is_not_taken_for_one_of_a_declared_pool() -> None:
    pool = FLEET.pools[0]
    shape = {"sku": pool.sku, "region": pool.region}
    said = [
        Facts(values={"machine": "alike", **shape}, source="azure s/r", seen_at=AT),
        Facts(values={"machine": "apart", **shape, "pool": "nobody-declared-it"}, source="azure s/r", seen_at=AT),
        Facts(values={"machine": "other-size", "pool": pool.id, "sku": "Standard_ND96isr_MI300X_v5"}, source="azure s/r", seen_at=AT),
    ]
    found = match_found(FLEET, merge(said)[0], load_catalog(), AT)
    shown = {t.id: t for t in found.of_kind("machine")}
    assert (shown["alike"].text("pool"), shown["alike"].text("vendor")) == (pool.id, pool.vendor)
    assert [shown["apart"].text(n) for n in ("pool", "workload", "owner", "vendor")] == ["nobody-declared-it", "", "", ""]
    assert (shown["other-size"].text("pool"), shown["other-size"].text("vendor")) == (pool.id, "")
    assert shown["other-size"].text("gpu").startswith("MI300X")


def test_a_path_too_long_for_a_line_is_cut_after_a_slash_and_nothing_of_it_is_lost() -> None:
    path = "/srv/" + "/".join("part-of-a-long-name" for _ in range(9)) + "/" + "x" * 200
    lines = folded([f"  at {path}: there", "Straße " + "東" * 90, "short  line"], 80)
    assert all(cell_width(line) <= 80 for line in lines), lines
    assert path + ":" in "".join(line.strip() for line in lines)
    assert sum(line.count("東") for line in lines) == 90
    assert lines[1].endswith("/")
    assert lines[-1] == "short  line"


@pytest.mark.parametrize("width", [1, 4, 8, 10, 40])
@pytest.mark.parametrize("line", [" " * 8 + "aaaa/bbbb/cccc dd", " " * 90 + "a/b", "  " + "東" * 20, " " * 90])
def test_a_line_set_in_as_far_as_the_width_is_folded_too(width: int, line: str) -> None:
    lines = folded([line], width)
    assert all(cell_width(one) <= max(width, 2) for one in lines), lines
    assert "".join("".join(lines).split()) == "".join(line.split())
