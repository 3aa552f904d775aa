"""Traffic, adapter layer: one HTTPRoute read and replaced through the official client, with its errors in fleetctl's words."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fleetctl.adapters.deadline import Deadline, within
from fleetctl.errors import FleetctlError, TrafficNotApplied

GROUP, VERSION, PLURAL = "gateway.networking.k8s.io", "v1", "httproutes"
CALL_S = 2.0
MANAGER = "fleetctl"
"""Name under which we write: whoever else wrote a route last is known by another one."""


class Conflict(Exception):
    """Somebody changed the object between our read and our write: the API server refused ours."""


class Routes:
    """HTTPRoutes of one cluster.

    Args:
        custom: gives the client's CustomObjectsApi, which retries nothing; called within the limit of a call, since a kubeconfig may name
            a program that asks for the credential.
    """

    def __init__(self, custom: Callable[[], Any], router: str) -> None:
        self._custom = custom
        self._router = router

    def read(self, namespace: str, name: str, deadline: Deadline) -> dict[str, Any]:
        """Return an HTTPRoute. Raises TrafficNotApplied (traffic.router_down, traffic.unknown_cell)."""
        with self._translated(namespace, name):

            def ask() -> Any:
                call, limit = self._custom().get_namespaced_custom_object, _limit(deadline)
                return call(GROUP, VERSION, namespace, PLURAL, name, _request_timeout=limit, _preload_content=False).data

            return dict(json.loads(within(deadline, ask, self._router)))

    def replace(self, namespace: str, name: str, body: dict[str, Any], deadline: Deadline) -> None:
        """Replace an HTTPRoute as it was read. Raises Conflict where its resourceVersion has moved on; TrafficNotApplied."""
        from kubernetes.client.exceptions import ApiException

        def ask() -> None:
            call, limit = self._custom().replace_namespaced_custom_object, _limit(deadline)
            more = {"field_manager": MANAGER, "_request_timeout": limit, "_preload_content": False}
            call(GROUP, VERSION, namespace, PLURAL, name, body, **more)

        with self._translated(namespace, name):
            try:
                within(deadline, ask, self._router)
            except ApiException as e:
                if e.status == 409:
                    raise Conflict from e
                raise

    @contextmanager
    def _translated(self, namespace: str, name: str) -> Iterator[None]:
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        try:
            yield
        except FleetctlError as e:
            raise TrafficNotApplied("traffic.router_down", f"router {self._router}: {e.message}", hint=e.hint) from e
        except ApiException as e:
            if e.status == 404:
                text = f"router {self._router}: the cluster has no HTTPRoute {namespace}/{name}."
                raise TrafficNotApplied("traffic.unknown_cell", text, hint="Correct the fleet file.") from e
            text = f"router {self._router}: the cluster answers {e.status} for HTTPRoute {namespace}/{name}: {_said(e)}."
            raise TrafficNotApplied("traffic.router_down", text, hint="Run: fleetctl doctor") from e
        except (HTTPError, OSError, ValueError) as e:
            text = f"router {self._router}: the cluster cannot be asked: {' '.join(str(e).split())[:200]}."
            raise TrafficNotApplied("traffic.router_down", text, hint="Run: fleetctl doctor") from e


def _limit(deadline: Deadline) -> float:
    """Return the client's own time-out; raises TimeoutError where nobody waits any more: a write is not begun then."""
    if deadline.left_s() <= 0:
        raise TimeoutError("no time is left")
    return min(CALL_S, deadline.left_s())


def _said(e: Any) -> str:
    try:
        return str(json.loads(e.body)["message"])[:200].rstrip(".")
    except (ValueError, KeyError, TypeError):
        return str(e.reason)[:200]
