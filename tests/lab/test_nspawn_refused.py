"""What a role refuses is refused by the whole play before any change: on a bare host nothing but looking was done."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest

from tests.lab import nspawn_bench as nb
from tests.lab import nspawn_lab as nl

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(nl.why_not()), reason=nl.why_not() or "it can"),
]
UNIT = {"name": "chat", "argv": ["/bin/true"], "environment": {}, "port": 8000, "model": "m"}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another distribution": ({"preflight_os_version": "13"}, "configure.preflight"),
    "a late role's argument of another type": (
        {"gpu_exporter_every": "often"},
        "configure.variable: nothing was changed, because argument",
    ),
    "an argument that is no choice": ({"translation_layer_kind": "magic"}, "configure.variable"),
    "a server without its port": ({"model_server_units": [{k: v for k, v in UNIT.items() if k != "port"}]}, "configure.variable"),
    "no key": ({"apt_ready_keys": {}}, "configure.key"),
    "somebody's login": ({"accelerator_access_user": "ops"}, "configure.account"),
    "a disk that cannot be read": ({"nvme_raid_devices": ["/dev/no-such-disk"]}, "configure.disk"),
    "a path that no unit can have": ({"nvme_raid_mount": "/mnt/a b"}, "configure.disk"),
    "an image by tag": ({"container_engine_images": ["docker.io/rocm/vllm:latest"]}, "configure.image"),
    "images without an engine": (
        {"container_engine_images": [f"x@sha256:{'0' * 64}"], "container_engine_packages": [], "container_engine_command": "nerdctl"},
        "configure.engine",
    ),
    "a layer that cannot run": ({"translation_layer_kind": "zluda"}, "ZLUDA"),
    "a mask of UUIDs": ({"translation_layer_environment": {"CUDA_VISIBLE_DEVICES": "GPU-8a7f"}}, "configure.environment"),
    "a file without checksum": ({"model_store_files": [{"path": "w", "source": "/w", "sha256": "none"}]}, "configure.model"),
    "a program that is no path": ({"model_server_units": [{**UNIT, "argv": ["serve"]}]}, "configure.unit"),
    "a server that cuts streams": ({"model_server_units": [{**UNIT, "argv": ["/opt/venv/bin/vllm", "serve", "m"]}]}, "configure.streams"),
    "thresholds that nobody has written": ({"health_gate_profile": "mi3000"}, "configure.health"),
}


@pytest.fixture(scope="module")
def bench() -> Iterator[nb.Bench]:
    with nb.bench(1) as made:
        yield made


def untouched(bench: nb.Bench, play: str, variables: dict[str, object], said: str) -> None:
    difference = nb.remember(bench.lab.hosts[0])
    (result,) = bench.run(play, variables)
    assert result.state == "failed"
    assert said in result.detail
    assert bench.changed_roles() == set()
    assert "Make our folders" not in bench.output()
    assert "TASK [node_manifest" not in bench.output(), "the first role that changes something"
    assert difference() == {}


@pytest.mark.parametrize("case", REFUSED)
def test_a_whole_play_that_refuses_has_changed_nothing(bench: nb.Bench, case: str) -> None:
    variables, said = REFUSED[case]
    untouched(bench, "rocm_node", bench.repository.variables() | variables, said)


def test_an_upgrade_that_refuses_has_stopped_no_server(bench: nb.Bench) -> None:
    untouched(bench, "upgrade", bench.repository.variables() | {"translation_layer_kind": "zluda"}, "ZLUDA")


def test_an_nvidia_node_without_a_driver_is_refused_before_a_change(bench: nb.Bench) -> None:
    untouched(bench, "nvidia_node", bench.repository.variables() | {"nvidia_driver_packages": []}, "configure.driver")


def test_a_repository_that_another_source_names_with_another_key_is_refused_and_apt_goes_on_reading(bench: nb.Bench) -> None:
    h, variables = bench.lab.hosts[0], bench.repository.variables()
    one = cast("list[dict[str, str]]", variables["apt_ready_repositories"])[0]
    theirs = h.root / "etc/apt/sources.list.d/theirs.list"
    theirs.write_text(f"deb [signed-by=/etc/apt/keyrings/theirs.gpg] {one['uri']} {one['suite']} main\n")
    untouched(bench, "rocm_node", variables, "configure.repository: nothing was changed, because /etc/apt/sources.list.d/theirs.list")
    assert h.ssh("apt-cache", "policy").returncode == 0
    theirs.unlink()


def test_models_that_fit_one_by_one_but_not_together_are_refused_before_a_change(bench: nb.Bench) -> None:
    free = os.statvfs(bench.lab.hosts[0].root)
    rows = []
    for name in ("a.bin", "b.bin"):
        with (bench.repository.folder / name).open("wb") as f:
            f.truncate(free.f_bavail * free.f_frsize * 2 // 3)  # nothing but holes
        rows.append({"path": f"m/{name}", "url": f"{bench.repository.uri}/{name}", "sha256": "0" * 64})
    untouched(bench, "rocm_node", bench.repository.variables() | {"model_store_files": rows}, "configure.room: nothing was changed")


def test_a_model_that_its_store_has_not_is_refused_before_a_change(bench: nb.Bench) -> None:
    row = {"path": "m/w.bin", "url": f"{bench.repository.uri}/none.bin?sig=s3cr3t", "sha256": "0" * 64}
    variables = bench.repository.variables() | {"model_store_files": [row]}
    untouched(bench, "rocm_node", variables, "configure.model: nothing was changed, because m/w.bin (404) cannot be fetched")
    assert "s3cr3t" not in bench.output()


def test_accelerators_that_come_onto_the_bus_late_are_waited_for_and_others_not(bench: nb.Bench) -> None:
    h = bench.lab.hosts[0]
    bus = "/run/standin-pci"
    for n in range(7):
        assert h.ssh("sudo", "mkdir", "-p", f"{bus}/{n}").returncode == 0
        assert h.ssh(f"echo 0x74b5 | sudo tee {bus}/{n}/device").returncode == 0
    wanted = bench.repository.variables() | {"preflight_pci_root": bus, "preflight_accelerators": 8}
    (refused,) = bench.run("rocm_node", wanted | {"preflight_wait": 0}, tags=["preflight"])
    assert "it has 7 accelerators 0x74b5 on the bus, and 8 are wanted" in refused.detail

    def comes() -> None:
        until = time.monotonic() + 120
        while not any("Look for accelerators" in p.step for p in list(bench.seen)) and time.monotonic() < until:
            time.sleep(0.05)
        h.ssh(f"sudo mkdir {bus}/7 && echo 0x74b5 | sudo tee {bus}/7/device")

    bench.seen.clear()
    late = threading.Thread(target=comes)
    late.start()
    try:
        (result,) = bench.run("rocm_node", wanted | {"preflight_wait": 10_000_000}, tags=["preflight"])
    finally:
        late.join()
    assert (result.state, result.detail) == ("ok", "")
