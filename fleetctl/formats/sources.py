"""Inventory, formats layer: the kinds of sources, what each may be told, and the short form of `--from`. Never asks a source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import NamedTuple

from fleetctl.domain.fleet import Connection
from fleetctl.domain.ids import is_id
from fleetctl.errors import UsageError


class SourceSpec(NamedTuple):
    """One kind of source: what it is, its settings and secrets, and the setting that `--from KIND:TEXT` fills."""

    text: str
    settings: Mapping[str, str]
    secrets: Mapping[str, str]
    short: str


_REGIONS = {"regions": "Only these, separated by spaces. Left out: every region that can hold GPUs."}
_EVERY = {"every_vm": "true: also VMs without a GPU."}
_CA = {"ca_file": "A certificate authority to trust instead of the system's."}

SOURCES: Mapping[str, SourceSpec] = {
    "azure": SourceSpec(
        "Azure subscriptions: VMs, scale sets, sizes with restrictions, quotas",
        {
            "subscriptions": "Ids, separated by spaces. Left out: AZURE_SUBSCRIPTION_ID.",
            "endpoint": "Of the management API, for clouds other than the public one.",
            **_REGIONS,
            **_EVERY,
            **_CA,
        },
        {"token": "A ready access token. Left out: environment, managed identity, or az login."},
        "subscriptions",
    ),
    "aws": SourceSpec(
        "An AWS account: instances, scaling groups, target groups, reservations, quotas",
        {"profile": "Of the AWS configuration.", "endpoint": "Of every service, for tests.", **_REGIONS, **_EVERY},
        {},
        "profile",
    ),
    "ansible": SourceSpec(
        "Ansible inventories, static or dynamic",
        {"inventories": "Files, folders or programs, separated by spaces, relative to the workspace."},
        {},
        "inventories",
    ),
    "engines": SourceSpec(
        "Running servers: vLLM, SGLang, TGI, Triton, llama.cpp",
        {"urls": "host:port or http(s) addresses, separated by spaces. Left out: the endpoints of the file's cells.", **_CA},
        {"key": "Sent as bearer token."},
        "urls",
    ),
    "prometheus": SourceSpec(
        "Prometheus or what speaks its API: traffic, latency, GPU use",
        {"url": "Up to, not with, /api/v1.", "window": "How far back means go, such as 24h (the default).", **_CA},
        {"token": "Sent as bearer token."},
        "url",
    ),
    "table": SourceSpec(
        "CSV or YAML files for what no API shows",
        {"files": "Separated by spaces, relative to the workspace."},
        {},
        "files",
    ),
    "kubernetes": SourceSpec(
        "A cluster: GPU nodes and pods, KServe, autoscalers, GitOps owners (extra `kubernetes`)",
        {"kubeconfig": "Left out: KUBECONFIG, ~/.kube/config, or the pod's own account.", "context": "Left out: the current one."},
        {},
        "context",
    ),
}


def check_source(kind: str, settings: Mapping[str, str], secrets: Mapping[str, object]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield what is wrong with a source, with the place."""
    spec = SOURCES.get(kind)
    if spec is None:
        near = get_close_matches(kind, SOURCES, n=1)
        yield ("kind",), f"must be {', '.join(SOURCES)}, not {kind!r}" + (f" (did you mean {near[0]!r}?)" if near else "")
        return
    for what, given, known in (("settings", settings, spec.settings), ("secrets", secrets, spec.secrets)):
        for key in given:
            if key not in known:
                near = get_close_matches(key, known, n=1)
                yield (what, key), f"unknown key {key!r}" + (f" (did you mean {near[0]!r}?)" if near else "")


def source_of_text(text: str) -> Connection:
    """Return the source that `--from` names: KIND, KIND:TEXT, or a .csv or .yaml file.

    Raises:
        UsageError: usage.source.
    """
    kind, colon, rest = text.partition(":")
    if not colon and text.endswith((".csv", ".yaml", ".yml")):
        kind, rest = "table", text
    if kind not in SOURCES:
        raise UsageError("usage.source", f"{text[:60]!r} is no source.", hint=f"Add: --from {'|'.join(SOURCES)}[:WHERE]")
    settings = {SOURCES[kind].short: rest} if rest else {}
    return Connection(name=rest if is_id(rest) else "cli", kind=kind, settings=settings)
