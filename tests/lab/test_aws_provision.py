"""Provision: the aws stack by the genuine aws provider against a moto server: plan, apply, empty re-plan, destroy, refusals put in between.

moto never runs out of machines: a proxy before it refuses RunInstances by script. Skips where FLEETCTL_TF_MIRROR names no mirror.
"""

from __future__ import annotations

import http.client
import json
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fleetctl.adapters.aws.capacity import AwsCapacity
from fleetctl.adapters.aws.leftovers import AwsLeftovers
from fleetctl.adapters.aws.notices import api_signals
from fleetctl.adapters.terraform.folder import private_folder
from fleetctl.adapters.terraform.provisioner import TerraformProvisioner
from fleetctl.adapters.terraform.stacks import cloud_variables
from fleetctl.adapters.terraform.tool import find_tool
from fleetctl.cli.main import main
from fleetctl.domain.ids import HostId, PoolId, Token
from fleetctl.domain.plan import Plan
from fleetctl.domain.pool import Host, PoolSpec
from fleetctl.domain.provision import Provisioned, ProvisionFailure
from fleetctl.planning.check_delta import ALLOWED
from fleetctl.planning.check_provision import check_provision
from fleetctl.planning.provision_codes import Action
from fleetctl.planning.provision_errors import classify
from fleetctl.usecases.capacity import ProvisionOutcome
from fleetctl.usecases.provision import provision
from fleetctl.views.provision import outcome_lines, plan_lines
from fleetctl.wiring import Wiring
from tests.doubles.mirror import MIRROR, aws_mirror, make_mirror
from tests.fakes.terraform_bench import ignore, permit

