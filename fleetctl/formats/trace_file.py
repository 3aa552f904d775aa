"""Bench, formats layer: a trace of requests, as CSV: Azure's columns, or at_s, input_tokens, output_tokens. Never a text."""

from __future__ import annotations

from datetime import UTC, datetime
from math import isfinite
from pathlib import Path

from fleetctl.catalog.table import read_table
from fleetctl.domain.bench import Asked
from fleetctl.errors import ConfigInvalid

MOST_TOKENS = 1_000_000
LATEST_S = 1e11
"""About 3,000 years: more is no second."""
OURS, AZURES = ("at_s", "input_tokens", "output_tokens"), ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
"""Source of the second: Azure/AzurePublicDataset, LLM inference traces of 2023."""


def read_trace(path: Path) -> tuple[Asked, ...]:
    """Return the requests of a trace, by time.

    Raises:
        ConfigInvalid: bench.trace, with every bad line.
    """
    try:
        rows, faults = read_table(path)
    except OSError as e:
        raise ConfigInvalid("bench.trace", f"{path} cannot be read: {e.strerror}.", hint="Name another file") from e
    found: list[Asked] = []
    for line, row in rows:
        names = next((c for c in (OURS, AZURES) if set(c) <= set(row)), None)
        if names is None:
            raise ConfigInvalid("bench.trace", f"{path} lacks columns.", hint=f"It needs {', '.join(OURS)}")
        try:
            found.append(_asked(row[names[0]], row[names[1]], row[names[2]], is_day=names is AZURES))
        except ValueError as e:
            faults.append(f"{path.name}:{line}: {str(e)[:120]}")
    if faults or not found:
        why = f"has {len(faults)} bad line{'' if len(faults) == 1 else 's'}" if faults else "is empty"
        raise ConfigInvalid("bench.trace", f"{path} {why}.", hint="Mend the file", details=tuple(faults[:50]))
    return tuple(sorted(found, key=lambda a: a.at_s))


def _asked(at: str, tokens_in: str, tokens_out: str, *, is_day: bool) -> Asked:
    counts = []
    for text in (tokens_in, tokens_out):
        if not (text.isascii() and text.isdigit() and len(text) < 8 and 0 < int(text) <= MOST_TOKENS):
            raise ValueError(f"{text!r} is no number of tokens from 1 to {MOST_TOKENS:,}")
        counts.append(int(text))
    return Asked(at_s=_moment(at) if is_day else _seconds(at), input_tokens=counts[0], output_tokens=counts[1])


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not isfinite(seconds) or not 0 <= seconds <= LATEST_S:
        raise ValueError(f"{text!r} is no time in seconds from 0")
    return seconds


def _moment(text: str) -> float:
    """Return the seconds of a moment such as "2023-11-16 18:15:46.6805900", UTC where it names no zone; its seventh digit is dropped."""
    head, dot, tail = text.partition(".")
    digits = tail[: len(tail) - len(tail.lstrip("0123456789"))]
    try:
        moment = datetime.fromisoformat(f"{head}{dot}{digits[:6]}{tail[len(digits) :]}")
    except ValueError:
        raise ValueError(f"{text!r} is no moment such as 2023-11-16 18:15:46.68") from None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
