"""How many cases of each promise are tried, and how many break it: rules alone, no router, no network. Run by `make bench-promises`.

The last line is one JSON object. Exit 1 where a case breaks its promise. Every refusal is the program's own; only the cases are made here.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import datetime, timedelta, timezone
from itertools import combinations, pairwise, product
from pathlib import Path
from typing import get_args
from unittest import mock

from fleetctl.adapters.store.sqlite import SqliteStore
from fleetctl.domain.canonical import canonical, decode, digest
from fleetctl.domain.event import Event, broken_link
from fleetctl.domain.evidence import Arm, JudgeState, SignalState, VerdictKind
from fleetctl.domain.fleet import Fleet, FreezeWindow, Phase
from fleetctl.domain.ids import PlanId
from fleetctl.domain.people import Actor
from fleetctl.domain.plan import Approval
from fleetctl.domain.provision import Drill
from fleetctl.domain.rollout import Ended, Order, Rollout, SetSplit
from fleetctl.domain.units import FULL_BP
from fleetctl.errors import PlanStale, StoreUnavailable
from fleetctl.formats.fleet_file import parse_fleet
from fleetctl.planning.release_gate import release_checks
from fleetctl.ports.state import Lease
from fleetctl.rollout.decide import decide
from fleetctl.rollout.lost import BROKEN_STATES
from fleetctl.usecases import migrate as gate
from fleetctl.usecases.migrate import chosen_cells
from fleetctl.usecases.proof import given, note_author
from fleetctl.usecases.tick import open_window
from tests.cases.planning_fleet import cell, lab_fleet, lab_policy, plan_of, pool, workload
from tests.fakes.clock import FakeClock
from tests.fakes.store import MemoryStore
from tests.rollouts import CELL, PERSON, T0, evidence, rollout, seeing, verdict
from tests.sim.histories import phases
from tests.sim.world import World
from tests.unit.test_fleet_file import SMALL

LATE = T0 + timedelta(minutes=5)
LATER_NUMBERS = ("beside", "sudden", "guardrails", "clusters_of", "quits", "cuts")
"""Parts of the judge's state that older releases do not know."""
WEIGHTED: tuple[Phase, ...] = ("canary", "ramp", "full", "soak")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """Cases tried and those that broke the promise."""

    cases: int
    broken: int


def at(phase: Phase, **changes: object) -> Rollout:
    """Return a rollout settled in a phase, 5 minutes ago."""
    r = rollout()
    step = next(i for i, p in enumerate(r.spec.phases) if p.phase == phase)
    kept = {"step": step, "weight_bp": r.spec.phases[step].weight_bp, "settled_at": T0, "deadline": T0 + timedelta(hours=1)}
    return replace(r, **(kept | changes))  # type: ignore[arg-type]


def release_gate() -> Tried:
    """P6: a source is given back only with soak over, 100 % shown, no answer open there and a green rehearsal under 30 days old."""
    fleet = parse_fleet(SMALL, file="f.yaml")
    cell, pool = fleet.cells[0].id, fleet.cells[0].source
    green = Drill(at=T0, actor=PERSON, ms_to_zero=9.0, ok=True, cell=cell)
    drills = (None, replace(green, ok=False), replace(green, at=T0 - timedelta(days=31)), green)
    cases = broken = 0
    for ended, shown, drill, answers in product(get_args(Ended), (None, 0, 9_500, 9_999, 10_000), drills, (None, 3, 0)):
        r = rollout()
        r = replace(r, cell=cell, ended=ended, spec=replace(r.spec, source=pool))
        checks = release_checks(pool, fleet, {cell: r}, {cell: shown}, {} if drill is None else {cell: drill}, T0, answers={cell: answers})
        cases += 1
        broken += all(c.ok for c in checks) != (ended == "complete" and shown == 10_000 and drill is green and answers == 0)
    return Tried(cases=cases, broken=broken)


