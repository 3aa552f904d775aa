"""Status, view layer: where each cell stands, as a table or as one live line per cell. Never I/O, never rich: it must start fast."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fleetctl.views.columns import WIDTH, clean, clipped, columns, counted, duration, percent

BAD = ("FAIL", "PROVIDER_ERROR")
STYLE = {
    "PASS": "32",
    "FAIL": "31;1",
    "INCONCLUSIVE": "33",
    "NO_DATA": "33",
    "PROVIDER_ERROR": "35",
    "rolled back": "31;1",
    "fell back": "33",
    "aborted": "33",
    "complete": "32",
}
BAR = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusRow:
    """One cell as status shows it; plain values, so that reading a store is all that status costs.

    Args:
        weight_bp: set on the router; served_bp: really served by the target, None without traffic.
        verdict: worst of its guardrails, "" where none was given yet.
        next: what happens next and when, or what a person must do.
        ended: "", "complete", "rolled_back", "aborted", "fell_back" or "lost_evidence".
        missing: canary requests still needed for a PASS, None where unknown.
    """

    cell: str
    phase: str
    weight_bp: int = 0
    served_bp: int | None = None
    verdict: str = ""
    next: str = ""
    ended: str = ""
    paused: bool = False
    wave: int = 0
    age_s: float | None = None
    missing: int | None = None


def row_from(data: Mapping[str, object]) -> StatusRow:
    """Return a row from a mapping with the same keys; others are left out.

    Raises:
        KeyError: cell or phase is missing.
    """
    known = {k: v for k, v in data.items() if k in StatusRow.__slots__}
    return StatusRow(**{"cell": data["cell"], "phase": data["phase"], **known})  # type: ignore[arg-type]


def fleet_verdict(rows: Iterable[StatusRow]) -> str:
    """Return the worst thing that is true of the fleet in one short sentence."""
    listed = list(rows)
    if not listed:
        return "Nothing is migrating. Next: fleetctl plan"
    ended = Counter(r.ended for r in listed if r.ended)
    failing = [r.cell for r in listed if not r.ended and r.verdict in BAD]
    waiting = [r.cell for r in listed if not r.ended and r.verdict in ("INCONCLUSIVE", "NO_DATA")]
    moving = [r for r in listed if not r.ended]
    parts = [f"{n} {kind.replace('_', ' ')}" for kind, n in sorted(ended.items())]
    if failing:
        parts.insert(0, f"{len(failing)} failing ({', '.join(clean(c) for c in failing[:3])})")
    elif waiting:
        parts.insert(0, f"{len(waiting)} waiting for evidence")
    if moving:
        parts.append(f"{len(moving)} under way")
    word = "FAIL" if failing else "WAIT" if waiting else "HOME" if set(ended) - {"complete"} and not moving else "OK"
    return f"{word}: {counted(len(listed), 'cell')}: {', '.join(parts)}"


def render_status(rows: Iterable[StatusRow], *, width: int = WIDTH, colour: bool = False) -> str:
    """Return a table CELL PHASE WEIGHT SERVED VERDICT NEXT and the fleet's verdict."""
    listed = sorted(rows, key=lambda r: (r.wave, r.cell))
    head = ["CELL", "PHASE", "WEIGHT", "SERVED", "VERDICT", "NEXT"]
    table = columns(
        [head, *([r.cell, _phase(r), percent(r.weight_bp), _served(r), _verdict(r), _next(r)] for r in listed)], right=[2, 3], width=width
    )
    if colour:
        table = [table[0], *(_painted(line, _verdict(r)) for line, r in zip(table[1:], listed, strict=True))] if listed else []
    lines = table if listed else []
    return "\n".join([*lines, *([""] if lines else []), fleet_verdict(listed)]) + "\n"


def render_live(rows: Iterable[StatusRow], *, width: int = WIDTH, colour: bool = False) -> str:
    """Return one line per cell with a bar of the served share, for `--watch`; the last line is the fleet's verdict."""
    listed = sorted(rows, key=lambda r: (r.wave, r.cell))
    name = min(24, max((len(clean(r.cell)) for r in listed), default=0))
    out = []
    for r in listed:
        share = r.weight_bp if r.served_bp is None else r.served_bp
        full = max(0, min(BAR, round(share / 10_000 * BAR)))
        bar = "█" * full + "·" * (BAR - full)
        line = f"{clipped(clean(r.cell), name):<{name}} {bar} {percent(r.weight_bp):>6} {_phase(r):<10} {_verdict(r):<14} {_next(r)}"
        line = clipped(line.rstrip(), width)
        out.append(_painted(line, _verdict(r)) if colour else line)
    return "\n".join([*out, clipped(fleet_verdict(listed), width)]) + "\n"


def _phase(r: StatusRow) -> str:
    return clean(r.phase) + (" (paused)" if r.paused and not r.ended else "")


def _served(r: StatusRow) -> str:
    return "-" if r.served_bp is None else f"{r.served_bp / 100:.1f} %"


def _verdict(r: StatusRow) -> str:
    return clean(r.ended.replace("_", " ") if r.ended else (r.verdict or "-"))


def _next(r: StatusRow) -> str:
    parts = [clean(r.next)] if r.next else []
    if r.missing and not r.ended:
        parts.append(f"{r.missing:,} requests to go")
    if r.age_s is not None and r.age_s > 30 and not r.ended:
        parts.append(f"last look {duration(r.age_s)} ago")
    return "; ".join(parts)


def _painted(line: str, word: str) -> str:
    style = STYLE.get(word)
    return line.replace(word, f"\033[{style}m{word}\033[0m", 1) if style and word in line else line
