"""Traffic and evidence, ports layer: what a router, a shadow, a prober and a source of evidence owe us. Never an implementation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from fleetctl.domain.calibration import Sample
from fleetctl.domain.checks import CheckSeen
from fleetctl.domain.evidence import Cursor, Evidence, Pair, Series, Thresholds
from fleetctl.domain.holds import Said
from fleetctl.domain.identity import ArmsIdentity
from fleetctl.domain.ids import CellId, PoolId, Token
from fleetctl.domain.people import Gap, Signal
from fleetctl.domain.provision import Owner
from fleetctl.domain.quality import Choice, Spoken
from fleetctl.domain.records import Scrape
from fleetctl.domain.split import Applied, Drained, Readiness, RouterCapabilities, Served, Split, Stale
from fleetctl.domain.units import Instant
from fleetctl.domain.workload import CheckSpec
from fleetctl.errors import FleetctlError


class Router(Protocol):
    """Splits a cell's buckets between source and target.

    Every method raises TrafficNotApplied (traffic.router_down, traffic.unknown_cell, traffic.not_shown) within 5 s; nothing waits
    longer. `set` and `fence` are idempotent: the same call again answers the same.
    """

    def capabilities(self) -> RouterCapabilities:
        """Tell what this router can do; asks it nothing that changes it."""
        ...

    def read(self, c: CellId) -> Split:
        """Return what the router shows; its token is the floor, the highest the target has seen."""
        ...

    def fence(self, c: CellId, token: Token) -> Split | Stale:
        """Raise the floor to `token` and return what stands; needs token > floor. First act of each acquisition."""
        ...

    def set(self, s: Split) -> Applied | Stale:
        """Set split, cap and lease; needs s.token == floor, compared at the target, then read back.

        Raising: router, then start-up file. Lowering: file, then router; a file that fails or takes over 200 ms is reported
        and never holds up going home.
        """
        ...

    def drain(self, c: CellId, pool: PoolId, token: Token) -> Drained | Stale:
        """Count what is still open on that side of the cell; cuts nothing."""
        ...

    def served(self, c: CellId, since: Cursor) -> Served:
        """Count requests started since the cursor, by the server that answered."""
        ...


class Together(Protocol):
    """A router that takes words for many cells in one exchange; what becomes of each cell is as if it had been asked alone (Router).

    What fails for one cell stands in its place. Raises TrafficNotApplied (traffic.router_down, traffic.not_shown) where the exchange as
    a whole failed: then each cell may have been done or not, and is asked alone.
    """

    def read_many(self, cells: Sequence[CellId]) -> Mapping[CellId, Split | FleetctlError]:
        """Return what the router shows, as Router.read."""
        ...

    def fence_many(self, tokens: Mapping[CellId, Token]) -> Mapping[CellId, Split | Stale | FleetctlError]:
        """Raise the floors, as Router.fence."""
        ...

    def set_many(self, splits: Sequence[Split]) -> Mapping[CellId, Applied | Stale | FleetctlError]:
        """Set splits that carry the floor's token, as Router.set."""
        ...


@runtime_checkable
class Refusing(Protocol):
    """A router that can say beforehand why it would raise no weight of a cell; asked by doctor and before anything starts."""

    def refusal(self, c: CellId) -> str:
        """Say why, "" where nothing is known that speaks against it; changes nothing. Raises TrafficNotApplied."""
        ...


class EvidenceSource(Protocol):
    """Counts attempts per arm from what really happened.

    Raises EvidenceUnavailable (evidence.down) where the source itself cannot be read; an empty or broken series is a state, not an error.
    """

    def mark(self, c: CellId) -> Cursor:
        """Return a cursor at now, without thresholds."""
        ...

    def freeze(self, c: CellId, scales: tuple[float, ...], least: int) -> Thresholds | None:
        """Take the baseline's quantiles from its newest requests; None where fewer than `least` are there."""
        ...

    def read(self, c: CellId, since: Cursor) -> Evidence:
        """Return cumulative counts since the cursor; the same cursor and log give the same counts."""
        ...

    def describe(self, c: CellId) -> tuple[Series, ...]:
        """List what there is per arm."""
        ...


class SampleSource(Protocol):
    """Gives requests one by one, by the host that answered. Raises EvidenceUnavailable (evidence.down) where they cannot be read."""

    def recent(self, c: CellId, most: int) -> tuple[Sample, ...]:
        """Return at most `most` of the newest requests that a cell's source served, oldest first."""
        ...


class IdentitySource(Protocol):
    """Tells what both arms of a cell serve. Never raises: what cannot be asked is unknown."""

    def arms(self, c: CellId) -> ArmsIdentity | None:
        """Return what both arms serve, asked at most every 30 s and within 2 s; None where an arm does not answer."""
        ...


class Checks(Protocol):
    """Runs checks of both arms of a cell beside the ticker, and knows how they stand. Never raises."""

    def standing(self, c: CellId, checks: Sequence[CheckSpec], arms: str) -> tuple[CheckSeen, ...]:
        """Return how each check stands for these arms (their hash, "" where it is not known); asks nobody but the records."""
        ...

    def start(self, c: CellId, checks: Sequence[CheckSpec]) -> None:
        """Begin them, or go on; returns at once. What is running is not begun again."""
        ...


