"""What only routers of clouds and clusters have: optimistic concurrency, controllers that refuse or are late, other people's actions."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fleetctl.adapters.deadline import Deadline
from fleetctl.adapters.routers.alb.router import TAG, TOKEN_TAG, AlbRouter, _kept
from fleetctl.adapters.routers.alb.wire import Elb
from fleetctl.adapters.routers.httproute.router import MARK, HttpRouteRouter
from fleetctl.adapters.routers.httproute.wire import Routes
from fleetctl.adapters.routers.route import Backends
from fleetctl.adapters.routers.work.board import WorkSplit
from fleetctl.adapters.routers.work.sqs import SqsBoard
from fleetctl.domain.evidence import Cursor
from fleetctl.domain.fleet import Connection
from fleetctl.domain.home import HOME_TOKEN_STEP
from fleetctl.domain.ids import CellId, Token
from fleetctl.domain.split import Applied, Drained, Served, Split, Stale
from fleetctl.errors import TrafficNotApplied
from tests.fakes.alb_plane import AlbPlane, client
from tests.fakes.elb_rules import free
from tests.fakes.gateway_api import NAMESPACE, GatewayApi, gateway_api
from tests.fakes.moto_account import moto_server
from tests.lab.haproxy_lab import CELL, SOURCE, STREAM, TARGET

pytestmark = pytest.mark.lab
SOURCES = {CELL: SOURCE, STREAM: SOURCE}


def split(bp: int, token: int, cap: int = 10_000) -> Split:
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=3)
    return Split(cell=CELL, target_bp=bp, cap_bp=cap, token=Token(token), lease_until=at)


@pytest.fixture
def api() -> Iterator[GatewayApi]:
    pytest.importorskip("kubernetes", reason="the client for Kubernetes is not installed: pip install 'fleetctl[kubernetes]'")
    with gateway_api((CELL, STREAM)) as found:
        yield found


def route(
    api: GatewayApi, settings: dict[str, str] | None = None, seen_s: float = 0.2, backends: dict[CellId, Backends] | None = None
) -> HttpRouteRouter:
    named = {f"route.{CELL}": f"{NAMESPACE}/{CELL}", **(settings or {})}
    connection = Connection(name="edge", kind="httproute", settings=named)
    return HttpRouteRouter(connection, routes=Routes(api.custom, "edge"), sources=SOURCES, seen_s=seen_s, backends=backends)


def test_of_four_racing_writers_the_highest_token_stands_and_none_writes_over_another(api: GatewayApi) -> None:
    outcomes: dict[int, str] = {}

    def write(tokens: list[int]) -> None:
        router = route(api, seen_s=0)
        for token in tokens:
            if isinstance(router.fence(CELL, Token(token)), Stale):
                outcomes[token] = "fenced off"
                continue
            outcomes[token] = "set" if isinstance(router.set(split(token * 10, token)), Applied) else "stale"

    writers = [threading.Thread(target=write, args=(list(range(1 + n, 41, 4)),)) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(outcomes) == 40
    standing = route(api).read(CELL)
    assert (standing.token, standing.target_bp) == (40, 400), outcomes
    assert outcomes[40] == "set"


def test_a_controller_that_writes_in_between_costs_a_second_try(api: GatewayApi, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = Routes.replace, [0]

    def meddled(self: Routes, namespace: str, name: str, body: dict[str, Any], deadline: Deadline) -> None:
        calls[0] += 1
        if calls[0] in (1, 2):
            api.reconcile(CELL)  # the status is written: another resourceVersion
        real(self, namespace, name, body, deadline)

    monkeypatch.setattr(Routes, "replace", meddled)
    router = route(api)
    assert isinstance(router.fence(CELL, Token(1)), Split)
    assert isinstance(router.set(split(2_500, 1)), Applied)
    assert api.weights(CELL) == (2_500, 7_500)

    def always(self: Routes, namespace: str, name: str, body: dict[str, Any], deadline: Deadline) -> None:
        api.reconcile(CELL)
        real(self, namespace, name, body, deadline)

    monkeypatch.setattr(Routes, "replace", always)
    monkeypatch.setattr(Deadline.__init__, "__defaults__", (1.5,))
    with pytest.raises(TrafficNotApplied, match="written by somebody else all the time"):
        router.set(split(5_000, 1))
    assert api.weights(CELL) == (2_500, 7_500)


def test_home_comes_through_however_often_others_write_first(api: GatewayApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """A burst of a controller's own writes, longer than any fixed number of tries, ends within the time of one call."""
    router = route(api)
    router.fence(CELL, Token(1))
    router.set(split(2_500, 1))
    real, left = Routes.replace, [8]

    def meddled(self: Routes, namespace: str, name: str, body: dict[str, Any], deadline: Deadline) -> None:
        if left[0]:
            left[0] -= 1
            api.reconcile(CELL)
        real(self, namespace, name, body, deadline)

    monkeypatch.setattr(Routes, "replace", meddled)
    monkeypatch.setattr("fleetctl.adapters.routers.httproute.router.PAUSE_S", 0.01)
    assert isinstance(router.set(split(0, 1)), Applied)
    assert (api.weights(CELL), left) == ((0, 10_000), [0])


