"""Composition root, notices: what tells of the end of each pool's machines, by the settings pool.NAME.notices. Never decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from fleetctl.adapters.notices.polled import Read
    from fleetctl.domain.fleet import Fleet
    from fleetctl.domain.ids import PoolId
    from fleetctl.domain.people import Signal
    from fleetctl.domain.pool import Host, Pool
    from fleetctl.domain.units import Instant
    from fleetctl.ports.traffic import Notices

AWS = "aws"
KUBERNETES = "kubernetes"
NO = "no"


def notices_of(
    fleet: Fleet, workspace: Path, hosts: Callable[[PoolId], Sequence[Host]], now: Callable[[], Instant], *, first_s: float = 1.5
) -> Notices:
    """Return what tells of the end of pools' machines; nobody, where no pool has a source of notices.

    Args:
        first_s: longest that an API's first answer is waited for, seconds.

    Raises:
        ConfigInvalid: config.notices.
    """
    urls: dict[PoolId, str] = {}
    reads: dict[PoolId, list[Read]] = {}
    for pool in fleet.pools:
        for word in _words(fleet, pool):
            if word == AWS:
                reads.setdefault(pool.id, []).append(_ec2(pool, hosts, now))
            elif word.partition(":")[0].partition("/")[0] == KUBERNETES:
                reads.setdefault(pool.id, []).append(_nodes(fleet, pool, word, workspace, now))
            elif pool.id not in urls and "://" in word:
                urls[pool.id] = word
            else:
                raise _refused(pool, f"{word[:80]!r} is no source of notices")
    return _joined(fleet, urls, reads, hosts, now, first_s)


def _joined(
    fleet: Fleet,
    urls: Mapping[PoolId, str],
    reads: Mapping[PoolId, list[Read]],
    hosts: Callable[[PoolId], Sequence[Host]],
    now: Callable[[], Instant],
    first_s: float,
) -> Notices:
    from fleetctl.usecases.tick import NoNotices

    if not urls and not reads:
        return NoNotices()
    from fleetctl.adapters.notices import HostNotices, NoticeSource
    from fleetctl.adapters.notices.polled import AllNotices, PolledNotices

    ca = fleet.settings.get("notices.ca", "")
    relays = {pool: NoticeSource(url=url, parse=parse_notices, ca=ca) for pool, url in urls.items()}

    def all_of(each: Sequence[Read]) -> Read:
        return lambda: tuple(s for read in each for s in read())

    apis = {pool: all_of(each) for pool, each in reads.items()}
    return AllNotices((HostNotices(relays, hosts, now), PolledNotices(apis, now, first_s=first_s)))


def _words(fleet: Fleet, pool: Pool) -> tuple[str, ...]:
    """Return a pool's sources; AWS is asked about what fleetctl itself makes there."""
    words = tuple(fleet.settings.get(f"pool.{pool.id}.notices", "").split())
    if words == (NO,):
        return ()
    return tuple(dict.fromkeys((*words, *((AWS,) if pool.provisioned_by == "aws" else ()))))


def _ec2(pool: Pool, hosts: Callable[[PoolId], Sequence[Host]], now: Callable[[], Instant]) -> Read:
    kept: list[Any] = []

    def read() -> tuple[Signal, ...]:
        from fleetctl.adapters.aws.capacity import ec2_client
        from fleetctl.adapters.aws.notices import api_signals

        found = tuple(hosts(pool.id))
        if found and not kept:
            kept.append(ec2_client(pool.region))
        return api_signals(kept[0], found, now()) if found else ()

    return read


def _nodes(fleet: Fleet, pool: Pool, word: str, workspace: Path, now: Callable[[], Instant]) -> Read:
    place, _, selector = word.partition(":")
    name = place.partition("/")[2]
    clusters = [s for s in fleet.sources if s.kind == KUBERNETES and name in ("", s.name)]
    if not selector or len(clusters) != 1:
        why = "names no nodes" if not selector else f"names no one of the {len(clusters)} clusters among the sources"
        raise _refused(pool, f"{word[:80]!r} {why}")

    def read() -> tuple[Signal, ...]:
        from fleetctl.adapters.kubernetes.client import ClusterAccess
        from fleetctl.adapters.kubernetes.notices import node_signals

        s = clusters[0].settings
        return node_signals(ClusterAccess(kubeconfig=s.get("kubeconfig", ""), context=s.get("context", "")), selector, now())

    return read


def _refused(pool: Pool, why: str) -> Exception:
    from fleetctl.errors import ConfigInvalid
    from fleetctl.formats.pool_words import NOTICES_HINT

    return ConfigInvalid("config.notices", f"pool.{pool.id}.notices: {why}.", hint=NOTICES_HINT)


def parse_notices(document: object, host: str, names: Mapping[str, str], now: Instant) -> tuple[Signal, ...]:
    """Read any cloud's document: their shapes differ, so none has to be declared."""
    from fleetctl.adapters.aws.notices import maintenance_signals, spot_signal
    from fleetctl.adapters.azure.notices import signals_of

    spot = spot_signal(document, host, now)
    return (*signals_of(document, names, now), *maintenance_signals(document, host, now), *((spot,) if spot is not None else ()))
