"""Bench: the judge's error rates, detection and cost beside other tools, seeded. The last line of stdout is one JSON object.

Rows are kept in .cache/bench-canary/ under a digest of the code and the counts, so a stopped run goes on where it was. `--quick` takes
small counts, `--again` forgets what was kept, `--rows a,b` runs some, `--table` prints the Markdown table of the documentation too.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from time import process_time

from tests.bench.canary import quality, rows, tool_rows, whole
from tests.bench.canary.bars import misses, table
from tests.bench.canary.rows import QUICK, Counts, Fields

ROOT = Path(__file__).resolve().parents[3]
CACHE = ROOT / ".cache" / "bench-canary"

ROWS: Mapping[str, Callable[[Counts], Fields]] = {
    "look": rows.look_time,
    "errors": rows.detect_errors,
    "latency": rows.detect_latency,
    "hard failure": rows.hard_failure,
    "quality": quality.quality,
    "whole canaries": whole.whole_canaries,
    "disturbed": rows.disturbed,
    "stalls": rows.stalls,
    "alike": rows.alike,
    "migration": rows.migration,
    "tools": tool_rows.baselines,
}


def state_of(counts: Counts) -> str:
    """Return a digest of the code that the result depends on, and of the counts."""
    parts = [repr(astuple(counts)).encode()]
    for folder in (ROOT / "fleetctl" / "analysis", ROOT / "tests" / "bench" / "canary"):
        parts += [p.read_bytes() for p in sorted(folder.glob("*.py"))]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def measure(counts: Counts, names: Sequence[str], path: Path | None) -> Fields:
    """Run rows, or read those that were kept; keeps after each."""
    kept: dict[str, Fields] = json.loads(path.read_text()) if path is not None and path.exists() else {}
    for number, name in enumerate(names, start=1):
        if name in kept:
            continue
        began = process_time()
        fields = ROWS[name](counts)
        seconds = process_time() - began
        kept[name] = {**fields, "cpu_seconds": round(seconds, 1)}
        print(f"{number}/{len(names)} {name}: {seconds:.0f} CPU seconds", file=sys.stderr, flush=True)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(kept, indent=1) + "\n")
    out: Fields = {}
    for name in names:
        out |= {k: v for k, v in kept[name].items() if k != "cpu_seconds"}
    return out | {"cpu_seconds": {name: kept[name]["cpu_seconds"] for name in names}}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print. Returns 0; bars that are missed are named in the field `misses`."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.canary", description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--rows", default="", help=", ".join(ROWS))
    args = parser.parse_args(argv)
    names = [n.strip() for n in args.rows.split(",") if n.strip()] or list(ROWS)
    unknown = [n for n in names if n not in ROWS]
    if unknown:
        parser.error(f"no such rows: {', '.join(unknown)}; there are {', '.join(ROWS)}")
    counts = QUICK if args.quick else Counts()
    path = CACHE / f"{state_of(counts)}.json"
    if args.again:
        path.unlink(missing_ok=True)
    fields = measure(counts, names, path)
    if args.table:
        print(table(fields))
    print(
        json.dumps(
            {"runs": dict(zip(("alike", "worse", "whole", "tools"), astuple(counts), strict=True)), "misses": misses(fields)} | fields
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
