"""Bench: an inventory of 100,000 VMs over 40 emulated Azure regions, scanned, merged, saved and listed. Last line: JSON.

Usage: python -m tests.bench.inventory [VMS] [REGIONS]   (100000 and 40 by default)
The double of Azure's API runs in a process of its own, on loopback, over TLS; its pages hold 250 VMs. Memory is the peak of this process.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from fleetctl.adapters.azure.client import AzureAccess
from fleetctl.adapters.azure.discovery import AzureDiscovery
from fleetctl.adapters.scans import ScanFile
from fleetctl.catalog import load_catalog
from fleetctl.domain.merge import merge
from fleetctl.formats.example import EXAMPLE_LINEAGE, fleet_text
from fleetctl.formats.fleet_file import parse_fleet
from fleetctl.usecases.inventory_found import match_found
from fleetctl.usecases.scan import scan_sources
from tests.fakes.arm_double import TOKEN
from tests.fakes.arm_estate import SUBSCRIPTION

ROOT = Path(__file__).resolve().parents[2]


def measure(vms: int, regions: int, folder: Path) -> dict[str, float]:
    """Scan, merge, match and save; return the figures."""
    argv = [sys.executable, "-m", "tests.fakes.arm_double", str(folder), str(vms), str(regions)]
    double = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert double.stdout is not None
        url = double.stdout.readline().strip()
        access = AzureAccess(subscriptions=(SUBSCRIPTION,), endpoint=url, ca_file=str(folder / "ca.pem"), token=lambda: TOKEN)
        begin, cpu = time.perf_counter(), time.process_time()
        scan = scan_sources([AzureDiscovery("bench", access, lambda: datetime.now(UTC))], None, lambda: datetime.now(UTC))
        scanned = time.perf_counter()
        things, doubts = merge(scan.facts())
        fleet = parse_fleet(fleet_text("example", EXAMPLE_LINEAGE), file="fleet.yaml")
        found = match_found(fleet, things, load_catalog(), scan.at, doubts)
        ScanFile(folder / "inventory.db").save(scan)
        end, used = time.perf_counter(), time.process_time() - cpu
    finally:
        double.communicate(timeout=30)
    machines = sum(p.vms for p in found.pools)
    if scan.gaps() or machines != vms:
        raise SystemExit(f"{machines} of {vms} VMs were found, with gaps {scan.gaps()[:3]}")
    print(f"scanned in {scanned - begin:.1f} s, merged and saved in {end - scanned:.1f} s; {used:.1f} s of CPU in fleetctl")
    return {
        "inventory_vms": machines,
        "inventory_seconds": round(end - begin, 1),
        "inventory_cpu_seconds": round(used, 1),
        "inventory_peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }


def main() -> None:
    """Measure and print."""
    vms, regions = (int(sys.argv[i]) if len(sys.argv) > i else d for i, d in ((1, 100_000), (2, 40)))
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(vms, regions, Path(folder))))


if __name__ == "__main__":
    main()
