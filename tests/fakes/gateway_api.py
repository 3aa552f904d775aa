"""A double of a Kubernetes API server with HTTPRoutes (optimistic concurrency, generations) and of a gateway behind it.

The gateway is a double twice over: its controller writes the status, its data plane only counts who would have answered.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fleetctl.adapters.routers.httproute.wire import GROUP, PLURAL, VERSION
from fleetctl.domain.ids import CellId
from fleetctl.domain.split import Served
from fleetctl.domain.units import Instant
from tests.fakes.json_double import JsonAnswers

NAMESPACE = "serving"


class GatewayApi:
    """The running double.

    Args:
        cells: each gets an HTTPRoute of its name, everything on the source.
    """

    def __init__(self, cells: tuple[CellId, ...]) -> None:
        self.lock = threading.Lock()
        self.routes = {cell: _route(cell) for cell in cells}
        self.sees = True
        """Whether the gateway's controller takes note of changes."""
        self.refuses, self.unresolved = "", ""
        """Why it accepts no route, and why it finds no backend of one, "" where it does."""
        self.writes = 0
        self.requests: list[tuple[CellId, str, Instant]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        for cell in cells:
            self.reconcile(cell)

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=10)

    def reconcile(self, cell: CellId) -> None:
        """Do as the gateway's controller: write the status, which changes the object's resourceVersion too."""
        found = self.routes[cell]
        condition = {"type": "Accepted", "status": "False" if self.refuses else "True", "reason": self.refuses or "Accepted"}
        condition |= {"observedGeneration": found["metadata"]["generation"], "message": ""}
        refs = {"type": "ResolvedRefs", "status": "False" if self.unresolved else "True", "reason": self.unresolved or "ResolvedRefs"}
        conditions = [condition, condition | refs]
        found["status"] = {"parents": [{"parentRef": {"name": "edge"}, "controllerName": "double/gateway", "conditions": conditions}]}
        self._touch(found)

    def put(self, cell: CellId, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Replace an object as the API server does: only over the version that was read."""
        with self.lock:
            standing = self.routes[cell]
            if body["metadata"].get("resourceVersion") != standing["metadata"]["resourceVersion"]:
                return 409, {"message": "the object has been modified; please apply your changes to the latest version", "code": 409}
            fresh = deepcopy(body)
            fresh["status"] = standing.get("status", {})
            changed = fresh["spec"] != standing["spec"]
            fresh["metadata"]["generation"] = standing["metadata"]["generation"] + int(changed)
            self.routes[cell] = fresh
            self._touch(fresh)
            self.writes += 1
            answer = deepcopy(fresh)
            if self.sees:
                self.reconcile(cell)
            return 200, answer

    def weights(self, cell: CellId) -> tuple[int, int]:
        """Return the weights of target and source as they stand."""
        found = {b["name"]: b["weight"] for b in self.routes[cell]["spec"]["rules"][0]["backendRefs"]}
        return found[f"{cell}-canary"], found[f"{cell}-baseline"]

    def send(self, cell: CellId, n: int) -> None:
        """Let `n` requests come, split by the weights."""
        canary, baseline = self.weights(cell)
        for i in range(n):
            self.requests.append((cell, "c" if i * (canary + baseline) < canary * n else "b", datetime.now(UTC)))

    def count(self, cell: CellId, since: Instant) -> Served:
        """Count who answered since then."""
        found = [(side, at) for c, side, at in self.requests if c == cell and at >= since]
        canary = [at for side, at in found if side == "c"]
        return Served(baseline=len(found) - len(canary), canary=len(canary), last_canary_start=max(canary, default=None))

    def custom(self) -> Any:
        """Return the official client's API for custom objects, told to ask here and to retry nothing."""
        import kubernetes.client

        settings = kubernetes.client.Configuration(host=self.url)
        settings.retries = 0
        return kubernetes.client.CustomObjectsApi(kubernetes.client.ApiClient(settings))

    def _touch(self, found: dict[str, Any]) -> None:
        found["metadata"]["resourceVersion"] = str(int(found["metadata"]["resourceVersion"]) + 1)


def _route(cell: CellId) -> dict[str, Any]:
    backends = [
        {"group": "", "kind": "Service", "name": f"{cell}-baseline", "port": 8000, "weight": 1},
        {"group": "", "kind": "Service", "name": f"{cell}-canary", "port": 8000, "weight": 0},
    ]
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "HTTPRoute",
        "metadata": {"name": cell, "namespace": NAMESPACE, "resourceVersion": "1", "generation": 1, "labels": {"team": "a"}},
        "spec": {
            "parentRefs": [{"name": "edge"}],
            "rules": [{"matches": [{"path": {"type": "PathPrefix", "value": f"/{cell}"}}], "backendRefs": backends}],
        },
    }


def _handler(double: GatewayApi) -> type[BaseHTTPRequestHandler]:
    prefix = f"/apis/{GROUP}/{VERSION}/namespaces/{NAMESPACE}/{PLURAL}/"

    class Handler(JsonAnswers):
        def do_GET(self) -> None:
            cell = self._cell()
            with double.lock:
                found = deepcopy(double.routes.get(cell)) if cell else None
            self.answer(*((404, {"message": "not found", "code": 404}) if found is None else (200, found)))

        def do_PUT(self) -> None:
            cell = self._cell()
            body = self.body()
            self.answer(*((404, {"message": "not found"}) if cell not in double.routes else double.put(cell, body)))

        def _cell(self) -> CellId:
            path = self.path.partition("?")[0]
            return CellId(path.removeprefix(prefix)) if path.startswith(prefix) else CellId("")

    return Handler


@contextmanager
def gateway_api(cells: tuple[CellId, ...]) -> Iterator[GatewayApi]:
    """Serve as long as the block runs."""
    double = GatewayApi(cells)
    try:
        yield double
    finally:
        double.close()
