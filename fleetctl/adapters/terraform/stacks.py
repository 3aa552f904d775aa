"""Provision, adapters layer: what each stack of ours is given for a pool. Never holds a secret."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from fleetctl.domain.pool import PoolSpec


def lab_variables(
    lab_root: Path, python: str, *, delay_s: float = 0.0, tags: Mapping[str, str] | None = None
) -> Callable[[PoolSpec], Mapping[str, object]]:
    """Return what `terraform/stacks/lab` is given, whose hosts are emulated.

    Args:
        lab_root: folder that holds one folder per host, absolute.
        python: interpreter that has fleetctl installed, absolute.
        delay_s: emulated boot time of a host, 0 to 600 seconds.
    """

    def of(spec: PoolSpec) -> Mapping[str, object]:
        return {
            "pool_id": spec.pool,
            "vendor": spec.vendor,
            "sku": spec.sku,
            "region": spec.region,
            "host_count": spec.count,
            "hold": spec.hold,
            "lab_root": str(lab_root),
            "python": python,
            "delay_s": delay_s,
            "tags": {"fleetctl-pool": spec.pool, **(tags or {})},
        }

    return of
