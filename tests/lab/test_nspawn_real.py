"""Real software on a real host: Debian's ROCm, a container engine with a registry on loopback, models from emulated stores."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.adapters.model_stores.signer import ModelSigner
from fleetctl.adapters.secrets.files import FileSecrets
from fleetctl.catalog.matrix import load_matrix
from fleetctl.domain.fleet import SecretRef
from fleetctl.domain.matrix import Wanted
from fleetctl.domain.model_files import ModelFile, ModelStore
from fleetctl.planning.check_matrix import release_variables
from tests.fakes import azurite as az
from tests.fakes.moto_account import CREDENTIALS, free_port, moto_server
from tests.lab import debian_mirror
from tests.lab import nspawn_bench as nb
from tests.lab import nspawn_lab as nl
from tests.lab.nspawn_registry import IMAGE, PASSWORD, REGISTRIES, image_of

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.timeout(3000),
    pytest.mark.skipif(bool(nl.why_not()), reason=nl.why_not() or "it can"),
]
ENGINE = [{"name": n} for n in ("podman", "docker-registry")]


@pytest.fixture(scope="module")
def bench() -> Iterator[nb.Bench]:
    with nb.bench(1) as made:
        yield made


@pytest.fixture(scope="module")
def archive(bench: nb.Bench) -> Iterator[str]:
    """Debian's archive as the host's own."""
    if not debian_mirror.reachable():
        pytest.skip("needs Debian's archive")
    with debian_mirror.mirror(bench.lab.gateway) as uri:
        (bench.lab.hosts[0].root / "etc/apt/sources.list").write_text(f"deb {uri} {nl.SUITE} main\n")
        yield uri


def converges(bench: nb.Bench, variables: dict[str, object], tags: list[str]) -> None:
    """Prove that a run ends well and that the second one changes nothing."""
    for wanted in (None, 0):
        (result,) = bench.run("rocm_node", variables, tags=tags)
        assert (result.state, result.detail) == ("ok", "")
        assert wanted in (None, result.changed), bench.changed_roles()


def test_debians_real_rocm_is_installed_held_and_removed_by_the_same_roles(bench: nb.Bench, archive: str) -> None:
    h = bench.lab.hosts[0]
    packages = nb.packages(h)
    wanted = Wanted(release="debian-12-rocm-5.2.3", layer="native", gpu_target="gfx942", container=False)
    variables = release_variables(load_matrix(), wanted)
    converges(bench, variables, ["apt_ready", "rocm"])
    assert "rocminfo" in h.ssh("apt-mark", "showhold").stdout
    said = h.ssh("rocminfo")
    assert "ROCk module is NOT loaded" in said.stdout + said.stderr, "the real one, on a host without an accelerator"
    (refused,) = bench.run("rocm_node", variables | {"rocm_accelerators": 8}, tags=["rocm"])
    assert refused.state == "failed", "no accelerator is no pass"
    assert bench.run("uninstall", variables)[0].state == "ok"
    assert nb.packages(h) == packages


def test_an_engine_pulls_an_image_by_digest_from_a_registry_and_another_digest_is_refused(bench: nb.Bench, archive: str) -> None:
    h = bench.lab.hosts[0]
    base = release_variables(
        bench.repository.matrix(), Wanted(release="standin-30.20-standin1", layer="native", gpu_target="gfx942", container=False)
    ) | {"apt_ready_keys": dict.fromkeys(("rocm", "amdgpu"), bench.repository.key), "container_engine_packages": ENGINE}
    converges(bench, base, ["apt_ready", "container_engine"])
    # An image of a few files of the debootstrap root, which the host itself is.
    digest = image_of(h, ["usr/bin/true", "usr/lib/os-release"])
    anonymous = base | {"container_engine_images": [f"{IMAGE}@{digest}"]}
    (refused,) = bench.run("rocm_node", anonymous, tags=["container_engine"])
    assert refused.state == "failed", "the registry is private"
    base["container_engine_registries"] = REGISTRIES
    with_image = base | {"container_engine_images": [f"{IMAGE}@{digest}"]}
    converges(bench, with_image, ["container_engine"])
    assert PASSWORD not in bench.output()
    held = json.loads(h.ssh("sudo", "podman", "image", "inspect", f"{IMAGE}@{digest}").stdout)
    assert held[0]["Digest"] == digest
    other = base | {"container_engine_images": [f"{IMAGE}@sha256:{'0' * 64}"]}
    (refused,) = bench.run("rocm_node", other, tags=["container_engine"])
    assert refused.state == "failed"
    tagged = base | {"container_engine_images": [f"{IMAGE}:1"]}
    (refused,) = bench.run("rocm_node", tagged, tags=["container_engine"])
    assert "configure.image" in refused.detail
    assert bench.run("uninstall", with_image)[0].state == "ok"
    assert h.ssh("which", "podman").returncode != 0


def test_models_come_from_stores_by_sha256_and_how_long_that_took_is_on_record(
    bench: nb.Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    h, difference = bench.lab.hosts[0], nb.remember(bench.lab.hosts[0])
    body = {name: f"weights of {name}\n".encode() for name in ("s3", "path", "az")}
    (h.root / "srv/share").mkdir(parents=True)
    (h.root / "srv/share/w.bin").write_bytes(body["path"])
    secrets = FileSecrets(environment={"KEY": az.KEY})
    with moto_server(tmp_path, bench.lab.gateway) as url:
        import boto3

        client: Any = boto3.client("s3", endpoint_url=url)
        client.create_bucket(Bucket="weights")
        client.put_object(Bucket="weights", Key="w.bin", Body=body["s3"])
        stores = {
            "s3": ModelStore(name="s3", kind="s3", place="weights", endpoint=url, region="us-east-1"),
            "path": ModelStore(name="path", kind="path", place="/srv/share"),
        }
        if az.program() is None:
            _fetch(bench, stores, body, secrets)
        else:
            from azure.storage.blob import BlobServiceClient

            with az.azurite(tmp_path, free_port(bench.lab.gateway), bench.lab.gateway) as blobs:
                with BlobServiceClient(blobs, credential={"account_name": az.ACCOUNT, "account_key": az.KEY}) as service:
                    service.create_container("models")
                    service.get_blob_client("models", "w.bin").upload_blob(body["az"])
                key = SecretRef(kind="env", name="KEY")
                stores["az"] = ModelStore(name="az", kind="az", place="models", account=az.ACCOUNT, endpoint=blobs, secret=key)
                _fetch(bench, stores, body, secrets)
    (h.root / "srv/share/w.bin").unlink()
    (h.root / "srv/share").rmdir()
    assert bench.run("uninstall", {})[0].state == "ok"
    assert {p for p in difference() if not p.startswith("srv")} == set()


def _fetch(bench: nb.Bench, stores: dict[str, ModelStore], body: dict[str, bytes], secrets: FileSecrets) -> None:
    h, signer = bench.lab.hosts[0], ModelSigner(secrets)

    def rows(sums: dict[str, bytes]) -> list[dict[str, object]]:
        files = [ModelFile(store=n, key="w.bin", path=f"m/{n}.bin", sha256=hashlib.sha256(sums[n]).hexdigest()) for n in stores]
        signed = [signer.sign(f, stores[f.store], 600) for f in files]
        return [{"path": s.path, "sha256": s.sha256, **({"url": s.url} if s.url else {"source": s.source})} for s in signed]

    (refused,) = bench.run("rocm_node", {"model_store_files": rows(dict.fromkeys(stores, b"other"))}, tags=["model_store"])
    assert refused.state == "failed", "a wrong checksum is refused"
    assert "Signature" not in bench.output()
    converges(bench, {"model_store_files": rows(body)}, ["model_store"])
    for n in stores:
        assert h.ssh("cat", f"/var/lib/fleetctl/models/m/{n}.bin").stdout.encode() == body[n]
    record = json.loads(h.ssh("cat", "/var/lib/fleetctl/models-ready.json").stdout)
    assert record["files"] == len(stores)
    assert record["seconds"] > 0
    (refused,) = bench.run("rocm_node", {"model_store_files": rows(body | {"path": b"other"})}, tags=["model_store"])
    assert "configure.model: nothing was changed, because /srv/share/w.bin is not there or has another SHA-256" in refused.detail
    assert h.ssh("cat", "/var/lib/fleetctl/models/m/path.bin").stdout.encode() == body["path"], "what serves stays"
    (h.root / "srv/share/w.bin").rename(h.root / "srv/share/away")
    (again,) = bench.run("rocm_node", {"model_store_files": rows(body)}, tags=["model_store"])
    assert (again.state, again.changed) == ("ok", 0), "what is there already needs no share"
    (h.root / "srv/share/away").rename(h.root / "srv/share/w.bin")


def test_the_archive_is_debians_own(archive: str) -> None:
    done = subprocess.run(["curl", "-fsS", f"{archive}/pool/../../etc/passwd"], capture_output=True, check=False, timeout=60)
    assert done.returncode != 0
