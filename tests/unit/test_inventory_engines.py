"""Running servers by their own APIs: each engine is known, what it says is taken, and a hostile or silent one harms nothing."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from fleetctl.adapters.engines.discovery import EngineDiscovery
from fleetctl.adapters.engines.exposition import engine_of, sums
from fleetctl.adapters.engines.wire import Server, Silent, engine_id
from fleetctl.domain.people import Facts, Gap
from tests.fakes.json_double import json_double

STARTED = f"process_start_time_seconds {time.time() - 1000}\n"
VLLM = (
    "# HELP vllm:num_requests_running x\n"
    'vllm:num_requests_running{model_name="m",engine="0"} 3.0\nvllm:num_requests_running{model_name="m",engine="1"} 2.0\n'
    'vllm:num_requests_waiting{model_name="m",engine="0"} 1.0\n'
    'vllm:request_success_total{model_name="m",finished_reason="stop"} 900.0\n'
    'vllm:request_success_total{model_name="m",finished_reason="length"} 100.0\n'
    'vllm:prompt_tokens_total{model_name="m"} 512000.0\nvllm:generation_tokens_total{model_name="m"} 128000.0\n' + STARTED
)
MODELS = {
    "data": [{"id": "m", "root": "meta/Llama-3", "max_model_len": 8192}, {"id": "lora-a", "parent": "m"}, {"id": "lora-b", "parent": "m"}]
}
SERVERS: dict[str, tuple[dict[str, Any], dict[str, object]]] = {
    "vllm": (
        {"/metrics": VLLM, "/v1/models": MODELS, "/version": {"version": "0.11.0"}},
        {
            "software": "vllm",
            "model": "meta/Llama-3",
            "adapters": "lora-a lora-b",
            "engine_version": "0.11.0",
            "context_tokens": 8192,
            "running": 5,
            "waiting": 1,
            "input_tokens": 512.0,
            "output_tokens": 128.0,
        },
    ),
    "sglang": (
        {
            "/metrics": "sglang:num_running_reqs 1\n",
            "/get_model_info": {"model_path": "org/q"},
            "/get_server_info": {"version": "0.5.5"},
            "/v1/models": {"data": [{"id": "q", "max_model_len": 4096}]},
        },
        {"software": "sglang", "model": "org/q", "engine_version": "0.5.5", "context_tokens": 4096, "running": 1},
    ),
    "tgi": (
        {"/metrics": (404, "no"), "/info": {"model_id": "org/t", "version": "3.3.7", "max_total_tokens": 2048, "model_dtype": "bf16"}},
        {"software": "tgi", "model": "org/t", "engine_version": "3.3.7", "context_tokens": 2048, "precision": "bf16"},
    ),
    "triton": (
        {
            "/metrics": 'nv_inference_request_success{model="a",version="1"} 4\n',
            "/v2": {"version": "2.71.0", "extensions": []},
            "POST /v2/repository/index": [{"name": "b", "state": "READY"}, {"name": "a"}, {"name": "c", "state": "UNAVAILABLE"}],
        },
        {"software": "triton", "model": "a b", "engine_version": "2.71.0"},
    ),
    "llama.cpp": (
        {
            "/metrics": "llamacpp:requests_processing 2\n",
            "/props": {"model_path": "/models/x.gguf", "build_info": "b7000", "default_generation_settings": {"n_ctx": 4096}},
            "/v1/models": {"data": [{"id": "x"}]},
        },
        {"software": "llama.cpp", "model": "x.gguf", "engine_version": "b7000", "context_tokens": 4096, "running": 2},
    ),
}


def look(url: str, **options: Any) -> Facts | Gap:
    (found,) = EngineDiscovery("site", (url,), lambda: datetime.now(UTC), **options).scan("")
    return found


@pytest.mark.parametrize("engine", list(SERVERS))
def test_each_engine_says_what_it_serves(engine: str) -> None:
    answers, expected = SERVERS[engine]
    with json_double(answers) as double:
        found = look(double.url, key=lambda: "k")
        assert isinstance(found, Facts)
        assert {k: found.values.get(k) for k in expected} == expected
        assert found.values["engine"] == f"127.0.0.1:{double.port}"
        assert all(h["Authorization"] == "Bearer k" for h in double.headers)
        assert not any("completions" in path for _, path, _ in double.asked)
    if engine == "vllm":
        rate = found.values["requests_per_s"]  # one request between two looks that are at least a second apart, more on a busy machine
        assert isinstance(rate, float)
        assert 0.0 < rate <= 1.1


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"/metrics": "hello"},
        {"/metrics": "node_cpu 1", "/v1/models": "<html>"},
        {"/metrics": "x" * 100, "/info": [1, 2], "/props": "null", "/v1/models": {"data": [1, None, "x"]}},
    ],
)
def test_what_is_no_engine_is_a_gap(answers: dict[str, Any]) -> None:
    with json_double(answers) as double:
        found = look(double.url)
    assert isinstance(found, Gap)
    assert "no inference server" in found.reason


def test_lies_do_not_break_the_scan() -> None:
    page = 'vllm:num_requests_running{model_name="a\\"}b"} NaN\nvllm:prompt_tokens_total -5\nvllm:request_success_total 1e999\n}{\n\x00'
    answers = {"/metrics": page, "/v1/models": {"data": [{"id": ["x"], "max_model_len": "long"}]}, "/version": {"version": {"a": 1}}}
    with json_double(answers) as double:
        found, gap = EngineDiscovery("site", (double.url,), lambda: datetime.now(UTC)).scan("")
    assert isinstance(found, Facts)
    assert set(found.values) == {"engine", "address", "software"}
    assert isinstance(gap, Gap)


NO_NAMES: tuple[object, ...] = (None, 7, True, [], ["m"], {}, {"x": "m"}, "")
NO_LENGTHS = (None, True, False, -1, 0, 1.5, "8192", [8192], 10**30)
ODD: dict[str, Callable[[object, object], dict[str, Any]]] = {
    "vllm": lambda name, length: {
        "/metrics": "vllm:num_requests_running 1\n",
        "/v1/models": {"data": [{"id": name, "root": name, "max_model_len": length}, None, {"id": name, "parent": "m"}, name]},
        "/version": {"version": name},
    },
    "sglang": lambda name, length: {
        "/metrics": "sglang:num_running_reqs 1\n",
        "/get_model_info": {"model_path": name},
        "/get_server_info": {"version": name},
        "/v1/models": {"data": [{"id": name, "max_model_len": length, "owned_by": name}]},
    },
    "tgi": lambda name, length: {"/info": {"model_id": name, "version": name, "max_total_tokens": length, "model_dtype": name}},
    "triton": lambda name, length: {
        "/metrics": "nv_inference_request_success 4\n",
        "/v2": {"version": name, "extensions": name},
        "POST /v2/repository/index": [{"name": name, "version": length}, name],
    },
    "llama.cpp": lambda name, length: {
        "/metrics": "llamacpp:requests_processing 2\n",
        "/props": {"model_path": name, "build_info": name, "default_generation_settings": {"n_ctx": length}},
        "/v1/models": {"data": [{"id": name, "owned_by": name}]},
    },
}


@pytest.mark.parametrize("engine", list(ODD))
def test_no_odd_answer_becomes_a_name_or_a_length(engine: str) -> None:
    for name, length in zip((*NO_NAMES, None), NO_LENGTHS, strict=True):
        with json_double(ODD[engine](name, length)) as double:
            facts, gap = EngineDiscovery("e", (double.url,), lambda: datetime.now(UTC)).scan("")
        assert isinstance(facts, Facts)
        assert isinstance(gap, Gap)
        assert {"model", "served_as", "adapters", "engine_version", "precision", "context_tokens"}.isdisjoint(facts.values), facts.values
        assert (gap.code, f"{engine} answers, but does not say which model" in gap.reason) == ("inventory.engine", True)


def test_a_list_with_an_entry_without_a_name_tells_the_others() -> None:
    data = [{"id": None}, {"id": "m", "root": None, "parent": None}, {"id": None, "parent": "m"}, {"id": "a", "parent": "m"}]
    with json_double({"/metrics": "vllm:num_requests_running 1\n", "/v1/models": {"data": data}}) as double:
        found = look(double.url)
    assert isinstance(found, Facts)
    assert [found.values.get(k) for k in ("model", "served_as", "adapters")] == ["m", "m", "a"]


def test_counts_that_no_server_can_have_are_left_out() -> None:
    page = "vllm:num_requests_running 1e308\nvllm:num_requests_running 1e308\nvllm:request_success_total 3e15\nvllm:prompt_tokens_total 7\n"
    with json_double({"/metrics": page, "/v1/models": {"data": [{"id": "m"}]}}) as double:
        found = look(double.url)
    assert isinstance(found, Facts)
    assert not {"running", "requests_per_s"} & set(found.values)


@pytest.mark.parametrize("said", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n"], ids=["headers", "body"])
def test_a_server_that_drips_is_cut_off(said: bytes) -> None:
    ended = threading.Event()

    def drip(listener: socket.socket) -> None:
        link, _ = listener.accept()
        with link, contextlib.suppress(OSError):
            link.sendall(said)
            while not ended.wait(0.05):
                link.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip, args=(listener,), daemon=True)
        thread.start()
        server = Server(f"127.0.0.1:{listener.getsockname()[1]}", deadline_s=0.5)
        with pytest.raises(Silent, match=r"in time|too slow"):
            server.get("/metrics")
        ended.set()
        thread.join(10)
    assert not thread.is_alive()


def test_a_silent_or_impossible_address_is_a_gap() -> None:
    for url in ("127.0.0.1:9", "ftp://x", "http://u:p@h", "http://a b"):
        found = look(url)
        assert isinstance(found, Gap)
        assert found.code == "inventory.engine"


def test_a_redirect_is_not_followed() -> None:
    with json_double({"/metrics": (302, "", {"Location": "http://127.0.0.1:9/metrics"})}) as double:
        assert isinstance(look(double.url), Gap)


def test_names_and_pages() -> None:
    assert engine_id("http://[::1]:8000/v1") == "[::1]:8000"
    assert engine_id("gpu-1:8000") == "gpu-1:8000"
    assert engine_id("https://gpu-1") == "gpu-1:443"
    assert engine_of("# TYPE tgi_queue_size gauge\n") == "tgi"
    assert sums('vllm:num_requests_running{model_name="a"} 1 1700000000\nvllm:num_requests_running{model_name="b"} 1\n', "vllm") == (
        {"running": 2.0},
        "",
    )


@pytest.mark.parametrize("status", [401, 403])
def test_a_server_that_wants_a_key_is_a_credential_that_is_missing(status: int) -> None:
    no = (status, "who are you?")
    with json_double({"/metrics": VLLM, "/v1/models": no, "/version": no}) as double:
        gap, facts = list(EngineDiscovery("e", (double.url,), lambda: datetime.now(UTC)).scan(""))
    assert isinstance(facts, Facts)
    assert (facts.values["model"], facts.values["software"]) == ("m", "vllm")
    assert isinstance(gap, Gap)
    assert (gap.code, str(status) in gap.reason, "secrets.key" in gap.mend) == ("credentials.engine", True, True)
    with json_double(dict.fromkeys(("/metrics", "/info", "/v1/models", "/props", "/v2", "/get_model_info"), no)) as double:
        (gap,) = list(EngineDiscovery("e", (double.url,), lambda: datetime.now(UTC)).scan(""))
    assert isinstance(gap, Gap)
    assert gap.code == "credentials.engine"
