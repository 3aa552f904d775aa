"""A real Prometheus with two hours of engines' and GPUs' families in it; and what a broken or closed one is told as."""

from __future__ import annotations

import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from fleetctl.adapters.prometheus.client import PrometheusApi
from fleetctl.adapters.prometheus.discovery import PrometheusDiscovery
from fleetctl.domain.merge import Thing, merge
from fleetctl.errors import CredentialsMissing, InventoryFailed
from fleetctl.usecases.scan import scan_sources
from tests.fakes.json_double import json_double
from tests.fakes.moto_account import free_port

PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
PER_S, STEP_S, SPAN_S = 20, 15, 7200
ENGINE, LURE = "10.0.0.7:8000", 'evil"} or vector(1) #'


def now() -> datetime:
    return datetime.now(UTC)


def history(end: int) -> str:
    """Return two hours of a vLLM that serves 20 requests a second, 100 tokens in and 50 out, all within 0.5 s, and of two GPU exporters."""
    engine = f'instance="{ENGINE}",model_name="evil\\"}} or vector(1) #"'
    counters = [(f'vllm:request_success_total{{{engine},finished_reason="stop"}}', 1)]
    counters += [(f"vllm:prompt_tokens_total{{{engine}}}", 100), (f"vllm:generation_tokens_total{{{engine}}}", 50)]
    counters += [(f'vllm:e2e_request_latency_seconds_bucket{{{engine},le="{le}"}}', 1) for le in ("0.5", "1.0", "+Inf")]
    gauges = [(f'DCGM_FI_DEV_GPU_UTIL{{gpu="{n}",Hostname="gpu-1",instance="gpu-1:9400"}}', use) for n, use in ((0, 80), (1, 120))]
    gauges.append(('gpu_gfx_activity{gpu_id="0",hostname="mi-1",instance="mi-1:5000"}', 50))
    times = range(end - SPAN_S, end + 1, STEP_S)
    lines = [f"{name} {(at - end + SPAN_S) * PER_S * each} {at}" for name, each in counters for at in times]
    lines += [f"{name} {value} {at}" for name, value in gauges for at in times]
    return "\n".join([*lines, "# EOF", ""])


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a Prometheus that holds a history written into its database: nothing is scraped, nothing waits for time."""
    if PROMETHEUS is None or PROMTOOL is None:
        pytest.skip("prometheus is not installed (Debian: prometheus): its real API is not tried here")
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "history").write_text(history(int(time.time())))
    (folder / "prometheus.yml").write_text("global: {}\n")
    made = [PROMTOOL, "tsdb", "create-blocks-from", "openmetrics", str(folder / "history"), str(folder / "data")]
    subprocess.run(made, check=True, capture_output=True, timeout=120)
    port = free_port()
    argv = [PROMETHEUS, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with (folder / "log").open("wb") as log:
        child = subprocess.Popen([*argv, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
    try:
        _wait(f"http://127.0.0.1:{port}", child)
        yield f"http://127.0.0.1:{port}"
    finally:
        child.terminate()
        child.wait(60)


def _wait(url: str, child: subprocess.Popen[bytes]) -> None:
    """Wait until it answers."""
    end = time.monotonic() + 120
    while time.monotonic() < end and child.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/-/ready", timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("Prometheus did not start in 120 s")


@pytest.mark.lab
def test_a_real_prometheus_tells_traffic_latency_and_gpu_use(prometheus: str) -> None:
    scan = scan_sources([PrometheusDiscovery("site", PrometheusApi(prometheus), now, window="1h")], None, now)
    assert scan.gaps() == ()
    things, _ = merge(scan.facts())
    found: dict[tuple[str, str], Thing] = {(t.kind, t.id): t for t in things}
    engine = found["engine", ENGINE]
    assert engine.text("model") == LURE
    assert engine.number("requests_per_s") == pytest.approx(PER_S, rel=0.02)
    assert engine.number("trough_per_s") == pytest.approx(PER_S, rel=0.05)
    assert engine.number("input_tokens") == pytest.approx(100, rel=0.05)
    assert engine.number("output_tokens") == pytest.approx(50, rel=0.05)
    assert 0 < (engine.number("p95_ms") or 0) <= 500
    assert found["machine", "gpu-1"].number("gpu_use") == pytest.approx(0.8)
    assert found["machine", "mi-1"].number("gpu_use") == pytest.approx(0.5)


@pytest.mark.lab
def test_a_real_prometheus_refuses_a_broken_query(prometheus: str) -> None:
    with pytest.raises(InventoryFailed, match="400"):
        PrometheusApi(prometheus).query("sum(")


def answer(result: list[Any]) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def test_answers_of_another_shape_and_numbers_that_are_none_are_left_out() -> None:
    series = [{"metric": {"instance": "a:1"}, "value": [0, "NaN"]}, {"metric": {"instance": "b:1"}, "value": [0, "2"]}, {"value": []}, 3]
    with json_double({"/api/v1/query": answer(series)}) as double:
        assert [s.labels["instance"] for s in PrometheusApi(double.url).query("up")] == ["b:1"]
        double.answers["/api/v1/query"] = "<html>"
        with pytest.raises(InventoryFailed):
            PrometheusApi(double.url).query("up")


def test_an_answer_nested_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with json_double({"/api/v1/query": "[" * 200_000}) as double, pytest.raises(InventoryFailed, match="does not answer"):
        PrometheusApi(double.url).query("up")


def test_a_token_is_sent_and_a_refusal_is_named() -> None:
    with json_double({"/api/v1/query": (401, {"message": "no"})}) as double:
        with pytest.raises(CredentialsMissing) as caught:
            PrometheusApi(double.url, token=lambda: "t0k").query("up")
        assert caught.value.code == "credentials.prometheus"
        assert "t0k" not in str(caught.value)
        assert double.headers[0]["Authorization"] == "Bearer t0k"


def test_slow_down_is_honoured_and_a_redirect_is_not_followed() -> None:
    state = {"left": 2}

    def limited(*_: object) -> Any:
        state["left"] -= 1
        return (429, {}, {"Retry-After": "1"}) if state["left"] >= 0 else answer([])

    with json_double({"/api/v1/query": limited}) as double:
        begin = time.monotonic()
        assert PrometheusApi(double.url).query("up") == []
        assert time.monotonic() - begin >= 1
        double.answers["/api/v1/query"] = (302, {}, {"Location": "http://127.0.0.1:9/"})
        with pytest.raises(InventoryFailed, match="302"):
            PrometheusApi(double.url).query("up")


@pytest.mark.parametrize("window", ["", "24", "1y", "1h])) or vector(1)", "24h\n", "-1h"])
def test_a_window_is_a_time_and_nothing_else(window: str) -> None:
    with pytest.raises(InventoryFailed):
        PrometheusDiscovery("site", PrometheusApi("http://127.0.0.1:9"), now, window=window)
