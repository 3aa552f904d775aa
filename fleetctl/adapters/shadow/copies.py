"""Migrate, adapters layer: makes a copy of a request safe to send again, and reads the tokens of an answer. Never I/O."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from fleetctl.domain.quality import Choice
from fleetctl.formats.request_copy import Refused, asked_tokens, safe_body

MOST_TOKENS = 16
TOP = 5
CLASS_EDGES = (64, 256, 1024, 4096)


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
    path, kept = safe_body(data)
    kept |= {"temperature": 0, "max_tokens": asked_tokens(data, MOST_TOKENS), "stream": False}
    kept |= {"logprobs": True, "top_logprobs": TOP} if path == "chat/completions" else {"logprobs": TOP}
    return Copy(path=path, body=json.dumps(kept, ensure_ascii=False).encode())


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
