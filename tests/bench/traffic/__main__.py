"""Bench of traffic. Last line of standard output: one JSON object.

Usage: python -m tests.bench.traffic [--runs N] [--row NAME ...]   (50 runs and every row by default)
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time

from tests.bench.traffic.rows import PLAIN_PER_S, ROWS, STREAMS, STREAMS_PER_S, Row


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50, help="of each row, 50 by default")
    parser.add_argument("--row", action="append", choices=list(ROWS), help="only this row; may be given again")
    args = parser.parse_args()
    if args.runs < 1:
        parser.error("--runs needs at least 1")
    began, busy = time.monotonic(), os.times()
    found: Row = {"runs": args.runs, "plain_per_s_asked": PLAIN_PER_S, "streams_per_s_asked": STREAMS_PER_S}
    for name in args.row or ROWS:
        found |= ROWS[name](args.runs)
    whole = [value for key, value in found.items() if key.endswith("_streams_whole")]
    if whole:
        found |= {"streams_whole": min(int(str(n)) for n in whole), "streams_opened": STREAMS}
    done = os.times()
    cpu = sum(done[:4]) - sum(busy[:4])
    found |= {"seconds": round(time.monotonic() - began, 1), "cpu_seconds": round(cpu, 1), "cores": os.cpu_count()}
    found["load_average_5_min"] = round(os.getloadavg()[1], 1)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
