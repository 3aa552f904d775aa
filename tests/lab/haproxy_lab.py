"""Lab tests: a real HAProxy in a short folder before tiny stdlib servers that stand in for engines."""

from __future__ import annotations

import http.client
import json
import random
import secrets
import shutil
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fleetctl.adapters.deadline import Deadline
from fleetctl.adapters.routers.haproxy.config import RouterConfig, write_files
from fleetctl.adapters.routers.haproxy.process import HaproxyProcess, find_binary
from fleetctl.adapters.routers.haproxy.router import HaproxyRouter
from fleetctl.adapters.routers.haproxy.wire import AdminSocket
from fleetctl.adapters.routers.route import CellRoute
from fleetctl.domain.fleet import Connection
from fleetctl.domain.ids import CellId, PoolId, Token
from fleetctl.domain.split import Applied, Split
from fleetctl.domain.workload import AffinityKey, Cohort
from fleetctl.ports.traffic import Router

CELL, STREAM = CellId("chat-lab"), CellId("stream-lab")
SOURCE, TARGET = PoolId("nvidia-lab"), PoolId("mi300x-lab")
PIN_KEY = "0123456789abcdef-test"


def until(found: Callable[[], bool], what: str, within_s: float = 8.0) -> None:
    """Poll until a condition holds; fail with its name otherwise."""
    end = time.monotonic() + within_s
    while not found():
        assert time.monotonic() < end, f"not within {within_s} s: {what}"
        time.sleep(0.01)


def free_port() -> int:
    """Return a port of 20000-29999 that nobody has bound."""
    while True:
        port = random.randint(20_000, 29_999)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        return

    def do_GET(self) -> None:
        self._answer({"data": [{"id": "listed-model"}]})

    def do_POST(self) -> None:
        backend: Backend = self.server.backend  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        check = self.headers.get("x-fleetctl-check") == "1"
        if not check:
            backend.seen.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
        if backend.sleep_s and not check:
            time.sleep(backend.sleep_s)
        if backend.stream and not check:
            return self._stream()
        usage = {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}
        text = "x" * backend.answer_bytes
        self._answer({"choices": [{"text": text}], "usage": usage}, backend.status)
        return None

    def _answer(self, answer: dict[str, Any], status: int = 200) -> None:
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(text)

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for n in range(15):
            self.wfile.write(b"data: %d\n\n" % n)
            self.wfile.flush()
            time.sleep(0.1)
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def handle_error(self, request: Any, client_address: Any) -> None:
        return


@dataclass
class Backend:
    """One tiny server; `seen` holds (path, headers, body) of everything but health checks."""

    port: int = 0
    sleep_s: float = 0.0
    status: int = 200
    stream: bool = False
    answer_bytes: int = 1
    seen: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    server: _Server | None = None

    def start(self) -> Backend:
        """Listen on its port (a free one at first)."""
        while self.server is None:
            port = self.port or free_port()
            with suppress(OSError):
                self.server = _Server(("127.0.0.1", port), _Handler)
                self.port = port
        self.server.backend = self  # type: ignore[attr-defined]
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def stop(self) -> None:
        """Refuse connections from now on."""
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.server = None


@dataclass
class Rig:
    """A running HAProxy with one plain and one streaming cell, two source servers and one target server each."""

    folder: Path
    port: int
    process: HaproxyProcess
    connection: Connection
    backends: dict[CellId, dict[str, Backend]]
    collector: Backend

    def router(self) -> HaproxyRouter:
        """Return a new writer."""
        return HaproxyRouter(self.connection, sources={CELL: SOURCE, STREAM: SOURCE})

    def status(self, cell: CellId) -> dict[str, tuple[str, str]]:
        """Return status and last check per server, those of the target's backend too."""
        admin = AdminSocket(self.process.socket)
        rows = (*admin.servers(f"{cell}_canary", Deadline()), *admin.servers(f"{cell}_baseline", Deadline()))
        return {row.name: (row.status, row.check) for row in rows}

    def healthy(self, cell: CellId = CELL) -> None:
        """Wait until every server has passed a real check."""
        until(lambda: all(found == ("UP", "L7OK") for found in self.status(cell).values()), "all servers UP by a real completion")

    def ask(
        self, cell: CellId = CELL, *, key: str = "", headers: dict[str, str] | None = None, body: dict[str, Any] | None = None
    ) -> Answer:
        """Send one completion."""
        return ask(self.port, cell, key=key, headers=headers, body=body)

    def split(self, keys: list[str]) -> dict[str, str]:
        """Return per conversation whether source ("b") or target ("c") answered, by the servers themselves."""
        servers = self.backends[CELL]
        for backend in servers.values():
            backend.seen.clear()
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        for key in keys:
            link.request("POST", f"/{CELL}/v1/completions", "{}", {"x-conversation-id": key, "content-type": "application/json"})
            assert link.getresponse().read()
        link.close()
        return {headers["x-conversation-id"]: name[0] for name, backend in servers.items() for _, headers, _ in backend.seen}

    def log(self) -> list[dict[str, Any]]:
        """Return the JSON lines of the newest log."""
        path = self.process.log_path()
        assert path is not None
        return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]

    def log_text(self) -> str:
        """Return the newest log whole."""
        path = self.process.log_path()
        assert path is not None
        return path.read_text()


