"""From a bare host to a serving one and back, on real systemd hosts over real ssh, with stand-ins for AMD's packages."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace

import pytest

from fleetctl.domain.ids import Token
from fleetctl.domain.provision import HostResult
from fleetctl.lab.standins import DRIVER_PART, NEW, OLD
from tests.lab import nspawn_bench as nb
from tests.lab import nspawn_lab as nl
from tests.lab.nspawn_files import fleetctl as program
from tests.lab.nspawn_files import nodes_file

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.timeout(3000),
    pytest.mark.skipif(bool(nl.why_not()), reason=nl.why_not() or "it can"),
]
SECRET = "s3cr3t-9f41c7"
BOTH = ("rocm", "amdgpu")
"""The repositories, both signed by one key."""
PAYLOAD = "m{{ lookup('pipe', 'touch /tmp/owned') }} $(touch /tmp/owned) `id` %h \\ \"quoted\" 'x'"


@pytest.fixture(scope="module")
def bench() -> Iterator[nb.Bench]:
    with nb.bench(1) as made:
        yield made


def only(results: tuple[HostResult, ...]) -> HostResult:
    (result,) = results
    return result


def test_a_bare_host_becomes_a_serving_one_and_a_bare_one_again(bench: nb.Bench) -> None:
    h = bench.lab.hosts[0]
    difference, packages = nb.remember(h), nb.packages(h)
    variables = bench.repository.variables(model=PAYLOAD)

    predicted = only(bench.run("rocm_node", variables, check=True))
    assert (predicted.state, predicted.detail) == ("ok", "")
    would_change = bench.changed_roles()
    assert difference() == {}, "a check changes nothing"
    assert SECRET not in bench.output()

    first = only(bench.run("rocm_node", variables))
    assert (first.state, first.detail) == ("ok", "")
    assert bench.changed_roles() - {"node_manifest"} == would_change - {"node_manifest"}
    assert SECRET not in bench.output()
    assert SECRET not in repr(bench.seen)

    second = only(bench.run("rocm_node", variables))
    assert (second.state, second.changed) == ("ok", 0), sorted(bench.changed_roles())

    _look_at(h)
    undone = only(bench.run("uninstall", variables))
    assert (undone.state, undone.detail) == ("ok", "")
    assert nb.packages(h) == packages
    assert difference() == {}


def _look_at(h: nl.RealHost) -> None:
    """Prove by other means than the roles' that the host is what it should be."""
    manifest = json.loads(h.ssh("cat", "/etc/fleetctl/node.json").stdout)
    assert manifest["release"] == f"standin-{OLD}"
    assert manifest["package.amdgpu-dkms"] == OLD
    said = h.ssh("apt-cache", "policy", "amdgpu-dkms", "rocminfo").stdout.split("rocminfo:")
    assert [f"/{DRIVER_PART} " in part for part in said] == [True, False], "driver and ROCm come from two repositories"
    assert h.ssh("apt-mark", "showhold").stdout.split() == [
        "amd-smi-lib", "amdgpu-dkms", "linux-headers-standin", "rocminfo", "standin-engine"
    ]  # fmt: skip
    assert h.ssh("systemctl", "is-active", "fleetctl-chat.service").stdout == "active\n"
    shown = h.ssh("sudo", "cat", "/etc/fleetctl/translation.env").stdout
    assert 'HIP_VISIBLE_DEVICES="0,1"' in shown
    assert 'NCCL_MIN_NCHANNELS="112"' in shown
    assert 'PYTORCH_HIP_ALLOC_CONF="garbage_collection_threshold:0.9"' in shown
    assert "CUDA" not in shown
    assert "NVLS" not in shown
    assert h.ssh("sudo", "stat", "-c", "%a", "/etc/fleetctl/units/chat.env").stdout == "600\n"
    assert h.ssh("ls", "/tmp/owned").returncode != 0, "a model's name is letters only"
    pid = h.ssh("systemctl", "show", "-P", "MainPID", "fleetctl-chat.service").stdout.strip()
    argv = h.ssh("sudo", "cat", f"/proc/{pid}/cmdline").stdout.split("\0")
    assert PAYLOAD in argv
    assert SECRET not in h.ssh("ps", "-eo", "args").stdout


def _refused(bench: nb.Bench, variables: dict[str, object], *tags: str) -> str:
    """Run, prove that it was refused before a change, and return why."""
    difference = nb.remember(bench.lab.hosts[0])
    result = only(bench.run("rocm_node", variables, tags=tags))
    assert result.state == "failed"
    changed = {p for p in difference() if not p.startswith(("etc/fleetctl", "var/lib/fleetctl"))}
    assert changed == set()
    return result.detail


