"""The emulated engine as a real process: API, streaming, cache, faults."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.lab.faults import write_faults
from fleetctl.lab.service import process_of, status
from tests.lab.lab_tools import ask, complete, engine, until

pytestmark = pytest.mark.lab
CHAT = "/v1/chat/completions"
TALK = {"messages": [{"role": "user", "content": "say something"}], "max_tokens": 5, "temperature": 0}


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with engine(tmp_path_factory.mktemp("engine")) as p:
        yield p


def test_it_says_that_it_is_emulated(port: int) -> None:
    code, body, headers = ask(port, "GET", "/v1/models")
    assert code == 200
    assert json.loads(body)["data"][0]["emulated"] is True
    assert headers["x-emulated"] == "1"
    assert ask(port, "GET", "/health")[0] == 200


def test_answers_are_the_same_at_temperature_zero(port: int) -> None:
    first, again, other = complete(port), complete(port), complete(port, prompt="another question")
    text = first[1]["choices"][0]["text"]
    assert first[0] == 200
    assert text == again[1]["choices"][0]["text"] != other[1]["choices"][0]["text"]
    assert first[1]["usage"] == {
        "prompt_tokens": 2,
        "completion_tokens": 4,
        "total_tokens": 6,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    assert len(text.split()) == 4
    assert first[1]["choices"][0]["logprobs"] is None


def test_a_stream_says_the_same_and_ends_in_usage(port: int) -> None:
    plain = json.loads(ask(port, "POST", CHAT, TALK)[1])
    code, body, headers = ask(port, "POST", CHAT, {**TALK, "stream": True})
    assert code == 200
    assert headers["content-type"].startswith("text/event-stream")
    events = [line[6:] for line in body.decode().split("\n") if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    parsed = [json.loads(e) for e in events[:-1]]
    assert len(parsed) == 6
    assert "".join(p["choices"][0]["delta"]["content"] for p in parsed[:-1]) == plain["choices"][0]["message"]["content"]
    assert [p["choices"][0]["finish_reason"] for p in parsed[:-1]] == [None] * 4 + ["length"]
    assert parsed[-1]["usage"] == plain["usage"]
    assert parsed[-1]["choices"] == []


def test_log_probabilities_are_there_when_asked_for(port: int) -> None:
    chat = json.loads(ask(port, "POST", CHAT, {**TALK, "logprobs": True, "top_logprobs": 3})[1])
    content = chat["choices"][0]["logprobs"]["content"]
    assert len(content) == 5
    assert "".join(c["token"] for c in content) == chat["choices"][0]["message"]["content"]
    assert all(len(c["top_logprobs"]) == 3 and c["top_logprobs"][0]["token"] == c["token"] for c in content)
    plain = complete(port, logprobs=2)[1]["choices"][0]
    assert "".join(plain["logprobs"]["tokens"]) == plain["text"]
    assert [len(t) for t in plain["logprobs"]["top_logprobs"]] == [2] * 4


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {"max_tokens": 2},
        {"prompt": ""},
        {"prompt": "x", "max_tokens": 0},
        {"prompt": "x", "temperature": -1},
        {"prompt": "x", "logprobs": 99},
    ],
)
def test_what_is_no_request_is_refused(port: int, body: object) -> None:
    code, answer, _ = ask(port, "POST", "/v1/completions", body)
    assert code == 400
    assert json.loads(answer)["error"]["type"] == "invalid_request_error"


def test_other_paths_and_methods(port: int) -> None:
    assert ask(port, "GET", "/v1/nothing")[0] == 404
    assert ask(port, "DELETE", "/v1/completions")[0] == 405


def test_a_conversation_finds_its_prefix(port: int) -> None:
    long = "word " * 100
    talk = [{"role": "user", "content": long}]
    seen = []
    for _ in range(2):
        body = {"messages": talk, "max_tokens": 2, "temperature": 0}
        answer = json.loads(ask(port, "POST", CHAT, body, {"x-conversation-id": "abc"})[1])
        seen.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
        talk = [*talk, {"role": "assistant", "content": answer["choices"][0]["message"]["content"]}, {"role": "user", "content": "more"}]
    assert seen[0] == 0
    assert seen[1] >= 112
    assert b'vllm:prompt_tokens_cached_total{model_name="m",engine="0"}' in ask(port, "GET", "/metrics")[1]


def test_bytes_that_come_in_pieces_chunks_and_one_after_the_other(port: int) -> None:
    body = json.dumps({"prompt": "x", "max_tokens": 1}).encode()
    plain = b"POST /v1/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    head = b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\nconnection: close\r\n\r\n"
    chunked = head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    with socket.create_connection(("127.0.0.1", port), timeout=5) as s:
        whole = plain + chunked
        for at in range(0, len(whole), 7):
            s.sendall(whole[at : at + 7])
        got = b""
        while data := s.recv(65536):
            got += data
    assert got.count(b"HTTP/1.1 200 OK") == 2
    assert got.count(b'"finish_reason":"length"') == 2


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\ncontent-length: x\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\ncontent-length: 9999999\r\n\r\n", b"413"),
        (b"GET / HTTP/1.1\r\na: " + b"x" * 17000, b"431"),
    ],
)
def test_what_is_no_http_is_refused(port: int, sent: bytes, code: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as s:
        s.sendall(sent)
        assert s.recv(100).startswith(b"HTTP/1.1 " + code)


def test_latency_is_what_was_configured(tmp_path: Path) -> None:
    with engine(tmp_path, ttft_ms=100, token_ms=20) as p:
        began = time.monotonic()
        assert complete(p)[0] == 200
        assert 0.18 <= time.monotonic() - began < 0.6


def test_faults_come_and_go_while_it_runs(tmp_path: Path) -> None:
    faults = tmp_path / "chat-lab-b1.faults.json"
    with engine(tmp_path) as p:
        right = complete(p)[1]["choices"][0]["text"]
        write_faults(faults, {"errors": {"ratio": 1.0}, "metrics": {"state": "gone"}})
        until(lambda: complete(p)[0] == 500, "errors")
        assert ask(p, "GET", "/metrics")[0] == 404
        write_faults(faults, {"wrong_tokens": {"ratio": 1.0}, "metrics": {"state": "nan"}})
        until(lambda: complete(p)[0] == 200, "no errors")
        wrong = complete(p)[1]["choices"][0]["text"]
        assert all(a != b for a, b in zip(right.split(), wrong.split(), strict=True))
        assert b'vllm:num_requests_running{model_name="m",engine="0"} NaN' in ask(p, "GET", "/metrics")[1]
        write_faults(faults, {"latency": {"factor": 100.0}})
        until(lambda: complete(p)[1]["choices"][0]["text"] == right, "right tokens")
        began = time.monotonic()
        complete(p)
        assert time.monotonic() - began > 0.25
        write_faults(faults, {"slow_start": {"seconds": 600}})
        until(lambda: ask(p, "GET", "/health")[0] == 503, "starting")
        assert complete(p)[0] == 503
        write_faults(faults, {})
        until(lambda: complete(p)[0] == 200, "no fault")
        assert ask(p, "GET", "/health")[0] == 200


def test_a_hang_answers_no_completion_but_health(tmp_path: Path) -> None:
    with engine(tmp_path) as p:
        write_faults(tmp_path / "chat-lab-b1.faults.json", {"hang": {}})
        body = b'{"prompt":"x"}'

        def hangs() -> bool:
            with socket.create_connection(("127.0.0.1", p), timeout=0.3) as s:
                s.sendall(b"POST /v1/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
                try:
                    return not s.recv(1)
                except TimeoutError:
                    return True

        until(hangs, "hang")
        assert ask(p, "GET", "/health")[0] == 200
        until(lambda: b'running{model_name="m",engine="0"} 0.0' in ask(p, "GET", "/metrics")[1], "clients that left are forgotten")


def test_a_crash_ends_the_process_also_after_a_restart(tmp_path: Path) -> None:
    from fleetctl.lab.service import start

    with engine(tmp_path):
        write_faults(tmp_path / "chat-lab-b1.faults.json", {"crash": {}})
        until(lambda: process_of(tmp_path, "chat-lab-b1") is None, "crash")
        assert status(tmp_path, "chat-lab-b1").state == "stopped"
        assert (again := start(tmp_path, "chat-lab-b1")).state == "failed"
        assert "fault crash" in again.log[-1]
        write_faults(tmp_path / "chat-lab-b1.faults.json", {})
        assert start(tmp_path, "chat-lab-b1").changed


def test_a_stop_lets_an_answer_end(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from fleetctl.lab.service import stop

    with engine(tmp_path, ttft_ms=800) as p, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(complete, p)
        until(lambda: b'running{model_name="m",engine="0"} 1.0' in ask(p, "GET", "/metrics")[1], "a request in flight")
        assert stop(tmp_path, "chat-lab-b1").changed
        assert answer.result()[0] == 200
