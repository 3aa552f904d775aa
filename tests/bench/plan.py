"""Bench: planning generated fleets: time of solving, checking and writing, proven gap, memory; Mélange's instances; churn under noise.

Usage: python -m tests.bench.plan [WORKLOADS ...]   (1000 10000 100000 by default). Last line: one JSON object.
Each fleet is planned in a process of its own, so that peak memory is its own. Mélange's inputs and optima lie in tests/bench/data.
"""

from __future__ import annotations

import csv
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
SIZES = (1_000, 10_000, 100_000)
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
NOISE = 0.03
WEEKS = 6
SEEDS = (5, 6, 7)
SETTLE = 6
MOVES = 0.02
"""Of the cells in a week, as `fleetctl rebalance` limits them where nobody says otherwise."""
HORIZON_H, BOTH_SIDES_H = 2160.0, 173.0
"""The policy's 90 days; hours with both sides up of the generated fleets' steps (168 h of soak, 5 h before it)."""


def plan_one(workloads: int) -> dict[str, Any]:
    """Write a generated fleet as JSON Lines, read it, plan it, and write the plan."""
    from fleetctl.analysis.power import planned_requests
    from fleetctl.assess import declared, memory_fit
    from fleetctl.catalog import load_catalog
    from fleetctl.domain.canonical import canonical
    from fleetctl.formats.fleet_file import read_fleet
    from fleetctl.planning.make_plan import make_plan
    from fleetctl.planning.options import PlanOptions
    from tests.cases.generated_fleet import Shape, generated_fleet

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fleet.jsonl"
        _write(generated_fleet(Shape(workloads=workloads)), path)
        begin = time.perf_counter()
        fleet = read_fleet(path)
        read = time.perf_counter() - begin
        begin, cpu = time.perf_counter(), time.process_time()
        plan = make_plan(
            fleet,
            load_catalog(),
            [declared(w, NOW) for w in fleet.workloads],
            (),
            NOW,
            fleet_digest=_sha(path),
            fit_of=memory_fit,
            requests_for=planned_requests,
            options=PlanOptions(both_vendors=True),
        )
        (Path(folder) / "plan.json").write_bytes(canonical(plan))
        seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    later = plan.certificate.later if plan.certificate is not None else ()
    return {
        "workloads": workloads,
        "pools": len(fleet.pools),
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu, 2),
        "read_seconds": round(read, 2),
        "gap_pct": plan.gap_pct,
        "stages": 1 + len(later),
        "later_gap_pct": max((c.gap_pct for c in later), default=0.0),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "checker_ok": all(c.ok for c in plan.checks if c.name in {"places", "whole VMs", "limits", "cash", "order", "proof"}),
        "moves": sum(o.kind == "move" for o in plan.outcomes),
    }


def _write(fleet: Any, path: Path) -> None:
    from tests.cases.fleet_lines import fleet_lines

    path.write_text("".join(line + "\n" for line in fleet_lines(fleet)), "utf-8")


def _sha(path: Path) -> Any:
    import hashlib

    return hashlib.sha256(path.read_bytes()).hexdigest()


def melange() -> dict[str, int]:
    """Solve every reference instance; count those dearer than slice 4 and those equal to the free split, and slower ones."""
    import numpy as np

    from fleetctl.planning.buckets import cheapest_mix

    given = json.loads((DATA / "melange_reference_inputs.json").read_text("utf-8"))
    rate = np.array([np.ravel(given["max_requests_per_s"][gpu]) for gpu in ("A40", "A100")])
    counts = {"melange_instances": 0, "melange_dearer": 0, "melange_equal_free_split": 0, "melange_slower": 0}
    with (DATA / "melange_reference_optima.csv").open(encoding="utf-8") as rows:
        for row in csv.DictReader(rows):
            demand = np.ravel(given["distributions"][row["mix"]]) * float(row["requests_per_s"])
            price = np.array([float(row["usd_h_a40"]), float(row["usd_h_a100"])])
            begin = time.perf_counter()
            mix = cheapest_mix(demand, rate, price)
            seconds = time.perf_counter() - begin
            counts["melange_instances"] += 1
            counts["melange_dearer"] += mix.cost > float(row["slice4_cost"]) + 1e-6
            counts["melange_equal_free_split"] += abs(mix.cost - float(row["cont_cost"])) < 1e-6
            counts["melange_slower"] += seconds > float(row["slice4_seconds"])
    return counts


