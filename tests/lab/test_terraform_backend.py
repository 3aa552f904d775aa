"""Provision: states in an S3 bucket (moto), by a real Terraform: a key per pool, another machine goes on, a lock is heeded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.adapters.terraform.modules import Backend
from fleetctl.adapters.terraform.provisioner import TerraformProvisioner
from fleetctl.adapters.terraform.stacks import backend_from, lab_variables
from fleetctl.domain.ids import PoolId, Token
from fleetctl.domain.provision import Provisioned
from fleetctl.errors import ProvisionFailed
from tests.fakes.terraform_bench import POOL, STACK, TerraformBench, ignore, permit, spec

pytest.importorskip("moto", reason="the package moto (a development dependency) is not installed")
pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("terraform") is None, reason="terraform is not on PATH"),
]
BUCKET = "tfstate"
OTHER = PoolId("h100-lab")


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
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
    client.create_bucket(Bucket=BUCKET)
    yield client
    server.stop()


def _backend() -> Backend:
    made = backend_from(
        {
            "terraform.backend": "s3",
            "terraform.backend.bucket": BUCKET,
            "terraform.backend.region": "us-east-1",
            "terraform.backend.use_lockfile": "true",
            "terraform.backend.use_path_style": "true",
            "terraform.backend.skip_credentials_validation": "true",
            "terraform.backend.skip_requesting_account_id": "true",
            "terraform.backend.skip_s3_checksum": "true",
        },
        "prod",
    )
    assert made is not None
    return made


def _machine(bench: TerraformBench, name: str) -> TerraformProvisioner:
    """Return a provisioner as another machine of the team has it: nothing of ours on its disk."""
    given = lab_variables(bench.hosts, str(bench.folder / "python"))
    return TerraformProvisioner(STACK, bench.folder / name, "lab", given, bench.tool, deadline_s=120, backend=_backend())


def test_a_state_in_a_bucket_is_everybody_s_and_nobody_s_disk(bucket: Any, tmp_path: Path) -> None:
    bench = TerraformBench(tmp_path, "terraform")
    ada = _machine(bench, "ada")
    made = ada.apply(ada.plan((spec(1),), bench.run("r1")), Token(1), ignore)
    assert isinstance(made, Provisioned), made
    keys = {o["Key"] for o in bucket.list_objects_v2(Bucket=BUCKET)["Contents"]}
    assert keys == {f"fleetctl/prod/{POOL}.tfstate"}
    assert not [p for p in tmp_path.rglob("*.tfstate") if p.parent.name != ".terraform"], "no state on this disk but where the state is"

    grace = _machine(bench, "grace")
    assert [h.id for h in grace.outputs(POOL)] == [f"{POOL}-1"]
    assert grace.plan((spec(1),), bench.run("r2")).is_empty
    other = grace.apply(grace.plan((spec(1, pool=OTHER),), bench.run("r3")), Token(2), ignore)
    assert isinstance(other, Provisioned), other
    keys = {o["Key"] for o in bucket.list_objects_v2(Bucket=BUCKET)["Contents"]}
    assert keys == {f"fleetctl/prod/{POOL}.tfstate", f"fleetctl/prod/{OTHER}.tfstate"}

    bucket.put_object(Bucket=BUCKET, Key=f"fleetctl/prod/{OTHER}.tfstate", Body=b"{ruin")
    assert ada.plan((spec(1),), bench.run("r4")).is_empty, "the ruin of one state is not the other's"
    with pytest.raises(ProvisionFailed):
        ada.plan((spec(1, pool=OTHER),), bench.run("r5"))

    lock = {"ID": "4f1", "Operation": "OperationTypeApply", "Who": "grace@build-7", "Version": "1.11.4", "Created": "2026-11-30T10:40:20Z"}
    bucket.put_object(Bucket=BUCKET, Key=f"fleetctl/prod/{POOL}.tfstate.tflock", Body=json.dumps(lock).encode())
    with pytest.raises(ProvisionFailed) as locked:
        ada.plan((spec(1),), bench.run("r6"))
    assert (locked.value.code, "grace@build-7" in locked.value.message) == ("provision.locked", True)
    bucket.delete_object(Bucket=BUCKET, Key=f"fleetctl/prod/{POOL}.tfstate.tflock")

    grace.destroy(POOL, permit(POOL))
    assert ada.outputs(POOL) == ()
    assert f"{POOL}-1" not in bench.made()
