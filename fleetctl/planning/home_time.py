"""Plan, pure layer: how long each router takes from the order to go home to its end, and plans that promise less. Never I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta

from fleetctl.domain.fleet import Connection, Fleet
from fleetctl.domain.home import HomeTime
from fleetctl.domain.ids import CellId
from fleetctl.domain.plan import Check, Outcome

USUAL_S: Mapping[str, float] = {"alb": 60.0, "envoy": 0.1, "haproxy": 0.1, "httproute": 60.0, "queue": 0.1, "sqs": 1.1}
"""By kind, where nothing was measured. HAProxy and Envoy: at most 43 ms in 50 runs under load (make bench-traffic, 2026-11-30). An ALB's
promise is P3's; a gateway promises nothing, so it is taken to be as slow. A consumer of SQS knows the split of a second ago."""
UNSEEN = frozenset({"alb", "httproute", "sqs"})
"""Kinds whose API shows a weight before anything acts on it: what was measured there is at least the usual time."""


def home_s(router: Connection, measured: Mapping[str, HomeTime]) -> float:
    """Return the seconds from the order to no new request on the target: the slowest measured of late, else the usual of the kind."""
    usual = USUAL_S.get(router.kind, 60.0)
    found = measured.get(router.name)
    if found is None:
        return usual
    return max(found.slowest_ms / 1_000, usual) if router.kind in UNSEEN else found.slowest_ms / 1_000


def too_slow(fleet: Fleet, outcomes: Iterable[Outcome], measured: Mapping[str, HomeTime]) -> tuple[str, ...]:
    """Return one sentence per router that takes longer than the policy promises, for the cells that move behind it."""
    promised = fleet.policy.home_within
    if promised is None:
        return ()
    found = []
    for router, cells in sorted(_behind(fleet, outcomes).items()):
        connection = fleet.router(router)
        if home_s(connection, measured) > promised.total_seconds():
            shown = f"{cells[0]}{f' and {len(cells) - 1} others' if len(cells) > 1 else ''}"
            found.append(f"{_said(connection, measured)}, more than policy.home_within {_short(promised)}: {shown}")
    return tuple(found)


def home_check(fleet: Fleet, outcomes: Iterable[Outcome], measured: Mapping[str, HomeTime]) -> Iterator[Check]:
    """Yield the time home of each router that moves cells, where it was measured or something is promised."""
    behind = _behind(fleet, outcomes)
    if behind and (fleet.policy.home_within is not None or any(r in measured for r in behind)):
        text = "; ".join(_said(fleet.router(r), measured) for r in sorted(behind))
        yield Check(name="time home", ok=not too_slow(fleet, outcomes, measured), detail=text)


def _behind(fleet: Fleet, outcomes: Iterable[Outcome]) -> dict[str, list[CellId]]:
    moving = {o.cell for o in outcomes if o.kind == "move"}
    found: dict[str, list[CellId]] = {}
    for c in fleet.cells:
        if c.id in moving:
            found.setdefault(c.router.name, []).append(c.id)
    return found


def _said(router: Connection, measured: Mapping[str, HomeTime]) -> str:
    seconds, found = timedelta(seconds=home_s(router, measured)), measured.get(router.name)
    if found is None:
        return f"router {router.name} ({router.kind}) takes {_short(seconds)} home, as its kind does; never measured here"
    how = f"slowest of {len(found.took_ms)}, last {found.at:%Y-%m-%d}"
    if router.kind in UNSEEN:
        how += "; it shows a weight before it acts on it"
    return f"router {router.name} ({router.kind}) takes {_short(seconds)} home ({how})"


def _short(t: timedelta) -> str:
    seconds = t.total_seconds()
    return f"{seconds * 1_000:.0f} ms" if seconds < 1 else f"{seconds:g} s"
