"""Bench of coming home. Last line of standard output: one JSON object; what was not run in this call is null.

Usage: python -m tests.bench.rollback [--runs N] [--row NAME ...]   (100 runs of each fault and every row by default)

Simulated rows (faults, guard, seeds) run the real tick, judge and rules over a made-up clock, router and customers. Row `fallback` is the
real use case over routers in memory, `fallback_haproxy` the same over real HAProxy processes. Row `faults_real` breaks a real lab, a tenth
as many times. Row `switch` starts a real HAProxy and Envoy under load and runs half as many times.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

from fleetctl.domain.fleet import Connection, PhaseSpec
from fleetctl.domain.home import Returned
from fleetctl.domain.ids import CellId, PoolId, Token
from fleetctl.domain.people import Actor
from fleetctl.domain.rollout import RolloutSpec
from fleetctl.domain.split import Readiness, Split
from fleetctl.ports.home import Mark
from fleetctl.usecases.home import HomePorts, fallback
from tests.bench.ways import way_home
from tests.fakes.clock import FakeClock
from tests.fakes.router import FakeRouter
from tests.fakes.store import MemoryStore
from tests.rollouts import GUARDRAILS
from tests.sim.histories import DAY_S, history, phases
from tests.sim.traffic import Behaviour
from tests.sim.world import SOURCE, World

Row = dict[str, object]
PER_S = 20.0
SHARES = (2_500, 500)
FAULTS = {
    "errors_5pct": Behaviour(failing=0.05),
    "latency_x2": Behaviour(slower=2.0),
    "tail_3pct_x10": Behaviour(tail=0.03),
    "all_fail": Behaviour(failing=1.0),
}
PROMISED = ("errors_5pct", "latency_x2")
LONGEST_S = 1_800.0
"""A fault that is not home by then is told as not found in that time."""
CELLS = 1_000
SEEDS_PER_RUN = 5
FIELDS = (
    "fault_to_zero_p98_s",
    "fault_to_zero_real_p98_s",
    "hard_fault_to_zero_max_s",
    "verdict_to_zero_p100_ms",
    "fallback_1000_seconds",
    "fallback_1000_haproxy_seconds",
    "guard_home_s",
    "guard_home_real_s",
    "seeds_per_second",
    "invariant_violations",
    "stale_accepted",
    "stale_accepted_unfenced",
)
"""Of every call."""


def _held_at(share_bp: int) -> RolloutSpec:
    """Return steps that stay at one share for hours, so that only the fault brings the cell home."""
    made = phases()
    stay = PhaseSpec(phase="canary", weight_bp=share_bp, bake=timedelta(hours=5), guardrails=GUARDRAILS)
    first = tuple(p for p in made.phases if not p.weight_bp)
    last = tuple(p for p in made.phases if p.weight_bp >= 5_000)
    return replace(made, phases=(*first, stay, *last), step_deadline=timedelta(hours=9))


def _at_share(seed: int, share_bp: int) -> tuple[World, CellId]:
    """Return a world whose only cell has stood at a share for five minutes, warm-up long over."""
    world = World(seed, _held_at(share_bp), cells=1, per_s=PER_S)
    world.begin()
    world.run_until(world.t + 330 + world.random.uniform(0, 10))  # a fault waits for no look
    return world, world.cells[0]


def _until_home(world: World, c: CellId, longest: float) -> float | None:
    """Return the seconds until the router sends nothing to the target, None where that took too long."""
    began = world.t
    while world.target.splits[c].target_bp:
        if world.t - began >= longest:
            return None
        world.run_until(world.t + 0.25)
    return next(w.at for w in reversed(world.written) if not w.split.target_bp) - began


def _quantile(values: Sequence[float | None], q: float) -> float | None:
    """Return the smallest value that a share `q` does not exceed; None where that one was never home."""
    ordered = sorted(LONGEST_S * 2 if v is None else v for v in values)
    found = ordered[min(len(ordered) - 1, max(0, -(-round(q * 100) * len(ordered) // 100) - 1))]
    return None if found > LONGEST_S else round(found, 2)


def faults(runs: int) -> Row:
    """From a fault of the target to weight 0, by fault and share."""
    found: Row = {}
    per: dict[tuple[str, int], list[float | None]] = {}
    early = 0
    for share in SHARES:
        for fault, behaviour in FAULTS.items():
            took = per.setdefault((fault, share), [])
            for seed in range(runs):
                world, c = _at_share(seed, share)
                if world.target.splits[c].target_bp != share:
                    early += 1
                    continue
                world.traffic.behaviour[c, "canary"] = behaviour
                took.append(_until_home(world, c, LONGEST_S))
            name = f"{fault}_{share // 100}pct"
            found |= {f"{name}_p50_s": _quantile(took, 0.5), f"{name}_p98_s": _quantile(took, 0.98), f"{name}_max_s": _quantile(took, 1.0)}
            found[f"{name}_never_home"] = took.count(None)
            print(f"{name}: p50 {found[f'{name}_p50_s']} s, p98 {found[f'{name}_p98_s']} s, most {found[f'{name}_max_s']} s", flush=True)
    worst = [_quantile(per[f, SHARES[0]], 0.98) for f in PROMISED]
    found["fault_to_zero_p98_s"] = None if None in worst else max(w for w in worst if w is not None)
    found["hard_fault_to_zero_max_s"] = _quantile(per["all_fail", SHARES[0]], 1.0)
    return found | {"fault_runs": runs, "home_before_the_fault": early}


def guard(runs: int) -> Row:
    """From the last controller's death to weight 0 by the router's guard."""
    took = []
    for seed in range(max(1, runs // 10)):
        world, c = _at_share(seed, SHARES[0])
        for k in world.controllers:
            k.back_at = float("inf")
        took.append(_until_home(world, c, LONGEST_S))
    return {"guard_home_s": _quantile(took, 1.0), "guard_runs": len(took)}


def guard_real_row(runs: int) -> Row:
    """The same beside a real HAProxy, from the lapse of a short lease."""
    from tests.bench.guard_real import guard_real

    return guard_real(runs // 10)


def seeds(runs: int) -> Row:
    """Made-up histories per second of one core, in all and by how many cells move; what broke, and what a router without fencing takes."""
    count = SEEDS_PER_RUN * runs
    busy, lived = Counter[int](), Counter[int]()
    violations = stale = ticks = 0
    days = 0.0
    for seed in range(count):
        began = time.process_time()
        broken, checks, world = history(seed)
        busy[len(world.cells)] += time.process_time() - began  # type: ignore[assignment]
        lived[len(world.cells)] += 1
        violations += len(broken)
        stale += checks.stale_accepted()
        ticks += world.ticks
        days += world.t / DAY_S
    return {
        "seeds": count,
        "seeds_per_second": round(count / sum(busy.values()), 2),
        **{f"seeds_per_second_{n}_cells": round(lived[n] / busy[n], 2) for n in sorted(lived)},
        "days_per_seed": round(days / count, 2),
        "ticks_per_seed": round(ticks / count, 1),
        "invariant_violations": violations,
        "stale_accepted": stale,
        "stale_accepted_unfenced": sum(history(seed, fenced=False)[1].stale_accepted() for seed in range(max(40, count // 5))),
    }


class _Proven:
    def ready(self, pool: PoolId, c: CellId) -> Readiness:
        return Readiness(pool=pool, cell=c, ready=1, total=1, age_s=0.0)


class _Ways:
    """Marks in memory."""

    def __init__(self) -> None:
        self.kept: list[Mark] = []

    def mark(self, c: CellId, token: Token, at: object, actor: Actor) -> None:
        self.kept.append(Mark(cell=c, token=token, at=at, actor=actor))  # type: ignore[arg-type]

    def marks(self) -> tuple[Mark, ...]:
        return tuple(self.kept)


def fallback_row(_: int) -> Row:
    """A thousand cells home by the real use case; routers in memory, which answer at once."""
    cells = [CellId(f"cell-{n}") for n in range(CELLS)]
    router, clock = FakeRouter(dict.fromkeys(cells, SOURCE)), FakeClock()
    for c in cells:
        router.target.splits[c] = Split(cell=c, target_bp=5_000, cap_bp=10_000, token=Token(7), lease_until=clock.now())
    here = Connection(name="r", kind="fake")
    ways = [way_home(c, here, SOURCE, clock.now()) for c in cells]
    store = MemoryStore(clock.now)
    ports = HomePorts(router=lambda _: router, prober=lambda _: _Proven(), ways=_Ways(), clock=clock, store=lambda: store)  # type: ignore[arg-type]
    began = time.monotonic()
    results = fallback(ways, ports, Actor(kind="person", name="bench"))
    took = time.monotonic() - began
    home = sum(isinstance(r, Returned) and not router.target.splits[r.cell].target_bp for r in results)
    return {"fallback_1000_seconds": round(took, 3), "fallback_1000_home": home, "fallback_1000_routers": "in memory"}


def switch(runs: int) -> Row:
    """From the order to the start of the last new request on the target, under load, on a real HAProxy and Envoy."""
    from tests.bench.traffic.rows import switch as measured

    found = measured(max(1, runs // 2))
    most = max(float(str(v)) for key, v in found.items() if key.endswith("_p100_ms") and not key.endswith("_command_p100_ms"))
    return found | {"verdict_to_zero_p100_ms": most}


def faults_real_row(runs: int) -> Row:
    """The same faults in a real lab."""
    from tests.bench.faults_real import faults_real

    return faults_real(max(1, runs // 10))


def fallback_haproxy_row(_: int) -> Row:
    """A thousand cells home on real HAProxy processes."""
    from tests.bench.home_real import fallback_haproxy

    return fallback_haproxy()


ROWS: dict[str, Callable[[int], Row]] = {
    "faults": faults,
    "guard": guard,
    "guard_real": guard_real_row,
    "seeds": seeds,
    "fallback": fallback_row,
    "fallback_haproxy": fallback_haproxy_row,
    "switch": switch,
    "faults_real": faults_real_row,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100, help="of each fault, 100 by default; other rows take their part of it")
    parser.add_argument("--row", action="append", choices=list(ROWS), help="only this row; may be given again")
    args = parser.parse_args(argv)
    if args.runs < 1:
        parser.error("--runs needs at least 1")
    began, busy = time.monotonic(), time.process_time()
    found: Row = dict.fromkeys(FIELDS) | {"runs": args.runs, "rows": args.row or list(ROWS)}
    for name in args.row or ROWS:
        found |= ROWS[name](args.runs)
    found |= {"seconds": round(time.monotonic() - began, 1), "cpu_seconds": round(time.process_time() - busy, 1), "cores": os.cpu_count()}
    print(json.dumps(found | {"load_average_5_min": round(os.getloadavg()[1], 1)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