def lost_evidence() -> Tried:
    """P7: whatever is wrong with the evidence of either arm, whatever the verdict says: no weight rises without a PASS of whole series."""
    cases = broken = 0
    for phase, base, canary, kind in product(WEIGHTED, get_args(SignalState), get_args(SignalState), get_args(VerdictKind)):
        if kind == "PASS" and not {base, canary} & BROKEN_STATES:
            continue
        r = at(phase)
        states: dict[Arm, SignalState] = {"baseline": base, "canary": canary}
        n = r.weight_bp // 10
        seen = replace(evidence(LATE, baseline=1000 - n, canary=n), state=states, served_bp=r.weight_bp)
        d = decide(r, seeing(LATE, r.weight_bp, (verdict(kind, "errors", LATE), verdict(kind, "latency", LATE)), seen), LATE)
        cases += 1
        broken += d.next.step > r.step or any(e.target_bp > r.weight_bp for e in d.effects if isinstance(e, SetSplit))
    return Tried(cases=cases, broken=broken)


def one_writer(writers: int = 4, times: int = 25) -> Tried:
    """P8: threads race for one cell's lease in a real SQLite file; two never hold it at once, and no token comes twice."""
    held: list[int] = []
    inside, broken, lock, pause = [0], [0], threading.Lock(), threading.Event()

    def race(path: Path, name: str) -> None:
        store, mine = SqliteStore(path), 0
        while mine < times:
            try:
                lease = store.acquire(CELL, name, timedelta(seconds=30))
            except StoreUnavailable:
                continue  # too many at the file at once: nobody got anything
            if not isinstance(lease, Lease):
                pause.wait(0.002)
                continue
            with lock:
                inside[0] += 1
                broken[0] += inside[0] > 1
                held.append(lease.token)
            mine += 1
            with lock:
                inside[0] -= 1
            store.release(lease)
        store.close()

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        SqliteStore(path).close()
        threads = [threading.Thread(target=race, args=(path, f"w{i}")) for i in range(writers)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    return Tried(cases=len(held), broken=broken[0] + len(held) - len(set(held)))


OFFSETS_H = (-11, -5, 0, 2, 5.75, 13)


def window_in(offset_h: float) -> FreezeWindow:
    """Return a window of five days from midnight to midnight where clocks are so many hours ahead of UTC."""
    start = datetime(T0.year, T0.month, T0.day, tzinfo=timezone(timedelta(hours=offset_h))) + timedelta(days=4)
    return FreezeWindow(name="w", start=start, end=start + timedelta(days=5))


def freeze_windows() -> Tried:
    """P10: at every hour of a fortnight around a window, in six zones, it binds what advances, and no way home."""
    cases = broken = 0
    for offset_h, hour in product(OFFSETS_H, range(336)):
        window = window_in(offset_h)
        now = T0 + timedelta(hours=hour)
        r = replace(at("ramp"), settled_at=now - timedelta(minutes=5), deadline=now + timedelta(hours=1))
        seen = replace(evidence(now, baseline=500, canary=500), served_bp=5_000)
        more = {"window": open_window((window,), now)}
        on = decide(r, seeing(now, 5_000, (verdict("PASS", "errors", now), verdict("PASS", "latency", now)), seen, **more), now)
        failed = decide(r, seeing(now, 5_000, (verdict("FAIL", "errors", now),), seen, **more), now)
        ordered = decide(replace(r, orders=(Order(kind="abort", actor=PERSON, at=now),)), seeing(now, 5_000, (), seen, **more), now)
        wall = (now + timedelta(hours=offset_h)).replace(tzinfo=None)  # what a clock on the wall of that zone shows
        frozen = window.start.replace(tzinfo=None) <= wall < window.end.replace(tzinfo=None)
        cases += 3
        broken += (on.next.step > r.step) == frozen
        broken += sum(d.next.direction != "home" for d in (failed, ordered))
    return Tried(cases=cases, broken=broken)


STEPS: tuple[Phase, ...] = ("preflight", *WEIGHTED)


def apart_fleet(wave_cells: int, share: float, group: str) -> Fleet:
    """Return a fleet of eight cells with 8 GPUs each, every two of them one workload's; six target pools of two VMs each."""
    works = tuple(workload(f"w{i}", accelerators_per_replica=8, apart=group and f"{group}{i % 3}") for i in range(4))
    pools = [pool("n", "nvidia", "lab-nvidia", count=8, limit=8)]
    pools += [pool(f"m{i}", "amd", "lab-mi300x", count=0, limit=2, by="x", price="10") for i in range(6)]
    cells = tuple(cell(f"c{i}", f"w{i % 4}", source="n") for i in range(8))
    return lab_fleet(workloads=works, cells=cells, pools=tuple(pools), policy=lab_policy(wave_cells=wave_cells, target_share=share))


def blast_radius() -> Tried:
    """P10: no wave above the policy's cells, no more of the fleet on the target than its share, none beside one it is kept apart from;
    and no wave is begun before all cells of the one before have reached soak.
    """
    cases = broken = 0
    for wave_cells, share, group in product(range(1, 6), (0.0, 0.125, 0.25, 0.5, 1.0), ("", "g")):
        fleet = apart_fleet(wave_cells, share, group)
        plan = plan_of(fleet)
        moves = [o for o in plan.outcomes if o.kind == "move"]
        apart = [(o.target, fleet.workload(o.workload).apart) for o in moves if group]
        cases += 3
        broken += any(not 1 <= len(w.cells) <= wave_cells for w in plan.waves)
        broken += 8 * sum(o.replicas for o in moves) > share * 64
        broken += len(apart) != len(set(apart))
        for before, following in pairwise(plan.waves):
            for phase, late in product(STEPS, before.cells):
                store = MemoryStore(FakeClock().now)
                done = {c for w in plan.waves if w.index < before.index for c in w.cells} | {*before.cells}
                for c in done:
                    store.start(replace(at(phase if c == late else "soak", cell=c), plan=plan.id), ())
                cases += 1
                broken += set(chosen_cells(plan, store, ())) != set(following.cells if phase == "soak" else before.cells)
    return Tried(cases=cases, broken=broken)


def radius_and_windows() -> Tried:
    """P10: waves, share of the fleet and cells kept apart hold, in plans and as waves begin; freeze windows bind what advances alone."""
    found = (blast_radius(), freeze_windows())
    return Tried(cases=sum(t.cases for t in found), broken=sum(t.broken for t in found))


def approved_plan(step: int = 1) -> Tried:
    """P12: the record of a plan in the store with any one byte flipped, approved or by a policy that asks for no approval: none is taken.

    Args:
        step: of how many bytes one is flipped.
    """
    fleet = parse_fleet(SMALL, file="f.yaml")
    plan, store = plan_of(fleet), MemoryStore(FakeClock().now)
    key = ("plan", plan.id)
    store.put(plan.id, plan)
    whole = canonical(plan)
    yes = Approval(plan=plan.id, plan_digest=digest(plan), actor=Actor(kind="person", name="grace"), at=T0)
    cases = broken = 0
    for needed in (0, 1):
        if needed:
            store.put(f"{plan.id}-grace", yes)
        policy = replace(fleet.policy, approvals=needed)
        current = replace(fleet, policy=policy)
        store._values[key] = whole
        with mock.patch.object(gate, "require_current"):  # the fleet has not moved on; only the record has
            broken += gate.approved_plan(store, current, plan.id) != plan
            for i in range(0, len(whole), step):
                store._values[key] = whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :]
                cases += 1
                try:
                    broken += gate.approved_plan(store, current, plan.id) != plan  # a flip in a name that no value has changes no plan
                except (PlanStale, ValueError, TypeError, KeyError, AttributeError):
                    continue
    return Tried(cases=cases, broken=broken)


