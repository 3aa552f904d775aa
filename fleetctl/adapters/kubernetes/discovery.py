"""Inventory, adapter layer: what of a cluster has to do with GPUs, and who owns it. Never writes to a cluster, never reads a Secret.

Nodes with GPUs are machines and join a cloud's VMs by their provider id. Deployments and stateful sets carry the autoscaler (HPA, KEDA)
and the GitOps owner that would fight a migration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fleetctl.adapters.kubernetes.client import ClusterAccess, ClusterApi
from fleetctl.adapters.kubernetes.marks import gitops_owner
from fleetctl.domain.people import Facts, Gap
from fleetctl.domain.tags import short, tag_facts
from fleetctl.domain.units import Instant, Scalar
from fleetctl.errors import FleetctlError

RESOURCES = {"nvidia.com/gpu": "nvidia", "amd.com/gpu": "amd"}
PARTS = ("nodes", "workloads", "pods", "services")
Item = Mapping[str, Any]


class KubernetesDiscovery:
    """`PartedDiscovery` of one cluster.

    Args:
        name: of this source; now: the time.
    """

    def __init__(self, name: str, access: ClusterAccess, now: Callable[[], Instant]) -> None:
        self._name = name
        self._access = access
        self._now = now
        self._opened: ClusterApi | None = None

    @property
    def name(self) -> str:
        """Return "kubernetes" and the source's name."""
        return f"kubernetes {self._name}"

    def parts(self) -> tuple[str, ...]:
        """Return what is listed, kind by kind."""
        self._opened = ClusterApi(self._access)
        return PARTS

    def scan(self, scope: str) -> Iterator[Facts | Gap]:
        """Yield one kind, or all."""
        api = self._opened or ClusterApi(self._access)
        looks = {"nodes": self._nodes, "workloads": self._workloads, "pods": self._pods, "services": self._services}
        for part in [scope] if scope else PARTS:
            now = self._now()
            for values in looks[part](api):
                if isinstance(values, Gap):
                    yield values
                else:
                    kept = {k: v for k, v in values.items() if v is not None and v != ""}
                    yield Facts(values=kept, source=f"{self.name}/{part}", seen_at=now)

    def _nodes(self, api: ClusterApi) -> Iterator[dict[str, Scalar] | Gap]:
        for node in api.items(api.core.list_node, "nodes"):
            gpus, vendor = _gpus(_at(node, "status", "allocatable"))
            if not gpus:
                continue
            labels, name = _at(node, "metadata", "labels"), _name(node)
            addresses = _listed(node, "status", "addresses")
            yield {
                "machine": name,
                "name": name,
                "node": name,
                "provider_id": _provider_id(str(_at(node, "spec").get("providerID") or "")),
                "address": " ".join(str(a.get("address")) for a in addresses if a.get("type") in ("InternalIP", "ExternalIP")),
                "sku": short(str(labels.get("node.kubernetes.io/instance-type") or "")),
                "region": short(str(labels.get("topology.kubernetes.io/region") or "")),
                "zone": short(str(labels.get("topology.kubernetes.io/zone") or "")),
                "gpus": gpus,
                "vendor": vendor,
                "cluster": self._name,
            }

    def _workloads(self, api: ClusterApi) -> Iterator[dict[str, Scalar] | Gap]:
        scalers, gaps = self._scalers(api)
        yield from gaps
        for kind, call in (
            ("Deployment", api.apps.list_deployment_for_all_namespaces),
            ("StatefulSet", api.apps.list_stateful_set_for_all_namespaces),
        ):
            for item in api.items(call, f"{kind}s"):
                gpus, vendor = _asked(_at(item, "spec", "template", "spec"))
                if gpus:
                    id_ = f"{_namespace(item)}/{kind}/{_name(item)}"
                    replicas = _at(item, "spec").get("replicas", 1)
                    values: dict[str, Scalar] = {"deployment": id_, "name": _name(item), "cluster": self._name, "vendor": vendor}
                    values |= {"gpus": gpus, "count": replicas if isinstance(replicas, int) else None, "gitops": gitops_owner(item)}
                    yield values | {"image": _images(_at(item, "spec", "template", "spec")), **_tags(item), **scalers.get(id_, {})}

    def _scalers(self, api: ClusterApi) -> tuple[dict[str, dict[str, Scalar]], list[Gap]]:
        found: dict[str, dict[str, Scalar]] = {}
        gaps = []
        looks: tuple[tuple[str, Callable[[], Iterator[Item]], str, str], ...] = (
            ("HPA", lambda: api.items(api.scaling.list_horizontal_pod_autoscaler_for_all_namespaces, "HPAs"), "minReplicas", "maxReplicas"),
            ("KEDA", lambda: api.custom_items("keda.sh", "v1alpha1", "scaledobjects"), "minReplicaCount", "maxReplicaCount"),
        )
        for word, listed, low, high in looks:
            try:
                for item in listed():
                    if any(o.get("kind") == "ScaledObject" for o in _listed(item, "metadata", "ownerReferences")):
                        continue  # KEDA drives its deployments through an HPA of its own
                    spec, target = _at(item, "spec"), _at(item, "spec", "scaleTargetRef")
                    key = f"{_namespace(item)}/{target.get('kind', 'Deployment')}/{target.get('name')}"
                    least, most = (b if isinstance(b, int) else None for b in (spec.get(low), spec.get(high)))
                    found[key] = {"autoscaler": f"{word} {_name(item)}", "minimum": least, "maximum": most}
            except FleetctlError as e:
                gaps.append(Gap(scope=f"autoscalers ({word})", reason=e.message, source=self.name, code=e.code, mend=e.hint))
        return found, gaps

    def _pods(self, api: ClusterApi) -> Iterator[dict[str, Scalar] | Gap]:
        running = api.items(api.core.list_pod_for_all_namespaces, "pods", field_selector="status.phase=Running")
        for pod in running:
            gpus, vendor = _asked(_at(pod, "spec"))
            if gpus:
                values: dict[str, Scalar] = {"pod": f"{_namespace(pod)}/{_name(pod)}", "name": _name(pod), "gpus": gpus, "vendor": vendor}
                values |= {"node": short(str(_at(pod, "spec").get("nodeName") or "")), "deployment": _owner(pod), "cluster": self._name}
                values |= {"address": short(str(_at(pod, "status").get("podIP") or "")), "image": _images(_at(pod, "spec")), **_tags(pod)}
                yield values

    def _services(self, api: ClusterApi) -> Iterator[dict[str, Scalar] | Gap]:
        for item in api.custom_items("serving.kserve.io", "v1beta1", "inferenceservices"):
            predictor = _at(item, "spec", "predictor")
            model = _at(predictor, "model")
            least, most = predictor.get("minReplicas"), predictor.get("maxReplicas")
            yield {
                "service": f"{_namespace(item)}/{_name(item)}",
                "name": _name(item),
                "cluster": self._name,
                "form": "KServe",
                "model": short(str(model.get("storageUri") or "")),
                "software": short(str(model.get("runtime") or _at(model, "modelFormat").get("name") or "")),
                "minimum": least if isinstance(least, int) else None,
                "maximum": most if isinstance(most, int) else None,
                "url": short(str(_at(item, "status").get("url") or "")),
                "gitops": gitops_owner(item),
                **_tags(item),
            }


