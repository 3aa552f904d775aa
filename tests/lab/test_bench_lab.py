"""`fleetctl bench` against engines that stream: the lab's emulated one, whose times are known, and a real small model on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.catalog.books import own_performance
from fleetctl.cli.main import main
from fleetctl.lab.model import can_serve, find_model
from tests.lab.lab_tools import engine
from tests.lab.test_lab_llm import llm

pytestmark = pytest.mark.lab
MODEL = find_model()
MISSING = can_serve() or MODEL.reason


def bench(folder: Path, port: int, model: str, *argv: str) -> int:
    trace = folder / "day.csv"
    trace.write_text("at_s,input_tokens,output_tokens\n" + "".join(f"{i},{20 + i},{8 + i % 9}\n" for i in range(10)))
    given = ("--trace", str(trace), "--model", model, "--gpu", "MI300X", "--engine", "a test's", *argv)
    try:
        return main(["-C", str(folder), "bench", f"http://127.0.0.1:{port}", *given])
    except SystemExit as e:
        return int(e.code or 0)


def test_an_engine_of_known_times_is_measured_as_that(tmp_path: Path) -> None:
    with engine(tmp_path, ttft_ms=60, token_ms=10) as port:
        assert bench(tmp_path, port, "m", "--rates", "20", "--requests", "20") == 0
        assert bench(tmp_path, port, "m", "--rates", "20", "--requests", "4", "--slo-ttft-ms", "59") == 1
        assert bench(tmp_path, port, "m", "--rates", "20", "--requests", "4", "--slo-tpot-ms", "9") == 1
    (run,) = own_performance(tmp_path / ".fleetctl" / "catalog")
    assert run.ttft_p95_ms is not None
    assert run.tpot_p95_ms is not None
    assert run.ttft_p95_ms >= 60
    assert run.tpot_p95_ms >= 9.5  # a token that came late shortens the wait for the next


@pytest.mark.skipif(bool(MISSING), reason=f"no real model: {MISSING}")
def test_a_real_model_is_measured(tmp_path: Path) -> None:
    with llm(tmp_path) as port:
        assert bench(tmp_path, port, "SmolLM2-135M-Instruct", "--rates", "2", "--requests", "4") == 0
    (run,) = own_performance(tmp_path / ".fleetctl" / "catalog")
    assert run.ttft_p95_ms is not None
    assert run.tpot_p95_ms is not None
    assert run.tokens_per_s > 0
