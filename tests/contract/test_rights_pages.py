"""The rights that the how-to pages ask for are those of the calls that the adapters really make, and no other.

Every call of a whole life (fence, set, read, drain, count; find, pin, watch, give back) is recorded, then compared with the page's blocks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetctl.domain.evidence import Cursor
from fleetctl.domain.fleet import Connection
from fleetctl.domain.ids import PoolId, Token
from fleetctl.domain.split import Split
from fleetctl.ports.traffic import Router
from tests.contract.test_hands import CELL as HELD
from tests.contract.test_hands import CLUSTER, NOW, POOL, WAS, Kept, asg, joined, setting
from tests.fakes.elb_rules import free
from tests.lab.haproxy_lab import CELL, SOURCE

pytestmark = pytest.mark.lab
PAGES = Path(__file__).resolve().parents[2] / "docs/how-to"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (PAGES / page).read_text("utf-8"), re.DOTALL)


def aws_rights(page: str) -> set[str]:
    policies = [json.loads(b) for b in blocks(page, "json") if "Statement" in b]
    return {action for p in policies for s in p["Statement"] for action in s["Action"]}


def kubernetes_rights(page: str) -> set[tuple[str, str, str]]:
    roles = [yaml.safe_load(b) for b in blocks(page, "yaml") if "kind: Role" in b]
    return {
        (verb, g, kind)
        for r in roles
        for rule in r["rules"]
        for verb in rule["verbs"]
        for g in rule["apiGroups"]
        for kind in rule["resources"]
    }


@contextmanager
def recorded() -> Iterator[set[str]]:
    """Record every call that boto3 makes, as the right that it needs."""
    import botocore.client

    made: set[str] = set()
    real = botocore.client.BaseClient._make_api_call

    def call(self: Any, operation: str, arguments: Any) -> Any:
        made.add(f"{self.meta.service_model.service_name}:{operation}")
        return real(self, operation, arguments)

    botocore.client.BaseClient._make_api_call = call
    try:
        yield made
    finally:
        botocore.client.BaseClient._make_api_call = real


NAMES = {"elbv2": "elasticloadbalancing"}
"""Services whose rights have another name than their API."""


def whole_life(router: Router, cell: Any = CELL) -> None:
    """Let a router do all that a migration asks of it."""
    since = datetime.now(UTC) - timedelta(minutes=30)
    until = datetime.now(UTC) + timedelta(minutes=3)
    router.capabilities()
    for token, bp in ((1, 1_000), (2, 5_000), (3, 0)):
        router.fence(cell, Token(token))
        router.set(Split(cell=cell, target_bp=bp, cap_bp=10_000, token=Token(token), lease_until=until))
        router.read(cell)
        router.drain(cell, PoolId("mi300x"), Token(token))
        router.served(cell, Cursor(position="", since=since))


def test_the_albs_page_asks_for_the_rights_of_its_calls() -> None:
    from moto import mock_aws

    from fleetctl.adapters.aws.hands import RuleMarks
    from fleetctl.adapters.routers.alb.router import AlbRouter
    from fleetctl.adapters.routers.alb.wire import Elb
    from tests.fakes.alb_plane import AlbPlane, client

    with mock_aws():
        plane = AlbPlane(None, (CELL,))  # type: ignore[arg-type]
        plane.send(CELL, 10)
        with recorded() as made:
            for arn in (plane.rules[CELL], plane.listener):
                connection = Connection(name="edge", kind="alb", settings={f"rule.{CELL}": arn, "sticky_s": "60"})
                elb = Elb(lambda service: client(None, service), "edge", free)  # type: ignore[arg-type]
                router = AlbRouter(connection, elb=elb, sources={CELL: SOURCE}, now=lambda: datetime.now(UTC))
                whole_life(router)
                RuleMarks(lambda: client(None, "elbv2"), CELL, arn).find()  # type: ignore[arg-type]
    needed = {f"{NAMES.get(s, s)}:{operation}" for s, _, operation in (m.partition(":") for m in made)}
    assert needed == aws_rights("alb-router.md")


def test_the_gateways_page_asks_for_the_rights_of_its_calls() -> None:
    pytest.importorskip("kubernetes", reason="the client for Kubernetes is not installed: pip install 'fleetctl[kubernetes]'")
    from fleetctl.adapters.kubernetes.hands import Objects, RouteMarks
    from fleetctl.adapters.routers.httproute.router import HttpRouteRouter
    from fleetctl.adapters.routers.httproute.wire import Routes
    from tests.fakes.gateway_api import _route
    from tests.fakes.kube_objects import kube_objects

    with kube_objects(*CLUSTER) as api:
        made = _route(CELL)
        api.add("httproutes", CELL, made["spec"], generation=1)
        connection = Connection(name="edge", kind="httproute", settings={f"route.{CELL}": f"serving/{CELL}"})
        counted: Any = lambda c, since: None  # noqa: E731
        router = HttpRouteRouter(connection, routes=Routes(api.custom, "edge"), count=counted, sources={CELL: SOURCE}, seen_s=0)
        whole_life(router)
        marks = RouteMarks(lambda: Objects(api.custom()), CELL, f"serving/{CELL}")
        marks.find()
        marks.writer()
        assert set(api.asked) == kubernetes_rights("gateway-api-router.md")
        assert marks.writer() == "", "what we write is known as ours"


def life_of_a_pin(make: Callable[[], Any]) -> None:
    """Find, pin, watch, give back."""
    kept = Kept(joined(make()))
    kept.holds.found(HELD, (POOL,))
    kept.holds.pin(POOL, 0, Token(1), HELD)
    kept.clock.advance(timedelta(seconds=31))
    kept.holds.watch(POOL, HELD)
    kept.holds.restore(POOL, Token(1), HELD)


def test_the_page_about_holding_asks_for_the_rights_of_its_calls_on_aws() -> None:
    from moto import mock_aws

    from fleetctl.adapters.aws.hands import AsgHands

    with mock_aws():
        api = asg()
        ids = [i["InstanceId"] for g in api.describe_auto_scaling_groups()["AutoScalingGroups"] for i in g["Instances"]]
        with recorded() as made:
            life_of_a_pin(lambda: AsgHands(lambda: api, POOL, "h100"))
            life_of_a_pin(lambda: AsgHands(lambda: api, POOL, ids=lambda: ids))
    assert made == aws_rights("hold-the-source.md")


def test_the_page_about_holding_asks_for_the_rights_of_its_calls_on_azure() -> None:
    from fleetctl.adapters.azure.hands import VmssHands

    asked: set[str] = set()
    kept = {"gpus": setting(WAS)}

    class Arm:
        def call(self, method: str, path: str, version: str, body: Any = None) -> dict[str, Any]:
            kind = path.partition("/providers/")[2].split("/")
            asked.add(f"{kind[0]}/{kind[1]}/{'write' if method == 'PUT' else 'read'}")
            if body is not None:
                kept["gpus"] = {**kept["gpus"], **body}
            if "virtualMachineScaleSets" in path:
                return {"sku": {"capacity": NOW}}
            return kept["gpus"] if path.endswith("/gpus") else {"value": [kept["gpus"]]}

    life_of_a_pin(lambda: VmssHands(Arm, POOL, "rg-eastus2/pool-a"))
    (block,) = (json.loads(b) for b in blocks("hold-the-source.md", "json") if "Microsoft" in b)
    assert asked == set(block["Actions"])


def test_the_page_about_holding_asks_for_the_rights_of_its_calls_on_kubernetes() -> None:
    pytest.importorskip("kubernetes", reason="the client for Kubernetes is not installed: pip install 'fleetctl[kubernetes]'")
    from fleetctl.adapters.kubernetes.hands import DeploymentHands, Objects
    from tests.fakes.kube_objects import kube_objects

    with kube_objects(*CLUSTER) as api:
        api.add("statefulsets", "chat", {"replicas": NOW})
        api.add("horizontalpodautoscalers", "chat", {"scaleTargetRef": {"name": "chat"}, "minReplicas": WAS, "maxReplicas": 9})
        life_of_a_pin(lambda: DeploymentHands(lambda: Objects(api.custom()), POOL, "serving/chat"))
        api.drop("horizontalpodautoscalers", "chat")
        api.add("scaledobjects", "chat", {"scaleTargetRef": {"name": "chat"}, "minReplicaCount": WAS})
        life_of_a_pin(lambda: DeploymentHands(lambda: Objects(api.custom()), POOL, "serving/chat"))
        assert set(api.asked) == kubernetes_rights("hold-the-source.md")


def table(page: str, title: str) -> set[str]:
    """Return what stands in code in the first column of the table under a heading."""
    text = (PAGES / page).read_text("utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]
    first = re.findall(r"^\| (`.*?`) \|", text, re.MULTILINE)
    return {word for cell in first for word in re.findall(r"`([^`]+)`", cell)}


def test_the_haproxy_page_lists_the_commands_that_go_to_its_socket() -> None:
    folder = Path(__file__).resolve().parents[2] / "fleetctl/adapters/routers/haproxy"
    sources = [*(p for p in sorted(folder.glob("*.py")) if p.name != "config.py"), folder.parent / "paper.py"]
    text = "\n".join(p.read_text("utf-8") for p in sources)
    verbs = "fleetctl|show|get|set|add|clear|del|disable|enable|shutdown"
    sent = {m[1].removeprefix("fleetctl ") for m in re.finditer(rf'f?"((?:{verbs}) [a-z]+)(?: |")', text)}
    assert sent == table("bring-your-own-router.md", "Rights")


def test_the_envoy_page_lists_the_admin_paths_that_are_asked() -> None:
    folder = Path(__file__).resolve().parents[2] / "fleetctl/adapters/routers/envoy"
    text = "\n".join(p.read_text("utf-8") for p in sorted(folder.glob("*.py")) if p.name != "config.py")
    asked = {f"{m[1]} {m[2]}" for m in re.finditer(r'"(GET|POST)", f?"(/[a-z_]+)', text)}
    assert asked == table("envoy-router.md", "Rights")


def test_the_page_about_queues_asks_for_the_rights_of_its_calls(tmp_path: Path) -> None:
    from moto import mock_aws

    from fleetctl.adapters.routers.work.board import WorkSplit
    from fleetctl.adapters.routers.work.ledger import Ledger
    from fleetctl.adapters.routers.work.sqs import SqsBoard, SqsConsumer
    from fleetctl.domain.split import Served
    from tests.fakes.alb_plane import client

    page = (PAGES / "split-batch-work.md").read_text("utf-8")
    ours, theirs = (
        set(re.findall(r"`(sqs:\w+)`", part)) for part in page.partition("\nRights:")[2].split("\n\n")[0].split("consumers need")
    )
    burial = set(re.findall(r"\(right: `(sqs:\w+)` on that queue\)", page))
    with mock_aws():
        sqs = client(None, "sqs")  # type: ignore[arg-type]
        url, dead = (sqs.create_queue(QueueName=name)["QueueUrl"] for name in ("nightly", "dead"))
        sqs.send_message(QueueUrl=url, MessageBody="a")
        board = SqsBoard(lambda: sqs, {CELL: url}, lambda *_: Served(baseline=0, canary=0))
        with recorded() as made:
            whole_life(WorkSplit("nightly", board, sources={CELL: SOURCE}))
        assert made == ours
        ahead = [timedelta()]
        results = Ledger(tmp_path / "results.db", now=lambda: datetime.now(UTC) + ahead[0])
        with recorded() as made:
            consumer = SqsConsumer(board, sqs, url, CELL, "baseline", index=0, of=1, results=results)
            message = consumer.take()
            assert message is not None
            assert consumer.renew(message)
            assert consumer.done(message)
        assert made == theirs
        sqs.send_message(QueueUrl=url, MessageBody="poison")
        with recorded() as made:
            last = SqsConsumer(board, sqs, url, CELL, "baseline", index=0, of=1, results=results, most_tries=1, dead_letter=dead)
            taken = last.take()
            assert taken is not None
            sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=taken.receipt, VisibilityTimeout=0)
            ahead[0] = timedelta(hours=1)  # its consumer has died, and its hold is over
            assert last.take() is None
        assert made - theirs == burial
