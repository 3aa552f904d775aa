"""`fleetctl status --jobs`: what the queues of batch cells hold, and which of their jobs are poison."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from fleetctl.adapters.routers.work.ledger import Ledger
from fleetctl.cli.main import main
from fleetctl.domain.ids import CellId
from fleetctl.formats.example import EXAMPLE_LINEAGE, fleet_text
from tests.fakes.clock import FakeClock

CELL = CellId("summaries-eastus2")


def batch_workspace(folder: Path, settings: dict[str, str]) -> None:
    """Write the example's fleet with its last cell behind a queue."""
    fleet = yaml.safe_load(fleet_text("example", EXAMPLE_LINEAGE))
    fleet["routers"]["nightly"] = {"kind": settings.pop("kind"), "settings": settings}
    fleet["cells"][CELL]["router"] = "nightly"
    (folder / "fleet.yaml").write_text(yaml.safe_dump(fleet))
    (folder / "fleetctl.toml").write_text('fleet = "fleet.yaml"\n')


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def _lost(ledger: Ledger, clock: FakeClock, times: int) -> None:
    for _ in range(times):
        assert ledger.take(CELL, "baseline", "w") is not None
        clock.advance(timedelta(seconds=31))


def test_a_queues_jobs_are_counted_and_its_poison_jobs_are_named(
    tmp_path: Path, clock: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    batch_workspace(tmp_path, {"kind": "queue", "path": str(tmp_path / "work.db")})
    ledger = Ledger(tmp_path / "work.db", hold_s=30, now=clock.now)
    ledger.add_cell(CELL)
    ledger.put(CELL, "page-1", b"{}")
    _lost(ledger, clock, 3)
    for n in (2, 3, 4):
        ledger.put(CELL, f"page-{n}", b"{}")
    job = ledger.take(CELL, "baseline", "w")
    assert job is not None
    ledger.finish(job, ok=True)
    assert main(["-C", str(tmp_path), "status", "--jobs"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[:2] == [
        "CELL               WAITING  TAKEN  GOOD  BAD  POISON",
        "summaries-eastus2        2      0     1    0       1",
    ]
    assert f"poison {CELL} page-1: lost 3 times, last by the source at" in out
    assert main(["-C", str(tmp_path), "status", "--jobs", "-o", "name"]) == 0
    assert capsys.readouterr().out == f"{CELL}/page-1\n"
    assert main(["-C", str(tmp_path), "status", "--jobs", "-o", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["items"]
    assert (row["dead"], row["poison"][0]["id"]) == (1, "page-1")


def test_a_queue_whose_file_is_missing_or_not_named_says_so_and_is_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for n, (settings, said) in enumerate(
        (
            ({"kind": "queue", "path": str(tmp_path / "gone.db")}, "gone.db is not there"),
            ({"kind": "sqs", "queue": "https://q", "region": "us-east-1", "log_folder": "/x"}, "router nightly has no setting results"),
        )
    ):
        folder = tmp_path / str(n)
        folder.mkdir()
        batch_workspace(folder, settings)
        assert main(["-C", str(folder), "status", "--jobs"]) == 0
        assert said in " ".join(capsys.readouterr().out.split())
    assert not (tmp_path / "gone.db").exists()
