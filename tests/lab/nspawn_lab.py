"""Configure, test bench: the lab's real hosts, made for a test and removed with every trace of them. Never a test."""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from fleetctl.lab.nspawn import USER, NspawnLab, RealHost, free_network
from fleetctl.lab.nspawn_needs import SUITE, why_not

__all__ = ["SUITE", "USER", "NspawnLab", "RealHost", "nspawn_lab", "why_not"]


@contextlib.contextmanager
def nspawn_lab(hosts: int = 1, suite: str = SUITE, containers: bool = False) -> Iterator[NspawnLab]:
    """Make a lab with that many booted hosts, and remove every trace of it."""
    number = uuid.uuid4().hex[:4]
    folder = Path("/var/tmp") / f"fl-nspawn-{number}"
    lab = NspawnLab(folder=folder, id=f"fl{number}", network=free_network(), suite=suite, containers=containers)
    try:
        lab.make()
        for n in range(hosts):
            lab.add(f"node-{n + 1}")
        yield lab
    finally:
        lab.remove()
        shutil.rmtree(lab.folder, ignore_errors=True)
