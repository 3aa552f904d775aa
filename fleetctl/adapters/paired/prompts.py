"""Evidence, adapter layer: prompts of paired probes, by length class. Never a user's text unless the fleet file names a file of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from fleetctl.adapters.paired.stream import Api
from fleetctl.errors import ConfigInvalid

LENGTHS = (24, 160, 640)
"""Words of the built-in prompts: three classes of input length."""
MOST_FILE = 8 << 20
MOST_PROMPTS = 10_000
_WORDS = [
    "river",
    "stone",
    "window",
    "garden",
    "market",
    "bridge",
    "letter",
    "season",
    "machine",
    "harbour",
    "signal",
    "paper",
    "winter",
    "engine",
    "valley",
    "candle",
    "number",
    "mirror",
    "forest",
    "travel",
    "copper",
    "island",
    "kitchen",
    "history",
    "pattern",
    "teacher",
    "morning",
    "village",
    "science",
    "shadow",
    "corner",
    "anchor",
    "summer",
]


def built_in(seed: int, index: int) -> str:
    """Return a prompt that is the same for a seed and index; lengths take turns."""
    dice = Random(f"{seed}/{index}")  # noqa: S311 - text, no secret
    words = " ".join(dice.choice(_WORDS) for _ in range(LENGTHS[index % len(LENGTHS)]))
    return f"Note {index}: continue this list of words with plain sentences. {words}"


def read_prompts(path: Path) -> tuple[str, ...]:
    """Read a file of JSON lines with a `prompt` each.

    Raises:
        ConfigInvalid: config.prompts, with the first mistake's line.
    """
    try:
        if path.stat().st_size > MOST_FILE:
            raise ConfigInvalid("config.prompts", f"{path} is over 8 MiB.")
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigInvalid("config.prompts", f"{path} cannot be read: {e}.") from e
    out = []
    for number, line in enumerate(lines[:MOST_PROMPTS], start=1):
        if not line.strip():
            continue
        try:
            prompt = json.loads(line)["prompt"]
        except (ValueError, KeyError, TypeError):
            prompt = None
        if not isinstance(prompt, str) or not prompt:
            raise ConfigInvalid("config.prompts", f'{path}:{number} is no {{"prompt": "..."}}.')
        out.append(prompt)
    if not out:
        raise ConfigInvalid("config.prompts", f"{path} holds no prompt.")
    return tuple(out)


def body_of(prompt: str, api: Api, *, model: str, max_tokens: int, logprobs: bool) -> dict[str, Any]:
    """Return a streamed request at temperature 0 whose usage and log-probabilities are asked for."""
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": max_tokens,
        "temperature": 0,
        "seed": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if api == "chat":
        return {**body, "messages": [{"role": "user", "content": prompt}], **({"logprobs": True, "top_logprobs": 0} if logprobs else {})}
    return {**body, "prompt": prompt, **({"logprobs": 0} if logprobs else {})}


def pick(own: Sequence[str], seed: int, index: int) -> str:
    """Return the prompt of a pair; a mark in front keeps one pair's cached prompt from the next."""
    if not own:
        return built_in(seed, index)
    return f"[{seed}.{index}] {own[index % len(own)]}"
