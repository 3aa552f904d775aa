"""Provision, tests: a lab double of Azure's resource manager over TLS on loopback. Never the real thing: it keeps resources in memory.

What it emulates: PUT, GET, PATCH, DELETE and lists of any resource; long-running operations (201 or 202, then polls);
paging; a resource group goes with all that it holds; SKUs with restrictions;
usages with quota; refusals at the request, in polling (a Failed machine stays, its card attached), throttling; eviction with a notice.
"""

from __future__ import annotations

import json
import re
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.doubles.arm_facts import MESSAGES, SIZES, SUBSCRIPTION, skus, usages

VM = "microsoft.compute/virtualmachines"
NIC = "microsoft.network/networkinterfaces"
DISK = "microsoft.compute/disks"
GROUP = "Microsoft.Resources/resourceGroups"
_ROOT = f"/subscriptions/{SUBSCRIPTION}"
_IN_GROUP = re.compile(r"(/subscriptions/[^/]+/resourcegroups/[^/]+)/resources$")
_TYPED = re.compile(r"/providers/([^/]+)((?:/[^/]+/[^/]+)*)(?:/([^/]+))?$", re.IGNORECASE)


@dataclass(slots=True, kw_only=True)
class Rule:
    """One scripted refusal of machines; empty fields fit all.

    Args:
        how: "request" (refused at once), "polling" (accepted, then failed, the machine stays behind), "throttle" (429).
        times: how often it still acts; -1 always.
    """

    code: str
    how: str = "request"
    size: str = ""
    region: str = ""
    zone: str = ""
    priority: str = ""
    name: str = ""
    times: int = -1
    retry_after: int = 1
    message: str = ""

    def fits(self, name: str, body: dict[str, Any]) -> bool:
        """Tell whether it refuses this machine."""
        zones = body.get("zones") or [""]
        properties = body.get("properties", {})
        found = {
            "size": properties.get("hardwareProfile", {}).get("vmSize", ""),
            "region": body.get("location", ""),
            "zone": zones[0],
            "priority": properties.get("priority", "Regular"),
            "name": name,
        }
        return self.times != 0 and all(not getattr(self, k) or getattr(self, k).lower() == v.lower() for k, v in found.items())


@dataclass(slots=True, kw_only=True)
class Operation:
    """One long-running operation."""

    polls_left: int
    ends_at: float
    error: dict[str, Any] | None = None
    target: str = ""
    deletes: bool = False


@dataclass(slots=True)
class World:
    """What the double knows; one lock around all of it."""

    resources: dict[str, dict[str, Any]] = field(default_factory=dict)
    operations: dict[str, Operation] = field(default_factory=dict)
    rules: list[Rule] = field(default_factory=list)
    limits: dict[tuple[str, str], int] = field(default_factory=dict)
    restricted: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    log: list[tuple[str, str]] = field(default_factory=list)
    polls: int = 1
    slow_s: float = 0.0
    page: int = 2
    deny: int = 0
    number: int = 0
    failed_at: list[float] = field(default_factory=list)
    asked_at: list[float] = field(default_factory=list)


class ArmDouble:
    """A server; use as a context manager.

    Args:
        folder: gets the certificate and its key (made for this run only).
    """

    def __init__(self, folder: Path) -> None:
        self.world = World()
        self.lock = threading.RLock()
        self.certificate = folder / "arm.pem"
        key = folder / "arm.key"
        make_certificate(self.certificate, key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, key)
        handler = type("Handler", (_Handler,), {"double": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> ArmDouble:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=10)

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which the stub provider finds this double."""
        return {"FLEETCTL_ARM_DOUBLE": self.url, "FLEETCTL_ARM_DOUBLE_CA": str(self.certificate)}

    def refuse(self, code: str, **fits: Any) -> Rule:
        """Add a rule; return it, so that a test can end it (times = 0)."""
        rule = Rule(code=code, **fits)
        with self.lock:
            self.world.rules.append(rule)
        return rule

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return copies of every resource of a type, such as "microsoft.compute/virtualmachines"."""
        with self.lock:
            return [json.loads(json.dumps(r)) for r in self.world.resources.values() if r["type"].lower() == kind]

    def machines(self) -> dict[str, str]:
        """Return name and provisioning state of every machine."""
        return {r["name"]: r["properties"]["provisioningState"] for r in self.of(VM)}

    def requests(self, method: str, part: str) -> int:
        """Return how many requests of that method had `part` in their path."""
        with self.lock:
            return sum(m == method and part.lower() in p.lower() for m, p in self.world.log)

    def tag(self, name: str, tags: dict[str, str]) -> None:
        """Change a machine's tags, as somebody at the portal would."""
        with self.lock:
            for r in self.world.resources.values():
                if r["name"] == name and r["type"].lower() == VM:
                    r["tags"] = {**r.get("tags", {}), **tags}


def make_certificate(certificate: Path, key: Path) -> None:
    """Write a certificate for 127.0.0.1 that signs itself, good for a day."""
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fleetctl lab double")])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(private, hashes.SHA256())
    )
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    pem = private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    key.touch(mode=0o600)
    key.write_bytes(pem)


