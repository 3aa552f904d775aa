"""Provision: states in an S3 bucket (moto) and in an Azure container (azurite), by a real Terraform: a key per pool, another machine
goes on, a lock is heeded. moto and azurite are emulators."""

from __future__ import annotations

import base64
import json
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from fleetctl.adapters.terraform.provisioner import TerraformProvisioner
from fleetctl.adapters.terraform.stacks import backend_from, lab_variables
from fleetctl.domain.ids import PoolId, Token
from fleetctl.domain.provision import Provisioned
from fleetctl.errors import ProvisionFailed
from tests.fakes import azurite as az
from tests.fakes.moto_account import free_port
from tests.fakes.terraform_bench import POOL, STACK, TerraformBench, ignore, permit, spec
from tests.fakes.tls import make_certificate
from tests.fakes.tunnel import tunnel

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("terraform") is None, reason="terraform is not on PATH"),
]
PLACE = "tfstate"
ACCOUNT = "contosotfstate"
OTHER = PoolId("h100-lab")
LOCK = {"ID": "4f1", "Operation": "OperationTypeApply", "Who": "grace@build-7", "Version": "1.11.4", "Created": "2026-11-30T10:40:20Z"}


class Blobs(Protocol):
    """Where a backend keeps states."""

    settings: dict[str, str]

    def keys(self) -> set[str]: ...
    def put(self, key: str, data: bytes) -> None: ...
    def lock(self, key: str) -> None:
        """Lock a state as grace's Terraform would."""

    def unlock(self, key: str) -> None: ...


class Bucket:
    settings = {  # noqa: RUF012 - read only
        "terraform.backend": "s3",
        "terraform.backend.bucket": PLACE,
        "terraform.backend.region": "us-east-1",
        "terraform.backend.use_lockfile": "true",
        "terraform.backend.use_path_style": "true",
        "terraform.backend.skip_credentials_validation": "true",
        "terraform.backend.skip_requesting_account_id": "true",
        "terraform.backend.skip_s3_checksum": "true",
    }

    def __init__(self, client: Any) -> None:
        self._client = client

    def keys(self) -> set[str]:
        return {o["Key"] for o in self._client.list_objects_v2(Bucket=PLACE)["Contents"]}

    def put(self, key: str, data: bytes) -> None:
        self._client.put_object(Bucket=PLACE, Key=key, Body=data)

    def lock(self, key: str) -> None:
        self.put(f"{key}.tflock", json.dumps(LOCK).encode())

    def unlock(self, key: str) -> None:
        self._client.delete_object(Bucket=PLACE, Key=f"{key}.tflock")


class Container:
    settings = {  # noqa: RUF012 - read only
        "terraform.backend": "azurerm",
        "terraform.backend.storage_account_name": ACCOUNT,
        "terraform.backend.container_name": PLACE,
    }

    def __init__(self, client: Any) -> None:
        self._client = client
        self._leases: dict[str, Any] = {}

    def keys(self) -> set[str]:
        return set(self._client.list_blob_names())

    def put(self, key: str, data: bytes) -> None:
        self._client.upload_blob(key, data, overwrite=True)

    def lock(self, key: str) -> None:
        blob = self._client.get_blob_client(key)
        before = dict(blob.get_blob_properties().metadata)
        self._leases[key] = blob.acquire_lease()
        said = base64.b64encode(json.dumps(LOCK).encode()).decode()
        blob.set_blob_metadata({**before, "terraformlockid": said}, lease=self._leases[key])

    def unlock(self, key: str) -> None:
        self._leases.pop(key).release()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    pytest.importorskip("moto", reason="the package moto (a development dependency) is not installed")
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ENDPOINT_URL_S3": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3", region_name="us-east-1")
    client.create_bucket(Bucket=PLACE)
    yield Bucket(client)
    server.stop()


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Container]:
    """A container under Azure's own host name: Terraform's backend takes no other, so a tunnel leads that name to azurite."""
    if az.program() is None:
        pytest.skip(az.MISSING)
    from azure.storage.blob import ContainerClient

    host, folder, port = f"{ACCOUNT}.blob.core.windows.net", tmp_path / "azurite", free_port()
    folder.mkdir()
    ca, server = make_certificate(folder, (host,))
    with az.azurite(folder, port, certificate=server, account=ACCOUNT) as url, tunnel(port, {host}) as (proxy, refused):
        for name, value in {"HTTPS_PROXY": proxy, "NO_PROXY": "127.0.0.1", "SSL_CERT_FILE": str(ca), "ARM_ACCESS_KEY": az.KEY}.items():
            monkeypatch.setenv(name, value)
        with ContainerClient(url, PLACE, credential={"account_name": ACCOUNT, "account_key": az.KEY}, connection_verify=str(ca)) as client:
            client.create_container()
            yield Container(client)
        assert refused == [], "with the account's key nothing but the container is asked"