@dataclass
class Answer:
    """What a client got."""

    status: int
    headers: dict[str, str]
    body: bytes
    seconds: float


def ask(port: int, cell: str, *, key: str = "", headers: dict[str, str] | None = None, body: dict[str, Any] | None = None) -> Answer:
    """Send one completion through HAProxy on a new connection."""
    began = time.monotonic()
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    sent = {"content-type": "application/json", **({"x-conversation-id": key} if key else {}), **(headers or {})}
    try:
        link.request("POST", f"/{cell}/v1/completions", json.dumps(body or {"prompt": "hello"}), sent)
        answer = link.getresponse()
        text = answer.read()
        return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, text, time.monotonic() - began)
    finally:
        link.close()


def in_an_hour() -> datetime:
    """Return an instant an hour ahead."""
    return datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)


def put(router: Router, bp: int, *, token: int, cap: int = 10_000, cell: CellId = CELL, lease: datetime | None = None) -> Applied:
    """Set a weight, fencing first where the floor is lower."""
    if router.read(cell).token < token:
        assert isinstance(router.fence(cell, Token(token)), Split)
    done = router.set(Split(cell=cell, target_bp=bp, cap_bp=cap, token=Token(token), lease_until=lease or in_an_hour()))
    assert isinstance(done, Applied), done
    return done


@contextmanager
def rig(
    *,
    lua: bool = True,
    retries: int = 0,
    copies_s: int = 180,
    canaries: tuple[str, ...] = ("c1",),
    adapters: tuple[str, ...] = (),
    cohort: AffinityKey | None = None,
    part: Cohort | None = None,
    through: Callable[[CellId, int], int] = lambda cell, port: port,
) -> Iterator[Rig]:
    """Run one, and leave nothing behind; with a `part` the second cell serves these requests of the first, and does not stream.

    Args:
        through: the port by which HAProxy reaches a target server, from the server's own: something may stand between.
    """
    folder = Path("/tmp") / f"fl-{secrets.token_hex(4)}"
    folder.mkdir(mode=0o700)
    backends = {
        cell: {name: Backend(stream=cell == STREAM and part is None).start() for name in ("b1", "b2", *canaries)} for cell in (CELL, STREAM)
    }
    collector = Backend().start()
    routes = tuple(
        CellRoute(
            cell=cell,
            model="tiny",
            baseline=tuple(f"127.0.0.1:{servers[name].port}" for name in ("b1", "b2")),
            canary=tuple(f"127.0.0.1:{through(cell, servers[name].port)}" for name in canaries),
            affinity=AffinityKey(kind="header", name="x-conversation-id"),
            streaming=cell == STREAM and part is None,
            part=part if cell == STREAM else None,
            check_every_ms=300,
            check_timeout_ms=1_000,
            adapters=adapters if cell == CELL else (),
            cohort=cohort if cell == CELL else None,
        )
        for cell, servers in backends.items()
    )
    port = free_port()
    config = RouterConfig(cells=routes, port=port, socket=folder / "haproxy.sock", map_folder=folder, collector_port=collector.port)
    config = replace(config, lua=lua, retries=retries, copies_s=copies_s)
    write_files(config, folder)
    process = HaproxyProcess(folder=folder, socket=config.socket, binary=find_binary(), pin_key=PIN_KEY)
    settings = {
        "socket": str(config.socket),
        "map_folder": str(folder),
        "log_folder": str(folder / "log"),
        "url": f"http://127.0.0.1:{port}",
    }
    try:
        process.start()
        yield Rig(folder, port, process, Connection(name="lab", kind="haproxy", settings=settings), backends, collector)
    finally:
        process.stop()
        for backend in (collector, *(b for servers in backends.values() for b in servers.values())):
            backend.stop()
        shutil.rmtree(folder, ignore_errors=True)


def counted(names: list[str]) -> Counter[str]:
    """Count by name."""
    return Counter(names)
