"""The contract of other hands: what sizes a pool is found, its minimum pinned, a foreign write seen, what stood there given back.

Runs on the fake and on AWS (moto, an emulated AWS), Azure (an emulated management API), HPA and KEDA (a double of the API server).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fleetctl.adapters.hands import JoinedHands
from fleetctl.adapters.kubernetes import hands as hands_of_clusters
from fleetctl.domain.holds import Pin
from fleetctl.domain.ids import CellId, PoolId, Token
from fleetctl.domain.people import Gap
from fleetctl.domain.provision import Owner
from fleetctl.errors import FleetctlError, InventoryFailed
from fleetctl.ports.hands import Hands
from fleetctl.usecases.holds import KeptHolds
from tests.fakes.clock import FakeClock
from tests.fakes.hands import FakeHands
from tests.fakes.store import MemoryStore

pytestmark = pytest.mark.lab
POOL, CELL = PoolId("h100"), CellId("chat-use1")
WAS, NOW, MOST = 2, 8, 10
KINDS = ("fake", "aws", "azure", "hpa", "keda")


@dataclass
class Rig:
    """One owner of a pool: keeps 2 to 10, has 8; its GitOps owner is named by its marks.

    Args:
        minimum: what stands there; write: what others write; refuse: reading is allowed, writing is not; hush: it does not answer.
        writer: who `write` is, as it can be told, "" where nobody can.
    """

    hands: Hands
    minimum: Callable[[], int | None]
    write: Callable[[int], None]
    refuse: Callable[[], None]
    hush: Callable[[], None]
    gone: Callable[[], None]
    owner: str
    writer: str = ""


def joined(scaler: Any) -> JoinedHands:
    return JoinedHands({POOL: [scaler]}, lambda _: (), {})


@pytest.fixture(params=KINDS)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    makers: dict[str, Callable[[Path], Iterator[Rig]]] = {"fake": _fake, "aws": _aws, "azure": _azure, "hpa": _hpa, "keda": _keda}
    yield from makers[request.param](tmp_path)


def _fake(_: Path) -> Iterator[Rig]:
    hands = FakeHands(of={"asg": POOL}, minimum={"asg": WAS}, size=NOW, maximum=MOST, gitops=("Terraform prod",), last_writer="helm")

    def set_(n: int) -> None:
        hands.minimum["asg"] = n

    yield Rig(
        hands,
        lambda: hands.minimum.get("asg"),
        set_,
        lambda: setattr(hands, "refuses", True),
        lambda: setattr(hands, "silent", True),
        hands.minimum.clear,
        "Terraform prod",
        "helm",
    )


class Faulty:
    """A client of moto whose calls are refused, or not answered, where the test says so; it notes every call."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.refused: tuple[str, ...] = ()
        self.silent = False
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        from botocore.exceptions import ClientError, ReadTimeoutError

        self.calls.append(name)
        if self.silent:
            raise ReadTimeoutError(endpoint_url="https://autoscaling")
        if name in self.refused:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": f"not authorized to perform: {name}"}}, name)
        return getattr(self._client, name)


def asg(**tags: str) -> Any:
    """Return a client of an emulated account with the group h100."""
    import boto3

    keys = {"aws_access_key_id": "emulated", "aws_secret_access_key": "emulated", "region_name": "us-east-1"}
    scaling, ec2 = boto3.client("autoscaling", **keys), boto3.client("ec2", **keys)
    subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
    scaling.create_launch_configuration(LaunchConfigurationName="l", ImageId="ami-12c6146b", InstanceType="p4d.24xlarge")
    scaling.create_auto_scaling_group(
        AutoScalingGroupName="h100",
        LaunchConfigurationName="l",
        MinSize=WAS,
        MaxSize=MOST,
        DesiredCapacity=NOW,
        VPCZoneIdentifier=subnet,
        Tags=[{"Key": k, "Value": v, "PropagateAtLaunch": False} for k, v in tags.items()],
    )
    return scaling


