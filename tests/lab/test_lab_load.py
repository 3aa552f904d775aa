"""The load as a real process against a server that counts."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fleetctl.errors import ConfigInvalid
from fleetctl.lab.load import CellLoad, LoadConfig, answer_text
from fleetctl.lab.service import start, stop
from fleetctl.lab.units import python_env, write_unit
from tests.lab.lab_tools import PYTHON, until

pytestmark = pytest.mark.lab


class Seen(BaseHTTPRequestHandler):
    """Keeps what it is asked; answers by the cell's name."""

    protocol_version = "HTTP/1.1"
    asked: ClassVar[list[tuple[str, str, dict[str, Any]]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.asked.append((self.path, self.headers.get("x-conversation-id", ""), body))
        if self.path.startswith("/bad-lab"):
            self.answer(503, b"{}")
        elif body.get("stream"):
            one = b'data: {"choices":[{"delta":{"content":" streamed"}}]}\n\n'
            last = b'data: {"choices":[],"usage":{}}\n\ndata: [DONE]\n\n'
            self.send_response(200)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for part in (one, one, last):
                self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.answer(200, json.dumps({"choices": [{"message": {"content": " said"}}]}).encode())

    def answer(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        return


@contextmanager
def counting() -> Iterator[int]:
    Seen.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Seen)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def loading(folder: Path, config: LoadConfig, *more: str) -> Iterator[None]:
    (folder / "cfg.json").write_text(config.to_json())
    argv = [PYTHON, "-m", "fleetctl.lab.load", "--config", str(folder / "cfg.json"), *more]
    write_unit(folder, "load", {"argv": argv, "env": python_env(), "config": {"ready_file": str(config.stats)}})
    try:
        started = start(folder, "load")
        assert started.state == "running", started
        yield
    finally:
        stop(folder, "load")


def stats(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_bytes()))


def test_conversations_grow_within_their_bound_and_errors_have_a_kind(tmp_path: Path) -> None:
    path = tmp_path / "stats.json"
    with counting() as port:
        cells = (
            CellLoad(cell="chat-lab", rate_per_s=60, model="m", most_chars=400),
            CellLoad(cell="stream-lab", rate_per_s=20, model="m", is_stream=True),
            CellLoad(cell="bad-lab", rate_per_s=10, model="m"),
        )
        with loading(tmp_path, LoadConfig(port=port, stats=path, cells=cells)):
            until(lambda: stats(path)["cells"]["chat-lab"]["ok"] > 150, "150 answers")
        asked = list(Seen.asked)
    found = stats(path)["cells"]
    assert found["chat-lab"]["errors"] == {}
    assert found["chat-lab"]["sent"] == found["chat-lab"]["ok"] == sum(p.startswith("/chat-lab/") for p, _, _ in asked)
    assert found["chat-lab"]["p50_ms"] <= found["chat-lab"]["p95_ms"] < 1000
    assert found["stream-lab"]["ttft_p50_ms"] <= found["stream-lab"]["p50_ms"]
    assert set(found["bad-lab"]["errors"]) == {"status_503"}
    assert found["bad-lab"]["ok"] == 0
    assert stats(path)["client_errors"] == found["bad-lab"]["errors"]["status_503"] == found["bad-lab"]["sent"]
    chat = [(key, b) for p, key, b in asked if p == "/chat-lab/v1/chat/completions"]
    assert all(b["max_tokens"] <= 16 for _, b in chat)
    assert all(sum(len(m["content"]) for m in b["messages"]) <= 500 for _, b in chat)
    grown = [b["messages"] for _, b in chat if len(b["messages"]) > 1]
    assert len(grown) > 20
    assert all([m["role"] for m in g] == ["user", "assistant"] * (len(g) // 2) + ["user"] for g in grown)
    keys = {key for key, _ in chat}
    assert "" not in keys
    assert 10 < len(keys) < len(chat)


def test_the_load_is_open_and_keeps_its_rate(tmp_path: Path) -> None:
    path = tmp_path / "stats.json"
    cells = (CellLoad(cell="chat-lab", rate_per_s=100, model="m"),)
    with counting() as port, loading(tmp_path, LoadConfig(port=port, stats=path, cells=cells)):
        until(lambda: stats(path)["cells"]["chat-lab"]["sent"] > 20, "a first count")
        first = stats(path)
        until(lambda: stats(path)["at"] >= first["at"] + 3, "three seconds")
        second = stats(path)
    rate = (second["cells"]["chat-lab"]["sent"] - first["cells"]["chat-lab"]["sent"]) / (second["at"] - first["at"])
    assert 65 < rate < 140


def test_a_trace_sets_the_answers_lengths(tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.1,374,3\n2023-11-16 18:15:47.1,396,3\n")
    path = tmp_path / "stats.json"
    with counting() as port:
        config = LoadConfig(port=port, stats=path, cells=(CellLoad(cell="chat-lab", rate_per_s=50, model="m"),))
        with loading(tmp_path, config, "--trace", str(trace)):
            until(lambda: len(Seen.asked) > 10, "requests")
        assert {b["max_tokens"] for _, _, b in Seen.asked} == {3}


def test_nobody_there_is_an_error_of_its_kind(tmp_path: Path) -> None:
    path = tmp_path / "stats.json"
    with loading(tmp_path, LoadConfig(port=1, stats=path, cells=(CellLoad(cell="chat-lab", rate_per_s=20, model="m"),))):
        until(lambda: stats(path)["client_errors"] > 3, "errors")
    assert set(stats(path)["cells"]["chat-lab"]["errors"]) == {"connect"}
    assert "chat-lab connect" in (tmp_path / "load.log").read_text()


def test_a_config_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "load.json"
    for text in ("{}", "[]", '{"cells": [{"cell": "../x", "rate_per_s": 1, "model": "m"}], "port": 1, "stats": "s"}'):
        path.write_text(text)
        with pytest.raises(ConfigInvalid, match="cannot be used"):
            LoadConfig.read(path)


def test_the_text_of_an_answer() -> None:
    assert answer_text(b'{"choices":[{"message":{"content":"a"}}]}', is_stream=False) == "a"
    assert answer_text(b'data: {"choices":[{"delta":{"content":"a"}}]}\n\ndata: {"choices":[]}\n\n', is_stream=True) == "a"
    for body in (b"", b"[]", b'{"choices":[]}', b"<html>"):
        assert answer_text(body, is_stream=False) is None