pytest.importorskip("moto", reason="the package moto (a development dependency) is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.lab]
needs_aws = pytest.mark.skipif(
    aws_mirror() is None or shutil.which("terraform") is None,
    reason=f"{MIRROR} names no mirror with the genuine aws provider, or no terraform",
)
ROOT = Path(__file__).resolve().parents[2]
POOL = PoolId("h100-use1")
SPEC = PoolSpec(
    pool=POOL, vendor="nvidia", sku="p5.48xlarge", region="us-east-1", count=1, stack="aws", zone="us-east-1a", intent="f1-h100-use1-1"
)


@dataclass
class Moto:
    """A moto server behind a proxy that refuses by script: `refusals` are (code, how often)."""

    url: str
    refusals: list[list[Any]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    let_through: bytes = b""

    def allows(self, body: bytes) -> bool:
        """Tell whether a request goes to a subnet of the zone that has room; asked of moto itself, past the refusals."""
        if not self.let_through:
            return False
        named = re.search(rb"(subnet-[0-9a-f]+)", body)
        found = _client("ec2").describe_subnets(SubnetIds=[named[1].decode()])["Subnets"] if named else []
        return any(s["AvailabilityZone"].encode() == self.let_through for s in found)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    log = (tmp_path_factory.mktemp("moto") / "log").open("wb")
    child = subprocess.Popen([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 200
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert time.monotonic() < deadline, "moto did not start"
                time.sleep(0.1)
        yield port
    finally:
        child.terminate()
        child.wait(timeout=20)
        log.close()


@pytest.fixture
def moto(server: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Moto]:
    world = Moto(url="")

    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the standard library's name)
            pass

        def _pass(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            refusal = next((r for r in world.refusals if r[1] and b"Action=RunInstances" in body and not world.allows(body)), None)
            if b"Action=" in body:
                world.calls.append(body.split(b"Action=", 1)[1].split(b"&", 1)[0].decode())
            if refusal is not None:
                refusal[1] -= 1
                inner = f"<Error><Code>{refusal[0]}</Code><Message>refused by the lab double</Message></Error>"
                text = f"<Response><Errors>{inner}</Errors></Response>"
                self._answer(503 if refusal[0] == "RequestLimitExceeded" else 400, text.encode(), "text/xml")
                return
            headers = {k: v for k, v in self.headers.items() if k.lower() != "connection"}
            with closing(http.client.HTTPConnection("127.0.0.1", server, timeout=60)) as up:
                up.request(self.command, self.path, body, headers)
                answer = up.getresponse()
                data, kind = answer.read(), answer.getheader("Content-Type") or "text/xml"
            self._answer(answer.status, data, kind)

        def _answer(self, status: int, data: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _pass  # noqa: N815 (the standard library's names)

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    proxy.daemon_threads = True
    thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    world.url = f"http://127.0.0.1:{proxy.server_address[1]}"
    for name, value in {
        "AWS_ENDPOINT_URL": world.url,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    yield world
    proxy.shutdown()
    proxy.server_close()
    thread.join(timeout=10)


def _client(service: str, region: str = "us-east-1") -> Any:
    import boto3

    return boto3.client(service, region_name=region)


def _provisioner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, image: str, **more: str) -> TerraformProvisioner:
    monkeypatch.setenv("TF_CLI_CONFIG_FILE", str(make_mirror(tmp_path)))
    settings = {"terraform.aws.image_id": image, "terraform.aws.network": '{"outbound": false}'}
    settings |= {f"terraform.aws.{name}": value for name, value in more.items()}
    stack = ROOT / "terraform" / "stacks" / "aws"
    return TerraformProvisioner(stack, tmp_path / "work", "aws", cloud_variables("aws", settings), find_tool(), deadline_s=600)


@needs_aws
@pytest.mark.timeout(900)
def test_a_pool_on_aws_is_made_found_complete_and_destroyed(moto: Moto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = _client("ec2").describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    provisioner = _provisioner(tmp_path, monkeypatch, image)
    plan = provisioner.plan((SPEC,), tmp_path / "r1")
    assert check_provision(plan, (), allowed_types=ALLOWED["aws"]) == ()
    made = provisioner.apply(plan, Token(1), ignore)
    assert isinstance(made, Provisioned), made
    (host,) = provisioner.outputs(POOL)
    assert (host.id, host.user) == ("h100-use1-1", "ubuntu")
    leftovers = AwsLeftovers("us-east-1", _client)
    machines = [f for f in leftovers.find(SPEC.intent) if f.kind == "machine"]
    assert [m.pool for m in machines] == [POOL]
    assert machines[0].id in provisioner.ids(POOL), "what the state holds is no orphan"
    again = provisioner.plan((SPEC,), tmp_path / "r2")
    changed = [(c.address, c.actions) for c in again.changes if c.actions not in {("no-op",), ("read",)}]
    # moto 5.2 gives a template's own tags back as part of its data, which AWS does not; nothing else may differ.
    assert changed in ([], [("module.nvidia.aws_launch_template.pool", ("update",))])
    provisioner.destroy(POOL, permit(POOL))
    assert [f for f in leftovers.find(SPEC.intent) if f.kind == "machine"] == []


@needs_aws
@pytest.mark.timeout(900)
def test_the_hosts_of_a_group_are_named_by_the_first_apply_and_again_when_aws_has_replaced_one(
    moto: Moto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group keeps its machines itself: which they are is known only after it was made, and changes without Terraform."""
    image = _client("ec2").describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    provisioner = _provisioner(tmp_path, monkeypatch, image, form="group")
    spec = replace(SPEC, pool=PoolId("h100-group"), intent="f1-h100-group-1")

    def made(name: str) -> list[str]:
        plan = provisioner.plan((spec,), tmp_path / name)
        assert check_provision(plan, (spec.pool,), allowed_types=ALLOWED["aws"]) == ()
        assert plan.outputs_change
        result = provisioner.apply(plan, Token(1), ignore)
        assert isinstance(result, Provisioned), result
        return [dict(h.variables)["cloud_id"] for h in provisioner.outputs(spec.pool)]

    (first,) = made("r1")
    _client("autoscaling").terminate_instance_in_auto_scaling_group(InstanceId=first, ShouldDecrementDesiredCapacity=False)
    (second,) = [i["InstanceId"] for i in _running(spec.intent)]
    assert second != first
    assert made("r2") == [second]
    assert _running(spec.intent)[0]["InstanceId"] == second, "nothing was replaced by us"
    provisioner.destroy(spec.pool, permit(spec.pool))
    leftovers = AwsLeftovers("us-east-1", _client)
    for one in (o for o in leftovers.find(spec.intent) if o.kind == "machine"):  # moto lets a protected machine outlive its group
        leftovers.remove(one)
    assert _running(spec.intent) == []


@needs_aws
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("code", "action"),
    [
        ("InsufficientInstanceCapacity", Action.OTHER_PLACE),
        pytest.param("VcpuLimitExceeded", Action.RAISE_QUOTA, marks=pytest.mark.slow),
        pytest.param("RequestLimitExceeded", Action.WAIT_RETRY, marks=pytest.mark.slow),
    ],
)
def test_a_refusal_by_the_genuine_provider_is_classified(
    code: str, action: Action, moto: Moto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = _client("ec2").describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    provisioner = _provisioner(tmp_path, monkeypatch, image)
    moto.refusals.append([code, 1000])
    result = provisioner.apply(provisioner.plan((SPEC,), tmp_path / "r1"), Token(1), ignore)
    assert isinstance(result, ProvisionFailure)
    trouble = classify(list(result.details) or result.text)
    assert (trouble.code, trouble.action) == (code, action)
    moto.refusals.clear()
    assert isinstance(provisioner.apply(provisioner.plan((SPEC,), tmp_path / "r2"), Token(2), ignore), Provisioned)


@needs_aws
@pytest.mark.timeout(1500)
def test_an_nvidia_pool_on_aws_by_the_whole_saga_takes_the_next_zone_and_is_released(
    moto: Moto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The use case over the ports that the command line gives it: a zone without room, the next one, nothing to do again, release."""
    image = _client("ec2").describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    monkeypatch.setenv("TF_CLI_CONFIG_FILE", str(make_mirror(tmp_path)))
    monkeypatch.chdir(ROOT)
    workspace = tmp_path / "w"
    workspace.mkdir()
    assert main(["-C", str(workspace), "init", "example"]) == 0
    fleet = workspace / "inventory" / "example" / "fleet.yaml"
    pool = "  h100-use1: {vendor: nvidia, sku: p5.48xlarge, region: us-east-1, count: 0, limit: 1, provisioned_by: aws}\n"
    settings = {
        "terraform.aws.image_id": image,
        "terraform.aws.network": '{"outbound": false}',
        "pool.h100-use1.zones": "us-east-1b",
    }
    lines = "".join(f"  {k}: {json.dumps(v)}\n" for k, v in settings.items())
    text = fleet.read_text().replace("\npools:\n", f"\npools:\n{pool}", 1).replace("approvals: 1 ", "approvals: 0 ")
    fleet.write_text(text.replace("settings: {}", f"settings:\n{lines}"))
    wiring = Wiring(workspace, lambda: fleet, store=workspace / ".fleetctl" / "store.db", actor="ada")
    asked = replace(SPEC, zone="", intent="")
    plan: Plan = object.__new__(Plan)
    object.__setattr__(plan, "pools", (asked,))

    told: list[str] = []

    def run(name: str) -> ProvisionOutcome:
        folder = private_folder(tmp_path / name)
        ports = wiring.capacity_ports(folder, shown=lambda *row: told.extend(plan_lines(*row)))
        outcome = provision(plan, wiring.fleet, folder, ports, ignore)[0]
        told.extend(outcome_lines(outcome, with_plan=False))
        return outcome

    moto.refusals.append(["InsufficientInstanceCapacity", 1000])
    moto.let_through = b"us-east-1b"
    made = run("first")
    assert [a.code for a in made.attempts] == ["InsufficientInstanceCapacity"]
    assert (made.place.zone if made.place else "", [h.id for h in made.hosts]) == ("us-east-1b", ["h100-use1-1"])
    assert [i["Placement"]["AvailabilityZone"] for i in _running(made.spec.intent)] == ["us-east-1b"], "one machine, and none elsewhere"
    assert {"  + h100-use1-1  aws_instance", "  in us-east-1, zone us-east-1b, on demand", "  hosts: h100-use1-1"} <= set(told)
    assert any(line.startswith("  refused: p5.48xlarge in us-east-1") for line in told)
    assert max(len(line) for line in told) <= 80, told
    again = run("again")
    assert (again.attempts, again.orphans, [h.id for h in again.hosts]) == ((), (), ["h100-use1-1"])
    assert len(_running(made.spec.intent)) == 1
    assert main(["-C", str(workspace), "release", POOL, "--confirm", POOL]) == 0
    assert AwsLeftovers("us-east-1", _client).find(made.spec.intent) == ()


def _running(intent: str) -> list[dict[str, Any]]:
    """Return the machines that run under an intent's tag; other tests leave some of the same pool."""
    found = _client("ec2").describe_instances(Filters=[{"Name": "tag:fleetctl-intent", "Values": [intent]}])["Reservations"]
    return [i for r in found for i in r["Instances"] if i["State"]["Name"] == "running"]


def test_networks_and_groups_that_a_killed_run_left_are_found_in_every_region_and_removed(moto: Moto) -> None:
    ec2, tags = _client("ec2", "us-west-2"), [{"Key": "fleetctl-intent", "Value": "f1-net-1"}]

    def tagged(kind: str) -> list[dict[str, Any]]:
        return [{"ResourceType": kind, "Tags": tags}]

    vpc = ec2.create_vpc(CidrBlock="10.50.0.0/20", TagSpecifications=tagged("vpc"))["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.50.0.0/24", TagSpecifications=tagged("subnet"))["Subnet"]["SubnetId"]
    gateway = ec2.create_internet_gateway(TagSpecifications=tagged("internet-gateway"))["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    address = ec2.allocate_address(Domain="vpc", TagSpecifications=tagged("elastic-ip"))["AllocationId"]
    ec2.create_nat_gateway(SubnetId=subnet, AllocationId=address, TagSpecifications=tagged("natgateway"))
    table = ec2.create_route_table(VpcId=vpc, TagSpecifications=tagged("route-table"))["RouteTable"]["RouteTableId"]
    ec2.associate_route_table(RouteTableId=table, SubnetId=subnet)
    ec2.create_security_group(GroupName="h", Description="d", VpcId=vpc, TagSpecifications=tagged("security-group"))
    image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    template = ec2.create_launch_template(
        LaunchTemplateName="t",
        LaunchTemplateData={"InstanceType": "p5.48xlarge", "ImageId": image},
        TagSpecifications=tagged("launch-template"),
    )["LaunchTemplate"]["LaunchTemplateId"]
    _client("autoscaling", "us-west-2").create_auto_scaling_group(
        AutoScalingGroupName="g",
        MinSize=1,
        MaxSize=1,
        VPCZoneIdentifier=subnet,
        LaunchTemplate={"LaunchTemplateId": template, "Version": "$Latest"},
        Tags=[{**tags[0], "PropagateAtLaunch": True}],
    )
    leftovers = AwsLeftovers(("us-east-1", "us-west-2"), _client, wait_s=10)
    found = leftovers.find("f1-net-1")
    kinds = {f.state for f in found}
    assert kinds >= {"group", "running", "natgateway", "elastic-ip", "subnet", "route-table", "internet-gateway", "security-group", "vpc"}
    assert {f.region for f in found} == {"us-west-2"}
    assert [f.holder for f in found if f.kind == "machine"] == ["g"], "a machine of a group is known by its group"
    order = {"machine": 0, "card": 1, "disk": 2, "other": 3}
    for one in sorted(found, key=lambda o: (o.rank >= 0, order[o.kind], o.rank)):
        leftovers.remove(one)
        leftovers.remove(one)
    assert leftovers.find("f1-net-1") == ()


def test_capacity_is_read_by_boto3(moto: Moto) -> None:
    now = datetime(2026, 11, 30, tzinfo=UTC)
    reading = AwsCapacity(lambda: now, _client).read("p5.48xlarge", "us-east-1")
    assert reading.offered
    assert reading.zones
    assert reading.vcpus == 192
    assert all(q.limit >= 0 for q in reading.quotas)
    assert any("reservations" in g for g in reading.gaps), "moto does not know reservations: that is a gap, not a no"
    assert AwsCapacity(lambda: now, _client).read("p9.mega", "us-east-1").offered is False


def test_notices_are_read_by_boto3(moto: Moto) -> None:
    """moto schedules no events and ends no blocks; that boto3 takes every question and its answers are read is what is tried."""
    ec2 = _client("ec2")
    image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    made = ec2.run_instances(ImageId=image, InstanceType="p5.48xlarge", MinCount=1, MaxCount=1)["Instances"][0]["InstanceId"]
    now = datetime(2026, 11, 30, tzinfo=UTC)
    host = Host(id=HostId("h100-1"), pool=POOL, address="10.0.0.1", variables=(("cloud_id", made),))
    gone = replace(host, id=HostId("h100-2"), variables=(("cloud_id", "i-0123456789abcdef0"),))
    assert api_signals(ec2, (host, gone), now) == ()
    assert {"DescribeInstances", "DescribeInstanceStatus", "DescribeSpotInstanceRequests"} <= set(moto.calls)


def test_what_aws_does_not_answer_is_a_gap(moto: Moto, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    reading = AwsCapacity(lambda: datetime(2026, 11, 30, tzinfo=UTC), _client).read("p5.48xlarge", "us-east-1")
    assert reading.offered
    assert reading.gaps


def test_leftover_machines_are_found_by_tag_and_removed(moto: Moto) -> None:
    ec2 = _client("ec2")
    image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    tags = [{"Key": "fleetctl-intent", "Value": "f1-x-1"}, {"Key": "Name", "Value": "x-1"}]
    specification = [{"ResourceType": "instance", "Tags": tags}]
    ec2.run_instances(ImageId=image, InstanceType="p5.48xlarge", MinCount=1, MaxCount=1, TagSpecifications=specification)
    leftovers = AwsLeftovers("us-east-1", _client)
    (one,) = [f for f in leftovers.find("f1-x-1") if f.kind == "machine"]
    assert (one.name, one.state) == ("x-1", "running")
    leftovers.remove(one)
    assert [f for f in leftovers.find("f1-x-1") if f.kind == "machine"] == []
    leftovers.remove(replace(one, id="i-0123456789abcdef0"))
