"""Inventory, formats layer: checks of single texts of a user's file. Never sees a file."""

from __future__ import annotations

import re
from datetime import date

from pydantic import AfterValidator

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_UUID = re.compile(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}\Z")


def plain(text: str) -> str:
    """Refuse more than one line, control characters and more than 500 characters. Raises ValueError."""
    if _CONTROL.search(text):
        raise ValueError("must be one line without control characters")
    if len(text) > 500:
        raise ValueError("must be at most 500 characters")
    return text


def matching(pattern: str, what: str) -> AfterValidator:
    """Refuse what is not of a pattern. Raises ValueError."""
    compiled = re.compile(rf"(?:{pattern})\Z")

    def check(text: str) -> str:
        if not compiled.match(text):
            raise ValueError(f"{text!r} is not {what}")
        return text

    return AfterValidator(check)


def scalar_text(value: object) -> object:
    """Let numbers and booleans stand for their text. Raises ValueError."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    return value


def a_day(text: str) -> str:
    """Refuse what is no day of the calendar. Raises ValueError."""
    try:
        date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no day of the calendar") from None
    return text


def uuid(text: str) -> str:
    """Refuse what is no UUID in lower case. Raises ValueError."""
    if not _UUID.match(text):
        raise ValueError(f"{text!r} is not a UUID in lower case, such as 6f1c1a52-8a52-4a7e-9d5c-0c8d2f4f7a10")
    return text
