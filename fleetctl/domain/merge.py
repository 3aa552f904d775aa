"""Inventory, domain layer: what several sources say of one thing becomes one, with the source of each fact. Never I/O, never a guess.

Two sources mean the same machine only where an identity says so: the cloud's own id, else an address, else a name, and only where that
address or name belongs to exactly one machine of the other source (private addresses repeat between networks). What does not match
exactly stays apart, and an ambiguous match is stated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fleetctl.domain.people import Facts, Gap
from fleetctl.domain.units import Instant, Scalar

TOLERANCE = 0.25
"""Measured and declared rates this far apart (as a share of the larger) do not contradict each other: traffic moves within a day."""

_DECLARED = ("file", "table", "azure", "aws", "kubernetes", "ansible", "engine", "prometheus")
_MEASURED = ("prometheus", "engine", "kubernetes", "azure", "aws", "ansible", "table", "file")
_SERVED = ("engine", "prometheus", "kubernetes", "azure", "aws", "ansible", "table", "file")
_SHAPE = ("azure", "aws", "kubernetes", "engine", "prometheus", "ansible", "table", "file")
_ORDER: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("owner", "cost_centre", "tenant", "data_class", "class", "lane", "workload", "cell", "pool"), _DECLARED),
    **dict.fromkeys(("requests_per_s", "input_tokens", "output_tokens", "p95_ms", "gpu_use", "trough_per_s"), _MEASURED),
    **dict.fromkeys(("model", "engine", "software", "engine_version", "context_tokens", "adapters", "running", "waiting"), _SERVED),
}
"""Who is believed first, by kind of source: people about ownership, meters about rates, the server about what it serves, the cloud
about the shape of a machine. The others stay visible as a conflict."""
_NO_CONFLICT = frozenset({"address", "name", "provider_id", "running", "waiting", "state", "endpoints"})
"""Facts that sources rightly see differently: a machine has several addresses and names."""
MACHINE = "machine"
_LINKS = ("provider_id", "address", "name")
_CLOUDS = ("azure", "aws")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One source's word."""

    value: Scalar
    source: str
    seen_at: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Sources that contradict each other about one fact; `chosen` is what the inventory shows."""

    field: str
    chosen: Said
    others: tuple[Said, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    """One machine, engine, group, cell, ... as all sources together describe it.

    Args:
        kind, id: who it is; values: facts by name.
        source: where its facts come from, but for those in `origin`; seen_at: the newest look.
    """

    kind: str
    id: str
    values: Mapping[str, Scalar]
    source: str
    seen_at: Instant
    origin: Mapping[str, str] = field(default_factory=dict)
    conflicts: tuple[Conflict, ...] = ()
    also: tuple[str, ...] = ()

    def text(self, name: str) -> str:
        """Return a fact as text, "" where it is not known."""
        value = self.values.get(name)
        return "" if value is None else str(value)

    def number(self, name: str) -> float | None:
        """Return a fact as a number, None where it is not known or none."""
        value = self.values.get(name)
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    def source_of(self, name: str) -> str:
        """Return where a fact comes from."""
        return self.origin.get(name, self.source)


def subject_of(facts: Facts) -> tuple[str, str]:
    """Return kind and id of what the facts are about: the first value names it."""
    for kind, id_ in facts.values.items():
        return kind, str(id_)
    return "", ""


def merge(found: Iterable[Facts]) -> tuple[tuple[Thing, ...], tuple[Gap, ...]]:
    """Return every thing once, by kind and id, and the matches that were ambiguous.

    The result does not depend on the order of `found`.
    """
    groups: dict[tuple[str, str], list[Facts]] = defaultdict(list)
    for facts in found:
        groups[subject_of(facts)].append(facts)
    groups.pop(("", ""), None)
    also, gaps = _join(groups)
    things = [_thing(key, facts, tuple(sorted(also.get(key, ())))) for key, facts in groups.items()]
    things.sort(key=lambda t: (t.kind, t.id))
    return tuple(things), tuple(gaps)


def source_kind(source: str) -> str:
    """Return the kind of a source: "azure" of "azure prod/eastus2"."""
    return source.partition(" ")[0]


def _join(groups: dict[tuple[str, str], list[Facts]]) -> tuple[dict[tuple[str, str], set[str]], list[Gap]]:
    """Move the facts of machines that a cloud also knows into the cloud's group; return the other names per group, and gaps."""
    also: dict[tuple[str, str], set[str]] = defaultdict(set)
    gaps: list[Gap] = []
    machines = sorted(key for key in groups if key[0] == MACHINE)
    others = [key for key in machines if all(source_kind(f.source) not in _CLOUDS for f in groups[key])]
    if not others:
        return also, gaps
    apart = set(others)
    anchors = _links((key for key in machines if key not in apart), groups)
    if not anchors:
        anchors = _links((key for key in others if any(source_kind(f.source) == "file" for f in groups[key])), groups)
        others = [key for key in others if all(source_kind(f.source) != "file" for f in groups[key])]
    names: dict[tuple[tuple[str, str], str], list[str]] = defaultdict(list)
    apart_at: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for key in others:
        home, doubt = _home(key, groups, anchors)
        if home is not None:
            for source in {f.source for f in groups[key]}:
                names[home, source].append(key[1])
            groups[home] += groups.pop(key)
            also[home].add(key[1])
        elif doubt:
            gaps.append(Gap(scope=f"machine {key[1]}", reason=doubt, source=groups[key][0].source))
        else:
            addresses = {(f.source, a, f.values.get("port")) for f in groups[key] for a in str(f.values.get("address") or "").split()}
            for source, address, port in addresses:
                apart_at[source, address, str(port or "")].append(key[1])
    gaps += _one_of_many(names)
    gaps += _many_at_one(apart_at)
    return also, gaps


