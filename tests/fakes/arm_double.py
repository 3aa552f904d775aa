"""A TLS double of Azure's management API (ARM) on loopback: reads of Microsoft.Compute, paged by nextLink, at any api-version; autoscale
settings (Microsoft.Insights) are read and written.

It notes every request, wants a bearer token, and fails as it is told: 429 with Retry-After, 409, 500, a region that is down.
Usage as a program: python -m tests.fakes.arm_double FOLDER VMS REGIONS; it prints its address and serves until its stdin ends.
"""

from __future__ import annotations

import json
import re
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.fakes.arm_estate import Estate
from tests.fakes.tls import make_certificate

TOKEN = "emulated-token"


@dataclass(slots=True, kw_only=True)
class Fault:
    """What happens to requests whose path matches: status, error code, headers; for so many times (-1: always)."""

    path: str
    status: int
    code: str = "Emulated"
    message: str = "emulated"
    headers: dict[str, str] = field(default_factory=dict)
    times: int = -1
    after: int = 0


class ArmDouble:
    """The running double.

    Args:
        estate: what it shows.
    """

    def __init__(self, estate: Estate, folder: Path) -> None:
        self.estate = estate
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str, str]] = []
        self.token = TOKEN
        self._lock = threading.Lock()
        self.ca_file, server_file = make_certificate(folder)
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(server_file)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=10)

    def fault_of(self, path: str) -> Fault | None:
        """Return the fault that strikes this request, and count it."""
        with self._lock:
            for fault in self.faults:
                if fault.times != 0 and re.search(fault.path, path):
                    if fault.after > 0:
                        fault.after -= 1
                        continue
                    fault.times -= fault.times > 0
                    return fault
        return None

    def answer(self, path: str, query: dict[str, list[str]]) -> str | None:
        """Return the body of a GET, None for a path that is not there."""
        skip = int(query.get("$skiptoken", ["0"])[0])
        estate = self.estate
        region = re.search(r"/locations/([^/]+)/(virtualMachines|usages)$", path)
        if region and region[2] == "virtualMachines":
            return self._paged(path, query, *estate.vms(region[1], skip))
        if region:
            return _list(estate.usages(region[1]))
        if path.endswith("/providers/Microsoft.Compute/virtualMachines"):
            return self._paged(path, query, *estate.statuses(skip))
        if path.endswith("/providers/Microsoft.Compute/skus"):
            only = re.search(r"location eq '([^']+)'", query.get("$filter", [""])[0])
            return _list(estate.skus(only[1] if only else None))
        first = next(iter(estate.regions), "")
        if path.endswith("/providers/Microsoft.Compute/virtualMachineScaleSets"):
            return _list([estate.scale_set(name, first) for name in estate.scale_sets])
        members = re.search(r"/virtualMachineScaleSets/([^/]+)/virtualMachines$", path)
        if members and members[1] in estate.scale_sets:
            return _list(estate.scale_set_vms(members[1], first))
        if path.endswith("/capacityReservationGroups"):
            return _list([])
        one = re.search(r"/providers/Microsoft.Compute/virtualMachineScaleSets/([^/]+)$", path)
        if one and one[1] in estate.scale_sets:
            return json.dumps(estate.scale_set(one[1], first))
        if path.endswith("/providers/Microsoft.Insights/autoscalesettings"):
            return _list(list(estate.autoscale.values()))
        setting = estate.autoscale.get(path.rpartition("/")[2]) if "/Microsoft.Insights/autoscalesettings/" in path else None
        return json.dumps(setting) if setting is not None else None

    def put(self, path: str, body: dict[str, object]) -> str | None:
        """Replace an autoscale setting, None where it is not there."""
        name = path.rpartition("/")[2]
        if "/Microsoft.Insights/autoscalesettings/" not in path or name not in self.estate.autoscale:
            return None
        self.estate.autoscale[name] = {**self.estate.autoscale[name], **body}
        return json.dumps(self.estate.autoscale[name])

    def _paged(self, path: str, query: dict[str, list[str]], items: list[str], more: int | None) -> str:
        version = query.get("api-version", [""])[0]
        status = f"&statusOnly={query['statusOnly'][0]}" if "statusOnly" in query else ""
        link = f',"nextLink":"{self.url}{path}?api-version={version}{status}&$skiptoken={more}"' if more is not None else ""
        return f'{{"value":[{",".join(items)}]{link}}}'


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client that goes away mid-request is no fault of the double."""


def _list(items: list[dict[str, object]]) -> str:
    return json.dumps({"value": items})


def _handler(double: ArmDouble) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def do_GET(self) -> None:
            self._do(lambda path, query: double.answer(path, query))

        def do_PUT(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
            self._do(lambda path, _: double.put(path, body))

        def _do(self, answer: Callable[[str, dict[str, list[str]]], str | None]) -> None:
            parts = urlsplit(self.path)
            query = parse_qs(parts.query)
            double.requests.append((self.command, parts.path, query.get("api-version", [""])[0]))
            if self.headers.get("Authorization") != f"Bearer {double.token}":
                self._error(401, "InvalidAuthenticationToken", "The access token is invalid.", {"WWW-Authenticate": "Bearer"})
                return
            fault = double.fault_of(f"{self.command} {parts.path}")
            if fault is not None:
                self._error(fault.status, fault.code, fault.message, fault.headers)
                return
            body = answer(parts.path, query)
            if body is None:
                self._error(404, "ResourceNotFound", f"no {parts.path}", {})
                return
            self._send(200, body.encode(), {"x-ms-ratelimit-remaining-subscription-reads": "11999"})

        def _error(self, status: int, code: str, message: str, headers: dict[str, str]) -> None:
            self._send(status, json.dumps({"error": {"code": code, "message": message}}).encode(), headers)

        def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("x-ms-request-id", f"emulated-{len(double.requests)}")
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler


@contextmanager
def arm_double(estate: Estate, folder: Path) -> Iterator[ArmDouble]:
    """Serve an estate as long as the block runs."""
    double = ArmDouble(estate, folder)
    try:
        yield double
    finally:
        double.close()


def main() -> None:
    """Serve so many VMs over so many regions until stdin ends."""
    folder, vms, regions = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    each, rest = divmod(vms, regions)
    estate = Estate(regions={f"region{n:02}": each + (n < rest) for n in range(regions)})
    with arm_double(estate, folder) as double:
        print(double.url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