def test_what_cannot_work_is_refused_before_a_change_with_code_and_next_step(bench: nb.Bench) -> None:
    good = bench.repository.variables()
    wrong = {"preflight_os_version": "13", "preflight_kernel_series": "1.0", "preflight_uefi": True, "preflight_firmware": "/nowhere"}
    wrong_os = _refused(bench, good | wrong, "preflight")
    assert "no VM of Generation 2" in wrong_os
    assert "configure.preflight" in wrong_os
    assert "and the release is for 13" in wrong_os
    assert "and the release is for 1.0" in wrong_os
    report = json.loads((bench.lab.folder / "run/preflight" / f"{bench.lab.hosts[0].name}.json").read_text())
    assert report["ok"] is False
    assert len(report["findings"]) == 3
    assert "Next: " in wrong_os

    rows = good["apt_ready_repositories"]
    assert isinstance(rows, list)
    for place in ({"suite": "none"}, {"uri": "http://127.0.0.1:1/apt"}):
        lost = _refused(bench, good | {"apt_ready_repositories": [rows[0] | place]}, "apt_ready")
        assert "configure.repository: nothing was changed, because apt cannot fetch from http://" in lost
        assert "Next: " in lost

    _, other_key = bench.repository.new_key("other")
    assert "configure.key" in _refused(bench, good | {"apt_ready_keys": dict.fromkeys(BOTH, other_key)}, "apt_ready")
    assert "ZLUDA" in _refused(bench, good | {"translation_layer_kind": "zluda"}, "translation_layer")


@pytest.mark.slow
def test_a_broken_absent_or_expired_key_and_a_layer_without_licence_are_refused(bench: nb.Bench) -> None:
    good = bench.repository.variables()
    for keys in (dict.fromkeys(BOTH, "-----BEGIN PGP PUBLIC KEY BLOCK-----\nbroken\n"), {}):
        assert "configure.key" in _refused(bench, good | {"apt_ready_keys": keys}, "apt_ready")
    expired, expired_key = bench.repository.new_key("expired", expires="20200201T000000", made="20200101T000000")
    rows = good["apt_ready_repositories"]
    assert isinstance(rows, list)
    changed = good | {"apt_ready_repositories": [rows[0] | {"fingerprint": expired}], "apt_ready_keys": {"rocm": expired_key}}
    assert "configure.key" in _refused(bench, changed, "apt_ready")

    assert "licence" in _refused(bench, good | {"translation_layer_kind": "scale"}, "translation_layer")


def test_a_changed_host_key_is_unreachable_and_nothing_is_said_to_it(bench: nb.Bench) -> None:
    pinned = bench.lab.known_hosts.read_text()
    other = bench.lab.folder / "other.pub"
    kind, _, _ = (bench.lab.folder / "id.pub").read_text().split()
    other.write_text((bench.lab.folder / "id.pub").read_text())
    bench.lab.known_hosts.write_text(f"{bench.lab.hosts[0].address} {kind} {other.read_text().split()[1]}\n")
    try:
        result = only(bench.run("rocm_node", bench.repository.variables(), tags=["preflight"]))
    finally:
        bench.lab.known_hosts.write_text(pinned)
    assert result.state == "unreachable"
    assert result.changed == 0


@pytest.mark.slow
def test_a_server_is_restarted_when_anything_that_it_was_started_with_changes_and_else_never(bench: nb.Bench) -> None:
    h, good = bench.lab.hosts[0], bench.repository.variables()
    tags = ["apt_ready", "accelerator_access", "container_engine", "translation_layer", "model_server"]
    (unit,) = [good["model_server_units"]]
    assert isinstance(unit, list)
    changes: list[dict[str, object]] = [
        {},
        {"model_server_units": [unit[0] | {"argv": [*unit[0]["argv"], "more"]}]},
        {"model_server_units": [unit[0] | {"environment": {"TOKEN": "another"}}]},
        {"translation_layer_environment": {"NCCL_MIN_NCHANNELS": "64"}},
        {"model_server_stop_timeout": 200},
    ]
    seen = []
    for change in changes:
        for n in range(2):
            result = only(bench.run("rocm_node", good | change, tags=tags))
            assert (result.state, result.detail) == ("ok", "")
            assert n == 0 or result.changed == 0, (change, bench.changed_roles())
            seen.append(h.ssh("systemctl", "show", "-P", "MainPID", "fleetctl-chat.service").stdout.strip())
    assert seen[::2] == seen[1::2], "a second run restarts nothing"
    assert len(set(seen)) == len(changes), seen
    assert only(bench.run("uninstall", good)).state == "ok"


