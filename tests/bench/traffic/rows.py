"""Bench: one function per row of figures; each runs its own router and sides, and returns fields of the final JSON object."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

from fleetctl.adapters.routers.evidence import RouterLogEvidence
from fleetctl.adapters.routers.served import count_served, last_new_request_ms
from fleetctl.analysis import caches
from fleetctl.domain.evidence import cached_shares
from fleetctl.domain.ids import CellId, Token
from fleetctl.domain.split import Drained
from fleetctl.lab.load_client import Pool
from tests.bench.traffic.load import TIMEOUT_S, middle, problem, request
from tests.bench.traffic.world import CELLS, KINDS, LONG, LOOSE, PLAIN, STREAM, Kind, Load, Side, World, now, until_async, who, world
from tests.lab.haproxy_lab import TARGET
from tests.lab.work_kills import kills

Row = dict[str, object]
PLAIN_PER_S, STREAMS_PER_S = 300.0, 200.0
QUIET_S = 0.7
"""Longer than any request of the load: what began before has been logged by then."""
STREAMS, LONG_TOKENS = 40, 40
CAPS_BP = (100, 500, 1_000, 2_500, 5_000)
STEPS_BP = (1_000, 2_500, 5_000, 2_500, 1_000)
KEYS = 1_000
CONVERSATIONS, TURNS = 600, 6
LATE_MS = 1_000.0


def say(text: str) -> None:
    """Tell how far it is."""
    print(text, flush=True)


async def _with(kind: Kind, cells: tuple[CellId, ...], run: Callable[[World, Pool], Awaitable[Row]], collector_port: int = 0) -> Row:
    with world(kind, collector_port) as w:
        pool = Pool(w.port, asyncio.get_running_loop())
        await w.ready(pool, *cells)
        try:
            return await run(w, pool)
        finally:
            pool.close()


def switch(runs: int) -> Row:
    """From the command to the start of the last new request on the target, under load."""
    found: Row = {}
    for kind in KINDS:
        found |= asyncio.run(_with(kind, CELLS, lambda w, pool: _switch(w, pool, runs)))
    errors = [int(str(found[f"{kind}_client_errors"])) for kind in KINDS]
    return found | {"client_errors": sum(errors)}


async def _switch(w: World, pool: Pool, runs: int) -> Row:
    load = Load(w.port, PLAIN_PER_S, STREAMS_PER_S)
    lags, took = [], []
    try:
        for _ in range(runs):
            began = now()
            await asyncio.to_thread(w.put, 5_000, PLAIN, STREAM)
            for cell in (PLAIN, STREAM):
                await until_async(lambda cell=cell, began=began: _served(w, cell, began, 20), f"load on the target of {cell}")
            lag, command = await _home(w)
            lags.append(lag)
            took.append(command)
        whole = await _streams(w, pool)
        load_said = await asyncio.to_thread(load.end)
    finally:
        load.kill()
    errors = load_said.pop("errors")
    assert isinstance(errors, dict)
    say(f"{w.kind}: {len(lags)} runs, order to last new request: median {middle(lags):.0f} ms, most {max(lags):.0f} ms")
    say(f"{w.kind}: load {load_said}, errors {errors}")
    return {
        f"{w.kind}_p50_ms": round(middle(lags), 1),
        f"{w.kind}_p100_ms": round(max(lags), 1),
        f"{w.kind}_command_p100_ms": round(max(took), 1),
        f"{w.kind}_runs": len(lags),
        f"{w.kind}_streams_whole": whole,
        f"{w.kind}_client_errors": sum(errors.values()),
        f"{w.kind}_load": load_said,
    }


async def _served(w: World, cell: CellId, since: datetime, least: int) -> bool:
    return (await asyncio.to_thread(count_served, w.log_folder, cell, since)).canary >= least


async def _home(w: World) -> tuple[float, float]:
    """Take both cells home; return the milliseconds to the start of the last new request on the target, and of the command itself."""
    ordered = now()
    await asyncio.to_thread(w.put, 0, PLAIN, STREAM)
    took = (now() - ordered).total_seconds() * 1_000
    while True:
        await asyncio.sleep(QUIET_S)
        lag = max([await asyncio.to_thread(last_new_request_ms, w.log_folder, cell, ordered) for cell in (PLAIN, STREAM)])
        if lag < (now() - ordered).total_seconds() * 1_000 - QUIET_S:
            return lag, took


async def _streams(w: World, pool: Pool) -> int:
    """Return how many of 40 streams that are open on the target end whole there when it is sent nothing any more."""
    await asyncio.to_thread(w.put, 10_000, LONG)
    tasks = [asyncio.create_task(pool.send(request(LONG, f"l{n}", tokens=LONG_TOKENS), TIMEOUT_S)) for n in range(STREAMS)]

    async def all_open() -> bool:
        return await asyncio.to_thread(w.router.drain, LONG, TARGET, Token(1)) == Drained(open_streams=STREAMS)

    await until_async(all_open, "all streams are open on the target")
    await asyncio.to_thread(w.put, 0, LONG)
    ended = await asyncio.gather(*tasks)
    return sum(not problem(o, is_stream=True) and who(o) == "c" and o.body.count(b"data: ") == LONG_TOKENS + 1 for o in ended)


def cap(runs: int) -> Row:
    """How far the target's share rises over what it had when the source is killed, at 1, 5, 10, 25 and 50 %."""
    found = [asyncio.run(_with(kind, (PLAIN,), lambda w, pool: _cap(w, pool, runs))) for kind in KINDS]
    return {key: value for row in found for key, value in row.items()} | {
        "cap_excess_points": max(float(str(row[f"{kind}_cap_excess_points"])) for kind, row in zip(KINDS, found, strict=True))
    }


