"""Plan, pure layer: from the optimiser's answers to the plan's proof. Never solves, never I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

from fleetctl.domain.fleet import Policy
from fleetctl.domain.plan import Certificate, PoolPrice
from fleetctl.domain.units import Money
from fleetctl.planning.candidates import Site
from fleetctl.planning.cost import CENT
from fleetctl.planning.program import bound_of, saved
from fleetctl.planning.stages import Stage


def certificate_of(sites: Sequence[Site], policy: Policy, stages: Sequence[Stage], caps: tuple[str, ...]) -> Certificate:
    """Return what proves how near each stage is to the cheapest one."""
    first, *later = (_proof(sites, policy, s, caps) for s in stages)
    return replace(first, later=tuple(later))


def _proof(sites: Sequence[Site], policy: Policy, stage: Stage, caps: tuple[str, ...]) -> Certificate:
    program, answer, y = stage.program, stage.answer, stage.answer.prices
    priced = bound_of(program, y)
    is_exact = answer.proof == "branch and bound"
    bound = answer.bound if is_exact else min(answer.bound, priced)
    covers = bool(len(program.funds)) and bool(len(y.cover))
    gap = (answer.cost - bound) / (answer.cost + stage.spent) * 100 if answer.cost > 0 else 0.0
    return Certificate(
        cost=_usd(answer.cost + stage.spent),
        bound=_usd(bound + stage.spent),
        price_bound=_usd(priced + stage.spent),
        gap_pct=round(max(0.0, gap), 4),
        proof="branch and bound" if is_exact else "prices",
        horizon_hours=policy.horizon.total_seconds() / 3600,
        moving=_usd(float(program.move[range(program.cells), answer.pool].sum()) + stage.spent),
        prices=tuple(
            PoolPrice(
                pool=s.pool.id,
                stay=float(y.stay[i]),
                both=float(y.both[i]),
                peak=float(y.peak[i]),
                cover=float(y.cover[i]) if covers else 0.0,
            )
            for i, s in enumerate(sites)
        ),
        covered=_usd(saved(program, answer.vms.astype(float))) if covers else None,
        caps=tuple((name, float(y.caps[k])) for k, name in enumerate(caps)),
        apart=_usd(answer.apart) if round(answer.apart, 2) > 0 else None,
    )


def _usd(amount: float) -> Money:
    return Money(amount=Decimal(repr(round(amount, 2))).quantize(CENT))