def audit_chain(events: int = 60) -> Tried:
    """P13: every event edited, every one but the last deleted, every two neighbours exchanged; each is found."""
    store = MemoryStore(FakeClock().now)
    rows = (Event(at=T0, kind="traffic.set", actor=PERSON, text=f"step {i}", cell=CELL, data={"to_bp": i}) for i in range(events))
    store.append(tuple(rows))
    chain = tuple(store.events(CELL, 0))
    made = [(*chain[:i], replace(e, text=e.text + "!"), *chain[i + 1 :]) for i, e in enumerate(chain)]
    made += [(*chain[:i], replace(e, actor=Actor(kind="person", name="eve")), *chain[i + 1 :]) for i, e in enumerate(chain)]
    made += [(*chain[:i], *chain[i + 1 :]) for i in range(len(chain) - 1)]
    made += [(*chain[:i], chain[i + 1], chain[i], *chain[i + 2 :]) for i in range(len(chain) - 1)]
    whole = broken_link(chain) is not None
    return Tried(cases=len(made), broken=whole + sum(broken_link(c) is None for c in made))


def second_person() -> Tried:
    """P14: of every set of people who said yes, under every policy, the author never counts; an order home asks nobody."""
    small = parse_fleet(SMALL, file="f.yaml")
    people = ("author", "ada", "grace", "bob")
    sets = [s for n in range(len(people) + 1) for s in combinations(people, n)]
    cases = broken = 0
    for needed, said in product(range(4), sets):
        store = MemoryStore(FakeClock().now)
        for name in said:
            yes = Approval(plan=PlanId("p1"), plan_digest=digest("plan"), actor=Actor(kind="person", name=name), at=T0)
            store.put(f"p1-{name}", yes)
        fleet = replace(small, policy=replace(small.policy, approvals=needed))
        note_author(PlanId("p1"), digest("plan"), fleet, store, Actor(kind="person", name="author"), T0)
        found = given("p1", digest("plan"), fleet.policy, store, None)
        cases += 1
        broken += (found.missing == 0) != (len({*said} - {"author"}) >= needed)
    for phase, kind in product(WEIGHTED, ("abort", "fallback")):
        r = at(phase, orders=(Order(kind=kind, actor=PERSON, at=LATE),), approvals=())  # type: ignore[arg-type]
        cases += 1
        broken += decide(r, seeing(LATE, r.weight_bp, (), evidence(LATE)), LATE).next.direction != "home"
    return Tried(cases=cases, broken=broken)


