"""A whole lab: up, up again, faults, load, two side by side, down, after crashes. Without the real model and the ticker."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.domain.fleet import Fleet
from fleetctl.errors import LabFailed, UsageError
from fleetctl.formats.fleet_file import read_fleet
from fleetctl.lab import lifecycle, parts
from fleetctl.lab.cells import SOURCE_HOSTS
from fleetctl.lab.fault_control import lab_clear, lab_fault, lab_faults, lab_load
from fleetctl.lab.lifecycle import FLEET_FILE, lab_down, lab_up
from fleetctl.lab.overview import client_errors, lab_status, load_stats
from fleetctl.lab.processes import mark
from fleetctl.lab.record import LabRecord, read_record
from fleetctl.lab.service import process_of
from tests.lab.lab_tools import until

pytestmark = pytest.mark.lab
RATES = {"chat-lab": 20.0, "summary-lab": 20.0, "stream-lab": 5.0}


def up(workspace: Path, *, load: bool = True) -> LabRecord:
    return lab_up(workspace, with_llm=False, load=load, ticker=False, rates=RATES)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, LabRecord]]:
    workspace = tmp_path_factory.mktemp("workspace")
    try:
        yield workspace, up(workspace)
    finally:
        lab_down(workspace)


def nothing_left(record: LabRecord) -> None:
    assert not record.folder.exists()
    assert not parts.is_any_alive(record)
    assert parts._left_over(record) == []


def test_everything_is_healthy_and_says_what_it_is(lab: tuple[Path, LabRecord]) -> None:
    workspace, record = lab
    rows = {r.name: r for r in lab_status(workspace)}
    assert set(rows) == {"haproxy", "collector", "load", "chat-lab-b1", "chat-lab-b2", "summary-lab-b1", "summary-lab-b2", "stream-lab-b1"}
    assert {r.health for r in rows.values()} == {"healthy"}
    assert rows["haproxy"].nature == "real"
    assert rows["chat-lab-b1"].nature == "emulated"
    assert rows["chat-lab-b2"].host == "nvidia-lab-2"
    assert record.without_llm
    assert record.folder.stat().st_mode & 0o777 == 0o700
    assert (record.folder / "haproxy" / "pin.key").stat().st_mode & 0o777 == 0o600


def test_clients_are_answered_without_an_error(lab: tuple[Path, LabRecord]) -> None:
    workspace, _ = lab
    until(lambda: len(s := load_stats(workspace)) == 3 and all(c.ok > 5 for c in s), "answers of every cell")
    assert client_errors(workspace) == 0


def test_the_fleet_file_names_what_runs(lab: tuple[Path, LabRecord]) -> None:
    workspace, record = lab
    fleet: Fleet = read_fleet(workspace / FLEET_FILE)
    assert fleet.routers[0].settings["url"] == record.url
    assert Path(fleet.routers[0].settings["socket"]).exists()
    assert [c.router.canary_endpoints for c in fleet.cells] == [tuple(f"127.0.0.1:{p}" for p in c.canary) for c in record.cells]
    assert (workspace / "fleetctl.toml").read_text().endswith(f'fleet = "{FLEET_FILE}"\n')


def test_up_again_finds_it_up_and_mends_what_died(lab: tuple[Path, LabRecord]) -> None:
    workspace, record = lab
    again = up(workspace)
    assert again.changed == ()
    assert again.run == record.run
    host = record.hosts / SOURCE_HOSTS[0]
    killed = process_of(host, "chat-lab-b1")
    assert killed is not None
    os.kill(killed.pid, signal.SIGKILL)
    until(lambda: next(r for r in lab_status(workspace) if r.name == "chat-lab-b1").health == "dead", "dead")
    assert up(workspace).changed == ("chat-lab-b1",)


def test_faults_are_switched_on_and_off(lab: tuple[Path, LabRecord]) -> None:
    workspace, record = lab
    cell = record.cell("summary-lab")
    on = lab_fault(workspace, "summary-lab", "errors", "source", ratio=1.0)
    assert [f.unit for f in on] == ["summary-lab-b1", "summary-lab-b2"]
    until(lambda: parts.complete(record, cell) in (500, 503), "errors through the router")
    assert {f.kind for f in lab_faults(workspace)} == {"errors"}
    assert next(r for r in lab_status(workspace) if r.name == "summary-lab-b1").faults == ("errors",)
    assert len(lab_clear(workspace, "summary-lab")) == 2
    assert lab_faults(workspace) == ()
    until(lambda: parts.complete(record, cell) == 200, "no errors")


def test_a_cleared_crash_starts_the_server_again(lab: tuple[Path, LabRecord]) -> None:
    workspace, record = lab
    host = record.hosts / "nvidia-lab-1"
    lab_fault(workspace, "stream-lab", "crash", "source")
    until(lambda: process_of(host, "stream-lab-b1") is None, "crash")
    lab_clear(workspace, kind="crash")
    assert process_of(host, "stream-lab-b1") is not None


def test_faults_that_cannot_be(lab: tuple[Path, LabRecord]) -> None:
    workspace, _ = lab
    with pytest.raises(LabFailed, match="no server on its target side") as e:
        lab_fault(workspace, "chat-lab", "latency", factor=2)
    assert e.value.code == "lab.no_unit"
    with pytest.raises(LabFailed, match="no cell 'chat'"):
        lab_fault(workspace, "chat", "latency", "source")
    with pytest.raises(UsageError, match="no fault"):
        lab_fault(workspace, "chat-lab", "slow", "source")
    with pytest.raises(UsageError, match="cannot have the fault kv_cache"):
        lab_fault(workspace, "chat-lab", "kv_cache", "source")


def test_the_load_can_be_changed(lab: tuple[Path, LabRecord]) -> None:
    workspace, record = lab
    before = process_of(record.folder / "units", "load")
    lab_load(workspace, rates={"stream-lab": 20.0})
    after = process_of(record.folder / "units", "load")
    assert after is not None
    assert after != before
    assert up(workspace).changed == ()
    lab_load(workspace, running=False)
    assert process_of(record.folder / "units", "load") is None
    lab_load(workspace)
    with pytest.raises(UsageError, match="cannot be sent"):
        lab_load(workspace, rates={"stream-lab": -1.0})


def test_two_labs_side_by_side_and_down_leaves_nothing(lab: tuple[Path, LabRecord], tmp_path: Path) -> None:
    workspace, first = lab
    second = up(tmp_path, load=False)
    try:
        ports = {second.router_port, second.collector_port, *(p for c in second.cells for p in (*c.baseline, *c.canary))}
        others = {first.router_port, first.collector_port, *(p for c in first.cells for p in (*c.baseline, *c.canary))}
        assert not ports & others
        lost = process_of(second.hosts / "nvidia-lab-1", "chat-lab-b1")
        assert lost is not None
        (second.hosts / "nvidia-lab-1" / "chat-lab-b1.pid").unlink()
    finally:
        gone = lab_down(tmp_path)
    assert gone.run == second.run
    assert {"haproxy", "collector", "summary-lab-b1", f"pid {lost.pid}"} <= set(gone.stopped)
    assert mark(lost.pid) is None
    nothing_left(second)
    assert read_record(tmp_path) is None
    assert lab_down(tmp_path).run == ""
    assert (tmp_path / FLEET_FILE).exists()
    assert {r.health for r in lab_status(workspace)} == {"healthy"}


def test_a_part_that_fails_stops_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[LabRecord] = []
    real = lifecycle._bring_up

    def keep(record: LabRecord, say: lifecycle.Say) -> LabRecord:
        made.append(record)
        return real(record, say)

    monkeypatch.setattr(lifecycle, "_bring_up", keep)
    monkeypatch.setattr(parts, "COLLECTOR_MODULE", "fleetctl.no_such_module")
    with pytest.raises(LabFailed, match="collector did not start") as e:
        up(tmp_path)
    assert e.value.code == "lab.process"
    assert "No module named" in e.value.details[-1]
    nothing_left(made[0])
    assert read_record(tmp_path) is None


def test_a_port_taken_in_the_meantime_means_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    holders: list[socket.socket] = []
    real = lifecycle._prepare

    def steal(*args: object, **more: object) -> LabRecord:
        record = real(*args, **more)  # type: ignore[arg-type]
        if not holders:
            holder = socket.create_server(("127.0.0.1", record.cells[0].baseline[0]))
            holders.append(holder)
        return record

    monkeypatch.setattr(lifecycle, "_prepare", steal)
    try:
        record = lab_up(tmp_path, with_llm=False, load=False, ticker=False, say=said.append)
        assert "a port was taken in the meantime: again with others" in said
        assert {r.health for r in lab_status(tmp_path)} == {"healthy"}
    finally:
        lab_down(tmp_path)
        for holder in holders:
            holder.close()
    nothing_left(record)


def test_leftovers_of_a_reboot_are_cleared_and_no_lab_says_so(tmp_path: Path) -> None:
    with pytest.raises(LabFailed) as e:
        lab_status(tmp_path)
    assert e.value.code == "lab.not_up"
    (tmp_path / ".fleetctl").mkdir(exist_ok=True)
    (tmp_path / ".fleetctl" / "lab.json").write_text('{"run": "/home", "nonsense": 1}')
    with pytest.raises(LabFailed) as e:
        lab_down(tmp_path)
    assert e.value.code == "lab.record"
