"""The printed page brings customers home: its lines are run as they stand, against real routers and the doubles of clouds and clusters."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleetctl.adapters.routers.alb.router import TOKEN_TAG, AlbRouter
from fleetctl.adapters.routers.alb.wire import Elb
from fleetctl.adapters.routers.httproute.router import MARK
from fleetctl.adapters.routers.marks import read_mark
from fleetctl.adapters.routers.paper import paper_commands
from fleetctl.adapters.routers.route import Backends, backends_of
from fleetctl.adapters.routers.work.board import WorkSplit
from fleetctl.adapters.routers.work.ledger import Ledger
from fleetctl.domain.fleet import Connection, SecretRef
from fleetctl.domain.home import HOME_TOKEN_STEP
from fleetctl.domain.ids import CellId, Token
from fleetctl.domain.split import Stale
from fleetctl.errors import TrafficNotApplied
from tests.contract.test_router_clouds import route, split
from tests.fakes.elb_rules import free
from tests.fakes.gateway_api import NAMESPACE, GatewayApi, gateway_api
from tests.fakes.kubectl import install, place
from tests.fakes.paper import on_paper
from tests.lab.envoy_lab import EnvoyRig, envoy_rig
from tests.lab.haproxy_lab import CELL, SOURCE, STREAM, put, rig

pytestmark = pytest.mark.lab
KEYS = [f"user-{i}" for i in range(200)]


def needs(*programs: str) -> None:
    missing = [p for p in programs if shutil.which(p) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


@pytest.mark.parametrize("lua", [True, False])
def test_haproxy_traffic_goes_home_by_the_paper_and_a_restart_keeps_it(lua: bool) -> None:
    needs("socat", "cut", "sed")
    with rig(lua=lua) as own:
        own.healthy()
        router = own.router()
        put(router, 5_000, token=7)
        assert "c" in own.split(KEYS).values()
        said = on_paper(own.connection, CELL)
        assert set(own.split(KEYS).values()) == {"b"}, "every customer is answered by the source"
        assert any("UP,L7OK" in text for text in said.values()), said
        if lua:
            assert router.read(CELL).token == 7 + HOME_TOKEN_STEP
            assert isinstance(router.set(replace(split(5_000, 7), token=Token(7))), Stale), "a live controller is stale"
        own.process.restart()
        own.healthy()
        assert set(own.split(KEYS).values()) == {"b"}
        if lua:
            assert isinstance(own.router().fence(CELL, Token(8)), Stale), "and so is one that comes back after a restart"


@pytest.fixture
def envoy() -> Iterator[EnvoyRig]:
    with envoy_rig() as found:
        yield found


def test_envoy_traffic_goes_home_by_the_paper_and_a_restart_keeps_it(envoy: EnvoyRig) -> None:
    needs("curl", "sed", "grep")
    router = envoy.router()
    put(router, 5_000, token=7)
    assert "c" in envoy.split(KEYS).values()
    said = on_paper(envoy.connection, CELL)
    assert "OK" in said.values()
    assert any("health_flags" in text for text in said.values()), said
    assert set(envoy.split(KEYS).values()) == {"b"}
    assert router.read(CELL).token == 7 + HOME_TOKEN_STEP
    assert isinstance(router.set(split(5_000, 7)), Stale), "a live controller is stale"
    envoy.stop()
    envoy.start()
    envoy.healthy()
    assert set(envoy.split(KEYS).values()) == {"b"}
    assert isinstance(envoy.router().fence(CELL, Token(8)), Stale), "and so is one that comes back after a restart"


ARN = "arn:aws:elasticloadbalancing:us-east-1:1:listener-rule/app/edge/a/b/c"
GROUPS = {arm: f"arn:aws:elasticloadbalancing:us-east-1:1:targetgroup/{CELL}-{arm}/0" for arm in ("baseline", "canary")}


class Elbv2:
    """The client of the adapter: answers for one rule at one half, and keeps what is sent."""

    def __init__(self) -> None:
        self.weights = {"canary": 500, "baseline": 500}
        self.sent: list[dict[str, Any]] = []

    def describe_rules(self, RuleArns: list[str]) -> dict[str, Any]:  # noqa: N803 - boto3's names
        groups = [{"TargetGroupArn": GROUPS[arm], "Weight": w} for arm, w in self.weights.items()]
        return {"Rules": [{"RuleArn": RuleArns[0], "Actions": [{"Type": "forward", "ForwardConfig": {"TargetGroups": groups}}]}]}

    def describe_tags(self, ResourceArns: list[str]) -> dict[str, Any]:  # noqa: N803
        return {"TagDescriptions": [{"ResourceArn": ResourceArns[0], "Tags": [{"Key": TOKEN_TAG, "Value": "7"}]}]}

    def modify_rule(self, **sent: Any) -> None:
        self.sent.append(sent)
        self.weights = {
            arm: g["Weight"]
            for g in sent["Actions"][0]["ForwardConfig"]["TargetGroups"]
            for arm in GROUPS
            if GROUPS[arm] == g["TargetGroupArn"]
        }

    def add_tags(self, **sent: Any) -> None:
        pass


@pytest.mark.parametrize("named", [False, True])
def test_the_aws_lines_send_what_the_adapter_sends_argument_by_argument(named: bool, tmp_path: Path) -> None:
    """The lines are run in a real shell; `aws` is a double that keeps its arguments, and its queries are asked of the adapter's answers."""
    jmespath = pytest.importorskip("jmespath", reason="comes with boto3: pip install 'fleetctl[aws]'")

    double = tmp_path / "aws"
    answers = "\n".join(f"*{arm}/*) echo {GROUPS[arm]};;" for arm in GROUPS)
    double.write_text(
        f'#!/bin/sh\nfor a in "$@"; do printf "%s\\037" "$a"; done >> {tmp_path}/calls; echo >> {tmp_path}/calls\n'
        f'case "$*" in\n{answers}\n*fleetctl:token*describe*|*describe-tags*) echo 7;;\nesac\n'
    )
    double.chmod(0o700)
    names = Backends(baseline=f"{CELL}-baseline", canary=f"{CELL}-canary") if named else backends_of({}, CELL)
    connection = Connection(name="edge", kind="alb", settings={f"rule.{CELL}": ARN})
    on_paper(connection, CELL, names=names, env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    calls = [line.split("\x1f")[:-1] for line in (tmp_path / "calls").read_text().splitlines()]
    assert {tuple(c[:3]) for c in calls} == {("--region", "us-east-1", "elbv2")}
    by_verb = {c[3]: dict(zip(c[4::2], c[5::2], strict=True)) for c in calls}
    elb = Elbv2()
    router = AlbRouter(connection, elb=Elb(lambda _: elb, "edge", free), sources={CELL: SOURCE}, backends={CELL: names} if named else None)
    with suppress(TrafficNotApplied):  # this double keeps no tag, so the mark is never read back
        router.set(split(0, 7))
    assert by_verb["modify-rule"]["--rule-arn"] == elb.sent[0]["RuleArn"] == ARN
    assert json.loads(by_verb["modify-rule"]["--actions"]) == elb.sent[0]["Actions"]
    assert by_verb["add-tags"] == {"--resource-arns": ARN, "--tags": f"Key={TOKEN_TAG},Value={7 + HOME_TOKEN_STEP}"}
    rules, tags = Elbv2().describe_rules([ARN]), elb.describe_tags([ARN])
    found = {
        jmespath.search(c[c.index("--query") + 1], tags if "describe-tags" in c else rules) if "text" in c else ""
        for c in calls
        if "--query" in c
    }
    assert found == {"", "7", *GROUPS.values()}, "its queries find both groups and the token"


@pytest.fixture
def api() -> Iterator[GatewayApi]:
    pytest.importorskip("kubernetes", reason="the client for Kubernetes is not installed: pip install 'fleetctl[kubernetes]'")
    with gateway_api((CELL, STREAM)) as found:
        yield found


THIRD = {"name": "somebody-else", "port": 80, "weight": 0}


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (2, 1, 0), (1, 2, 0)])
@pytest.mark.parametrize("named", [("", ""), ("assistant-baseline", "assistant-canary"), ("old", "new")])
def test_the_kubectl_lines_bring_home_what_the_adapter_brings_home(
    api: GatewayApi, tmp_path: Path, order: tuple[int, ...], named: tuple[str, str]
) -> None:
    """Whatever the services are called and wherever they stand, in the cluster that the fleet file names; kubectl is a double."""
    needs("grep", "awk")
    names = Backends(baseline=named[0], canary=named[1]) if named[0] else None
    refs = api.routes[CELL]["spec"]["rules"][0]["backendRefs"]
    both = named if named[0] else ("assistant-baseline", "assistant-canary")
    refs[0]["name"], refs[1]["name"] = both
    api.routes[CELL]["spec"]["rules"][0]["backendRefs"] = [[*refs, THIRD][i] for i in order]
    router = route(api, backends={CELL: names} if names else {})
    token = router.read(CELL).token + 1
    router.fence(CELL, Token(token))
    router.set(split(5_000, token))
    env = install(tmp_path)
    staging = place(tmp_path, "", CELL, api.routes[CELL])
    place(tmp_path, "/etc/fleetctl/kubeconfig", CELL, api.routes[CELL])
    connection = Connection(
        name="edge", kind="httproute", settings={f"route.{CELL}": f"{NAMESPACE}/{CELL}", "kubeconfig": "/etc/fleetctl/kubeconfig"}
    )
    said = on_paper(connection, CELL, names=names, env=env)
    assert [text.partition(":")[2] for text in said.values() if text.partition(":")[2] in both] == list(both)
    home = place(tmp_path, "/etc/fleetctl/kubeconfig", CELL)
    router.set(split(0, token))
    assert home["spec"] == api.routes[CELL]["spec"]
    assert read_mark(home["metadata"]["annotations"][MARK]).token == token + HOME_TOKEN_STEP, "a live controller is stale"
    assert place(tmp_path, "", CELL) == staging, "another cluster's route of that name is left alone"


