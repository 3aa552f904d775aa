"""Bench: a real HAProxy or Envoy before two child processes, one for each side, in a folder of its own. Leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from fleetctl.adapters.routers.envoy.config import EnvoyConfig
from fleetctl.adapters.routers.envoy.config import write_files as write_envoy
from fleetctl.adapters.routers.envoy.router import EnvoyRouter
from fleetctl.adapters.routers.haproxy.config import RouterConfig, write_files
from fleetctl.adapters.routers.haproxy.process import HaproxyProcess, find_binary
from fleetctl.adapters.routers.haproxy.router import HaproxyRouter
from fleetctl.adapters.routers.route import CellRoute
from fleetctl.domain.fleet import Connection
from fleetctl.domain.ids import CellId
from fleetctl.domain.workload import AffinityKey
from fleetctl.lab.envoy import envoy_argv, find_envoy
from fleetctl.lab.load_client import Outcome, Pool
from fleetctl.ports.traffic import Router
from tests.bench.traffic.load import TIMEOUT_S, request
from tests.lab.haproxy_lab import PIN_KEY, SOURCE, free_port, put

ROOT = Path(__file__).resolve().parents[3]
Kind = Literal["haproxy", "envoy"]
KINDS: tuple[Kind, ...] = ("haproxy", "envoy")
PLAIN, STREAM, LONG, LOOSE = CellId("plain"), CellId("stream"), CellId("long"), CellId("loose")
"""Cells: short answers, streams, streams of 2 s, and short answers without an affinity key."""
CELLS = (PLAIN, STREAM, LONG, LOOSE)
PLAIN_MS, TOKEN_MS = 20.0, 50.0
"""How long an emulated side takes for a plain answer, and between the tokens of a stream."""
CHECK_MS = 300


class Side:
    """One side as a child process that can be killed and comes back on its port."""

    def __init__(self, name: str, plain_ms: float = PLAIN_MS) -> None:
        self.name, self.port, self._plain_ms = name, 0, plain_ms
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start and wait until it listens."""
        argv = [sys.executable, "-m", "tests.bench.traffic.engine", self.name, str(self.port), str(self._plain_ms), str(TOKEN_MS)]
        self._process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def kill(self) -> None:
        """Kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


@dataclass
class World:
    """A router with both sides, and its newest token."""

    kind: Kind
    port: int
    log_folder: Path
    router: Router
    source: Side
    target: Side
    shadow: Callable[[CellId, bool], None]

    def put(self, bp: int, *cells: CellId, cap: int = 10_000) -> None:
        """Set the weight of these cells."""
        for cell in cells:
            put(self.router, bp, token=1, cell=cell, cap=cap)

    async def answered(self, pool: Pool, cell: CellId, keys: list[str], at_once: int = 16) -> dict[str, str]:
        """Send one plain request per key, a few at a time; return who answered: "b", "c", or "" for an error."""
        found: dict[str, str] = {}

        async def some(mine: list[str]) -> None:
            for key in mine:
                found[key] = who(await pool.send(request(cell, key), TIMEOUT_S))

        await asyncio.gather(*(some(keys[n::at_once]) for n in range(at_once)))
        return found

    async def ready(self, pool: Pool, *cells: CellId) -> None:
        """Wait until both sides of these cells answer for themselves; leaves them at 0."""
        await until_async(lambda: self._routes(pool, cells), f"{self.kind} listens")
        for bp, wanted in ((10_000, "c"), (0, "b")):
            self.put(bp, *cells)
            for cell in cells:
                await until_async(lambda cell=cell, wanted=wanted: self._is(pool, cell, wanted), f"{wanted} of {cell} is up")

    async def _routes(self, pool: Pool, cells: tuple[CellId, ...]) -> bool:
        return (await pool.send(request(cells[0], "x"), TIMEOUT_S)).error != "connect"

    async def _is(self, pool: Pool, cell: CellId, wanted: str) -> bool:
        return who(await pool.send(request(cell, "x"), TIMEOUT_S)) == wanted


async def until_async(found: Callable[..., Awaitable[bool]], what: str, within_s: float = 20.0) -> None:
    """Poll until a condition holds; fail with its name otherwise."""
    end = time.monotonic() + within_s
    while not await found():
        assert time.monotonic() < end, f"not within {within_s} s: {what}"
        await asyncio.sleep(0.02)


def who(outcome: Outcome) -> str:
    """Return which side answered, "" where none did."""
    if outcome.error:
        return ""
    return "c" if b'"server":"c"' in outcome.body else "b"


def now() -> datetime:
    """Return now in whole milliseconds, as a log has it."""
    return datetime.fromtimestamp(time.time_ns() // 1_000_000 / 1_000, UTC)


@contextmanager
def world(kind: Kind, collector_port: int = 0) -> Iterator[World]:
    """Run one."""
    folder = Path("/tmp") / f"fl-{secrets.token_hex(4)}"
    folder.mkdir(mode=0o700)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        sides = Side("b"), Side("c")
        for side in sides:
            side.start()
            stack.callback(side.kill)
        made = _haproxy if kind == "haproxy" else _envoy
        yield made(stack, folder, sides, collector_port)


def _routes(sides: tuple[Side, Side]) -> tuple[CellRoute, ...]:
    return tuple(
        CellRoute(
            cell=cell,
            model="bench",
            baseline=(f"127.0.0.1:{sides[0].port}",),
            canary=(f"127.0.0.1:{sides[1].port}",),
            affinity=None if cell == LOOSE else AffinityKey(kind="header", name="x-conversation-id"),
            streaming=cell in (STREAM, LONG),
            check_every_ms=CHECK_MS,
            check_timeout_ms=1_000,
        )
        for cell in CELLS
    )


def _haproxy(stack: ExitStack, folder: Path, sides: tuple[Side, Side], collector_port: int) -> World:
    port = free_port()
    config = RouterConfig(cells=_routes(sides), port=port, socket=folder / "haproxy.sock", map_folder=folder, collector_port=collector_port)
    write_files(config, folder)
    process = HaproxyProcess(folder=folder, socket=config.socket, binary=find_binary(), pin_key=PIN_KEY)
    stack.callback(process.stop)
    process.start()
    settings = {"socket": str(config.socket), "map_folder": str(folder), "log_folder": str(folder / "log")}
    router = HaproxyRouter(Connection(name="bench", kind="haproxy", settings=settings), sources=dict.fromkeys(CELLS, SOURCE))
    return World("haproxy", port, folder / "log", router, *sides, shadow=lambda c, on: router.set_shadow(c, 1_000.0 if on else 0.0))


def _envoy(stack: ExitStack, folder: Path, sides: tuple[Side, Side], collector_port: int) -> World:
    config = EnvoyConfig(
        cells=_routes(sides),
        port=free_port(),
        admin_port=free_port(),
        folder=folder,
        log=folder / "log" / "envoy-1.log",
        pin_key=PIN_KEY,
        collector_port=collector_port,
    )
    path = write_envoy(config)
    with (folder / "stderr.txt").open("ab") as errors:
        process = subprocess.Popen(envoy_argv(find_envoy(), path), stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)
    stack.callback(process.wait)
    stack.callback(process.kill)
    settings = {"admin": f"http://127.0.0.1:{config.admin_port}", "runtime_folder": str(folder), "log_folder": str(folder / "log")}
    router = EnvoyRouter(Connection(name="bench", kind="envoy", settings=settings), sources=dict.fromkeys(CELLS, SOURCE))
    return World("envoy", config.port, folder / "log", router, *sides, shadow=lambda c, on: router.set_shadow(c, 1.0 if on else 0.0))


class Load:
    """The load as a child process."""

    def __init__(self, port: int, plain_per_s: float, streams_per_s: float) -> None:
        argv = [sys.executable, "-m", "tests.bench.traffic.load", str(port), str(plain_per_s), str(streams_per_s), PLAIN, STREAM]
        self._process = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def end(self) -> dict[str, object]:
        """Stop it and return what became of its requests."""
        out, _ = self._process.communicate(timeout=60)
        return dict(json.loads(out))

    def kill(self) -> None:
        """End it where it still runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()
