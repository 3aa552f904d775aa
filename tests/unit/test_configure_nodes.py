"""Nodes of a file: refused before a change, limited, resumed, undone; every mistake of the file with its line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from fleetctl.adapters.clock.system import SystemClock
from fleetctl.adapters.store.sqlite import SqliteStore
from fleetctl.catalog.matrix import load_matrix
from fleetctl.domain.ids import HostId, PoolId
from fleetctl.domain.merge import subject_of
from fleetctl.domain.model_files import ModelFile, ModelStore
from fleetctl.domain.people import Actor
from fleetctl.domain.pool import Host
from fleetctl.domain.provision import HostResult, Progress
from fleetctl.errors import ConfigInvalid, ConfigureFailed
from fleetctl.formats.nodes_file import NodesFile, read_nodes
from fleetctl.formats.role_variables import deep_checks, role_variables
from fleetctl.usecases.capacity import CapacityPorts
from fleetctl.usecases.configure_nodes import (
    PLAYS,
    ConfigureDone,
    NodeManifest,
    Nodes,
    check_nodes,
    chosen_hosts,
    configure_nodes,
    longest_run,
    node_facts,
    on_provisioned,
    refuse_unknown,
    variables_of,
)
from fleetctl.usecases.ready_time import Stopwatch, TimeToReady, ready_times
from tests.fakes.ansible_world import PLAYBOOKS, ROOT
from tests.fakes.configurator import FakeConfigurator

TODAY = date(2026, 11, 30)
FILE = """\
pool: mi300x-a
release: debian-13-rocm-6.1.2
layer: hip
container: false
keys: {own: own.asc}
known_hosts: known_hosts
roles:
  model_server_units: []
hosts:
  node-1: {address: 10.0.0.1, user: ops}
  node-2: {address: 10.0.0.2, user: ops, roles: {nvme_raid_devices: [/dev/nvme0n1]}}
  edge-1: {address: 10.0.0.3}
