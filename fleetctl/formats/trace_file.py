"""Bench, formats layer: a trace of requests, as CSV: Azure's columns, or at_s, input_tokens, output_tokens. Never a text."""

from __future__ import annotations

import csv
from datetime import datetime
from pathlib import Path

from fleetctl.domain.bench import Asked
from fleetctl.errors import ConfigInvalid

MOST_TOKENS = 1_000_000
COLUMNS = (("at_s", "input_tokens", "output_tokens"), ("TIMESTAMP", "ContextTokens", "GeneratedTokens"))
"""Source of the second: Azure/AzurePublicDataset, LLM inference traces of 2023."""


def read_trace(path: Path) -> tuple[Asked, ...]:
    """Return the requests of a trace, by time.

    Raises:
        ConfigInvalid: bench.trace, with every bad line.
    """
    faults: list[str] = []
    found: list[Asked] = []
    try:
        with path.open(encoding="utf-8", newline="") as text:
            reader = csv.DictReader(text)
            names = next((c for c in COLUMNS if set(c) <= set(reader.fieldnames or ())), None)
            if names is None:
                raise ConfigInvalid("bench.trace", f"{path} lacks columns.", hint=f"It needs {', '.join(COLUMNS[0])}")
            for line, row in enumerate(reader, start=2):
                try:
                    found.append(_asked(row[names[0]], int(row[names[1]]), int(row[names[2]])))
                except (ValueError, TypeError) as e:
                    faults.append(f"{path.name}:{line}: {str(e)[:120]}")
    except (OSError, UnicodeDecodeError, csv.Error) as e:
        raise ConfigInvalid("bench.trace", f"{path} cannot be read: {e}.", hint="Save it as UTF-8 with commas") from e
    if faults or not found:
        why = f"has {len(faults)} bad lines" if faults else "is empty"
        raise ConfigInvalid("bench.trace", f"{path} {why}.", hint="Mend the file", details=tuple(faults[:50]))
    return tuple(sorted(found, key=lambda a: a.at_s))


def _asked(at: str, tokens_in: int, tokens_out: int) -> Asked:
    if not 0 < tokens_in <= MOST_TOKENS or not 0 < tokens_out <= MOST_TOKENS:
        raise ValueError(f"{tokens_in} tokens in and {tokens_out} out: each must be 1 to {MOST_TOKENS:,}")
    try:
        seconds = float(at)
    except ValueError:
        seconds = datetime.fromisoformat(at[:26]).timestamp()
    return Asked(at_s=seconds, input_tokens=tokens_in, output_tokens=tokens_out)
