"""Fleets as JSON Lines: read like YAML ones, with the line of every mistake."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fleetctl.errors import ConfigInvalid
from fleetctl.formats.fleet_file import read_fleet
from fleetctl.formats.settings import find_fleet_file, load_settings
from tests.cases.fleet_lines import fleet_lines
from tests.cases.generated_fleet import Shape, generated_fleet


def written(folder: Path, lines: list[str]) -> Path:
    path = folder / "inventory" / "big" / "fleet.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_generated_fleet_comes_back_as_it_was(tmp_path: Path) -> None:
    fleet = generated_fleet(Shape(workloads=60))
    path = written(tmp_path, list(fleet_lines(fleet)))
    assert find_fleet_file(load_settings({"workspace": str(tmp_path)}, {})) == path
    read = read_fleet(path)
    assert read.pools == fleet.pools
    assert read.workloads == fleet.workloads
    assert [replace(c, lane=fleet.cells[i].lane) for i, c in enumerate(read.cells)] == list(fleet.cells)
    assert read.policy.power_kw == fleet.policy.power_kw
    assert [(s.phase, s.weight_bp, s.bake) for s in read.policy.steps] == [(s.phase, s.weight_bp, s.bake) for s in fleet.policy.steps]
    assert [g.margin for s in read.policy.steps for g in s.guardrails] == pytest.approx(
        [g.margin for s in fleet.policy.steps for g in s.guardrails]
    )


@pytest.mark.parametrize(
    ("line", "text", "why"),
    [
        (2, "{not json", "not JSON"),
        (2, "[1]", "is not a JSON object"),
        (2, '{"pool": "x", "pool": "y"}', "a key stands twice"),
        (2, '{"pool": NaN}', "NaN is no number"),
        (2, '{"vm": "x"}', "names no cell, pool"),
        (2, '{"pool": 3}', "the pool's name must be text"),
        (3, None, "stands twice"),
        (2, '{"pool": "h100-eastus2", "vendor": "intel", "sku": "x", "region": "eastus2", "count": 1, "limit": 1}', "vendor"),
        (2, '{"pool": "../x", "vendor": "amd", "sku": "x", "region": "r", "count": 1, "limit": 1}', "../x"),
    ],
)
def test_mistakes_carry_their_line(tmp_path: Path, line: int, text: str | None, why: str) -> None:
    lines = list(fleet_lines(generated_fleet(Shape(workloads=3))))
    lines.insert(1, text) if text is not None else lines.insert(2, lines[1])
    with pytest.raises(ConfigInvalid) as caught:
        read_fleet(written(tmp_path, lines))
    mine = [d for d in caught.value.details if f"fleet.jsonl:{line}:" in d]
    assert mine
    assert any(why in d for d in mine)
