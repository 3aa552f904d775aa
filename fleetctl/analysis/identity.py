"""Evidence, analysis layer: do both arms serve the same? Pure; compares what adapters were told. Never a verdict, never I/O."""

from __future__ import annotations

from collections.abc import Collection

from fleetctl.domain.identity import PARTS, ArmsIdentity, Identity
from fleetctl.domain.units import Instant

_WORDS = {"weights": "weights", "tokenizer": "tokenizer", "chat_template": "chat template", "flags": "flags"}


def compare_arms(baseline: Identity, canary: Identity, at: Instant, *, declared: Collection[str] = ()) -> ArmsIdentity:
    """Return both arms with what differs and what one of them does not tell.

    Names differ, adapter models differ (by name: each is a model of its own), or a hash that both tell differs.

    Args:
        declared: names of flags that differ on purpose; they count as no difference, and are told as declared.
    """
    differs, unknown = [], []
    on_purpose: list[str] = []
    if baseline.model != canary.model:
        differs.append(f"model {baseline.model[:80]!r} and {canary.model[:80]!r}")
    for part in PARTS:
        if part == "adapters":
            differs += _adapters(baseline, canary)
            continue
        here, there = getattr(baseline, part), getattr(canary, part)
        if not here or not there:
            unknown.append(_WORDS[part])
        elif here != there and part == "flags":
            wrong, on_purpose = _flags(baseline, canary, declared)
            differs += wrong
        elif here != there:
            differs.append(_WORDS[part])
    return ArmsIdentity(baseline=baseline, canary=canary, at=at, differs=tuple(differs), unknown=tuple(unknown), declared=tuple(on_purpose))


def _flags(baseline: Identity, canary: Identity, declared: Collection[str]) -> tuple[list[str], list[str]]:
    """Return what differs, as one text or none, and what differs as declared."""
    names = sorted(k for k in {*baseline.told, *canary.told} if baseline.told.get(k) != canary.told.get(k))
    texts = {k: f"{k[:40]} {baseline.told.get(k, 'absent')[:40]} and {canary.told.get(k, 'absent')[:40]}" for k in names}
    wrong, on_purpose = [texts[k] for k in names if k not in declared], [texts[k] for k in names if k in declared]
    if not names:
        return ["flags"], []
    return [f"flags: {', '.join(wrong[:3])}"] if wrong else [], on_purpose


def _adapters(baseline: Identity, canary: Identity) -> list[str]:
    here, there = dict(baseline.adapters), dict(canary.adapters)
    found = [f"adapter {name[:80]} is missing on the canary" for name in sorted(set(here) - set(there))]
    found += [f"adapter {name[:80]} is missing on the baseline" for name in sorted(set(there) - set(here))]
    return found + [f"adapter {name[:80]} is another one" for name in sorted(set(here) & set(there)) if here[name] != there[name]]