MOST_NAMED = 5


def _one_of_many(names: Mapping[tuple[tuple[str, str], str], list[str]]) -> Iterator[Gap]:
    """Yield the machines that one source lists by several names, for instance several hosts of an inventory with one address."""
    for (home, source), many in sorted(names.items()):
        if len(many) > 1:
            text = f"{source} lists it {len(many)} times, as {_some(many)}: taken for one machine, by address or name"
            yield Gap(scope=f"machine {home[1]}", reason=text, source=source)


def _many_at_one(names: Mapping[tuple[str, str, str], list[str]]) -> Iterator[Gap]:
    """Yield the addresses (with port) that several machines of one source have: nothing tells whether they are one, so they stay apart."""
    for (source, address, port), many in sorted(names.items()):
        if len(many) > 1:
            text = f"{len(many)} machines of {source} have it, {_some(many)}: each is listed by itself, though they may be one"
            yield Gap(scope=f"address {address}{':' if port else ''}{port}", reason=text, source=source)


def _some(names: list[str]) -> str:
    shown = sorted(names)
    return ", ".join(shown[:MOST_NAMED]) + (f" and {len(shown) - MOST_NAMED} more" if len(shown) > MOST_NAMED else "")


def _links(keys: Iterable[tuple[str, str]], groups: Mapping[tuple[str, str], list[Facts]]) -> dict[tuple[str, str], set[tuple[str, str]]]:
    index: dict[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)
    for key in keys:
        index["provider_id", _folded(key[1])].add(key)
        for link, text in _identities(groups[key]):
            index[link, text].add(key)
    return index


def _identities(facts: Iterable[Facts]) -> Iterator[tuple[str, str]]:
    for f in facts:
        for link in _LINKS:
            for text in str(f.values.get(link) or "").split():
                yield link, _folded(text)


def _home(
    key: tuple[str, str], groups: Mapping[tuple[str, str], list[Facts]], anchors: Mapping[tuple[str, str], set[tuple[str, str]]]
) -> tuple[tuple[str, str] | None, str]:
    mine = {*_identities(groups[key]), ("name", _folded(key[1]))}
    doubt = ""
    for link in _LINKS:
        homes = {home for kind, text in mine if kind == link for home in anchors.get((kind, text), ())}
        if len(homes) == 1:
            return next(iter(homes)), ""
        if homes:
            doubt = doubt or f"its {link} belongs to {len(homes)} machines of the clouds, so it is listed by itself"
    return None, doubt


def _folded(text: str) -> str:
    return text.casefold()


def _thing(key: tuple[str, str], facts: list[Facts], also: tuple[str, ...]) -> Thing:
    kind, id_ = key
    if len(facts) == 1:
        one = facts[0]
        return Thing(kind=kind, id=id_, values=_rest(one.values), source=one.source, seen_at=one.seen_at, also=also)
    facts = sorted(facts, key=lambda f: (f.source, f.seen_at))
    said: dict[str, list[Said]] = defaultdict(list)
    for f in facts:
        for name, value in _rest(f.values).items():
            if value is not None and value != "":
                said[name].append(Said(value=value, source=f.source, seen_at=f.seen_at))
    values: dict[str, Scalar] = {}
    origin: dict[str, str] = {}
    conflicts = []
    for name in sorted(said):
        chosen, others = choose(name, said[name])
        values[name] = chosen.value
        origin[name] = chosen.source
        if others and name not in _NO_CONFLICT:
            conflicts.append(Conflict(field=name, chosen=chosen, others=others))
    main = facts[0].source
    return Thing(
        kind=kind,
        id=id_,
        values=values,
        source=main,
        seen_at=max(f.seen_at for f in facts),
        origin={name: source for name, source in origin.items() if source != main},
        conflicts=tuple(conflicts),
        also=also,
    )


def choose(name: str, said: Sequence[Said]) -> tuple[Said, tuple[Said, ...]]:
    """Return whom to believe about one fact, and those who contradict that.

    Args:
        said: at least one.
    """
    order = _ORDER.get(name, _SHAPE)

    def rank(s: Said) -> tuple[int, float, str, str]:
        kind = source_kind(s.source)
        return (order.index(kind) if kind in order else len(order), -s.seen_at.timestamp(), s.source, repr(s.value))

    ranked = sorted(said, key=rank)
    return ranked[0], tuple(s for s in ranked[1:] if not agree(name, ranked[0].value, s.value))


def agree(name: str, one: Scalar, other: Scalar) -> bool:
    """Tell whether two words about a fact mean the same: letter case aside, and rates within `TOLERANCE`."""
    if _is_number(one) and _is_number(other):
        a, b = float(one or 0), float(other or 0)
        if _ORDER.get(name) is _MEASURED:
            return abs(a - b) <= TOLERANCE * max(abs(a), abs(b))
        return a == b
    return str(one).strip().casefold() == str(other).strip().casefold()


def _is_number(value: Scalar) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _rest(values: Mapping[str, Scalar]) -> dict[str, Scalar]:
    rest = dict(values)
    del rest[next(iter(values))]
    return rest
