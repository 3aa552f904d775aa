"""Inventory, adapter layer: instant queries of Prometheus' HTTP API, bounded, with retries. Never writes, never follows a redirect."""

from __future__ import annotations

import http.client
import json
import math
import random
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from fleetctl.errors import CredentialsMissing, InventoryFailed

MOST_BYTES = 64 * 1024 * 1024
TIMEOUT_S, LONGEST_ANSWER_S, LONGEST_QUERY_S = 30.0, 120.0, 45.0
"""Of one read, of one answer, and of all tries after which no other begins."""
TRIES = 4
LONGEST_PAUSE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One series' value now."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One series' raw samples over a time: (epoch seconds, value), oldest first; a value that is no number is NaN."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow nothing: a redirect could carry the token elsewhere."""


class PrometheusApi:
    """One Prometheus, or what speaks its API (Mimir, Thanos, VictoriaMetrics, Azure Monitor workspace, AMP through a proxy).

    Args:
        url: up to, not with, /api/v1; token: gives a bearer token, None for none; ca_file: an authority to trust.
        timeout_s: of one try; tries: at least 1.
    """

    def __init__(
        self, url: str, *, token: Callable[[], str] | None = None, ca_file: str = "", timeout_s: float = TIMEOUT_S, tries: int = TRIES
    ) -> None:
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise InventoryFailed("inventory.prometheus", f"{url[:80]!r} is no address of Prometheus.", hint="Set: http(s)://HOST:PORT")
        self.url = url.rstrip("/")
        self._token = token
        self._timeout_s, self._tries = timeout_s, tries
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect(), urllib.request.ProxyHandler({})]
        if self.url.startswith("https"):
            handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ca_file or None)))
        self._open = urllib.request.build_opener(*handlers)

    def query(self, text: str) -> list[Sample]:
        """Return the series of an instant query, without those that are not numbers.

        Raises:
            CredentialsMissing: credentials.prometheus; InventoryFailed: inventory.prometheus.
        """
        out = []
        for series in self._results(text, None):
            try:
                value = float(series["value"][1])
                labels = {str(k): str(v) for k, v in series["metric"].items()}
            except (KeyError, IndexError, TypeError, ValueError, AttributeError):
                continue
            if math.isfinite(value):
                out.append(Sample(labels=labels, value=value))
        return out

    def traces(self, text: str, at: float) -> list[Trace]:
        """Return the raw samples of a range selector such as `name[60s]` that ends at `at` (epoch seconds).

        Raises:
            CredentialsMissing: credentials.prometheus; InventoryFailed: inventory.prometheus.
        """
        out = []
        for series in self._results(text, at):
            try:
                points = tuple((float(t), _number(v)) for t, v in series["values"])
                labels = {str(k): str(v) for k, v in series["metric"].items()}
            except (KeyError, IndexError, TypeError, ValueError, AttributeError):
                continue
            out.append(Trace(labels=labels, points=points))
        return out

    def _results(self, text: str, at: float | None) -> list[Any]:
        moment = {"time": f"{at:.3f}"} if at is not None else {}
        body = self._ask(urlencode({"query": text, "timeout": f"{self._timeout_s:.0f}s", **moment}).encode())
        if body.get("status") != "success" or not isinstance(body.get("data"), dict):
            why = str(body.get("error", "an answer of another shape"))[:200]
            raise InventoryFailed("inventory.prometheus", f"Prometheus at {self.url} refuses a query: {why}.")
        found = body["data"].get("result")
        return found if isinstance(found, list) else []

    def _ask(self, data: bytes) -> Mapping[str, Any]:
        headers = {"Content-Type": "application/x-www-form-urlencoded", "User-Agent": "fleetctl"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token()}"
        end = time.monotonic() + LONGEST_QUERY_S
        for left in range(self._tries - 1, -1, -1):
            pause = 0.25 * 2 ** (self._tries - 1 - left)
            try:
                request = urllib.request.Request(f"{self.url}/api/v1/query", data=data, headers=headers)  # noqa: S310 - http(s) by __init__
                with self._open.open(request, timeout=self._timeout_s) as answer:
                    text = self._whole(answer)
                body = json.loads(text)
                return body if isinstance(body, dict) else {}
            except urllib.error.HTTPError as e:
                pause = self._judged(e, pause, left)
            except (OSError, ValueError, RecursionError, http.client.HTTPException) as e:
                if left == 0 or time.monotonic() > end:
                    raise InventoryFailed("inventory.prometheus", f"Prometheus at {self.url} does not answer: {str(e)[:160]}.") from e
            time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - jitter, no secret
        return {}

    def _whole(self, answer: Any) -> bytes:
        """Read an answer, but neither for ever nor without end."""
        end, text = time.monotonic() + LONGEST_ANSWER_S, bytearray()
        while chunk := answer.read1(1 << 20):
            text += chunk
            if len(text) > MOST_BYTES:
                raise InventoryFailed("inventory.prometheus", f"Prometheus at {self.url} answers more than 64 MiB.")
            if time.monotonic() > end:
                raise InventoryFailed("inventory.prometheus", f"Prometheus at {self.url} takes over {LONGEST_ANSWER_S:.0f} s to answer.")
        return bytes(text)

    def _judged(self, e: urllib.error.HTTPError, pause: float, left: int) -> float:
        """Return how long to wait before the next try. Raises where there is none."""
        with e:
            said = e.read(2000).decode("utf-8", "replace").strip()
        if e.code in (401, 403):
            raise CredentialsMissing(
                "credentials.prometheus",
                f"Prometheus at {self.url} answers {e.code}: the token is missing, expired or has too few rights.",
                hint="Set: the source's secrets.token",
            ) from e
        after = e.headers.get("Retry-After", "")
        wait = float(after) if after.isdigit() else pause
        if left == 0 or e.code not in (408, 429, 500, 502, 503, 504) or wait > LONGEST_PAUSE_S:
            raise InventoryFailed("inventory.prometheus", f"Prometheus at {self.url} answers {e.code}: {said[:160]}.") from e
        return wait


def _number(text: Any) -> float:
    try:
        return float(text)
    except (TypeError, ValueError):
        return math.nan
