"""Simulator: one seed from begin to end; `python -m tests.sim.histories SEED` tells its story."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import accumulate
from random import Random

from fleetctl.domain.fleet import PhaseSpec
from fleetctl.domain.ids import CellId
from fleetctl.domain.rollout import RolloutSpec
from fleetctl.domain.units import FULL_BP
from tests.fakes.clock import FakeClock
from tests.rollouts import GUARDRAILS, spec
from tests.sim.checks import Broken, Checks, Stopped
from tests.sim.faults import Faults
from tests.sim.machines import Machines
from tests.sim.stores import in_a_file, in_memory
from tests.sim.world import SOURCE, TARGET, World

DAY_S = 86_400.0
QUIET_S = 14 * DAY_S
"""How long all is well at the end at most, with a person who comes by, resumes, promotes and reconciles."""
WEIGHTED = ("canary", "ramp", "full", "soak")
BAKES = {"quick": (120.0, 120.0, 180.0), "slow": (1_800.0, 7_200.0, 21_600.0)}
"""Seconds of canary, ramp and full. Soak takes one to three days."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What sort of history a seed is: how many cells move side by side, and how long steps bake."""

    cells: int
    bakes: str
    soak_s: float
    in_a_file: bool = False
    cap_bp: int = FULL_BP

    def __str__(self) -> str:
        where = "file" if self.in_a_file else "memory"
        capped = "" if self.cap_bp == FULL_BP else f", at most {self.cap_bp / 100:g} %"
        return f"{self.cells} cell(s), {self.bakes} steps, soak of {self.soak_s / DAY_S:.1f} days{capped}, store in {where}"


def kind_of(seed: int) -> Kind:
    """Return the sort of a seed."""
    chance = Random(f"kind {seed}")
    return Kind(
        cells=chance.choices((1, 2, 3), (0.8, 0.1, 0.1))[0],
        bakes=chance.choice(tuple(BAKES)),
        soak_s=chance.uniform(1, 3) * DAY_S,
        cap_bp=chance.choice((FULL_BP, FULL_BP, FULL_BP, 6_000)),
    )


def phases(bakes: str = "quick", soak_s: float = 600.0, cap_bp: int = FULL_BP) -> RolloutSpec:
    """Return preflight, 10 %, 50 %, 95 %, soak, 100 %, with bakes of minutes or hours; no step is above the cap."""
    times = dict(zip(WEIGHTED, (*BAKES[bakes], soak_s), strict=True))
    made = spec()
    steps: tuple[PhaseSpec, ...] = tuple(
        replace(
            p,
            weight_bp=min(p.weight_bp, cap_bp),
            bake=timedelta(seconds=times.get(p.phase, 0)),
            guardrails=GUARDRAILS if p.weight_bp else (),
        )
        for p in made.phases
    )
    deadline = timedelta(minutes=20) if bakes == "quick" else timedelta(hours=4)
    return replace(made, source=SOURCE, target=TARGET, phases=steps, cap_bp=cap_bp, step_deadline=deadline, warm_up=timedelta(seconds=10))


def steps_of(made: RolloutSpec) -> tuple[float, ...]:
    """Return the seconds from the beginning at which steps change if nothing is in their way."""
    at = 32.0 + made.warm_up.total_seconds()
    return tuple(accumulate((p.bake.total_seconds() + 1 for p in made.phases if p.weight_bp), initial=at))


def history(
    seed: int,
    *,
    fenced: bool = True,
    wanted: str = "",
    tell: bool = False,
    kills_holds: bool = False,
    jumps: bool = True,
    kind: Kind | None = None,
    clock_jumps: int = 0,
    makes: bool = False,
) -> tuple[list[Broken], Checks, World]:
    """Live through one seed and return what broke; it ends at the first breach of the promise `wanted`.

    Args:
        kills_holds: controllers are also killed in the middle of pinning and giving back the source's minimum.
        jumps: False makes every look, also those of calm stretches.
        clock_jumps: how often a controller's own clock is wrong for a while.
        makes: the target's machines are made and configured first, while the cells wait for them.
    """
    kind = kind or kind_of(seed)
    clock, made = FakeClock(), phases(kind.bakes, kind.soak_s, kind.cap_bp)
    with (in_a_file if kind.in_a_file else in_memory)(clock.now) as store:
        world = World(seed, made, kind.cells, fenced=fenced, jumps=jumps, clock=clock, store=store)
        world.kills_holds = kills_holds
        checks = Checks(world, fenced=fenced, wanted=wanted)
        steps = steps_of(made)
        faults = Faults(world, steps[-1], world.random.randint(2, 4) + 2 * kind.cells, steps)
        faults.add_others(seed)
        faults.add_clock_jumps(clock_jumps)
        with suppress(Stopped):
            _live(world, checks, faults, Machines(world, seed) if makes else None)
        if tell:
            print(f"seed {seed}: {kind}")
            _tell(world, faults)
    return checks.broken, checks, world


def _live(world: World, checks: Checks, faults: Faults, machines: Machines | None) -> None:
    world.begin()
    if machines is not None:
        machines.prepare()
        checks.wrong = machines.wrong
    faults.play()
    end = world.t + 260
    world.run_until(end)
    for k in world.controllers:
        k.trap = None
    world.freeze = ()
    rounds = 0
    while world.t < end + QUIET_S and any(not r.ended for c in world.cells if (r := world.rollout(c)) is not None):
        rounds += 1
        world.run_until(world.t + 600 if rounds <= 3 else world.t + DAY_S / 4)
        world.reconcile()
        for c in world.cells:
            _help(world, c, is_bad=c in faults.regressed)
    world.run_until(world.t + 15)
    checks.look()
    checks.at_the_end(faults)


def _help(world: World, c: CellId, *, is_bad: bool) -> None:
    """What a person does who comes by: resume what is paused or held, decide what stays inconclusive, let it go on."""
    r = world.rollout(c)
    if r is None or r.ended:
        return
    if r.paused or r.hold_reason in ("foreign_write", "stale"):
        world.order(c, "resume")
    if r.hold_reason == "step.inconclusive":
        world.order(c, "abort" if is_bad else "promote")
    if r.step_done and r.until != "complete":
        world.order(c, "advance")


def _tell(world: World, faults: Faults) -> None:
    for h in faults.plan:
        print(f"{h.at:8.1f}  {h.text}")
    for w in world.written:
        print(f"{w.at:8.1f}  {w.cell} {w.was_bp:>5} -> {w.split.target_bp:>5} by {w.by} token {w.split.token}")
    for c in world.cells:
        for e in world.store.events(c, 0):
            print(f"{(e.at - world.began).total_seconds():8.1f}  {c} {e.kind}: {e.text}")


if __name__ == "__main__":
    for broken in history(int(sys.argv[1]), tell=True)[0]:
        print(f"BROKEN {broken.promise}: {broken.text}")
