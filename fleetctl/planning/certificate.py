"""Plan, pure layer: from the optimiser's answer to the plan's proof, and what is left of pools and limits. Never solves, never I/O."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from fleetctl.domain.fleet import Policy
from fleetctl.domain.plan import Certificate, PoolPrice
from fleetctl.domain.units import Money
from fleetctl.planning.candidates import Site
from fleetctl.planning.cost import CENT
from fleetctl.planning.program import Answer, Program, bound_of


def rooms_of(program: Program, answer: Answer, caps: tuple[str, ...]) -> tuple[list[float], dict[int, str]]:
    """Return the GPUs that each pool could still take at the peak, and which limit keeps which pool from one more VM."""
    come = program.load[range(program.cells), answer.pool] * (answer.pool != program.start)
    used = program.base
    for pool, gpus in zip(answer.pool.tolist(), come.tolist(), strict=True):
        used[pool] += gpus
    rooms = (program.most * program.size - used).tolist()
    left = program.limits - program.caps @ answer.peak
    capped = {
        q: name
        for k, name in enumerate(caps)
        for q in range(program.pools)
        if program.caps[k, q] > 0 and program.caps[k, q] > left[k] + 1e-6
    }
    return rooms, capped


def certificate_of(sites: Sequence[Site], policy: Policy, program: Program, answer: Answer, caps: tuple[str, ...]) -> Certificate:
    """Return what proves how near the answer is to the cheapest one."""
    gap = (answer.cost - answer.bound) / answer.cost * 100 if answer.cost > 0 else 0.0
    y = answer.prices
    return Certificate(
        cost=_usd(answer.cost),
        bound=_usd(answer.bound),
        price_bound=_usd(bound_of(program, y)),
        gap_pct=round(max(0.0, gap), 4),
        proof="branch and bound" if answer.proof == "branch and bound" else "prices",
        horizon_hours=policy.horizon.total_seconds() / 3600,
        moving=_usd(float(program.move[range(program.cells), answer.pool].sum())),
        prices=tuple(
            PoolPrice(pool=s.pool.id, stay=float(y.stay[i]), both=float(y.both[i]), peak=float(y.peak[i])) for i, s in enumerate(sites)
        ),
        caps=tuple((name, float(y.caps[k])) for k, name in enumerate(caps)),
    )


def _usd(amount: float) -> Money:
    return Money(amount=Decimal(repr(round(amount, 2))).quantize(CENT))
