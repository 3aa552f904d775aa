"""Inventory, adapter layer: how Azure is asked: retries with jitter, one pause for all when it says 429. Never decides what is asked."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

from azure.core.pipeline.policies import RetryPolicy, SansIOHTTPPolicy

LONGEST_PAUSE_S = 120.0
"""A longer Retry-After is not waited for: the part becomes a gap that says so."""
RETRIES = 6


class Pace:
    """When the next request may go; shared by all threads that ask one subscription."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._not_before = 0.0
        self.pauses = 0

    def hold(self, seconds: float) -> None:
        """Let nobody ask for so long."""
        with self._lock:
            self.pauses += 1
            self._not_before = max(self._not_before, time.monotonic() + seconds)

    def wait(self) -> None:
        """Wait until asking is allowed again; everybody starts at a slightly different moment."""
        while True:
            with self._lock:
                left = self._not_before - time.monotonic()
            if left <= 0:
                return
            time.sleep(left + random.uniform(0, min(0.5, left / 4)))  # noqa: S311 - jitter, no secret


class PacePolicy(SansIOHTTPPolicy[Any, Any]):
    """Waits before each try, and stops everybody when one try is told to slow down."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    def on_request(self, request: Any) -> None:
        """Wait for our turn."""
        self._pace.wait()

    def on_response(self, request: Any, response: Any) -> None:
        """Heed 429 and 503 with Retry-After."""
        if response.http_response.status_code in (429, 503):
            seconds = _seconds(response.http_response.headers.get("Retry-After", ""))
            if seconds is not None and seconds <= LONGEST_PAUSE_S:
                self._pace.hold(seconds)


class JitteredRetry(RetryPolicy[Any, Any]):
    """Azure's own retry policy, with full jitter in its backoff and a bound on the waiting."""

    def get_backoff_time(self, settings: dict[str, Any]) -> float:
        """Return a random share of the exponential backoff."""
        return float(super().get_backoff_time(settings)) * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, no secret

    def is_retry(self, settings: dict[str, Any], response: Any) -> bool:
        """Tell whether to try again: never after a Retry-After that is longer than anybody waits."""
        seconds = _seconds(response.http_response.headers.get("Retry-After", ""))
        if seconds is not None and seconds > LONGEST_PAUSE_S:
            return False
        return bool(super().is_retry(settings, response))


def _seconds(text: str) -> float | None:
    try:
        return max(0.0, float(text))
    except ValueError:
        return None
