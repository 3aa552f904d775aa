"""Judge, pure layer: what a look must keep so that its verdict can be computed again, and the computing. Never I/O, never new evidence.

Replaying all rows of a rollout gives the judge's state byte by byte. Source: evidence.md 6.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fleetctl.analysis.judge import cursor_key, fresh, judge, start_step
from fleetctl.analysis.memory import BreakerMemory, Memory, unpack
from fleetctl.domain.evidence import Cursor, Evidence, JudgeState, LookRow, Seen, Verdict
from fleetctl.domain.workload import GuardrailSpec


def seen_of(before: JudgeState, e: Evidence, step: int, guardrails: tuple[GuardrailSpec, ...], *, compared: bool) -> Seen:
    """Return what a look must keep beside its counts.

    Args:
        before: the judge's state before this look; step: of the rollout; guardrails: of that step, judged where `compared`.
    """
    memory = unpack(before)
    begins = memory.cursor != cursor_key(e.cursor)
    is_first = not memory.breaker.total and memory == Memory(steps=memory.steps, guardrails=memory.guardrails)
    made = _seen(memory.breaker, e, begins=begins, step=step, compared=compared)
    beside = _seen(memory.beside, e.beside, begins=begins, step=step, compared=compared) if e.beside is not None else None
    return Seen(
        at=e.at,
        step=step,
        compared=compared,
        states=made.states,
        cursor=e.cursor if begins else None,
        guardrails=guardrails if begins else (),
        steps=memory.steps if is_first else 0,
        shared_by=memory.guardrails if is_first else 0,
        outcomes=made.outcomes,
        recent=made.recent,
        recent_errors=made.recent_errors,
        faults=e.faults,
        sticky=e.sticky,
        cuts=e.cuts,
        led=e.led,
        beside_arms=e.beside.arms if e.beside is not None else {},
        beside=beside,
    )


def _seen(breaker: BreakerMemory, e: Evidence, *, begins: bool, step: int, compared: bool) -> Seen:
    new = e.arms["canary"].attempts - (0 if begins else breaker.seen)
    return Seen(
        at=e.at,
        step=step,
        compared=compared,
        states=dict(e.state),
        outcomes=e.canary_outcomes if new < 0 else e.canary_outcomes[-new:] if new else "",  # all of them where a part was lost
        recent=e.baseline_recent,
        recent_errors=e.baseline_recent_errors,
        sticky=e.sticky,
        cuts=e.cuts,
        led=e.led,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A row judged again: the state after it and the verdicts on it."""

    row: LookRow
    state: JudgeState
    verdicts: tuple[Verdict, ...]

    @property
    def agrees(self) -> bool:
        """Tell whether the verdicts are those that were stored, number by number."""
        return self.verdicts == self.row.verdicts

    @property
    def is_shared(self) -> bool:
        """Tell whether what was stored rests on equal cells too (lane pooled), so that these rows alone do not tell it."""
        return any("equal cell" in v.detail for v in self.row.verdicts)


class _Outcomes:
    """Outcomes so far of one arm since a cursor."""

    def __init__(self) -> None:
        self.text, self.attempts = "", 0

    def add(self, new: str, attempts: int) -> str:
        grown, self.attempts = attempts - self.attempts, attempts
        if grown < 0:
            self.text = new
            return new
        known = len(self.text) - max(0, len(new) - grown)  # what a look did not use is told again by the next one
        self.text = self.text[: max(0, known)] + new if len(new) >= grown else new  # else only the newest part was kept
        return self.text


def replay(rows: Iterable[LookRow]) -> Iterator[Replayed]:
    """Judge stored looks again, oldest first; rows on which nothing was judged are passed over.

    Raises:
        ValueError: the first row is not one where evidence begins (older ones are gone), so nothing can be said about it.
    """
    state = fresh()
    cursor: Cursor | None = None
    specs: tuple[GuardrailSpec, ...] = ()
    own, beside = _Outcomes(), _Outcomes()
    for row in rows:
        if row.seen is None:
            continue
        if row.seen.steps:
            state = fresh(row.seen.steps, row.seen.shared_by)
        if row.seen.cursor is not None:
            state, own, beside = start_step(state), _Outcomes(), _Outcomes()
            cursor, specs = row.seen.cursor, row.seen.guardrails
        if cursor is None:
            raise ValueError("the looks before this one are gone")
        e = _evidence(row, row.seen, cursor, own, beside)
        state, verdicts = judge(state, e, specs if row.seen.compared else ())
        yield Replayed(row=row, state=state, verdicts=verdicts)


def _evidence(row: LookRow, s: Seen, cursor: Cursor, own: _Outcomes, beside: _Outcomes) -> Evidence:
    other: Evidence | None = None
    if s.beside is not None:
        other = Evidence(
            cell=row.cell,
            at=s.beside.at,
            arms=s.beside_arms,
            state=s.beside.states,
            cursor=cursor,
            canary_outcomes=beside.add(s.beside.outcomes, s.beside_arms["canary"].attempts),
            baseline_recent=s.beside.recent,
            baseline_recent_errors=s.beside.recent_errors,
            sticky=s.beside.sticky,
            cuts=s.beside.cuts,
            led=s.beside.led,
        )
    return Evidence(
        cell=row.cell,
        at=s.at,
        arms=row.arms,
        state=s.states,
        cursor=cursor,
        canary_outcomes=own.add(s.outcomes, row.arms["canary"].attempts),
        baseline_recent=s.recent,
        baseline_recent_errors=s.recent_errors,
        faults=s.faults,
        beside=other,
        sticky=s.sticky,
        cuts=s.cuts,
        led=s.led,
    )
