"""Evidence and inventory, formats layer: Prometheus' text format as samples. Never keeps a page, never decides what a name means."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fleetctl.domain.metrics import Series

_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?P<labels>\{.*\})?\s+(?P<value>[^\s{}]+)(?:\s+-?\d+)?\s*\Z")
_LOOSE = re.compile(r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?P<labels>\{.*\})?\s+\S")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
_NAN = float("nan")


def samples(page: str) -> Iterator[Series]:
    """Yield the samples of a page; a value that is no number is NaN, a line of another shape is left out."""
    for line in page.splitlines():
        if not line or line.startswith("#"):
            continue
        found = _SAMPLE.match(line)
        if found is not None:
            yield Series(name=found["name"], labels=labels(found["labels"] or ""), value=number(found["value"]))
            continue
        loose = _LOOSE.match(line)
        if loose is not None:  # a text where a number should stand
            yield Series(name=loose["name"], labels=labels(loose["labels"] or ""), value=_NAN)


def labels(text: str) -> dict[str, str]:
    """Return the labels of `{a="b",...}`, unescaped."""
    return {k: re.sub(r"\\.", lambda e: _ESCAPES.get(e[0], e[0]), v) if "\\" in v else v for k, v in _LABEL.findall(text)}


def number(text: str) -> float:
    """Return a sample's value, NaN where it is no number."""
    try:
        return float(text)
    except ValueError:
        return _NAN