@pytest.mark.parametrize("services", [("a-baseline", "stranger"), ("a-baseline", "b-baseline", "a-canary"), ("x", "y")])
def test_the_kubectl_lines_touch_neither_weights_nor_token_where_the_sides_are_not_clear(
    api: GatewayApi, tmp_path: Path, services: tuple[str, ...]
) -> None:
    needs("grep", "awk")
    api.routes[CELL]["spec"]["rules"][0]["backendRefs"] = [{"name": name, "port": 80, "weight": 5_000} for name in services]
    standing = place(tmp_path, "", CELL, api.routes[CELL])
    connection = Connection(name="edge", kind="httproute", settings={f"route.{CELL}": f"{NAMESPACE}/{CELL}"})
    on_paper(connection, CELL, env=install(tmp_path), may_complain=True)
    assert place(tmp_path, "", CELL) == standing


def test_a_queue_goes_home_by_the_paper(tmp_path: Path) -> None:
    needs("sqlite3")
    ledger = Ledger(tmp_path / "it's work.db")
    ledger.add_cell(CELL)
    work = WorkSplit("q", ledger, sources={CELL: SOURCE})
    work.fence(CELL, Token(3))
    work.set(split(5_000, 3))
    connection = Connection(name="q", kind="queue", settings={"path": str(tmp_path / "it's work.db")})
    said = on_paper(connection, CELL)
    assert f"{CELL}|0|{3 + HOME_TOKEN_STEP}" in said.values()
    assert isinstance(work.set(split(5_000, 3)), Stale)
    with sqlite3.connect(tmp_path / "it's work.db") as db:
        assert db.execute("SELECT count(*) FROM splits").fetchone() == (1,)


