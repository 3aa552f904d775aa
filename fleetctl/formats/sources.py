"""Inventory, formats layer: the kinds of sources, what each may be told, and the short form of `--from`. Never asks a source."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from fleetctl.domain.fleet import Connection
from fleetctl.domain.ids import is_id
from fleetctl.errors import UsageError


class SourceSpec(NamedTuple):
    """One kind of source.

    Args:
        text: what it is; short: the setting that `--from KIND:TEXT` fills; needed: whether nothing can be asked without that one.
        files: whether that one names files.
    """

    text: str
    settings: Mapping[str, str]
    secrets: Mapping[str, str]
    short: str
    needed: bool = False
    files: bool = False


_REGIONS = {"regions": "Only these, separated by spaces. Left out: every region that can hold GPUs."}
_EVERY = {"every_vm": "true: also VMs without a GPU."}
_FILES = "separated by spaces (quotes around names with spaces), relative to the workspace"
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
        {"inventories": f"Files, folders or programs, {_FILES}."},
        {},
        "inventories",
        needed=True,
        files=True,
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
        needed=True,
    ),
    "table": SourceSpec(
        "CSV or YAML files for what no API shows",
        {"files": f".csv, .yaml or .yml, {_FILES}."},
        {},
        "files",
        needed=True,
        files=True,
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
    if spec.needed and not settings.get(spec.short, "").strip():
        yield ("settings",), f"a source of kind {kind} needs {spec.short}: {spec.settings[spec.short]}"
    if spec.files and _words(settings.get(spec.short, "")) is None:
        yield ("settings", spec.short), "a quote is not closed"
    for key in ("url", "urls", "endpoint"):
        if _has_password(settings.get(key, "")):
            yield ("settings", key), "an address holds no user and no password: name them under secrets"
    for what, given, known in (("settings", settings, spec.settings), ("secrets", secrets, spec.secrets)):
        for key in given:
            if key not in known:
                near = get_close_matches(key, known, n=1)
                yield (what, key), f"unknown key {key!r}" + (f" (did you mean {near[0]!r}?)" if near else "")


def _has_password(text: str) -> bool:
    return any("@" in word.partition("://")[2].partition("/")[0] or ("://" not in word and "@" in word) for word in text.split())


def _words(text: str) -> list[str] | None:
    try:
        return shlex.split(text)
    except ValueError:
        return None


def source_of_text(text: str, here: Path) -> Connection:
    """Return the source that `--from` names: KIND, KIND:TEXT, or a .csv or .yaml file.

    Args:
        here: where a relative file name begins; those of the fleet file begin at the workspace.

    Raises:
        UsageError: usage.source.
    """
    kind, colon, rest = text.partition(":")
    if not colon and text.endswith((".csv", ".yaml", ".yml")):
        kind, rest = "table", text
    if kind not in SOURCES:
        raise UsageError("usage.source", f"{text[:60]!r} is no source.", hint=f"Add: --from {'|'.join(SOURCES)}[:WHERE]")
    spec = SOURCES[kind]
    if spec.needed and not rest:
        raise UsageError(
            "usage.source", f"the source {kind} needs its {spec.short}.", hint=f"Add: --from {kind}:{spec.short.removesuffix('s').upper()}"
        )
    if spec.short in ("url", "urls") and _has_password(rest):
        raise UsageError("usage.source", f"the address of {kind} holds a user or a password.", hint="Name the secret in the fleet file")
    said = shlex.quote(str(here / Path(rest).expanduser())) if spec.files else rest
    return Connection(name=rest if is_id(rest) else "cli", kind=kind, settings={spec.short: said} if rest else {})
