"""Over random orders of events: what a rollout must never do."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fleetctl.domain.canonical import canonical, decode
from fleetctl.domain.evidence import Verdict
from fleetctl.domain.rollout import Freeze, Rollout, SetSplit
from fleetctl.domain.workload import Lane
from fleetctl.rollout.decide import decide
from tests.rollouts import PERSON, T0, evidence, order, rollout, seeing, spec, verdict

KINDS = st.sampled_from(["PASS", "FAIL", "INCONCLUSIVE", "NO_DATA", "PROVIDER_ERROR"])
STATES = st.sampled_from(["ok", "ok", "ok", "empty", "nan", "stale", "down", "mislabelled", "same_series", "reset"])
ORDERS = st.sampled_from(["promote", "pause", "resume", "abort", "rollback", "fallback", "retry", "advance"])


class RolloutMachine(RuleBasedStateMachine):
    """A router that obeys, a clock that moves, and a world that does anything."""

    @initialize(shadow=st.booleans(), accepted=st.booleans(), until=st.sampled_from(["canary", "ramp", "soak", "complete"]))
    def begin(self, shadow: bool, accepted: bool, until: str) -> None:
        lane = Lane(kind="accepted", reason="test", actor=PERSON) if accepted else Lane()
        self.r: Rollout = rollout(spec(shadow=shadow, lane=lane), until=until)  # type: ignore[arg-type]
        self.now, self.bp = T0, 0
        self.failed = self.aborted = False
        self.ended_with: str = ""

    @rule(
        kinds=st.tuples(KINDS, KINDS, KINDS),
        state=STATES,
        other=STATES,
        gone=st.booleans(),
        source=st.sampled_from([None, 0.0, 0.5, 1.0]),
        lost=st.integers(0, 4),
        frozen=st.booleans(),
        orders=st.lists(ORDERS, max_size=2),
        seconds=st.integers(1, 90),
        weight_lost=st.integers(0, 20),
        blind=st.booleans(),
    )
    def anything(
        self,
        kinds: tuple[str, str, str],
        state: str,
        other: str,
        gone: bool,
        source: float | None,
        lost: int,
        frozen: bool,
        orders: list[str],
        seconds: int,
        weight_lost: int,
        blind: bool,
    ) -> None:
        self.now += timedelta(seconds=seconds)
        if weight_lost == 0:
            self.bp = 0
        names = ("errors", "latency", "quality")
        verdicts: tuple[Verdict, ...] = tuple(verdict(k, n, self.now) for k, n in zip(kinds, names, strict=True))  # type: ignore[arg-type]
        if self.r.settled_at is None:
            verdicts = ()
        seen_evidence = evidence(self.now, canary=self.bp // 10, baseline=(10_000 - self.bp) // 10, state=state, baseline_state=other)  # type: ignore[arg-type]
        seen = seeing(
            self.now,
            self.bp,
            verdicts,
            None if gone or self.bp == 0 else seen_evidence,
            source_ready=source,
            providers_lost=lost,
            window=Freeze(active=frozen, name="w"),
            **({"mark": None} if blind else {}),
        )
        before = replace(self.r, orders=tuple(order(o, self.now) for o in orders))  # type: ignore[arg-type]
        d = decide(before, seen, self.now)
        self._check(before, d.next, [e for e in d.effects if isinstance(e, SetSplit)], verdicts, orders, frozen)
        assert not (blind and self.r.settled_at is None and d.next.settled_at is not None), (
            "no step begins without a place for its evidence"
        )
        assert d.look_again > timedelta(0)
        assert decode(Rollout, canonical(d.next)) == d.next
        self.r = d.next

    def _check(
        self, before: Rollout, after: Rollout, sets: list[SetSplit], verdicts: tuple[Verdict, ...], orders: list[str], frozen: bool
    ) -> None:
        assert len(sets) <= 1
        raised = bool(sets) and sets[0].target_bp > self.bp
        if before.ended and before.ended != "complete":
            assert not sets, "nothing writes after an end"
            assert after.ended == before.ended
        if raised:
            assert not frozen, "a freeze window binds every raise"
            assert before.direction == "forward"
            assert after.direction == "forward"
            assert before.latched is None
            assert not any(v.kind == "FAIL" for v in verdicts)
            assert sets[0].target_bp <= before.spec.cap_bp
        if any(o in ("abort", "fallback") for o in orders) and before.ended in ("", "complete"):
            assert after.direction == "home"
        if before.latched is not None:
            assert after.latched == before.latched, "FAIL is a latch"
        if any(v.kind == "FAIL" for v in verdicts) and not before.ended:
            assert after.direction == "home"
        if after.ended and after.ended != "complete":
            assert self.bp == 0, "ended only once the router shows zero"
        for effect in sets:
            self.bp = effect.target_bp

    @invariant()
    def weights_are_possible(self) -> None:
        if hasattr(self, "r"):
            assert 0 <= self.bp <= self.r.spec.cap_bp


RolloutMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestRolloutMachine = RolloutMachine.TestCase