def churn(workloads: int = 1_000) -> dict[str, float]:
    """Plan again for six weeks of 3 % price noise, as `fleetctl rebalance` does: moves a week, and what holding still costs.

    The fleet first settles: it is planned again at the same prices until nothing moves, so that what noise moves is counted alone. The
    cost is that of the weeks' bills against moving freely every week, at no cost and without a limit.
    """
    import numpy as np

    from fleetctl.planning.program import cost_of, vms_of
    from fleetctl.planning.solve import solve

    p = _program(workloads)
    settled, moved = solve(p).pool, 100.0
    for _ in range(SETTLE):
        new = _held_week(p, settled, p.price)
        moved, settled = float((new != settled).mean() * 100), new
        if not moved:
            break
    weekly, held, loose = [], 0.0, 0.0
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        pool = free = settled
        for _ in range(WEEKS):
            price = p.price * (1 + NOISE * rng.standard_normal(p.pools))
            new = _held_week(p, pool, price)
            weekly.append(float((new != pool).mean() * 100))
            pool = new
            bill = _week(p, pool, price, move=False)
            held += cost_of(bill, pool, vms_of(bill, pool)[0])
            answer = solve(_week(p, free, price, move=False))
            free = answer.pool
            loose += answer.cost
    return {
        "churn_pct": round(float(np.mean(weekly)), 2),
        "churn_cost_pct": round((held - loose) / loose * 100, 3),
        "churn_worst_week_pct": round(max(weekly), 2),
        "churn_settled_pct": round(moved, 2),
    }


def _week(p: Any, pool: Any, price: Any, *, move: bool) -> Any:
    """Return the program of a week: what stands is what was placed, and capacity that was left is given back."""
    import numpy as np

    from fleetctl.planning.program import vms_of

    then, _ = vms_of(p, pool)
    cost = p.load / p.size * price * BOTH_SIDES_H / HORIZON_H * move
    cost[np.arange(p.cells), pool] = 0.0
    return replace(p, price=price, start=pool, move=cost, count=then, most=np.maximum(p.most, then), idle=np.zeros(p.pools))


def _held_week(p: Any, pool: Any, price: Any) -> Any:
    """Return where a week's run leaves the cells: a plan without a limit, and where that moves too many, the best of its moves."""

    from fleetctl.planning.solve import solve

    week = _week(p, pool, price, move=True)
    new = solve(week).pool
    most = max(1, round(MOVES * p.cells))
    if int((new != pool).sum()) <= most:
        return new
    allowed = week.allowed.copy()
    stay = new == pool
    allowed[stay] = False
    allowed[stay, pool[stay]] = True
    return solve(replace(week, allowed=allowed, most_moves=float(most))).pool


def _program(workloads: int) -> Any:
    from fleetctl.planning import solve as solver
    from fleetctl.planning.program import Program

    caught: list[Program] = []
    kept = solver.solve

    def catch(p: Program, effort: object = None) -> object:
        caught.append(p)
        return kept(p)

    solver.solve = catch  # type: ignore[assignment]
    try:
        plan_one(workloads)
    finally:
        solver.solve = kept
    return caught[0]


def _rows(sizes: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    for size in sizes:
        argv = [sys.executable, "-m", "tests.bench.plan", "--one", str(size)]
        done = subprocess.run(argv, stdout=subprocess.PIPE, check=True, text=True)
        row = json.loads(done.stdout.splitlines()[-1])
        print(json.dumps(row), flush=True)
        yield row


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(plan_one(int(sys.argv[2]))))
        return
    sizes = tuple(int(a) for a in sys.argv[1:]) or SIZES
    rows = list(_rows(sizes))
    out: dict[str, Any] = {"rows": rows, **melange(), **churn(), "growth_exponent": None}
    if len(rows) > 1:
        a, b = rows[0], rows[-1]
        scale = math.log(b["workloads"] * math.log(b["workloads"]) / (a["workloads"] * math.log(a["workloads"])))
        out["growth_exponent"] = round(math.log(b["seconds"] / a["seconds"]) / scale, 3)
        print(f"time grows as (n log n)^{out['growth_exponent']}")
    print(json.dumps(out))


if __name__ == "__main__":
    main()
