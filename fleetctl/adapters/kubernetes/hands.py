"""Migrate, adapters layer: what scales a deployment (HPA, KEDA), its minimum, and whose objects these and a route are.

The API server refuses a write over an object that has changed since it was read, so a minimum is compared at the target. Of an HPA that
KEDA made, the ScaledObject is written: KEDA would put the HPA's minimum back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fleetctl.adapters.kubernetes.client import translated
from fleetctl.adapters.kubernetes.marks import OURS, gitops_owner, writers
from fleetctl.domain.holds import Standing
from fleetctl.domain.ids import CellId, PoolId
from fleetctl.domain.people import Gap
from fleetctl.domain.provision import Owner
from fleetctl.domain.tags import short
from fleetctl.errors import InventoryFailed

CALL_S = 2.0
TRIES = 3
SOURCE = "kubernetes"
_PLACE = re.compile(r"([a-z0-9][a-z0-9-]{0,62})/([a-z0-9][a-z0-9.-]{0,252})\Z")
HPA = ("autoscaling", "v2", "horizontalpodautoscalers")
KEDA = ("keda.sh", "v1alpha1", "scaledobjects")
WORKLOADS = (("apps", "v1", "deployments"), ("apps", "v1", "statefulsets"))
ROUTE = ("gateway.networking.k8s.io", "v1", "httproutes")
Kind = tuple[str, str, str]
Item = Mapping[str, Any]
_FIELD = {"hpa": (HPA, "minReplicas", 1), "keda": (KEDA, "minReplicaCount", 0)}
"""By the ref's first word: the kind, the field of its spec, and what it counts as where it is left out."""


