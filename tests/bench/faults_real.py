"""Bench: from a fault to the last new request on the target, in a real lab: HAProxy, engines, load, store and ticker, nothing simulated.

What is emulated is the lab's own: engines without a GPU. Three cells side by side, each with 20 requests a second and a quarter of them
on the target: one gets twice as slow, one fails 5 % of requests, one fails all. Time is read from the router's log.
"""

from __future__ import annotations

import random
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fleetctl.domain.evidence import LADDER_METRICS
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
BREAKS = {"latency": {*LADDER_METRICS, "slo"}, "errors": {"errors", "breaker", "slo"}}
"""Guardrails that a kind of fault breaks; a FAIL of any other was not made by it."""
LONGEST_S = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Came:
    """How one cell came home: seconds from the fault to the last new request on the target, infinite where it did not.

    Args:
        why: why it is no time of this fault, "" where it is one; by: the guardrail that failed; canary: requests on the target since.
    """

    seconds: float = float("inf")
    why: str = ""
    by: str = ""
    canary: int = 0


def faults_real(runs: int) -> dict[str, object]:
    """Measure each fault so many times; one that is not home within four minutes counts as infinite."""
    took: dict[str, list[float]] = {name: [] for name, _, _ in FAULTS.values()}
    policy = Policy(
        steps=(("canary", SHARE, HOLD_S), ("complete", 100, 0)), margins=SHIPPED, warm_up=f"{WARM_UP_S}s", lost="120s", deadline="2h"
    )
    other: list[str] = []
    with tempfile.TemporaryDirectory(prefix="fr-") as folder, contextmanager(make_lab)(Path(folder)) as lab:
        lab.fresh(policy, ticker=True)
        lab_load(lab.workspace, trace=None, rates={CellId(c): PER_S for c in FAULTS}, running=True)
        for n in range(runs):
            if n:
                lab.run("retry", *FAULTS)
            came = _round(lab, random.Random(n).uniform(0, 10))
            for cell, c in came.items():
                if c.why:
                    other.append(f"{FAULTS[cell][0]}: {c.why}")
                else:
                    took[FAULTS[cell][0]].append(c.seconds)
            print(f"round {n + 1}: {came}", flush=True)
    promised = [max(took[name], default=float("inf")) for name in ("latency_x2", "errors_5pct")]
    found: dict[str, object] = {f"{name}_real_s": [round(t, 1) for t in sorted(times)] for name, times in took.items()}
    worst = max(promised)
    return found | {
        "fault_to_zero_real_p98_s": round(worst, 2) if worst < LONGEST_S else None,
        "hard_fault_to_zero_real_max_s": round(max(took["all_fail"]), 2) if took["all_fail"] else None,
        "fault_real_runs": runs,
        "home_for_another_reason_real": other,
    }


def _round(lab: Lab, pause_s: float) -> dict[str, Came]:
    """Break each cell once and return how it came home."""
    child = lab.start("migrate", *FAULTS, "--phase", "canary")
    for c in FAULTS:
        lab.wait_phase(c, "canary", 120.0)
    ready = time.monotonic() + pause_s
    until(lambda: time.monotonic() >= ready, "a fault waits for no look", pause_s + 5)
    began: dict[str, float] = {}
    early: dict[str, str] = {}
    for c, (_, kind, args) in FAULTS.items():
        r = lab.rollout(c)
        if r is None or r.ended or r.direction == "home" or lab.weight(c) == 0:
            early[c] = "going home before the fault" if r is None or r.latched is None else f"{r.latched.guardrail} FAIL before the fault"
        began[c] = time.time() * 1_000
        lab_fault(lab.workspace, c, kind, "target", **args)
    child.end(None, within_s=LONGEST_S + 60)
    lab.clear()
    return {c: Came(why=early[c]) if c in early else _came(lab, c, began[c]) for c in FAULTS}


def _came(lab: Lab, c: str, began_ms: float) -> Came:
    r = lab.rollout(c)
    if r is None or not r.ended or lab.weight(c):
        return Came()  # not home at all: that is a time, and an infinite one
    if r.latched is None:
        return Came(why=f"ended {r.ended} without a FAIL")
    if r.latched.guardrail not in BREAKS[FAULTS[c][1]]:
        return Came(why=f"{r.latched.guardrail} FAIL (E {r.latched.e_value:.3g})", by=r.latched.guardrail)
    failed = [e.at.timestamp() * 1_000 for e in lab.events(c) if e.kind == "verdict.fail"]
    sent = [row["t0"] for row in lab.requests(c) if row["a"] == "canary" and row["t0"] >= began_ms]
    if not sent or not failed or failed[-1] < began_ms:
        return Came(why=f"{r.latched.guardrail} FAIL before the fault", by=r.latched.guardrail)
    return Came(seconds=(max(sent) - began_ms) / 1_000, by=r.latched.guardrail, canary=len(sent))
