"""Looks at all sources: parts that fail, what is kept, what is not asked again; the file of looks; differences; hosts and CSV."""

from __future__ import annotations

import csv
import io
import sqlite3
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.adapters.scans import KEPT, ScanFile
from fleetctl.domain.ids import as_id, is_id
from fleetctl.domain.merge import merge
from fleetctl.domain.people import Facts, Gap
from fleetctl.domain.scan import PartScan, Scan
from fleetctl.domain.units import Scalar
from fleetctl.errors import CredentialsMissing, InventoryFailed, StoreUnavailable, UsageError
from fleetctl.formats.example import EXAMPLE_LINEAGE, fleet_text
from fleetctl.formats.fleet_file import parse_fleet
from fleetctl.formats.sources import check_source, source_of_text
from fleetctl.usecases.inventory import list_inventory
from fleetctl.usecases.inventory_diff import diff_scans
from fleetctl.usecases.inventory_found import match_found
from fleetctl.usecases.inventory_hosts import hosts_of
from fleetctl.usecases.scan import ScanRequest, lacking_credentials, scan_sources
from fleetctl.views.inventory_csv import csv_text, safe
from tests.cases.hostile_text import HOSTILE

AT = datetime(2026, 12, 1, tzinfo=UTC)
FLEET = parse_fleet(fleet_text("example", EXAMPLE_LINEAGE), file="fleet.yaml")


class Clock:
    """Moves on by a second at each look."""

    def __init__(self) -> None:
        self.at = AT

    def __call__(self) -> datetime:
        self.at += timedelta(seconds=1)
        return self.at


class Cloud:
    """A source of two regions with machines; fails as told."""

    def __init__(self, machines: dict[str, list[str]]) -> None:
        self.machines = machines
        self.fails: dict[str, Exception] = {}
        self.asked: list[str] = []

    @property
    def name(self) -> str:
        """Return its name."""
        return "aws prod"

    def parts(self) -> tuple[str, ...]:
        """Return the regions."""
        if "parts" in self.fails:
            raise self.fails["parts"]
        return tuple(self.machines)

    def scan(self, scope: str) -> Iterator[Facts | Gap]:
        """Yield a region's machines."""
        self.asked.append(scope)
        for n, id_ in enumerate(self.machines[scope]):
            if scope in self.fails and n >= 1:
                raise self.fails[scope]
            values: dict[str, Scalar] = {"machine": id_, "region": scope, "sku": "p5.48xlarge", "gpus": 8}
            yield Facts(values=values, source=f"aws prod/{scope}", seen_at=AT)


def ids(scan: Scan) -> set[str]:
    return {str(f.values["machine"]) for f in scan.facts()}


def test_a_failed_part_keeps_what_was_seen_and_says_so() -> None:
    cloud, clock = Cloud({"a": ["i-1", "i-2"], "b": ["i-3"]}), Clock()
    first = scan_sources([cloud], None, clock)
    cloud.fails["a"] = InventoryFailed("inventory.aws", "down.")
    second = scan_sources([cloud], first, clock)
    assert ids(second) == {"i-1", "i-2", "i-3"}
    (gap,) = second.gaps()
    assert gap.reason.startswith("down; shown as seen at 2026-12-01 00:00 UTC")
    third = scan_sources([cloud], second, clock)
    assert next(p for p in third.parts if p.part == "a").kept_from == first.parts[0].at
    assert ids(scan_sources([cloud], None, clock)) == {"i-1", "i-3"}


def test_a_source_that_lists_no_parts_keeps_all_its_parts_with_one_gap() -> None:
    cloud, clock = Cloud({"a": ["i-1"], "b": ["i-3"]}), Clock()
    first = scan_sources([cloud], None, clock)
    cloud.fails["parts"] = CredentialsMissing("credentials.aws", "expired.", hint="Run: aws sso login")
    second = scan_sources([cloud], first, clock)
    assert ids(second) == {"i-1", "i-3"}
    assert [g.mend for g in lacking_credentials(second)] == ["Run: aws sso login"]
    (alone,) = scan_sources([cloud], None, clock).parts
    assert alone.facts == ()


def test_a_bug_in_one_source_hides_no_other() -> None:
    broken, good = Cloud({"a": ["i-1", "i-2"]}), Cloud({"b": ["i-3"]})
    broken.fails["a"] = ZeroDivisionError("x")
    scan = scan_sources([broken, good], None, Clock())
    assert ids(scan) == {"i-1", "i-3"}
    assert [g.code for g in scan.gaps()] == ["inventory.failed"]


