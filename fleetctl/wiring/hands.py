"""Composition root, other hands: who is asked about each pool's size and each route, by the settings pool.NAME.owners. Never decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from fleetctl.adapters.hands import JoinedHands
    from fleetctl.domain.fleet import Connection, Fleet
    from fleetctl.domain.ids import CellId, PoolId
    from fleetctl.domain.pool import Host, Pool
    from fleetctl.ports.hands import Marks, Scaler

NO = "no"
HINT = 'Set: aws[:GROUP], azure:RESOURCE-GROUP/SCALE-SET, kubernetes[/CLUSTER]:NAMESPACE/DEPLOYMENT, or "no" in quotes'
UNNAMED = "nobody is named who could tell; set pool.{pool}.owners in the fleet file"
BLIND = "it tells nobody who writes its files; a weight of theirs is noticed at the next look"
CALL_S = 2
Hosts = Callable[["PoolId"], Sequence["Host"]]


def words_of(fleet: Fleet, pool: Pool) -> tuple[str, ...]:
    """Return who is asked about a pool; AWS about what fleetctl itself makes there."""
    words = tuple(fleet.settings.get(f"pool.{pool.id}.owners", "").split())
    if words == (NO,):
        return ()
    return words or (("aws",) if pool.provisioned_by == "aws" else ())


def is_unnamed(fleet: Fleet, pool: Pool) -> bool:
    """Tell whether nobody was named for a pool that others built."""
    return pool.provisioned_by == "existing" and not fleet.settings.get(f"pool.{pool.id}.owners", "").split()


def hands_of(fleet: Fleet, workspace: Path, hosts: Hosts) -> JoinedHands:
    """Return all other hands of a fleet.

    Raises:
        ConfigInvalid: config.owners.
    """
    from fleetctl.adapters.hands import JoinedHands

    states = [workspace / word for word in fleet.settings.get("owners.terraform", "").split()]
    scalers: dict[PoolId, list[Scaler]] = {}
    for pool in fleet.pools:
        made = [_scaler(fleet, workspace, pool, word, hosts) for word in words_of(fleet, pool)]
        if states:
            made.append(_states(states, pool.id, lambda p=pool: _names(fleet, p, hosts)))  # type: ignore[misc]
        scalers[pool.id] = made
    unnamed = {p.id: UNNAMED.format(pool=p.id) for p in fleet.pools if is_unnamed(fleet, p)}
    return JoinedHands(scalers, lambda c: _marks(fleet, states, c), unnamed)


def _scaler(fleet: Fleet, workspace: Path, pool: Pool, word: str, hosts: Hosts) -> Scaler:
    place, _, name = word.partition(":")
    kind, _, cluster = place.partition("/")
    if kind == "aws" and not cluster:
        return _asg(fleet, pool, name, hosts)
    if kind == "azure" and name.count("/") == 1 and fleet.settings.get("azure.subscription_id"):
        return _vmss(fleet, pool, name)
    if kind == "kubernetes" and name.count("/") == 1:
        clusters = [s for s in fleet.sources if s.kind == "kubernetes" and cluster in ("", s.name)]
        if len(clusters) == 1:
            return _deployment(clusters[0], pool, name)
        raise _refused(pool, f"{word[:80]!r} names no one of the {len(clusters)} clusters among the sources")
    more = "; azure needs settings azure.subscription_id" if kind == "azure" else ""
    raise _refused(pool, f"{word[:80]!r} tells nobody to ask{more}")


def _asg(fleet: Fleet, pool: Pool, name: str, hosts: Hosts) -> Scaler:
    from fleetctl.adapters.aws.client import AwsAccess, AwsApi
    from fleetctl.adapters.aws.hands import AsgHands

    def client() -> Any:
        access = AwsAccess(profile=fleet.settings.get("aws.profile", ""), endpoint=fleet.settings.get("aws.endpoint", ""))
        return AwsApi(access).client("autoscaling", pool.region, wait_s=CALL_S)

    return AsgHands(_kept(client), pool.id, name, lambda: [i for h in hosts(pool.id) if (i := dict(h.variables).get("cloud_id", ""))])


def _vmss(fleet: Fleet, pool: Pool, place: str) -> Scaler:
    from fleetctl.adapters.azure.client import PUBLIC, AzureAccess, AzureApi, credential_of
    from fleetctl.adapters.azure.hands import VmssHands

    def arm() -> AzureApi:
        from fleetctl.wiring.sources import quiet_clients

        quiet_clients()
        s = fleet.settings
        endpoint, subscription = s.get("azure.endpoint") or PUBLIC, s["azure.subscription_id"]
        is_double = endpoint.startswith("https://127.0.0.1:")
        token = (lambda: "lab-double") if is_double else None  # no real credential is ever sent to a double on this machine
        access = AzureAccess(subscriptions=(subscription,), endpoint=endpoint, ca_file=s.get("azure.ca", ""), token=token)
        return AzureApi(access, subscription, credential_of(access))

    return VmssHands(_kept(arm), pool.id, place)


def _deployment(source: Connection, pool: Pool, place: str) -> Scaler:
    from fleetctl.adapters.kubernetes.hands import DeploymentHands

    return DeploymentHands(_kept(lambda: _objects(source)), pool.id, place)


def _objects(connection: Connection) -> Any:
    from fleetctl.adapters.kubernetes.client import ClusterAccess, ClusterApi
    from fleetctl.adapters.kubernetes.hands import Objects

    s = connection.settings
    return Objects(ClusterApi(ClusterAccess(kubeconfig=s.get("kubeconfig", ""), context=s.get("context", "")), retries=0).custom)


def _states(states: Sequence[Path], pool: PoolId, wanted: Callable[[], Sequence[str]], c: CellId | None = None) -> Any:
    from fleetctl.adapters.terraform.marks import StateMarks

    return StateMarks(states, wanted, pool, c)


def _names(fleet: Fleet, pool: Pool, hosts: Hosts) -> tuple[str, ...]:
    """Return what a state would call a pool: what its words name, and its machines."""
    named = [w.partition(":")[2] for w in words_of(fleet, pool)]
    machines = [i for h in hosts(pool.id) if (i := dict(h.variables).get("cloud_id", ""))]
    return tuple(x for n in (*named, *machines) for x in dict.fromkeys((n, n.rpartition("/")[2])) if x)


def _marks(fleet: Fleet, states: Sequence[Path], c: CellId) -> Sequence[Marks]:
    """Return who can tell of a cell's route, by the kind of its router."""
    try:
        cell = fleet.cell(c)
        connection = fleet.router(cell.router.name)
        is_lab = fleet.pool(cell.source).provisioned_by == "lab"
    except KeyError:
        return ()
    if is_lab or fleet.settings.get(f"router.{connection.name}.owners", "") == NO:
        return ()
    key = {"httproute": "route", "alb": "rule"}.get(connection.kind, "")
    place = (connection.settings.get(f"{key}.{c}") or connection.settings.get(key, "")) if key else ""
    from fleetctl.domain.ids import PoolId

    more = [_states(states, PoolId(""), lambda: (place, place.rpartition("/")[2].partition("#")[0]), c)] if states and place else []
    if connection.kind == "httproute":
        from fleetctl.adapters.kubernetes.hands import RouteMarks

        return (RouteMarks(_kept(lambda: _objects(connection)), c, place), *more)
    if connection.kind == "alb":
        return (_rule(connection, c, place), *more)
    return (_Blind(connection, c),)


