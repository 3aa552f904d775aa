"""Provision: what a stack is given out of the fleet file: unknown, missing and wrong settings are said before Terraform runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.adapters.terraform.stacks import check_variables, cloud_variables
from fleetctl.domain.ids import PoolId
from fleetctl.domain.pool import PoolSpec
from fleetctl.errors import ConfigInvalid

STACKS = Path(__file__).resolve().parents[2] / "terraform" / "stacks"
POOL = PoolId("mi300x-a")
SPEC = PoolSpec(pool=POOL, vendor="amd", sku="Standard_ND96isr_MI300X_v5", region="eastus2", count=1, stack="azure")
GIVEN = {"azure.subscription_id": "00000000-0000-4000-8000-000000000001", "terraform.azure.admin_public_key": "ssh-ed25519 AAAA"}


def _check(settings: dict[str, str], stack: str = "azure") -> None:
    check_variables(STACKS / stack, stack, POOL, cloud_variables(stack, settings)(SPEC))


def test_what_the_how_to_sets_fits() -> None:
    _check({**GIVEN, f"pool.{POOL}.reservation": '{"create": true}', f"pool.{POOL}.zones": "1,2", f"pool.{POOL}.notices": "no"})
    _check({"terraform.aws.image_id": "ami-1"}, "aws")


def test_every_unknown_and_missing_setting_is_named_at_once() -> None:
    settings = {k: v for k, v in GIVEN.items() if "key" not in k} | {f"pool.{POOL}.os_dsik": "{}", f"pool.{POOL}.zzz": "1"}
    with pytest.raises(ConfigInvalid) as e:
        _check(settings)
    assert e.value.code == "config.terraform_variable"
    assert e.value.details == (
        "pool.mi300x-a.os_dsik: stack azure has no such variable; is it os_disk?",
        "pool.mi300x-a.zzz: stack azure has no such variable",
        "terraform.azure.admin_public_key, or pool.mi300x-a.admin_public_key: is not set, and stack azure needs it",
    )


@pytest.mark.parametrize("found", [None, "", "prod", "../../x", "00000000-0000-4000-8000-00000000000g", "0\x1b[2J"])
def test_a_subscription_that_is_none_is_said_by_the_name_of_its_setting(found: str | None) -> None:
    settings = {**GIVEN, "azure.subscription_id": found} if found is not None else {"terraform.azure.admin_public_key": "k"}
    with pytest.raises(ConfigInvalid) as e:
        _check(settings)
    assert e.value.code == "config.subscription"
    assert "azure.subscription_id" in e.value.message
    assert e.value.message.isprintable()
