"""The printed page brings customers home: its lines are run as they stand, against real routers and the doubles of clouds and clusters."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleetctl.adapters.routers.alb.router import TOKEN_TAG, AlbRouter
from fleetctl.adapters.routers.alb.wire import Elb
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
from tests.fakes.gateway_api import NAMESPACE, GatewayApi, gateway_api
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
    router = AlbRouter(connection, elb=Elb(lambda _: elb, "edge"), sources={CELL: SOURCE}, backends={CELL: names} if named else None)
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


@pytest.mark.parametrize("swapped", [False, True])
def test_the_kubectl_patch_is_what_the_adapter_writes_and_refuses_other_backends(api: GatewayApi, swapped: bool) -> None:
    """kubectl itself is not run: its patch is applied here to the double's object, as RFC 6902 says."""
    if swapped:
        api.routes[CELL]["spec"]["rules"][0]["backendRefs"].reverse()
    router = route(api)
    token = router.read(CELL).token + 1
    router.fence(CELL, Token(token))
    router.set(split(5_000, token))
    standing = deepcopy(api.routes[CELL])
    connection = Connection(name="edge", kind="httproute", settings={f"route.{CELL}": f"{NAMESPACE}/{CELL}"})
    line = next(x for x in paper_commands(connection, CELL, backends_of({}, CELL)) if " patch " in x)
    tries = [shlex.split(part) for part in line.split(" || ")]
    applied = []
    for words in tries:
        assert words[:6] == ["kubectl", "-n", NAMESPACE, "patch", "httproute", CELL]
        assert words[6:8] == ["--type=json", "-p"]
        done = patched(standing, json.loads(words[8]))
        if done is not None:
            applied.append(done)
    assert len(applied) == 1, "exactly one of both fits the order of the backends"
    router.set(split(0, token))
    assert applied[0]["spec"] == api.routes[CELL]["spec"]
    stranger = deepcopy(standing)
    stranger["spec"]["rules"][0]["backendRefs"][0]["name"] = "somebody-else"
    assert [patched(stranger, json.loads(words[8])) for words in tries] == [None, None]


def patched(whole: dict[str, Any], steps: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Apply a JSON patch of tests and adds; None where a test fails, which leaves everything as it was."""
    found = deepcopy(whole)
    for step in steps:
        *path, last = step["path"].strip("/").split("/")
        at: Any = found
        for part in path:
            at = at[int(part)] if isinstance(at, list) else at[part]
        if step["op"] == "test" and at.get(last) != step["value"]:
            return None
        if step["op"] == "add":
            at[last] = step["value"]
    return found


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
    keys = ("socket", "map_folder", "admin", "runtime_folder", "rule", "route", "path", "queue", "region", "profile", "context")
    secrets = {"pin_key": SecretRef(kind="env", name="PIN_KEY")}
    connection = Connection(name="edge", kind=kind, settings=dict.fromkeys(keys, hostile), secrets=secrets)
    on_paper(connection, CELL, names=Backends(baseline="b", canary="c"), endpoints=["h:1"], env={"PATH": str(tmp_path)}, may_complain=True)
    assert not (tmp_path / "pwned").exists()
    assert "PIN_KEY" not in "".join(paper_commands(connection, CELL, Backends(baseline="b", canary="c")))
    creds = replace(connection, kind="envoy", settings={"admin": "http://root:hunter2@edge:9901"})
    assert "hunter2" not in "".join(paper_commands(creds, CellId("chat"), Backends(baseline="b", canary="c")))
