"""Migrate, use-case layer: go on after the router's guard, which writes while nobody judges. Never touches traffic."""

from __future__ import annotations

from fleetctl.domain.home import GUARD_TOKENS
from fleetctl.domain.rollout import Rollout
from fleetctl.domain.split import Stale
from fleetctl.domain.units import Instant
from fleetctl.ports.state import Lease, Store
from fleetctl.ports.traffic import Router


def went_on_from_guard(r: Rollout, lease: Lease, split: Stale, router: Router, store: Store, now: Instant) -> bool:
    """Take over the router's number where its guard took it with a lapsed weight; False: it was somebody else, nothing was done."""
    if split.seen - lease.token >= GUARD_TOKENS:
        return False
    shown = router.read(r.cell)
    if shown.token != split.seen or shown.lease_until > now or shown.target_bp > r.weight_bp:
        return False
    if split.seen > lease.token:
        store.raise_token(r.cell, split.seen)
    else:
        store.release(lease)  # the next acquisition is above the guard's number
    return True
