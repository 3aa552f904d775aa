"""Plan, pure layer: which VMs commitments by scope pay for. Plain numbers; never I/O."""

from __future__ import annotations

from collections.abc import Sequence


def covered(units: Sequence[Sequence[float]], funds: Sequence[float], price: Sequence[float], open_: Sequence[float]) -> list[float]:
    """Return the VMs per pool that are paid for: commitment by commitment, where a unit of it saves most first.

    Args:
        units: per commitment, what a VM of each pool uses up of it, 0 where it does not count; funds: what there is of each.
        price: USD/h of a VM; open_: VMs that nothing else pays for.
    """
    left, out = [max(0.0, n) for n in open_], [0.0] * len(price)
    for row, fund in zip(units, funds, strict=True):
        for q in sorted((q for q, u in enumerate(row) if u > 0), key=lambda q: -price[q] / row[q]):
            take = min(left[q], fund / row[q])
            left[q] -= take
            out[q] += take
            fund -= take * row[q]
    return out