def _machine(bench: TerraformBench, name: str, blobs: Blobs) -> TerraformProvisioner:
    """Return a provisioner as another machine of the team has it: nothing of ours on its disk."""
    given = lab_variables(bench.hosts, str(bench.folder / "python"))
    backend = backend_from(blobs.settings, "prod")
    assert backend is not None
    return TerraformProvisioner(STACK, bench.folder / name, "lab", given, bench.tool, deadline_s=120, backend=backend)


def _is_shared(blobs: Blobs, folder: Path) -> None:
    """What is asserted of every backend."""
    bench = TerraformBench(folder, "terraform")
    mine, theirs = f"fleetctl/prod/{POOL}.tfstate", f"fleetctl/prod/{OTHER}.tfstate"
    ada = _machine(bench, "ada", blobs)
    made = ada.apply(ada.plan((spec(1),), bench.run("r1")), Token(1), ignore)
    assert isinstance(made, Provisioned), made
    assert blobs.keys() == {mine}
    assert not [p for p in folder.rglob("*.tfstate") if p.parent.name != ".terraform"], "no state on this disk but where the state is"

    grace = _machine(bench, "grace", blobs)
    assert [h.id for h in grace.outputs(POOL)] == [f"{POOL}-1"]
    assert grace.plan((spec(1),), bench.run("r2")).is_empty
    other = grace.apply(grace.plan((spec(1, pool=OTHER),), bench.run("r3")), Token(2), ignore)
    assert isinstance(other, Provisioned), other
    assert blobs.keys() == {mine, theirs}

    blobs.put(theirs, b"{ruin")
    assert ada.plan((spec(1),), bench.run("r4")).is_empty, "the ruin of one state is not the other's"
    with pytest.raises(ProvisionFailed):
        ada.plan((spec(1, pool=OTHER),), bench.run("r5"))

    here = TerraformProvisioner(
        STACK, folder / "alone", "lab", lab_variables(bench.hosts, str(folder / "python")), bench.tool, deadline_s=120
    )
    moved = PoolId("moved-lab")
    assert isinstance(here.apply(here.plan((spec(1, pool=moved),), bench.run("r7")), Token(3), ignore), Provisioned)
    blobs.put(f"fleetctl/prod/{moved}.tfstate", (folder / "alone" / moved / "terraform.tfstate").read_bytes())
    assert ada.plan((spec(1, pool=moved),), bench.run("r8")).is_empty, "a state that was kept here goes on there"

    blobs.lock(mine)
    with pytest.raises(ProvisionFailed) as locked:
        ada.plan((spec(1),), bench.run("r6"))
    assert (locked.value.code, "grace@build-7" in locked.value.message) == ("provision.locked", True)
    blobs.unlock(mine)

    grace.destroy(POOL, permit(POOL))
    assert ada.outputs(POOL) == ()
    assert f"{POOL}-1" not in bench.made()


def test_a_state_in_a_bucket_is_everybody_s_and_nobody_s_disk(bucket: Bucket, tmp_path: Path) -> None:
    _is_shared(bucket, tmp_path)


def test_a_state_in_an_azure_container_is_everybody_s_and_nobody_s_disk(container: Container, tmp_path: Path) -> None:
    _is_shared(container, tmp_path)
    kept = [p for name in ("ada", "grace", "runs") for p in (tmp_path / name).rglob("*") if p.is_file() and "providers" not in p.parts]
    plans = [zipfile.ZipFile(p) for p in kept if zipfile.is_zipfile(p)]
    assert plans
    texts = [p.read_bytes() for p in kept] + [z.read(name) for z in plans for name in z.namelist()]
    assert not any(az.KEY.encode() in text for text in texts), "the key is in the environment alone"
