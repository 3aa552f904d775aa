"""Inventory and migrate, adapters layer: whose an object of a cluster is, by the marks that tools put on it. Never I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fleetctl.domain.tags import short

OURS = "fleetctl"
"""Name under which we write (the API's field manager)."""
_GITOPS = (
    ("annotations", "argocd.argoproj.io/tracking-id", "Argo CD"),
    ("labels", "argocd.argoproj.io/instance", "Argo CD"),
    ("labels", "kustomize.toolkit.fluxcd.io/name", "Flux"),
    ("labels", "helm.toolkit.fluxcd.io/name", "Flux"),
    ("annotations", "meta.helm.sh/release-name", "Helm"),
)
Item = Mapping[str, Any]


def gitops_owner(item: Item) -> str:
    """Return the tool that owns an object and what it calls it, "" where no mark names one."""
    for where, key, tool in _GITOPS:
        value = _at(item, "metadata", where).get(key)
        if value:
            return short(f"{tool} {value}")
    return ""


def writers(item: Item, *path: str) -> Iterator[str]:
    """Yield who else wrote a field (such as "spec", "minReplicas"), the newest first, as the API server noted it."""
    found = _at(item, "metadata").get("managedFields")
    entries: list[Item] = [f for f in found if isinstance(f, dict)] if isinstance(found, list) else []
    for entry in sorted(entries, key=lambda e: str(e.get("time") or ""), reverse=True):
        manager = str(entry.get("manager") or "")
        if manager and manager != OURS and entry.get("subresource") != "status" and _holds(entry.get("fieldsV1"), path):
            yield short(manager)


def _holds(fields: object, path: tuple[str, ...]) -> bool:
    """Tell whether a set of fields has the field, or something inside it."""
    for name in path:
        fields = fields.get(f"f:{name}") if isinstance(fields, dict) else None
    return fields is not None


def _at(item: Item, *path: str) -> Item:
    for key in path:
        found = item.get(key)
        item = found if isinstance(found, dict) else {}
    return item
