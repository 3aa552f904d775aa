"""Migrate, adapters layer: makes a copy of a request safe to send again, and reads the tokens of an answer. Never I/O."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from fleetctl.domain.quality import Choice

MOST_TOKENS = 16
TOP = 5
KEPT = frozenset({"model", "messages", "prompt", "stop", "seed", "frequency_penalty", "presence_penalty", "logit_bias"})
"""All else of a body (user, metadata, store, keys, extensions) is left out."""
ACTS = frozenset({"tools", "tool_choice", "functions", "function_call", "web_search_options", "mcp_servers", "plugins"})
"""A call that may act on the world is not repeated."""
CLASS_EDGES = (64, 256, 1024, 4096)


class Refused(Exception):
    """This copy may not be sent again; the text is one of a few fixed words, for counting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A request as both sides get it.

    Args:
        path: "chat/completions" or "completions".
    """

    path: str
    body: bytes

    @property
    def kind(self) -> str:
        """Short name for the class of a comparison."""
        return "chat" if self.path.startswith("chat") else "completion"


def make_copy(body: bytes) -> Copy:
    """Return what may be sent to both sides: greedy, short, with log-probabilities, without credentials.

    Raises:
        Refused: not JSON of that kind, or with tools, several answers, or anything but text.
    """
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as e:
        raise Refused("not_json") from e
    if not isinstance(data, dict):
        raise Refused("not_json")
    if any(data.get(key) for key in ACTS):
        raise Refused("tools")
    if data.get("n", 1) not in (1, None) or data.get("best_of", 1) not in (1, None):
        raise Refused("several_answers")
    is_chat = "messages" in data
    if is_chat:
        _check_messages(data["messages"])
    elif not isinstance(data.get("prompt"), str):
        raise Refused("not_text" if "prompt" in data else "no_prompt")
    kept = {k: v for k, v in data.items() if k in KEPT}
    asked = [data.get(k) for k in ("max_tokens", "max_completion_tokens")]
    limit = min([MOST_TOKENS, *(a for a in asked if type(a) is int and a > 0)])
    kept |= {"temperature": 0, "max_tokens": limit, "stream": False}
    kept |= {"logprobs": True, "top_logprobs": TOP} if is_chat else {"logprobs": TOP}
    return Copy(path="chat/completions" if is_chat else "completions", body=json.dumps(kept, ensure_ascii=False).encode())


def _check_messages(messages: Any) -> None:
    if not isinstance(messages, list) or not messages:
        raise Refused("no_prompt")
    for m in messages:
        if not isinstance(m, dict):
            raise Refused("no_prompt")
        if m.get("tool_calls") or m.get("function_call") or m.get("role") in ("tool", "function"):
            raise Refused("tools")
        content = m.get("content")
        parts = content if isinstance(content, list) else [content]
        for part in parts:  # a picture's address would be fetched again by the server
            if not isinstance(part, str) and not (isinstance(part, dict) and part.get("type") == "text"):
                raise Refused("not_text")


def read_choices(body: bytes) -> tuple[tuple[Choice, ...], int]:
    """Return the tokens of an answer with their log-probabilities, and the prompt's length in tokens (0 where not told).

    Both forms are read: `content` entries (chat; llama.cpp's completions too) and the parallel lists of completions.

    Raises:
        ValueError: there are no log-probabilities.
    """
    try:
        data = json.loads(body)
        told = data["choices"][0].get("logprobs") or {}
        content = told.get("content")
        choices = tuple(_from_entry(e) for e in content) if isinstance(content, list) else _from_lists(told)
        usage = data.get("usage") or {}
        prompt = usage.get("prompt_tokens", 0)
    except (KeyError, IndexError, TypeError, AttributeError, RecursionError) as e:
        raise ValueError("no log-probabilities") from e
    return choices, prompt if type(prompt) is int else 0


def _from_entry(entry: dict[str, Any]) -> Choice:
    top = tuple((_name(t), _nat(t["logprob"])) for t in entry.get("top_logprobs") or ())
    return Choice(token=_name(entry), logprob=_nat(entry["logprob"]), top=top)


def _name(entry: dict[str, Any]) -> str:
    """Name a token: by id, else by its bytes (pieces of a character look alike as text), else by its text."""
    if type(entry.get("id")) is int:
        return f"#{entry['id']}"
    if entry.get("bytes"):
        return bytes(entry["bytes"]).hex()
    return str(entry["token"])


def _from_lists(told: dict[str, Any]) -> tuple[Choice, ...]:
    tops = told.get("top_logprobs") or [{} for _ in told["tokens"]]
    return tuple(
        Choice(token=str(token), logprob=_nat(logprob), top=tuple((str(k), _nat(v)) for k, v in (top or {}).items()))
        for token, logprob, top in zip(told["tokens"], told["token_logprobs"], tops, strict=True)
    )


def _nat(logprob: Any) -> float:
    """Return a log-probability; servers write very small ones as -9999 or less."""
    value = float(logprob)
    if not value <= 0.001:  # NaN too
        raise ValueError(f"{value!r} is no log-probability")
    return min(0.0, max(-1e4, value))


def class_of(kind: str, prompt_tokens: int) -> str:
    """Name the class of a comparison by kind and prompt length."""
    edge = next((e for e in CLASS_EDGES if prompt_tokens < e), None)
    return f"{kind}<{edge}" if edge is not None else f"{kind}>={CLASS_EDGES[-1]}"
