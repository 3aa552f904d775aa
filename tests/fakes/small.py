"""Small fakes: secrets, notices, holds, capacity, discovery, jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from fleetctl.domain.event import Event
from fleetctl.domain.fleet import SecretRef
from fleetctl.domain.holds import Said
from fleetctl.domain.ids import CellId, PoolId, Token
from fleetctl.domain.people import Facts, Gap
from fleetctl.domain.pool import Priority
from fleetctl.domain.provision import CapacityVerdict, Job, Owner
from fleetctl.domain.units import Instant
from fleetctl.errors import CredentialsMissing


class KnownSecrets:
    """Secrets by name."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self._known = dict(known)

    def resolve(self, ref: SecretRef) -> str:
        if not self._known.get(ref.name):
            raise CredentialsMissing("credentials.missing", f"no secret {ref.name}.")
        return self._known[ref.name]


class KeptNotices:
    """Keeps what was sent."""

    def __init__(self) -> None:
        self.sent: list[Event] = []

    def send(self, e: Event) -> None:
        self.sent.append(e)


class OwnedHolds:
    """Pools with an owner whose minimum can be pinned and put back."""

    def __init__(self, minimum: Mapping[PoolId, int]) -> None:
        self.minimum = dict(minimum)
        self.before: dict[PoolId, int] = {}
        self.needed: dict[PoolId, set[CellId]] = {}
        self.warmed: list[PoolId] = []
        self.taken = ""
        self.wrote = ""

    def owners(self, pool: PoolId) -> tuple[Owner, ...]:
        return (Owner(name="autoscaler", kind="autoscaler", pool=pool),) if pool in self.minimum else ()

    def found(self, c: CellId, pools: Sequence[PoolId]) -> tuple[Owner | Gap, ...]:
        return tuple(o for pool in pools for o in self.owners(pool))

    def pin(self, pool: PoolId, minimum: int, token: Token, c: CellId) -> tuple[Said, ...]:
        self.before.setdefault(pool, self.minimum.get(pool, 0))
        self.needed.setdefault(pool, set()).add(c)
        self.minimum[pool] = minimum
        return ()

    def watch(self, pool: PoolId, c: CellId) -> str:
        return self.taken

    def is_unheld(self, pool: PoolId, c: CellId) -> bool:
        return False

    def writer(self, c: CellId) -> str:
        return self.wrote

    def restore(self, pool: PoolId, token: Token, c: CellId) -> tuple[Said, ...]:
        self.needed.get(pool, set()).discard(c)
        if pool in self.before and not self.needed.get(pool):
            self.minimum[pool] = self.before.pop(pool)
        return ()

    def release(self, pool: PoolId) -> tuple[tuple[CellId, Said], ...]:
        self.needed.pop(pool, None)
        if pool in self.before:
            self.minimum[pool] = self.before.pop(pool)
        return ()

    def sweep(self) -> tuple[tuple[CellId, Said], ...]:
        return ()

    def warm(self, pool: PoolId) -> None:
        self.warmed.append(pool)


class KnownCapacity:
    """Capacity with an answer per SKU; unknown for others."""

    def __init__(self, free: Mapping[str, int]) -> None:
        self._free = dict(free)

    def verdict(self, sku: str, region: str, count: int, priority: Priority) -> CapacityVerdict:
        free = self._free.get(sku)
        kind: str = "unknown" if free is None else "yes" if count <= free else "no"
        reason = "not asked" if free is None else f"{free} free"
        return CapacityVerdict(sku=sku, region=region, count=count, priority=priority, kind=kind, reason=reason)  # type: ignore[arg-type]


class GivenDiscovery:
    """Yields what it was given."""

    def __init__(self, found: Sequence[Facts | Gap]) -> None:
        self._found = tuple(found)

    def scan(self, scope: str) -> Iterator[Facts | Gap]:
        yield from (f for f in self._found if not scope or scope in (f.source, getattr(f, "scope", "")))


class ListJobs:
    """Runs everything at once, in order of time."""

    def __init__(self) -> None:
        self._jobs: dict[str, tuple[Instant, Job]] = {}
        self._done: set[str] = set()

    def submit(self, job: Job, key: str, at: Instant) -> None:
        self._jobs.setdefault(key, (at, job))

    def run(self, handlers: Mapping[str, Callable[[Job], None]], stop: Callable[[], bool]) -> None:
        for key, (_, job) in sorted(self._jobs.items(), key=lambda item: item[1][0]):
            if stop():
                return
            if key not in self._done:
                self._done.add(key)
                handlers[job.name](job)
