"""Provision and release, use-case layer: what carries a pool's tag beside its state, and its removal. Never removes what is in use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Literal

from fleetctl.domain.capacity import Leftover
from fleetctl.domain.pool import Host
from fleetctl.domain.provision import Progress
from fleetctl.ports.capacity import Leftovers

_ORDER = {"machine": 0, "card": 1, "disk": 2, "other": 3}
_HOLDERS = ("/virtualmachinescalesets/",)
"""Things whose removal takes machines along though these are not named under them."""


def beside(found: Iterable[Leftover], known: Collection[str]) -> tuple[Leftover, ...]:
    """Return what is in no state, in the order in which it may be removed.

    Args:
        known: ids in the pool's state, lower case.
    """
    loose = (o for o in found if o.id.lower() not in known and o.holder.lower() not in known)
    return tuple(sorted(loose, key=lambda o: (o.rank >= 0, _ORDER[o.kind], o.rank, -o.id.count("/"), o.id)))


def in_use(loose: Iterable[Leftover], known: Collection[str], hosts: Collection[Host]) -> tuple[Leftover, ...]:
    """Return those of them that must stay: hosts on record, and whatever a host or a thing in the state lies in.

    A resource group goes with all that it holds, so one that the state has lost would take the pool along.

    Args:
        hosts: that were handed out.
    """
    names = {h.id for h in hosts}
    ids = {value.lower() for h in hosts for key, value in h.variables if key == "cloud_id"}
    inside = {*known, *ids}

    def stays(o: Leftover) -> bool:
        low = o.id.lower()
        if o.kind == "machine" and (o.name in names or low in ids):
            return True
        return any(i.startswith(f"{low}/") for i in inside) or (bool(hosts) and any(part in low for part in _HOLDERS))

    return tuple(o for o in loose if stays(o))


def failed_since(loose: Iterable[Leftover], before: Collection[str]) -> tuple[Leftover, ...]:
    """Return the machines that failed and were not seen before, with their disks.

    Args:
        before: ids of what was beside the state when the run began.
    """
    rows = tuple(loose)
    dead = {o.id.lower() for o in rows if o.kind == "machine" and o.state.lower() == "failed" and o.id not in before}
    return tuple(o for o in rows if o.id.lower() in dead or o.holder.lower() in dead)


def remove(
    leftovers: Leftovers,
    loose: Iterable[Leftover],
    on: Callable[[Progress], None],
    held: Callable[[], None],
    done: Callable[[Leftover], None],
) -> None:
    """Remove things one by one and tell of each.

    Args:
        held: called before each; raises where the lease is somebody else's by now; done: called once one is gone.
    """

    def told(o: Leftover, state: Literal["started", "changed"], text: str) -> None:
        on(Progress(subject=o.name, step="remove leftover", state=state, text=text))

    for one in loose:
        told(one, "started", one.state)
        held()
        leftovers.remove(one)
        told(one, "changed", one.kind)
        done(one)
