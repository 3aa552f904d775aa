"""The collector as a process: real sockets, a router that is made up and says which side answered."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fleetctl.adapters.shadow.files import ShadowFiles
from fleetctl.domain.evidence import Pair
from fleetctl.domain.ids import CellId
from tests.fakes.rollouts import CHAT, SUMMARY

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.lab
Answer = Callable[[str, str, dict[str, Any]], tuple[int, str, object]]
BODY = {"model": "m", "messages": [{"role": "user", "content": "tell a secret"}], "user": "ann", "temperature": 1}


def words(text: str, logprob: float = -0.5) -> object:
    content = [
        {"token": w, "logprob": logprob, "top_logprobs": [{"token": w, "logprob": logprob}, {"token": "other", "logprob": -3.0}]}
        for w in text.split()
    ]
    return {"choices": [{"logprobs": {"content": content}}], "usage": {"prompt_tokens": 20}}


class MadeUpRouter:
    """Answers `/<cell>/v1/...` as `answer(cell, arm, body)` says; keeps what it was asked."""

    def __init__(self, answer: Answer) -> None:
        self.asked: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.answer = answer
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.asked.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                key, _, arm = self.headers.get("x-fleetctl-pin", "").partition(":")
                assert key == "pin-key-1"
                status, server, reply = outer.answer(self.path.split("/")[1], arm, body)
                data = json.dumps(reply).encode()
                self.send_response(status)
                self.send_header("x-fleetctl-server", server)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class Running:
    """A collector that listens."""

    def __init__(self, folder: Path, process: subprocess.Popen[str], port: int) -> None:
        self.folder, self.process, self.port = folder, process, port
        self.shadow = ShadowFiles(folder, lambda c, milli: None)

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, dict[str, Any]]:
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            link.request(method, path, body)
            got = link.getresponse()
            return got.status, json.loads(got.read())
        finally:
            link.close()

    def copy(self, cell: str = CHAT, body: object = BODY) -> int:
        return self.ask("POST", f"/shadow/{cell}", json.dumps(body).encode())[0]

    def counts(self, cell: str = CHAT) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("GET", "/status")[1]["cells"][cell]
        return found

    def pairs(self, count: int, cell: CellId = CHAT) -> tuple[Pair, ...]:
        deadline = time.monotonic() + 15
        while len(found := self.shadow.pairs(cell, None)) < count:
            assert time.monotonic() < deadline, self.ask("GET", "/status")
            time.sleep(0.02)
        return found


@contextlib.contextmanager
def collector(folder: Path, answer: Answer, **config: object) -> Iterator[tuple[Running, MadeUpRouter]]:
    router = MadeUpRouter(answer)
    key = folder / "pin.key"
    key.write_text("pin-key-1\n")
    key.chmod(0o600)
    told = {
        "port": 0,
        "router_url": router.url,
        "pin_key_file": str(key),
        "folder": str(folder),
        "cells": {CHAT: {"streaming": False}, SUMMARY: {"streaming": True}},
        **config,
    }
    (folder / "collector.json").write_text(json.dumps(told))
    process = start(folder)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        yield Running(folder, process, json.loads(line)["port"]), router
    finally:
        process.kill()
        process.communicate()
        router.close()


def start(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "fleetctl.adapters.shadow.collector", "--config", str(folder / "collector.json")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def side_by_side(cell: str, arm: str, body: dict[str, Any]) -> tuple[int, str, object]:
    text = "once upon a time" if arm == "baseline" or cell == CHAT else "once upon my word"
    return 200, f"{arm[0]}1", words(text, -0.5 if arm == "baseline" else -0.6)


def test_copies_are_compared_and_no_text_is_kept(tmp_path: Path) -> None:
    with collector(tmp_path, side_by_side) as (running, router):
        assert running.copy() == 202
        assert running.copy(SUMMARY, {"model": "m", "prompt": "tell a secret"}) == 202
        (same,) = running.pairs(1)
        (other,) = running.pairs(1, SUMMARY)
        assert (same.positions, same.same_top, same.first_divergence, same.class_, same.prompt_len) == (4, 4, None, "chat<64", 20)
        assert same.logprob_delta == pytest.approx(0.1)
        assert (other.positions, other.first_divergence, other.near_tie, other.class_) == (3, 2, False, "completion<64")
        paths = {(path, h["x-fleetctl-pin"]) for path, h, _ in router.asked}
        assert (f"/{CHAT}/v1/chat/completions", "pin-key-1:canary") in paths
        assert (f"/{SUMMARY}/v1/completions", "pin-key-1:baseline") in paths
        assert all(b["temperature"] == 0 and b["max_tokens"] == 16 and "user" not in b for _, _, b in router.asked)
        counts = running.counts()
        assert (counts["received"], counts["queued"], counts["compared"], counts["failed"], counts["waiting"]) == (1, 1, 1, 0, 0)
        kept = tmp_path / "pairs" / f"{CHAT}.jsonl"
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        assert b"secret" not in kept.read_bytes()
        assert b"upon" not in kept.read_bytes()


def test_refusals_and_strangers_are_counted(tmp_path: Path) -> None:
    with collector(tmp_path, side_by_side) as (running, router):
        assert running.copy(body={**BODY, "tools": [{"type": "function"}]}) == 422
        assert running.copy(body={**BODY, "n": 3}) == 422
        assert running.ask("POST", f"/shadow/{CHAT}", b"\xff")[0] == 422
        assert running.copy("no-such-cell") == 404
        assert running.copy("../../etc") == 404
        assert running.ask("GET", "/elsewhere")[0] == 404
        assert running.ask("POST", f"/shadow/{CHAT}", b"x" * 20_000)[0] == 400
        assert running.counts()["refused"] == {"not_json": 1, "several_answers": 1, "tools": 1}
        assert running.ask("GET", "/status")[1]["unknown_cell"] == 2
        assert router.asked == []
        assert not (tmp_path / "pairs").exists()


def test_full_queue_drops_and_counts(tmp_path: Path) -> None:
    gate = threading.Event()

    def slow(cell: str, arm: str, body: dict[str, Any]) -> tuple[int, str, object]:
        gate.wait(20)
        return side_by_side(cell, arm, body)

    with collector(tmp_path, slow, queue=2) as (running, _):
        statuses = [running.copy() for _ in range(8)]
        gate.set()
        assert sorted(set(statuses)) == [202, 429]
        counts = running.counts()
        assert counts["queued"] + counts["dropped"] == counts["received"] == 8
        assert counts["dropped"] >= 5
        assert len(running.pairs(counts["queued"])) == counts["queued"]


def test_copies_cost_no_more_tokens_an_hour_than_they_may(tmp_path: Path) -> None:
    with collector(tmp_path, side_by_side, tokens_per_hour=100) as (running, router):  # a comparison costs 2 x (20 + 4)
        for n in range(1, 4):
            assert running.copy() == 202
            running.pairs(n)
        assert [running.copy() for _ in range(3)] == [429] * 3
        assert running.copy(SUMMARY, {"model": "m", "prompt": "another cell"}) == 202, "each cell has its own"
        counts = running.counts()
        assert (counts["compared"], counts["tokens"], counts["over_budget"]) == (3, 144, 3)
        assert len([path for path, _, _ in router.asked if CHAT in path]) == 6


@pytest.mark.parametrize(
    ("canary", "error"),
    [
        ((500, "c1", {}), "canary: status 500"),
        ((200, "b1", words("once upon")), "canary: answered by the other side"),
        ((200, "", words("once upon")), "canary: answered by nobody who names himself"),
        ((200, "c1", {"choices": [{"text": "once"}]}), "canary: no log-probabilities"),
        ((200, "c1", {"choices": [{"logprobs": {"content": []}}]}), "canary: an empty answer"),
        ((200, "c1", words("once", float("nan"))), "canary: no log-probabilities"),
    ],
)
def test_side_that_fails_is_named_in_the_pair(tmp_path: Path, canary: tuple[int, str, object], error: str) -> None:
    def answer(cell: str, arm: str, body: dict[str, Any]) -> tuple[int, str, object]:
        return side_by_side(cell, arm, body) if arm == "baseline" else canary

    with collector(tmp_path, answer) as (running, _):
        running.copy()
        (pair,) = running.pairs(1)
        assert (pair.error, pair.positions) == (error, 0)
        assert running.counts()["failed"] == 1


def test_side_that_hangs_or_is_gone_holds_up_nobody_for_long(tmp_path: Path) -> None:
    gate = threading.Event()

    def answer(cell: str, arm: str, body: dict[str, Any]) -> tuple[int, str, object]:
        if arm == "canary":
            gate.wait(20)
        return side_by_side(cell, arm, body)

    with collector(tmp_path, answer, timeout_s=0.3) as (running, router):
        running.copy()
        assert running.pairs(1)[0].error == "canary: no answer in 0.3 s"
        gate.set()
        router.close()
        running.copy()
        assert running.pairs(2)[1].error.startswith("baseline: ConnectionRefusedError")


def test_collector_started_again_ends_a_half_written_line(tmp_path: Path) -> None:
    (tmp_path / "pairs").mkdir()
    (tmp_path / "pairs" / f"{CHAT}.jsonl").write_bytes(b'{"_":"Pair","at":"2026')
    with collector(tmp_path, side_by_side) as (running, _):
        running.copy()
        assert len(running.pairs(1)) == 1
        assert running.shadow.unreadable(CHAT) == 1


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_collector_ends_when_told(tmp_path: Path, sig: signal.Signals) -> None:
    with collector(tmp_path, side_by_side) as (running, _):
        running.process.send_signal(sig)
        assert running.process.wait(timeout=10) == 0


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"extra": 1}, "config.shadow"),
        ({"port": -1}, "config.shadow"),
        ({"router_url": "ftp://x"}, "config.shadow"),
        ({"cells": {"../x": {}}}, "config.shadow"),
        ({"router_url": "http://router.eu.example.com:8080"}, "config.shadow"),
        ({"router_url": "http://10.1.2.3:8080"}, "config.shadow"),
        ({"tokens_per_hour": -1}, "config.shadow"),
        ({"pin_key_file": "/nonexistent"}, "credentials.missing"),
    ],
)
def test_bad_configuration_is_one_clear_error(tmp_path: Path, change: dict[str, object], code: str) -> None:
    told = {"port": 0, "router_url": "http://127.0.0.1:1", "pin_key_file": str(tmp_path / "key"), "folder": str(tmp_path), "cells": {}}
    (tmp_path / "key").write_text("k")
    os.chmod(tmp_path / "key", 0o600)
    (tmp_path / "collector.json").write_text(json.dumps({**told, **change}))
    process = start(tmp_path)
    out, err = process.communicate(timeout=30)
    assert out == ""
    assert err.startswith(f"error[{code}]: ")
    assert process.returncode in (2, 4)
    assert len(err.splitlines()) == 1
