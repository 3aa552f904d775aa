"""Bench: from a fault to the last new request on the target, in a real lab: HAProxy, engines, load, store and ticker, nothing simulated.

What is emulated is the lab's own: engines without a GPU. Three cells side by side, each with 20 requests a second and a quarter of them
on the target: one gets twice as slow, one fails 5 % of requests, one fails all. Time is read from the router's log.
"""

from __future__ import annotations

import random
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from fleetctl.domain.ids import CellId
from fleetctl.lab.fault_control import lab_fault, lab_load
from tests.lab.e2e import CHAT, SHIPPED, STREAM, SUMMARY, Lab, Policy, make_lab
from tests.lab.lab_tools import until

PER_S, SHARE = 20.0, 25
HOLD_S = 1_800
"""The step bakes for so long that it is looked at as in production, and not every second."""
WARM_UP_S = 10
FAULTS = {
    CHAT: ("latency_x2", "latency", {"factor": 2.0}),
    SUMMARY: ("errors_5pct", "errors", {"ratio": 0.05}),
    STREAM: ("all_fail", "errors", {"ratio": 1.0}),
}
LONGEST_S = 240.0


def faults_real(runs: int) -> dict[str, object]:
    """Measure each fault so many times; one that is not home within four minutes counts as infinite."""
    took: dict[str, list[float]] = {name: [] for name, _, _ in FAULTS.values()}
    policy = Policy(
        steps=(("canary", SHARE, HOLD_S), ("complete", 100, 0)), margins=SHIPPED, warm_up=f"{WARM_UP_S}s", lost="120s", deadline="2h"
    )
    early = 0
    with tempfile.TemporaryDirectory(prefix="fr-") as folder, contextmanager(make_lab)(Path(folder)) as lab:
        lab.fresh(policy, ticker=True)
        lab_load(lab.workspace, trace=None, rates={CellId(c): PER_S for c in FAULTS}, running=True)
        for n in range(runs):
            if n:
                lab.run("retry", *FAULTS)
            for cell, seconds in _round(lab, random.Random(n).uniform(0, 10)).items():
                name = FAULTS[cell][0]
                if seconds is None:
                    early += 1
                else:
                    took[name].append(seconds)
            print(f"round {n + 1}: {took}", flush=True)
    promised = [max(took[name], default=float("inf")) for name in ("latency_x2", "errors_5pct")]
    found: dict[str, object] = {f"{name}_real_s": [round(t, 1) for t in sorted(times)] for name, times in took.items()}
    worst = max(promised)
    return found | {
        "fault_to_zero_real_p98_s": round(worst, 2) if worst < LONGEST_S else None,
        "hard_fault_to_zero_real_max_s": round(max(took["all_fail"]), 2) if took["all_fail"] else None,
        "fault_real_runs": runs,
        "home_before_the_fault_real": early,
    }


def _round(lab: Lab, pause_s: float) -> dict[str, float | None]:
    """Return seconds from the fault to the last new request on the target, by cell; None where it was home before."""
    child = lab.start("migrate", *FAULTS, "--phase", "canary")
    for c in FAULTS:
        lab.wait_phase(c, "canary", 120.0)
    ready = time.monotonic() + pause_s
    until(lambda: time.monotonic() >= ready, "a fault waits for no look", pause_s + 5)
    began: dict[str, float] = {}
    early = [c for c in FAULTS if (r := lab.rollout(c)) is None or r.ended]
    for c, (_, kind, args) in FAULTS.items():
        began[c] = time.time() * 1_000
        lab_fault(lab.workspace, c, kind, "target", **args)
    child.end(None, within_s=LONGEST_S + 60)
    lab.clear()
    found: dict[str, float | None] = {}
    for c in FAULTS:
        r = lab.rollout(c)
        is_home = r is not None and bool(r.ended) and lab.weight(c) == 0
        last = max((row["t0"] for row in lab.requests(c) if row["a"] == "canary"), default=0.0)
        found[c] = None if c in early else (last - began[c]) / 1_000 if is_home else float("inf")
    return found
