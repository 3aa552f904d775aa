"""Lab, lab layer: switches faults of a running lab on and off, and changes its load. Never touches weights or the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from fleetctl.domain.ids import CellId
from fleetctl.errors import LabFailed, UsageError
from fleetctl.lab.faults import EMULATED_KINDS, LLM_KINDS, FaultArgs, check_fault, faults_path, read_faults, write_faults
from fleetctl.lab.load import LoadConfig
from fleetctl.lab.load_shapes import read_trace
from fleetctl.lab.parts import load_config, write_load_unit
from fleetctl.lab.record import CellRecord, LabRecord, need_record, write_private, write_record
from fleetctl.lab.service import process_of, start
from fleetctl.lab.units import Side, unit_name

Sides = Literal["source", "target", "both"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultState:
    """One fault of one unit.

    Args:
        args: complete, defaults filled in.
    """

    cell: str
    side: Side
    unit: str
    kind: str
    args: Mapping[str, float | str]


def lab_fault(workspace: Path, cell: str, kind: str, side: Sides = "target", **args: float | str) -> tuple[FaultState, ...]:
    """Switch a fault on; the servers see it within 200 ms. The same fault again takes the new arguments.

    Args:
        kind: latency {factor}, tail {share, factor}, errors {ratio}, wrong_tokens {ratio}, hang, crash, slow_start {seconds},
            metrics {state: gone|nan}; for the real model kv_cache {type: q4_0|q8_0|f16} and crash.
        side: whose servers get it.

    Returns:
        what each unit has now of this kind.

    Raises:
        UsageError: usage.fault: no such fault, argument or value for this cell.
        LabFailed: lab.not_up, lab.no_cell, lab.no_unit (nothing is configured on that side yet).
    """
    record = need_record(workspace.absolute())
    where = record.cell(cell)
    try:
        whole = check_fault(kind, args)
    except ValueError as e:
        raise UsageError("usage.fault", f"{e}.", hint="See: fleetctl lab fault --help") from None
    kinds = LLM_KINDS if where.is_real else EMULATED_KINDS
    if kind not in kinds:
        what = "served by a real model" if where.is_real else "emulated"
        raise UsageError("usage.fault", f"{cell} is {what} and cannot have the fault {kind}.", hint=f"Use one of: {', '.join(kinds)}")
    units = _units(record, where, side)
    for _, path in units:
        write_faults(path, {**_standing(path), kind: whole})
    return tuple(FaultState(cell=cell, side=s, unit=path.name.removesuffix(".faults.json"), kind=kind, args=whole) for s, path in units)


def lab_clear(workspace: Path, cell: str | None = None, kind: str | None = None, side: Sides = "both") -> tuple[FaultState, ...]:
    """Switch faults off, all where nothing is named; a server that a crash fault ended is started again.

    Returns:
        the faults that were on and are off now.

    Raises:
        LabFailed: lab.not_up, lab.no_cell, lab.process (a server did not start again).
    """
    record = need_record(workspace.absolute())
    gone: list[FaultState] = []
    for where in (record.cell(cell),) if cell else record.cells:
        for s, path in _units(record, where, side, must=False):
            before = _standing(path)
            off = {k: a for k, a in before.items() if kind in (None, k)}
            if not off:
                continue
            write_faults(path, {k: a for k, a in before.items() if k not in off})
            name = path.name.removesuffix(".faults.json")
            gone += [FaultState(cell=where.cell, side=s, unit=name, kind=k, args=a) for k, a in off.items()]
            if "crash" in off and (path.parent / f"{name}.json").exists() and process_of(path.parent, name) is None:
                result = start(path.parent, name)
                if result.state == "failed":
                    raise LabFailed("lab.process", f"{name} did not start again: {result.error}.", hint="Run: fleetctl lab status")
    return tuple(gone)


def lab_faults(workspace: Path) -> tuple[FaultState, ...]:
    """Return the faults that are on.

    Raises:
        LabFailed: lab.not_up.
    """
    record = need_record(workspace.absolute())
    return tuple(
        FaultState(cell=c.cell, side=side, unit=path.name.removesuffix(".faults.json"), kind=kind, args=args)
        for c in record.cells
        for side, path in _units(record, c, "both", must=False)
        for kind, args in _standing(path).items()
    )


def _units(record: LabRecord, cell: CellRecord, sides: Sides, *, must: bool = True) -> list[tuple[Side, Path]]:
    """Return side and faults file of each unit that is there."""
    wanted: tuple[Side, ...] = ("source", "target") if sides == "both" else (sides,)
    found: list[tuple[Side, Path]] = []
    for side in wanted:
        names = [unit_name(CellId(cell.cell), side, i) for i in range(1, len(cell.baseline) + 1)]
        paths = [faults_path(p) for name in names for p in sorted(record.hosts.glob(f"*/{name}.json"))]
        paths += _on_real_hosts(record, cell) if side == "target" else []
        if must and not paths:
            hint = "Run: fleetctl provision, then fleetctl configure" if side == "target" else "Run: fleetctl lab up"
            raise LabFailed("lab.no_unit", f"{cell.cell} has no server on its {side} side yet.", hint=hint)
        found += [(side, p) for p in paths]
    return found


def _on_real_hosts(record: LabRecord, cell: CellRecord) -> list[Path]:
    if not record.machines:
        return []
    from fleetctl.lab.bare_hosts import servers

    return [s.faults for s in servers(record, cell.cell)]


def _standing(path: Path) -> dict[str, FaultArgs]:
    try:
        return dict(read_faults(path))
    except ValueError:
        return {}


def lab_load(workspace: Path, *, trace: Path | None = None, rates: Mapping[str, float] | None = None, running: bool = True) -> LoadConfig:
    """Change the load of a running lab: other rates, a trace's arrivals, or no load; its process starts again.

    Args:
        trace: CSV with TIMESTAMP, ContextTokens, GeneratedTokens, None for the built-in table.
        rates: requests per second by cell, above 0; cells that are not named keep theirs.
        running: False ends the load.

    Raises:
        ConfigInvalid: config.trace; LabFailed: lab.not_up, lab.no_cell, lab.process; UsageError: usage.rate.
    """
    from fleetctl.lab.service import stop

    record = need_record(workspace.absolute())
    units = record.folder / "units"
    for name, rate in (rates or {}).items():
        record.cell(name)
        if not 0 < rate <= 2000:
            raise UsageError("usage.rate", f"{name}: {rate:g} requests a second cannot be sent.", hint="Use a rate above 0, up to 2,000")
    if trace is not None:
        read_trace(trace.absolute())
    cells = tuple(replace(c, rate_per_s=(rates or {}).get(c.cell, c.rate_per_s)) for c in record.cells)
    record = replace(record, cells=cells, load=running)
    config = load_config(record, trace.absolute() if trace else None)
    write_private(record.folder / "load" / "load.json", config.to_json())
    write_load_unit(record)
    write_record(record)
    if not running:
        stop(units, "load")
        return config
    result = start(units, "load")
    if result.state == "failed":
        raise LabFailed("lab.process", f"load did not start: {result.error}.", hint="Run: fleetctl lab load", details=result.log)
    return config
