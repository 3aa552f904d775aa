"""Bench part: the inventory's figures, from a process of its own so that its peak of memory is its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def fields() -> dict[str, object]:
    """Return inventory_vms, inventory_seconds, inventory_cpu_seconds and inventory_peak_mb."""
    done = subprocess.run([sys.executable, "-m", "tests.bench.inventory"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, object] = json.loads(done.stdout.strip().splitlines()[-1])
    return found
