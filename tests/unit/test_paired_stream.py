"""One streamed completion against servers that behave and servers that do not: each is an answer, and none is an exception."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fleetctl.adapters.paired.prompts import LENGTHS, body_of, built_in, pick, read_prompts
from fleetctl.adapters.paired.runner import record_of
from fleetctl.adapters.paired.stream import Answer, Side, ask
from fleetctl.domain.ids import CellId
from fleetctl.errors import ConfigInvalid

OK = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-fleetctl-server: c1\r\nconnection: close\r\n\r\n"


def event(**more: object) -> bytes:
    return b"data: " + json.dumps(more).encode() + b"\n\n"


def token(text: str, logprob: float = -0.5, finish: str | None = None) -> bytes:
    content = [{"token": text, "logprob": logprob}]
    return event(choices=[{"index": 0, "delta": {"content": text}, "logprobs": {"content": content}, "finish_reason": finish}])


DONE = b"data: [DONE]\n\n"
USAGE = event(choices=[], usage={"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}})


@contextmanager
def server(answer: bytes) -> Iterator[int]:
    """Answer one connection with these bytes, then close it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            link, _ = listening.accept()
            with link, link.makefile("rb") as request:
                length = 0
                while (line := request.readline().strip().lower()) != b"":
                    length = int(line.removeprefix(b"content-length:")) if line.startswith(b"content-length:") else length
                request.read(length)  # what is left unread would be answered with a reset
                link.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(5)


def asked(answer: bytes, **side: str) -> Answer:
    with server(answer) as port:
        return ask(Side(host="127.0.0.1", port=port, **side), {"prompt": "x"}, "chat", limit_s=3)  # type: ignore[arg-type]


def test_a_whole_stream_is_timed_and_counted() -> None:
    a = asked(
        OK + token("a") + token("b", -1.5) + token("c", -1.0, "stop") + USAGE + DONE, server_header="x-fleetctl-server", server_starts="c"
    )
    assert (a.failed, a.why, a.tokens, a.finish) == (False, "", 3, "stop")
    assert (a.prompt_tokens, a.cached_tokens) == (7, 2)
    r = record_of(a, CellId("chat"), "canary", 5)
    assert r.nll == pytest.approx(1.0)
    assert (r.failed, r.output_tokens, r.pair) == (False, 3, 5)
    assert r.ttft_ms is not None
    assert 0 <= r.ttft_ms <= (r.latency_ms or 0.0)


@pytest.mark.parametrize(
    ("answer", "why", "fault"),
    [
        (b"HTTP/1.1 503 no\r\ncontent-length: 0\r\n\r\n", "status 503", ""),
        (b"HTTP/1.1 500 no\r\nconnection: close\r\n\r\nHIP error: invalid device function", "status 500", "no_kernel_image"),
        (b"HTTP/1.1 400 no\r\nconnection: close\r\n\r\nnot text: 'I get HIP error: invalid device function'", "status 400", ""),
        (OK + token("a"), "the stream was cut", ""),
        (OK + DONE, "no token", ""),
        (OK + event(error={"message": "Memory access fault by GPU node-2"}), "an error in the stream", "memory_access_fault"),
        (OK + event(error={"message": "too busy"}), "an error in the stream", "unclassified"),
        (OK + b"data: {nope\n\n", "JSONDecodeError", ""),
        (OK + b"data: " + b"[" * 200_000 + b"\n\n", "RecursionError", ""),
        (OK + b"data: []\n\n" + DONE, "no token", ""),
        (b"garbage\r\n\r\n", "BadStatusLine", ""),
        (b"", "RemoteDisconnected", ""),
    ],
)
def test_what_goes_wrong_is_a_failed_answer_with_its_reason(answer: bytes, why: str, fault: str) -> None:
    a = asked(answer)
    assert (a.failed, a.why, a.fault) == (True, why, fault)
    r = record_of(a, CellId("chat"), "canary", 1)
    assert (r.failed, r.ttft_ms is None, r.nll, r.output_tokens) == (True, a.first_s is None, None, -1)
    assert (a.first_s is not None) is (why == "the stream was cut"), "only one that has a first token is not slow to the first token"
    assert r.fault == ("" if fault == "unclassified" else fault)


def test_a_server_of_the_other_arm_is_a_failure_of_this_one() -> None:
    a = asked(OK.replace(b"c1", b"b1") + token("a") + DONE, server_header="x-fleetctl-server", server_starts="c")
    assert (a.failed, a.why) == (True, "a server of the other arm answered")


def test_nobody_there_is_a_failure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    assert ask(Side(host="127.0.0.1", port=port), {}, "chat", limit_s=1).why == "ConnectionRefusedError"


def test_prompts_take_turns_by_length_and_no_pair_shares_a_beginning() -> None:
    lengths = [len(built_in(1, i).split()) for i in range(6)]
    assert lengths[:3] == lengths[3:]
    assert sorted(lengths[:3]) == lengths[:3]
    assert lengths[2] - lengths[0] == LENGTHS[2] - LENGTHS[0]
    assert built_in(1, 4) == built_in(1, 4) != built_in(2, 4)
    assert pick(("tell me",), 1, 0) != pick(("tell me",), 1, 1)


@pytest.mark.parametrize("text", ["", "nope\n", "{}\n", '{"prompt": ""}\n', '{"prompt": 5}\n', "[]\n"])
def test_a_bad_file_of_prompts_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigInvalid) as e:
        read_prompts(path)
    assert e.value.code == "config.prompts"


def test_a_good_file_of_prompts_is_read(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "one"}\n\n{"prompt": "two"}\n')
    assert read_prompts(path) == ("one", "two")


def test_bodies_ask_for_usage_and_logprobs_in_either_api() -> None:
    chat = body_of("x", "chat", model="m", max_tokens=4, logprobs=True)
    assert (chat["logprobs"], chat["temperature"], chat["stream_options"]) == (True, 0, {"include_usage": True})
    assert body_of("x", "completions", model="m", max_tokens=4, logprobs=True)["prompt"] == "x"
    assert "logprobs" not in body_of("x", "chat", model="m", max_tokens=4, logprobs=False)
