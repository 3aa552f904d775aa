"""Audit, use-case layer: verdicts computed again from the looks that were stored. Never imports an adapter, never changes a row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fleetctl.analysis.looks import replay
from fleetctl.domain.evidence import LookRow, Verdict
from fleetctl.domain.ids import CellId
from fleetctl.domain.units import Instant
from fleetctl.errors import UsageError

MOST_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A look whose verdicts come out otherwise: the first verdict that differs, as it was stored and as it is computed."""

    at: Instant
    stored: Verdict | None
    computed: Verdict | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LooksCheck:
    """What computing a cell's verdicts again came to.

    Args:
        looks: judged again; same: with the same verdicts to the last digit; shared: that rest on equal cells too (lane pooled).
        without: verdicts of an earlier release, which kept too little; differing: how many differ, differences: the first of them.
    """

    cell: CellId
    looks: int = 0
    same: int = 0
    shared: int = 0
    without: int = 0
    differing: int = 0
    differences: tuple[Difference, ...] = ()


def check_looks(cell: CellId, rows: Iterable[LookRow]) -> LooksCheck:
    """Judge a cell's stored looks again.

    Raises:
        UsageError: audit.no_looks: there are none, or the first ones are gone.
    """
    kept = list(rows)
    without = sum(1 for r in kept if r.seen is None and r.verdicts and r.arms)
    looks = same = shared = differing = 0
    shown: list[Difference] = []
    try:
        for r in replay(kept):
            looks += 1
            if r.agrees or r.is_shared:
                same, shared = same + r.agrees, shared + (not r.agrees)
                continue
            differing += 1
            if len(shown) < MOST_SHOWN:
                shown.append(_difference(r.row, r.verdicts))
    except ValueError as e:
        raise UsageError("audit.no_looks", f"the looks at {cell} cannot be judged again: {e}.", hint="Run: fleetctl audit verify") from e
    if not looks and not without:
        raise UsageError("audit.no_looks", f"nothing was ever judged at {cell!r}.", hint="Run: fleetctl status")
    return LooksCheck(cell=cell, looks=looks, same=same, shared=shared, without=without, differing=differing, differences=tuple(shown))


def _difference(row: LookRow, computed: tuple[Verdict, ...]) -> Difference:
    longest = max(len(row.verdicts), len(computed))
    stored, again = (tuple(v) + (None,) * (longest - len(v)) for v in (row.verdicts, computed))
    first = next((i for i in range(longest) if stored[i] != again[i]), 0)
    return Difference(at=row.at, stored=stored[first], computed=again[first])
