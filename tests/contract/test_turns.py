"""Contract of ports.traffic.Router for requests that bring no key: their share is no draw, on HAProxy (with and without Lua) and Envoy.

ALB and the Gateway API draw; that they say so stands in test_router_clouds.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping
from itertools import accumulate

import pytest

from fleetctl.adapters.routers.envoy.turns import STRIDE
from fleetctl.domain.units import FULL_BP
from tests.lab.envoy_lab import EnvoyRig, envoy_rig
from tests.lab.haproxy_lab import CELL, PIN_KEY, Rig, put, rig

STEPS = (100, 1_000, 2_500, 1_000)


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.lab) for name in ("haproxy", "haproxy-single-writer", "envoy-single-writer")],
)
def router(request: pytest.FixtureRequest) -> Iterator[Rig | EnvoyRig]:
    if request.param == "envoy-single-writer":
        with envoy_rig() as envoy:
            yield envoy
    else:
        with rig(lua=request.param == "haproxy") as haproxy:
            haproxy.healthy()
            yield haproxy


def _sides(of: Rig | EnvoyRig, n: int, headers: Mapping[str, str] | None = None) -> list[int]:
    """Send `n` requests without a key, one after another; return for each whether the target got it."""
    port, target, found = of.port if isinstance(of, Rig) else of.config.port, of.backends[CELL]["c1"], []
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    for _ in range(n):
        before = len(target.seen)
        link.request("POST", f"/{CELL}/v1/completions", "{}", {"content-type": "application/json", **(headers or {})})
        answer = link.getresponse()
        assert (answer.status, bool(answer.read())) == (200, True)
        found.append(len(target.seen) - before)
    link.close()
    return found


def _floor(of: Rig | EnvoyRig) -> int:
    return of.router().read(CELL).token


def _most_off(sides: list[int], bp: int) -> float:
    """Return by how many requests the worst run of them differs from its share."""
    so_far = [got - n * bp / FULL_BP for n, got in enumerate(accumulate(sides, initial=0))]
    return max(so_far) - min(so_far)


def test_every_run_of_requests_has_its_share_within_what_is_promised_and_so_over_steps(router: Rig | EnvoyRig) -> None:
    promised = router.router().capabilities().keyless_off
    assert promised is not None
    token, whole, owed = _floor(router) + 1, 0, 0.0
    for bp in STEPS:
        put(router.router(), bp, token=token)
        sides = _sides(router, 400)
        assert _most_off(sides, bp) <= promised, f"at {bp} bp"
        whole, owed = whole + sum(sides), owed + 400 * bp / FULL_BP
    assert abs(whole - owed) <= promised, "and over the steps"


def test_runs_of_whole_turns_are_exact_within_one_where_the_router_knows_the_weight_as_it_counts(router: Rig | EnvoyRig) -> None:
    token, knows = _floor(router) + 1, isinstance(router, Rig)
    for bp, run in ((100, 100), (1_000, 10), (2_500, 20)):
        put(router.router(), bp, token=token)
        sides = _sides(router, 300)
        assert abs(sum(sides) - 300 * bp // FULL_BP) <= (1 if knows else 3)
        wholes = [sum(sides[at : at + run]) for at in range(0, len(sides), run)]
        assert max(abs(n - run * bp // FULL_BP) for n in wholes) <= (1 if knows else 3)


def test_none_and_all_are_none_and_all(router: Rig | EnvoyRig) -> None:
    token = _floor(router) + 1
    for bp, side in ((0, 0), (10_000, 1), (0, 0)):
        put(router.router(), bp, token=token)
        assert set(_sides(router, 50)) == {side}


def test_a_client_whose_every_second_request_is_long_is_split_like_any_other(router: Rig | EnvoyRig) -> None:
    put(router.router(), 1_000, token=_floor(router) + 1)
    sides = _sides(router, 600)
    for period in (2, 5, 10):
        assert sum(sides[::period]) < 0.8 * sum(sides), f"not always the same of {period}"
        assert sum(sides[::period]) > 0, f"nor never the same of {period}"


def test_probes_take_no_turns_and_a_client_chooses_none(router: Rig | EnvoyRig) -> None:
    put(router.router(), 1_000, token=_floor(router) + 1)
    sides = []
    for _ in range(100):
        sides += _sides(router, 1, {"x-fleetctl-turn": "0"})
        assert _sides(router, 2, {"x-fleetctl-pin": f"{PIN_KEY}:baseline"}) == [0, 0]
    assert 8 <= sum(sides) <= 12
    assert not any("x-fleetctl-turn" in headers for server in router.backends[CELL].values() for _, headers, _ in server.seen)


def test_requests_with_a_key_take_no_turns_either(router: Rig | EnvoyRig) -> None:
    put(router.router(), 1_000, token=_floor(router) + 1)
    sides = []
    for n in range(100):
        sides += _sides(router, 1)
        _sides(router, 1, {"x-conversation-id": f"k{n % 3}"})
    assert 8 <= sum(sides) <= 12


def test_the_turns_of_envoy_have_every_number_once() -> None:
    assert sorted(turn * STRIDE % FULL_BP for turn in range(FULL_BP)) == list(range(FULL_BP))
