"""SQLite and the memory fake, driven side by side by random calls, answer the same."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from datetime import timedelta
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fleetctl.adapters.store.sqlite import SqliteStore
from fleetctl.domain.ids import CellId, Token
from fleetctl.domain.rollout import OrderKind
from fleetctl.errors import LeaseHeld
from fleetctl.ports.state import Lease
from tests.fakes.clock import START, FakeClock
from tests.fakes.rollouts import ANN, CHAT, SUMMARY, event, order, rollout
from tests.fakes.store import MemoryStore

cells = st.sampled_from([CHAT, SUMMARY])
spans = st.sampled_from([timedelta(0), timedelta(hours=1)])
kinds: st.SearchStrategy[OrderKind] = st.sampled_from(["pause", "promote", "fallback"])


class TwoStores(RuleBasedStateMachine):
    """Every call goes to both; leases are kept so that old ones are tried again."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.real = SqliteStore(Path(self.folder) / "store.db")
        self.fake = MemoryStore(FakeClock().now)
        self.leases: list[tuple[Lease, Lease]] = []

    def teardown(self) -> None:
        self.real.close()
        shutil.rmtree(self.folder)

    @rule(c=cells, ttl=spans, holder=st.sampled_from(["a", "b"]))
    def acquire(self, c: CellId, ttl: timedelta, holder: str) -> None:
        real, fake = self.real.acquire(c, holder, ttl), self.fake.acquire(c, holder, ttl)
        assert type(real) is type(fake)
        assert real.holder == fake.holder
        if isinstance(real, Lease) and isinstance(fake, Lease):
            assert real.token == fake.token
            self.leases.append((real, fake))

    @rule(data=st.data(), ttl=spans)
    def renew(self, data: st.DataObject, ttl: timedelta) -> None:
        if self.leases:
            one, other = data.draw(st.sampled_from(self.leases))
            real, fake = self.real.renew(one, ttl), self.fake.renew(other, ttl)
            assert type(real) is type(fake)

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        if self.leases:
            one, other = data.draw(st.sampled_from(self.leases))
            self.real.release(one)
            self.fake.release(other)

    @rule(c=cells, token=st.integers(0, 12))
    def raise_token(self, c: CellId, token: int) -> None:
        self.real.raise_token(c, Token(token))
        self.fake.raise_token(c, Token(token))

    @rule(c=cells)
    def start(self, c: CellId) -> None:
        outcomes = []
        for store in (self.real, self.fake):
            try:
                store.start(rollout(c), (event(c, text="start"),))
                outcomes.append("")
            except LeaseHeld as e:
                outcomes.append(e.code)
        assert outcomes[0] == outcomes[1]

    @rule(c=cells, kind=kinds, at=st.integers(0, 2))
    def order(self, c: CellId, kind: OrderKind, at: int) -> None:
        self.real.order(c, order(kind, seconds=at))
        self.fake.order(c, order(kind, seconds=at))

    @rule(data=st.data(), look_again=spans, ends=st.booleans(), obeys=st.integers(0, 2))
    def record(self, data: st.DataObject, look_again: timedelta, ends: bool, obeys: int) -> None:
        if not self.leases:
            return
        one, other = data.draw(st.sampled_from(self.leases))
        c = CellId(one.scope)
        before = self.real.load(c)
        if before is None:
            return
        after = dataclasses.replace(
            before, attempt=before.attempt + 1, ended="aborted" if ends else before.ended, orders=before.orders[obeys:]
        )
        events = (event(c, text=str(after.attempt)), event(None, text=str(after.attempt)))
        real = self.real.record(one, before, after, events, look_again)
        fake = self.fake.record(other, before, after, events, look_again)
        assert (real and real.seen) == (fake and fake.seen)

    @rule()
    def anchor(self) -> None:
        real, fake = self.real.anchor_heads(START, ANN), self.fake.anchor_heads(START, ANN)
        assert (real and real.data) == (fake and fake.data)

    @invariant()
    def same(self) -> None:
        assert self.real.cells() == self.fake.cells()
        assert set(self.real.due(10)) == set(self.fake.due(10))
        for c in (CHAT, SUMMARY):
            assert self.real.load(c) == self.fake.load(c)
        for chain in (CHAT, SUMMARY, None):
            assert list(self.real.events(chain, 0)) == list(self.fake.events(chain, 0))
        assert self.real.verify() == []


TestTwoStores = TwoStores.TestCase
TestTwoStores.settings = settings(max_examples=20, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck))
