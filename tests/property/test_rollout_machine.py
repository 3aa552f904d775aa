"""Over random orders of events: what a rollout must never do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from fleetctl.domain.canonical import canonical, decode
from fleetctl.domain.evidence import Verdict
from fleetctl.domain.identity import ArmsIdentity, Identity
from fleetctl.domain.people import Signal
from fleetctl.domain.rollout import Freeze, Rollout, SetSplit
from fleetctl.domain.workload import Lane
from fleetctl.rollout.decide import decide
from tests.rollouts import PERSON, T0, evidence, order, rollout, seeing, spec, verdict

KINDS = st.sampled_from(["PASS", "FAIL", "INCONCLUSIVE", "NO_DATA", "PROVIDER_ERROR"])
STATES = st.sampled_from(["ok", "ok", "ok", "empty", "nan", "stale", "down", "mislabelled", "same_series", "reset"])
READY = st.sampled_from([1.0, 1.0, 1.0, None, 0.5, 0.0])
ORDERS = st.sampled_from(["promote", "pause", "resume", "abort", "rollback", "fallback", "retry", "advance"])


SERVED = Identity(model="m", weights="w1")
RAISES: Counter[str] = Counter()
"""How often the machine saw a raise out of each phase: a machine that never raises proves nothing."""


class RolloutMachine(RuleBasedStateMachine):
    """A router that obeys, a clock that moves, and a world that is calm for a while and then does anything."""

    @initialize(shadow=st.booleans(), accepted=st.booleans(), until=st.sampled_from(["canary", "ramp", "soak", "complete"]))
    def begin(self, shadow: bool, accepted: bool, until: str) -> None:
        lane = Lane(kind="accepted", reason="test", actor=PERSON) if accepted else Lane()
        self.r: Rollout = rollout(spec(shadow=shadow, lane=lane), until=until)  # type: ignore[arg-type]
        self.now, self.bp, self.weights = T0, 0, "w1"

    @rule(looks=st.integers(1, 12), seconds=st.integers(3, 30), source=READY, target_side=READY)
    def calm(self, looks: int, seconds: int, source: float | None, target_side: float | None) -> None:
        """Everything passes for a while; a replica of either side may be away."""
        for _ in range(looks):
            self._tick(seconds, verdicts=("PASS", "PASS", "PASS"), source_ready=source, target_ready=target_side)

    @rule(kinds=st.tuples(KINDS, KINDS, KINDS), seconds=st.integers(1, 90), source=READY, lost=st.integers(0, 4), frozen=st.booleans())
    def judged(self, kinds: tuple[str, str, str], seconds: int, source: float | None, lost: int, frozen: bool) -> None:
        """Any verdicts, perhaps in a freeze window."""
        window = Freeze(active=frozen, name="w")
        self._tick(seconds, verdicts=kinds, source_ready=source, target_ready=1.0, providers_lost=lost, window=window)

    @rule(state=STATES, other=STATES, gone=st.booleans(), seconds=st.integers(1, 90), lost=st.integers(0, 4), blind=st.booleans())
    def in_the_dark(self, state: str, other: str, gone: bool, seconds: int, lost: int, blind: bool) -> None:
        """Evidence of any state, or none, or no place for it to begin."""
        self._tick(seconds, verdicts=(), state=state, other=other, gone=gone, blind=blind, providers_lost=lost)

    @rule(source_goes=st.booleans(), looks=st.integers(1, 4), source=READY, target_side=READY)
    def noticed(self, source_goes: bool, looks: int, source: float | None, target_side: float | None) -> None:
        """A cloud says that a machine of one side goes; everything else is calm."""
        pool = self.r.spec.source if source_goes else self.r.spec.target
        going = Signal(
            subject="h", kind="azure.preempt", severity="critical", seen_at=self.now, deadline=self.now + timedelta(seconds=30), pool=pool
        )
        for _ in range(looks):
            before = self.bp
            self._tick(5, verdicts=("PASS", "PASS", "PASS"), source_ready=source, target_ready=target_side, signals=(going,))
            assert self.bp <= before, "nobody more is sent away from a source, or to a target, that goes"
        if not source_goes and source in (None, 1.0) and not self.r.ended:
            assert self.bp == 0, "customers are off a target before it goes"

    @rule(weights=st.sampled_from(["w1", "w2"]), looks=st.integers(1, 3))
    def revision_changes(self, weights: str, looks: int) -> None:
        """An arm serves another revision, or the old one again; both say so."""
        self.weights = weights
        for _ in range(looks):
            self._tick(5, verdicts=("PASS", "PASS", "PASS"), source_ready=1.0, target_ready=1.0)

    @rule(seconds=st.integers(1, 90))
    def weight_is_lost(self, seconds: int) -> None:
        """The router's guard took the weight home."""
        self.bp = 0
        self._tick(seconds, verdicts=())

    @rule(orders=st.lists(ORDERS, min_size=1, max_size=2), kinds=st.tuples(KINDS, KINDS, KINDS))
    def ordered(self, orders: list[str], kinds: tuple[str, str, str]) -> None:
        """A person gives orders."""
        self._tick(1, verdicts=kinds, orders=orders)

    @precondition(lambda self: self.r.ended not in ("", "complete"))
    @rule(until=st.sampled_from(["canary", "soak", "complete"]))
    def again(self, until: str) -> None:
        """A person begins anew after it came home."""
        self.r = rollout(self.r.spec, until=until)  # type: ignore[arg-type]

    def _tick(
        self,
        seconds: int,
        *,
        verdicts: Sequence[str],
        orders: Sequence[str] = (),
        state: str = "ok",
        other: str = "ok",
        gone: bool = False,
        blind: bool = False,
        **world: object,
    ) -> None:
        self.now += timedelta(seconds=seconds)
        given = tuple(verdict(k, n, self.now) for k, n in zip(verdicts, ("errors", "latency", "quality"), strict=False))  # type: ignore[arg-type]
        given = given if self.r.settled_at is not None else ()
        arms = evidence(self.now, canary=self.bp // 10, baseline=(10_000 - self.bp) // 10, state=state, baseline_state=other)  # type: ignore[arg-type]
        world |= {"mark": None} if blind else {}
        world |= {"identity": ArmsIdentity(baseline=SERVED, canary=replace(SERVED, weights=self.weights), at=self.now)}
        seen = seeing(self.now, self.bp, given, None if gone or self.bp == 0 else arms, **world)
        before = replace(self.r, orders=tuple(order(o, self.now) for o in orders))  # type: ignore[arg-type]
        d = decide(before, seen, self.now)
        sets = [e for e in d.effects if isinstance(e, SetSplit)]
        if any(e.target_bp > self.bp for e in sets):
            RAISES[before.phase] += 1
            assert not {0.0, 0.5} & {seen.source_ready, seen.target_ready}, "no raise while a replica does not answer"
        self._check(before, d.next, sets, given, list(orders), seen.window.active)
        assert not (blind and self.r.settled_at is None and d.next.settled_at is not None), (
            "no step begins without a place for its evidence"
        )
        lowered = [e.target_bp for e in sets if e.target_bp < self.bp]
        if lowered and seen.source_ready is not None:
            assert lowered[0] >= min(self.bp, round((1 - seen.source_ready) * 10_000)), "no more go home than the source can take"
        assert timedelta(0) < d.look_again <= timedelta(hours=1), "every wait ends with a look"
        if d.next.settled_at is not None and not d.next.ended:
            assert d.next.deadline is not None, "every step has a deadline"
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
            if sets[0].target_bp > 9_500:
                assert before.phase in ("soak", "complete"), "until soak is over 5 % are held back"
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

    def teardown(self) -> None:
        """Every wait has an exit: where all is well again, a person's abort ends it at once, and their word brings it to its end."""
        if not hasattr(self, "r") or self._is_over():
            return
        stands = (self.r, self.bp, self.now)
        self._tick(1, verdicts=(), orders=["abort"], source_ready=1.0)
        for _ in range(2):
            self._tick(1, verdicts=(), source_ready=1.0)
        assert self._is_over(), "an abort wins in every state"
        self.r, self.bp, self.now = stands
        for n in range(60):
            orders = ["resume", "promote", "advance"] if n % 3 == 0 else []
            self._tick(15, verdicts=("PASS", "PASS", "PASS"), orders=orders, source_ready=1.0, target_ready=1.0)
            if self._is_over():
                return
        raise AssertionError(f"stuck: {self.r}")

    def _is_over(self) -> bool:
        return bool(self.r.ended)

    @invariant()
    def weights_are_possible(self) -> None:
        if hasattr(self, "r"):
            assert 0 <= self.bp <= self.r.spec.cap_bp


RolloutMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestRolloutMachine = RolloutMachine.TestCase


def test_the_machine_sees_raises() -> None:
    RAISES.clear()
    run_state_machine_as_test(RolloutMachine, settings=settings(max_examples=40, stateful_step_count=30, deadline=None))
    assert {"preflight", "shadow", "canary", "ramp"} <= set(RAISES), RAISES
