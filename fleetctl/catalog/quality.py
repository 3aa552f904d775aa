"""Evidence, catalogue layer: the texts that the quality gate forces on both arms. Never a user's text, never a network call."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files

TOKENS_A_FILLER = 30
"""At least so many tokens has the filler in any vocabulary in use. Source: 39 words, and no common vocabulary joins words."""
EVERY = 5


@cache
def quality_texts(prefill_chunk: int) -> tuple[str, ...]:
    """Return the shipped texts, long ones early among them: every fifth is put at the end of a text beyond the prefill chunk.

    Args:
        prefill_chunk: tokens, above 0.
    """
    data = json.loads((files("fleetctl.catalog") / "data" / "quality_texts.json").read_text("utf-8"))
    long = str(data["filler"]) * (prefill_chunk // TOKENS_A_FILLER + 1)
    return tuple(long + t if i % EVERY == 0 else t for i, t in enumerate(data["texts"]))
