"""Lab: conversations across a step and the way back, on a real HAProxy and Envoy before two emulated sides with prefix caches."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass

import pytest

from fleetctl.lab.load_client import Pool
from tests.bench.traffic.load import TIMEOUT_S, request
from tests.bench.traffic.world import KINDS, PLAIN, Kind, World, world

pytestmark = pytest.mark.lab
TALKS = 150


@dataclass(slots=True)
class Turn:
    """Who answered one turn, and how many of its prompt tokens that side still had."""

    side: str
    cached: int


async def turns(w: World, pool: Pool, said: dict[str, str]) -> dict[str, Turn]:
    """Let every conversation say one thing more; each must be answered."""
    found = {}
    for key in said:
        said[key] += f"{key} goes on. " + "word " * 40
        outcome = await pool.send(request(PLAIN, key, prompt=said[key]), TIMEOUT_S)
        assert not outcome.error, f"a turn of {key} was lost: {outcome.error}"
        body = json.loads(outcome.body)
        found[key] = Turn(body["server"], body["usage"]["prompt_tokens_details"]["cached_tokens"])
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_conversations_stay_whole_across_a_step_and_across_a_rollback(kind: Kind) -> None:
    async def run() -> None:
        with world(kind) as w:
            pool = Pool(w.port, asyncio.get_running_loop())
            await w.ready(pool, PLAIN)
            said = {f"talk-{n}": "" for n in range(TALKS)}
            await turns(w, pool, said)  # all begin on the source
            seen = []
            for bp in (1_000, 1_000, 2_500, 2_500, 1_000, 0):
                w.put(bp, PLAIN)
                seen.append(await turns(w, pool, said))
            first, again, raised, still, lowered, home = seen
            pool.close()
        early = {k for k in said if first[k].side == "c"}
        late = {k for k in said if raised[k].side == "c"} - early
        assert early
        assert late
        assert all(again[k].side == raised[k].side == still[k].side == lowered[k].side == "c" for k in early), "a step moves only new ones"
        assert all(again[k].cached > 0 and raised[k].cached > 0 and lowered[k].cached > 0 for k in early), "whole on the target throughout"
        assert all(still[k].cached > 0 for k in late), "who was moved is whole there from its second turn on"
        assert all(lowered[k].side == "b" and lowered[k].cached > 0 for k in late), "rolled back: the source still holds what it had"
        assert all(home[k].side == "b" and home[k].cached > 0 for k in said), "home: nobody begins anew, the source still holds them"
        others = set(said) - early - late
        assert all(turn[k].side == "b" and turn[k].cached > 0 for turn in seen for k in others), "nobody else has noticed anything"

    asyncio.run(run())