def test_a_gateway_that_is_late_is_reported_and_one_that_refuses_is_an_error(api: GatewayApi) -> None:
    router = route(api)
    router.fence(CELL, Token(1))
    api.sees = False
    done = router.set(split(1_000, 1))
    assert isinstance(done, Applied)
    assert done.reported == "gateway edge of router edge has not said that it has seen the new weights"
    assert "has not said" in done.split.unseen
    assert router.read(CELL).unseen == done.split.unseen
    with pytest.raises(TrafficNotApplied, match="raised no further") as refused:
        router.set(split(2_000, 1))
    assert (refused.value.code, api.weights(CELL)) == ("traffic.refused", (1_000, 9_000))
    api.sees = True
    api.reconcile(CELL)
    api.refuses = "NoMatchingParent"
    with pytest.raises(TrafficNotApplied, match=r"gateway edge refuses it: NoMatchingParent.*10 % stand again"):
        router.set(split(2_000, 1))
    assert api.weights(CELL) == (1_000, 9_000)
    done = router.set(split(500, 1))
    assert isinstance(done, Applied), "going down is never refused for what a gateway says"
    assert "refuses it: NoMatchingParent" in done.reported
    api.refuses = ""
    api.reconcile(CELL)
    done = router.set(split(0, 1))
    assert isinstance(done, Applied)
    assert (done.reported, done.split.unseen) == ("", "")


def test_a_route_whose_backends_the_gateway_does_not_find_is_never_raised_and_is_home(api: GatewayApi) -> None:
    api.unresolved = "RefNotPermitted"
    api.reconcile(CELL)
    router = route(api)
    router.fence(CELL, Token(1))
    for _ in range(3):
        with pytest.raises(TrafficNotApplied, match="refuses it: RefNotPermitted") as refused:
            router.set(split(1_000, 1))
        assert refused.value.code == "traffic.refused"
        assert api.weights(CELL) == (0, 1)
    done = router.set(split(0, 1))
    assert isinstance(done, Applied)
    assert api.weights(CELL)[0] == 0
    api.unresolved = ""
    api.reconcile(CELL)
    assert isinstance(router.set(split(1_000, 1)), Applied)