def _as_older(value: object) -> object:
    """Return a value as a release wrote it that knew none of the fields that came later."""
    if is_dataclass(value) and not isinstance(value, type):
        kept = {f.name: _as_older(getattr(value, f.name)) for f in fields(value) if f.init and "later" not in f.metadata}
        return type(value)(**kept)
    if isinstance(value, tuple):
        return tuple(_as_older(v) for v in value)
    return {k: _as_older(v) for k, v in value.items()} if isinstance(value, Mapping) else value


def _older_judge(state: JudgeState) -> JudgeState:
    """Return the judge's state without what later releases remember beside it."""
    numbers = {k: v for k, v in json.loads(state.numbers).items() if k not in LATER_NUMBERS}
    return replace(state, numbers=json.dumps(numbers, sort_keys=True, separators=(",", ":")).encode())


def older_release(moments: int = 24) -> Tried:
    """P15: a rollout that an older release left at any moment, without a field that came later, is read and goes on to its end."""
    cases = broken = 0
    for part, is_judge_older in product(range(moments), (False, True)):
        world = World(part, phases("quick", 600.0), cells=1, jumps=True)
        (cell,) = world.cells
        world.begin()
        world.run_until(world.t + 1_100.0 * part / moments)
        left = world.rollout(cell)
        assert isinstance(world.store, MemoryStore)
        assert left is not None
        older = _as_older(left if not is_judge_older else replace(left, judge=_older_judge(left.judge)))
        read = decode(Rollout, canonical(older))
        world.store._rollouts[cell][-1] = read
        world.stir(unseen=True)
        world.run_until(4 * 3_600.0)
        end = world.rollout(cell)
        cases += 1
        broken += read != older or end is None or end.ended != "complete" or world.target.splits[cell].target_bp != FULL_BP
    return Tried(cases=cases, broken=broken)


ROWS: Mapping[str, Callable[[], Tried]] = {
    "P6": release_gate,
    "P7": lost_evidence,
    "P8": one_writer,
    "P10": radius_and_windows,
    "P12": approved_plan,
    "P13": audit_chain,
    "P14": second_person,
    "P15": older_release,
}


def main() -> int:
    """Try every case and print the counts."""
    found = {name: row() for name, row in ROWS.items()}
    for name, tried in found.items():
        what = (ROWS[name].__doc__ or "").partition(": ")[2]
        print(f"{name:<4} {tried.cases:>6,} cases, {tried.broken} broken: {what}")
    print(json.dumps({name: {"cases": t.cases, "broken": t.broken} for name, t in found.items()}))
    return 1 if any(t.broken for t in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
