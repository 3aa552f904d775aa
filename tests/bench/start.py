"""Bench: how long `fleetctl --help` and `fleetctl status` take to start, against `python -c pass`. Last line: JSON in milliseconds.

Usage: python tests/bench/start.py [RUNS]   (10 by default; the median counts)
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def median_ms(argv: list[str], runs: int, folder: str) -> float:
    """Return the median wall time of a program in milliseconds; one run before it warms the caches."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    times = []
    for _ in range(runs + 1):
        begin = time.perf_counter()
        subprocess.run(argv, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        times.append((time.perf_counter() - begin) * 1000)
    return statistics.median(times[1:])


def main() -> None:
    """Measure and print."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    program = [sys.executable, "-m", "fleetctl.cli"]
    with tempfile.TemporaryDirectory() as folder:
        python_ms = median_ms([sys.executable, "-c", "pass"], runs, folder)
        help_ms = median_ms([*program, "--help"], runs, folder)
        status_ms = median_ms([*program, "status"], runs, folder)
    print(f"fleetctl --help takes {help_ms - python_ms:.0f} ms and fleetctl status {status_ms - python_ms:.0f} ms more than python -c pass")
    print(json.dumps({"help_ms": round(help_ms, 1), "status_ms": round(status_ms, 1), "python_ms": round(python_ms, 1)}))


if __name__ == "__main__":
    main()
