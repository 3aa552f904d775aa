"""CSV and YAML tables of what no API shows: read, checked row by row, and never trusted."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleetctl.adapters.files import MOST_BYTES, TableDiscovery
from fleetctl.domain.people import Facts, Gap
from fleetctl.errors import InventoryFailed
from fleetctl.formats.example import EXAMPLE_LINEAGE, fleet_text
from fleetctl.formats.fleet_file import parse_fleet
from fleetctl.usecases.inventory_orphans import orphans


def read(path: Path, text: str | bytes) -> list[Facts | Gap]:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return list(TableDiscovery("people", (path,), lambda: datetime.now(UTC), shown=lambda p: p.name).scan(""))


def test_csv_rows_become_facts(tmp_path: Path) -> None:
    found = read(tmp_path / "t.csv", 'workload,owner,requests_per_s,notes\r\nchat,ada,20,\r\n\r\nsumm,bob,0.5,"a\nb"\r\n')
    assert [f.values for f in found if isinstance(f, Facts)] == [
        {"workload": "chat", "owner": "ada", "requests_per_s": 20},
        {"workload": "summ", "owner": "bob", "requests_per_s": 0.5, "notes": "a\nb"},
    ]


def test_yaml_maps_become_facts(tmp_path: Path) -> None:
    found = read(tmp_path / "t.yaml", "cell:\n  chat-eu: {owner: ada, p95_ms: 120, autoscaler: HPA}\nmachine:\n  gpu-1: {gpus: 8}\n")
    assert [f.values for f in found if isinstance(f, Facts)] == [
        {"cell": "chat-eu", "owner": "ada", "p95_ms": 120, "autoscaler": "HPA"},
        {"machine": "gpu-1", "gpus": 8},
    ]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("t.csv", "workload,xyzzy\nchat,red\n", "t.csv:1: unknown column 'xyzzy'; it is left out"),
        ("t.csv", "workload,onwer,Cost Centre\nchat,red,1\n", "t.csv:1: unknown column 'onwer' (did you mean 'owner'?)"),
        ("t.csv", "workload,onwer,Cost Centre\nchat,red,1\n", "t.csv:1: unknown column 'Cost Centre' (did you mean 'cost_centre'?)"),
        ("t.csv", "workloads,owner\nchat,red\n", "t.csv:1: the first column is 'workloads' (did you mean 'workload'?)"),
        ("t.csv", "workload,owner,owner\nchat,red,blue\n", "t.csv:1: there are two columns 'owner'; the last one counts"),
        ("t.csv", "workload,owner,\nchat,red,blue\n", "t.csv:1: unknown column without a title"),
        ("t.csv", "", "t.csv:1: the table is empty"),
        ("t.csv", "\n \n", "t.csv:1: the table is empty"),
        ("t.csv", "workload;gpus\nx;0,5\n", "t.csv:2: gpus must be a number of at least 0, not '0,5': a point separates decimals"),
        ("t.yaml", "", "t.yaml:1: the table is empty"),
        ("t.yaml", "workloads: {a: {owner: b}}\n", "not of 'workloads' (did you mean 'workload'?)"),
        ("t.yaml", "cell:\n  a: {onwer: b}\n", "t.yaml:2: unknown column 'onwer' (did you mean 'owner'?)"),
        ("t.csv", "thing,owner\nx,y\n", "t.csv:1: the first column is 'thing'"),
        ("t.csv", "workload,owner\n,y\n", "t.csv:2: the row has no name"),
        ("t.csv", "workload,owner\nx,y,z\n", "t.csv:2: 3 cells under 2 titles: quote what holds a comma"),
        ("t.csv", "workload,requests_per_s\nx,-1\n", "t.csv:2: requests_per_s must be a number"),
        ("t.csv", "workload,gpus\nx,nan\n", "t.csv:2: gpus must be a number"),
        ("t.csv", 'workload,owner\nx,"y\n', "not CSV"),
        ("t.yaml", "cell: [1]\n", "t.yaml:1: cell must be a mapping"),
        ("t.yaml", "cell:\n  a: {owner: [1]}\n", "t.yaml:2: owner must be one short value"),
        ("t.yaml", "cell: {a: {owner: &x *x}}\n", "not YAML"),
        ("t.yaml", "cell: {a: {owner: !!python/object/apply:os.system [id]}}\n", "is not read"),
        ("t.yaml", "- 1\n", "a table is a mapping"),
    ],
)
def test_a_wrong_row_is_a_gap_with_its_line(tmp_path: Path, name: str, text: str, said: str) -> None:
    gaps = [f"{g.scope}: {g.reason}" for g in read(tmp_path / name, text) if isinstance(g, Gap)]
    assert len(gaps) >= 1
    assert any(said in g for g in gaps), gaps


def test_a_good_row_beside_a_bad_one_counts(tmp_path: Path) -> None:
    found = read(tmp_path / "t.csv", "workload,requests_per_s\nx,-1\ny,2\n")
    assert [type(f) for f in found] == [Gap, Facts]


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(InventoryFailed, match="not UTF-8"):
        read(tmp_path / "b.csv", b"\xff\xfe\x00")
    with pytest.raises(InventoryFailed, match="larger"):
        read(tmp_path / "big.csv", b"a" * (MOST_BYTES + 1))
    os.mkfifo(tmp_path / "pipe.csv")
    for name in ("pipe.csv", "missing.csv"):
        with pytest.raises(InventoryFailed):
            list(TableDiscovery("p", (tmp_path / name,), lambda: datetime.now(UTC)).scan(""))


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("said", ["", "sep=S\r\n"])
@pytest.mark.parametrize("quote", ["", '"'])
def test_what_stands_between_cells_is_found_out(tmp_path: Path, separator: str, said: str, quote: str) -> None:
    rows = [["workload", "owner", "notes"], ["chat", "ada", f"a{separator}b, c; d"]]
    text = "\r\n".join(separator.join(f'"{c}"' if separator in c else f"{quote}{c}{quote}" for c in row) for row in rows)
    found = read(tmp_path / "t.csv", "\ufeff" + said.replace("S", separator) + text)
    assert [f.values for f in found if isinstance(f, Facts)] == [{"workload": "chat", "owner": "ada", "notes": f"a{separator}b, c; d"}]
    assert len(found) == 1


def test_what_is_right_beside_a_mistake_counts(tmp_path: Path) -> None:
    rows = "".join(f"w{n},x,ada,{n}\n" for n in range(500))
    found = read(tmp_path / "t.csv", f"workload,onwer,tenant,gpus\n{rows}bad,x,bob,many\n")
    assert [g.scope for g in found if isinstance(g, Gap)] == ["t.csv:1", "t.csv:502"]  # a typo in a title is said once
    facts = [f for f in found if isinstance(f, Facts)]
    assert facts[7].values == {"workload": "w7", "tenant": "ada", "gpus": 7}
    assert facts[-1].values == {"workload": "bad", "tenant": "bob"}
    found = read(tmp_path / "t.yaml", "cell:\n  a: {onwer: x, tenant: t, gpus: many}\n  b: 1\npods: {}\n")
    assert [f.values for f in found if isinstance(f, Facts)] == [{"cell": "a", "tenant": "t"}]
    assert len(found) == 5


SECRET = "hunter2-$6$abcdef"


@pytest.mark.parametrize("name", ["t.csv", "t.yaml"])
@pytest.mark.parametrize(
    "text",
    [
        f"root:{SECRET}:20228:0:99999:7:::\ndaemon:*:1:0:9:7:::\n",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n",
        f"{SECRET}\n",
        f"token={SECRET}\n",
        f'{{"password": "{SECRET}"}}\n',
        f"password: {SECRET}\n",
        f"machine x login y password {SECRET}\n",
        f"- {SECRET}\n",
    ],
)
def test_what_is_no_table_is_never_quoted(tmp_path: Path, name: str, text: str) -> None:
    found = read(tmp_path / name, text)
    assert found
    assert not [f for f in found if isinstance(f, Facts)]
    assert SECRET not in str(found)


def test_names_that_the_fleet_does_not_have_are_said() -> None:
    at = datetime.now(UTC)

    def said(source: str, **values: str) -> Facts:
        return Facts(values=values, source=source, seen_at=at)

    fleet = parse_fleet(fleet_text("example", EXAMPLE_LINEAGE), file="fleet.yaml")
    cell = str(fleet.cells[0].id)
    right = [
        said("table p/t.csv", workload=str(fleet.cells[0].workload), cell=cell, pool=str(fleet.pools[0].id)),
        said("table p/t.csv", cell=cell),
    ]
    assert orphans(fleet, right) == ()
    clouds = [said("aws a/us", machine="i-1", cell="nope"), said("kubernetes k/pods", deployment="d", workload="nope")]
    assert orphans(fleet, clouds) == ()
    wrong = [said("table p/t.csv", workload=f"w{n}", owner="ada") for n in range(7)]
    wrong += [said("table p/t.csv", engine="h:1", cell=cell + "x"), said("ansible s/hosts", machine="m", pool="no-pool")]
    gaps = {(g.source, g.scope): g.reason for g in orphans(fleet, [*right, *clouds, *wrong])}
    assert len(orphans(fleet, wrong)) == 3
    assert gaps["ansible s", "hosts"] == "it names a pool that the fleet file does not declare: 'no-pool'"
    texts = [g.reason for g in orphans(fleet, wrong)]
    assert any(f"{cell + 'x'!r} (did you mean {cell!r}?)" in t for t in texts)
    assert any(t.endswith("'w0', 'w1', 'w2', 'w3', 'w4' and 2 more") for t in texts)