def _rule(connection: Connection, c: CellId, arn: str) -> Marks:
    from fleetctl.adapters.aws.client import AwsAccess, AwsApi
    from fleetctl.adapters.aws.hands import RuleMarks

    s = connection.settings
    region = s.get("region") or (arn.split(":")[3] if arn.count(":") > 3 else "")
    access = AwsAccess(profile=s.get("profile", ""), endpoint=s.get("endpoint", ""))
    return RuleMarks(_kept(lambda: AwsApi(access).client("elbv2", region, wait_s=CALL_S)), c, arn)


class _Blind:
    """A router of files or of a queue: nobody can tell who else writes there."""

    def __init__(self, connection: Connection, c: CellId) -> None:
        self._connection, self._cell = connection, c

    def find(self) -> Any:
        """Return that gap."""
        from fleetctl.domain.people import Gap

        return (Gap(scope=f"route of {self._cell}", reason=BLIND, source=f"{self._connection.kind} {self._connection.name}"),)

    def writer(self) -> str:
        """Return that nobody can tell."""
        return ""


def _kept(make: Callable[[], Any]) -> Callable[[], Any]:
    """Return what makes a connection once."""
    kept: list[Any] = []

    def get() -> Any:
        if not kept:
            kept.append(make())
        return kept[0]

    return get


def _refused(pool: Pool, why: str) -> Exception:
    from fleetctl.errors import ConfigInvalid

    return ConfigInvalid("config.owners", f"pool.{pool.id}.owners: {why}.", hint=HINT)


def asked(fleet: Fleet) -> Mapping[PoolId, tuple[str, ...]]:
    """Return who is asked about each pool, in the fleet file's words."""
    return {p.id: words_of(fleet, p) for p in fleet.pools}
