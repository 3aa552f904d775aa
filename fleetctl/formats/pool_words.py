"""Inventory, formats layer: what the settings pool.NAME.owners and pool.NAME.notices may say. Never asks anybody, never raises."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Protocol
from urllib.parse import urlsplit

OWNERS_HINT = 'Set: aws[:GROUP], azure:RESOURCE-GROUP/SCALE-SET, kubernetes[/CLUSTER]:NAMESPACE/DEPLOYMENT, or "no" in quotes'
NOTICES_HINT = "Set: http://{address}:PORT/PATH, aws, kubernetes[/CLUSTER]:LABEL=VALUE, or no"
NO = "no"
_KEY = re.compile(r"pool\.(?P<pool>.+)\.(?P<what>[a-z_]+)\Z")
_KNOWN = ("owners", "notices")
_GROUP = re.compile(r"[A-Za-z0-9._()-]{1,90}\Z")
_OBJECT = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}\Z")
Finding = tuple[tuple[str, ...], str]


class Source(Protocol):
    """A source of the fleet file, as its shape or as a connection has it."""

    @property
    def kind(self) -> str:
        """Return its kind."""
        ...


def check_pool_words(
    settings: Mapping[str, str], pools: Collection[str], sources: Mapping[str, Source], existing: Collection[str]
) -> Iterator[Finding]:
    """Yield each setting of a pool that nobody could act on, with its place.

    Args:
        existing: the pools that others built: what is set for them is ours alone, never a variable of a stack.
    """
    clusters = [name for name, s in sources.items() if s.kind == "kubernetes"]
    for key, text in settings.items():
        found = _KEY.match(key)
        if found is None:
            continue
        here = ("settings", key)
        if found["what"] not in _KNOWN:
            near = get_close_matches(found["what"], _KNOWN, n=1, cutoff=0.7)
            if near and found["pool"] in existing:
                yield here, f"there is no such setting (did you mean 'pool.{found['pool']}.{near[0]}'?)"
            continue
        if found["pool"] not in pools:
            near = get_close_matches(found["pool"], sorted(pools), n=1, cutoff=0.6)
            yield here, f"there is no pool {found['pool'][:70]!r}{f' (did you mean {near[0]!r}?)' if near else ''}"
        words = text.split()
        if words == [NO]:
            continue
        problem, hint = (owner_problem, OWNERS_HINT) if found["what"] == "owners" else (notice_problem, NOTICES_HINT)
        for word in words:
            if why := problem(word, clusters, settings):
                yield here, f"{why}. {hint}"


def owner_problem(word: str, clusters: Collection[str], settings: Mapping[str, str]) -> str:
    """Say why a word names nobody who could size a pool, "" where it names one.

    Args:
        clusters: names of the sources that are clusters.
    """
    place, _, name = word.partition(":")
    kind, _, cluster = place.partition("/")
    first, _, second = name.partition("/")
    if kind == "aws" and not cluster:
        return ""
    if kind == "azure" and not cluster and _GROUP.match(first) and _GROUP.match(second):
        return "" if settings.get("azure.subscription_id") else f"{word[:80]!r} needs settings azure.subscription_id"
    if kind == "kubernetes" and _OBJECT.match(first) and _OBJECT.match(second):
        return _cluster_problem(word, cluster, clusters)
    return f"{word[:80]!r} tells nobody to ask"


def notice_problem(word: str, clusters: Collection[str], settings: Mapping[str, str]) -> str:
    """Say why a word names no source of notices, "" where it names one."""
    place, _, selector = word.partition(":")
    kind, _, cluster = place.partition("/")
    if word == "aws":
        return ""
    if "://" in word:
        return "" if is_address(word) else f"{word[:80]!r} is no address"
    if kind != "kubernetes":
        return f"{word[:80]!r} is no source of notices"
    return _cluster_problem(word, cluster, clusters) if selector else f"{word[:80]!r} names no nodes"


def is_address(url: str) -> bool:
    """Tell whether a relay's URL, which may have {address} for a host's own, is one over HTTP."""
    try:
        parts = urlsplit(url.replace("{address}", "h"))
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a bracket left open, a port that is none
        return False


def _cluster_problem(word: str, cluster: str, clusters: Collection[str]) -> str:
    fits = [c for c in clusters if cluster in ("", c)]
    return "" if len(fits) == 1 else f"{word[:80]!r} names no one of the {len(clusters)} clusters among the sources"