@pytest.mark.parametrize("fails", ["read", "late"])
def test_a_raise_that_cannot_be_shown_is_taken_back_in_the_same_call(api: GatewayApi, fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The read-back fails; or the write's answer does not come, and it reaches the API server after everybody stopped waiting."""
    router, real = route(api), Routes.replace
    router.fence(CELL, Token(1))
    router.set(split(500, 1))

    def lost(self: Routes, namespace: str, name: str, body: dict[str, Any], deadline: Deadline) -> None:
        monkeypatch.setattr(Routes, "replace", real)
        if fails == "read":
            real(self, namespace, name, body, deadline)
        else:
            held.append(body)
        raise TrafficNotApplied("traffic.router_down", "no answer.")

    held: list[dict[str, Any]] = []
    monkeypatch.setattr(Routes, "replace", lost)
    with pytest.raises(TrafficNotApplied, match=r"no answer\. 5 % stand again"):
        router.set(split(1_000, 1))
    assert api.weights(CELL) == (500, 9_500)
    for body in held:
        assert api.put(CELL, body)[0] == 409, "what was read is not what stands any more"
    assert api.weights(CELL) == (500, 9_500)


def test_a_route_that_loses_its_mark_lets_no_stale_controller_raise_and_everybody_go_home(api: GatewayApi) -> None:
    router, person = route(api), route(api)
    router.fence(CELL, Token(1))
    router.set(split(2_500, 1))
    high = 1 + HOME_TOKEN_STEP
    person.fence(CELL, Token(high))
    assert isinstance(router.set(split(5_000, 1)), Stale)
    api.routes[CELL]["metadata"]["annotations"].clear()
    assert router.read(CELL).token == person.read(CELL).token == high, "what was seen once is the floor"
    assert isinstance(router.fence(CELL, Token(2)), Stale)
    with pytest.raises(TrafficNotApplied, match=r"it shows no annotation .* which it had") as why:
        person.set(split(5_000, high))
    assert why.value.code == "traffic.not_shown"
    assert isinstance(person.set(split(0, high)), Applied)
    assert api.weights(CELL) == (0, 10_000)
    assert isinstance(person.fence(CELL, Token(high + 1)), Split)
    with pytest.raises(TrafficNotApplied, match="which it had"):
        person.set(split(1_000, high + 1))
    assert isinstance(person.fence(CELL, Token(high + HOME_TOKEN_STEP)), Split), "brought home since"
    assert isinstance(person.set(split(1_000, high + HOME_TOKEN_STEP)), Applied)


def test_a_renewal_and_a_step_down_leave_what_somebody_else_routes_to(api: GatewayApi) -> None:
    router = route(api)
    router.fence(CELL, Token(1))
    router.set(split(1_000, 1))
    refs = api.routes[CELL]["spec"]["rules"][0]["backendRefs"]
    refs.append({"name": "maintenance", "weight": 10_000})
    for minutes in range(3):
        shown = router.read(CELL)
        renewed = Split(
            cell=CELL,
            target_bp=shown.target_bp,
            cap_bp=10_000,
            token=Token(1),
            lease_until=shown.lease_until + timedelta(minutes=minutes + 1),
        )
        assert isinstance(router.set(renewed), Applied)
        refs = api.routes[CELL]["spec"]["rules"][0]["backendRefs"]
        assert [b["weight"] for b in refs] == [9_000, 1_000, 10_000]
    assert isinstance(router.set(split(200, 1)), Applied)
    refs = api.routes[CELL]["spec"]["rules"][0]["backendRefs"]
    assert [b["weight"] for b in refs] == [9_600, 400, 10_000]
    assert isinstance(router.set(split(0, 1)), Applied)
    assert [b["weight"] for b in api.routes[CELL]["spec"]["rules"][0]["backendRefs"]] == [10_000, 0, 10_000]


def test_an_httproute_keeps_what_is_not_ours_and_a_set_that_changes_nothing_writes_nothing(api: GatewayApi) -> None:
    router = route(api)
    router.fence(CELL, Token(1))
    wanted = split(1_000, 1)
    router.set(wanted)
    writes = api.writes
    assert isinstance(router.set(wanted), Applied)
    assert api.writes == writes
    found = api.routes[CELL]
    assert found["metadata"]["labels"] == {"team": "a"}
    assert found["spec"]["rules"][0]["matches"] == [{"path": {"type": "PathPrefix", "value": f"/{CELL}"}}]
    assert found["metadata"]["annotations"][MARK].startswith("10000:1:")


def test_t42_the_route_table_is_what_was_intended_after_every_action(api: GatewayApi) -> None:
    rng, token, standing = random.Random(42), 0, 0
    router = route(api, seen_s=0)
    names = [f"{CELL}-baseline", f"{CELL}-canary"]
    for _ in range(60):
        match rng.choice(("fence", "set", "set", "stale", "home")):
            case "fence":
                token += rng.randrange(1, 3)
                assert isinstance(router.fence(CELL, Token(token)), Split)
            case "set":
                standing = rng.choice((0, 500, 1_000, 2_500, 5_000, 9_500, 10_000)) if token else 0
                assert isinstance(router.set(split(standing, token)), Applied)
            case "stale":
                assert isinstance(router.set(split(7_700, token + 1)), Stale)
            case _:
                token, standing = token + 2**20, 0
                assert isinstance(router.fence(CELL, Token(token)), Split)
                assert isinstance(router.set(split(0, token)), Applied)
        rule = api.routes[CELL]["spec"]["rules"][0]
        assert [b["name"] for b in rule["backendRefs"]] == names, "no route leaks, none is lost"
        canary, baseline = api.weights(CELL)
        assert canary * 10_000 == standing * (canary + baseline)
        assert len(api.routes[CELL]["spec"]["rules"]) == 1
        assert api.routes[STREAM]["spec"]["rules"][0]["backendRefs"][1]["weight"] == 0, "the other cell stays where it is"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda b: b.append({"name": "third", "weight": 5}), "it routes to third too, which is neither side"),
        (lambda b: [x.update(weight=0) for x in b], "both weights are 0"),
    ],
)
def test_a_rule_that_is_no_plain_split_is_never_raised_and_may_always_go_home(api: GatewayApi, change: Any, said: str) -> None:
    router = route(api)
    router.fence(CELL, Token(1))
    router.set(split(1_000, 1))
    change(api.routes[CELL]["spec"]["rules"][0]["backendRefs"])
    with pytest.raises(TrafficNotApplied) as refused:
        router.set(split(9_000, 1))
    assert said in str(refused.value)
    assert refused.value.code == "traffic.not_shown"
    assert isinstance(router.set(split(0, 1)), Applied)
    assert api.weights(CELL)[0] == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda b: b.pop(), "no backend ...-canary is in its rule"),
        (lambda b: b.append(dict(b[1])), "more than one backend ...-canary"),
    ],
)
def test_sides_that_cannot_be_told_apart_are_refused_with_the_reason(api: GatewayApi, change: Any, said: str) -> None:
    change(api.routes[CELL]["spec"]["rules"][0]["backendRefs"])
    with pytest.raises(TrafficNotApplied) as refused:
        route(api).read(CELL)
    assert said in str(refused.value)


