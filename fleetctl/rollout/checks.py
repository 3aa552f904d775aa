"""Migrate, pure layer: what the checks of both arms say to a raise of the weight. Never I/O, never runs a check."""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.domain.checks import CheckSeen
from fleetctl.domain.people import Reason
from fleetctl.domain.rollout import Observation, Rollout
from fleetctl.domain.workload import CheckSpec

FAILED, OPEN, DUE = "checks.failed", "checks.open", "checks.due"
"""Hold reasons: a check FAILed; one settled nothing; one must be run (by a person, or it is running)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmet:
    """Why the weight may not be raised yet.

    Args:
        run: checks that are to be begun now; is_waiting: all that is needed is time.
    """

    why: Reason
    run: tuple[CheckSpec, ...] = ()
    is_waiting: bool = False


def unmet(r: Rollout, seen: Observation, *, is_entered: bool = False) -> Unmet | None:
    """Return what keeps the weight from being raised; None where every check stands.

    A person's promote stands for a check that settled nothing or is due, never for one that FAILed.

    Args:
        is_entered: the weight is that of a step that the cell had already: whoever let it in accepted what settled nothing.
    """
    known = {s.name: s for s in seen.checks}
    nobody = "nobody can run it here"
    stands = [(spec, known.get(spec.name, CheckSeen(name=spec.name, state="unknown", text=nobody))) for spec in r.spec.checks]
    failed = [s for _, s in stands if s.state == "failed"]
    if failed:
        text = f"{failed[0].name} FAIL: {failed[0].text}; not raising. Mend it, then run: {_command(r, failed)}"
        return Unmet(why=Reason(code=FAILED, text=text))
    if r.promoted:
        return None
    run = tuple(spec for spec, s in stands if s.state == "due" and spec.is_auto)
    going = [s for spec, s in stands if s.state == "running" or spec in run]
    if going:
        names = " and ".join(s.name for s in going)
        return Unmet(why=Reason(code="step.wait", text=f"{r.phase}: comparing both arms ({names})"), run=run, is_waiting=True)
    waiting = [s for _, s in stands if s.state != "passed" and not (is_entered and s.state == "open")]
    if not waiting:
        return None
    first = waiting[0]
    code = OPEN if first.state == "open" else DUE
    text = f"{first.name} {first.text}; not raising. Run: {_command(r, waiting)}, or promote"
    return Unmet(why=Reason(code=code, text=text))


def _command(r: Rollout, checks: list[CheckSeen]) -> str:
    return f"fleetctl calibrate {r.cell} --checks {','.join(s.name for s in checks)}"
