"""Lab tests: a real Envoy in a short folder before tiny stdlib servers that stand in for engines."""

from __future__ import annotations

import http.client
import json
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetctl.adapters.deadline import Deadline
from fleetctl.adapters.routers.envoy.config import EnvoyConfig, write_files
from fleetctl.adapters.routers.envoy.router import EnvoyRouter
from fleetctl.adapters.routers.envoy.runtime import Admin, HostRow
from fleetctl.adapters.routers.route import CellRoute
from fleetctl.domain.fleet import Connection
from fleetctl.domain.ids import CellId
from fleetctl.domain.workload import AffinityKey, Cohort
from fleetctl.lab.envoy import envoy_argv, find_envoy
from tests.lab.haproxy_lab import CELL, PIN_KEY, SOURCE, STREAM, Answer, Backend, ask, free_port, until

SOURCES = {CELL: SOURCE, STREAM: SOURCE}


@dataclass
class EnvoyRig:
    """A running Envoy with one plain and one streaming cell, two source servers and one target server each."""

    folder: Path
    config: EnvoyConfig
    connection: Connection
    backends: dict[CellId, dict[str, Backend]]
    collector: Backend
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start Envoy and wait until it is ready."""
        argv = envoy_argv(find_envoy(), self.folder / "envoy.json")
        errors = (self.folder / "stderr.txt").open("ab")
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)
        errors.close()
        until(self._is_ready, "envoy is ready")

    def stop(self) -> None:
        """Kill Envoy."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def router(self) -> EnvoyRouter:
        """Return a new writer."""
        return EnvoyRouter(self.connection, sources=SOURCES)

    def ask(
        self, cell: CellId = CELL, *, key: str = "", headers: Mapping[str, str] | None = None, body: dict[str, Any] | None = None
    ) -> Answer:
        """Send one completion."""
        return ask(self.config.port, cell, key=key, headers=dict(headers or {}), body=body)

    def split(self, keys: list[str], *, as_cookie: bool = False) -> dict[str, str]:
        """Return per conversation whether source ("b") or target ("c") answered, by the servers themselves."""
        servers = self.backends[CELL]
        for backend in servers.values():
            backend.seen.clear()
        link = http.client.HTTPConnection("127.0.0.1", self.config.port, timeout=10)
        for key in keys:
            sent = {"cookie": f"conversation={key}"} if as_cookie else {"x-conversation-id": key}
            link.request("POST", f"/{CELL}/v1/completions", "{}", {**sent, "x-key": key, "content-type": "application/json"})
            assert link.getresponse().read()
        link.close()
        return {headers["x-key"]: name[0] for name, backend in servers.items() for _, headers, _ in backend.seen}

    def hosts(self, cell: CellId = CELL) -> tuple[HostRow, ...]:
        """Return the servers of both of a cell's clusters."""
        return Admin(self.connection.settings["admin"], "lab").hosts((f"{cell}_baseline", f"{cell}_canary"), Deadline())

    def healthy(self) -> None:
        """Wait until every server has passed a real check."""
        until(lambda: all(row.is_up for cell in SOURCES for row in self.hosts(cell)), "all servers up by a real completion")

    def log_text(self) -> str:
        """Return the access log whole."""
        return self.config.log.read_text()

    def log(self) -> list[dict[str, Any]]:
        """Return the JSON lines of the access log."""
        return [json.loads(line) for line in self.config.log.read_text().splitlines()] if self.config.log.exists() else []

    def _is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "stderr.txt").read_text()[-2_000:]
        link = http.client.HTTPConnection("127.0.0.1", self.config.admin_port, timeout=1)
        with closing(link), suppress(OSError, http.client.HTTPException):
            link.request("GET", "/ready")
            return link.getresponse().status == 200
        return False


@contextmanager
def envoy_rig(
    *,
    affinity: AffinityKey | None = None,
    adapters: tuple[str, ...] = (),
    cohort: AffinityKey | None = None,
    part: Cohort | None = None,
) -> Iterator[EnvoyRig]:
    """Run one, and leave nothing behind; with a `part` the second cell serves these requests of the first, and does not stream."""
    folder = Path("/tmp") / f"fl-{secrets.token_hex(4)}"
    folder.mkdir(mode=0o700)
    backends = {
        cell: {name: Backend(stream=cell == STREAM and part is None).start() for name in ("b1", "b2", "c1")} for cell in (CELL, STREAM)
    }
    collector = Backend().start()
    routes = tuple(
        CellRoute(
            cell=cell,
            model="tiny",
            baseline=tuple(f"127.0.0.1:{servers[name].port}" for name in ("b1", "b2")),
            canary=(f"127.0.0.1:{servers['c1'].port}",),
            affinity=affinity or AffinityKey(kind="header", name="x-conversation-id"),
            streaming=cell == STREAM and part is None,
            part=part if cell == STREAM else None,
            check_every_ms=300,
            check_timeout_ms=3_000,
            adapters=adapters if cell == CELL else (),
            cohort=cohort if cell == CELL else None,
        )
        for cell, servers in backends.items()
    )
    config = EnvoyConfig(
        cells=routes,
        port=free_port(),
        admin_port=free_port(),
        folder=folder,
        log=folder / "log" / "envoy-1.log",
        pin_key=PIN_KEY,
        collector_port=collector.port,
    )
    settings = {
        "admin": f"http://127.0.0.1:{config.admin_port}",
        "runtime_folder": str(folder),
        "log_folder": str(folder / "log"),
        "url": f"http://127.0.0.1:{config.port}",
    }
    rig = EnvoyRig(folder, config, Connection(name="lab", kind="envoy", settings=settings), backends, collector)
    try:
        write_files(config)
        rig.start()
        rig.healthy()
        yield rig
    finally:
        rig.stop()
        for backend in (collector, *(b for servers in backends.values() for b in servers.values())):
            backend.stop()
        shutil.rmtree(folder, ignore_errors=True)
