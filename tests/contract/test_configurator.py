"""The promises of the Configurator port, kept by the fake and by the one over ansible-playbook."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fleetctl.adapters.ansible.configurator import AnsibleConfigurator
from fleetctl.domain.ids import HostId, Token
from fleetctl.domain.pool import Host
from fleetctl.domain.provision import HostResult, Progress
from fleetctl.errors import ConfigureFailed
from fleetctl.ports.capacity import Configurator
from tests.fakes import ansible_world as world
from tests.fakes.configurator import FakeConfigurator


@dataclass(kw_only=True)
class Stage:
    """A configurator with two hosts and what they shall serve."""

    configurator: Configurator
    hosts: tuple[Host, Host]
    by_host: dict[str, dict[str, object]]
    away: Host
    seen: list[Progress] = field(default_factory=list)

    def only(self, *hosts: str) -> dict[str, object]:
        """Return the variables of a run over these hosts."""
        return {"by_host": {h: self.by_host[h] for h in hosts}}


@pytest.fixture(params=["fake", pytest.param("ansible", marks=pytest.mark.lab)])
def stage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setenv("PYTHONPATH", str(world.ROOT))
    hosts = (world.local_host(tmp_path / "hosts", "host-1"), world.local_host(tmp_path / "hosts", "host-2"))
    by_host: dict[str, dict[str, object]] = {h.id: {"lab_serving_units": [world.unit(h, f"chat-lab-c{n}")]} for n, h in enumerate(hosts, 1)}
    away = world.closed_host("host-away")
    made: Configurator = FakeConfigurator(states={away.id: "unreachable"})
    if request.param == "ansible":
        made = AnsibleConfigurator(world.PLAYBOOKS, tmp_path / "run", sys.executable, timeout_s=120)
    yield Stage(configurator=made, hosts=hosts, by_host=by_host, away=away)
    world.stop_units(tmp_path / "hosts")


def test_a_second_run_changes_nothing_and_a_lower_token_is_refused(stage: Stage) -> None:
    def run(token: int, **changed: object) -> tuple[HostResult, ...]:
        return stage.configurator.run("serving", stage.hosts[:1], {**stage.only("host-1"), **changed}, Token(token), stage.seen.append)

    first = run(5)
    manifest = dict(stage.configurator.manifest(HostId("host-1")))
    assert [(r.host, r.state, r.failed) for r in first] == [("host-1", "ok", 0)]
    assert 1 <= first[0].changed <= first[0].ok
    assert {(p.subject, p.state) for p in stage.seen} >= {("host-1", "started"), ("host-1", "changed")}
    assert {type(part) for item in manifest.items() for part in item} == {str}

    assert [(r.state, r.changed, r.failed) for r in run(6)] == [("ok", 0, 0)]
    assert stage.configurator.manifest(HostId("host-1")) == manifest

    stale = run(5, by_host={})
    assert [(r.state, r.changed, r.failed) for r in stale] == [("failed", 0, 1)]
    assert "stale token 5" in stale[0].detail
    assert stage.configurator.manifest(HostId("host-1")) == manifest


def test_unreachable_is_another_thing_than_failed_and_spares_the_others(stage: Stage) -> None:
    results = stage.configurator.run("stop_serving", (stage.away, stage.hosts[0]), stage.only(), Token(1), stage.seen.append)
    assert [(r.host, r.state, r.failed) for r in results] == [("host-away", "unreachable", 1), ("host-1", "ok", 0)]
    assert results[0].detail
    assert ("host-away", "unreachable") in {(p.subject, p.state) for p in stage.seen}


def test_a_cancelled_run_is_run_again_to_its_end(stage: Stage) -> None:
    def stop_at_once(progress: Progress) -> None:
        stage.configurator.cancel()

    cancelled = stage.configurator.run("serving", stage.hosts, stage.only("host-1", "host-2"), Token(1), stop_at_once)
    assert [r.state for r in cancelled] == ["cancelled", "cancelled"]
    again = stage.configurator.run("serving", stage.hosts[:1], stage.only(), Token(2), stage.seen.append)
    assert [r.state for r in again] == ["ok"]


def test_an_unknown_play_is_refused(stage: Stage) -> None:
    with pytest.raises(ConfigureFailed) as caught:
        stage.configurator.run("../serving", stage.hosts, {}, Token(1), stage.seen.append)
    assert caught.value.code == "configure.no_play"
    assert not stage.seen


def test_no_host_is_no_run(stage: Stage) -> None:
    assert stage.configurator.run("serving", (), {}, Token(1), stage.seen.append) == ()


def test_a_host_that_no_run_has_seen_has_no_manifest(stage: Stage) -> None:
    assert stage.configurator.manifest(HostId("host-none")) == {}
