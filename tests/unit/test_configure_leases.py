"""What `configure` holds while it runs, and what it leaves behind when it may not."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Never

import pytest

from fleetctl.domain.ids import HostId, PoolId
from fleetctl.domain.people import Actor
from fleetctl.domain.pool import Host, PoolSpec
from fleetctl.errors import LeaseHeld
from fleetctl.ports.state import Lease
from fleetctl.usecases.capacity import CapacityPorts, PoolHosts, configure
from tests.cases.planning_fleet import lab_fleet, plan_of
from tests.fakes.clock import FakeClock
from tests.fakes.configurator import FakeConfigurator
from tests.fakes.store import MemoryStore

FIRST, SECOND = PoolId("mi300x-a"), PoolId("mi300x-b")


def spec(pool: PoolId) -> PoolSpec:
    return PoolSpec(pool=pool, vendor="amd", sku="lab-mi300x", region="lab", count=1)


def never(_: object) -> Never:
    raise AssertionError("nothing is provisioned here")


def test_a_pool_that_is_held_frees_the_pools_taken_before_it() -> None:
    store = MemoryStore()
    host = Host(id=HostId("mi300x-a-1"), pool=FIRST, address="127.0.0.1")
    store.put(FIRST, PoolHosts(pool=FIRST, hosts=(host,)))
    plan = replace(plan_of(lab_fleet()), pools=(spec(FIRST), spec(SECOND)))
    assert isinstance(store.acquire(SECOND, "somebody@else:1", timedelta(minutes=5)), Lease)
    ports = CapacityPorts(
        store=store,
        records=store,
        clock=FakeClock(),
        provisioner=never,
        configurator=FakeConfigurator(),
        holder="me",
        actor=Actor(kind="person", name="ada"),
    )
    with pytest.raises(LeaseHeld):
        configure(plan, ports, lambda _: {}, "serving", lambda _: None)
    assert isinstance(store.acquire(FIRST, "ada@host:2", timedelta(minutes=5)), Lease)
