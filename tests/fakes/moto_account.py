"""A moto server (an emulated AWS) in a child process, and an account with GPU instances in it.

As a program (python -m tests.fakes.moto_account ARGUMENTS) it is that server, with two calls more that moto 5.2 lacks, in AWS's shapes:
ListServiceQuotas and DescribeCapacityReservations.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "emulated", "AWS_SECRET_ACCESS_KEY": "emulated", "AWS_DEFAULT_REGION": "us-east-1"}
IMAGE = "ami-12c6146b"
"""One that moto knows from the start."""
GPU_TYPE, PLAIN_TYPE = "p4d.24xlarge", "m5.large"


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port from 20000 on that nobody listens at, on an address of this machine."""
    for port in range(20000 + os.getpid() % 5000, 29999):
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port")


@contextmanager
def moto_server(folder: Path, host: str = "127.0.0.1") -> Iterator[str]:
    """Run moto's server as long as the block runs, and return its address."""
    port = free_port(host)
    environment = {**os.environ, "MOTO_PORT": str(port), "PYTHONWARNINGS": "ignore"}
    with (folder / "moto.log").open("wb") as log:
        argv = [sys.executable, "-m", "tests.fakes.moto_account", "-H", host, "-p", str(port)]
        child = subprocess.Popen(argv, stdout=log, stderr=log, env=environment, cwd=ROOT)
        try:
            url = f"http://{host}:{port}"
            _wait(url, child)
            yield url
        finally:
            child.terminate()
            child.wait(10)


def _wait(url: str, child: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 90
    while time.monotonic() < end and child.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/moto-api/", timeout=2):
                return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("moto's server did not start")


def client(service: str, region: str, url: str) -> Any:
    """Return a boto3 client of the emulated account."""
    import boto3

    return boto3.client(service, region_name=region, endpoint_url=url, aws_access_key_id="emulated", aws_secret_access_key="emulated")


def run_instances(url: str, region: str, count: int, *, type_: str = GPU_TYPE, tags: dict[str, str] | None = None) -> list[str]:
    """Start instances and return their ids."""
    ec2 = client("ec2", region, url)
    spec = [{"ResourceType": "instance", "Tags": [{"Key": k, "Value": v} for k, v in (tags or {}).items()]}] if tags else []
    made = ec2.run_instances(ImageId=IMAGE, InstanceType=type_, MinCount=count, MaxCount=count, TagSpecifications=spec)
    return [i["InstanceId"] for i in made["Instances"]]


QUOTAS = [("L-417A185B", "Running On-Demand P instances", 192.0), ("L-1216C47A", "Running On-Demand Standard instances", 5.0)]
RESERVATIONS = [("cr-1", "active"), ("cr-2", "expired")]


def _list_service_quotas(_: object) -> str:
    return json.dumps({"Quotas": [{"QuotaCode": c, "QuotaName": n, "Value": v} for c, n, v in QUOTAS]})


def _describe_capacity_reservations(_: object) -> str:
    items = "".join(
        f"<item><capacityReservationId>{id_}</capacityReservationId><instanceType>{GPU_TYPE}</instanceType><state>{state}</state>"
        "<totalInstanceCount>4</totalInstanceCount><availableInstanceCount>3</availableInstanceCount></item>"
        for id_, state in RESERVATIONS
    )
    space = 'xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"'
    return (
        f"<DescribeCapacityReservationsResponse {space}><requestId>emulated</requestId>"
        f"<capacityReservationSet>{items}</capacityReservationSet></DescribeCapacityReservationsResponse>"
    )


def main() -> None:
    """Serve until ended."""
    from moto.ec2.responses import EC2Response
    from moto.server import main as serve
    from moto.servicequotas.responses import ServiceQuotasResponse

    ServiceQuotasResponse.list_service_quotas = _list_service_quotas  # type: ignore[attr-defined]
    EC2Response.describe_capacity_reservations = _describe_capacity_reservations  # type: ignore[attr-defined]
    serve(sys.argv[1:])


if __name__ == "__main__":
    main()