def test_weights_of_others_are_read_as_shares_and_a_rule_beyond_the_last_is_told(api: GatewayApi) -> None:
    baseline, canary = api.routes[CELL]["spec"]["rules"][0]["backendRefs"]
    baseline["weight"], canary["weight"] = 3, 1
    assert route(api).read(CELL).target_bp == 2_500
    with pytest.raises(TrafficNotApplied, match="has 1 rules"):
        route(api, {f"route.{CELL}": f"{NAMESPACE}/{CELL}#3"}).read(CELL)
    with pytest.raises(TrafficNotApplied, match="such as namespace/name"):
        route(api, {f"route.{CELL}": "x; kubectl delete"}).read(CELL)


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with moto_server(tmp_path_factory.mktemp("moto")) as url:
        yield url


@pytest.fixture(scope="module")
def plane(moto: str) -> AlbPlane:
    return AlbPlane(moto, (CELL, STREAM))


def router_settings(plane: AlbPlane) -> dict[str, str]:
    return {f"rule.{cell}": arn for cell, arn in plane.rules.items()}


def elb_of(plane: AlbPlane) -> Elb:
    return Elb(lambda service: client(plane.url, service), "edge", free)


def alb(plane: AlbPlane, settings: dict[str, str] | None = None, now: datetime | None = None) -> AlbRouter:
    connection = Connection(name="edge", kind="alb", settings=router_settings(plane) | (settings or {}))
    return AlbRouter(connection, elb=elb_of(plane), now=lambda: now or datetime.now(UTC), sources=SOURCES)


def actions_of(plane: AlbPlane) -> list[dict[str, Any]]:
    return client(plane.url, "elbv2").describe_rules(RuleArns=[plane.rules[CELL]])["Rules"][0]["Actions"]  # type: ignore[no-any-return]


def token_above(router: AlbRouter) -> int:
    token = router.read(CELL).token + 1
    assert isinstance(router.fence(CELL, Token(token)), Split)
    return token


