"""The fleet file's own counters: processes that are scraped at moments of their own, that restart, come and go."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from fleetctl.adapters.prometheus.client import Trace
from fleetctl.adapters.prometheus.scrapes import OwnCounter, PrometheusScraper
from fleetctl.catalog.metrics import load_metrics
from fleetctl.domain.evidence import ARMS, Cursor, Evidence
from fleetctl.domain.ids import CellId
from fleetctl.domain.metrics import Series
from fleetctl.usecases.evidence import CounterEvidence

CELL = CellId("chat")
START = datetime(2026, 1, 1, 12, tzinfo=UTC)
T0 = START.timestamp()
EVERY_S, RATE, FAILS = 5, 4.0, 0.25
OWN = OwnCounter(name="failed", events="shop_failed_total", of="shop_orders_total")


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A process of the shop: scraped every 5 s from `since` up to `until`, restarted at some moments; it sells 4 orders a second."""

    offset: float = 0.0
    since: float = -600.0
    until: float = 600.0
    restarts: tuple[float, ...] = ()

    def points(self, part: str, now: float) -> tuple[tuple[float, float], ...]:
        found = []
        at = self.since + self.offset
        while at <= min(now, self.until):
            begun = max([self.since, *(r for r in self.restarts if r <= at)])
            orders = (at - begun) * RATE
            found.append((T0 + at, orders * FAILS if part == "events" else orders))
            at += EVERY_S
        return tuple(found)


@dataclass
class Shop:
    """What Prometheus has stored of a shop's processes, the same on both arms unless told otherwise."""

    pods: dict[str, tuple[Pod, ...]] = field(default_factory=dict)
    lazy: float | None = None
    """Since when there is a series of failed orders for one more reason."""
    now: float = 0.0

    def traces(self, text: str, at: float) -> list[Trace]:
        selector, _, window = text.partition("[")
        begin = at - float(window.removesuffix("s]"))
        part = "events" if selector == OWN.events else "of"
        out = []
        for arm, pods in self.pods.items():
            for i, pod in enumerate(pods):
                labels = {"__name__": selector, "arm": arm, "instance": f"pod-{i}:80"}
                out.append(Trace(labels=labels, points=pod.points(part, self.now)))
            if part == "events" and self.lazy is not None:
                late = Pod(since=self.lazy).points("events", self.now)[1:]
                out.append(Trace(labels={"__name__": selector, "arm": arm, "reason": "card"}, points=late))
        kept = [Trace(labels=t.labels, points=tuple(p for p in t.points if begin < p[0] <= at)) for t in out]
        return [t for t in kept if t.points]

    def query(self, text: str) -> list[Series]:
        return []


def source(shop: Shop) -> CounterEvidence:
    def now() -> datetime:
        return START + timedelta(seconds=shop.now)

    scraper = PrometheusScraper(shop, {}, load_metrics(), now=now, own=(OWN,))  # type: ignore[arg-type]
    return CounterEvidence(scraper, now=now, settle_s=0.0)


def read(shop: Shop, *, end: int = 190, every: int = 7, new_process_at: int = -1) -> Evidence:
    """Look every few seconds up to the end, and return the last evidence."""
    cursor, reader, found = Cursor(position="", since=START), source(shop), []
    for i, seconds in enumerate(range(every, end + 1, every)):
        shop.now = float(seconds)
        if i == new_process_at:
            reader = source(shop)
        found.append(reader.read(CELL, cursor))
        assert set(found[-1].state.values()) == {"empty"}, "no engine is scraped, and nothing is wrong with the shop's counters"
    shares = [e.arms[arm].shares.get("counter_failed", (0, 0)) for arm in ("canary",) for e in found]
    assert shares == sorted(shares), "counts never go back"
    return found[-1]


def both(*pods: Pod) -> dict[str, tuple[Pod, ...]]:
    return dict.fromkeys(ARMS, pods)