TOOLS = ("aws", "awk", "chmod", "curl", "cut", "grep", "kubectl", "mv", "sed", "socat", "sqlite3", "tr")


@pytest.mark.parametrize("kind", ["alb", "envoy", "haproxy", "httproute", "queue", "sqs"])
def test_hostile_settings_run_nothing_and_no_secret_is_printed(kind: str, tmp_path: Path) -> None:
    """Every line is run in a real shell, with programs that do nothing."""
    for name in TOOLS:
        (tmp_path / name).symlink_to("/bin/true")
    (tmp_path / "touch").symlink_to(shutil.which("touch") or "/bin/touch")
    hostile = f"'; touch {tmp_path}/pwned; echo \"$(touch {tmp_path}/pwned)`touch {tmp_path}/pwned`"
    keys = (
        "socket",
        "map_folder",
        "admin",
        "runtime_folder",
        "rule",
        "route",
        "path",
        "queue",
        "region",
        "profile",
        "context",
        "kubeconfig",
    )
    secrets = {"pin_key": SecretRef(kind="env", name="PIN_KEY")}
    connection = Connection(name="edge", kind=kind, settings=dict.fromkeys(keys, hostile), secrets=secrets)
    on_paper(connection, CELL, names=Backends(baseline="b", canary="c"), endpoints=["h:1"], env={"PATH": str(tmp_path)}, may_complain=True)
    assert not (tmp_path / "pwned").exists()
    assert "PIN_KEY" not in "".join(paper_commands(connection, CELL, Backends(baseline="b", canary="c")))
    creds = replace(connection, kind="envoy", settings={"admin": "http://root:hunter2@edge:9901"})
    assert "hunter2" not in "".join(paper_commands(creds, CellId("chat"), Backends(baseline="b", canary="c")))
