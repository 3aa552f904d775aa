"""Inventory, use case layer: what people wrote of workloads, cells and pools that the fleet does not have. Never drops it in silence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from difflib import get_close_matches

from fleetctl.domain.fleet import Fleet
from fleetctl.domain.merge import source_kind, subject_of
from fleetctl.domain.people import Facts, Gap

WRITTEN = ("table", "ansible")
"""Kinds of sources that people write for this fleet; tags and labels of a cloud may speak of other things by the same words."""
MOST_NAMED = 5


def orphans(fleet: Fleet, facts: Iterable[Facts]) -> tuple[Gap, ...]:
    """Return one gap per source and kind that names what the fleet file does not declare, with the nearest name that it does."""
    known = {
        "workload": {str(w.id) for w in fleet.workloads},
        "cell": {str(c.id) for c in fleet.cells},
        "pool": {str(p.id) for p in fleet.pools},
    }
    lost: dict[tuple[str, str], set[str]] = defaultdict(set)
    for said in facts:
        if source_kind(said.source) not in WRITTEN:
            continue
        kind, id_ = subject_of(said)
        named = {**{k: said.values.get(k) for k in known}, **({kind: id_} if kind in known else {})}
        for what, name in named.items():
            if name not in (None, "") and str(name) not in known[what]:
                lost[said.source, what].add(str(name))
    return tuple(_gap(source, what, sorted(names), known[what]) for (source, what), names in sorted(lost.items()))


def _gap(source: str, what: str, names: list[str], known: set[str]) -> Gap:
    shown = []
    for name in names[:MOST_NAMED]:
        near = get_close_matches(name, known, n=1)
        shown.append(f"{name[:63]!r}" + (f" (did you mean {near[0]!r}?)" if near else ""))
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    few = f"{what}s that" if len(names) > 1 else f"a {what} that"
    text = f"it names {few} the fleet file does not declare: {', '.join(shown)}{more}"
    return Gap(scope=source.partition("/")[2] or source, reason=text, source=source.partition("/")[0], code="inventory.orphan")
