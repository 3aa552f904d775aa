"""Assess, pure layer: places of the same finding put together, lowered where the code has a branch for AMD. Never I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Literal, NamedTuple, cast

from fleetctl.assess.models import lacks_fp4
from fleetctl.domain.plan import Finding, Grade, Route
from fleetctl.domain.portability import PackageRule, RuleBook
from fleetctl.domain.units import Instant

STALE_AFTER = timedelta(days=180)
"""Rules older than this are marked: packages and compilers move faster. Source: assessment policy of this project."""
MOST_PLACES = 5
MOST_FINDINGS = 400
"""Different findings listed per assessment; what is over is put together by rule, so that nothing that closes a route is lost."""
ORDER: dict[Grade, int] = {"blocker": 0, "rework": 1, "risk": 2, "perf": 3, "info": 4}
WAVE64_RULES = frozenset({"R042", "R043"})
CDNA_RULES = frozenset({"R051"})
NOT_READ = frozenset({"R088", "R089"})
GUARDABLE = frozenset({"source", "build"})
_LOWERED: dict[Grade, Grade] = {"blocker": "risk", "rework": "info", "risk": "info", "perf": "perf", "info": "info"}


_VENDORED = re.compile(
    r"(?:.*/)?(?:third[-_]?party|3rd[-_]?party|vendor(?:ed)?|extern(?:als?)?|submodules?|deps|contrib|subprojects|_deps)/[^/]+/",
    re.IGNORECASE,
)


class Place(NamedTuple):
    """Where something was found; line 0 means the whole file."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}" if self.line else self.path


@dataclass(slots=True)
class _Group:
    text: str
    places: list[str] = field(default_factory=list)
    count: int = 0
    least: Route | Literal[""] = ""
    grade: Grade = "info"
    evidence: str = ""
    as_of: str = ""

    def take(self, places: list[str], count: int) -> None:
        """Add places, of which the first few are kept."""
        self.count += count
        self.places += [p for p in dict.fromkeys(places) if p not in self.places][: MOST_PLACES - len(self.places)]


class _Key(NamedTuple):
    """What makes a finding of its own: in each project of a tree at first, as one may be ported to AMD and another not."""

    rule: str
    subject: str
    guarded: bool
    project: str


def project_of(path: str) -> str:
    """Return the folder of another project that a path lies in, "" for the tree's own files: each is built by its own owners."""
    found = _VENDORED.match(path)
    return found.group() if found else ""