def test_what_is_fresh_or_whole_is_not_asked_again() -> None:
    cloud, clock = Cloud({"a": ["i-1", "i-2"], "b": ["i-3"]}), Clock()
    cloud.fails["a"] = InventoryFailed("inventory.aws", "down.")
    first = scan_sources([cloud], None, clock)
    cloud.fails.clear()
    cloud.asked.clear()
    second = scan_sources([cloud], first, clock, ScanRequest(only_gaps=True))
    assert (cloud.asked, ids(second)) == (["a"], {"i-1", "i-2", "i-3"})
    cloud.asked.clear()
    assert scan_sources([cloud], second, clock, ScanRequest(fresh=timedelta(hours=1))).parts[0].reused
    assert cloud.asked == []
    clock.at += timedelta(hours=2)
    scan_sources([cloud], second, clock, ScanRequest(fresh=timedelta(hours=1)))
    assert sorted(cloud.asked) == ["a", "b"]


def test_the_file_gives_back_what_was_put_in(tmp_path: Path) -> None:
    cloud, clock, file = Cloud({"a": ["i-1", "i-2"], "b": ["i-3"]}), Clock(), ScanFile(tmp_path / "x/inventory.db")
    assert file.newest() is None
    first = file.save(scan_sources([cloud], None, clock))
    assert file.newest() == first
    cloud.fails["a"] = InventoryFailed("inventory.aws", "down.")
    second = file.save(scan_sources([cloud], first, clock))
    assert file.newest() == second
    assert file.newest(1) == first
    for _ in range(KEPT + 3):
        last = file.newest()
        file.save(scan_sources([cloud], last, clock, ScanRequest(fresh=timedelta(hours=9))))
    assert file.newest(KEPT) is None
    with sqlite3.connect(tmp_path / "x/inventory.db") as db:
        scans = db.execute("select count(*) from scans").fetchone()[0]
        blocks = db.execute("select count(*) from blocks").fetchone()[0]
    db.close()
    assert scans == KEPT
    assert blocks <= KEPT + 2
    assert (tmp_path / "x/inventory.db").stat().st_mode & 0o777 == 0o600


def test_a_broken_file_says_what_it_costs_to_remove(tmp_path: Path) -> None:
    path = tmp_path / "inventory.db"
    path.write_bytes(b"not a database, but long enough to be looked at" * 40)
    with pytest.raises(StoreUnavailable) as caught:
        ScanFile(path).newest()
    assert "new scan" in caught.value.hint


def test_what_could_not_be_seen_is_not_called_gone() -> None:
    cloud, clock = Cloud({"a": ["i-1", "i-2"], "b": ["i-3"]}), Clock()
    first = scan_sources([cloud], None, clock)
    cloud.machines = {"a": ["i-1"], "b": []}
    cloud.fails["b"] = InventoryFailed("inventory.aws", "down.")
    cloud.machines["b"] = ["i-9", "i-8"]
    second = scan_sources([cloud], None, clock)
    diff = diff_scans(first, second)
    assert {(c.what, c.id) for c in diff.changes} == {("removed", "i-2"), ("added", "i-9")}
    assert diff.unsure == 1


def test_found_machines_become_pools_hosts_and_rows() -> None:
    common: dict[str, Scalar] = {"sku": "Standard_ND96isr_H100_v5", "region": "eastus2", "cloud": "azure", "gpus": 8}
    told: list[dict[str, Scalar]] = [{}, {"owner": "ada"}, {"owner": "ada"}, {"owner": "ada", "state": "stopped"}]
    named: list[dict[str, Scalar]] = [{"machine": f"i-{n}", "name": f"gpu-{n}", **common, **more} for n, more in enumerate(told)]
    facts = [Facts(values=values, source="azure prod/eastus2", seen_at=AT) for values in named]
    things, _ = merge(facts)
    from fleetctl.catalog import load_catalog

    found = match_found(FLEET, things, load_catalog(), AT)
    (pool,) = found.pools
    assert (pool.pool, pool.vms, pool.running, pool.gpus, pool.owners) == ("h100-eastus2", 4, 3, 32, ("ada",))
    assert pool.usd_per_hour is not None
    hosts, without = hosts_of(FLEET, found)
    assert {h.id for h in hosts} >= {"gpu-0", "gpu-1", "gpu-2"}
    assert ("gpu-3" in {h.id for h in hosts}, without) == (False, 0)
    assert list_inventory(FLEET, lambda w, p: None, found=found).rows[0].conflicts == ()