async def _cap(w: World, pool: Pool, runs: int) -> Row:
    excess = []
    for run in range(runs):
        bp = CAPS_BP[run % len(CAPS_BP)]
        await w.ready(pool, PLAIN)
        w.put(bp, PLAIN, cap=bp)
        keys = [f"{run}-{n}" for n in range(KEYS)]
        before = await w.answered(pool, PLAIN, keys)
        w.source.kill()
        after = await w.answered(pool, PLAIN, keys)
        await asyncio.to_thread(w.source.start)
        shares = [sum(side == "c" for side in found.values()) / KEYS for found in (before, after)]
        excess.append(max(0.0, 100 * (shares[1] - shares[0])))
    say(f"{w.kind}: source killed {runs} times, most over the cap {max(excess):.2f} points")
    return {f"{w.kind}_cap_excess_points": round(max(excess), 2), f"{w.kind}_cap_runs": runs}


def buckets(runs: int) -> Row:
    """Conversations that go the wrong way on 10 -> 25 -> 50 -> 25 -> 10 %."""
    wrong = [asyncio.run(_with(kind, (PLAIN,), lambda w, pool: _buckets(w, pool, runs))) for kind in KINDS]
    return {key: value for row in wrong for key, value in row.items()} | {
        "bucket_moves_wrong": sum(int(str(row[f"{kind}_bucket_moves_wrong"])) for kind, row in zip(KINDS, wrong, strict=True))
    }


