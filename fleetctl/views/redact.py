"""Doctor, view layer: values and texts without secrets and without what customers wrote, for a file that leaves the house. Never I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

HIDDEN = "[hidden]"
LEAST_SECRET = 6
"""Shorter values of secrets are hidden by name alone: they are in too many texts by chance."""
_SECRET_KEY = re.compile(
    r"(pass(word|wd|phrase)?|secret|token|api_?key|access_?key|private_?key|authorization|cookie|credential|sas|connection_?string)s?$",
    re.IGNORECASE,
)
"""Names whose texts are hidden as a whole; counts of tokens and a lease's fencing token are numbers, and stay."""
_WRITTEN = frozenset(
    {"prompt", "prompts", "messages", "message_content", "content", "completion", "completions", "choices", "body", "input", "inputs"}
    | {"output", "outputs", "answer", "answers", "request_text", "response_text", "first_divergence"}
)
"""Names under which a customer's words could stand."""
_MARKED = (
    r"((?:\b|[_-])(?:pass(?:word|wd|phrase)?|secret|token|api[_-]?key|access[_-]?key|accountkey|authorization|cookie|sig|"
    r"x-amz-(?:signature|credential|security-token))[\"']?\s*[=:]\s*)(\"[^\"]*\"|'[^']*'|[^\s,;&\"']+)"
)
_PREFIXED = r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*|\b(?:hf|ghp|gho|ghs|glpat|sk|xox[abp])[_-][\w-]{10,}"
_PATTERNS = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), HIDDEN),
    (re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^/\s@\"']+@", re.IGNORECASE), rf"\1{HIDDEN}@"),
    (re.compile(r"\b(bearer|basic|digest)\s+[A-Za-z0-9+/_.=~-]{6,}", re.IGNORECASE), rf"\1 {HIDDEN}"),
    (re.compile(_MARKED, re.IGNORECASE), rf"\1{HIDDEN}"),
    (re.compile(_PREFIXED), HIDDEN),
)


class Redactor:
    """Takes secrets out.

    Args:
        secrets: by name, the values that this machine knows; each is hidden wherever it stands, also inside other words.
    """

    def __init__(self, secrets: Mapping[str, str]) -> None:
        whole = {value.strip(): name for name, value in secrets.items() if len(value.strip()) >= LEAST_SECRET}
        lines = {part.strip(): name for value, name in whole.items() for part in value.splitlines() if len(part.strip()) >= 12}
        self._known = sorted((lines | whole).items(), key=lambda kv: -len(kv[0]))

    def text(self, text: str) -> str:
        """Return a text without them."""
        for value, name in self._known:
            text = text.replace(value, f"[secret {name}]")
        for pattern, instead in _PATTERNS:
            text = pattern.sub(instead, text)
        return text

    def value(self, value: Any, key: str = "") -> Any:
        """Return a value of JSON types without them; strings under a secret's or a customer's name are hidden as a whole."""
        if isinstance(value, dict):
            return {self.text(str(k)): self.value(v, str(k)) for k, v in value.items()}
        if key.lower() in _WRITTEN and value not in (None, "", [], ()) and not isinstance(value, (bool, int, float)):
            return HIDDEN
        if isinstance(value, (list, tuple)):
            return [self.value(v, key) for v in value]
        if isinstance(value, str):
            return HIDDEN if value and _SECRET_KEY.search(key) else self.text(value)
        return value

    def left(self, text: str) -> tuple[str, ...]:
        """Return the names of secrets that a text still holds: the last look before it is written."""
        return tuple(sorted({name for value, name in self._known if value in text}))


def secret_variables(environment: Mapping[str, str], named: Iterable[str]) -> dict[str, str]:
    """Return the variables that hold a secret: those the fleet names, and every one whose name says so."""
    wanted = set(named)
    return {name: value for name, value in environment.items() if name in wanted or _SECRET_KEY.search(name) or name.endswith("_KEY")}