class Objects:
    """Objects of one cluster as plain JSON.

    Args:
        custom: the client's CustomObjectsApi, which retries nothing.
    """

    def __init__(self, custom: Any) -> None:
        self._custom = custom

    def get(self, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
        """Return an object, None where there is none. Raises CredentialsMissing, InventoryFailed."""
        call = self._custom.get_namespaced_custom_object
        return self._json(kind, lambda: call(kind[0], kind[1], namespace, kind[2], name, **_OPTIONS))

    def list(self, kind: Kind, namespace: str) -> tuple[dict[str, Any], ...]:
        """Return all objects of a kind, () where the cluster does not know it. Raises CredentialsMissing, InventoryFailed."""
        call = self._custom.list_namespaced_custom_object
        found = self._json(kind, lambda: call(kind[0], kind[1], namespace, kind[2], **_OPTIONS)) or {}
        return tuple(x for x in found.get("items") or () if isinstance(x, dict))

    def replace(self, kind: Kind, namespace: str, name: str, body: dict[str, Any]) -> bool:
        """Replace an object as it was read; False where it has changed since. Raises CredentialsMissing, InventoryFailed."""
        from kubernetes.client.exceptions import ApiException

        call = self._custom.replace_namespaced_custom_object
        with translated(kind[2]):
            try:
                call(kind[0], kind[1], namespace, kind[2], name, body, field_manager=OURS, **_OPTIONS)
            except ApiException as e:
                if e.status == 409:
                    return False
                raise
        return True

    def _json(self, kind: Kind, call: Callable[[], Any]) -> dict[str, Any] | None:
        from kubernetes.client.exceptions import ApiException

        with translated(kind[2]):
            try:
                found: dict[str, Any] = json.loads(call().data)
            except ApiException as e:
                if e.status == 404:
                    return None
                raise
            return found


_OPTIONS: dict[str, Any] = {"_request_timeout": CALL_S, "_preload_content": False}


class DeploymentHands:
    """What scales one deployment or stateful set.

    Args:
        objects: makes the connection; place: "NAMESPACE/NAME".
    """

    def __init__(self, objects: Callable[[], Objects], pool: PoolId, place: str) -> None:
        found = _PLACE.match(place)
        if found is None:
            raise InventoryFailed("inventory.kubernetes", f"{place[:80]!r} is no NAMESPACE/NAME.", hint="Mend: settings pool.NAME.owners")
        self._objects, self._pool, self._namespace, self._name = objects, pool, found[1], found[2]

    def find(self) -> tuple[Owner | Gap, ...]:
        """List what scales it, and the GitOps owners of it and of its scaler."""
        api = self._objects()
        here = next((w for kind in WORKLOADS if (w := api.get(kind, self._namespace, self._name)) is not None), None)
        if here is None:
            return (self._gap(f"there is no deployment or stateful set {self._namespace}/{self._name}"),)
        size = int(_at(here, "spec").get("replicas") or 0)
        scalers = tuple(self._scalers(api))
        marks = dict.fromkeys(m for x in (here, *(s for _, s in scalers)) if (m := gitops_owner(x)))
        owners = tuple(self._owner(kind, item, size) for kind, item in scalers)
        idle = tuple(self._gap(text) for kind, item in scalers if (text := _idle(kind, item)))
        return (*owners, *(Owner(name=m, kind="gitops", pool=self._pool) for m in marks), *idle)

    def standing(self, ref: str) -> Standing:
        """Return the scaler's minimum, and who wrote it last beside us."""
        kind, name = self._parsed(ref)
        of, field, usual = _FIELD[kind]
        found = self._objects().get(of, self._namespace, name)
        if found is None:
            return Standing(minimum=None)
        return Standing(minimum=_number(_at(found, "spec").get(field), usual), writer=next(writers(found, "spec", field), ""))

    def set_minimum(self, ref: str, was: int, to: int, default: int | None = None) -> bool:
        """Write the scaler as it was read, with its minimum changed, where it still is `was`."""
        kind, name = self._parsed(ref)
        of, field, usual = _FIELD[kind]
        api = self._objects()
        for _ in range(TRIES):  # the autoscaler itself writes the status of the same object
            found = api.get(of, self._namespace, name)
            if found is None or _number(_at(found, "spec").get(field), usual) != was:
                return False
            found["spec"][field] = to
            if api.replace(of, self._namespace, name, found):
                return True
        raise InventoryFailed("inventory.kubernetes", f"{ref} changes faster than it can be written.")

    def _scalers(self, api: Objects) -> Iterator[tuple[str, Item]]:
        scaled = [x for x in api.list(KEDA, self._namespace) if _at(x, "spec", "scaleTargetRef").get("name") == self._name]
        yield from (("keda", x) for x in scaled)
        made = {f"keda-hpa-{_name(x)}" for x in scaled} | {str(_at(x, "status").get("hpaName") or "") for x in scaled}
        for x in api.list(HPA, self._namespace):
            if _at(x, "spec", "scaleTargetRef").get("name") == self._name and _name(x) not in made:
                yield "hpa", x

    def _owner(self, kind: str, item: Item, size: int) -> Owner:
        _, field, usual = _FIELD[kind]
        most = _at(item, "spec").get("maxReplicas" if kind == "hpa" else "maxReplicaCount")
        return Owner(
            name=f"{'HPA' if kind == 'hpa' else 'KEDA ScaledObject'} {self._namespace}/{short(_name(item))}",
            kind="autoscaler",
            pool=self._pool,
            ref=f"{kind}:{_name(item)}",
            minimum=_number(_at(item, "spec").get(field), usual),
            maximum=most if isinstance(most, int) else (100 if kind == "keda" else None),
            size=size,
            counts="replicas",
        )

    def _parsed(self, ref: str) -> tuple[str, str]:
        kind, _, name = ref.partition(":")
        if kind not in _FIELD or not _PLACE.match(f"{self._namespace}/{name}"):
            raise InventoryFailed("inventory.kubernetes", f"{ref[:80]!r} names no autoscaler.")
        return kind, name

    def _gap(self, reason: str) -> Gap:
        return Gap(scope=f"pool {self._pool}", reason=reason, source=SOURCE)


class RouteMarks:
    """Whose an HTTPRoute is, and who wrote it last.

    Args:
        place: "namespace/name", as the router's setting has it (a rule's number behind "#" is left out).
    """

    def __init__(self, objects: Callable[[], Objects], c: CellId, place: str) -> None:
        self._objects, self._cell, self._place = objects, c, place.partition("#")[0]

    def find(self) -> tuple[Owner | Gap, ...]:
        """Return the GitOps owner by the route's marks."""
        found = self._route()
        if found is None:
            return (Gap(scope=f"route of {self._cell}", reason=f"there is no HTTPRoute {self._place[:120]}", source=SOURCE),)
        owner = gitops_owner(found)
        return (Owner(name=owner, kind="gitops", pool=PoolId(""), cell=self._cell),) if owner else ()

    def writer(self) -> str:
        """Name who wrote the route's rules last beside us."""
        return next(writers(self._route() or {}, "spec"), "")

    def _route(self) -> dict[str, Any] | None:
        place = _PLACE.match(self._place)
        return self._objects().get(ROUTE, place[1], place[2]) if place is not None else None


def _idle(kind: str, item: Item) -> str:
    """Say where a scaler lets its target fall below any minimum."""
    idle = _at(item, "spec").get("idleReplicaCount")
    paused = _at(item, "metadata", "annotations").get("autoscaling.keda.sh/paused-replicas")
    if kind == "keda" and isinstance(idle, int):
        return f"ScaledObject {short(_name(item))} falls to idleReplicaCount {idle} whatever its minimum: take that out while a cell moves"
    if kind == "keda" and paused is not None:
        return f"ScaledObject {short(_name(item))} is paused at {short(str(paused))} replicas whatever its minimum"
    return ""


def _at(item: Item, *path: str) -> Item:
    for key in path:
        found = item.get(key)
        item = found if isinstance(found, dict) else {}
    return item


def _name(item: Item) -> str:
    return str(_at(item, "metadata").get("name") or "")


def _number(value: object, usual: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else usual
