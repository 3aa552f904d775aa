"""Audit, view layer: events for people, and what verifying the hash chains found. Never I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fleetctl.domain.event import Event
from fleetctl.domain.evidence import Verdict
from fleetctl.usecases.audit import LooksCheck
from fleetctl.usecases.proof import SignaturesCheck
from fleetctl.views.columns import WIDTH, clean, clipped, columns, counted, wrapped

FLEET_CHAIN = "(fleet)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainResult:
    """One chain, verified.

    Args:
        cell: None for the fleet's own chain; events: links read; head: hash of the last one, "" where there is none.
        broken: (number, what is wrong) of the first link that does not hold.
    """

    cell: str | None
    events: int
    head: str = ""
    broken: tuple[int, str] | None = None


def render_audit(chains: Iterable[ChainResult], *, wide: bool = False) -> str:
    """Return one sentence, and one line per broken chain (per chain where wide)."""
    listed = sorted(chains, key=lambda c: (c.cell is not None, c.cell or ""))
    bad = [c for c in listed if c.broken is not None]
    total = sum(c.events for c in listed)
    lines = []
    if bad:
        lines.append(
            f"broken: {len(bad)} of {counted(len(listed), 'chain')} does not hold" if len(bad) == 1 else _many(len(bad), len(listed))
        )
        for c in bad:
            number, what = c.broken or (0, "")
            lines.append(f"  {_name(c)}: link {number} {clean(what)}")
        lines.append("Events up to a broken link are proven, later ones are not.")
        lines.append("Next: leave the store as it is, and keep what there is: fleetctl doctor --bundle FILE")
    else:
        lines.append(f"ok: {counted(total, 'event')} in {counted(len(listed), 'chain')}, every link holds")
    if wide and listed:
        lines.append("")
        lines += columns([["CHAIN", "EVENTS", "HEAD"], *([_name(c), c.events, c.head[:16] or "-"] for c in listed)], right=[1])
    return "\n".join(lines) + "\n"


def render_signatures(found: SignaturesCheck) -> str:
    """Return what checking signed approvals came to; "" where there is no approval."""
    lines = [f"  {clean(fault)}" for fault in found.faults]
    if lines:
        lines.insert(0, f"broken: {counted(len(found.faults), 'signature')} not to be trusted")
        lines.append("Next: find out who had that key, then plan and approve anew: fleetctl plan")
    if found.signed:
        lines.append(f"ok: {counted(found.signed, 'signature')} of approvals and authors hold")
    if found.unsigned:
        lines.append(f"{counted(found.unsigned, 'approval')} by names that are not proven (no signature)")
    return "".join(f"{line}\n" for line in lines)


def _many(bad: int, total: int) -> str:
    return f"broken: {bad} of {counted(total, 'chain')} do not hold"


def _name(c: ChainResult) -> str:
    return FLEET_CHAIN if c.cell is None else clean(c.cell)


def render_looks(found: LooksCheck) -> str:
    """Return what computing a cell's verdicts again came to, one line per difference."""
    more = [f"{counted(found.shared, 'look')} rest on equal cells too"] if found.shared else []
    more += [f"{counted(found.without, 'look')} of an earlier release say too little"] if found.without else []
    if not found.differing:
        head = f"{clean(found.cell)}: {counted(found.looks, 'look')} judged again, every verdict comes out as it was"
        return "; ".join([head, *more])
    head = f"{clean(found.cell)}: {found.differing:,} of {counted(found.looks, 'look')} come out otherwise"
    lines = [f"  {d.at:%Y-%m-%d %H:%M:%S} stored {_verdict(d.stored)}, computed {_verdict(d.computed)}" for d in found.differences]
    return "\n".join(["; ".join([head, *more]), *lines])


def _verdict(v: Verdict | None) -> str:
    return "nothing" if v is None else f"{clean(v.guardrail)} {v.kind} (E {v.e_value:.4g}, PASS {v.pass_e_value:.4g})"


def render_events(events: Sequence[Event], *, width: int = WIDTH, wide: bool = False) -> str:
    """Return each event as a line of when, where, what kind and by whom, and its text below; wide adds its data and its link."""
    if not events:
        return "No event fits. All of them: fleetctl audit show\n"
    lines: list[str] = []
    for e in events:
        where, who = (e.cell or FLEET_CHAIN, e.actor.name if e.actor.via == "cli" else f"{e.actor.name} ({e.actor.via})")
        lines.append(clipped(f"{e.at:%Y-%m-%d %H:%M:%S}Z  {clean(where)}  {clean(e.kind)}  by {clean(who)}", width))
        lines += wrapped(clean(e.text), width, "    ")
        if wide:
            lines += wrapped(", ".join(f"{clean(k)} {clean(v)}" for k, v in e.data.items()), width, "    ")
            lines.append(f"    link {e.seq} {e.hash[:16]} after {e.prev[:16]}")
    chains = len({e.cell for e in events})
    lines += ["", f"{counted(len(events), 'event')} of {counted(chains, 'chain')}. Whether every link holds: fleetctl audit verify"]
    return "\n".join(lines) + "\n"
