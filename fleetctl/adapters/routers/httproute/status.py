"""Traffic, adapter layer: what the gateways of an HTTPRoute say of it. Never asks anybody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SAID = ("Accepted", "ResolvedRefs")
"""Conditions that a gateway's controller must give of a route. Source: Gateway API, RouteConditionType."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """What gateways say of a route as it stands.

    Args:
        late: who has not said yet that it has seen it, "" where all have; refused: who refuses it, and why.
    """

    late: str = ""
    refused: str = ""

    @property
    def unseen(self) -> str:
        """Return in words what is not proven to carry the weights that stand, "" where all is."""
        return (
            f"{self.refused}" if self.refused else f"{self.late} has not said that it has seen the weights that stand" if self.late else ""
        )


def word_of(whole: Mapping[str, Any]) -> Word:
    """Return what the gateways that a route names say of its generation; a status that cannot be read is one that has not seen it."""
    try:
        return _word_of(whole)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError):
        return Word(late="the gateway")


def _word_of(whole: Mapping[str, Any]) -> Word:
    wanted = int((whole.get("metadata") or {}).get("generation") or 0)
    named = {str(ref.get("name", "")) for ref in (whole.get("spec") or {}).get("parentRefs") or []}
    parents = (whole.get("status") or {}).get("parents") or []
    mine = [p for p in parents if not named or _name(p) in named]  # a controller may leave what it said of a parent that is gone
    late = ""
    for parent in mine:
        said = {c.get("type"): c for c in parent.get("conditions") or [] if c.get("type") in _SAID}
        if "Accepted" not in said or any(int(c.get("observedGeneration") or 0) < wanted for c in said.values()):
            late = late or f"gateway {_name(parent)[:63]}"
            continue
        for condition in said.values():
            if condition.get("status") != "True":
                why = " ".join(f"{condition.get('reason', '')} {condition.get('message', '')}".split())[:200]
                return Word(refused=f"gateway {_name(parent)[:63]} refuses it: {why}")
    missing = named - {_name(p) for p in mine}
    return Word(late=late or (f"gateway {min(missing)[:63]}" if missing else "" if mine else "the gateway"))


def _name(parent: Mapping[str, Any]) -> str:
    return str((parent.get("parentRef") or {}).get("name", ""))
