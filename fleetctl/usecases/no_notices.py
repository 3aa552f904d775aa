"""Migrate, use-case layer: the end of machines where nobody can tell of it. Never asks anybody."""

from __future__ import annotations

from fleetctl.domain.ids import PoolId
from fleetctl.domain.people import Signal


class NoNotices:
    """`Notices` of pools that tell of nothing."""

    def watches(self, pool: PoolId) -> bool:
        """Return no."""
        return False

    def read(self, pool: PoolId) -> tuple[Signal, ...]:
        """Return nothing."""
        return ()