class _Answer(Exception):
    """An answer that ends the handling of a request."""

    def __init__(self, status: int, body: object = None, headers: dict[str, str] | None = None) -> None:
        super().__init__(status)
        self.status, self.body, self.headers = status, body, headers or {}


def _error(status: int, code: str, message: str = "", headers: dict[str, str] | None = None) -> _Answer:
    return _Answer(status, {"error": {"code": code, "message": message or MESSAGES.get(code, code)}}, headers)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    double: ArmDouble

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the standard library's name)
        """Say nothing."""

    def do_GET(self) -> None:
        self._serve("GET")

    def do_PUT(self) -> None:
        self._serve("PUT")

    def do_PATCH(self) -> None:
        self._serve("PATCH")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_DELETE(self) -> None:
        self._serve("DELETE")

    def _serve(self, method: str) -> None:
        split = urlsplit(self.path)
        path, query = unquote(split.path).rstrip("/"), {k: v[0] for k, v in parse_qs(split.query).items()}
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length) if length else b""
        world = self.double.world
        try:
            with self.double.lock:
                world.log.append((method, path))
                slow = world.slow_s if method == "PUT" and VM in path.lower() else 0.0
            if slow:
                time.sleep(slow)
            with self.double.lock:
                if world.deny:
                    raise _error(world.deny, "ExpiredAuthenticationToken" if world.deny == 401 else "AuthorizationFailed")
                body = json.loads(raw) if raw else {}
                Arm(world, self.double.url).handle(method, path, query, body)
        except _Answer as answer:
            self._send(answer)
        except Exception as e:  # a fault of the double must show as one
            self._send(_error(500, "DoubleFailed", f"{type(e).__name__}: {e}"))

    def _send(self, answer: _Answer) -> None:
        data = b"" if answer.body is None else json.dumps(answer.body).encode()
        self.send_response(answer.status)
        for name, value in {"Content-Type": "application/json", "x-ms-request-id": "lab-double", **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class Arm:
    """Answers one request over the world; called with the lock held."""

    def __init__(self, world: World, url: str) -> None:
        self.world = world
        self.url = url

    def handle(self, method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> None:
        """Raise the answer."""
        low = path.lower()
        if low == "/metadata/scheduledevents":
            raise _Answer(200, {"DocumentIncarnation": len(self.world.events), "Events": self.world.events})
        if not low.startswith("/subscriptions/"):
            raise _error(404, "InvalidResource", f"no such path: {path}")
        if "/providers/microsoft.lab/operations/" in low:
            self._poll(low.rsplit("/", 1)[1])
        if method == "GET":
            self._special(low, query)
        if method == "POST":
            self._verb(low)
        if method == "PUT":
            self._put(path, body)
        if method == "PATCH":
            found = self._found(path)
            found.update({k: v for k, v in body.items() if k in {"tags", "zones"}})
            found["properties"] = {**found["properties"], **body.get("properties", {})}
            raise _Answer(200, found)
        if method == "DELETE":
            self._delete(path)
        self._get(path, query)

    def _found(self, path: str) -> dict[str, Any]:
        found = self.world.resources.get(path.lower())
        if found is None:
            raise _error(404, "ResourceNotFound", f"The Resource '{path}' was not found.")
        return found

    def _special(self, low: str, query: dict[str, str]) -> None:
        if low.endswith("/providers/microsoft.compute/skus"):
            named = re.search(r"location eq '([^']+)'", query.get("$filter", ""))
            raise _Answer(200, self._paged(low, skus(named[1] if named else "", self.world.restricted), query))
        place = re.search(r"/providers/microsoft.compute/locations/([^/]+)/usages$", low)
        if place:
            raise _Answer(200, {"value": usages(place[1], self.world.limits, self._used(place[1]))})
        listed = re.search(r"/providers/microsoft.compute/locations/([^/]+)/virtualmachines$", low)
        if listed:
            here = [r for r in self.world.resources.values() if r["type"].lower() == VM and r.get("location", "").lower() == listed[1]]
            raise _Answer(200, self._paged(low, here, query))
        grouped = _IN_GROUP.match(low)
        if grouped:
            inside = [r for k, r in self.world.resources.items() if k.startswith(f"{grouped[1]}/") and r["type"].count("/") == 1]
            raise _Answer(200, self._paged(low, [r for r in inside if "/microsoft.lab/" not in r["id"].lower()], query))
        if low in {f"{_ROOT.lower()}/resources", f"{_ROOT.lower()}/resourcegroups"}:
            wanted = re.search(r"tagName eq '([^']+)' and tagValue eq '([^']+)'", query.get("$filter", ""))
            groups = low.endswith("groups")
            all_ = [r for r in self.world.resources.values() if (r["type"] == GROUP) == groups and "/microsoft.lab/" not in r["id"].lower()]
            hits = [r for r in all_ if wanted is None or r.get("tags", {}).get(wanted[1]) == wanted[2]]
            raise _Answer(200, self._paged(low, hits, query))

    def _get(self, path: str, query: dict[str, str]) -> None:
        low = path.lower()
        if low.endswith("/instanceview"):
            state = self._found(path.rsplit("/", 1)[0])["properties"]["provisioningState"]
            codes = [f"ProvisioningState/{state.lower()}", "PowerState/running" if state == "Succeeded" else "PowerState/stopped"]
            raise _Answer(200, {"statuses": [{"code": c, "level": "Info"} for c in codes]})
        if low in self.world.resources:
            raise _Answer(200, self.world.resources[low])
        typed = _TYPED.search(low)
        if typed and typed[3]:
            outer = typed[2].split("/")[1::2]
            kind = "/".join([typed[1], *outer, typed[3]])
            before = low.rsplit("/", 1)[0] if outer else low[: typed.start()]
            hits = [r for k, r in self.world.resources.items() if r["type"].lower() == kind and k.startswith(before + "/")]
            raise _Answer(200, self._paged(low, hits, query))
        raise _error(404, "ResourceNotFound", f"The Resource '{path}' was not found.")

    def _paged(self, path: str, rows: list[dict[str, Any]], query: dict[str, str]) -> dict[str, Any]:
        start, size = int(query.get("$skiptoken", "0")), self.world.page
        page: dict[str, Any] = {"value": rows[start : start + size]}
        if start + size < len(rows):
            rest = "&".join(f"{k}={v}" for k, v in query.items() if k != "$skiptoken").replace(" ", "%20")
            page["nextLink"] = f"{self.url}{path}?{rest}&$skiptoken={start + size}"
        return page

    def _put(self, path: str, body: dict[str, Any]) -> None:
        low, name = path.lower(), path.rsplit("/", 1)[1]
        typed = _TYPED.search(path)
        kind = GROUP if typed is None else f"{typed[1]}/{'/'.join(typed[2].split('/')[1::2])}"
        before = self.world.resources.get(low)
        if typed is not None and "/resourcegroups/" in low:
            group = low.split("/providers/")[0]
            if group not in self.world.resources:
                raise _error(404, "ResourceGroupNotFound", f"Resource group '{group.rsplit('/', 1)[1]}' could not be found.")
        made = {**body, "id": path, "name": name, "type": kind, "tags": body.get("tags") or {}}
        made["properties"] = {**body.get("properties", {}), "provisioningState": "Succeeded"}
        if kind.lower() == VM and before is None:
            self._make_machine(path, made)
        self.world.resources[low] = made
        raise _Answer(200 if before else 201, made)

    def _make_machine(self, path: str, made: dict[str, Any]) -> None:
        self.world.asked_at.append(time.monotonic())
        rule = next((r for r in self.world.rules if r.fits(made["name"], made)), None)
        if rule is not None and rule.times > 0:
            rule.times -= 1
        if rule is not None and rule.how == "throttle":
            raise _error(429, rule.code, headers={"Retry-After": str(rule.retry_after)})
        if rule is not None and rule.how == "request":
            raise _error(409, rule.code, rule.message)
        self._check_quota(made)
        self.world.number += 1
        operation = f"op-{self.world.number}"
        failure = None
        if rule is not None:
            failure = {"code": rule.code, "message": rule.message or MESSAGES.get(rule.code, rule.code)}
        ends_at = time.monotonic() + (self.world.slow_s if failure is None else 0.0)
        self.world.operations[operation] = Operation(polls_left=self.world.polls, ends_at=ends_at, error=failure, target=path.lower())
        made["properties"] |= {"provisioningState": "Creating", "vmId": f"00000000-0000-4000-9000-{self.world.number:012d}"}
        self.world.resources[path.lower()] = made
        self._attach(path, made)
        where = f"{self.url}{_ROOT}/providers/Microsoft.Lab/operations/{operation}"
        raise _Answer(201, made, {"Azure-AsyncOperation": where, "Retry-After": "0"})

    def _attach(self, path: str, made: dict[str, Any]) -> None:
        for ref in made["properties"].get("networkProfile", {}).get("networkInterfaces", []):
            card = self.world.resources.get(ref["id"].lower())
            if card is None:
                raise _error(400, "InvalidResourceReference", f"Resource {ref['id']} was not found.")
            card["properties"]["virtualMachine"] = {"id": path}
        os_disk = made["properties"].get("storageProfile", {}).get("osDisk", {})
        if not os_disk.get("diffDiskSettings"):
            group = path.split("/providers/")[0]
            disk = f"{group}/providers/Microsoft.Compute/disks/{made['name']}_OsDisk_1_{self.world.number:04d}"
            row = {"id": disk, "name": disk.rsplit("/", 1)[1], "type": "Microsoft.Compute/disks", "location": made.get("location", "")}
            self.world.resources[disk.lower()] = {
                **row,
                "managedBy": path,
                "tags": {},
                "properties": {"provisioningState": "Succeeded"},
            }
            made["properties"].setdefault("storageProfile", {}).setdefault("osDisk", {})["managedDisk"] = {"id": disk}

    def _check_quota(self, made: dict[str, Any]) -> None:
        size = SIZES.get(made["properties"].get("hardwareProfile", {}).get("vmSize", ""))
        if size is None:
            raise _error(400, "InvalidParameter", "The value of parameter vmSize is invalid.")
        region = made.get("location", "").lower()
        spot = made["properties"].get("priority") == "Spot"
        for bucket in ("lowPriorityCores",) if spot else (size.family, "cores"):
            limit, used = self.world.limits.get((region, bucket), 10_000), self._used(region).get(bucket, 0)
            if used + size.vcpus > limit:
                text = MESSAGES["quota"].format(
                    name=f"{bucket} Cores", region=region, limit=limit, used=used, required=size.vcpus, least=used + size.vcpus
                )
                raise _error(409, "OperationNotAllowed", text)

    def _used(self, region: str) -> dict[str, int]:
        used: dict[str, int] = {}
        for r in self.world.resources.values():
            if r["type"].lower() == VM and r.get("location", "").lower() == region.lower():
                size = SIZES[r["properties"]["hardwareProfile"]["vmSize"]]
                spot = r["properties"].get("priority") == "Spot"
                for bucket in ("lowPriorityCores",) if spot else (size.family, "cores"):
                    used[bucket] = used.get(bucket, 0) + size.vcpus
        return used

    def _poll(self, number: str) -> None:
        operation = self.world.operations.get(number)
        if operation is None:
            raise _error(404, "NotFound")
        operation.polls_left -= 1
        if operation.polls_left > 0 or time.monotonic() < operation.ends_at:
            raise _Answer(200, {"status": "InProgress", "name": number}, {"Retry-After": "0"})
        target = self.world.resources.get(operation.target)
        if target is not None:
            target["properties"]["provisioningState"] = "Succeeded" if operation.error is None else "Failed"
        if operation.error is None:
            raise _Answer(200, {"status": "Succeeded", "name": number})
        self.world.failed_at.append(time.monotonic())
        raise _Answer(200, {"status": "Failed", "name": number, "error": operation.error})

    def _delete(self, path: str) -> None:
        low = path.lower()
        if low not in self.world.resources:
            raise _Answer(204)
        gone = self.world.resources[low]
        holder = gone["properties"].get("virtualMachine", {}).get("id") or gone.get("managedBy", "")
        if holder and holder.lower() in self.world.resources:
            code = "NicInUse" if gone["type"].lower() == NIC else "OperationNotAllowed"
            raise _error(409, code, f"{gone['name']} is used by existing resource {holder}.")
        for key in [k for k in self.world.resources if k == low or k.startswith(low + "/")]:
            del self.world.resources[key]
        raise _Answer(200, {})

    def _verb(self, low: str) -> None:
        target, verb = low.rsplit("/", 1)
        found = self._found(target)
        if verb == "simulateeviction":
            event = {
                "EventId": f"e-{len(self.world.events) + 1}",
                "EventType": "Preempt",
                "EventStatus": "Scheduled",
                "ResourceType": "VirtualMachine",
            }
            self.world.events.append(
                {**event, "Resources": [found["name"]], "NotBefore": _http_time(time.time() + 30), "EventSource": "Platform"}
            )
            raise _Answer(204)
        if verb in {"deallocate", "start", "redeploy"}:
            raise _Answer(200, {})
        raise _error(404, "NotFound", f"no such action: {verb}")


def _http_time(at: float) -> str:
    return time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(at))


def names(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the names of resources."""
    for row in rows:
        yield row["name"]
