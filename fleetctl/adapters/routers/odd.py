"""Traffic, adapter layer: an answer that nobody can read is an error of the router, never one of ours. Never talks to a router."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from fleetctl.errors import TrafficNotApplied

Method = TypeVar("Method", bound=Callable[..., Any])


def understood(method: Method) -> Method:
    """Turn what a half or odd answer makes of our reading into traffic.not_shown; other cells are ticked all the same."""

    @wraps(method)
    def guarded(self: Any, *given: Any, **named: Any) -> Any:
        try:
            return method(self, *given, **named)
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as e:
            text = f"router {self.name}: what it answered cannot be read ({type(e).__name__})."
            raise TrafficNotApplied("traffic.not_shown", text, hint="Run: fleetctl doctor") from e

    return cast(Method, guarded)
