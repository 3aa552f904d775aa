"""Composition root, routers by kind: the adapter of a connection, its prober. Never decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleetctl.adapters.routers.prober import Replicas
    from fleetctl.adapters.routers.route import Backends
    from fleetctl.domain.evidence import Arm
    from fleetctl.domain.fleet import Connection
    from fleetctl.domain.ids import CellId, PoolId
    from fleetctl.domain.split import Served
    from fleetctl.domain.units import Instant
    from fleetctl.ports.traffic import Prober, Router, Together

KINDS = ("alb", "envoy", "haproxy", "httproute", "queue", "sqs")
"""Kinds of routers that there is an adapter for."""
PINNING = ("envoy", "haproxy")
"""Those through which a probe may choose its side; with the others replicas are asked at their own addresses."""
Sources = Mapping["CellId", "PoolId"]
Names = Mapping["CellId", "Backends"]
CALL_S = 2
"""Longest wait for one call to a cloud: a set makes about five of them."""


def make_router(connection: Connection, sources: Sources, backends: Names) -> Router:
    """Return the adapter of a router.

    Raises:
        ConfigInvalid: config.router_kind, config.router; CredentialsMissing: credentials.*; ToolMissing: tool.kubernetes.
    """
    makers: dict[str, Callable[[Connection, Sources, Names], Router]] = {
        "alb": _alb,
        "envoy": _envoy,
        "haproxy": _haproxy,
        "httproute": _httproute,
        "queue": _queue,
        "sqs": _sqs,
    }
    return makers[_known(connection)](connection, sources, backends)


def _haproxy(connection: Connection, sources: Sources, backends: Names) -> Router:
    from fleetctl.adapters.routers.haproxy.router import HaproxyRouter

    return HaproxyRouter(connection, sources=sources, backends=backends)


def make_together(connection: Connection, sources: Sources, backends: Names) -> Together | None:
    """Return the adapter of a router that takes words for many cells at a time, None for the other kinds."""
    if connection.kind != "haproxy":
        return None
    from fleetctl.adapters.routers.haproxy.router import HaproxyRouter

    return HaproxyRouter(connection, sources=sources, backends=backends)


def _envoy(connection: Connection, sources: Sources, backends: Names) -> Router:
    from fleetctl.adapters.routers.envoy.router import EnvoyRouter

    return EnvoyRouter(connection, sources=sources, backends=backends)


def _alb(connection: Connection, sources: Sources, backends: Names) -> Router:
    from fleetctl.adapters.aws.client import AwsAccess, AwsApi
    from fleetctl.adapters.routers.alb.router import AlbRouter
    from fleetctl.adapters.routers.alb.wire import Elb

    settings = connection.settings
    api = AwsApi(AwsAccess(profile=settings.get("profile", ""), endpoint=settings.get("endpoint", "")))
    rules = [text for key, text in settings.items() if key == "rule" or key.startswith("rule.")]
    region = settings.get("region") or (rules[0].split(":")[3] if rules and rules[0].count(":") > 3 else "")
    if not region:
        region = needed_setting(connection, "region", "load balancer: its rules are no ARNs")

    def client(service: str) -> Any:
        return api.client(service, region, wait_s=CALL_S)

    return AlbRouter(connection, elb=Elb(client, connection.name), sources=sources, backends=backends)


def _httproute(connection: Connection, sources: Sources, backends: Names) -> Router:
    from fleetctl.adapters.deadline import Once
    from fleetctl.adapters.kubernetes.client import ClusterAccess, ClusterApi, need_client
    from fleetctl.adapters.routers.httproute.router import HttpRouteRouter
    from fleetctl.adapters.routers.httproute.wire import Routes

    settings = connection.settings
    access = ClusterAccess(kubeconfig=settings.get("kubeconfig", ""), context=settings.get("context", ""))
    need_client()
    routes = Routes(Once(lambda: ClusterApi(access, retries=0).custom), connection.name)
    return HttpRouteRouter(connection, routes=routes, count=_counter(connection), sources=sources, backends=backends)


def _queue(connection: Connection, sources: Sources, backends: Names) -> Router:
    from pathlib import Path

    from fleetctl.adapters.routers.work.board import WorkSplit
    from fleetctl.adapters.routers.work.ledger import Ledger

    path = Path(needed_setting(connection, "path", "queue"))
    logs = connection.settings.get("log_folder", "")
    ledger = Ledger(path, log=Path(logs) / "work-1.log" if logs else None)
    for c in sources:
        ledger.add_cell(c)
    return WorkSplit(connection.name, ledger, sources=sources)


def _sqs(connection: Connection, sources: Sources, backends: Names) -> Router:
    from pathlib import Path

    from fleetctl.adapters.aws.client import AwsAccess, AwsApi
    from fleetctl.adapters.deadline import Once
    from fleetctl.adapters.routers.served import served_by_log
    from fleetctl.adapters.routers.work.board import WorkSplit
    from fleetctl.adapters.routers.work.ledger import Ledger
    from fleetctl.adapters.routers.work.sqs import SqsBoard
    from fleetctl.errors import TrafficNotApplied

    settings = connection.settings
    logs = Path(needed_setting(connection, "log_folder", "results of jobs"))
    urls = {c: url for c in sources if (url := settings.get(f"queue.{c}") or settings.get("queue", ""))}
    region = needed_setting(connection, "region", "queue")
    api = AwsApi(AwsAccess(profile=settings.get("profile", ""), endpoint=settings.get("endpoint", "")))
    client = Once(lambda: api.client("sqs", region, wait_s=CALL_S))
    results = Path(settings.get("results", ""))

    def held(c: CellId, on_target: bool) -> int:
        if not results.is_file():
            text = f"router {connection.name}: {results}, the file of its consumers' results, is not there."
            raise TrafficNotApplied("traffic.not_shown", text, hint="Correct results in the fleet file, or leave it out")
        return Ledger(results).held(c, on_target=on_target)

    board = SqsBoard(
        client, urls, lambda c, since: served_by_log(connection.name, logs, c, since), held if settings.get("results") else None
    )
    return WorkSplit(connection.name, board, sources=sources)


def _counter(connection: Connection) -> Callable[[CellId, Instant], Served] | None:
    """Return what counts who answered from two counters in Prometheus; None where the fleet file names none."""
    settings = connection.settings
    if not all(settings.get(key) for key in ("prometheus", "served.baseline", "served.canary")):
        return None
    from fleetctl.adapters.prometheus.client import PrometheusApi
    from fleetctl.adapters.prometheus.scrapes import checked_series
    from fleetctl.domain.split import Served
    from fleetctl.errors import FleetctlError, TrafficNotApplied

    api = PrometheusApi(settings["prometheus"], tries=1, timeout_s=CALL_S)

    def count(c: CellId, since: Instant) -> Served:
        seconds = max(1, round((datetime.now(UTC) - since).total_seconds()))
        found = {}
        try:
            for arm in ("baseline", "canary"):
                series = checked_series(settings[f"served.{arm}"].replace("CELL", c))
                told = api.query(f"sum(increase({series}[{seconds}s])) or 0 * sum({series})")  # few samples are 0; no series is nothing
                if not told:
                    text = f"router {connection.name}: Prometheus has no series {series}, so who answered is not known."
                    raise TrafficNotApplied("traffic.not_shown", text, hint="Correct served.baseline and served.canary in the fleet file.")
                found[arm] = round(sum(sample.value for sample in told))
        except TrafficNotApplied:
            raise
        except FleetctlError as e:
            raise TrafficNotApplied("traffic.not_shown", f"router {connection.name}: who answered is not known: {e.message}") from e
        return Served(baseline=found["baseline"], canary=found["canary"])

    return count


def make_prober(
    connection: Connection,
    backends: Names,
    *,
    pin_key: Callable[[], str],
    sources: Sources,
    models: Mapping[CellId, str] | None = None,
    endpoints: Callable[[CellId, Arm], tuple[str, ...]],
) -> Prober:
    """Return what proves replicas, through the router where it lets probes choose. Raises ConfigInvalid (config.router_kind)."""
    from fleetctl.adapters.routers.prober import CompletionProber, EndpointProber

    if _known(connection) not in PINNING:
        return EndpointProber(endpoints, sources=sources, models=models)
    return CompletionProber(connection, replicas=_replicas(connection, backends), pin_key=pin_key, sources=sources, models=models)


def _replicas(connection: Connection, backends: Names) -> Replicas:
    if connection.kind == "envoy":
        from fleetctl.adapters.routers.envoy import router as envoy

        return envoy.replicas_of(connection, backends)
    from fleetctl.adapters.routers.haproxy import router as haproxy

    return haproxy.replicas_of(connection, backends)


def cut_streams(connection: Connection, c: CellId, backends: Names) -> int:
    """End what the target of a cell still answers, and return how many streams there were.

    Raises:
        TrafficNotApplied: traffic.router_down, traffic.unknown_cell, traffic.cannot_cut where this kind of router has no word for it.
    """
    if connection.kind == "haproxy":
        from fleetctl.adapters.routers.haproxy import router as haproxy

        return haproxy.cut_streams(connection, c, backends)
    from fleetctl.errors import TrafficNotApplied

    text = f"router {connection.name} ({connection.kind}) cannot end the target's open streams of {c}; they finish by themselves."
    raise TrafficNotApplied("traffic.cannot_cut", text, hint="To end them all the same, stop the target's servers")


def needed_setting(connection: Connection, key: str, what: str) -> str:
    """Return a setting of a router without which something cannot be done. Raises ConfigInvalid (config.router)."""
    found = connection.settings.get(key, "")
    if not found:
        from fleetctl.errors import ConfigInvalid

        text = f"router {connection.name} ({connection.kind}) has no setting {key}, so it gives no {what}."
        raise ConfigInvalid("config.router", text, hint="Add it, or name another source of evidence in the cell.")
    return found


def set_shadow_rate(router: Router, c: CellId, copies_per_s: float, requests_per_s: float, max_share: float) -> None:
    """Let a router copy a cell's requests to the collector: never more than that share of them, and at most so many a second, which a
    router that cannot count takes from the declared traffic.

    Raises:
        ConfigInvalid: config.router, a router that cannot copy; TrafficNotApplied: as the router's own `set_shadow`.
    """
    from fleetctl.adapters.routers.envoy.router import EnvoyRouter
    from fleetctl.adapters.routers.haproxy.router import HaproxyRouter

    if isinstance(router, HaproxyRouter):
        router.set_shadow(c, copies_per_s, max_share)
    elif isinstance(router, EnvoyRouter):
        wanted = copies_per_s / requests_per_s if requests_per_s > 0 else float(copies_per_s > 0)
        router.set_shadow(c, min(max_share, wanted))
    elif copies_per_s > 0:
        from fleetctl.errors import ConfigInvalid

        text = f"the router of {c} cannot copy requests, so there is nothing to compare."
        raise ConfigInvalid("config.router", text, hint="Leave out the workload's shadow, or the policy's step shadow, and plan again")


def _known(connection: Connection) -> str:
    if connection.kind not in KINDS:
        from fleetctl.errors import ConfigInvalid

        text = f"router {connection.name} is of kind {connection.kind!r}; known are {', '.join(KINDS)}."
        raise ConfigInvalid("config.router_kind", text, hint="Correct the fleet file.")
    return connection.kind
