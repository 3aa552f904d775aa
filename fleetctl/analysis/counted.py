"""Judge, pure layer: what two scrapes of counters say of one another, and whether two arms count the same. Never a verdict, never I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

from fleetctl.domain.evidence import ARMS, Arm
from fleetctl.domain.metrics import is_counter
from fleetctl.domain.records import Scrape

_NOT_OF_REQUESTS = ("per_step", "unverified")
_REQUESTS, _ERRORS = "requests_total", "errors_total"


def is_usable(s: Scrape) -> bool:
    """Tell whether a scrape's numbers can be used."""
    return s.up and not s.is_nan and not s.trouble


def own_counter(s: Scrape) -> str:
    """Return the name of the fleet file's own counter that a scrape is of alone, "" where it is another's."""
    names = {key.partition("/")[0] for key in s.values}
    name = next(iter(names)) if len(names) == 1 else ""
    return name.removeprefix("counter.") if name.startswith("counter.") else ""


def oldest_ms(newest: Iterable[Scrape]) -> int:
    """Return when the replica that is silent for longest was scraped; of an own counter any series tells, as processes come and go."""
    found: dict[str, int] = {}
    for s in newest:
        own = own_counter(s)
        key = f"counter {own}" if own else f"replica {s.replica}"
        found[key] = max(found.get(key, s.at_ms), s.at_ms)
    return min(found.values())


def went_back(before: Scrape, now: Scrape) -> bool:
    """Tell whether a counter or bucket of a replica is lower than in the scrape before."""
    for key, value in before.values.items():
        if is_counter(key) and key in now.values and now.values[key] < value:
            return True
    return any(
        now.buckets[key].get(edge, inf) < count
        for key, edges in before.buckets.items()
        if key in now.buckets
        for edge, count in edges.items()
    )


def of_requests(keys: Iterable[str], canonical: str) -> list[str]:
    """Return a histogram's series that have one sample a request: the gaps between the tokens of one answer are no independent draws."""
    return [k for k in keys if k.partition("/")[0] == canonical and k.partition("/")[2] not in _NOT_OF_REQUESTS]


def gaps_alone(pages: Iterable[Iterable[str]], metrics: Mapping[str, str]) -> list[str]:
    """Say which metrics (by their canonical histogram) are not told because all that pages have has more than one sample a request."""
    keys = {k for page in pages for k in page}
    there = {k.partition("/")[0] for k in keys}
    found = [name for name, canonical in metrics.items() if canonical in there and not of_requests(keys, canonical)]
    return [f"{name} is not told: engines count the gaps between tokens, and no time of a request; name probes for it" for name in found]


def evenly(n: int, k: int) -> str:
    """Return n outcomes, k of them failures ("x"), as far apart from one another as can be."""
    return "".join("x" if (i + 1) * k // n > i * k // n else "." for i in range(n))


def requests_of(values: Mapping[str, float], wanted: str = "") -> tuple[float, float]:
    """Return requests and errors told by the same kind of series; requests alone where nothing tells errors.

    Args:
        wanted: key of the requests, "" for the first that has errors beside it.
    """
    keys = [wanted] if wanted else [k for k in values if k.partition("/")[0] == _REQUESTS]
    for key in keys:
        errors = key.replace(_REQUESTS, _ERRORS)
        if errors in values:
            return values.get(key, 0.0), values[errors]
    return (values.get(keys[0], 0.0), 0.0) if keys else (0.0, 0.0)


def counted_alike(pages: Iterable[tuple[Arm, Mapping[str, float]]]) -> tuple[str, str]:
    """Return the key of requests that every replica of both arms counts by, and why there is none ("" where there is one).

    A replica's HTTP layer, its engine and its router count other things as a request, and as its error: a client that goes away is an
    error here and none there. Such counts are never held against one another. Replicas that have counted no request have no say: the
    family of an HTTP layer is not there before its first.
    """
    kinds: dict[Arm, list[dict[str, bool]]] = {arm: [] for arm in ARMS}
    for arm, values in pages:
        found = {k: k.replace(_REQUESTS, _ERRORS) in values for k in values if k.partition("/")[0] == _REQUESTS}
        if any(values[key] > 0 for key in found):
            kinds[arm].append(found)
    every = [found for arm in ARMS for found in kinds[arm]]
    common = [key for key in (every[0] if every else {}) if all(key in found for found in every)]
    whole = [key for key in common if all(found[key] for found in every)] or [k for k in common if not any(f[k] for f in every)]
    if whole or not every:
        return (whole[0] if whole else ""), ""
    shown = [f"{arm} {_shown(kinds[arm])}" for arm in ARMS if kinds[arm]]
    return "", f"requests and errors are counted differently: {'; '.join(shown)}"


def _shown(kinds: Iterable[Mapping[str, bool]]) -> str:
    names = [f"by {key.partition('/')[2] or 'one count'}{'' if has else ', no errors'}" for found in kinds for key, has in found.items()]
    return " and ".join(dict.fromkeys(names))
