"""Simulator: one seed from begin to end; `python -m tests.sim.histories SEED` tells its story."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from fleetctl.domain.fleet import PhaseSpec
from fleetctl.domain.ids import CellId
from fleetctl.domain.rollout import RolloutSpec
from tests.rollouts import GUARDRAILS, spec
from tests.sim.checks import Broken, Checks, Stopped
from tests.sim.faults import Faults
from tests.sim.world import SOURCE, TARGET, World

FAULTS_S = 900.0
QUIET_S = 3_600.0
"""How long all is well at the end, with a person who resumes, promotes and reconciles every ten minutes."""


def phases() -> RolloutSpec:
    """Return preflight, 10 %, 50 %, 95 %, soak, 100 %, with bakes of minutes."""
    bakes = {"canary": 120, "ramp": 120, "full": 180, "soak": 600}
    made = spec()
    steps: tuple[PhaseSpec, ...] = tuple(
        replace(p, bake=timedelta(seconds=bakes.get(p.phase, 0)), guardrails=GUARDRAILS if p.weight_bp else ()) for p in made.phases
    )
    return replace(made, source=SOURCE, target=TARGET, phases=steps, step_deadline=timedelta(minutes=20), warm_up=timedelta(seconds=10))


def history(
    seed: int, *, fenced: bool = True, wanted: str = "", tell: bool = False, kills_holds: bool = False
) -> tuple[list[Broken], Checks, World]:
    """Live through one seed and return what broke; it ends at the first breach of the promise `wanted`.

    Args:
        kills_holds: controllers are also killed in the middle of pinning and giving back the source's minimum.
    """
    world = World(seed, phases(), fenced=fenced)
    world.kills_holds = kills_holds
    checks = Checks(world, fenced=fenced, wanted=wanted)
    faults = Faults(world, FAULTS_S, how_many=world.random.randint(3, 14))
    with suppress(Stopped):
        _live(world, checks, faults)
    if tell:
        _tell(world, faults)
    return checks.broken, checks, world


def _live(world: World, checks: Checks, faults: Faults) -> None:
    world.begin()
    faults.play()
    end = world.t + 260
    world.run_until(end)
    for k in world.controllers:
        k.trap = None
    world.freeze = ()
    while world.t < end + QUIET_S and any(not r.ended for c in world.cells if (r := world.store.load(c)) is not None):
        world.run_until(world.t + 600)
        world.reconcile()
        for c in world.cells:
            _help(world, c, is_bad=c in faults.regressed)
    world.run_until(world.t + 5)
    checks.look()
    checks.at_the_end(faults)


def _help(world: World, c: CellId, *, is_bad: bool) -> None:
    """What a person does who comes by: resume what is paused or held, decide what stays inconclusive, let it go on."""
    r = world.store.load(c)
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
