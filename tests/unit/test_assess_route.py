"""Routes: their order, what closes them, waivers, the licence, ZLUDA's refusal, stale rules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal

import pytest

from fleetctl.assess.collected import is_stale
from fleetctl.assess.gather import gather
from fleetctl.assess.route import decide
from fleetctl.catalog.portability import load_rule_book
from fleetctl.domain.canonical import canonical, decode
from fleetctl.domain.ids import WorkloadId
from fleetctl.domain.people import Actor
from fleetctl.domain.plan import Assessment, Finding, Grade, Route, Waiver
from fleetctl.domain.portability import ROUTES, LicenceAcceptance, TextFile

NOW = datetime(2026, 12, 1, tzinfo=UTC)
ACTOR = Actor(kind="person", name="ann")
LICENCE = LicenceAcceptance(licence="scale", reference="C-17", actor=ACTOR, at=NOW)


def finding(least: Route | Literal[""], rule: str = "R900", grade: Grade = "blocker", subject: str = "") -> Finding:
    return Finding(
        rule=rule, severity="warning", text="t", where="a.cu:1", grade=grade, least=least, subject=subject, evidence="e", as_of="2026-11-30"
    )


OWN = finding("hipify", "R035", "rework")


def judged(
    *found: Finding, target: str = "gfx942", waivers: tuple[Waiver, ...] = (), licence: LicenceAcceptance | None = None
) -> Assessment:
    return decide(WorkloadId("chat"), tuple(found), NOW, target=target, waivers=waivers, licence=licence)


@pytest.mark.parametrize(
    ("least", "route"),
    [(None, "native"), ("native", "native"), ("rebuild", "rebuild"), ("hipify", "hipify"), ("stay", "stay")],
)
def test_the_first_open_route_is_taken(least: Route | None, route: Route) -> None:
    assert judged(*([finding(least)] if least else [])).route == route


def test_every_route_is_judged_in_order() -> None:
    assert tuple(v.route for v in judged(OWN).routes) == ROUTES


@pytest.mark.parametrize("target", ["gfx942", "gfx90a", "gfx908", "gfx950"])
def test_zluda_is_refused_on_every_cdna_target_with_its_reason(target: str) -> None:
    verdict = next(v for v in judged(OWN, finding("zluda"), target=target, licence=LICENCE).routes if v.route == "zluda")
    assert not verdict.is_open
    assert "wave64" in verdict.reason


def test_zluda_is_possible_on_rdna_alone() -> None:
    assert judged(finding("zluda"), target="gfx1100").route == "zluda"


def test_scale_needs_a_licence_on_record() -> None:
    found = (OWN, finding("scale", "R038"))
    without = judged(*found)
    assert without.route == "stay"
    assert "R068" in {f.rule for f in without.blocking}
    taken = judged(*found, licence=LICENCE)
    assert (taken.route, taken.licence, taken.blocking) == ("scale", "C-17", ())


def test_scale_is_for_programs_with_source_and_not_for_the_python_stack() -> None:
    assert judged(finding("scale"), licence=LICENCE).route == "stay"
    torch = finding("native", "P001", "rework", "torch")
    assert judged(OWN, finding("scale", "R038"), torch, licence=LICENCE).route == "stay"
    assert judged(OWN, finding("scale", "R038"), target="gfx950", licence=LICENCE).route == "stay"


def test_a_waiver_opens_a_route_and_is_kept() -> None:
    waiver = Waiver(rule="R038", reason="we wrote HIP kernels", actor=ACTOR, at=NOW)
    found = judged(OWN, finding("scale", "R038"), waivers=(waiver,))
    assert (found.route, found.waived) == ("hipify", (waiver,))
    assert {f.rule for f in found.findings} == {"R035", "R038"}


def test_a_waiver_of_one_name_covers_that_name_alone() -> None:
    both = (OWN, finding("scale", "R036", subject="cudaOne"), finding("scale", "R036", subject="cudaTwo"))
    found = judged(*both, waivers=(Waiver(rule="R036:cudaOne", reason="unused", actor=ACTOR),))
    assert found.route == "stay"
    assert {f.subject for f in found.blocking if f.rule == "R036"} == {"cudaTwo"}


def test_a_fault_blocks_without_closing_a_route() -> None:
    found = judged(finding("", "R021"))
    assert found.route == "native"
    assert [f.rule for f in found.blocking] == ["R021"]
    assert all(f.severity == "blocking" for f in found.blocking)


def test_blocking_is_what_keeps_it_on_the_source() -> None:
    found = judged(OWN, finding("stay", "R051"), finding("native", "R014", "rework"))
    assert [f.rule for f in found.blocking] == ["R051"]


def test_an_assessment_survives_the_store() -> None:
    found = judged(OWN, finding("stay", "R051"), waivers=(Waiver(rule="R014", reason="fine so", actor=ACTOR, at=NOW),))
    assert decode(Assessment, canonical(found)) == found


@pytest.mark.parametrize(("days", "stale"), [(0, False), (180, False), (181, True)])
def test_rules_go_stale_after_180_days(days: int, stale: bool) -> None:
    assert is_stale("2026-06-01", datetime(2026, 6, 1, tzinfo=UTC) + timedelta(days=days)) is stale


def test_old_rules_are_marked_in_the_findings() -> None:
    read = TextFile(path="a.cu", text='__device__ void f() { asm("x"); }\n')
    (fresh,) = (f for f in gather(load_rule_book(), "gfx942", [read]).findings(NOW) if f.rule == "R038")
    (old,) = (f for f in gather(load_rule_book(), "gfx942", [read]).findings(NOW + timedelta(days=400)) if f.rule == "R038")
    assert (fresh.is_stale, old.is_stale) == (False, True)


def test_routes_are_the_domain_s() -> None:
    routes: tuple[Route, ...] = ROUTES
    assert routes == ("native", "rebuild", "hipify", "scale", "zluda", "stay")
