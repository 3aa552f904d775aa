"""Composition root, routers by kind: the adapter of a connection, its prober, its commands on paper. Never decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.adapters.routers.prober import Replicas
    from fleetctl.adapters.routers.route import Backends
    from fleetctl.domain.fleet import Connection
    from fleetctl.domain.ids import CellId, PoolId
    from fleetctl.ports.traffic import Prober, Router

KINDS = ("envoy", "haproxy")
"""Kinds of routers that there is an adapter for."""


def make_router(connection: Connection, sources: Mapping[CellId, PoolId], backends: Mapping[CellId, Backends]) -> Router:
    """Return the adapter of a router.

    Raises:
        ConfigInvalid: config.router_kind, config.router.
    """
    _known(connection)
    if connection.kind == "envoy":
        from fleetctl.adapters.routers.envoy.router import EnvoyRouter

        return EnvoyRouter(connection, sources=sources, backends=backends)
    from fleetctl.adapters.routers.haproxy.router import HaproxyRouter

    return HaproxyRouter(connection, sources=sources, backends=backends)


def make_prober(
    connection: Connection,
    backends: Mapping[CellId, Backends],
    *,
    pin_key: Callable[[], str],
    sources: Mapping[CellId, PoolId],
    models: Mapping[CellId, str] | None = None,
) -> Prober:
    """Return what proves replicas through a router. Raises ConfigInvalid (config.router_kind, config.router)."""
    from fleetctl.adapters.routers.prober import CompletionProber

    return CompletionProber(connection, replicas=_replicas(connection, backends), pin_key=pin_key, sources=sources, models=models)


def _replicas(connection: Connection, backends: Mapping[CellId, Backends]) -> Replicas:
    _known(connection)
    if connection.kind == "envoy":
        from fleetctl.adapters.routers.envoy import router as envoy

        return envoy.replicas_of(connection, backends)
    from fleetctl.adapters.routers.haproxy import router as haproxy

    return haproxy.replicas_of(connection, backends)


def paper_commands(connection: Connection, c: CellId, backends: Backends) -> tuple[str, ...]:
    """Return the raw commands that bring a cell home without fleetctl; none where the kind is unknown."""
    if connection.kind == "envoy":
        from fleetctl.adapters.routers.envoy import router as envoy

        return envoy.paper_commands(connection, c, backends)
    if connection.kind == "haproxy":
        from fleetctl.adapters.routers.haproxy import router as haproxy

        return haproxy.paper_commands(connection, c)
    return ()


def set_shadow_rate(router: Router, c: CellId, copies_per_s: float, requests_per_s: float) -> None:
    """Let a router copy a cell's requests to the collector, at most so many a second where it can count, else that share of the traffic."""
    from fleetctl.adapters.routers.envoy.router import EnvoyRouter
    from fleetctl.adapters.routers.haproxy.router import HaproxyRouter

    if isinstance(router, HaproxyRouter):
        router.set_shadow(c, copies_per_s)
    elif isinstance(router, EnvoyRouter):
        router.set_shadow(c, min(1.0, copies_per_s / requests_per_s) if requests_per_s > 0 else float(copies_per_s > 0))


def _known(connection: Connection) -> None:
    if connection.kind not in KINDS:
        from fleetctl.errors import ConfigInvalid

        text = f"router {connection.name} is of kind {connection.kind!r}; known are {', '.join(KINDS)}."
        raise ConfigInvalid("config.router_kind", text, hint="Correct the fleet file.")
