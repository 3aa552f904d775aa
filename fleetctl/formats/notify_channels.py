"""Every step, formats layer: what a channel that tells people must know. Never sends, never a secret."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

NEEDS = {"slack": ("url",), "webhook": ("url", "key"), "pagerduty": ("key",)}
LEVELS = ("info", "warning", "page")


def check_notify(kind: str, settings: Mapping[Any, object], secrets: Iterable[str]) -> Iterator[str]:
    """Yield what a channel of the fleet file lacks or says wrongly."""
    given = set(secrets)
    for name in NEEDS.get(kind, ()):
        if name not in given:
            yield f"{kind} needs secrets.{name}, by reference: {{kind: env, name: VARIABLE}}"
    for name in sorted(given - set(NEEDS.get(kind, ()))):
        yield f"{kind} has no secret {name}"
    if str(settings.get("least", "info")) not in LEVELS:
        yield f"settings.least must be one of {', '.join(LEVELS)}"
    if "url" in settings and (kind != "pagerduty" or not is_safe_url(str(settings["url"]))):
        yield "settings.url is pagerduty's alone, and https://... (http:// on this machine only)"


def is_safe_url(url: str) -> bool:
    """Tell whether a message may be sent there: https, or http on this very machine."""
    try:
        found = urlsplit(url)
        port_is_good = found.port is None or found.port > 0
    except ValueError:
        return False
    host = found.hostname or ""
    plain = found.scheme == "http" and host in ("127.0.0.1", "::1", "localhost")
    return port_is_good and bool(host) and (found.scheme == "https" or plain) and url.isascii() and url.isprintable()
