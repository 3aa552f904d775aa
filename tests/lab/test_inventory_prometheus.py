"""A real Prometheus that scrapes two exporters with engines' and GPUs' families; and what a broken or closed one is told as."""

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
from tests.fakes.json_double import JsonDouble, json_double
from tests.fakes.moto_account import free_port

pytestmark = pytest.mark.slow

PROMETHEUS = shutil.which("prometheus")
STARTED = time.time()


def now() -> datetime:
    return datetime.now(UTC)


def counters(*_: object) -> str:
    """Answer as a vLLM that serves 20 requests a second, 100 tokens in and 50 out, all within 0.5 s; and as two GPU exporters."""
    n = int((time.time() - STARTED + 100) * 20)
    lab = 'model_name="evil\\"} or vector(1) #"'
    bounds = "".join(f'vllm:e2e_request_latency_seconds_bucket{{{lab},le="{le}"}} {n}\n' for le in ("0.5", "1", "+Inf"))
    return (
        f'vllm:request_success_total{{{lab},finished_reason="stop"}} {n}\nvllm:prompt_tokens_total{{{lab}}} {n * 100}\n'
        f"vllm:generation_tokens_total{{{lab}}} {n * 50}\n{bounds}"
        'DCGM_FI_DEV_GPU_UTIL{gpu="0",Hostname="gpu-1"} 80\nDCGM_FI_DEV_GPU_UTIL{gpu="1",Hostname="gpu-1"} 120\n'
        'gpu_gfx_activity{gpu_id="0",hostname="mi-1"} 50\n'
    )


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, JsonDouble]]:
    if PROMETHEUS is None:
        pytest.skip("prometheus is not installed (Debian: prometheus): its real API is not tried here")
    folder = tmp_path_factory.mktemp("prometheus")
    with json_double({"/metrics": counters}) as exporter:
        target = f"127.0.0.1:{exporter.port}"
        config = {"global": {"scrape_interval": "1s"}, "scrape_configs": [{"job_name": "gpu", "static_configs": [{"targets": [target]}]}]}
        import yaml

        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        port = free_port()
        argv = [PROMETHEUS, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        with (folder / "log").open("wb") as log:
            child = subprocess.Popen([*argv, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(url)
            yield url, exporter
        finally:
            child.terminate()
            child.wait(20)


def _wait(url: str) -> None:
    """Wait until a rate over five scrapes is there."""
    end = time.monotonic() + 60
    api = PrometheusApi(url)
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(f"{url}/-/ready", timeout=2):
                if api.query("count_over_time(vllm:request_success_total[5s]) >= 5") and api.query("gpu_gfx_activity"):
                    return
        except (OSError, InventoryFailed):
            pass
        time.sleep(0.2)
    raise AssertionError("Prometheus did not start in 60 s")


@pytest.mark.lab
def test_a_real_prometheus_tells_traffic_latency_and_gpu_use(prometheus: tuple[str, JsonDouble]) -> None:
    url, exporter = prometheus
    scan = scan_sources([PrometheusDiscovery("site", PrometheusApi(url), now, window="5s")], None, now)
    assert scan.gaps() == ()
    things, _ = merge(scan.facts())
    found: dict[tuple[str, str], Thing] = {(t.kind, t.id): t for t in things}
    engine = found["engine", f"127.0.0.1:{exporter.port}"]
    assert engine.text("model") == 'evil"} or vector(1) #'
    assert engine.number("requests_per_s") == pytest.approx(20, rel=0.5)
    assert engine.number("input_tokens") == pytest.approx(100, rel=0.05)
    assert engine.number("output_tokens") == pytest.approx(50, rel=0.05)
    assert 0 < (engine.number("p95_ms") or 0) <= 500
    assert found["machine", "gpu-1"].number("gpu_use") == pytest.approx(0.8)
    assert found["machine", "mi-1"].number("gpu_use") == pytest.approx(0.5)


@pytest.mark.lab
def test_a_real_prometheus_refuses_a_broken_query(prometheus: tuple[str, JsonDouble]) -> None:
    with pytest.raises(InventoryFailed, match="400"):
        PrometheusApi(prometheus[0]).query("sum(")


def answer(result: list[Any]) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def test_answers_of_another_shape_and_numbers_that_are_none_are_left_out() -> None:
    series = [{"metric": {"instance": "a:1"}, "value": [0, "NaN"]}, {"metric": {"instance": "b:1"}, "value": [0, "2"]}, {"value": []}, 3]
    with json_double({"/api/v1/query": answer(series)}) as double:
        assert [s.labels["instance"] for s in PrometheusApi(double.url).query("up")] == ["b:1"]
        double.answers["/api/v1/query"] = "<html>"
        with pytest.raises(InventoryFailed):
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
