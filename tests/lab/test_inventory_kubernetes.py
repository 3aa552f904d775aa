"""The official Kubernetes client against a small double of the API: pages, GPU nodes and pods, autoscalers, owners, rights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kubernetes", reason="the client for Kubernetes is not installed: pip install 'fleetctl[kubernetes]'")

from fleetctl.adapters.kubernetes.client import ClusterAccess
from fleetctl.adapters.kubernetes.discovery import KubernetesDiscovery
from fleetctl.domain.merge import merge
from fleetctl.domain.people import Facts
from fleetctl.formats.access import KUBERNETES_RULES
from fleetctl.usecases.scan import scan_sources
from tests.fakes.json_double import JsonDouble, json_double

pytestmark = pytest.mark.lab
AZURE_VM = "/subscriptions/s/resourceGroups/mc/providers/Microsoft.Compute/virtualMachineScaleSets/gpu/virtualMachines/0"
GPU = {"resources": {"limits": {"nvidia.com/gpu": "4"}}, "image": "vllm/vllm-openai:v0.11.0", "name": "vllm"}


def now() -> datetime:
    return datetime.now(UTC)


def node(n: int, resource: str, provider: str) -> dict[str, Any]:
    labels = {"node.kubernetes.io/instance-type": "Standard_ND96isr_H100_v5", "topology.kubernetes.io/region": "eastus2"}
    status = {"allocatable": {resource: "8", "cpu": "96"}, "addresses": [{"type": "InternalIP", "address": f"10.1.0.{n}"}]}
    return {"metadata": {"name": f"node-{n}", "labels": labels}, "spec": {"providerID": provider}, "status": status}


def paged(items: list[dict[str, Any]]) -> Any:
    def answer(query: dict[str, list[str]], _: dict[str, str]) -> dict[str, Any]:
        start = int(query.get("continue", ["0"])[0])
        more = str(start + 2) if start + 2 < len(items) else ""
        return {"items": items[start : start + 2], "metadata": {"continue": more}}

    return answer


def deployment(name: str, containers: list[dict[str, Any]], **metadata: Any) -> dict[str, Any]:
    spec = {"replicas": 2, "template": {"spec": {"containers": containers}}}
    return {"metadata": {"name": name, "namespace": "llm", **metadata}, "spec": spec}


@pytest.fixture
def cluster() -> Iterator[JsonDouble]:
    nodes = [node(1, "nvidia.com/gpu", f"azure://{AZURE_VM}"), node(2, "amd.com/gpu", "aws:///us-east-1a/i-0abc"), node(3, "none", "x")]
    labels = {"team": "red", "app": "chat", "pod-template-hash": "5f6"}
    owner = [{"kind": "ReplicaSet", "name": "chat-5f6", "controller": True}]
    pod = {
        "metadata": {"name": "chat-5f6-x", "namespace": "llm", "labels": labels, "ownerReferences": owner},
        "spec": {"nodeName": "node-1", "containers": [GPU, {"name": "sidecar"}]},
        "status": {"podIP": "10.2.0.7"},
    }
    scaled = {"scaleTargetRef": {"kind": "Deployment", "name": "chat"}, "minReplicas": 2, "maxReplicas": 6}
    hpa = {"metadata": {"name": "chat", "namespace": "llm"}, "spec": scaled}
    keda = {"metadata": {"name": "batch", "namespace": "llm"}, "spec": {"scaleTargetRef": {"name": "batch"}, "maxReplicaCount": 3}}
    service = {
        "metadata": {"name": "summ", "namespace": "llm", "labels": {"tenant": "acme"}},
        "spec": {"predictor": {"minReplicas": 1, "model": {"modelFormat": {"name": "huggingface"}, "storageUri": "hf://org/m"}}},
    }
    answers = {
        "/api/v1/nodes": paged(nodes),
        "/api/v1/pods": paged([pod, {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "web"}]}}]),
        "/apis/apps/v1/deployments": paged(
            [
                deployment("chat", [GPU], annotations={"argocd.argoproj.io/tracking-id": "chat:apps/Deployment"}),
                deployment("batch", [GPU]),
                deployment("web", [{"name": "web"}]),
            ]
        ),
        "/apis/apps/v1/statefulsets": paged([]),
        "/apis/autoscaling/v2/horizontalpodautoscalers": paged([hpa]),
        "/apis/keda.sh/v1alpha1/scaledobjects": paged([keda]),
        "/apis/serving.kserve.io/v1beta1/inferenceservices": paged([service]),
    }
    with json_double(answers) as double:
        yield double


def access_to(double: JsonDouble, folder: Path) -> ClusterAccess:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": double.url}}],
        "users": [{"name": "u", "user": {"token": "emulated"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return ClusterAccess(kubeconfig=str(path))


def source(double: JsonDouble, folder: Path) -> KubernetesDiscovery:
    return KubernetesDiscovery("c1", access_to(double, folder), now)


def test_what_has_to_do_with_gpus_is_found_with_its_owners(cluster: JsonDouble, tmp_path: Path) -> None:
    scan = scan_sources([source(cluster, tmp_path)], None, now)
    assert scan.gaps() == ()
    vm = Facts(values={"machine": AZURE_VM.lower(), "cloud": "azure"}, source="azure p/eastus2", seen_at=now())
    things, _ = merge([*scan.facts(), vm])
    found = {(t.kind, t.id): t for t in things}
    assert found["machine", AZURE_VM.lower()].text("node") == "node-1"
    assert ("machine", "node-3") not in found
    amd = found["machine", "node-2"]
    assert (amd.text("vendor"), amd.text("provider_id")) == ("amd", "i-0abc")
    pod = found["pod", "llm/chat-5f6-x"]
    assert (pod.text("deployment"), pod.text("owner"), pod.number("gpus")) == ("llm/Deployment/chat", "red", 4)
    chat, batch = found["deployment", "llm/Deployment/chat"], found["deployment", "llm/Deployment/batch"]
    assert (chat.text("autoscaler"), chat.number("minimum"), chat.number("maximum")) == ("HPA chat", 2, 6)
    assert chat.text("gitops") == "Argo CD chat:apps/Deployment"
    assert batch.text("autoscaler") == "KEDA batch"
    assert ("deployment", "llm/Deployment/web") not in found
    assert found["service", "llm/summ"].text("model") == "hf://org/m"


def test_the_role_names_exactly_the_kinds_that_are_listed(cluster: JsonDouble, tmp_path: Path) -> None:
    scan_sources([source(cluster, tmp_path)], None, now)
    asked = set()
    for method, path, _ in cluster.asked:
        assert method == "GET"
        parts = path.strip("/").split("/")
        asked.add(("" if parts[0] == "api" else parts[1], parts[-1]))
    assert asked == {(group, kind) for group, kinds in KUBERNETES_RULES for kind in kinds}


def test_a_cluster_without_keda_and_kserve_has_none(cluster: JsonDouble, tmp_path: Path) -> None:
    for path in list(cluster.answers):
        if "keda" in path or "kserve" in path:
            del cluster.answers[path]
    assert scan_sources([source(cluster, tmp_path)], None, now).gaps() == ()


def test_a_missing_right_is_a_gap_of_its_kind_alone(cluster: JsonDouble, tmp_path: Path) -> None:
    cluster.answers["/api/v1/pods"] = (403, {"message": "pods is forbidden"})
    cluster.answers["/apis/keda.sh/v1alpha1/scaledobjects"] = (403, {"message": "scaledobjects is forbidden"})
    scan = scan_sources([source(cluster, tmp_path)], None, now)
    assert {(g.code, g.scope) for g in scan.gaps()} == {("credentials.kubernetes_rights", s) for s in ("pods", "autoscalers (KEDA)")}
    assert any("node-1" in str(f.values) for f in scan.facts())


def test_slow_down_is_honoured_and_an_expired_token_is_named(cluster: JsonDouble, tmp_path: Path) -> None:
    full = cluster.answers["/api/v1/nodes"]
    cluster.answers["/api/v1/nodes"] = (429, {"message": "slow down"}, {"Retry-After": "1"})

    def recover(query: dict[str, list[str]], headers: dict[str, str]) -> Any:
        cluster.answers["/api/v1/nodes"] = full
        return (429, {"message": "slow down"}, {"Retry-After": "1"})

    cluster.answers["/api/v1/nodes"] = recover
    assert scan_sources([source(cluster, tmp_path)], None, now).gaps() == ()
    cluster.answers["/api/v1/nodes"] = (401, {"message": "Unauthorized"})
    (gap,) = scan_sources([source(cluster, tmp_path)], None, now).gaps()
    assert gap.code == "credentials.kubernetes"


def test_no_kubeconfig_is_named(tmp_path: Path) -> None:
    missing = KubernetesDiscovery("c1", ClusterAccess(kubeconfig=str(tmp_path / "none")), now)
    (gap,) = scan_sources([missing], None, now).gaps()
    assert gap.code == "credentials.kubernetes"
    assert "KUBECONFIG" in gap.mend


def test_nodes_of_a_label_tell_of_their_end(cluster: JsonDouble, tmp_path: Path) -> None:
    from fleetctl.adapters.kubernetes.notices import node_signals

    ending = {**node(2, "amd.com/gpu", "x"), "spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}}
    cluster.answers["/api/v1/nodes"] = {"items": [node(1, "amd.com/gpu", "x"), ending], "metadata": {}}
    (signal,) = node_signals(access_to(cluster, tmp_path), "agentpool=mi300x", now())
    assert (signal.subject, signal.kind, signal.severity) == ("node-2", "kubernetes.karpenter.sh/disrupted", "critical")
    assert [query.get("labelSelector") for _, path, query in cluster.asked if path == "/api/v1/nodes"] == [["agentpool=mi300x"]]
