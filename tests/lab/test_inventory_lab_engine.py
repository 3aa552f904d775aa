"""The lab's emulated engine, a real process, is read as the vLLM that it emulates."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleetctl.adapters.engines.discovery import EngineDiscovery
from fleetctl.domain.people import Facts
from tests.fakes.moto_account import free_port

pytestmark = pytest.mark.lab


def test_the_emulated_engine_is_read_as_vllm(tmp_path: Path) -> None:
    port = free_port()
    config = {"cell": "chat", "port": port, "model": "emulated-7b", "ttft_ms": 5, "token_ms": 1}
    unit = tmp_path / "unit.json"
    unit.write_text(json.dumps({"argv": [], "env": {}, "config": config}))
    with (tmp_path / "log").open("wb") as log:
        child = subprocess.Popen([sys.executable, "-m", "fleetctl.lab.engine", "--config", str(unit)], stdout=log, stderr=log)
    try:
        source = EngineDiscovery("lab", (f"127.0.0.1:{port}",), lambda: datetime.now(UTC))
        end = time.monotonic() + 60
        (found,) = source.scan("")
        while not isinstance(found, Facts) and time.monotonic() < end and child.poll() is None:
            time.sleep(0.1)
            (found,) = source.scan("")
    finally:
        child.terminate()
        child.wait(10)
    assert isinstance(found, Facts), (tmp_path / "log").read_text()
    assert (found.values["software"], found.values["model"], found.values["running"]) == ("vllm", "emulated-7b", 0)
