"""Bench: how soon after a lease has lapsed a real HAProxy's guard has a weight home (`make bench-rollback ARGS='--row guard_real'`)."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from fleetctl.domain.units import FULL_BP
from tests.lab.haproxy_lab import CELL, put, rig, until

LEASE_S = 180.0
"""Of a weight, renewed at half its life: it lapses at most so long after the last controller's death. Source: design section 6."""
SHORT = timedelta(seconds=1)


def guard_real(runs: int) -> dict[str, object]:
    """Let short leases lapse under 25 % and 95 % in turn, and time the way from each lapse to weight 0, polled every 10 ms."""
    took = []
    with rig() as found:
        found.healthy()
        router = found.router()
        for run in range(max(1, runs)):
            lapses = datetime.now(UTC) + SHORT
            put(router, FULL_BP // 4 if run % 2 else 9_500, token=router.read(CELL).token + 1, lease=lapses)
            until(lambda: router.read(CELL).target_bp == 0, "home")
            took.append(time.time() - lapses.timestamp())
            print(f"guard, run {run + 1}: home {took[-1]:.2f} s after the lapse", flush=True)
    slowest = max(took)
    return {"guard_real_after_lapse_s": round(slowest, 2), "guard_home_real_s": round(LEASE_S + slowest, 1), "guard_real_runs": len(took)}
