"""Plan, pure layer: speeds for cells that are not where their replicas were declared. Never guesses above 1.

With r replicas declared on GPU s, and n now on GPU t, a move to GPU u needs r / factor(s, u) replicas. Asked for the factor of u against
t, the answer is n x factor(s, u) / r, so that moving to and fro comes back to the declared number and rounding never adds up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleetctl.domain.ids import WorkloadId
from fleetctl.domain.plan import Speed
from fleetctl.domain.pool import Sku
from fleetctl.domain.workload import Workload
from fleetctl.planning.speed import SpeedOf


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """Replicas (at the measured demand) of a workload on the size that they were declared for."""

    workload: Workload
    sku: Sku
    replicas: float


class ReferredSpeed:
    """`SpeedOf` of a fleet as it stands.

    Args:
        inner: the records' factors; declared: by the workload ids of that fleet; any other workload is asked of `inner`.
    """

    def __init__(self, inner: SpeedOf, declared: Mapping[WorkloadId, Declared]) -> None:
        self._inner, self._declared = inner, declared

    def __call__(self, workload: Workload, source: Sku, target: Sku) -> Speed:
        """Return the factor of the target against the source."""
        d = self._declared.get(workload.id)
        if d is None:
            return self._inner(workload, source, target)
        found = self._inner(d.workload, d.sku, target)
        return Speed(factor=found.factor * workload.replicas / d.replicas, kind=found.kind, source=found.source)
