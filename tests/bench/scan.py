"""Bench: scanning source and discovery. Puts together what each part measures; the last line is one JSON object.

A part is a module of this folder with `fields() -> dict`; a part that is not there leaves its fields out.
"""

from __future__ import annotations

import json
from importlib import import_module
from importlib.util import find_spec

PARTS = ("tests.bench.scan_source", "tests.bench.scan_inventory")


def main() -> None:
    """Measure and print."""
    fields: dict[str, object] = {}
    for part in PARTS:
        if find_spec(part) is not None:
            fields |= import_module(part).fields()
    print(json.dumps(fields))


if __name__ == "__main__":
    main()
