"""Provision, tests: fleetctl that dies as by kill -9 once a step of the saga (variable KILL_AT) is on record. Only for tests."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from typing import Any

from fleetctl.cli.main import main
from fleetctl.wiring import Wiring

_ports = Wiring.capacity_ports


def _deadly(self: Wiring, *args: Any, **more: Any) -> Any:
    def reached(step: str) -> None:
        if step == os.environ["KILL_AT"]:
            os.kill(os.getpid(), signal.SIGKILL)

    return replace(_ports(self, *args, **more), reached=reached)


if __name__ == "__main__":
    Wiring.capacity_ports = _deadly  # type: ignore[method-assign,assignment]
    sys.exit(main(sys.argv[1:]))
