"""Assess, pure layer: takes the route that the fleet file declares and says what it blocks. Never looks at code, never I/O."""

from __future__ import annotations

from typing import cast, get_args

from fleetctl.assess.route import SCALE_LICENCE
from fleetctl.domain.plan import Assessment, Finding, Route
from fleetctl.domain.portability import LicenceAcceptance
from fleetctl.domain.units import Instant
from fleetctl.domain.workload import Workload


def declared(workload: Workload, as_of: Instant, licence: LicenceAcceptance | None = None) -> Assessment:
    """Assess a workload by its owner's declaration alone.

    Args:
        as_of: when it was looked at, aware UTC; licence: SCALE's, where a person put it on record.

    Returns:
        kind "declared"; `zluda`, unknown routes and `scale` without a licence are blocked.

    Source: ZLUDA needs wave32 hardware, MI300X (gfx942) is wave64 only.
    """
    route = workload.route
    if route not in get_args(Route):
        finding = Finding(
            rule="route.unknown", severity="blocking", text=f"route {route!r} is not known", where=workload.id, grade="blocker"
        )
        return Assessment(workload=workload.id, route="stay", as_of=as_of, blocking=(finding,))
    blocking: tuple[Finding, ...] = ()
    if route == "zluda":
        text = "ZLUDA cannot run on MI300X: it needs 32-wide wavefronts and MI300X has 64-wide ones only"
        blocking = (Finding(rule="route.zluda", severity="blocking", text=text, where=workload.id, grade="blocker"),)
    if route == "scale" and licence is None:
        blocking = (Finding(rule="R068", severity="blocking", text=SCALE_LICENCE, where=workload.id, grade="blocker"),)
    reference = licence.reference if licence is not None and route == "scale" else ""
    return Assessment(workload=workload.id, route=cast(Route, route), as_of=as_of, blocking=blocking, licence=reference)
