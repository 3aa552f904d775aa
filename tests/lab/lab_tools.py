"""Lab tests: units on a free port in a folder of their own, ended whatever happens."""

from __future__ import annotations

import http.client
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fleetctl.lab.processes import free_port
from fleetctl.lab.service import start, stop
from fleetctl.lab.units import UnitConfig, python_env, write_unit

PYTHON = sys.executable


def until(is_so: Callable[[], bool], what: str, within_s: float = 8.0, last: Callable[[], str] = str) -> None:
    """Poll until a condition holds; fail with its name, and with what stands then, otherwise."""
    end = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < end, f"not within {within_s} s: {what} {last()}"
        time.sleep(0.02)


def ask(port: int, method: str, path: str, body: object = None, headers: dict[str, str] | None = None) -> tuple[int, bytes, dict[str, str]]:
    """Send one request; return status, body and headers in lower case."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read(), {k.lower(): v for k, v in answer.getheaders()}
    finally:
        connection.close()


def complete(port: int, **more: Any) -> tuple[int, dict[str, Any]]:
    """Ask for a plain completion of four tokens at temperature 0."""
    body = {"prompt": "a question", "max_tokens": 4, "temperature": 0, **more}
    status, answer, _ = ask(port, "POST", "/v1/completions", body)
    return status, json.loads(answer)


@contextmanager
def engine(folder: Path, name: str = "chat-lab-b1", **config: str | int | float) -> Iterator[int]:
    """Run an emulated engine; yields its port."""
    port = free_port(26_000)
    whole: UnitConfig = {"port": port, "model": "m", "ttft_ms": 2, "token_ms": 0.2, "log_sd": 0, "health_wait_s": 120.0, **config}
    argv = [PYTHON, "-m", "fleetctl.lab.engine", "--config", str(folder / f"{name}.json")]
    write_unit(folder, name, {"argv": argv, "env": python_env(), "config": whole})
    try:
        started = start(folder, name)
        assert started.state == "running", started
        yield port
    finally:
        stop(folder, name)