def _aws(_: Path) -> Iterator[Rig]:
    from moto import mock_aws

    from fleetctl.adapters.aws.hands import AsgHands

    with mock_aws():
        api = asg(ManagedBy="terraform")
        faulty = Faulty(api)

        def minimum() -> int | None:
            found = api.describe_auto_scaling_groups(AutoScalingGroupNames=["h100"])["AutoScalingGroups"]
            return int(found[0]["MinSize"]) if found else None

        yield Rig(
            joined(AsgHands(lambda: faulty, POOL, "h100")),
            minimum,
            lambda n: api.update_auto_scaling_group(AutoScalingGroupName="h100", MinSize=n),
            lambda: setattr(faulty, "refused", ("update_auto_scaling_group",)),
            lambda: setattr(faulty, "silent", True),
            lambda: api.delete_auto_scaling_group(AutoScalingGroupName="h100", ForceDelete=True),
            "terraform",
        )


def setting(minimum: int = WAS) -> dict[str, Any]:
    """Return an autoscale setting as Microsoft.Insights gives it, for the scale set pool-a."""
    from tests.fakes.arm_estate import SUBSCRIPTION

    target = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/RG-eastus2/providers/Microsoft.Compute/virtualMachineScaleSets/pool-a"
    capacity = {"minimum": str(minimum), "maximum": str(MOST), "default": str(minimum)}
    properties = {"enabled": True, "targetResourceUri": target, "profiles": [{"name": "usual", "capacity": capacity, "rules": []}]}
    return {"name": "gpus", "location": "eastus2", "tags": {"a": "b"}, "properties": properties}


def _azure(folder: Path) -> Iterator[Rig]:
    from fleetctl.adapters.azure.client import AzureAccess, AzureApi, credential_of
    from fleetctl.adapters.azure.hands import VmssHands
    from tests.fakes.arm_double import TOKEN, Fault, arm_double
    from tests.fakes.arm_estate import SUBSCRIPTION, Estate

    logging.getLogger("azure").setLevel(logging.ERROR)
    estate = Estate(regions={"eastus2": 0}, scale_sets={"pool-a": NOW}, autoscale={"gpus": setting()})
    estate.scale_set_tags = {"terraform-stack": "gpus"}
    with arm_double(estate, folder) as double:
        access = AzureAccess(subscriptions=(SUBSCRIPTION,), endpoint=double.url, ca_file=str(double.ca_file), token=lambda: TOKEN)
        api = AzureApi(access, SUBSCRIPTION, credential_of(access))

        def minimum() -> int | None:
            found = estate.autoscale.get("gpus")
            return int(found["properties"]["profiles"][0]["capacity"]["minimum"]) if found else None

        yield Rig(
            joined(VmssHands(lambda: api, POOL, "rg-eastus2/pool-a")),
            minimum,
            lambda n: estate.autoscale.update(gpus=setting(n)),
            lambda: double.faults.append(Fault(path="^PUT ", status=403, code="AuthorizationFailed", message="no right")),
            lambda: double.faults.append(Fault(path=".", status=503, code="Busy")),
            estate.autoscale.clear,
            "Terraform gpus",
        )


CLUSTER = ("deployments", "statefulsets", "horizontalpodautoscalers", "scaledobjects", "httproutes")
APP = {"argocd.argoproj.io/instance": "serving"}


def _cluster(kind: str, plural: str, field: str) -> Iterator[Rig]:
    pytest.importorskip("kubernetes", reason="the client for Kubernetes is not installed: pip install 'fleetctl[kubernetes]'")
    from fleetctl.adapters.kubernetes.hands import DeploymentHands, Objects
    from tests.fakes.kube_objects import kube_objects

    with kube_objects(*CLUSTER) as api:
        api.add("deployments", "chat", {"replicas": NOW}, labels=APP)
        most = {"maxReplicas": MOST, "minReplicas": WAS} if kind == "hpa" else {"maxReplicaCount": MOST, "minReplicaCount": WAS}
        api.add(plural, "chat", {"scaleTargetRef": {"name": "chat"}, **most})
        if kind == "keda":
            api.add("horizontalpodautoscalers", "keda-hpa-chat", {"scaleTargetRef": {"name": "chat"}, "minReplicas": WAS})
        api.add(plural, "other", {"scaleTargetRef": {"name": "other"}, **most})

        def minimum() -> int | None:
            return int(api.spec(plural, "chat")[field]) if (plural, "serving", "chat") in api.objects else None

        objects = Objects(api.custom())
        yield Rig(
            joined(DeploymentHands(lambda: objects, POOL, "serving/chat")),
            minimum,
            lambda n: api.write(plural, "chat", "argocd-controller", {field: n}),
            lambda: api.forbids.update({plural: ("update",)}),
            lambda: setattr(api, "silent", True),
            lambda: api.drop(plural, "chat"),
            "Argo CD serving",
            "argocd-controller",
        )