"""


def write(folder: Path, text: str = FILE) -> Path:
    (folder / "own.asc").write_text("-----BEGIN PGP PUBLIC KEY BLOCK-----\n")
    (folder / "nodes.yaml").write_text(text)
    return folder / "nodes.yaml"


def nodes_of(file: NodesFile) -> Nodes:
    return Nodes(
        pool=file.pool, hosts=file.hosts, wanted=file.wanted, roles=file.roles, by_host=file.by_host, pins=file.pins, keys=file.keys
    )


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    return nodes_of(read_nodes(write(tmp_path)))


@pytest.fixture
def fake() -> FakeConfigurator:
    return FakeConfigurator(plays=frozenset(PLAYS))


@pytest.fixture
def ports(tmp_path: Path, fake: FakeConfigurator) -> CapacityPorts:
    store = SqliteStore(tmp_path / "store.db")

    def no_provisioner(_spec: object) -> object:
        raise AssertionError("nothing is provisioned here")

    return CapacityPorts(
        store=store,
        records=store,
        clock=SystemClock(),
        provisioner=no_provisioner,  # type: ignore[arg-type]
        configurator=fake,
        holder="me",
        actor=Actor(kind="person", name="ops", via="cli"),
    )


def ignore(_progress: Progress) -> None:
    """Look at nothing."""


def run(
    nodes: Nodes,
    ports: CapacityPorts,
    play: str = "site",
    *,
    limit: str = "",
    resume: bool = False,
    check: bool = False,
    tags: tuple[str, ...] = (),
) -> tuple[str, ...]:
    pinned, _ = check_nodes(nodes, load_matrix(), TODAY)
    variables = variables_of(nodes, pinned, "c0ffee")
    return tuple(r.host for r in configure_nodes(nodes, play, variables, ports, ignore, limit=limit, resume=resume, check=check, tags=tags))


def test_a_mistyped_variable_is_refused_with_the_nearest_name(nodes: Nodes) -> None:
    known = role_variables(PLAYBOOKS)
    refuse_unknown(nodes, known)
    wrong = replace(nodes, roles={"rocm_acelerators": 8, "node_serial": 1}, by_host={"node-1": {"nvme_raid_device": []}})
    with pytest.raises(ConfigInvalid) as refused:
        refuse_unknown(wrong, known)
    assert refused.value.code == "config.variable"
    assert refused.value.details == (
        "roles.rocm_acelerators is no variable of a role; the nearest is rocm_accelerators",
        "hosts.node-1.roles.nvme_raid_device is no variable of a role; the nearest is nvme_raid_devices",
    )


def test_a_run_lasts_as_long_as_its_deep_checks_may_and_a_shorter_one_is_refused(nodes: Nodes) -> None:
    def longest(play: str = "site", asked_s: int | None = None, tags: tuple[str, ...] = (), **roles: object) -> int:
        return longest_run(replace(nodes, roles=roles), play, tags, lambda profile: deep_checks(PLAYBOOKS, profile), asked_s)

    deep = deep_checks(PLAYBOOKS, "mi300x")
    assert deep == {"rccl_all_reduce": 500, "rvs_level_4": 14400}
    assert longest() == 3600 + 14900
    assert longest("upgrade") == 3600 + 3 * 14900, "one node at a time"
    assert longest(health_gate_without=["rvs_level_4"]) == 3600 + 500
    for nothing in (longest("drain"), longest(tags=("rocm",)), longest(health_gate_profile="none"), longest(health_gate_tier="quick")):
        assert nothing == 3600
    assert longest_run(replace(nodes, roles={}, vendor="nvidia"), "site", (), lambda p: deep_checks(PLAYBOOKS, p), None) == 3600 + 500
    with pytest.raises(ConfigInvalid) as refused:
        longest(asked_s=3600)
    assert refused.value.code == "config.timeout"
    assert "rvs_level_4, which may take 14400 s" in refused.value.message
    assert "health_gate_without" in refused.value.hint
    assert longest(asked_s=20_000) == 20_000
    assert longest(asked_s=60, health_gate_profile="none") == 60


def test_the_example_of_the_how_to_has_no_unknown_variable(tmp_path: Path) -> None:
    text = (ROOT / "docs/how-to/make-rocm-nodes.md").read_text("utf-8")
    example = text.partition("```yaml\n")[2].partition("```")[0]
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys/amd-rocm.asc").write_text("-----BEGIN PGP PUBLIC KEY BLOCK-----\n")
    (tmp_path / "nodes.yaml").write_text(example)
    file = nodes_of(read_nodes(tmp_path / "nodes.yaml"))
    assert len(file.roles) >= 6
    refuse_unknown(file, role_variables(PLAYBOOKS))


def test_a_run_gets_the_releases_variables_and_each_host_its_own(nodes: Nodes, ports: CapacityPorts, fake: FakeConfigurator) -> None:
    assert run(nodes, ports) == ("node-1", "node-2", "edge-1")
    (seen,) = fake.runs
    assert seen.variables["preflight_os_version"] == "13"
    assert seen.variables["translation_layer_kind"] == "hip"
    assert seen.variables["apt_ready_keys"] == {"own": "-----BEGIN PGP PUBLIC KEY BLOCK-----\n"}
    by_host = seen.variables["by_host"]
    assert by_host == {"node-1": {}, "node-2": {"nvme_raid_devices": ["/dev/nvme0n1"]}, "edge-1": {}}


@pytest.mark.parametrize(
    ("limit", "hosts"), [("node-1", ("node-1",)), ("node-*", ("node-1", "node-2")), ("edge-1, node-2", ("node-2", "edge-1")), ("", None)]
)
def test_limit_takes_hosts_by_pattern(nodes: Nodes, limit: str, hosts: tuple[str, ...] | None) -> None:
    assert tuple(h.id for h in chosen_hosts(nodes.hosts, limit)) == (hosts or ("node-1", "node-2", "edge-1"))


def test_a_limit_that_matches_nothing_names_the_hosts(nodes: Nodes) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        chosen_hosts(nodes.hosts, "other")
    assert caught.value.code == "config.limit"
    assert "node-1" in caught.value.message


def test_an_interrupted_run_is_resumed_and_another_wish_starts_anew(nodes: Nodes, ports: CapacityPorts, fake: FakeConfigurator) -> None:
    fake.states["node-2"] = "failed"
    with pytest.raises(ConfigureFailed) as caught:
        run(nodes, ports)
    assert caught.value.code == "configure.failed"
    assert "--resume" in caught.value.hint
    fake.states.clear()
    assert run(nodes, ports, resume=True) == ("node-2",)
    assert run(nodes, ports, resume=True) == ()
    assert run(nodes, ports, "health_gate", resume=True) == ("node-1", "node-2", "edge-1")
    other = replace(nodes, roles={"model_server_units": [], "nvme_raid_mount": "/mnt/other"})
    assert run(other, ports, "health_gate", resume=True) == ("node-1", "node-2", "edge-1")


@pytest.mark.parametrize("play", ["site", "upgrade"])
@pytest.mark.parametrize("ending", [ConfigureFailed("configure.timeout", "too long"), ConfigureFailed("configure.broken", "killed")])
def test_what_a_run_has_finished_before_it_was_ended_is_left_out_by_resume(
    nodes: Nodes, ports: CapacityPorts, fake: FakeConfigurator, play: str, ending: ConfigureFailed
) -> None:
    fake.raises, fake.breaks_at = ending, "edge-1"
    with pytest.raises(ConfigureFailed):
        run(nodes, ports, play)
    assert {m.host for m in ports.records.all(NodeManifest)} == {"node-1", "node-2"}
    assert run(nodes, ports, play, resume=True) == ("edge-1",)
    assert run(nodes, ports, play, resume=True) == ()


def test_unreachable_is_another_thing_than_failed(nodes: Nodes, ports: CapacityPorts, fake: FakeConfigurator) -> None:
    fake.states["node-1"] = "unreachable"
    with pytest.raises(ConfigureFailed) as caught:
        run(nodes, ports)
    assert caught.value.code == "configure.unreachable"
    assert [d.split(":")[0] for d in caught.value.details] == ["node-1"]


def test_some_roles_are_not_the_whole_play_and_hosts_one_by_one_are_all(nodes: Nodes, ports: CapacityPorts) -> None:
    assert run(nodes, ports, tags=("rocm",)) == ("node-1", "node-2", "edge-1")
    assert run(nodes, ports, tags=("rocm",), resume=True) == ()
    assert run(nodes, ports, limit="node-1", resume=True) == ("node-1",), "only one role was run on it"
    assert run(nodes, ports, limit="node-2") == ("node-2",)
    assert run(nodes, ports, resume=True) == ("edge-1",)


def test_only_a_bare_host_tells_how_long_it_takes_to_be_ready(nodes: Nodes, ports: CapacityPorts, fake: FakeConfigurator) -> None:
    def kept() -> TimeToReady | None:
        return ports.records.get(TimeToReady, nodes.pool)

    run(nodes, ports, tags=("rocm",), limit="node-2")
    assert kept() is None
    run(nodes, ports, limit="node-1")
    assert kept() is not None
    first = kept()
    run(nodes, ports, limit="node-1")
    assert kept() == first, "it was no bare host any more"
    assert set(ready_times(ports.records, [nodes.pool, PoolId("other")])) == {nodes.pool}
    run(nodes, ports, "uninstall")
    run(nodes, ports)
    again = kept()
    assert again is not None
    assert again.hosts == 3


def test_what_nodes_say_of_themselves_is_kept_for_the_inventory_until_they_are_undone(nodes: Nodes, ports: CapacityPorts) -> None:
    run(nodes, ports, check=True)
    assert node_facts(ports.records) == ()
    run(nodes, ports, limit="node-1")
    (facts,) = node_facts(ports.records)
    assert subject_of(facts) == ("node", "node-1")
    assert (facts.values["pool"], facts.values["gate"], facts.source) == (nodes.pool, "fake", f"configure {nodes.pool}")
    run(nodes, ports, "uninstall", limit="node-1")
    assert node_facts(ports.records) == ()
    lies = NodeManifest(
        host=HostId("node-2"), pool=nodes.pool, values={"node": "other", "pool": "other", "release": "r"}, at=ports.clock.now()
    )
    ports.records.put("node-2", lies)
    (facts,) = node_facts(ports.records)
    assert subject_of(facts) == ("node", "node-2"), "a host speaks for itself alone"
    assert facts.values["pool"] == nodes.pool


def test_what_was_provisioned_takes_the_place_of_the_files_hosts(nodes: Nodes) -> None:
    made = Host(id=HostId("node-1"), pool=nodes.pool, address="10.9.9.9")
    new = Host(id=HostId("node-9"), pool=nodes.pool, address="10.9.9.8", user="azureuser")
    found = on_provisioned(nodes, [made, new])
    assert [(h.id, h.address, h.user) for h in found.hosts] == [
        ("node-1", "10.9.9.9", nodes.hosts[0].user),
        ("node-9", "10.9.9.8", "azureuser"),
    ]
    with pytest.raises(ConfigInvalid) as caught:
        on_provisioned(nodes, [replace(made, pool=PoolId("other"))])
    assert caught.value.code == "config.nodes"


def test_a_check_is_not_remembered(nodes: Nodes, ports: CapacityPorts) -> None:
    run(nodes, ports, check=True)
    assert ports.records.get(ConfigureDone, nodes.pool) is None
    assert run(nodes, ports, resume=True) == ("node-1", "node-2", "edge-1")


def test_what_the_matrix_does_not_know_never_starts_a_run(nodes: Nodes, ports: CapacityPorts, fake: FakeConfigurator) -> None:
    wanted = replace(nodes.wanted, release="amdgpu-30.20-rocm-7.1-ubuntu-24.04", layer="native")
    with pytest.raises(ConfigInvalid) as caught:
        run(replace(nodes, wanted=wanted), ports)
    assert caught.value.code == "config.matrix"
    assert "nothing was changed" in caught.value.message
    assert any("fingerprint" in d and "pins of the nodes file" in d for d in caught.value.details)
    assert fake.runs == []


def test_a_variable_that_the_release_gives_cannot_be_given_as_well(nodes: Nodes, ports: CapacityPorts, fake: FakeConfigurator) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        run(replace(nodes, roles={"rocm_packages": []}), ports)
    assert "rocm_packages" in caught.value.message
    assert fake.runs == []


def test_an_unknown_play_is_refused(nodes: Nodes, ports: CapacityPorts) -> None:
    with pytest.raises(ConfigureFailed) as caught:
        run(nodes, ports, "../../etc/passwd")
    assert caught.value.code == "configure.no_play"


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        (FILE.replace("layer: hip", "layer: cuda"), 3, "layer"),
        (FILE.replace("pool: mi300x-a", "pool: MI 300"), 1, "pool"),
        (FILE.replace("container: false", "container: maybe"), 4, "container"),
        (FILE + "extra: 1\n", 13, "extra"),
        (FILE.replace("model_server_units", "ansible_connection"), 8, "ansible_connection"),
        (FILE.replace("address: 10.0.0.3", "addres: 10.0.0.3"), 12, "address"),
        (FILE.replace("address: 10.0.0.3", "address: 10.0.0.3, port: 22"), 12, "port"),
        (FILE.replace("node-1:", "'node 1':"), 10, "node 1"),
        (FILE + "pins: {keys.debian: 1}\n", 13, "pins"),
        (FILE.replace("release: debian-13-rocm-6.1.2\n", ""), 1, "release"),
    ],
)
def test_a_mistake_of_the_file_is_named_with_its_line(tmp_path: Path, text: str, line: int, part: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        read_nodes(write(tmp_path, text))
    assert caught.value.code == "config.nodes"
    assert any(f":{line}:" in d and part in d for d in caught.value.details), caught.value.details


def test_a_key_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        read_nodes(write(tmp_path, FILE.replace("own.asc", "none.asc")))
    assert "none.asc" in caught.value.message


def test_how_long_hosts_took_to_be_ready_is_kept_and_a_run_that_changes_nothing_says_nothing() -> None:
    seen: list[Progress] = []
    watch = Stopwatch(seen.append)
    for host, step, seconds in (("a", "rocm : Install", 60.0), ("a", "model_store : Fetch", 30.0), ("b", "rocm : Install", 70.0)):
        watch(Progress(subject=host, step=step, state="changed", seconds=seconds))
    now = datetime(2026, 11, 30, tzinfo=UTC)
    done = [HostResult(host=HostId(h), state="ok", ok=2, changed=n, failed=0, skipped=0) for h, n in (("a", 2), ("b", 1))]
    took = watch.record(PoolId("p"), "site", done, now)
    assert took == TimeToReady(pool=PoolId("p"), hosts=2, seconds=90.0, models_seconds=30.0, at=now)
    assert len(seen) == 3
    assert watch.record(PoolId("p"), "drain", done, now) is None
    assert watch.record(PoolId("p"), "site", [replace(r, changed=0) for r in done], now) is None


def test_the_way_back_and_a_look_at_health_ask_for_no_credential(nodes: Nodes, ports: CapacityPorts, fake: FakeConfigurator) -> None:
    file = ModelFile(store="share", key="w", path="w", sha256="0" * 64)
    store = ModelStore(name="share", kind="path", place="/mnt")
    mine = replace(nodes, models=(file,), stores={"share": store})
    pinned, _ = check_nodes(mine, load_matrix(), TODAY)
    variables = variables_of(mine, pinned, "c0ffee")
    asked: list[str] = []

    def values(found: Mapping[str, object]) -> Mapping[str, object]:
        asked.append("values")
        return {**found, "model_store_files": ["signed"]}

    for play in ("uninstall", "drain", "health_gate"):
        configure_nodes(mine, play, variables, ports, ignore, values=values)
        assert "model_store_files" not in fake.runs[-1].variables
    assert asked == []
    configure_nodes(mine, "site", variables, ports, ignore, values=values)
    assert fake.runs[-1].variables["model_store_files"] == ["signed"]
    assert configure_nodes(mine, "site", variables, ports, ignore, values=values, resume=True) == ()
    assert asked == ["values"], "nothing is signed where nothing is left to do"
