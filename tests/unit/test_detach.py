"""`migrate --detach`: what the timer runs, that it ends by itself, and that nothing begins where no timer can be had."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from fleetctl.adapters.timer.install import cron_line, unit_texts
from fleetctl.analysis.judge import fresh
from fleetctl.cli import resident
from fleetctl.cli.app import App
from fleetctl.domain.ids import CellId, PlanId
from fleetctl.domain.rollout import Order, Rollout
from fleetctl.errors import ConfigInvalid
from fleetctl.formats.example import EXAMPLE_LINEAGE, fleet_text
from fleetctl.usecases.migrate import TICKER, Driver
from fleetctl.usecases.tick import TickResult
from fleetctl.wiring import Wiring
from tests.rollouts import PERSON, T0, spec
from tests.unit.test_rebalance_command import run


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "inventory" / "example"
    folder.mkdir(parents=True)
    (folder / "fleet.yaml").write_text(fleet_text("example", EXAMPLE_LINEAGE))
    return tmp_path


def wiring_of(workspace: Path) -> Wiring:
    return App(workspace=str(workspace)).wiring


def test_the_timer_ticks_each_minute_of_this_workspace_and_a_reboot_starts_it(workspace: Path) -> None:
    job = wiring_of(workspace).ticker_job()
    assert job.argv[-4:] == ("-C", str(workspace), "migrate", "--tick")
    texts = unit_texts(job, system=True)
    timer, service = texts[f"{job.name}.timer"], texts[f"{job.name}.service"]
    assert "OnCalendar=minutely" in timer
    assert "AccuracySec=1s" in timer
    assert "RandomizedDelaySec" not in timer, "a weight's lease waits for nobody"
    assert "WantedBy=timers.target" in timer
    assert "TimeoutStartSec=infinity" in service, "it may tick for days"
    assert cron_line(job).startswith("* * * * * cd ")
    assert wiring_of(workspace).timer_job("weekly").name != job.name


def test_it_ends_where_nothing_is_under_way(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wiring_of(workspace).store.close()
    assert run(workspace, "migrate", "--tick") == 0
    assert "ticking" in capsys.readouterr().err


def test_it_ticks_what_has_ended_before_it_ends_itself(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else would read a notice of a finished cell, see a foreign write, or obey an order for one."""
    store = wiring_of(workspace).store
    cells = [CellId(f"chat-{n}") for n in range(3)]
    for c in cells:
        store.start(Rollout(cell=c, plan=PlanId("p1"), spec=spec(), judge=fresh(), until="complete", ended="complete"), ())
    store.order(cells[0], Order(kind="fallback", actor=PERSON, at=T0))
    store.close()
    ticked: list[str] = []
    before = Driver._tick

    def noted(driver: Driver, c: CellId) -> TickResult:
        ticked.append(c)
        return before(driver, c)

    monkeypatch.setattr(Driver, "_tick", noted)
    assert run(workspace, "migrate", "--tick") == 0
    assert set(ticked) == set(cells)


def test_it_ends_where_another_ticks_though_a_cell_is_under_way(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resident, "STANDBY_S", 0.1)
    store = wiring_of(workspace).store
    cell = Rollout(cell=CellId("chat-lab"), plan=PlanId("p1"), spec=replace(spec()), judge=fresh(), until="complete")
    store.start(cell, ())
    store.acquire(TICKER, "bob@elsewhere:1", timedelta(minutes=5))
    store.close()
    assert run(workspace, "migrate", "--tick") == 0
    assert "another process ticks" in capsys.readouterr().err


def test_taking_away_what_is_not_there_changes_nothing(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(workspace, "migrate", "--detach", "off", "--dry-run") == 0
    assert "Nothing was changed." in capsys.readouterr().out


PROMETHEUS = "{kind: prometheus, settings: {url: 'http://127.0.0.1:9'}, secrets: {token: {kind: env, name: TOKEN}}}"
ENV = [
    ("kind: file                            # a file readable by its owner alone, or kind: env", "kind: env", "pin_key", True),
    ("\npools:", "\nnotify:\n  team: {kind: slack, secrets: {url: {kind: env, name: TEAM_HOOK}}}\npools:", "team: url", True),
    ("\nsources: {}", f"\nsources:\n  ours: {PROMETHEUS}", "ours: token", False),
]


@pytest.mark.parametrize(("old", "new", "said", "guards"), ENV, ids=["router", "channel", "source"])
def test_nothing_is_left_to_a_timer_or_a_guard_that_would_not_find_its_secrets(
    old: str, new: str, said: str, guards: bool, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    monkeypatch.setattr("fleetctl.adapters.timer.install_cron", made.append)
    monkeypatch.setattr("fleetctl.adapters.timer.install_systemd", made.append)
    w = wiring_of(workspace)
    w.install_timer("cron", w.ticker_job())
    assert len(made) == 1, "files are found by whoever runs as their owner"
    assert "ExecStart=" in w.guard_unit(5.0)
    file = workspace / "inventory/example/fleet.yaml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new, 1))
    w = wiring_of(workspace)
    for kind in ("cron", "systemd"):
        with pytest.raises(ConfigInvalid) as refused:
            w.install_timer(kind, w.ticker_job())
        assert (refused.value.code, len(made)) == ("config.env_secret", 1)
        assert said in " ".join(refused.value.details)
    if guards:
        with pytest.raises(ConfigInvalid, match="the guard would run without"):
            w.guard_unit(5.0)
    else:
        assert "ExecStart=" in w.guard_unit(5.0), "a guard asks no source"