async def _buckets(w: World, pool: Pool, runs: int) -> Row:
    wrong, served = 0, []
    for run in range(runs):
        keys = [f"m{run}-{n}" for n in range(KEYS // 5)]
        before: dict[str, str] = {}
        standing = 0
        for bp in STEPS_BP:
            w.put(bp, PLAIN)
            sides = await w.answered(pool, PLAIN, keys)
            leaving = "c" if bp > standing else "b"  # a raise brings nobody home, and the other way round
            wrong += sum(before.get(key) == leaving and side != leaving for key, side in sides.items()) + sum(not s for s in sides.values())
            before, standing = sides, bp
            if bp == 1_000:
                served.append(sum(side == "c" for side in sides.values()) / len(keys))
    share = sum(served) / len(served)
    say(f"{w.kind}: {wrong} moves the wrong way in {runs} runs; 10 % asked, {share:.1%} served")
    return {f"{w.kind}_bucket_moves_wrong": wrong, f"{w.kind}_served_at_10_percent": round(100 * share, 2)}


def batch(runs: int) -> Row:
    """Jobs lost or done twice while consumers are killed at random; the queue in SQLite."""
    lost = double = late = jobs = 0
    for seed in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            found = kills(Path(folder), jobs=200, rounds=6, seed=seed)
        lost, double, late, jobs = lost + found.lost, double + found.double, late + found.late, jobs + found.jobs
    say(f"batch: {jobs} jobs in {runs} runs: {lost} lost, {double} twice, {late} begun on the target after the way home")
    return {"batch_lost": lost, "batch_double": double, "batch_late": late, "batch_jobs": jobs}


def tee(runs: int) -> Row:
    """Clients' median with the tee copying all it can to a mirror that answers 1 s late, over their median without."""
    found: Row = {}
    for kind in KINDS:
        mirror = Side("m", plain_ms=LATE_MS)
        mirror.start()
        try:
            found |= asyncio.run(_with(kind, (PLAIN,), lambda w, pool: _tee(w, pool, runs), mirror.port))
        finally:
            mirror.kill()
    return found | {"tee_p50_ratio": max(float(str(found[f"{kind}_tee_p50_ratio"])) for kind in KINDS)}


async def _tee(w: World, pool: Pool, runs: int) -> Row:
    """Take turns, on and off, so that a busy moment of the machine meets both."""
    took: dict[bool, list[float]] = {True: [], False: []}
    for run in range(runs * 2):
        is_on = run % 2 == 0
        await asyncio.to_thread(w.shadow, PLAIN, is_on)
        outcomes = await asyncio.gather(*(_after(pool, n * 0.005, request(PLAIN, f"t{n}")) for n in range(50)))
        good = [o.whole_s for o in outcomes if not o.error]
        assert len(good) == len(outcomes), {o.error for o in outcomes}
        took[is_on] += good
    ratio = middle(took[True]) / middle(took[False])
    say(f"{w.kind}: client p50 {middle(took[True]) * 1e3:.2f} ms with the tee, {middle(took[False]) * 1e3:.2f} ms without: {ratio:.3f}")
    return {f"{w.kind}_tee_p50_ratio": round(ratio, 3)}


async def _after(pool: Pool, wait_s: float, data: bytes):  # type: ignore[no-untyped-def]
    await asyncio.sleep(wait_s)
    return await pool.send(data, TIMEOUT_S)


def locality(_: int) -> Row:
    """The gap of cached prompt tokens between the sides on 600 conversations of six turns at 10 %, by bucket and by chance."""
    found: Row = {}
    for name, cell in (("locality_gap_points", PLAIN), ("random_split_gap_points", LOOSE)):
        gap = asyncio.run(_with("haproxy", (cell,), lambda w, pool, cell=cell: _locality(w, pool, cell)))  # type: ignore[misc]
        say(f"{name}: {gap}")
        found[name] = gap["gap"]
    return found


async def _locality(w: World, pool: Pool, cell: CellId) -> Row:
    w.put(1_000, cell)
    source = RouterLogEvidence(w.log_folder, now=lambda: datetime.now(UTC), streaming=frozenset(), slo_latency_ms={}, cells=(cell,))
    cursor = source.mark(cell)
    dice = random.Random(8)
    talks = {f"talk-{n}": "" for n in range(CONVERSATIONS)}

    async def some(keys: list[str]) -> None:
        for key in keys:
            talks[key] += f"{key} says " + " ".join(str(dice.randrange(10_000)) for _ in range(80))
            outcome = await pool.send(request(cell, key, prompt=talks[key], named=cell != LOOSE), TIMEOUT_S)
            assert not outcome.error, outcome.error

    for _ in range(TURNS):
        keys = list(talks)
        dice.shuffle(keys)
        await asyncio.gather(*(some(keys[n::16]) for n in range(16)))
    seen = source.read(cell, cursor)
    gap = caches.gap(cached_shares(seen.arms))
    assert gap is not None, "the log tells no cached tokens"
    shares: Row = {arm: round(100 * c.cached_tokens / c.prompt_tokens, 1) for arm, c in seen.arms.items()}
    return {"gap": round(100 * gap, 1), **shares, "requests": sum(c.attempts for c in seen.arms.values())}


ROWS: dict[str, Callable[[int], Row]] = {
    "switch": switch,
    "cap": cap,
    "buckets": buckets,
    "batch": batch,
    "tee": tee,
    "locality": locality,
}
