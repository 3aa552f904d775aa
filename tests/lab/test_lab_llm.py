"""The real model as a process. Skipped where the model is not in the cache; `fleetctl lab up` puts it there."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fleetctl.lab.faults import write_faults
from fleetctl.lab.model import can_serve, find_model
from fleetctl.lab.processes import free_port
from fleetctl.lab.service import process_of, start, stop
from fleetctl.lab.units import UnitConfig, python_env, write_unit
from tests.lab.lab_tools import PYTHON, ask, until

MODEL = find_model()
MISSING = can_serve() or MODEL.reason
pytestmark = [pytest.mark.lab, pytest.mark.skipif(bool(MISSING), reason=f"no real model: {MISSING}")]
LOAD_S = 180.0
"""Longest that a loaded machine may take to load the model; one that ends by itself is told at once."""
TALK = {
    "messages": [{"role": "user", "content": "Name three colours."}],
    "max_tokens": 8,
    "temperature": 0,
    "logprobs": True,
    "top_logprobs": 2,
}


@contextmanager
def llm(folder: Path, kv: str = "f16", name: str = "smollm-lab-b1", port: int = 0, **more: str | int) -> Iterator[int]:
    port = port or free_port(27_000)
    argv = [PYTHON, "-m", "fleetctl.lab.llm", "--config", str(folder / f"{name}.json")]
    config: UnitConfig = {"port": port, "model": "SmolLM2-135M-Instruct", "model_path": str(MODEL.path), "kv": kv, **more}
    config["health_wait_s"] = LOAD_S
    write_unit(folder, name, {"argv": argv, "env": python_env(), "config": config})
    try:
        started = start(folder, name)
        assert started.state == "running", started
        yield port
    finally:
        stop(folder, name)


def test_it_answers_with_usage_and_log_probabilities_and_ends_at_once(tmp_path: Path) -> None:
    with llm(tmp_path) as port:
        code, body, headers = ask(port, "POST", "/v1/chat/completions", TALK)
        answer = json.loads(body)
        assert code == 200
        assert answer["usage"]["completion_tokens"] == len(answer["choices"][0]["logprobs"]["content"]) > 0
        assert "x-emulated" not in headers
        known = process_of(tmp_path, "smollm-lab-b1")
        assert known is not None
        began = time.monotonic()
        os.kill(known.pid, signal.SIGTERM)
        until(lambda: process_of(tmp_path, "smollm-lab-b1") is None, "end", 3)
        assert time.monotonic() - began < 2


def test_another_cache_type_is_a_fault_that_comes_and_goes(tmp_path: Path) -> None:
    log = tmp_path / "smollm-lab-b1.log"
    with llm(tmp_path, "q8_0") as port:
        before = process_of(tmp_path, "smollm-lab-b1")
        write_faults(tmp_path / "smollm-lab-b1.faults.json", {"kv_cache": {"type": "q4_0"}})
        until(lambda: "KV cache q4_0" in log.read_text(), "q4_0")
        assert process_of(tmp_path, "smollm-lab-b1") == before
        until(lambda: ask(port, "POST", "/v1/chat/completions", TALK)[0] == 200, "an answer")
        write_faults(tmp_path / "smollm-lab-b1.faults.json", {})
        until(lambda: log.read_text().count("KV cache q8_0") == 2, "q8_0 again")


def test_what_cannot_be_served_says_why(tmp_path: Path) -> None:
    name = "smollm-lab-b1"
    argv = [PYTHON, "-m", "fleetctl.lab.llm", "--config", str(tmp_path / f"{name}.json")]
    for config, says in (
        ({"port": 1, "model": "m", "model_path": "/no/such.gguf", "kv": "f16"}, "is not there"),
        ({"port": 1, "model": "m", "model_path": str(MODEL.path), "kv": "f12"}, "not one of"),
        ({"port": 1, "model": "m"}, "has no model_path"),
    ):
        whole: UnitConfig = {**config}  # type: ignore[dict-item]
        write_unit(tmp_path, name, {"argv": argv, "env": python_env(), "config": whole})
        try:
            failed = start(tmp_path, name)
        finally:
            stop(tmp_path, name)
        assert failed.state == "failed"
        assert says in failed.log[-1]
