"""Evidence, analysis layer: do both arms serve the same? Pure; compares what adapters were told. Never a verdict, never I/O."""

from __future__ import annotations

from fleetctl.domain.identity import PARTS, ArmsIdentity, Identity
from fleetctl.domain.units import Instant

_WORDS = {"weights": "weights", "tokenizer": "tokenizer", "chat_template": "chat template", "flags": "flags"}


def compare_arms(baseline: Identity, canary: Identity, at: Instant) -> ArmsIdentity:
    """Return both arms with what differs and what one of them does not tell.

    Names differ, adapter models differ (by name: each is a model of its own), or a hash that both tell differs.
    """
    differs, unknown = [], []
    if baseline.model != canary.model:
        differs.append(f"model {baseline.model[:80]!r} and {canary.model[:80]!r}")
    for part in PARTS:
        if part == "adapters":
            differs += _adapters(baseline, canary)
            continue
        here, there = getattr(baseline, part), getattr(canary, part)
        if not here or not there:
            unknown.append(_WORDS[part])
        elif here != there:
            differs.append(_flags(baseline, canary) if part == "flags" else _WORDS[part])
    return ArmsIdentity(baseline=baseline, canary=canary, at=at, differs=tuple(differs), unknown=tuple(unknown))


def _flags(baseline: Identity, canary: Identity) -> str:
    names = sorted(k for k in {*baseline.told, *canary.told} if baseline.told.get(k) != canary.told.get(k))
    found = [f"{k[:40]} {baseline.told.get(k, 'absent')[:40]} and {canary.told.get(k, 'absent')[:40]}" for k in names[:3]]
    return "flags" + (f": {', '.join(found)}" if found else "")


def _adapters(baseline: Identity, canary: Identity) -> list[str]:
    here, there = dict(baseline.adapters), dict(canary.adapters)
    found = [f"adapter {name[:80]} is missing on the canary" for name in sorted(set(here) - set(there))]
    found += [f"adapter {name[:80]} is missing on the baseline" for name in sorted(set(there) - set(here))]
    return found + [f"adapter {name[:80]} is another one" for name in sorted(set(here) & set(there)) if here[name] != there[name]]
