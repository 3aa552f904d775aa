"""Plan, pure layer: the cheapest mix of GPU types for one endpoint whose requests differ in size. Never I/O.

Requests fall into buckets by input and output tokens; a GPU of type g carries rate[g, b] requests/s of bucket b alone, and any mix of
buckets in proportion. Whole GPUs n[g], each bucket split freely over types:

    least sum price[g] n[g]   with  sum over g of x[g, b] = 1,   sum over b of demand[b] x[g, b] / rate[g, b] <= n[g]

A rate of 0 says that this type cannot serve the bucket within its SLO.

Source: the bucket model is Mélange's (tyler-griggs/melange-release), which slices buckets; splitting freely is never dearer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetctl.errors import CapacityUnavailable
from fleetctl.planning.highs import Model, run
from fleetctl.planning.program import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """Whole GPUs per type in the order given, USD/h of them, and the proven least."""

    gpus: tuple[int, ...]
    cost: float
    bound: float


def cheapest_mix(demand: Floats, rate: Floats, price: Floats, most: Floats | None = None) -> Mix:
    """Return the cheapest whole GPUs that carry all requests.

    Args:
        demand: (buckets,) requests/s; rate: (types, buckets) requests/s that one GPU carries, 0 where it cannot within the SLO.
        price: (types,) USD/h above 0; most: (types,) GPUs to be had, None for no limit.

    Raises:
        CapacityUnavailable: capacity.no_mix: a bucket that no type can serve, or limits that are too low.
    """
    types = rate.shape[0]
    wanted = np.flatnonzero(demand > 0)
    g, b = np.nonzero(rate[:, wanted] > 0)
    if len(np.unique(b)) < len(wanted):
        raise CapacityUnavailable("capacity.no_mix", "some requests fit no GPU type within their SLO.", hint="Loosen the SLO or add a type")
    n, rows = len(g), len(wanted)
    high = np.full(types, np.inf) if most is None else most.astype(float)
    model = Model(
        cost=np.concatenate((np.zeros(n), price)),
        low=np.zeros(n + types),
        high=np.concatenate((np.ones(n), high)),
        row_low=np.concatenate((np.ones(rows), np.zeros(types))),
        row_high=np.concatenate((np.ones(rows), np.full(types, np.inf))),
        entry_row=np.concatenate((b, rows + g, rows + np.arange(types))),
        entry_column=np.concatenate((np.arange(n), np.arange(n), n + np.arange(types))),
        entry=np.concatenate((np.ones(n), -demand[wanted][b] / rate[:, wanted][g, b], np.ones(types))),
        whole=np.concatenate((np.zeros(n, bool), np.ones(types, bool))),
    )
    found = run(model, seconds=30.0)
    if found.values is None:
        raise CapacityUnavailable("capacity.no_mix", "the limits leave no mix that carries all requests.", hint="Raise a limit")
    gpus = tuple(round(v) for v in found.values[n:].tolist())
    return Mix(gpus=gpus, cost=float(np.dot(price, gpus)), bound=found.bound)