def left(difference: dict[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Return what differs, but for records that a refused run before this test had left and that are gone now."""
    ours = ("etc/fleetctl", "var/lib/fleetctl")
    return {p: pair for p, pair in difference.items() if not (p.startswith(ours) and pair[1] == "nothing")}


@pytest.mark.slow
def test_another_release_and_back_with_the_servers_stopped_in_between(bench: nb.Bench) -> None:
    h = bench.lab.hosts[0]
    difference = nb.remember(h)
    for play, version in (("rocm_node", OLD), ("upgrade", NEW), ("upgrade", OLD)):
        result = only(bench.run(play, bench.repository.variables(version)))
        assert (result.state, result.detail) == ("ok", "")
        assert h.ssh("dpkg-query", "-W", "-f", "'${Version}'", "amdgpu-dkms").stdout == version
        assert "amdgpu-dkms" in h.ssh("apt-mark", "showhold").stdout
        assert h.ssh("systemctl", "is-active", "fleetctl-chat.service").stdout == "active\n"
    assert only(bench.run("uninstall", bench.repository.variables())).state == "ok"
    assert left(difference()) == {}


@pytest.mark.slow
def test_a_repository_that_lost_a_package_fails_and_converges_once_it_is_back(bench: nb.Bench) -> None:
    deb = bench.repository.folder / DRIVER_PART / "pool" / f"amdgpu-dkms_{OLD}_amd64.deb"
    assert bench.lab.hosts[0].ssh("sudo", "apt-get", "clean").returncode == 0  # earlier tests have fetched it
    deb.rename(deb.with_suffix(".away"))
    variables = bench.repository.variables()
    try:
        failed = only(bench.run("rocm_node", variables, tags=["apt_ready", "amdgpu_driver"]))
        assert failed.state == "failed"
        assert "amdgpu_driver" in failed.detail or "apt_packages" in failed.detail
    finally:
        deb.with_suffix(".away").rename(deb)
    assert only(bench.run("rocm_node", variables, tags=["apt_ready", "amdgpu_driver"])).state == "ok"
    assert only(bench.run("uninstall", variables)).state == "ok"


@pytest.mark.slow
def test_a_host_that_is_given_no_key_is_another_thing_than_a_failed_one(bench: nb.Bench) -> None:
    h = bench.lab.hosts[0]
    wrong_user = replace(h.host, user="nobody-here")
    (result,) = bench.configurator().run("health_gate", [wrong_user], {}, Token(1), bench.seen.append)
    assert result.state == "unreachable"


def fleetctl(bench: nb.Bench, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run the program in a workspace of its own."""
    workspace = bench.lab.folder / "workspace"
    workspace.mkdir(exist_ok=True)
    return program(workspace, *argv)


@pytest.mark.slow
def test_the_program_refuses_unknown_releases_shows_progress_and_resumes(bench: nb.Bench) -> None:
    difference = nb.remember(bench.lab.hosts[0])
    unknown = fleetctl(bench, "configure", "--nodes", str(nodes_file(bench, "standin-99")))
    assert unknown.returncode == 2
    assert "error[config.matrix]" in unknown.stderr
    assert f"standin-{OLD}" in unknown.stderr

    mistyped = bench.repository.variables() | {"rocm_acelerators": 8}
    refused = fleetctl(bench, "configure", "--nodes", str(nodes_file(bench, f"standin-{OLD}", mistyped)))
    assert refused.returncode == 2
    assert "rocm_acelerators is no variable of a role; the nearest is rocm_accelerators" in refused.stderr

    path = str(nodes_file(bench, f"standin-{OLD}"))
    tags = ("--tags", "apt_ready,amdgpu_driver")
    checked = fleetctl(bench, "configure", "--nodes", path, "--check", "--diff", *tags)
    assert checked.returncode == 0, checked.stderr
    assert "would change" in checked.stdout
    assert "Nothing was changed." in checked.stderr
    assert {p for p in difference() if not p.startswith("var/lib/fleetctl")} == set()

    done = fleetctl(bench, "configure", "--nodes", path, "--limit", "node-*", *tags)
    assert done.returncode == 0, done.stderr
    assert "host/node-1 ok" in done.stdout
    assert "apt_ready" in done.stderr, "progress is shown per host and task"
    again = fleetctl(bench, "configure", "--nodes", path, "--resume", *tags)
    assert again.returncode == 0, again.stderr
    assert "Nothing to do" in again.stdout
    undone = fleetctl(bench, "configure", "--nodes", path, "--play", "uninstall")
    assert undone.returncode == 0, undone.stderr
    assert left(difference()) == {}
