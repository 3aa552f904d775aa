"""Traffic, adapter layer: a cell as any router must know it, and what of it is refused. Never talks to a router."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fleetctl.domain.ids import CellId, is_id
from fleetctl.domain.workload import AffinityKey, Cohort

PIN_HEADER = "x-fleetctl-pin"
"""Carries "<key>:<arm>": a probe's own choice of its side, which counts as nobody's request."""
SERVER_HEADER = "x-fleetctl-server"
"""Tells a pinned request which replica answered."""
STREAM_TIMEOUT_S = 600
"""Longest silence (s) of a server that streams, unless its route says otherwise."""

_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:+-]{0,127}\Z")
_ENDPOINT = re.compile(r"(?P<host>[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\]):(?P<port>[0-9]{1,5})\Z")
_VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z")
_TOKEN = re.compile(r"[A-Za-z0-9!&^_|~-][A-Za-z0-9_-]{0,63}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRoute:
    """One cell as a router must know it.

    Args:
        model: name that the health check asks for.
        baseline, canary: "address:port" of each replica of source and target.
        check_every_ms, check_timeout_ms: of the health check, which is a real completion of one token.
        answer_timeout_s: longest silence of a server; 0 means 600 s for streams and 60 s for plain answers.
        adapters: names of adapter models, told apart in the log by the request's `model`; cohort: what names a request's cohort there
            (HAProxy only).
        part: requests of another cell that go by this one; None: none but its own.
    """

    cell: CellId
    model: str
    baseline: tuple[str, ...]
    canary: tuple[str, ...] = ()
    affinity: AffinityKey | None = None
    streaming: bool = False
    check_every_ms: int = 1_000
    check_timeout_ms: int = 3_000
    answer_timeout_s: int = 0
    adapters: tuple[str, ...] = ()
    cohort: AffinityKey | None = None
    part: Cohort | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backends:
    """Names of a cell's two sides at its router: backends, clusters or target groups."""

    baseline: str
    canary: str


def backends_of(named: Mapping[CellId, Backends], c: CellId) -> Backends:
    """Return the names of a cell's sides: those given, else `<cell>_baseline` and `<cell>_canary`."""
    return named.get(c) or Backends(baseline=f"{c}_baseline", canary=f"{c}_canary")


def is_endpoint(text: str) -> bool:
    """Tell whether a text is "address:port"."""
    found = _ENDPOINT.match(text)
    return found is not None and 1 <= int(found["port"]) <= 65_535


def problems(route: CellRoute) -> Iterator[str]:
    """Yield what of a route no router could be told safely."""
    if not is_id(route.cell):
        yield f"cell {route.cell!r}: is not a name (1 to 63 of a-z, 0-9 and inner -)"
        return
    if not _MODEL.match(route.model):
        yield f"cell {route.cell}: model {route.model!r} is not a model name"
    if not route.baseline:
        yield f"cell {route.cell}: has no baseline endpoint"
    for endpoint in (*route.baseline, *route.canary):
        if not is_endpoint(endpoint):
            yield f"cell {route.cell}: endpoint {endpoint!r} is not address:port"
    if route.affinity is not None and not _TOKEN.match(route.affinity.name):
        yield f"cell {route.cell}: affinity {route.affinity.name!r} is not the name of a header or cookie"
    for adapter in route.adapters:
        if not _MODEL.match(adapter):
            yield f"cell {route.cell}: adapter {adapter!r} is not a model name"
    if route.cohort is not None and not _TOKEN.match(route.cohort.name):
        yield f"cell {route.cell}: cohort {route.cohort.name!r} is not the name of a header or cookie"
    if route.part is not None:
        yield from _part_problems(route.cell, route.part)
    if not 100 <= route.check_every_ms <= 60_000 or not 100 <= route.check_timeout_ms <= 60_000:
        yield f"cell {route.cell}: health checks need 100 to 60,000 ms"
    if not 0 <= route.answer_timeout_s <= 86_400:
        yield f"cell {route.cell}: answer timeout {route.answer_timeout_s} s is not within 0 to 86,400"


def _part_problems(cell: CellId, part: Cohort) -> Iterator[str]:
    if not is_id(part.of) or part.of == cell:
        yield f"cell {cell}: {part.of!r} is no other cell whose requests it could take"
    if bool(part.header) == bool(part.cookie) or not _TOKEN.match(part.header or part.cookie):
        yield f"cell {cell}: {part.header or part.cookie!r} is not the name of one header or cookie"
    if not part.values:
        yield f"cell {cell}: its cohort has no value"
    for value in part.values:
        if not _VALUE.match(value):
            yield f"cell {cell}: cohort value {value!r} is not plain (letters, digits, '_', '.' and '-')"


def write_private(path: Path, text: str) -> None:
    """Replace a file whole, 0600. Raises OSError."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        out.write(text)
    beside.replace(path)
