"""Provision by the command line alone: one fleet file, an AMD pool on the lab double of Azure and an NVIDIA pool on AWS, at once.

AWS is moto behind the genuine aws provider; the steps are those of docs/how-to/provision-on-azure.md and provision-on-aws.md.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

pytest.importorskip("tf", reason="the package tf (a development dependency) is not installed")

from tests.doubles.arm import ArmDouble
from tests.lab.azure_bench import POOL as AMD
from tests.lab.azure_bench import AzureBench
from tests.lab.test_aws_provision import Moto, _client, moto, needs_aws, server

__all__ = ["moto", "server"]  # fixtures
pytestmark = [pytest.mark.slow, pytest.mark.lab, needs_aws, pytest.mark.timeout(1500)]
NVIDIA = "h100-use1"
POOLS = f"""
  mi300x-colo: {{vendor: amd, sku: Standard_ND96isr_MI300X_v5, region: us-east-1, count: 2, limit: 2, price_usd_per_hour: 200}}
  {NVIDIA}: {{vendor: nvidia, sku: p5.48xlarge, region: us-east-1, count: 0, limit: 2, provisioned_by: aws}}
"""
CELL = f"""
  assistant-use1: {{workload: assistant, region: us-east-1, source: mi300x-colo, target: {NVIDIA}, router: edge}}
"""


def test_pools_of_both_vendors_on_both_clouds_are_shown_made_checked_and_given_back(tmp_path: Path, moto: Moto) -> None:
    image = _client("ec2").describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    with ArmDouble(tmp_path) as arm:
        bench = AzureBench(tmp_path, arm, {"terraform.aws.image_id": image, f"pool.{NVIDIA}.zones": "us-east-1a,us-east-1b"})
        bench.environ |= {k: v for k, v in os.environ.items() if k.startswith("AWS_")}
        text = bench.fleet.read_text()
        bench.fleet.write_text(text.replace("\npools:\n", f"\npools:{POOLS}", 1).replace("\ncells:\n", f"\ncells:{CELL}", 1))
        bench.ok("plan")
        assert f"pool/{NVIDIA}" in bench.ok("capacity")

        shown = bench.ok("provision", "--dry-run")
        assert {f"  + {NVIDIA}-1  aws_instance", f"  + {AMD}-1  azurerm_linux_virtual_machine"} <= set(shown.splitlines())
        assert shown.count("  cost: +") == 2
        assert arm.machines() == {}

        made = bench.ok("provision")
        assert f"  hosts: {NVIDIA}-1, {NVIDIA}-2\n" in made
        assert f"  hosts: {AMD}-1, " in made
        assert max(len(line) for line in made.splitlines()) <= 80
        assert set(arm.machines().values()) == {"Succeeded"}
        assert _tags() == {NVIDIA: 2}

        freed = json.loads(bench.ok("release", NVIDIA, "--router-gone", "edge", "--confirm", NVIDIA, "-o", "json"))
        assert freed["destroyed"] == [f"{NVIDIA}-1", f"{NVIDIA}-2"]
        assert _tags() == {}
        assert set(arm.machines().values()) == {"Succeeded"}, "the other pool stands"


def _tags() -> dict[str, int]:
    """Return how many machines run on AWS, by the pool that made them."""
    running = [{"Name": "instance-state-name", "Values": ["running"]}, {"Name": "tag:fleetctl-pool", "Values": [NVIDIA]}]
    found = [i for r in _client("ec2").describe_instances(Filters=running)["Reservations"] for i in r["Instances"]]
    return {NVIDIA: len(found)} if found else {}
