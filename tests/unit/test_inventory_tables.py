"""CSV and YAML tables of what no API shows: read, checked row by row, and never trusted."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleetctl.adapters.files import MOST_BYTES, TableDiscovery
from fleetctl.domain.people import Facts, Gap
from fleetctl.errors import InventoryFailed


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
        ("t.csv", "workload,colour\nchat,red\n", "t.csv:2: unknown column 'colour'"),
        ("t.csv", "thing,owner\nx,y\n", "t.csv:2: the first column is 'thing'"),
        ("t.csv", "workload,owner\n,y\n", "t.csv:2: the row has no name"),
        ("t.csv", "workload,owner\nx,y,z\n", "t.csv:2: unknown column 'a cell too many'"),
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
