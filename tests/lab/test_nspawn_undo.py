"""What others put on a real host, before us and since, is there after an uninstall: packages, accounts, folders and files."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from fleetctl.lab.standins import NEW, OLD
from tests.lab import nspawn_bench as nb
from tests.lab import nspawn_lab as nl

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(nl.why_not()), reason=nl.why_not() or "it can"),
]
KERNEL = f"linux-image-{os.uname().release}"
FOLDERS = {
    "translation_layer_prefix": "/opt",
    "translation_layer_build": "/srv/build",
    "gpu_exporter_folder": "/srv/textfile",
    "model_store_folder": "/srv/models",
    "model_server_folder": "/etc/default",
    "node_manifest_folder": "/srv/manifest",
    "container_engine_access": "/srv/access",
}


@pytest.fixture(scope="module")
def bench() -> Iterator[nb.Bench]:
    with nb.bench(1) as made:
        yield made


def run(bench: nb.Bench, play: str, variables: dict[str, object]) -> None:
    (result,) = bench.run(play, variables)
    assert (result.state, result.detail) == ("ok", ""), (play, result)


def sudo(h: nl.RealHost, *argv: str) -> str:
    done = h.ssh("sudo", *argv)
    assert done.returncode == 0, (argv, done.stderr)
    return done.stdout


def test_accounts_and_folders_that_were_there_stay_as_they_were(bench: nb.Bench) -> None:
    h = bench.lab.hosts[0]
    for folder in (*FOLDERS.values(), "/opt/scale", "/srv/models/m"):
        sudo(h, "mkdir", "-p", folder)
        sudo(h, "cp", "/etc/hostname", f"{folder}/theirs")
    sudo(h, "chmod", "0750", "/srv/textfile", "/srv/models", "/srv/build")
    sudo(h, "chmod", "o+x", "/srv/models")
    sudo(h, "groupadd", "--system", "theirs")
    sudo(h, "useradd", "--system", "--shell", "/usr/sbin/nologin", "--home-dir", "/nonexistent", "--groups", "theirs", "keeper")
    before = nb.remember(h)
    variables = bench.repository.variables() | FOLDERS | {"accelerator_access_user": "keeper", "model_server_user": "keeper"}
    variables["container_engine_registries"] = [{"address": "r.example", "username": "u", "password": "p"}]
    run(bench, "rocm_node", variables)
    assert set(h.ssh("id", "-Gn", "keeper").stdout.split()) == {"keeper", "theirs", "video", "render"}
    assert h.ssh("sudo", "cat", "/srv/models/m/weights.bin").returncode == 0
    (again,) = bench.run("rocm_node", variables)
    assert (again.state, again.changed) == ("ok", 0), bench.changed_roles()
    run(bench, "uninstall", variables)
    assert before() == {}


def test_somebodys_login_is_never_the_service_account(bench: nb.Bench) -> None:
    h = bench.lab.hosts[0]
    before = nb.remember(h)
    (refused,) = bench.run("rocm_node", bench.repository.variables() | {"accelerator_access_user": "ops"})
    assert refused.state == "failed"
    assert "configure.account: nothing was changed, because the account ops is there and can log in" in refused.detail
    assert before() == {}


def test_packages_that_others_have_installed_since_stay_and_so_does_the_kernel_that_runs(bench: nb.Bench) -> None:
    h, repository = bench.lab.hosts[0], bench.repository
    sudo(h, "dpkg", "--install", "--force-depends", *_put(bench, f"standin-engine_{OLD}"))  # there before, at a version that goes away
    packages = nb.packages(h)
    variables = repository.variables(NEW) | {"kernel_pin_packages": [{"name": "linux-image-standin", "version": NEW}]}
    run(bench, "rocm_node", variables)
    added = sudo(h, "cat", "/var/lib/fleetctl/before/added").split()
    assert added == ["amd-smi-lib", "amdgpu-dkms", KERNEL, "linux-image-standin", "rocm-core", "rocminfo"]
    sudo(h, "apt-get", "install", "--yes", "--quiet", "standin-web", "standin-profiler")
    sudo(h, "apt-get", "update", "--quiet")
    for path in (repository.folder / "pool").glob(f"standin-engine_{OLD}_*.deb"):
        path.unlink()
    repository.sign()
    run(bench, "uninstall", variables)
    left = {line.split()[0]: " ".join(line.split()[1:]) for line in nb.packages(h) if line not in packages}
    assert left == {
        KERNEL: f"{NEW} install ok installed",
        "rocm-core": f"{NEW} install ok installed",
        "rocminfo": f"{NEW} install ok installed",
        "standin-engine": f"{NEW} install ok installed",
        "standin-profiler": f"{NEW} install ok installed",
        "standin-web": f"{NEW} install ok installed",
        "standin-web-common": f"{NEW} install ok installed",
    }
    assert "packages that others have installed since need it: rocminfo" in bench.output()
    assert f"no archive has the old one any more: standin-engine={OLD}" in bench.output()


def _put(bench: nb.Bench, name: str) -> list[str]:
    """Put a package's file on the host and return its path."""
    (file,) = (bench.repository.folder / "pool").glob(f"{name}_*.deb")
    (bench.lab.hosts[0].root / "root" / file.name).write_bytes(file.read_bytes())
    return [f"/root/{file.name}"]
