"""Lab, lab layer: the shape of the load: when requests arrive, how long they are, what they say. Never sends anything.

Token lengths without a trace come from a table of quantiles. Source: derived summary of the Azure LLM inference trace 2023, conversations
(19,366 requests, 2023-11-16; AzurePublicDataset, data/AzureLLMInferenceTrace_conv.csv, CC-BY 4.0).
"""

from __future__ import annotations

import csv
import random
from bisect import bisect_right
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate, pairwise
from pathlib import Path

from fleetctl.errors import ConfigInvalid

CONTEXT_QUANTILES = (
    (2, 181, 207, 372, 387, 396, 403, 414, 703, 984, 1020, 1045, 1071, 1097, 1130, 1189, 1315, 1876, 2734, 4083, 14050),
    (7, 41, 54, 67, 77, 85, 91, 96, 103, 113, 129, 151, 177, 217, 384, 395, 400, 411, 424, 451, 1000),
)
"""Quantiles 0, 5, ..., 100 % of context tokens and of generated tokens, each of its own; how they go together is left out."""

CHARS_PER_CONTEXT_TOKEN = 0.25
"""The lab's prompts keep the trace's shape at a sixteenth of its size (a token is about four characters)."""

TRACE_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
MOST_MISTAKES = 20


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request to come.

    Args:
        gap_s: seconds after the one before, at least 0.
        context_tokens, generated_tokens: as in the trace, at least 1.
    """

    gap_s: float
    context_tokens: int
    generated_tokens: int


class TableShape:
    """Arrivals without a trace: exponential gaps, lengths from the built-in table.

    Args:
        rate_per_s: mean, above 0.
    """

    def __init__(self, rate_per_s: float, dice: random.Random) -> None:
        self._rate = rate_per_s
        self._dice = dice

    def next(self) -> Arrival:
        """Return the next arrival."""
        context, generated = (_between(table, self._dice.random()) for table in CONTEXT_QUANTILES)
        return Arrival(self._dice.expovariate(self._rate), context, generated)


def _between(table: tuple[int, ...], share: float) -> int:
    place = share * (len(table) - 1)
    low = min(int(place), len(table) - 2)
    return max(1, round(table[low] + (table[low + 1] - table[low]) * (place - low)))


class TraceShape:
    """Arrivals of a trace, over and over, its gaps scaled to a mean rate.

    Args:
        rows: second of the request, context tokens, generated tokens; by time, at least two at different times.
        rate_per_s: mean, above 0.
        first: row to begin with, so that cells do not beat together.
    """

    def __init__(self, rows: tuple[tuple[float, int, int], ...], rate_per_s: float, first: int = 0) -> None:
        span = rows[-1][0] - rows[0][0]
        scale = (len(rows) - 1) / span / rate_per_s
        gaps = [(b[0] - a[0]) * scale for a, b in pairwise(rows)]
        self._rows = tuple(Arrival(gap, row[1], row[2]) for gap, row in zip((1 / rate_per_s, *gaps), rows, strict=True))
        self._at = first % len(rows)

    def next(self) -> Arrival:
        """Return the next arrival."""
        arrival = self._rows[self._at]
        self._at = (self._at + 1) % len(self._rows)
        return arrival


def read_trace(path: Path) -> tuple[tuple[float, int, int], ...]:
    """Read a trace: a CSV file with the columns TIMESTAMP, ContextTokens, GeneratedTokens.

    Returns:
        rows by time: second (from the first), context tokens, generated tokens.

    Raises:
        ConfigInvalid: config.trace: the file is not there, a column is missing, or values that cannot be used, with file and line.
    """
    mistakes: list[str] = []
    rows: list[tuple[datetime, int, int]] = []
    try:
        with path.open(newline="", encoding="utf-8") as f:
            reader = csv.DictReader(f)
            missing = [c for c in TRACE_COLUMNS if c not in (reader.fieldnames or ())]
            if missing:
                mistakes.append(f"{path}:1: no column {', '.join(missing)}")
            for row in () if missing else reader:
                try:
                    at = datetime.fromisoformat(row["TIMESTAMP"])
                    context, generated = int(row["ContextTokens"]), int(row["GeneratedTokens"])
                    if context < 0 or generated < 0:
                        raise ValueError("tokens below 0")
                    rows.append((at.replace(tzinfo=None), max(1, context), max(1, generated)))
                except (ValueError, TypeError) as e:
                    mistakes.append(f"{path}:{reader.line_num}: {e}")
    except (OSError, UnicodeDecodeError, csv.Error) as e:
        mistakes.append(f"{path}: {e.strerror if isinstance(e, OSError) else e}")
    rows.sort(key=lambda r: r[0])
    if not mistakes and (len(rows) < 2 or rows[0][0] == rows[-1][0]):
        mistakes.append(f"{path}: fewer than two requests at different times")
    if mistakes:
        raise ConfigInvalid(
            "config.trace",
            f"the trace {path} cannot be used: {mistakes[0]}",
            hint=f"It needs the columns {', '.join(TRACE_COLUMNS)}.",
            details=tuple(mistakes[:MOST_MISTAKES]),
        )
    first = rows[0][0]
    return tuple(((at - first).total_seconds(), context, generated) for at, context, generated in rows)


_THINGS = (
    "the sea", "a mountain", "the moon", "a river", "the city", "a garden", "the winter", "a library", "the wind", "a bridge",
    "the harbour", "a school", "the market", "a train", "the forest", "an island", "the kitchen", "a clock", "the museum", "a storm",
)  # fmt: skip
_ASKS = (
    "Tell me about {a} and {b}.", "What is the difference between {a} and {b}?", "Write one sentence about {a} near {b}.",
    "How would you describe {a} to a child who has only seen {b}?", "Give me two facts about {a}.", "Why do people like {a} more than {b}?",
)  # fmt: skip
SENTENCES = tuple(ask.format(a=a, b=b) for ask in _ASKS for a in _THINGS for b in _THINGS if a != b)
"""Questions in plain words, ASCII only."""

_ENDS = tuple(accumulate(len(s) + 1 for s in SENTENCES))
_TEXT = " ".join(SENTENCES) + " "


def prompt_text(context_tokens: int, most_chars: int, dice: random.Random) -> str:
    """Return some whole questions, about as long as the trace's request at a sixteenth of its size.

    Args:
        context_tokens: of the trace, at least 1.
        most_chars: bound of the text; one question is always there.
    """
    chars = min(int(context_tokens * CHARS_PER_CONTEXT_TOKEN), most_chars)
    first = dice.randrange(len(SENTENCES) * 9 // 10)
    begin = _ENDS[first - 1] if first else 0
    last = max(first, min(bisect_right(_ENDS, begin + chars) - 1, len(SENTENCES) - 1))
    return _TEXT[begin : _ENDS[last] - 1]
