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


_SUBJECTS = (
    "a lighthouse", "the water cycle", "a chess opening", "the history of paper", "a bicycle repair", "photosynthesis", "a train timetable",
    "the moons of Jupiter", "bread baking", "a library catalogue", "glaciers", "the human heart", "a savings account", "sorting algorithms",
    "a garden in spring", "the printing press", "tides", "a job interview", "volcanoes", "vaccines", "a mountain rescue", "coral reefs",
    "a court of law", "the alphabet", "a weather map", "migrating birds", "a power grid", "the Silk Road", "a first-aid kit", "fractions",
)  # fmt: skip
_FORMS = (
    "In two sentences, what is important about {}?",
    "Give three short facts about {}, one a line.",
    "Write the first paragraph of a story in which {} matters.",
    "Explain {} to a child of eight.",
    "List the steps that somebody takes who wants to learn about {}.",
    "What do people often get wrong about {}? Answer briefly.",
)
BUILT_IN = len(_SUBJECTS) * len(_FORMS)


def built_in_prompts(count: int) -> tuple[str, ...]:
    """Return shipped prompts that all differ, for free answers and embeddings.

    Args:
        count: at most BUILT_IN.
    """
    return tuple(_FORMS[i % len(_FORMS)].format(_SUBJECTS[i // len(_FORMS)]) for i in range(min(count, BUILT_IN)))
