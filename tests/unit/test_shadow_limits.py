"""What a shadow may cost and where its copies may go: no byte leaves the regions in which a cell's data may be served."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.adapters.shadow.collector import Collector, CollectorConfig
from fleetctl.adapters.shadow.files import ShadowFiles
from fleetctl.domain.evidence import Pair
from fleetctl.domain.ids import Token
from fleetctl.errors import TrafficNotApplied
from fleetctl.wiring.traffic import Traffic
from tests.fakes.rollouts import CHAT

BODY = json.dumps({"model": "m", "prompt": "hello"}).encode()


def config(folder: Path, **changes: object) -> CollectorConfig:
    told = {"port": 0, "router_url": "http://127.0.0.1:1", "pin_key_file": "x", "folder": str(folder), "cells": {CHAT: {}}} | changes
    return CollectorConfig(**told)  # type: ignore[arg-type]


def test_no_copy_is_made_where_it_may_not_go_and_what_ran_is_stopped(tmp_path: Path) -> None:
    rates: list[int] = []
    why = ""
    shadow = ShadowFiles(tmp_path, lambda c, milli: rates.append(milli), forbids=lambda c: why)
    shadow.start(CHAT, 2.0, Token(1))
    why = "its data may be served from westeurope only, its target is in eastus2"
    with pytest.raises(TrafficNotApplied, match="westeurope only") as refused:
        shadow.start(CHAT, 2.0, Token(1))
    assert refused.value.code == "traffic.copies_forbidden"
    assert rates == [2_000, 0]


@pytest.mark.parametrize("host", ["router.example.com", "10.0.0.1", "[2001:db8::1]", "127.0.0.1.example.com", "0.0.0.0"])
def test_the_collector_sends_copies_to_the_router_beside_it_alone(tmp_path: Path, host: str) -> None:
    with pytest.raises(ValueError, match="is not on this machine"):
        config(tmp_path, router_url=f"http://{host}:80")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "[::1]"])
def test_loopback_is_this_machine(tmp_path: Path, host: str) -> None:
    assert config(tmp_path, router_url=f"http://{host}:80").router_url


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 7_000)), max_size=40), st.integers(0, 1_000))
def test_an_hour_costs_at_most_its_tokens_and_one_copy_more(costs: list[tuple[int, int]], most: int) -> None:
    clock = [0.0]

    async def run() -> dict[int, int]:
        found = Collector(config(Path("/nonexistent"), tokens_per_hour=most), "k", clock=lambda: clock[0])
        hours: dict[int, int] = {}
        for tokens, pause_s in costs:
            clock[0] += pause_s
            status, _ = found.take(CHAT, BODY)
            if found._left(CHAT) > 0:
                assert status in (202, 429)
                found._spend(CHAT, tokens)
                hours[int(clock[0] // 3_600)] = hours.get(int(clock[0] // 3_600), 0) + tokens
            else:
                assert status == 429
        return hours

    biggest = max((tokens for tokens, _ in costs), default=0)
    assert all(spent < most + biggest + 1 for spent in asyncio.run(run()).values())


def test_a_copy_that_waited_past_its_budget_is_not_asked(tmp_path: Path) -> None:
    async def run() -> tuple[int, int]:
        found = Collector(config(tmp_path, tokens_per_hour=10), "k")
        asked = [0]

        async def compare(cell: str, copy: object) -> Pair:
            asked[0] += 1
            found._spend(cell, 10)
            raise asyncio.CancelledError

        found.compare = compare  # type: ignore[method-assign]
        for _ in range(3):
            assert found.take(CHAT, BODY)[0] == 202
        for _ in range(2):
            worker = asyncio.create_task(found.work(CHAT))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)
        return asked[0], found.counts[CHAT].over_budget

    asked, over = asyncio.run(run())
    assert (asked, over) == (1, 2)


@pytest.mark.parametrize(
    ("target", "regions", "why"),
    [
        ("westeurope", (), ""),
        ("northeurope", ("northeurope",), ""),
        ("eastus2", ("northeurope",), "its data may be served from westeurope or northeurope only, its target is in eastus2"),
        ("", (), "the region of its target mi300x is not known"),
    ],
)
def test_copies_go_only_where_a_cells_data_may_be_served(target: str, regions: tuple[str, ...], why: str) -> None:
    pools = [SimpleNamespace(id="mi300x", region=target)] if target else []
    cell = SimpleNamespace(region="westeurope", regions=regions)
    rollout = SimpleNamespace(spec=SimpleNamespace(target="mi300x"))
    fleet, store = SimpleNamespace(pools=pools, cell=lambda c: cell), SimpleNamespace(load=lambda c: rollout)
    assert Traffic._forbids_copies(cast(Any, SimpleNamespace(fleet=fleet, store=store)), CHAT) == why
    nobody = SimpleNamespace(load=lambda c: None)
    assert "nobody knows" in Traffic._forbids_copies(cast(Any, SimpleNamespace(fleet=fleet, store=nobody)), CHAT)
