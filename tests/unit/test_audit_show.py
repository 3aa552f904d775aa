"""What `fleetctl audit show` picks out of the log."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from fleetctl.adapters.store.sqlite import SqliteStore
from fleetctl.cli.main import cli, main
from fleetctl.domain.event import Event
from fleetctl.domain.ids import CellId
from fleetctl.domain.people import Actor
from fleetctl.formats.example import EXAMPLE_LINEAGE, fleet_text
from fleetctl.formats.fleet_file import parse_fleet
from tests.rollouts import T0, rollout

ADA, JUDGE = Actor(kind="person", name="ada"), Actor(kind="judge", name="ticker", via="timer")
FLEET = parse_fleet(fleet_text("example", EXAMPLE_LINEAGE), file="fleet.yaml")
WORKLOAD = FLEET.cells[0].workload
MINE = tuple(c.id for c in FLEET.cells if c.workload == WORKLOAD)
OTHER = CellId("left-long-ago")


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store with events of a workload's cells, of a cell that no fleet has any more, and of the fleet."""
    file = tmp_path / ".fleetctl/store.db"
    file.parent.mkdir(mode=0o700)
    store = SqliteStore(file)
    store.put("fleet", FLEET)
    for n, c in enumerate((*MINE, OTHER)):
        store.start(replace(rollout(), cell=c), ())
        at = T0 + timedelta(hours=n)
        store.append(
            (
                Event(at=at, kind="order.pause", actor=ADA, text=f"pause of {c}", cell=c),
                Event(at=at + timedelta(minutes=1), kind="traffic.set", actor=JUDGE, text=f"weight of {c}", cell=c, data={"to_bp": 1_000}),
            )
        )
    store.append((Event(at=T0, kind="plan.approved", actor=ADA, text="approved"),))
    store.close()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLEETCTL_WORKSPACE", str(tmp_path))


def shown(*arguments: str) -> list[tuple[str, str]]:
    """Return (cell, kind) of every event that is shown as JSON."""
    done = CliRunner().invoke(cli, ["audit", "show", *arguments, "-o", "json"])
    assert done.exit_code == 0, done.output
    return [(e.get("cell") or "", e["kind"]) for e in map(json.loads, done.stdout.splitlines())]


@pytest.mark.usefixtures("log")
def test_a_name_is_a_cell_a_workload_or_the_fleet() -> None:
    kinds = ("order.pause", "traffic.set")
    assert shown(str(WORKLOAD)) == [(c, k) for c in MINE for k in kinds]
    assert shown(MINE[0]) == [(MINE[0], k) for k in kinds]
    assert shown(OTHER) == [(OTHER, k) for k in kinds]
    assert shown("fleet") == [("", "plan.approved")]
    assert len(shown()) == 2 * (len(MINE) + 1) + 1


@pytest.mark.usefixtures("log")
def test_kind_actor_time_and_number_narrow_each_other() -> None:
    assert shown("--kind", "order") == [(c, "order.pause") for c in (*MINE, OTHER)]
    assert shown("--kind", "traffic.set", MINE[0]) == [(MINE[0], "traffic.set")]
    assert shown("--kind", "ord") == [], "a kind ends at a dot"
    assert shown("--by", "ticker", OTHER) == [(OTHER, "traffic.set")]
    end = T0 + timedelta(minutes=1)
    assert shown(MINE[0], "--since", f"{T0:%Y-%m-%dT%H:%M:%SZ}", "--until", f"{end:%Y-%m-%dT%H:%M:%SZ}") == [(MINE[0], "order.pause")]
    assert shown("--last", "1") == [(OTHER, "traffic.set")]
    assert shown("--until", "3650d") == []


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [(("nobody",), "audit.unknown"), (("--since", "yesterday"), "usage.bad"), (("--since", "2026-11-30T12:00:00"), "usage.bad")],
)
def test_what_cannot_be_meant_is_refused(arguments: tuple[str, ...], code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "show", *arguments]) == 2
    assert f"error[{code}]" in capsys.readouterr().err


@pytest.mark.usefixtures("log")
def test_a_table_keeps_to_the_width_and_says_how_to_check_it() -> None:
    done = CliRunner().invoke(cli, ["audit", "show", "-o", "wide"], env={"COLUMNS": "80"})
    assert done.exit_code == 0
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert "to_bp 1000" in done.stdout
    assert "fleetctl audit verify" in done.stdout
    nothing = CliRunner().invoke(cli, ["audit", "show", "--kind", "none"])
    assert (nothing.exit_code, "No event fits" in nothing.stdout) == (0, True)
