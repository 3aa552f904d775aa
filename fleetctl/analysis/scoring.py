"""Evidence, analysis layer: is one answer right, and is it of the form that was asked for? Pure; no text is kept.

Source: canary.md 4.3 (invalid-answer share shows broken arithmetic before accuracy does; output of one repeated sign).
"""

from __future__ import annotations

import json
import re

from fleetctl.domain.quality import Form, Item

_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
_CHOICE = re.compile(r"(?<![A-Za-z])\(?([A-Ja-j])\)?(?![A-Za-z])")
MOST_TEXT = 100_000
LEAST_REPEATED = 12
"""So many of one sign and nothing else is no answer."""


def is_right(item: Item, text: str) -> bool:
    """Tell whether an answer is the expected one: exactly (white space and case aside), or as the item's `match` says."""
    said, wanted = text[:MOST_TEXT].strip(), item.expect.strip()
    match item.match:
        case "contains":
            return wanted.casefold() in said.casefold()
        case "number":
            found = _number(said)
            expected = _number(wanted)
            return found is not None and expected is not None and abs(found - expected) <= 1e-9 * max(1.0, abs(expected))
        case "choice":
            letters = _CHOICE.findall(said)
            return bool(letters) and letters[0].upper() == wanted.upper()
        case "json":
            try:
                return bool(json.loads(said) == json.loads(wanted))
            except (ValueError, RecursionError):
                return False
        case "exact":
            return " ".join(said.split()).casefold() == " ".join(wanted.split()).casefold()


def _number(text: str) -> float | None:
    """Return the last number of a text: answers reason first."""
    found = _NUMBER.findall(text)
    try:
        return float(found[-1].replace(",", "")) if found else None
    except ValueError:
        return None


def is_valid(form: Form, text: str) -> bool:
    """Tell whether an answer is of its form: a text that is more than one sign repeated, JSON, or one with a number in it."""
    said = text[:MOST_TEXT].strip()
    if not said or (len(said) >= LEAST_REPEATED and len(set(said)) == 1) or "\ufffd\ufffd\ufffd" in said:
        return False
    if form == "number":
        return _number(said) is not None
    if form == "json":
        try:
            json.loads(said.removeprefix("```json").removeprefix("```").removesuffix("```"))
        except (ValueError, RecursionError):
            return False
    return True
