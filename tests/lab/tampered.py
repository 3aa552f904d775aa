"""Provision, tests: fleetctl whose plan file changes by one byte between plan and apply (variable FLIP: pool). Only for tests."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleetctl.cli.main import main
from fleetctl.wiring import Wiring

_ports = Wiring.capacity_ports


def _flipping(self: Wiring, run: Path, *args: Any, **more: Any) -> Any:
    def reached(step: str) -> None:
        if step == "planned":
            file = run / f"{os.environ['FLIP']}.tfplan"
            data = bytearray(file.read_bytes())
            data[len(data) // 2] ^= 1
            file.write_bytes(data)

    return replace(_ports(self, run, *args, **more), reached=reached)


if __name__ == "__main__":
    Wiring.capacity_ports = _flipping  # type: ignore[method-assign,assignment]
    sys.exit(main(sys.argv[1:]))
