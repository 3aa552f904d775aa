"""Composition root, other hands: who is asked about each pool's size and each route, by the settings pool.NAME.owners. Never decides."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fleetctl.formats.pool_words import NO, owner_problem

if TYPE_CHECKING:
    from pathlib import Path

    from fleetctl.adapters.deadline import Patience
    from fleetctl.adapters.hands import JoinedHands
    from fleetctl.domain.fleet import Connection, Fleet
    from fleetctl.domain.ids import CellId, PoolId
    from fleetctl.domain.pool import Host, Pool
    from fleetctl.ports.hands import Marks, Scaler

STATES = "Terraform states"
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
    """Return all other hands of a fleet; a word that names nobody is a gap: the fleet file's check refuses it, no tick ends by it."""
    from fleetctl.adapters.hands import JoinedHands

    states = [workspace / word for word in fleet.settings.get("owners.terraform", "").split()]
    patient = _patiently()
    scalers: dict[PoolId, list[Scaler]] = {}
    clusters = [s.name for s in fleet.sources if s.kind == "kubernetes"]
    unnamed = {p.id: UNNAMED.format(pool=p.id) for p in fleet.pools if is_unnamed(fleet, p)}
    for pool in fleet.pools:
        wrong = [why for word in words_of(fleet, pool) if (why := owner_problem(word, clusters, fleet.settings))]
        if wrong:
            unnamed[pool.id] = f"settings pool.{pool.id}.owners: {'; '.join(wrong)}"
        made = [] if wrong else [patient(*_scaler(fleet, pool, word, hosts)) for word in words_of(fleet, pool)]
        if states:
            made.append(patient(STATES, _states(states, pool.id, lambda p=pool: _names(fleet, p, hosts))))  # type: ignore[misc]
        scalers[pool.id] = made
    kept: dict[CellId, Sequence[Marks]] = {}

    def marks(c: CellId) -> Sequence[Marks]:
        if c not in kept:
            kept[c] = [patient(place, of) for place, of in _marks(fleet, states, c)]
        return kept[c]

    return JoinedHands(scalers, marks, unnamed)


def _patiently() -> Callable[[str, Any], Any]:
    """Return what bounds each call of an owner; those at one place share their patience with it."""
    from fleetctl.adapters.hands.patient import Patient, fresh

    places: defaultdict[str, Patience] = defaultdict(fresh)
    return lambda place, of: Patient(of, place, places[place])


def _scaler(fleet: Fleet, pool: Pool, word: str, hosts: Hosts) -> tuple[str, Scaler]:
    """Return who answers, and the owner that a sound word names."""
    place, _, name = word.partition(":")
    kind, _, cluster = place.partition("/")
    if kind == "aws":
        return f"AWS in {pool.region}", _asg(fleet, pool, name, hosts)
    if kind == "azure":
        return "Azure", _vmss(fleet, pool, name)
    source = next(s for s in fleet.sources if s.kind == "kubernetes" and cluster in ("", s.name))
    return f"cluster {source.name}", _deployment(source, pool, name)


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


def _marks(fleet: Fleet, states: Sequence[Path], c: CellId) -> Sequence[tuple[str, Marks]]:
    """Return who can tell of a cell's route, by the kind of its router, and who answers there."""
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

    names = (place, place.rpartition("/")[2].partition("#")[0])
    more = [(STATES, _states(states, PoolId(""), lambda: names, c))] if states and place else []
    if connection.kind == "httproute":
        from fleetctl.adapters.kubernetes.hands import RouteMarks

        return ((f"cluster of router {connection.name}", RouteMarks(_kept(lambda: _objects(connection)), c, place)), *more)
    if connection.kind == "alb":
        return ((f"AWS of router {connection.name}", _rule(connection, c, place)), *more)
    return ((f"router {connection.name}", _Blind(connection, c)),)


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


def asked(fleet: Fleet) -> Mapping[PoolId, tuple[str, ...]]:
    """Return who is asked about each pool, in the fleet file's words."""
    return {p.id: words_of(fleet, p) for p in fleet.pools}