def _hpa(_: Path) -> Iterator[Rig]:
    yield from _cluster("hpa", "horizontalpodautoscalers", "minReplicas")


def _keda(_: Path) -> Iterator[Rig]:
    yield from _cluster("keda", "scaledobjects", "minReplicaCount")


class Kept:
    """Pins of one process; `again` begins another one on the same store."""

    def __init__(self, hands: Hands) -> None:
        self.hands, self.clock = hands, FakeClock()
        self.store = MemoryStore(self.clock.now)
        self.holds = KeptHolds(hands, self.store, self.clock, "a")

    def again(self) -> None:
        self.clock.advance(timedelta(seconds=20))
        self.holds = KeptHolds(self.hands, self.store, self.clock, "b")

    def pin(self) -> Pin:
        (found,) = self.store.all(Pin)
        return found


def test_the_autoscaler_and_the_gitops_owner_are_found(rig: Rig) -> None:
    found = rig.hands.of_pool(POOL)
    (scaler,) = (o for o in found if isinstance(o, Owner) and o.kind == "autoscaler")
    assert (scaler.minimum, scaler.maximum, scaler.size) == (WAS, MOST, NOW)
    assert [o.name for o in found if isinstance(o, Owner) and o.kind == "gitops"] == [rig.owner]
    assert [g for g in found if isinstance(g, Gap)] == []


def test_the_minimum_is_pinned_and_given_back_once_also_by_another_process(rig: Rig) -> None:
    kept = Kept(rig.hands)
    for _ in range(2):
        kept.holds.pin(POOL, 0, Token(1), CELL)
        assert rig.minimum() == NOW
    assert (kept.pin().was, kept.pin().to, kept.pin().state) == (WAS, NOW, "pinned")
    assert kept.holds.watch(POOL, CELL) == ""
    kept.again()
    for _ in range(2):
        kept.holds.restore(POOL, Token(2), CELL)
        assert (rig.minimum(), kept.pin().state) == (WAS, "restored")
    rig.write(5)
    kept.holds.restore(POOL, Token(2), CELL)
    assert kept.holds.sweep() == ()
    assert rig.minimum() == 5, "what was given back is the owner's again"


def test_a_foreign_write_is_seen_named_and_put_back_three_times_at_most(rig: Rig) -> None:
    kept = Kept(rig.hands)
    kept.holds.pin(POOL, 0, Token(1), CELL)
    for n in range(5):
        rig.write(3)
        kept.clock.advance(timedelta(seconds=31))
        told = kept.holds.watch(POOL, CELL)
        assert "to 3, where 8 is held for chat-use1" in told
        assert (rig.writer or rig.owner) in told, "the writer is named, or whose it is"
        kept.holds.pin(POOL, 0, Token(1), CELL)
        assert rig.minimum() == (NOW if n < 3 else 3)
    assert kept.pin().writes == 3
    kept.holds.restore(POOL, Token(1), CELL)
    assert (rig.minimum(), kept.pin().state) == (3, "left"), "theirs stands, ours is not forced back"


