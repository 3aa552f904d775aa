"""A double of a Kubernetes API server: namespaced objects with optimistic concurrency, field managers, refusals and silence."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.fakes.json_double import JsonAnswers

Key = tuple[str, str, str]
_PATH = re.compile(r"/apis/([a-z0-9.]+)/(v[a-z0-9]+)/namespaces/([a-z0-9-]+)/([a-z]+)(?:/([a-z0-9.-]+))?$")


class KubeObjects:
    """The running double.

    Attributes:
        objects: by plural, namespace and name; asked: verb, group, plural of every call that it took.
        forbids: plural -> verbs that are answered 403; silent: every call waits for longer than anybody does.
    """

    def __init__(self, kinds: tuple[str, ...]) -> None:
        self.kinds = kinds
        self.objects: dict[Key, dict[str, Any]] = {}
        self.asked: list[tuple[str, str, str]] = []
        self.forbids: dict[str, tuple[str, ...]] = {}
        self.silent = False
        self.touches = 0
        """How many of the next writes find that the autoscaler has written the status meanwhile."""
        self.lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=10)

    def add(self, plural: str, name: str, spec: dict[str, Any], *, namespace: str = "serving", **metadata: Any) -> None:
        """Put an object there."""
        meta = {"name": name, "namespace": namespace, "resourceVersion": "1", "managedFields": [], **metadata}
        self.objects[plural, namespace, name] = {"metadata": meta, "spec": spec}

    def write(self, plural: str, name: str, manager: str, fields: dict[str, Any], *, namespace: str = "serving") -> None:
        """Let somebody else write fields of an object's spec."""
        with self.lock:
            found = self.objects[plural, namespace, name]
            found["spec"].update(fields)
            _note(found, manager, fields)

    def drop(self, plural: str, name: str, *, namespace: str = "serving") -> None:
        """Let somebody delete an object."""
        with self.lock:
            self.objects.pop((plural, namespace, name))

    def spec(self, plural: str, name: str, namespace: str = "serving") -> dict[str, Any]:
        """Return an object's spec as it stands."""
        found: dict[str, Any] = self.objects[plural, namespace, name]["spec"]
        return found

    def custom(self) -> Any:
        """Return the official client's API for custom objects, told to ask here and to retry nothing."""
        import kubernetes.client

        settings = kubernetes.client.Configuration(host=self.url)
        settings.retries = 0
        return kubernetes.client.CustomObjectsApi(kubernetes.client.ApiClient(settings))

    def put(self, key: Key, body: dict[str, Any], manager: str) -> tuple[int, dict[str, Any]]:
        """Replace an object as the API server does: only over the version that was read."""
        with self.lock:
            standing = self.objects[key]
            if self.touches > 0:
                self.touches -= 1
                _touch(standing)
            if body["metadata"].get("resourceVersion") != standing["metadata"]["resourceVersion"]:
                return 409, {"message": "the object has been modified", "code": 409}
            changed = {k: v for k, v in body["spec"].items() if standing["spec"].get(k) != v}
            fresh = {**deepcopy(standing), "spec": deepcopy(body["spec"])}
            _note(fresh, manager, changed)
            self.objects[key] = fresh
            return 200, deepcopy(fresh)


def _note(found: dict[str, Any], manager: str, fields: dict[str, Any]) -> None:
    owned: dict[str, Any] = {"f:spec": {f"f:{k}": {} for k in fields}}
    at = f"2026-11-30T12:00:{len(found['metadata']['managedFields']):02}Z"
    for entry in found["metadata"]["managedFields"]:
        for k in fields:
            entry["fieldsV1"]["f:spec"].pop(f"f:{k}", None)
    found["metadata"]["managedFields"].append({"manager": manager, "operation": "Update", "time": at, "fieldsV1": owned})
    _touch(found)


def _touch(found: dict[str, Any]) -> None:
    found["metadata"]["resourceVersion"] = str(int(found["metadata"]["resourceVersion"]) + 1)


def _handler(double: KubeObjects) -> type[BaseHTTPRequestHandler]:
    class Handler(JsonAnswers):
        def do_GET(self) -> None:
            self._do("get", None)

        def do_PUT(self) -> None:
            self._do("update", self.body())

        def _do(self, verb: str, body: dict[str, Any] | None) -> None:
            parts = urlsplit(self.path)
            found = _PATH.match(parts.path)
            if double.silent:
                time.sleep(3)
                return
            if found is None or found[4] not in double.kinds:
                self.answer(404, {"message": "the server could not find the requested resource", "code": 404})
                return
            group, namespace, plural, name = found[1], found[3], found[4], found[5]
            verb = "list" if name is None else verb
            double.asked.append((verb, group, plural))
            if verb in double.forbids.get(plural, ()):
                self.answer(403, {"message": f'cannot {verb} resource "{plural}" in the namespace "{namespace}"', "code": 403})
            elif name is None:
                items = [deepcopy(o) for (p, n, _), o in double.objects.items() if (p, n) == (plural, namespace)]
                self.answer(200, {"items": items, "metadata": {}})
            elif (plural, namespace, name) not in double.objects:
                self.answer(404, {"message": "not found", "code": 404})
            elif body is not None:
                manager = parse_qs(parts.query).get("fieldManager", ["unnamed"])[0]
                self.answer(*double.put((plural, namespace, name), body, manager))
            else:
                self.answer(200, deepcopy(double.objects[plural, namespace, name]))

    return Handler


@contextmanager
def kube_objects(*kinds: str) -> Iterator[KubeObjects]:
    """Serve as long as the block runs; a kind that is not named is not known to the cluster."""
    double = KubeObjects(kinds)
    try:
        yield double
    finally:
        double.close()