THREE = tuple(Pod(offset=1.7 * i) for i in range(3))
SHOPS: dict[str, tuple[Shop, float]] = {
    "scraped at once": (Shop(both(Pod(), Pod(), Pod())), 3 * 190),
    "scraped at moments of their own": (Shop(both(*THREE)), 3 * 190),
    "one is restarted": (Shop(both(*THREE[:2], Pod(offset=3.4, restarts=(60.0,)))), 3 * 190),
    "one is restarted twice": (Shop(both(*THREE[:2], Pod(offset=3.4, restarts=(60.0, 120.0)))), 3 * 190),
    "one goes away": (Shop(both(*THREE[:2], Pod(offset=3.4, until=90.0))), 2 * 190 + 90),
    "one comes later": (Shop(both(*THREE[:2], Pod(offset=3.4, since=100.0))), 2 * 190 + 90),
    "one takes another's place": (Shop(both(THREE[0], Pod(offset=1.7, until=80.0), Pod(offset=3.4, since=90.0))), 190 + 80 + 100),
}


@pytest.mark.parametrize("new_process_at", [-1, 15], ids=["one process", "a new process goes on"])
@pytest.mark.parametrize("shop", SHOPS)
def test_what_every_process_of_a_shop_counts_is_added_up(shop: str, new_process_at: int) -> None:
    given, seconds = SHOPS[shop]
    e = read(given, new_process_at=new_process_at)
    for arm in ARMS:
        n, k = e.arms[arm].shares["counter_failed"]
        assert n == pytest.approx(seconds * RATE, abs=4 * 3 * EVERY_S * RATE)
        assert k == pytest.approx(n * FAILS, abs=2)


def test_a_restart_is_no_lost_evidence_and_takes_nothing_off() -> None:
    calm, restarted = Shop(both(*THREE)), Shop(both(*THREE[:2], Pod(offset=3.4, restarts=(60.0,))))
    n, again = (read(shop).arms["canary"].shares["counter_failed"][0] for shop in (calm, restarted))
    assert 0 <= n - again <= 2 * EVERY_S * RATE, "what was sold between the last scrape and the restart is all that is lost"


def test_failures_of_a_series_that_began_with_the_first_of_them_are_counted() -> None:
    without = read(Shop(both(*THREE))).arms["canary"].shares["counter_failed"]
    late = read(Shop(both(*THREE), lazy=100.0)).arms["canary"].shares["counter_failed"]
    assert late[0] == without[0]
    assert late[1] - without[1] == pytest.approx(90 * RATE * FAILS, abs=2 * EVERY_S * RATE * FAILS)


def test_a_process_that_goes_on_after_hours_reads_all_of_them() -> None:
    shop = Shop(both(*(Pod(offset=p.offset, until=1e9, restarts=(5_000.0,)) for p in THREE)), now=8_000.0)
    n, k = source(shop).read(CELL, Cursor(position="", since=START)).arms["canary"].shares["counter_failed"]
    assert n == pytest.approx(3 * 8_000 * RATE, abs=12 * EVERY_S * RATE)
    assert k == pytest.approx(n * FAILS, abs=2)


def test_a_counter_of_which_nothing_is_scraped_any_more_is_stale() -> None:
    shop, cursor = Shop(both(*(Pod(offset=p.offset, until=60.0) for p in THREE))), Cursor(position="", since=START)
    reader = source(shop)
    for seconds in (30.0, 62.0):
        shop.now = seconds
        assert set(reader.read(CELL, cursor).state.values()) == {"empty"}
    shop.now = 120.0
    assert set(reader.read(CELL, cursor).state.values()) == {"stale"}


def test_an_arm_that_no_series_names_is_told() -> None:
    shop = Shop({"baseline": THREE}, now=30.0)
    scraper = PrometheusScraper(shop, {}, load_metrics(), now=lambda: START + timedelta(seconds=30), own=(OWN,))  # type: ignore[arg-type]
    trouble = [(s.arm, s.trouble) for s in scraper.newest(CELL) if "mistyped" not in s.trouble and s.trouble]
    assert trouble == [("canary", 'Prometheus has no shop_orders_total with arm="canary"')]
