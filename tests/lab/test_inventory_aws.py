"""boto3 against a moto server: regions, paging, groups, target groups, quotas, one region down, rights, credentials."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fleetctl.adapters.aws import discovery as aws_discovery
from fleetctl.adapters.aws.client import AwsAccess
from fleetctl.adapters.aws.discovery import AwsDiscovery
from fleetctl.domain.merge import merge, subject_of
from fleetctl.domain.people import Facts
from fleetctl.errors import CredentialsMissing
from fleetctl.formats.access import AWS_ACTIONS
from fleetctl.usecases.scan import scan_sources

pytest.importorskip("moto", reason="moto[server] is not installed: AWS is not emulated here")

from tests.fakes.moto_account import CREDENTIALS, GPU_TYPE, IMAGE, PLAIN_TYPE, client, moto_server, run_instances

pytestmark = pytest.mark.lab
REGIONS = ("us-east-1", "eu-west-1")
HOSTILE = '=cmd|" /c calc"!A1'


def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with moto_server(tmp_path_factory.mktemp("moto")) as url:
        ids = run_instances(url, "us-east-1", 13, tags={"Name": "chat", "team": "red", "CostCenter": "42", "workload": "chat"})
        run_instances(url, "us-east-1", 3, type_=PLAIN_TYPE)
        run_instances(url, "eu-west-1", 2, tags={"Name": HOSTILE, "owner": "{{ lookup('pipe', 'id') }}"})
        _group(url)
        _targets(url, ids[:2])
        yield url


def _group(url: str) -> None:
    scaling = client("autoscaling", "us-east-1", url)
    scaling.create_launch_configuration(LaunchConfigurationName="gpu", ImageId=IMAGE, InstanceType=GPU_TYPE)
    tag = {"Key": "workload", "Value": "chat", "PropagateAtLaunch": True, "ResourceType": "auto-scaling-group", "ResourceId": "asg-gpu"}
    scaling.create_auto_scaling_group(
        AutoScalingGroupName="asg-gpu",
        LaunchConfigurationName="gpu",
        MinSize=1,
        MaxSize=4,
        DesiredCapacity=2,
        AvailabilityZones=["us-east-1a"],
        Tags=[tag],
    )


def _targets(url: str, ids: list[str]) -> None:
    balancers, ec2 = client("elbv2", "us-east-1", url), client("ec2", "us-east-1", url)
    vpc = ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
    group = balancers.create_target_group(Name="tg-chat", Protocol="HTTP", Port=8000, VpcId=vpc, TargetType="instance")
    arn = group["TargetGroups"][0]["TargetGroupArn"]
    balancers.register_targets(TargetGroupArn=arn, Targets=[{"Id": i} for i in ids])


@pytest.fixture
def source(account: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AwsDiscovery:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return AwsDiscovery("prod", AwsAccess(endpoint=account), now, regions=REGIONS)


def test_every_gpu_instance_of_every_region_is_found(source: AwsDiscovery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aws_discovery, "PAGE", 5)
    scan = scan_sources([source], None, now)
    assert scan.gaps() == ()
    things, _ = merge(scan.facts())
    machines = [t for t in things if t.kind == "machine"]
    assert len(machines) == 13 + 2 + 2
    one = next(t for t in machines if t.text("cost_centre") == "42")
    assert (one.text("owner"), one.number("gpus"), one.text("sku"), one.text("state")) == ("red", 8, GPU_TYPE, "running")
    assert "A100" in one.text("gpu")
    assert one.text("name").startswith("chat ip-")
    hostile = next(t for t in machines if t.text("region") == "eu-west-1")
    assert hostile.text("owner") == "{{ lookup('pipe', 'id') }}"
    (group,) = (t for t in things if t.kind == "group")
    assert [group.number(n) for n in ("count", "minimum", "maximum")] == [2, 1, 4]
    assert group.text("workload") == "chat"
    members = [t for t in machines if t.text("group") == group.id]
    assert len(members) == 2
    (targets,) = (t for t in things if t.kind == "target_group")
    assert targets.number("targets") == 2
    assert {(t.text("family"), t.number("limit")) for t in things if t.kind == "quota"} == {("Running On-Demand P instances", 192.0)}
    assert {t.id for t in things if t.kind == "reservation"} == {f"aws/{region}/cr-1" for region in REGIONS}


def test_the_policy_names_exactly_the_calls_that_are_made(account: str, source: AwsDiscovery) -> None:
    calls: set[str] = set()

    def note(model: Any, **_: Any) -> None:
        service = {"autoscaling": "autoscaling", "elbv2": "elasticloadbalancing", "elasticloadbalancingv2": "elasticloadbalancing"}
        prefix = service.get(model.service_model.service_name, model.service_model.service_name.replace("service-quotas", "servicequotas"))
        calls.add(f"{prefix}:{model.name}")

    every = AwsDiscovery("prod", AwsAccess(endpoint=account), now)
    every.api.session.events.register("before-parameter-build", note)
    assert set(REGIONS) <= set(every.parts())
    for region in REGIONS:
        assert any(isinstance(f, Facts) for f in list(every.scan(region)))
    assert calls == {action for name, group in AWS_ACTIONS.items() if name not in {"Capacity", "Notices"} for action in group}


def test_one_region_down_hides_no_other(source: AwsDiscovery) -> None:
    def fail(model: Any, request_signer: Any, **_: Any) -> None:
        if request_signer._region_name == "eu-west-1":
            from botocore.exceptions import EndpointConnectionError

            raise EndpointConnectionError(endpoint_url="https://ec2.eu-west-1.emulated")

    source.api.session.events.register("before-call.ec2.DescribeInstances", fail)
    scan = scan_sources([source], None, now)
    (gap,) = scan.gaps()
    assert (gap.scope, gap.code) == ("eu-west-1", "inventory.aws")
    assert sum(subject_of(f)[0] == "machine" for f in scan.facts()) == 15


@pytest.mark.parametrize(
    ("code", "expected"),
    [("ExpiredToken", "credentials.aws"), ("UnauthorizedOperation", "credentials.aws_rights"), ("InternalError", "inventory.aws")],
)
def test_what_aws_refuses_says_what_to_do(source: AwsDiscovery, code: str, expected: str) -> None:
    def refuse(**_: Any) -> None:
        from botocore.exceptions import ClientError

        raise ClientError({"Error": {"Code": code, "Message": "emulated"}}, "DescribeInstances")

    source.api.session.events.register("before-call.ec2.DescribeInstances", refuse)
    gaps = scan_sources([source], None, now).gaps()
    assert {g.code for g in gaps} == {expected}
    assert "emulated" in gaps[0].reason
    assert bool(gaps[0].mend) == expected.startswith("credentials")


def test_no_credential_at_all_is_named(account: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (*CREDENTIALS, "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(CredentialsMissing) as caught:
        AwsDiscovery("prod", AwsAccess(endpoint=account), now).parts()
    assert caught.value.code == "credentials.aws"
    assert "AWS_PROFILE" in caught.value.hint
    with pytest.raises(CredentialsMissing):
        AwsDiscovery("prod", AwsAccess(endpoint=account, profile="nobody"), now).parts()