class Collected:
    """Findings in the making."""

    def __init__(self, book: RuleBook) -> None:
        self._book = book
        self._groups: dict[_Key, _Group] = {}
        self._over = 0

    def add(
        self, rule_id: str, place: Place, said: str, *, subject: str = "", guarded: bool = False, count: int = 1, lighter: bool = False
    ) -> None:
        """Add one place of a rule.

        Args:
            said: what matched; subject: what makes it a finding of its own, such as a name.
            lighter: a type or a constant without a twin: work by hand, no way closed but the easy ones.
        """
        rule = self._book.rules[rule_id]
        text = f"{said}: {rule.effect}" if subject else f"{rule.signal}: {rule.effect}"
        if rule_id == "R036":
            text = f"{subject} has no HIP twin ({self._book.names_from})"
        elif rule_id == "R037":
            text = f"{subject} is in no table: uncovered until proven otherwise"
        elif rule_id == "R108":
            text = f"{subject} is a header of no table and not of the tree: uncovered until proven otherwise"
        elif rule_id == "R091":
            text = said
        elif rule_id in {"R085", "R086", "R087"} and said:
            text = f"{rule.signal}: {said}"
        as_of = self._book.names_as_of if rule_id in {"R036", "R037"} else rule.as_of
        grade, least = ("rework", "hipify") if lighter else (rule.grade, rule.least)
        group = _Group(text, least=cast(Route, least), grade=cast(Grade, grade), evidence=rule.evidence, as_of=as_of)
        self._put(rule_id, subject, guarded, place, group, count)

    def not_read(self, place: Place, reason: str, *, hides: bool) -> None:
        """Add something that was not read; what may hold anything is a finding of its own, which a person can waive alone."""
        rule = self._book.rules["R089" if hides else "R088"]
        subject = place.path[:200] if hides else reason
        group = _Group(
            f"not judged: {reason}",
            least=cast(Route, rule.least),
            grade=rule.grade,
            evidence=rule.evidence,
            as_of=rule.as_of,
        )
        self._put(rule.id, subject, False, place, group, 1)

    def package(
        self,
        rule: PackageRule,
        places: Iterable[Place],
        text: str,
        name: str,
        *,
        least: str,
        is_replaced: bool,
        guarded: bool = False,
        optional: bool = False,
    ) -> None:
        """Add a package with all its places; one that stays is a blocker, one that must be exchanged is work, an optional one a risk."""
        if optional and not is_replaced and least != "native":
            grade: Grade = "risk"
            least = "native"
            text += " (optional: nothing here asks for it)"
        elif is_replaced:
            grade = "info"
        elif least == "stay":
            grade = "blocker"
        else:
            grade = "info" if rule.status == "native" and rule.move == "native" and rule.id != "P001" else "rework"
        group = _Group(text, least=cast(Route, least), grade=grade, evidence=rule.evidence, as_of=rule.as_of)
        for one in places:
            self._put(rule.id, name, guarded, one, group, 1)

    def _put(self, rule: str, subject: str, guarded: bool, place: Place, group: _Group, count: int) -> None:
        key = _Key(rule, subject, guarded, project_of(place.path))
        known = self._groups.get(key)
        if known is None:
            if len(self._groups) >= MOST_FINDINGS and subject:
                self._over += 1
                rest = key._replace(subject="")
                known = self._groups.get(rest)
                if known is None:
                    group.text = f"more of the same: {group.text}"
                    known = self._groups[rest] = group
            else:
                known = self._groups[key] = group
        known.take([str(place)], count)

    def findings(self, now: Instant, *, target: str, ported: frozenset[str]) -> tuple[Finding, ...]:
        """Return all findings, the heaviest first.

        Args:
            ported: projects whose owners build them for AMD ("" for the tree's own): what stands in their sources and builds is lowered.
        """
        groups: dict[tuple[str, str, bool, bool], _Group] = {}
        for key, group in self._groups.items():
            rule = self._book.rules.get(key.rule)
            is_ported = key.project in ported and rule is not None and rule.kind in GUARDABLE
            one = groups.setdefault((key.rule, key.subject, key.guarded, is_ported), replace(group, places=[], count=0))
            one.take(group.places, group.count)
        made = [
            _finding(rule_id, subject, group, now, guarded=guarded, ported=is_ported)
            for (rule_id, subject, guarded, is_ported), group in groups.items()
            if not (rule_id == "R026" and not lacks_fp4(target))
            and not (rule_id in WAVE64_RULES and not is_wave64(target))
            and not (rule_id in CDNA_RULES and not is_cdna(target))
        ]
        if self._over:
            rule = self._book.rules["R090"]
            text = f"{self._over} more are put together, not listed"
            made.append(Finding(rule=rule.id, severity="info", text=text, grade="info", evidence=rule.evidence, as_of=rule.as_of))
        made.sort(key=lambda f: (ORDER[f.grade], f.rule, f.subject, f.where))
        return tuple(made)


def _finding(rule_id: str, subject: str, group: _Group, now: Instant, *, guarded: bool, ported: bool) -> Finding:
    lowered = guarded or ported
    grade = _LOWERED[group.grade] if lowered else group.grade
    text = group.text
    if lowered and group.grade in {"blocker", "rework"}:
        text += " (there is a branch for AMD, or it goes on without)" if guarded else " (its owners build the tree for AMD)"
    return Finding(
        rule=rule_id,
        severity="info" if grade == "info" else "warning",
        text=text,
        where=group.places[0],
        subject=subject if rule_id != "R088" else "",
        grade=grade,
        least="native" if lowered and group.least else group.least,
        evidence=group.evidence,
        as_of=group.as_of,
        is_stale=is_stale(group.as_of, now),
        is_guarded=lowered,
        count=group.count,
        places=tuple(group.places),
    )


def is_stale(as_of: str, now: Instant) -> bool:
    """Tell whether a rule of this ISO date is older than 180 days; one without a date is."""
    try:
        return now - Instant.fromisoformat(as_of).replace(tzinfo=now.tzinfo) > STALE_AFTER
    except ValueError:
        return True


def is_wave64(target: str) -> bool:
    """Tell whether the target runs 64 lanes per wavefront. Source: CDNA and GCN (gfx9) do, RDNA (gfx10 and up) runs 32."""
    return target.startswith("gfx9")


def is_cdna(target: str) -> bool:
    """Tell whether the target is a CDNA accelerator, without image hardware from MI300 on."""
    return target in {"gfx908", "gfx90a"} or target.startswith(("gfx94", "gfx95"))
