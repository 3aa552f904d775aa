"""Bench: a thousand cells home on real HAProxy processes, by the real use case, routers, probers and files. Leaves nothing behind.

What is emulated: both sides of every cell are one small server each, which answers a completion at once.
"""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fleetctl.adapters.clock.system import SystemClock
from fleetctl.adapters.home.files import WayHomeFiles, make_key
from fleetctl.adapters.routers.haproxy.config import FENCE_MAP, WEIGHT_MAP, RouterConfig, write_files
from fleetctl.adapters.routers.haproxy.process import HaproxyProcess, find_binary
from fleetctl.adapters.routers.haproxy.router import HaproxyRouter
from fleetctl.adapters.routers.route import CellRoute
from fleetctl.domain.fleet import Connection
from fleetctl.domain.home import Returned
from fleetctl.domain.ids import CellId
from fleetctl.domain.people import Actor
from fleetctl.ports.traffic import Prober
from fleetctl.usecases.home import HomePorts, fallback
from fleetctl.usecases.home_choice import readable
from fleetctl.wiring.routers import make_prober, make_router, make_together
from tests.bench.traffic.world import Side
from tests.bench.ways import way_home
from tests.fakes.store import MemoryStore
from tests.lab.haproxy_lab import PIN_KEY, SOURCE, free_port, until

ROUTERS, CELLS_EACH = 10, 100
CHECK_MS = 20_000
SHARE_BP = 5_000
NEVER_MS = 4_102_444_800_000


@dataclass(frozen=True)
class Edge:
    """One HAProxy and its cells."""

    connection: Connection
    cells: tuple[CellId, ...]

    def shown(self) -> list[int]:
        """Return every cell's weight as HAProxy routes by it now."""
        router = HaproxyRouter(self.connection)
        return [router.read(c).target_bp for c in self.cells]

    def is_split(self) -> bool:
        """Tell whether every cell stands where it begins."""
        return set(self.shown()) == {SHARE_BP}


@contextmanager
def edges(routers: int, each: int) -> Iterator[tuple[Edge, ...]]:
    """Run so many HAProxy processes with so many cells each, half of whose customers are on the target."""
    top = Path("/tmp") / f"fh-{secrets.token_hex(4)}"
    sides = Side("b", 1.0), Side("c", 1.0)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, top, ignore_errors=True)
        for side in sides:
            side.start()
            stack.callback(side.kill)
        made = []
        for n in range(routers):
            folder = top / str(n)
            folder.mkdir(mode=0o700, parents=True)
            names = tuple(CellId(f"cell-{n}-{i}") for i in range(each))
            made.append(_start(stack, folder, names, sides))
        for edge in made:
            until(edge.is_split, "half of the customers are on the target")
            until(partial(_proven, edge), "the source answers", within_s=60)
        yield tuple(made)


def _start(stack: ExitStack, folder: Path, names: tuple[CellId, ...], sides: tuple[Side, Side]) -> Edge:
    base, canary = (f"127.0.0.1:{side.port}" for side in sides)
    routes = tuple(
        CellRoute(cell=c, model="tiny", baseline=(base,), canary=(canary,), check_every_ms=CHECK_MS, check_timeout_ms=5_000) for c in names
    )
    port = free_port()
    config = RouterConfig(cells=routes, port=port, socket=folder / "haproxy.sock", map_folder=folder)
    (folder / WEIGHT_MAP).write_text("".join(f"{c} {SHARE_BP}\n" for c in names))
    (folder / FENCE_MAP).write_text("".join(f"{c} 10000:7:{NEVER_MS}\n" for c in names))
    write_files(config, folder)
    process = HaproxyProcess(folder=folder, socket=config.socket, binary=find_binary(), pin_key=PIN_KEY)
    stack.callback(process.stop)
    process.start()
    settings = {
        "socket": str(config.socket),
        "map_folder": str(folder),
        "log_folder": str(folder / "log"),
        "url": f"http://127.0.0.1:{port}",
    }
    return Edge(Connection(name=folder.name, kind="haproxy", settings=settings), names)


def _prober(edge: Edge, c: CellId) -> Prober:
    return make_prober(edge.connection, {}, pin_key=lambda: PIN_KEY, sources={c: SOURCE}, endpoints=lambda _c, _arm: ())


def _proven(edge: Edge) -> bool:
    return _prober(edge, edge.cells[-1]).ready(SOURCE, edge.cells[-1]).ready == 1


def fallback_haproxy(routers: int = ROUTERS, each: int = CELLS_EACH) -> dict[str, object]:
    """Take every cell home as `fleetctl fallback --all` does, its files with ways home read first; what each router shows is the proof."""
    with edges(routers, each) as made, ExitStack() as stack:
        folder = Path("/tmp") / f"fw-{secrets.token_hex(4)}"
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        make_key(folder / "key")
        files, clock = WayHomeFiles(folder / "home", folder / "key"), SystemClock()
        by_cell = {c: edge for edge in made for c in edge.cells}
        for c, edge in by_cell.items():
            files.write(way_home(c, edge.connection, SOURCE, clock.now()))
        store = MemoryStore(clock.now)
        ports = HomePorts(
            router=lambda way: make_router(way.router, {way.cell: way.source}, {}),
            prober=lambda way: _prober(by_cell[way.cell], way.cell),
            ways=files,
            clock=clock,
            store=lambda: store,
            together=lambda group: make_together(group[0].router, {way.cell: way.source for way in group}, {}),
        )
        began = time.monotonic()
        ways, refused = readable(files)
        results = fallback(ways, ports, Actor(kind="person", name="bench"))
        took = time.monotonic() - began
        home = [r for r in results if isinstance(r, Returned) and r.source_proven]
        at_zero = sum(bp == 0 for edge in made for bp in edge.shown())
        return {
            "fallback_1000_haproxy_seconds": round(took, 3) if len(home) == at_zero == routers * each and not refused else None,
            "fallback_haproxy_home": at_zero,
            "fallback_haproxy_failed": len(results) - len(home),
            "fallback_haproxy_routers": routers,
            "fallback_haproxy_slowest_cell_ms": round(max((r.ms_to_zero for r in home), default=0.0), 1),
            "fallback_haproxy_files_late": sum("start-up" in r.reported for r in home),
            "fallback_haproxy_marks": len(files.marked()),
        }