def test_ctrl_c_begins_nothing_more() -> None:
    cloud = Cloud({f"r{n:02}": [f"i-{n}"] for n in range(40)})

    def interrupt(part: PartScan) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scan_sources([Slow(cloud)], None, Clock(), ScanRequest(workers=1), on=interrupt)
    assert len(cloud.asked) < 10


class Slow:
    """Gives a cloud's facts, each after a moment."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.name = cloud.name

    def parts(self) -> tuple[str, ...]:
        """Return its regions."""
        return self.cloud.parts()

    def scan(self, scope: str) -> Iterator[Facts | Gap]:
        """Yield its facts."""
        threading.Event().wait(0.05)
        yield from self.cloud.scan(scope)


@given(st.text(max_size=80))
def test_any_text_gives_an_identifier(text: str) -> None:
    assert is_id(as_id(text))


@pytest.mark.parametrize("name", list(HOSTILE))
def test_no_cell_is_a_formula(name: str) -> None:
    text = csv_text(("a", "b"), [(HOSTILE[name], 1.5)])
    ((cell, number),) = list(csv.reader(io.StringIO(text)))[1:]
    assert number == "1.5"
    assert not cell.lstrip().startswith(("=", "+", "-", "@", "\t", "\r", "\n", "＝"))
    assert text.count("\r\n") == 2


def test_numbers_stay_numbers() -> None:
    assert [safe(v) for v in (-1, 2.5, None, True, "-1")] == [-1, 2.5, "", "True", "'-1"]


def test_sources_of_the_command_line() -> None:
    here = Path("/data")
    assert source_of_text("azure", here).settings == {}
    assert source_of_text("prometheus:http://x:9090", here).settings == {"url": "http://x:9090"}
    assert source_of_text("people.csv", here).kind == "table"
    assert source_of_text("aws:prod", here).name == "prod"
    for text, said in (("a b's.csv", "'/data/a b'\"'\"'s.csv'"), ("table:x/y.csv", "/data/x/y.csv"), ("table:/z.yaml", "/z.yaml")):
        assert source_of_text(text, here).settings == {"files": said}
    assert source_of_text("ansible:../hosts", here).settings == {"inventories": "/data/../hosts"}
    for bare in ("table", "ansible:", "prometheus", "people.txt", ""):
        with pytest.raises(UsageError) as failed:
            source_of_text(bare, here)
        assert failed.value.code == "usage.source"
        assert "--from" in failed.value.hint


def test_sources_of_the_fleet_file() -> None:
    for kind, need in (("table", "files"), ("ansible", "inventories"), ("prometheus", "url")):
        for settings in ({}, {need: " "}):
            ((place, text),) = check_source(kind, settings, {})
            assert (place, need in text) == (("settings",), True)
        assert not list(check_source(kind, {need: "x"}, {}))
    assert [place for place, _ in check_source("table", {"files": "'x"}, {})] == [("settings", "files")]
    assert not list(check_source("table", {"files": "'my file.csv' b.csv"}, {}))


SECRET = "s3cr3t"


@pytest.mark.parametrize(
    ("kind", "key", "address"),
    [
        ("prometheus", "url", f"http://ada:{SECRET}@h:9090"),
        ("engines", "urls", f"h:1 https://{SECRET}@h:2/x"),
        ("engines", "urls", f"ada:{SECRET}@h:1"),
        ("aws", "endpoint", f"http://a:{SECRET}@h"),
        ("azure", "endpoint", f"https://a:{SECRET}@h/@"),
    ],
)
def test_an_address_holds_no_password(kind: str, key: str, address: str) -> None:
    ((place, text),) = check_source(kind, {key: address}, {})
    assert (place, SECRET in text, "secrets" in text) == (("settings", key), False, True)
    assert not list(check_source(kind, {key: "https://h:9/a@b"}, {}))
    if key != "endpoint":
        with pytest.raises(UsageError) as failed:
            source_of_text(f"{kind}:{address}", Path("/"))
        assert SECRET not in str(failed.value)


def test_more_of_the_fleet_file() -> None:
    assert [text for _, text in check_source("azur", {}, {})] != []
    assert [place for place, _ in check_source("aws", {"profil": "x"}, {"token": 1})] == [("settings", "profil"), ("secrets", "token")]