def _at(item: Item, *path: str) -> Item:
    for key in path:
        found = item.get(key)
        item = found if isinstance(found, dict) else {}
    return item


def _listed(item: Item, *path: str) -> list[Item]:
    found = _at(item, *path[:-1]).get(path[-1])
    return [x for x in found if isinstance(x, dict)] if isinstance(found, list) else []


def _name(item: Item) -> str:
    return short(str(_at(item, "metadata").get("name") or ""))


def _namespace(item: Item) -> str:
    return short(str(_at(item, "metadata").get("namespace") or "default"))


def _gpus(resources: Item) -> tuple[int, str]:
    """Return how many GPUs a set of resources has, and whose."""
    for resource, vendor in RESOURCES.items():
        count = str(resources.get(resource) or "0")
        if count.isdigit() and int(count):
            return int(count), vendor
    return 0, ""


def _asked(spec: Item) -> tuple[int, str]:
    """Return the GPUs of all containers of a pod together; for GPUs the limit is the request."""
    total, whose = 0, ""
    for container in _listed(spec, "containers"):
        count, vendor = _gpus(_at(container, "resources", "limits"))
        total, whose = total + count, whose or vendor
    return total, whose


def _images(spec: Item) -> str:
    return short(" ".join(str(c.get("image") or "") for c in _listed(spec, "containers")))


def _tags(item: Item) -> dict[str, Scalar]:
    return tag_facts({**_at(item, "metadata", "annotations"), **_at(item, "metadata", "labels")})


def _owner(pod: Item) -> str:
    """Return the deployment, stateful set or job of a pod; a replica set's name is its deployment's and a hash that the pod repeats."""
    owners: list[Item] = [o for o in _listed(pod, "metadata", "ownerReferences") if o.get("controller")]
    owner = owners[0] if owners else {}
    kind, name = str(owner.get("kind") or ""), str(owner.get("name") or "")
    hash_ = str(_at(pod, "metadata", "labels").get("pod-template-hash") or "")
    if kind == "ReplicaSet" and hash_ and name.endswith(f"-{hash_}"):
        kind, name = "Deployment", name.removesuffix(f"-{hash_}")
    return short(f"{_namespace(pod)}/{kind}/{name}") if kind else ""


def _provider_id(text: str) -> str:
    """Return the cloud's own id: what follows azure://, or the last word of aws:///zone/i-...."""
    if text.startswith("aws://"):
        return short(text.rsplit("/", 1)[-1])
    return short(text.partition("://")[2].lower())
