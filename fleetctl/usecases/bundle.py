"""Doctor, use-case layer: gather the evidence of a trouble, part by part, without secrets. A part that cannot be read hides no other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from fleetctl.domain.canonical import plain
from fleetctl.errors import FleetctlError

MOST_ROWS = 50_000
"""Of one part; more are left out, which the manifest says."""
Part = Callable[[], Iterable[object]]


class Hides(Protocol):
    """Takes secrets out of values; `left` names those that a text still holds."""

    def value(self, value: Any, key: str = "") -> Any:
        """Return a value of JSON types without secrets."""
        ...

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        ...

    def left(self, text: str) -> tuple[str, ...]:
        """Return the names of secrets that a text still holds."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PartTold:
    """One file of a bundle: rows that it holds, whether more were left out, and why it is empty ("" where it is not for a fault)."""

    file: str
    rows: int
    cut: bool = False
    missing: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """What goes into the archive: text by file name, and what is said of each."""

    files: Mapping[str, str]
    parts: tuple[PartTold, ...]


def gather(parts: Mapping[str, Part], hide: Hides) -> Bundle:
    """Gather every part as lines of JSON.

    Args:
        parts: by file name, how to read its rows.

    Raises:
        FleetctlError: bundle.secret: a known secret would still be in it; nothing is written then.
    """
    files: dict[str, str] = {}
    told: list[PartTold] = []
    for name, read in parts.items():
        rows: list[str] = []
        missing, cut = "", False
        try:
            for row in islice(read(), MOST_ROWS + 1):
                cut = len(rows) == MOST_ROWS
                if not cut:
                    rows.append(json.dumps(hide.value(plain(row, whole=True)), sort_keys=True, ensure_ascii=False))
        except FleetctlError as e:
            missing = hide.text(f"{e.code}: {e.message}")
        except Exception as e:  # a damaged store must not keep the rest from whoever helps
            missing = hide.text(f"{type(e).__name__}: {e}")[:300]
        files[name] = "".join(f"{row}\n" for row in rows)
        told.append(PartTold(file=name, rows=len(rows), cut=cut, missing=missing))
    files["manifest.json"] = json.dumps([plain(t) for t in told], indent=1) + "\n"
    still = sorted({name for text in files.values() for name in hide.left(text)})
    if still:
        what = f"the bundle would still hold {', '.join(still[:5])}; nothing was written."
        raise FleetctlError("bundle.secret", what, hint="Report it with this message alone; send no bundle")
    return Bundle(files=files, parts=tuple(told))
