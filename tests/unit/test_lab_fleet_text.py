"""The lab's fleet file: it reads back as the fleet that was meant, and keeps a person's changes."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from fleetctl.domain.fleet import Fleet
from fleetctl.errors import ConfigInvalid
from fleetctl.formats.fleet_file import parse_fleet
from fleetctl.lab.cells import lab_cells
from fleetctl.lab.fleet_text import MARK, Places, refresh_fleet, render_fleet
from fleetctl.lab.units import unit_for, units_on_hosts

LINEAGE = "3f0c2b9e-7d41-4c55-9a5e-1b6f2a7d8e90"


def places(start: int, *, run: str = "/tmp/fl-00000000", with_llm: bool = True) -> Places:
    cells = lab_cells(with_llm=with_llm)
    return Places(
        run=Path(run),
        router_port=start,
        baseline={c.cell: tuple(range(start + 10 * i, start + 10 * i + c.replicas)) for i, c in enumerate(cells, 1)},
        canary={c.cell: tuple(f"127.0.0.1:{start + 10 * i + 5 + n}" for n in range(c.replicas)) for i, c in enumerate(cells, 1)},
        model_path="/cache/model.gguf" if with_llm else "",
    )


def text(start: int, *, run: str = "/tmp/fl-00000000", with_llm: bool = True) -> str:
    return render_fleet(lab_cells(with_llm=with_llm), places(start, run=run, with_llm=with_llm), LINEAGE)


def fleet(with_llm: bool = True) -> Fleet:
    return parse_fleet(text(21_000, with_llm=with_llm), file="fleet.yaml")


@pytest.mark.parametrize("with_llm", [True, False])
def test_the_file_reads_back_as_the_lab(with_llm: bool) -> None:
    found = fleet(with_llm)
    names = ["chat-lab", "smollm-lab", "summary-lab", "stream-lab"] if with_llm else ["chat-lab", "summary-lab", "stream-lab"]
    assert [c.id for c in found.cells] == names
    assert {c.wave for c in found.cells} == {1, 2}
    assert found.policy.approvals == 0
    assert found.policy.warm_up == timedelta(seconds=3)
    assert [(s.phase, s.weight_bp, s.bake.total_seconds()) for s in found.policy.steps][2:] == [
        ("canary", 1000, 20.0),
        ("ramp", 5000, 15.0),
        ("full", 9500, 8.0),
        ("soak", 9500, 15.0),
        ("complete", 10_000, 0.0),
    ]
    assert found.settings["lab.hosts"] == "/tmp/fl-00000000/hosts"
    assert [h.id for h in found.hosts] == ["nvidia-lab-1", "nvidia-lab-2"]


def test_lanes_say_why_and_who() -> None:
    cells = {c.id: c for c in fleet().cells}
    assert cells[next(c for c in cells if c == "chat-lab")].lane.kind == "own"
    for name in ("smollm-lab", "stream-lab"):
        lane = next(c.lane for c in cells.values() if c.id == name)
        assert lane.kind == "accepted"
        assert lane.reason
        assert lane.actor is not None


def test_new_ports_keep_a_persons_changes() -> None:
    edited = text(21_000).replace("bake: 20s", "bake: 2s")
    found = refresh_fleet(edited, text(22_000, run="/tmp/fl-11111111"))
    assert found is not None
    assert found == text(22_000, run="/tmp/fl-11111111").replace("bake: 20s", "bake: 2s")
    assert "fl-00000000" not in found


def test_other_cells_mean_another_file() -> None:
    assert refresh_fleet(text(21_000), text(22_000, with_llm=False)) is None
    assert refresh_fleet("name: mine\n", text(22_000)) is None
    assert MARK.strip() in text(21_000)


def test_replicas_are_spread_over_the_hosts() -> None:
    found = fleet()
    cell = next(c for c in found.cells if c.id == "chat-lab")
    hosts = [h for h in found.hosts if h.pool == "nvidia-lab"]
    units = units_on_hosts(found, cell, "source", hosts, Path("/r/hosts"))
    assert {h: list(u) for h, u in units.items()} == {"nvidia-lab-1": ["chat-lab-b1"], "nvidia-lab-2": ["chat-lab-b2"]}
    unit = units[hosts[1].id]["chat-lab-b2"]
    assert unit["argv"][-1] == "/r/hosts/nvidia-lab-2/chat-lab-b2.json"
    assert unit["config"] == {"port": 21_011, "model": "emulated-chat-8b", "ttft_ms": 20.0, "token_ms": 2.0, "log_sd": 0.25}
    assert units_on_hosts(found, cell, "target", [], Path("/r/hosts")) == {}


def test_the_two_sides_of_the_real_model_differ_by_their_cache() -> None:
    found = fleet()
    cell = next(c for c in found.cells if c.id == "smollm-lab")
    w = found.workload(cell.workload)
    made = [unit_for(cell=cell, workload=w, side=s, index=1, folder=Path("/r/h"))["config"] for s in ("source", "target")]
    assert [m["kv"] for m in made] == ["f16", "q8_0"]
    assert [m["model_path"] for m in made] == ["/cache/model.gguf"] * 2
    with pytest.raises(ConfigInvalid, match="no replica 2"):
        unit_for(cell=cell, workload=w, side="target", index=2, folder=Path("/r/h"))
