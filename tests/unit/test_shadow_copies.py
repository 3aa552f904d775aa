"""What the collector sends again, what it refuses, and which answers it can read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fleetctl.adapters.shadow.copies import class_of, make_copy, read_choices
from fleetctl.formats.request_copy import Refused

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
TEXT: dict[str, Any] = {"model": "m", "prompt": "hi"}


def copied(body: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(make_copy(json.dumps(body).encode()).body)
    return found


def test_chat_copy_is_greedy_short_and_bare() -> None:
    hostile = {
        **CHAT,
        "temperature": 1.3,
        "top_p": 0.1,
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_completion_tokens": 4000,
        "user": "ann@example.com",
        "metadata": {"api_key": "sk-1"},
        "store": True,
        "api_key": "sk-2",
        "stop": ["\n"],
        "tools": [],
        "n": 1,
    }
    assert copied(hostile) == {
        **CHAT,
        "stop": ["\n"],
        "temperature": 0,
        "max_tokens": 16,
        "stream": False,
        "logprobs": True,
        "top_logprobs": 5,
    }
    assert make_copy(json.dumps(CHAT).encode()).path == "chat/completions"


def test_of_a_message_only_its_role_and_its_text_are_sent_again() -> None:
    parts = [{"type": "text", "text": "x", "image_url": {"url": "http://elsewhere/x.png"}, "cache_control": {}}, "y"]
    said = [
        {"role": "user", "content": "hi", "name": "alice@example.com", "api_key": "sk-123", "audio": {"id": "a1"}},
        {"role": "user", "content": parts, "metadata": {"k": "v"}},
    ]
    body = json.loads(make_copy(json.dumps({"model": "m", "messages": said}).encode()).body)
    texts = [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]
    assert body["messages"] == [{"role": "user", "content": "hi"}, {"role": "user", "content": texts}]


def test_completion_copy() -> None:
    assert copied({**TEXT, "max_tokens": 4, "logprobs": 1, "echo": True}) == {
        **TEXT,
        "temperature": 0,
        "max_tokens": 4,
        "stream": False,
        "logprobs": 5,
    }
    copy = make_copy(json.dumps(TEXT).encode())
    assert (copy.path, copy.kind) == ("completions", "completion")
    for odd in (-1, 0, True, "9", None, 17):
        assert copied({**TEXT, "max_tokens": odd})["max_tokens"] == 16


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({**CHAT, "tools": [{"type": "function"}]}, "tools"),
        ({**CHAT, "functions": [{"name": "pay"}]}, "tools"),
        ({**CHAT, "tool_choice": "auto"}, "tools"),
        ({**CHAT, "messages": [{"role": "tool", "content": "42"}]}, "tools"),
        ({**CHAT, "messages": [{"role": "assistant", "content": "x", "tool_calls": [{}]}]}, "tools"),
        ({**CHAT, "n": 2}, "several_answers"),
        ({**TEXT, "best_of": 3}, "several_answers"),
        ({**TEXT, "prompt": ["a", "b"]}, "not_text"),
        ({**TEXT, "prompt": [1, 2]}, "not_text"),
        ({**CHAT, "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}]}, "not_text"),
        ({**CHAT, "messages": []}, "no_prompt"),
        ({**CHAT, "messages": "hi"}, "no_prompt"),
        ({**CHAT, "messages": ["hi"]}, "no_prompt"),
        ({"model": "m"}, "no_prompt"),
    ],
)
def test_refused(body: dict[str, Any], why: str) -> None:
    with pytest.raises(Refused, match=f"^{why}$"):
        make_copy(json.dumps(body).encode())


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"1", b"\xff\xfe", b"[" * 10_000])
def test_refused_bytes(body: bytes) -> None:
    with pytest.raises(Refused, match=r"^not_json$"):
        make_copy(body)


def reply(logprobs: object, **usage: object) -> bytes:
    return json.dumps({"choices": [{"logprobs": logprobs}], "usage": usage}).encode()


def test_both_forms_of_answers_are_read() -> None:
    entries = [{"id": 7, "token": "a", "bytes": [97], "logprob": -0.1, "top_logprobs": [{"id": 7, "token": "a", "logprob": -0.1}]}]
    (one,), prompt_len = read_choices(reply({"content": entries}, prompt_tokens=12))
    assert (one.token, one.logprob, one.top, prompt_len) == ("#7", -0.1, (("#7", -0.1),), 12)
    (one,), prompt_len = read_choices(reply({"content": [{"token": "\ufffd", "bytes": [0xE2, 0x82], "logprob": -1, "top_logprobs": []}]}))
    assert (one.token, one.top, prompt_len) == ("e282", (), 0)
    lists = {"tokens": ["a", "b"], "token_logprobs": [-0.1, -99999], "top_logprobs": [{"a": -0.1, "c": -2}, None]}
    (first, second), _ = read_choices(reply(lists, prompt_tokens="many"))
    assert first.top == (("a", -0.1), ("c", -2.0))
    assert (second.token, second.logprob, second.top) == ("b", -1e4, ())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b'{"choices": []}',
        reply(None),
        reply({"tokens": ["a"], "token_logprobs": []}),
        reply({"content": [{"token": "a", "logprob": None}]}),
        reply({"content": [{"token": "a", "logprob": float("nan")}]}),
        reply({"content": [{"token": "a", "logprob": 3.0}]}),
        reply({"content": [{"token": "a", "bytes": [999], "logprob": -1}]}),
        reply({"content": [7]}),
        reply("x"),
    ],
)
def test_answers_without_probabilities_are_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_choices(body)


def test_classes_by_prompt_length() -> None:
    assert [class_of("chat", n) for n in (0, 63, 64, 4095, 4096)] == ["chat<64", "chat<64", "chat<256", "chat<4096", "chat>=4096"]
