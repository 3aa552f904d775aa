"""Evidence, view layer: what calibration found, as text and as a table. Never I/O, never a decision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetctl.domain.calibration import Calibration
from fleetctl.domain.checks import CheckResult
from fleetctl.domain.evidence import LADDER_METRICS
from fleetctl.domain.identity import ContractReport
from fleetctl.domain.quality import QualityReport
from fleetctl.views.columns import WIDTH, clean, columns, counted, duration, wrapped


def calibration_text(
    found: Sequence[Calibration],
    reports: Sequence[ContractReport] = (),
    compared: Sequence[QualityReport] = (),
    results: Sequence[CheckResult] = (),
    width: int = WIDTH,
) -> str:
    """Return all that was measured and proposed, and what is refused."""
    lines: list[str] = []
    for c in found:
        lines += [*_one(c, width), ""]
    for r in reports:
        lines += [*_contract(r, width), ""]
    for q in compared:
        lines += [*_quality(q, width), ""]
    if results:
        lines += [*_checks(results, width), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _one(c: Calibration, width: int) -> Iterator[str]:
    hosts = ", ".join(clean(h) for h in c.hosts[:8]) + (f" and {len(c.hosts) - 8} more" if len(c.hosts) > 8 else "")
    yield f"{clean(c.cell)}: {c.requests:,} requests in {duration(c.span_s)} from {counted(len(c.hosts), 'host')} ({hosts})"
    yield f"  errors {c.error_ratio:.2%}, log-sd of latency {c.log_sd:.2f}"
    one = " (one host: not measured)" if len(c.hosts) < 2 else ""
    yield f"  host effects beyond chance: latency {c.host_sd:.1%}, errors {c.error_sd * 100:.2f} points{one}"
    yield from wrapped(f"A/A, {counted(len(c.halves), 'split')} at the proposed margins:", width, "  ")
    rows = [[clean(h.split), h.kind if not h.failed else "FAIL", f"{h.e_value:.3g}", f"{h.looks:,}"] for h in c.halves]
    yield from columns([["SPLIT", "VERDICT", "HIGHEST E", "LOOKS"], *rows], right=[2, 3], indent="    ", width=width)
    yield f"  least margins, {counted(c.canary_hosts, 'canary host')}:"
    rows = [[name, _unit(name, c.least_margins[name]), _unit(name, c.least_fail_margins[name])] for name in sorted(c.least_margins)]
    yield from columns([["GUARDRAIL", "MARGIN", "FAIL_MARGIN"], *rows], right=[1, 2], indent="    ", width=width)
    if any(h.failed for h in c.halves):
        yield from wrapped("the source fails against itself even so: its hosts are not alike; look for what differs", width, "  ")
    if c.refused:
        yield from wrapped("the policy is below that, and no plan will move this cell:", width, "  ")
        for line in c.refused:
            yield from wrapped(clean(line), width, "    ")
    else:
        yield "  every step of the policy keeps to them"


def _contract(r: ContractReport, width: int) -> Iterator[str]:
    count = {k: sum(x.kind == k for x in r.results) for k in ("ok", "unsupported", "broken", "both_broken")}
    yield from wrapped(
        f"{clean(r.cell)}: serving contract, {len(r.results)} calls: {count['ok']} alike, {count['unsupported']} on neither side, "
        f"{count['both_broken']} wrong on both, {count['broken']} broken",
        width,
    )
    for x in r.results:
        if x.kind in ("broken", "both_broken"):
            sides = "; ".join(f"{arm}: {clean(text)}" for arm, text in (("baseline", x.baseline), ("canary", x.canary)) if text)
            yield from wrapped(f"{x.kind.replace('_', ' ')}  {clean(x.call)}: {sides}", width, "  ")
    if r.broken:
        yield from wrapped("the arms are not alike: no verdict, and no weight is raised, until they are", width, "  ")


def _quality(q: QualityReport, width: int) -> Iterator[str]:
    missing = f", about {q.missing:,} positions missing" if q.missing else ""
    yield from wrapped(f"{clean(q.model)}: quality {q.kind}{missing}{f': {clean(q.why)}' if q.why else ''}", width)
    yield f"  evidence: worse {q.e_fail:.3g} of 100, not worse {q.e_pass:.3g} of 20; design effect {q.effect:.2f}"
    head = ["LENGTH", "TEXTS", "POSITIONS", "SAME TOP", "REPEAT", "|DELTA| P99", "KL", "KL REPEAT"]
    rows = [
        [b.name, b.prompts, b.positions, f"{b.same_top:.1%}", f"{1 - b.floor:.1%}", *(_nat(v) for v in (b.delta_p99, b.kl, b.kl_floor))]
        for b in (q.whole, *q.buckets)
    ]
    yield from columns([head, *rows], right=[1, 2, 3, 4, 5, 6, 7], indent="    ", width=width)


def _checks(results: Sequence[CheckResult], width: int) -> Iterator[str]:
    rows = [[clean(r.cell), r.check, r.kind, f"{r.missing:,}" if r.missing else "-", _numbers(r)] for r in results]
    yield from columns([["CELL", "CHECK", "RESULT", "MISSING", "FOUND"], *rows], right=[3], width=width)
    for r in results:
        if r.why:
            yield from wrapped(f"{clean(r.cell)} {r.check}: {clean(r.why)}", width, "  ")


def _numbers(r: CheckResult) -> str:
    return ", ".join(f"{k.replace('_', ' ')} {v:.4g}" for k, v in r.numbers.items())


def _nat(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _unit(guardrail: str, value: float) -> str:
    return f"{value * 100:.3g}%" if guardrail in LADDER_METRICS else f"{value * 100:.3g} points"
