"""Provision: what the fleet file's settings come to: variables, places, where states are kept; which guards are lifted for whom."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from docs.hcl_blocks import read_folder
from fleetctl.adapters.terraform.folder import copy_stack
from fleetctl.adapters.terraform.modules import GUARDED, Backend, check_backend
from fleetctl.adapters.terraform.stacks import backend_from, cloud_variables, places_from, reservations_of
from fleetctl.domain.ids import PoolId
from fleetctl.domain.pool import PoolSpec
from fleetctl.errors import ConfigInvalid

ROOT = Path(__file__).resolve().parents[2] / "terraform"
POOL = PoolId("mi300x-a")
SUBSCRIPTION = "00000000-0000-0000-0000-00000000abcd"
SPEC = PoolSpec(pool=POOL, vendor="amd", sku="a", region="r", count=2, priority="spot", zone="1", intent="t1")


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({}, set()),
        ({f"pool.{POOL}.reservation": '{"create": true}'}, set()),
        ({f"pool.{POOL}.reservation": '{"group_id": "/subscriptions/X/G"}'}, {"/subscriptions/x/g"}),
        ({"terraform.azure.reservation": '{"group_id": "/G"}', "pool.other.reservation": '{"group_id": "/H"}'}, {"/g"}),
        ({"terraform.azure.reservation": '{"group_id": "/G"}', f"pool.{POOL}.reservation": '{"create": true}'}, set()),
        ({f"pool.{POOL}.reservation_id": "cr-1"}, {"cr-1"}),
    ],
)
def test_the_reservation_that_a_pool_names(settings: dict[str, str], named: set[str]) -> None:
    assert reservations_of(POOL, "azure", settings) == named


def test_variables_come_from_the_stack_s_and_the_pool_s_settings_the_pool_s_win() -> None:
    settings = {
        "azure.subscription_id": SUBSCRIPTION,
        "terraform.azure.admin_username": "ops",
        "terraform.azure.os_disk": '{"ephemeral": false}',
        "terraform.aws.image_id": "ami-1",
        f"pool.{POOL}.admin_username": "fleet",
        f"pool.{POOL}.zones": "1,2",
        "pool.other.infiniband": "true",
    }
    given = cloud_variables("azure", settings)(SPEC)
    assert given["admin_username"] == "fleet"
    assert given["os_disk"] == {"ephemeral": False}
    assert given["tags"] == {"fleetctl-pool": POOL, "fleetctl-intent": "t1"}
    assert (given["zone"], given["priority"], given["host_count"], given["subscription_id"]) == ("1", "spot", 2, SUBSCRIPTION)
    assert not {"image_id", "zones", "infiniband"} & set(given)


def test_a_variable_that_fleetctl_gives_itself_is_refused() -> None:
    with pytest.raises(ConfigInvalid) as caught:
        cloud_variables("azure", {f"pool.{POOL}.host_count": "9"})(SPEC)
    assert caught.value.code == "config.terraform_variable"


def test_every_variable_that_fleetctl_gives_is_one_of_the_stack() -> None:
    for stack in ("azure", "aws"):
        known = {b.labels[0] for b in read_folder(ROOT / "stacks" / stack) if b.kind == "variable"}
        assert set(cloud_variables(stack, {"azure.subscription_id": SUBSCRIPTION})(SPEC)) <= known


def test_places_are_those_that_the_owner_allows() -> None:
    settings = {f"pool.{POOL}.zones": "1, 2", f"pool.{POOL}.regions": "q", f"pool.{POOL}.on_demand": "no"}
    assert [(p.region, p.zone, p.priority) for p in places_from(SPEC, settings)] == [
        ("r", "1", "spot"),
        ("r", "2", "spot"),
        ("q", "", "spot"),
    ]
    assert len(places_from(SPEC, {})) == 2
    assert places_from(SPEC, {})[0].zone == "1"


def test_a_backend_has_a_key_per_pool_and_no_secret() -> None:
    assert backend_from({}, "prod") is None
    lock = {"terraform.backend.use_lockfile": "true"}
    made = backend_from({"terraform.backend": "s3", "terraform.backend.bucket": "b", "terraform.backend.prefix": "x/", **lock}, "prod")
    assert made == Backend(kind="s3", settings={"bucket": "b", "use_lockfile": "true"}, prefix="x/")
    switch = {"terraform.backend": "s3", "terraform.backend.skip_credentials_validation": "true", **lock}
    assert backend_from(switch, "prod") is not None, "a switch is no secret, whatever its name"
    assert backend_from({"terraform.backend": "azurerm"}, "prod") == Backend(kind="azurerm", prefix="fleetctl/prod/")


@pytest.mark.parametrize(
    "settings",
    [
        {"terraform.backend": "carrier-pigeon"},
        {"terraform.backend": "azurerm", "terraform.backend.access_key": "x"},
        {"terraform.backend": "s3", "terraform.backend.secret_key": "x"},
        {"terraform.backend": "s3", "terraform.backend.bucket": "b"},
        {"terraform.backend": "s3", "terraform.backend.bucket": "b", "terraform.backend.use_lockfile": "false"},
        {"terraform.backend": "gcs", "terraform.backend.encryption_key": "x"},
        {"terraform.backend": "azurerm", "terraform.backend.sas_token": "x"},
    ],
)
def test_an_unknown_backend_and_a_secret_are_refused(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        backend_from(settings, "prod")
    assert caught.value.code == "config.backend"


def test_every_guard_of_the_modules_is_known() -> None:
    for module in (ROOT / "modules").iterdir():
        guarded = tuple(
            (b.labels[0], b.labels[1])
            for b in read_folder(module)
            if b.kind == "resource" and any(x.kind == "lifecycle" and x.arguments.get("prevent_destroy") == "true" for x in b.blocks)
        )
        assert sorted(guarded) == sorted(GUARDED.get(module.name, ()))


@pytest.mark.parametrize(("stack", "module"), [("azure", "gpu_vms_azure"), ("aws", "nvidia_pool_aws")])
def test_a_copy_has_its_modules_inside_and_its_guard_lifted_only_where_it_is_not_held(stack: str, module: str, tmp_path: Path) -> None:
    backend = check_backend(Backend(kind="azurerm", settings={"container_name": "c"}, prefix="f/"))
    lifted = tmp_path / "modules" / module / "unguarded_override.tf.json"
    copy_stack(ROOT / "stacks" / stack, tmp_path, POOL, guarded=False, backend=backend)
    assert "../../modules" not in (tmp_path / "main.pool.tf").read_text()
    assert (tmp_path / "modules" / module / "cloud-init.yaml.tftpl").exists()
    assert '"prevent_destroy": false' in lifted.read_text()
    kept = json.loads((tmp_path / "backend.tf.json").read_text())
    assert kept == {"terraform": {"backend": {"azurerm": {"container_name": "c", "key": "f/mi300x-a.tfstate"}}}}
    assert not list(tmp_path.rglob("examples"))
    copy_stack(ROOT / "stacks" / stack, tmp_path, POOL)
    assert not lifted.exists()
    assert not (tmp_path / "backend.tf.json").exists()
    assert {p.stat().st_mode & 0o777 for p in tmp_path.rglob("*.tf")} == {0o600}
