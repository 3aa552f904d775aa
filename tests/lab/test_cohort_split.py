"""Lab: a cohort moves before a share of everybody, and a split that stays, on a real HAProxy and a real Envoy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fleetctl.domain.evidence import Cursor
from fleetctl.domain.workload import Cohort
from tests.lab.envoy_lab import envoy_rig
from tests.lab.haproxy_lab import CELL, PIN_KEY, STREAM, put, rig, until

pytestmark = pytest.mark.lab
FIRST = STREAM
"""The cell of the cohort: who comes to CELL with one of these tiers goes by it."""
PART = Cohort(of=CELL, header="x-tier", values=("free", "in.ternal"))


@pytest.fixture(scope="module", params=["haproxy", "envoy"])
def shared(request: pytest.FixtureRequest) -> Iterator[Any]:
    with rig(part=PART) if request.param == "haproxy" else envoy_rig(part=PART) as found:
        yield found


def answered(shared: Any, tier: str, keys: range, *, cell: str = CELL, headers: dict[str, str] | None = None) -> Counter[str]:
    """Send requests of one tier to the cell that everybody asks, and count who answered: the cell's name and the side."""
    for servers in shared.backends.values():
        for backend in servers.values():
            backend.seen.clear()
    for n in keys:
        got = shared.ask(cell, key=f"conversation-{n}", headers={**({"x-tier": tier} if tier else {}), **(headers or {})})
        assert got.status == 200, got
    return _sum(shared)


def _sum(shared: Any) -> Counter[str]:
    found: Counter[str] = Counter()
    for c, servers in shared.backends.items():
        for name, backend in servers.items():
            asked = [headers for _, headers, _ in backend.seen if "x-conversation-id" in {h.lower() for h in headers}]
            found[f"{'first' if c == FIRST else 'rest'} {name[0]}"] += len(asked)
    return +found


def weigh(shared: Any, first_bp: int, rest_bp: int) -> None:
    router = shared.router()
    for cell, bp in ((FIRST, first_bp), (CELL, rest_bp)):
        put(router, bp, token=router.read(cell).token + 1, cell=cell)
        until(lambda cell=cell, bp=bp: router.read(cell).target_bp == bp, "the weight is shown")  # type: ignore[misc]


def test_a_cohort_is_on_the_target_while_everybody_else_stays(shared: Any) -> None:
    weigh(shared, 10_000, 0)
    assert answered(shared, "free", range(20)) == {"first c": 20}
    assert answered(shared, "in.ternal", range(20)) == {"first c": 20}
    for other in ("", "paid", "freeloader", "Free", "a free", "inXternal"):
        assert answered(shared, other, range(10)) == {"rest b": 10}, other


def test_a_cohort_has_stable_buckets_of_its_own_and_goes_home_alone(shared: Any) -> None:
    weigh(shared, 5_000, 10_000)
    some = answered(shared, "free", range(100))
    assert 35 <= some["first c"] <= 65
    assert some["first c"] + some["first b"] == 100
    assert answered(shared, "paid", range(20)) == {"rest c": 20}
    weigh(shared, 0, 10_000)
    assert answered(shared, "free", range(20)) == {"first b": 20}
    assert answered(shared, "paid", range(10)) == {"rest c": 10}


def test_who_answered_is_counted_for_the_cohort_alone(shared: Any) -> None:
    weigh(shared, 10_000, 0)
    since = datetime.now(UTC)
    until(lambda: datetime.now(UTC) - since > timedelta(milliseconds=5), "a clear moment")
    answered(shared, "free", range(12))
    answered(shared, "paid", range(7))
    router = shared.router()

    def counts() -> tuple[int, int, int, int]:
        first, rest = (router.served(c, Cursor(position="", since=since)) for c in (FIRST, CELL))
        return (first.canary, first.baseline, rest.canary, rest.baseline)

    until(lambda: counts() == (12, 0, 0, 7), "the log has them all")


def test_a_probe_reaches_each_side_of_a_cohort_by_its_own_name(shared: Any) -> None:
    weigh(shared, 0, 0)
    for arm in ("baseline", "canary"):
        pinned = {"x-fleetctl-pin": f"{PIN_KEY}:{arm}"}
        assert answered(shared, "", range(3), cell=FIRST, headers=pinned) == {f"first {'c' if arm == 'canary' else 'b'}": 3}


@pytest.mark.parametrize("kind", ["haproxy", "envoy"])
def test_a_cohort_by_cookie_takes_exactly_its_values(kind: str) -> None:
    part = Cohort(of=CELL, cookie="tier", values=("free", "in.ternal"))
    with rig(part=part) if kind == "haproxy" else envoy_rig(part=part) as found:
        weigh(found, 10_000, 0)
        for cookie in ("tier=free", "a=1; tier=in.ternal; b=2", "tier=free; session=x"):
            assert answered(found, "", range(6), headers={"cookie": cookie}) == {"first c": 6}, cookie
        for cookie in ("tier=paid", "xtier=free", "tier=freeloader", "a=tier; free=1", "a=tier=free", "tier=inXternal"):
            assert answered(found, "", range(6), headers={"cookie": cookie}) == {"rest b": 6}, cookie


def test_a_split_that_stays_outlives_a_restart(shared: Any) -> None:
    weigh(shared, 10_000, 0)
    restarted = shared if hasattr(shared, "stop") else shared.process
    restarted.stop()
    restarted.start()
    shared.healthy()
    until(lambda: shared.router().read(FIRST).target_bp == 10_000, "the weight is back")
    assert answered(shared, "free", range(10)) == {"first c": 10}
    assert answered(shared, "paid", range(10)) == {"rest b": 10}