class Scraper(Protocol):
    """Reads the counters of a cell's replicas, and of the exporters of its GPUs.

    Raises EvidenceUnavailable (evidence.down) where the source itself cannot be read; a replica that does not answer is a scrape with
    `up` False.
    """

    def scrapes(self, c: CellId, start: Instant, after: Instant | None) -> Iterable[Scrape]:
        """Return scrapes taken after `after`, oldest first.

        Args:
            start: when counting begins; what was there then can be asked for again, in another process too.
            after: newest scrape that the caller has seen; None where it has seen none since `start`.
        """
        ...

    def newest(self, c: CellId) -> Iterable[Scrape]:
        """Return how the counters stand now."""
        ...

    def query(self, c: CellId) -> str:
        """Say what is asked, so that a person can ask the same."""
        ...


class Probes(Protocol):
    """Sends the same prompts to both arms of a cell beside its users' traffic, and records what came back."""

    def keep(self, c: CellId) -> None:
        """Begin, or go on; whoever stops calling this ends it. Returns at once."""
        ...

    def query(self, c: CellId) -> str:
        """Say what is sent, so that a person can send the same."""
        ...


class Shadow(Protocol):
    """Compares answers of both arms to copies of real requests, never in a client's path."""

    def start(self, c: CellId, sample_per_s: float, token: Token) -> None:
        """Begin, or go on, comparing at most `sample_per_s` copies a second; idempotent.

        Raises TrafficNotApplied (traffic.copies_forbidden) where copies would leave the regions in which the cell's data may be served.
        """
        ...

    def stop(self, c: CellId) -> None:
        """Stop; idempotent."""
        ...

    def pairs(self, c: CellId, since: Cursor | None) -> tuple[Pair, ...]:
        """Return comparisons made since the cursor (all where None), oldest first."""
        ...


class Forced(Protocol):
    """Tells what one model name on one arm would say next at each position of a given text.

    Raises EvidenceUnavailable (evidence.quality) where the server cannot be asked token by token.
    """

    def tokens(self, text: str) -> tuple[int, ...]:
        """Return the token ids of a text."""
        ...

    def goes_on(self, ids: Sequence[int], count: int) -> tuple[int, ...]:
        """Return the ids of its likeliest continuation, at most `count`."""
        ...

    def choices(self, ids: Sequence[int], after: Sequence[int]) -> tuple[Choice, ...]:
        """Return its choice at each position of `after`, in the context of all that stands before."""
        ...


class Speaks(Protocol):
    """Answers a prompt freely at temperature 0, as one model name on one arm. Raises EvidenceUnavailable (evidence.answers)."""

    def answer(self, prompt: str) -> Spoken:
        """Return the whole answer."""
        ...


class Holds(Protocol):
    """Keeps a pool's capacity against those who would take it, and knows who else writes. `pin` and `restore` are idempotent.

    `pin`, `restore`, `release` and `sweep` raise LeaseHeld (lease.held; `pin` also hold.silent) and StoreUnavailable; what an owner refuses
    is said, never raised.
    """

    def owners(self, pool: PoolId) -> tuple[Owner, ...]:
        """List who else writes this pool's size."""
        ...

    def found(self, c: CellId, pools: Sequence[PoolId]) -> tuple[Owner | Gap, ...]:
        """List who else writes these pools' sizes and the cell's route, and what could not be asked; within 8 s."""
        ...

    def pin(self, pool: PoolId, minimum: int, token: Token, c: CellId) -> tuple[Said, ...]:
        """Raise the owner's minimum for a cell, after saving what stood there; again: put it back where others took it, 3 times at most."""
        ...

    def watch(self, pool: PoolId, c: CellId) -> str:
        """Say who lowered a minimum that is pinned for this cell, "" where nobody did; asks at most every 30 s, changes nothing."""
        ...

    def is_unheld(self, pool: PoolId, c: CellId) -> bool:
        """Tell whether a minimum for this cell was announced and its owner did not answer; True at most every 30 s."""
        ...

    def writer(self, c: CellId) -> str:
        """Name who wrote a cell's route last beside us, "" where nobody can tell."""
        ...

    def restore(self, pool: PoolId, token: Token, c: CellId) -> tuple[Said, ...]:
        """Put back what stood there once no cell needs it any more, where what stands is ours."""
        ...

    def release(self, pool: PoolId) -> tuple[tuple[CellId, Said], ...]:
        """Put back what stood there though cells are complete: people gave the pool back."""
        ...

    def sweep(self) -> tuple[tuple[CellId, Said], ...]:
        """Give back what nobody needs any more though nobody gave it back: after a kill, or an owner that did not answer."""
        ...

    def warm(self, pool: PoolId) -> None:
        """Bring replicas up."""
        ...


class Notices(Protocol):
    """Tells what clouds say of the end of a pool's machines: spot notices, scheduled events, the end of a capacity block."""

    def watches(self, pool: PoolId) -> bool:
        """Tell whether anybody can tell of this pool; asks nothing."""
        ...

    def read(self, pool: PoolId) -> tuple[Signal, ...]:
        """Return what stands now, each with its deadline; within 2 s, never an exception: who is silent is a signal of its own."""
        ...


class Prober(Protocol):
    """Proves readiness by a real completion, never by a TCP check."""

    def ready(self, pool: PoolId, c: CellId) -> Readiness:
        """Ask every replica of the cell in that pool for a completion (bounded to 5 s) and return what answered."""
        ...
