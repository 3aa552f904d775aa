"""Assess, pure layer: findings and waivers in, the first route that is open out, each refusal with its reason. Never I/O, never a clock.

Routes are tried in the order native, rebuild, hipify, scale, zluda, stay. A finding names the least route that copes with it, so it
closes every route before that one, until it is mended or a person waives it with a reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fleetctl.assess.collected import NOT_READ, is_wave64
from fleetctl.domain.ids import WorkloadId
from fleetctl.domain.plan import Assessment, Finding, Route, RouteVerdict, Waiver
from fleetctl.domain.portability import ROUTES, LicenceAcceptance
from fleetctl.domain.units import Instant

RANK: dict[Route, int] = {r: i for i, r in enumerate(ROUTES)}
ZLUDA_REASON = (
    "ZLUDA cannot run on {target}: it compiles for 32-wide wavefronts only, CDNA runs 64-wide ones (wave64) only, "
    "and its own FAQ excludes server GPUs"
)
"""Source: vosen/ZLUDA docs/src/faq.md, ptx/src/pass/llvm/emit.rs, llvm_zluda/src/compile.rs."""
SCALE_TARGETS = ("gfx900", "gfx90a", "gfx942", "gfx1010", "gfx1030", "gfx1100", "gfx1101", "gfx1102", "gfx1200", "gfx1201")
"""Source: spectral-compute/scale-docs: gfx942 since 1.3.0."""
SCALE_LICENCE = "SCALE's free licence is non-commercial, its outputs included: record the licence you hold"
OWN_SOURCE_RULES = frozenset({"R035", "R053"})
PYTHON_STACK = frozenset({"P001", "P006", "P007"})
"""torch, vllm, sglang: SCALE fails on all of them. Source: spectral-compute/scale-validation README.md, 1.7.1."""


def not_judged(assessment: Assessment) -> tuple[Finding, ...]:
    """Return what the verdict does not cover: parts that could not be read and that no person has waived."""
    return tuple(f for f in assessment.findings if f.rule in NOT_READ and waived_by(f, assessment.waived) is None)


def unused(assessment: Assessment) -> tuple[Waiver, ...]:
    """Return the waivers that no finding answers to."""
    return tuple(w for w in assessment.waived if not any(waived_by(f, (w,)) for f in assessment.findings))


def waived_by(finding: Finding, waivers: Iterable[Waiver]) -> Waiver | None:
    """Return the waiver that covers a finding: of its rule, or of its rule and subject."""
    named = f"{finding.rule}:{finding.subject}"
    return next((w for w in waivers if w.rule in {finding.rule, named}), None)


def label(finding: Finding) -> str:
    """Return the name by which a finding is waived."""
    return f"{finding.rule}:{finding.subject}" if finding.subject else finding.rule


def decide(
    workload: WorkloadId,
    findings: tuple[Finding, ...],
    now: Instant,
    *,
    waivers: tuple[Waiver, ...] = (),
    licence: LicenceAcceptance | None = None,
    target: str = "gfx942",
    subject: str = "",
    lines: int = 0,
    files: int = 0,
) -> Assessment:
    """Judge what was found.

    Args:
        workload: may be "" where only a tree or image was read.
        waivers: kept in the result, used or not; licence: SCALE's, where a person recorded it.
        target: accelerator architecture; lines, files: read, for the record.
    """
    standing = [f for f in findings if waived_by(f, waivers) is None]
    verdicts = tuple(_verdict(route, standing, target, licence) for route in ROUTES)
    taken = next(v for v in verdicts if v.is_open).route
    blocking = _blocking(standing, taken, verdicts)
    marked = {label(f) for f in blocking}
    shown = tuple(replace(f, severity="blocking") if label(f) in marked and not f.is_guarded else f for f in findings)
    return Assessment(
        workload=workload,
        route=taken,
        as_of=now,
        kind="found",
        blocking=blocking,
        waived=waivers,
        findings=shown,
        routes=verdicts,
        subject=subject,
        target=target,
        lines=lines,
        files=files,
        licence=licence.reference if licence is not None and taken == "scale" else "",
    )


def _verdict(route: Route, standing: list[Finding], target: str, licence: LicenceAcceptance | None) -> RouteVerdict:
    if route == "stay":
        return RouteVerdict(route=route, is_open=True, reason="always open")
    if route == "zluda" and is_wave64(target):
        return RouteVerdict(route=route, is_open=False, reason=ZLUDA_REASON.format(target=target))
    against = [f for f in standing if f.least and RANK[f.least] > RANK[route]]
    if against:
        names = tuple(label(f) for f in against[:20])
        more = f" and {len(against) - 3} more" if len(against) > 3 else ""
        return RouteVerdict(route=route, is_open=False, reason=f"closed by {', '.join(names[:3])}{more}", blocked_by=names)
    return _special(route, standing, target, licence)


def _special(route: Route, standing: list[Finding], target: str, licence: LicenceAcceptance | None) -> RouteVerdict:
    """Judge what no finding closes."""
    own = any(f.rule in OWN_SOURCE_RULES and not f.is_guarded for f in standing)
    if route == "native":
        is_tied = any((f.grade != "info" or f.rule.startswith("P")) and f.rule not in NOT_READ for f in standing)
        reason = "every accelerated part has an AMD build, and nothing needs CUDA source" if is_tied else "nothing that was read needs CUDA"
        missing = sum(f.count for f in standing if f.rule in NOT_READ)
        if missing:
            reason += f"; not judged: {missing} part{'s' if missing > 1 else ''} (R088)"
        return RouteVerdict(route=route, is_open=True, reason=reason)
    if route == "rebuild":
        return RouteVerdict(route=route, is_open=True, reason="artefacts and packages have to be made or exchanged for the target")
    if route == "hipify":
        needed = own or any(f.least == "hipify" for f in standing)
        reason = "its CUDA source can be translated" if needed else "there is no CUDA source to translate"
        return RouteVerdict(route=route, is_open=True, reason=reason)
    if route == "zluda":
        return RouteVerdict(route=route, is_open=True, reason=f"{target} is 32-wide; only its own how-tos are known to work")
    if not own:
        return RouteVerdict(route=route, is_open=False, reason="SCALE compiles source, and there is no CUDA source of its own")
    if target not in SCALE_TARGETS:
        return RouteVerdict(route=route, is_open=False, reason=f"SCALE does not target {target}")
    stack = [f for f in standing if f.rule in PYTHON_STACK]
    if stack:
        reason = f"SCALE serves stand-alone programs; {stack[0].subject} fails under it"
        return RouteVerdict(route=route, is_open=False, reason=reason, blocked_by=tuple(label(f) for f in stack))
    if licence is None:
        return RouteVerdict(route=route, is_open=False, reason=SCALE_LICENCE, blocked_by=("R068",))
    return RouteVerdict(route=route, is_open=True, reason=f"SCALE compiles its source; licence {licence.reference}")


def _blocking(standing: list[Finding], taken: Route, verdicts: tuple[RouteVerdict, ...]) -> tuple[Finding, ...]:
    """Return what stands between the workload and a move: all that the last open door was closed by, and faults that no route mends."""
    faults = [f for f in standing if f.grade == "blocker" and not f.least and f.rule != "R068"]
    if taken != "stay":
        return tuple(replace(f, severity="blocking") for f in faults)
    last: Route = "hipify"
    if any(v.route == "scale" and v.blocked_by == ("R068",) for v in verdicts):
        text = SCALE_LICENCE
        licence = Finding(
            rule="R068", severity="blocking", text=text, grade="blocker", evidence="spectral-compute/scale-docs docs/licensing.md"
        )
        faults.append(licence)
    closing = [f for f in standing if f.least and RANK[f.least] > RANK[last]]
    return tuple(replace(f, severity="blocking") for f in (*closing, *faults))
