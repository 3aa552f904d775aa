"""Traffic, adapter layer: the start-up files from which HAProxy restarts with the same split. Never talks to HAProxy."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetctl.adapters.routers.haproxy.config import FENCE_MAP, WEIGHT_MAP
from fleetctl.adapters.routers.lock import write_together
from fleetctl.domain.ids import CellId

LOCK_FILE = ".maps.lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What the files say of one cell.

    Args:
        lease_ms: epoch milliseconds.
    """

    bp: int
    cap_bp: int
    token: int
    lease_ms: int


def read_standing(folder: Path, cell: CellId) -> Standing | None:
    """Return what the files say of a cell, None where they do not know it; an unreadable number counts as 0."""
    return _standing(_lines(folder / WEIGHT_MAP), _lines(folder / FENCE_MAP), cell)


def _standing(weights: Mapping[str, str], fences: Mapping[str, str], cell: str) -> Standing | None:
    weight = weights.get(cell)
    if weight is None:
        return None
    cap, token, lease = (_natural(part) for part in (*fences.get(cell, "").split(":"), "", "", "")[:3])
    return Standing(bp=_natural(weight), cap_bp=cap, token=token, lease_ms=lease)


def write_standing(folder: Path, cell: CellId, new: Standing) -> None:
    """Write a cell's split and fence, as `write_standings`."""
    write_standings(folder, ((cell, new),))


def write_standings(folder: Path, items: Sequence[tuple[CellId, Standing]], floor: int | None = None) -> None:
    """Write splits and fences of cells, each file by one atomic rename for all, but for cells where a higher token stands there.

    The file that keeps the target lower is written first, so that a stop between the two never shows more on the target.

    Args:
        floor: a token higher than this stands in the way, None: than the cell's own.

    Raises:
        OSError: a file could not be written, or its lock was held for over 150 ms.
    """
    given = [(c, new, new.token if floor is None else floor) for c, new in items]
    write_together(folder / LOCK_FILE, given, lambda groups: _write_all(folder, [item for group in groups for item in group]))


def _write_all(folder: Path, items: Sequence[tuple[CellId, Standing, int]]) -> None:
    weights, fences = _lines(folder / WEIGHT_MAP), _lines(folder / FENCE_MAP)
    lower, new_fences = dict(weights), dict(fences)
    raised: dict[str, str] = {}
    for cell, new, floor in items:
        old = _standing(lower | raised, new_fences, cell)
        if old is not None and old.token > floor:
            continue
        raised.pop(cell, None)
        kept = raised if old is not None and new.bp > _natural(weights.get(cell, "0")) else lower
        kept[cell], new_fences[cell] = str(new.bp), f"{new.cap_bp}:{new.token}:{new.lease_ms}"
    if lower != weights:
        _replace(folder / WEIGHT_MAP, lower)
    if new_fences != fences:
        _replace(folder / FENCE_MAP, new_fences)
    if raised:
        _replace(folder / WEIGHT_MAP, lower | raised)


def _lines(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    return {name: value for name, found, value in (line.partition(" ") for line in text.splitlines()) if found}


def _replace(path: Path, lines: dict[str, str]) -> None:
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        out.write("".join(f"{name} {value}\n" for name, value in lines.items()))
        out.flush()
        os.fsync(out.fileno())
    beside.replace(path)


def _natural(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 16 else 0