@pytest.mark.parametrize("bp", [0, 10, 1_000, 2_500, 5_000, 9_500, 9_990, 10_000])
def test_every_share_that_an_alb_can_hold_is_read_back_exactly_within_its_weights(plane: AlbPlane, bp: int) -> None:
    router = alb(plane)
    token = token_above(router)
    assert isinstance(router.set(split(bp, token)), Applied)
    assert router.read(CELL).target_bp == bp
    weights = [g["Weight"] for g in actions_of(plane)[-1]["ForwardConfig"]["TargetGroups"]]
    assert all(0 <= w <= 999 for w in weights), "moto takes 1,000, AWS does not"


def test_a_share_between_two_weights_is_refused_and_nothing_moves(plane: AlbPlane) -> None:
    router = alb(plane)
    token = token_above(router)
    router.set(split(1_000, token))
    with pytest.raises(TrafficNotApplied, match=r"in steps of 0.1 %, not 10.05 %") as refused:
        router.set(split(1_005, token))
    assert refused.value.code == "traffic.unrealisable"
    assert router.read(CELL).target_bp == 1_000


def test_neither_a_late_fence_nor_a_late_set_brings_anybody_back(plane: AlbPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller has read what stands; a person brings the cell home; the controller goes on with what it had read."""
    late, person, homes = alb(plane), alb(plane), list[int]()
    token = token_above(late)
    late.set(split(2_500, token))
    real = AlbRouter._standing

    def meanwhile(self: AlbRouter, cell: Any, deadline: Deadline) -> Any:
        found = real(self, cell, deadline)
        if self is late and homes:
            high = homes.pop()
            assert isinstance(person.fence(CELL, Token(high)), Split)
            assert isinstance(person.set(split(0, high)), Applied)
        return found

    monkeypatch.setattr(AlbRouter, "_standing", meanwhile)
    homes.append(token + 2**20)
    late.fence(CELL, Token(token + 1))
    assert person.read(CELL).target_bp == 0
    again = token + 2**21
    person.fence(CELL, Token(again))
    person.set(split(2_500, again))
    homes.append(again + 1)
    assert late.set(split(5_000, again)) == Stale(cell=CELL, seen=Token(again + 1))
    assert person.read(CELL).target_bp == 0, "the last word of a writer that was fenced off is home"


class _LateElb:
    """A client whose next change of a rule reaches AWS only when it may, long after everybody stopped waiting."""

    def __init__(self, real: Any) -> None:
        self._real, self.gate, self.is_late, self.came = real, threading.Event(), False, threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def modify_rule(self, **given: Any) -> Any:
        if not self.is_late:
            return self._real.modify_rule(**given)
        self.is_late = False
        self.gate.wait(30)
        done = self._real.modify_rule(**given)
        self.came.set()
        return done


def _late_raise(plane: AlbPlane, monkeypatch: pytest.MonkeyPatch) -> tuple[AlbRouter, _LateElb, int]:
    """Return a router whose raise to 50 % has no answer yet and may still come, and its token."""
    late = _LateElb(client(plane.url, "elbv2"))
    elb = Elb(lambda service: late if service == "elbv2" else client(plane.url, service), "edge", free)
    router = AlbRouter(Connection(name="edge", kind="alb", settings=router_settings(plane)), elb=elb, sources=SOURCES)
    token = token_above(router)
    router.set(split(2_500, token))
    late.is_late = True
    monkeypatch.setattr(Deadline.__init__, "__defaults__", (2.5,))
    with pytest.raises(TrafficNotApplied, match="no answer"):
        router.set(split(5_000, token))
    return router, late, token


def test_a_raise_that_reaches_aws_after_we_went_home_is_taken_back_before_home_is_said(
    plane: AlbPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    router, late, token = _late_raise(plane, monkeypatch)
    with pytest.raises(TrafficNotApplied, match="may still come"):
        router.set(split(0, token))
    assert router.read(CELL).target_bp == 0, "customers are home at once; it is not called done"
    timer = threading.Timer(0.5, late.gate.set)
    timer.start()
    assert isinstance(router.set(split(0, token)), Applied)
    timer.join()
    assert late.came.is_set()
    assert router.read(CELL).target_bp == 0


def test_a_raise_that_reaches_aws_after_somebody_else_went_home_is_taken_back(plane: AlbPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    _, late, token = _late_raise(plane, monkeypatch)
    person = alb(plane)
    person.fence(CELL, Token(token + 2**20))
    assert isinstance(person.set(split(0, token + 2**20)), Applied)
    late.gate.set()
    assert late.came.wait(10)
    end = time.monotonic() + 10
    while person.read(CELL).target_bp and time.monotonic() < end:
        time.sleep(0.02)
    assert person.read(CELL).target_bp == 0


def test_going_home_in_parts_is_never_refused_for_its_share(plane: AlbPlane) -> None:
    router = alb(plane)
    token = token_above(router)
    router.set(split(5_000, token))
    done = router.set(split(3_333, token))  # two of three source replicas answer
    assert isinstance(done, Applied)
    assert done.split.target_bp == router.read(CELL).target_bp == 3_330


def test_stickiness_is_ours_alone_and_off_at_zero_and_signing_in_stays(plane: AlbPlane) -> None:
    sign_in = {
        "Type": "authenticate-cognito",
        "Order": 1,
        "AuthenticateCognitoConfig": {
            "UserPoolArn": "arn:aws:cognito-idp:us-east-1:1:userpool/a",
            "UserPoolClientId": "b",
            "UserPoolDomain": "c",
        },
    }
    rule = plane.rules[CELL]
    client(plane.url, "elbv2").modify_rule(RuleArn=rule, Actions=[sign_in, {**plane.forward(CELL, 0, 1), "Order": 2}])
    router = alb(plane, {"sticky_s": "3600"}, datetime.now(UTC) + timedelta(hours=2))  # cookies of the tests before are over
    token = token_above(router)
    router.set(split(2_500, token))
    first, last = actions_of(plane)
    assert first["Type"] == "authenticate-cognito"
    assert last["ForwardConfig"]["TargetGroupStickinessConfig"] == {"Enabled": True, "DurationSeconds": 3600}
    router.set(split(0, token))
    first, last = actions_of(plane)
    assert first["Type"] == "authenticate-cognito"
    assert last["ForwardConfig"]["TargetGroupStickinessConfig"]["Enabled"] is False, "else it would keep clients on the target"
    client(plane.url, "elbv2").modify_rule(RuleArn=rule, Actions=[plane.forward(CELL, 0, 1)])


def test_open_requests_count_as_open_until_the_longest_answer_is_over(plane: AlbPlane) -> None:
    now = datetime.now(UTC)
    long = {"longest_answer_s": "300"}
    router = alb(plane, long, now)
    token = token_above(router)
    router.set(split(1_000, token))
    assert router.drain(CELL, TARGET, Token(token)) == Drained(open_streams=1)
    router.set(split(0, token))
    assert router.drain(CELL, TARGET, Token(token)) == Drained(open_streams=1)
    assert alb(plane, long, now + timedelta(seconds=299)).drain(CELL, TARGET, Token(token)) == Drained(open_streams=1)
    assert alb(plane, long, now + timedelta(seconds=301)).drain(CELL, TARGET, Token(token)) == Drained(open_streams=0)


def test_a_listener_without_rules_is_split_too_and_a_foreign_group_is_named(plane: AlbPlane) -> None:
    router = alb(plane, {f"rule.{CELL}": plane.listener})
    token = token_above(router)
    assert isinstance(router.set(split(1_000, token)), Applied)
    assert router.read(CELL).target_bp == 1_000
    tags = client(plane.url, "elbv2").describe_tags(ResourceArns=[plane.listener])["TagDescriptions"][0]["Tags"]
    assert [t["Value"].split(":")[:2] for t in tags if t["Key"] == TAG] == [["10000", str(token)]]
    assert {"Key": TOKEN_TAG, "Value": str(token)} in tags
    other = plane.groups[STREAM, "canary"]
    forward = plane.forward(CELL, 1, 1)
    forward["ForwardConfig"]["TargetGroups"].append({"TargetGroupArn": other, "Weight": 1})
    client(plane.url, "elbv2").modify_listener(ListenerArn=plane.listener, DefaultActions=[forward])
    with pytest.raises(TrafficNotApplied, match="more than one target group"):
        router.read(CELL)
    own = {**router_settings(plane), f"rule.{CELL}": plane.listener}
    named = {CELL: Backends(baseline=f"{CELL}-baseline", canary=f"{CELL}-canary")}
    clear = AlbRouter(Connection(name="edge", kind="alb", settings=own), elb=elb_of(plane), sources=SOURCES, backends=named)
    with pytest.raises(TrafficNotApplied, match="which is neither side"):
        clear.set(split(9_000, token))
    assert isinstance(clear.set(split(0, token)), Applied), "home all the same"


def test_what_aws_needs_to_keep_a_sign_in_is_sent_back() -> None:
    kept = _kept({"Type": "authenticate-oidc", "AuthenticateOidcConfig": {"ClientId": "a", "ClientSecret": "never told"}})
    assert kept["AuthenticateOidcConfig"] == {"ClientId": "a", "UseExistingClientSecret": True}


def test_a_rule_that_is_gone(plane: AlbPlane) -> None:
    gone = plane.rules[CELL][:-4] + "0000"
    with pytest.raises(TrafficNotApplied) as refused:
        alb(plane, {f"rule.{CELL}": gone}).read(CELL)
    assert refused.value.code == "traffic.unknown_cell"


class _Slow:
    """A server that takes a call and sends one byte a second: no read of it ever times out."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.is_open = True
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while self.is_open:
            with suppress(OSError):
                link, _ = self.listener.accept()
                threading.Thread(target=self._trickle, args=(link,), daemon=True).start()

    def _trickle(self, link: socket.socket) -> None:
        with link, suppress(OSError):
            link.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
            while self.is_open:
                link.sendall(b" ")
                time.sleep(0.2)

    def close(self) -> None:
        self.is_open = False
        self.listener.close()


@pytest.mark.parametrize("kind", ["alb", "httproute", "sqs"])
def test_no_call_waits_longer_than_its_limit_even_where_the_answer_never_ends(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every method ends within the one limit of a call (5 s; here 1 s), though each read of the client gets its byte in time."""
    monkeypatch.setattr(Deadline.__init__, "__defaults__", (1.0,))
    slow = _Slow()

    def never(c: CellId, since: datetime) -> Served:
        time.sleep(30)
        raise AssertionError

    if kind == "alb":
        settings = {f"rule.{CELL}": "arn:aws:elasticloadbalancing:us-east-1:1:listener-rule/app/edge/1/2/3"}
        elb = Elb(lambda service: client(slow.url, service), "edge", free)
        router: Any = AlbRouter(Connection(name="edge", kind="alb", settings=settings), elb=elb, sources=SOURCES)
    elif kind == "sqs":
        board = SqsBoard(lambda: client(slow.url, "sqs"), {CELL: f"{slow.url}/1/{CELL}"}, never)
        router = WorkSplit("edge", board, sources=SOURCES)
    else:
        pytest.importorskip("kubernetes")
        import kubernetes.client

        found = kubernetes.client.Configuration(host=slow.url)
        found.retries = 0
        custom = kubernetes.client.CustomObjectsApi(kubernetes.client.ApiClient(found))
        connection = Connection(name="edge", kind="httproute", settings={f"route.{CELL}": f"{NAMESPACE}/{CELL}"})
        router = HttpRouteRouter(connection, routes=Routes(lambda: custom, "edge"), sources=SOURCES, count=never)
    calls: dict[str, Callable[[], object]] = {
        "read": lambda: router.read(CELL),
        "fence": lambda: router.fence(CELL, Token(1)),
        "set": lambda: router.set(split(1_000, 1)),
        "drain": lambda: router.drain(CELL, TARGET, Token(1)),
        "served": lambda: router.served(CELL, Cursor(position="", since=datetime.now(UTC) - timedelta(minutes=5))),
    }
    try:
        for name, call in calls.items():
            began = time.monotonic()
            with pytest.raises(TrafficNotApplied) as refused:
                call()
            assert time.monotonic() - began < 2.5, name
            assert refused.value.code in ("traffic.router_down", "traffic.not_shown")
    finally:
        slow.close()


def test_a_late_gateway_leaves_time_to_read_back_what_was_set(api: GatewayApi) -> None:
    router = route(api, seen_s=60.0)
    router.fence(CELL, Token(1))
    api.sees = False
    began = time.monotonic()
    done = router.set(split(1_000, 1))
    assert isinstance(done, Applied)
    assert "has not said" in done.reported
    assert time.monotonic() - began < 5.0