def test_without_the_right_to_write_it_is_said_and_nothing_is_changed(rig: Rig) -> None:
    kept = Kept(rig.hands)
    rig.refuse()
    (said,) = kept.holds.pin(POOL, 0, Token(1), CELL)
    assert said.is_gap
    assert "cannot be pinned at 8" in said.text
    assert (rig.minimum(), kept.pin().state) == (WAS, "refused")
    assert kept.holds.restore(POOL, Token(1), CELL) == ()
    assert kept.holds.sweep() == ()


def test_who_does_not_answer_is_a_gap_and_is_given_back_its_minimum_later(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(hands_of_clusters._OPTIONS, "_request_timeout", 0.2)
    kept = Kept(rig.hands)
    kept.holds.pin(POOL, 0, Token(1), CELL)
    before = rig.minimum()
    rig.hush()
    found = kept.hands.of_pool(POOL)
    assert found
    assert all(isinstance(g, Gap) for g in found)
    (said,) = kept.holds.restore(POOL, Token(1), CELL)
    assert said.kind == "hold.not_restored"
    assert (rig.minimum(), before, kept.pin().is_open) == (NOW, NOW, True)


def test_an_owner_that_is_gone_holds_nothing_and_needs_nothing_back(rig: Rig) -> None:
    kept = Kept(rig.hands)
    kept.holds.pin(POOL, 0, Token(1), CELL)
    rig.gone()
    assert rig.minimum() is None
    kept.clock.advance(timedelta(seconds=31))
    assert "is gone" in kept.holds.watch(POOL, CELL)
    kept.holds.restore(POOL, Token(1), CELL)
    assert kept.pin().state == "left"


def test_a_minimum_is_set_only_over_the_one_that_was_read(rig: Rig) -> None:
    (ref,) = (o.ref for o in rig.hands.of_pool(POOL) if isinstance(o, Owner) and o.ref)
    rig.write(4)
    assert rig.hands.set_minimum(POOL, ref, WAS, NOW) is False
    assert rig.minimum() == 4
    assert rig.hands.set_minimum(POOL, ref, 4, NOW) is True
    assert rig.minimum() == NOW


def test_a_fleet_file_that_lost_the_owner_says_what_to_put_back() -> None:
    kept = Kept(FakeHands(of={"asg": POOL}, minimum={"asg": WAS}, size=NOW))
    kept.holds.pin(POOL, 0, Token(1), CELL)
    kept.hands = JoinedHands({}, lambda _: (), {POOL: "nobody is named"})
    kept.again()
    (said,) = kept.holds.restore(POOL, Token(1), CELL)
    assert (said.kind, kept.pin().is_open) == ("hold.not_restored", True)
    assert [g.reason for g in kept.hands.of_pool(POOL) if isinstance(g, Gap)] == ["nobody is named"]


def test_aws_tells_of_scheduled_actions_and_finds_a_group_by_tag_or_host() -> None:
    from moto import mock_aws

    from fleetctl.adapters.aws.hands import AsgHands

    with mock_aws():
        api = asg(**{"fleetctl-pool": POOL, "eks:nodegroup-name": "gpus"})
        api.put_scheduled_update_group_action(AutoScalingGroupName="h100", ScheduledActionName="night", MinSize=1, Recurrence="0 22 * * *")
        for hands in (AsgHands(lambda: api, POOL), AsgHands(lambda: api, PoolId("untagged"), ids=lambda: [_instance(api)])):
            found = hands.find()
            assert [o.ref for o in found if isinstance(o, Owner) and o.kind == "autoscaler"] == ["h100"]
            assert [o.name for o in found if isinstance(o, Owner) and o.kind == "gitops"] == ["EKS node group gpus"]
            (gap,) = (g for g in found if isinstance(g, Gap))
            assert "scheduled action night sets its minimum to 1 at 0 22 * * *" in gap.reason
        (gone,) = AsgHands(lambda: api, POOL, "h200").find()
        assert isinstance(gone, Gap)


def _instance(api: Any) -> str:
    return str(api.describe_auto_scaling_groups()["AutoScalingGroups"][0]["Instances"][0]["InstanceId"])


@pytest.mark.parametrize(("before", "held", "theirs", "after"), [("2", "8", None, "2"), ("9", "9", None, "9"), ("4", "8", "10", "10")])
def test_azure_gets_its_default_back_with_its_minimum_and_what_others_set_meanwhile_stays(
    before: str, held: str, theirs: str | None, after: str
) -> None:
    from fleetctl.adapters.azure.hands import VmssHands

    stands = setting()
    capacity = stands["properties"]["profiles"][0]["capacity"]
    capacity["default"] = before

    class Standing:
        def call(self, method: str, path: str, version: str, body: Any = None) -> dict[str, Any]:
            if method == "PUT":
                stands.update(body)
            if "virtualMachineScaleSets" in path:
                return {"sku": {"capacity": NOW}}
            return stands if path.endswith("/gpus") else {"value": [stands]}

    def shown() -> tuple[str, str]:
        capacity = stands["properties"]["profiles"][0]["capacity"]
        return capacity["minimum"], capacity["default"]

    kept = Kept(JoinedHands({POOL: [VmssHands(Standing, POOL, "rg-eastus2/pool-a")]}, lambda _: (), {}))
    kept.holds.pin(POOL, 0, Token(1), CELL)
    assert shown() == ("8", held)
    if theirs is not None:
        stands["properties"]["profiles"][0]["capacity"]["default"] = theirs
    kept.again()
    kept.holds.restore(POOL, Token(2), CELL)
    assert (shown(), kept.pin().state) == (("2", after), "restored")


def test_azure_keeps_what_else_a_setting_says_and_never_lets_its_default_fall_below_the_minimum(tmp_path: Path) -> None:
    class Said:
        def __init__(self) -> None:
            self.body: Any = None

        def call(self, method: str, path: str, version: str, body: Any = None) -> dict[str, Any]:
            self.body = body or self.body
            return setting() if path.endswith("/gpus") else {"value": [setting()]}

    from fleetctl.adapters.azure.hands import VmssHands

    said = Said()
    assert VmssHands(lambda: said, POOL, "rg-eastus2/pool-a").set_minimum("gpus#0", WAS, NOW)
    assert said.body["properties"]["profiles"][0]["capacity"] == {"minimum": "8", "maximum": "10", "default": "8"}
    assert (said.body["tags"], said.body["properties"]["profiles"][0]["rules"]) == ({"a": "b"}, [])
    for hostile in ("rg/../x", "rg", "rg/a b", "rg/a?x"):
        with pytest.raises(InventoryFailed):
            VmssHands(lambda: said, POOL, hostile)
    with pytest.raises(InventoryFailed):
        VmssHands(lambda: said, POOL, "rg/a").standing("../x#0")


def test_keda_that_falls_below_any_minimum_is_a_gap() -> None:
    pytest.importorskip("kubernetes")
    from fleetctl.adapters.kubernetes.hands import DeploymentHands, Objects
    from tests.fakes.kube_objects import kube_objects

    with kube_objects(*CLUSTER) as api:
        api.add("deployments", "chat", {"replicas": NOW})
        api.add("scaledobjects", "chat", {"scaleTargetRef": {"name": "chat"}, "idleReplicaCount": 0})
        objects = Objects(api.custom())
        found = DeploymentHands(lambda: objects, POOL, "serving/chat").find()
        (owner,) = (o for o in found if isinstance(o, Owner))
        assert (owner.minimum, owner.maximum) == (0, 100), "KEDA's own defaults"
        (gap,) = (g for g in found if isinstance(g, Gap))
        assert "idleReplicaCount 0 whatever its minimum" in gap.reason
        api.touches = 2
        assert DeploymentHands(lambda: objects, POOL, "serving/chat").set_minimum("keda:chat", 0, NOW)
        assert api.spec("scaledobjects", "chat")["minReplicaCount"] == NOW
        api.touches = 9
        with pytest.raises(FleetctlError, match="changes faster"):
            DeploymentHands(lambda: objects, POOL, "serving/chat").set_minimum("keda:chat", NOW, 1)


def test_a_routes_owner_and_last_writer_are_named_and_a_cluster_without_the_kinds_has_none() -> None:
    pytest.importorskip("kubernetes")
    from fleetctl.adapters.kubernetes.hands import DeploymentHands, Objects, RouteMarks
    from tests.fakes.kube_objects import kube_objects

    with kube_objects("httproutes", "deployments") as api:
        objects = Objects(api.custom())
        api.add("httproutes", "chat", {"rules": []}, labels={"kustomize.toolkit.fluxcd.io/name": "apps"})
        api.add("deployments", "chat", {"replicas": 1})
        assert DeploymentHands(lambda: objects, POOL, "serving/chat").find() == (), "no HPA, no KEDA in this cluster: nobody"
        marks = RouteMarks(lambda: objects, CELL, "serving/chat#1")
        assert [o.name for o in marks.find() if isinstance(o, Owner)] == ["Flux apps"]
        api.write("httproutes", "chat", "fleetctl", {"rules": [1]})
        assert marks.writer() == "", "our own writes are no foreign hand"
        api.write("httproutes", "chat", "kustomize-controller", {"rules": [2]})
        assert marks.writer() == "kustomize-controller"
        hands = JoinedHands({}, lambda _: (marks,), {})
        assert hands.writer(CELL) == "kustomize-controller"
        api.forbids["httproutes"] = ("get",)
        assert (hands.writer(CELL), [type(x) for x in hands.of_route(CELL)]) == ("", [Gap])


def test_terraform_states_name_what_they_own_and_a_broken_one_is_a_gap(tmp_path: Path) -> None:
    from fleetctl.adapters.terraform.marks import StateMarks

    things = [{"mode": "managed", "type": "aws_autoscaling_group", "name": "gpus", "instances": [{"attributes": {"name": "h100"}}]}]
    good, bad = tmp_path / "prod.tfstate", tmp_path / "bad.tfstate"
    good.write_text(json.dumps({"version": 4, "resources": things}))
    bad.write_text('{"version": 3}')
    found = StateMarks([good, bad], lambda: ["H100"], POOL).find()
    assert [o.name for o in found if isinstance(o, Owner)] == ["Terraform prod.tfstate (aws_autoscaling_group.gpus)"]
    assert [g.reason for g in found if isinstance(g, Gap)] == ["the state bad.tfstate is not of format 4."]
    assert StateMarks([good], lambda: ["h200", ""], POOL).find() == ()
    good.write_text("[" * 2_000)
    assert [type(x) for x in StateMarks([good, tmp_path / "none"], lambda: ["h100"], POOL).find()] == [Gap, Gap]


def test_an_answer_that_nobody_can_read_is_a_gap_and_never_an_exception_of_its_own() -> None:
    class Odd:
        def find(self) -> Any:
            raise KeyError("MinSize")

        writer = find

        def standing(self, ref: str) -> Any:
            raise AttributeError("capacity")

        def set_minimum(self, ref: str, was: int, to: int, default: int | None = None) -> bool:
            raise TypeError("int")

    hands = JoinedHands({POOL: [Odd()]}, lambda _: (Odd(),), {})
    assert [type(x) for x in (*hands.of_pool(POOL), *hands.of_route(CELL))] == [Gap, Gap]
    assert hands.writer(CELL) == ""
    for call in (lambda: hands.standing(POOL, "0|x"), lambda: hands.set_minimum(POOL, "0|x", 1, 2), lambda: hands.standing(POOL, "x")):
        with pytest.raises(InventoryFailed):
            call()


def test_an_albs_rule_names_its_owner_by_its_tags() -> None:
    from fleetctl.adapters.aws.hands import RuleMarks

    class Tags:
        def describe_tags(self, **_: object) -> dict[str, Any]:
            return {
                "TagDescriptions": [{"Tags": [{"Key": "aws:cloudformation:stack-name", "Value": "edge"}, {"Key": "team", "Value": "a"}]}]
            }

    marks = RuleMarks(Tags, CELL, "arn")
    assert [(o.name, o.cell) for o in marks.find() if isinstance(o, Owner)] == [("CloudFormation edge", CELL)]
    assert marks.writer() == ""
