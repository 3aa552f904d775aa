"""Provision: verdicts per place, with reasons; the order in which places are tried; what a plan may add."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.domain.capacity import Candidate, NamedPlaces, PlaceFailure, QuotaRow, SkuReading
from fleetctl.domain.ids import PoolId, Sha256
from fleetctl.domain.pool import PoolSpec
from fleetctl.domain.provision import ProvisionPlan, ResourceChange
from fleetctl.planning.capacity import closes, places_of, ranked, still_open, usable, usable_by_all, verdict_of
from fleetctl.planning.check_delta import ALLOWED, check_delta, cost_of_delta

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
SKU = "Standard_ND96isr_MI300X_v5"
PLACE = Candidate(sku=SKU, region="eastus2", zone="1")
READING = SkuReading(
    sku=SKU,
    region="eastus2",
    offered=True,
    read_at=NOW,
    zones=("1", "2", "3"),
    vcpus=96,
    quotas=(
        QuotaRow(name="standardNDISv5MI300XFamily", limit=192, used=0, binds="regular"),
        QuotaRow(name="cores", limit=1000, used=0, binds="regular"),
        QuotaRow(name="lowPriorityCores", limit=0, used=0, binds="spot"),
    ),
)


def _failure(scope: str, place: Candidate = PLACE, hours: float = 1) -> PlaceFailure:
    assert scope in {"zone", "region", "size", "spot"}
    return PlaceFailure(place=place, code="X", scope=scope, until=NOW + timedelta(hours=hours))  # type: ignore[arg-type]


def test_allowed_and_within_quota_is_still_unknown() -> None:
    verdict = verdict_of(PLACE, 2, READING, (), NOW)
    assert verdict.kind == "unknown"
    assert "only a reservation" in verdict.reason


@pytest.mark.parametrize(
    ("reading", "place", "count", "says"),
    [
        (replace(READING, offered=False), PLACE, 1, "does not offer"),
        (replace(READING, closed="NotAvailableForSubscription"), PLACE, 1, "NotAvailableForSubscription"),
        (replace(READING, closed_zones=("1",)), PLACE, 1, "zone 1"),
        (READING, replace(PLACE, zone="4"), 1, "zone 4"),
        (READING, PLACE, 3, "raise it to at least 288"),
        (READING, replace(PLACE, priority="spot"), 1, "lowPriorityCores"),
    ],
)
def test_no_names_its_reason(reading: SkuReading, place: Candidate, count: int, says: str) -> None:
    verdict = verdict_of(place, count, reading, (), NOW)
    assert verdict.kind == "no"
    assert says in " ".join(verdict.reasons)


def test_only_reserved_places_are_a_yes_and_not_for_spot() -> None:
    reading = replace(READING, reserved=(("1", 2),))
    assert verdict_of(PLACE, 2, reading, (), NOW).kind == "yes"
    assert verdict_of(PLACE, 1, replace(reading, quotas=()), (), NOW).kind == "yes"
    assert verdict_of(replace(PLACE, priority="spot"), 1, replace(reading, quotas=()), (), NOW).kind == "unknown"
    assert verdict_of(replace(PLACE, zone="2"), 1, reading, (), NOW).kind == "unknown"


@pytest.mark.parametrize(
    ("pool", "names", "zones"),
    [
        ("p", (), [("1", 4)]),
        ("p", ("cr-OTHERS",), [("1", 2)]),
        ("p", ("cr-gone",), []),
        ("ours", (), [("1", 4), ("3", 8)]),
        ("ours", ("cr-others",), [("1", 2), ("3", 8)]),
    ],
)
def test_only_reserved_places_that_the_pool_can_use_count(pool: str, names: tuple[str, ...], zones: list[tuple[str, int]]) -> None:
    """Who names a reservation takes no open place; who names none takes only open ones; what the pool made itself is its own."""
    others = NamedPlaces(id="cr-others", zone="1", free=2)
    own = NamedPlaces(id="cr-own", zone="3", free=8, pool="ours")
    seen = usable(replace(READING, reserved=(("1", 4),), named=(others, own)), pool, names)
    assert sorted(seen.reserved) == zones
    verdict = verdict_of(PLACE, 2, seen, (), NOW)
    assert verdict.kind == ("yes" if any(z == "1" for z, _ in zones) else "unknown")
    assert ("cr-others do not count" in " ".join(verdict.reasons)) == (verdict.kind == "unknown")
    both = usable_by_all(replace(READING, reserved=(), named=(others,)), {PoolId("a"): ("cr-others",), PoolId("b"): ()})
    assert both.reserved == (), "asked for any pool: only what each of them can use"


@pytest.mark.parametrize(("count", "kind"), [(2, "yes"), (3, "unknown"), (4, "no")])
def test_reserved_places_need_no_quota_again(count: int, kind: str) -> None:
    full = (QuotaRow(name="standardNDISv5MI300XFamily", limit=288, used=192, binds="regular"),)
    reading = replace(READING, quotas=full, reserved=(("1", 2),))
    verdict = verdict_of(PLACE, count, reading, (), NOW)
    assert verdict.kind == kind
    assert verdict_of(replace(PLACE, zone="2"), 2, reading, (), NOW).kind == "no", "what is reserved in another zone does not help"


def test_a_gap_never_says_no() -> None:
    verdict = verdict_of(PLACE, 1, replace(READING, quotas=(), gaps=("usages could not be read",)), (), NOW)
    assert (verdict.kind, verdict.reason) == ("unknown", "usages could not be read")
    assert verdict_of(PLACE, 1, None, (), NOW).kind == "unknown"


@pytest.mark.parametrize(
    ("scope", "place", "is_closed"),
    [
        ("zone", PLACE, True),
        ("zone", replace(PLACE, zone="2"), False),
        ("size", replace(PLACE, zone="2"), True),
        ("size", replace(PLACE, sku="other"), False),
        ("region", replace(PLACE, zone="3"), True),
        ("region", replace(PLACE, region="westus3"), False),
        ("region", replace(PLACE, priority="spot"), False),
        ("spot", replace(PLACE, priority="spot"), True),
        ("spot", PLACE, False),
    ],
)
def test_what_a_failure_closes(scope: str, place: Candidate, is_closed: bool) -> None:
    assert closes(_failure(scope), place) is is_closed


def test_a_failure_is_forgotten_when_its_time_is_over() -> None:
    assert verdict_of(PLACE, 1, READING, [_failure("zone")], NOW).kind == "no"
    assert verdict_of(PLACE, 1, READING, [_failure("zone", hours=-1)], NOW).kind == "unknown"


def test_places_come_nearest_first() -> None:
    first = Candidate(sku="a", region="r", zone="1", priority="spot")
    found = places_of(first, zones=("1", "2"), sizes=("b",), regions=("q",))
    assert found[0] == first
    assert [(p.sku, p.region, p.zone, p.priority) for p in found] == [
        ("a", "r", "1", "spot"),
        ("a", "r", "2", "spot"),
        ("b", "r", "1", "spot"),
        ("b", "r", "2", "spot"),
        ("a", "r", "1", "regular"),
        ("a", "r", "2", "regular"),
        ("b", "r", "1", "regular"),
        ("b", "r", "2", "regular"),
        ("a", "q", "", "spot"),
        ("b", "q", "", "spot"),
        ("a", "q", "", "regular"),
        ("b", "q", "", "regular"),
    ]
    assert all(p.priority == "spot" for p in places_of(first, on_demand=False))


def test_reserved_first_then_as_given_then_no() -> None:
    other = replace(PLACE, region="westus3")
    third = replace(PLACE, region="swedencentral")
    readings = {(SKU, "swedencentral"): replace(READING, region="swedencentral", reserved=(("1", 9),)), (SKU, "eastus2"): READING}
    order = [p for p, _ in ranked([PLACE, other, third], 1, readings, [_failure("zone")], NOW)]
    assert order == [third, other, PLACE]


def test_what_was_tried_in_this_run_is_not_tried_again() -> None:
    places = [PLACE, replace(PLACE, zone="2"), replace(PLACE, region="westus3", zone="")]
    assert still_open(places, [_failure("zone")]) == tuple(places[1:])
    assert still_open(places, [_failure("region")]) == (places[2],)


def test_choosing_among_200_places_takes_under_a_second() -> None:
    places = [Candidate(sku=SKU, region=f"r{n // 4}", zone=str(n % 4)) for n in range(200)]
    readings = {(SKU, f"r{n}"): replace(READING, region=f"r{n}") for n in range(50)}
    failures = [_failure("zone", place=p) for p in places[:100]]
    began = time.process_time()
    assert len(ranked(places, 1, readings, failures, NOW)) == 200
    assert time.process_time() - began < 1


@given(st.integers(1, 50), st.integers(0, 5000), st.integers(0, 5000))
def test_a_no_for_quota_is_right_by_arithmetic(count: int, limit: int, used: int) -> None:
    reading = replace(READING, quotas=(QuotaRow(name="q", limit=limit, used=used),))
    assert (verdict_of(PLACE, count, reading, (), NOW).kind == "no") is (96 * count > limit - used)


def _plan(*changes: tuple[str, tuple[str, ...]]) -> ProvisionPlan:
    made = tuple(ResourceChange(address=f"{t}.x[{n}]", type=t, actions=a) for n, (t, a) in enumerate(changes))
    return ProvisionPlan(
        pools=(PoolId("p"),), path="", digest=Sha256(""), changes=made, state_lineage="", state_serial=0, stack="azure", tool="t"
    )


def test_more_machines_than_asked_for_are_refused_and_cards_do_not_count() -> None:
    vm, nic = "azurerm_linux_virtual_machine", "azurerm_network_interface"
    spec = PoolSpec(pool=PoolId("p"), vendor="amd", sku=SKU, region="eastus2", count=1)
    assert check_delta(_plan((vm, ("create",)), (nic, ("create",)), (nic, ("create",))), spec) == ()
    found = check_delta(_plan((vm, ("create",)), (vm, ("delete", "create"))), spec)
    assert [d.code for d in found] == ["provision.too_many"]


def test_the_cost_of_a_delta_is_known_or_said_to_be_unknown() -> None:
    vm = "azurerm_linux_virtual_machine"
    price = Decimal("48.00")
    assert cost_of_delta(_plan((vm, ("create",)), (vm, ("create",)), (vm, ("delete",))), price) == price
    assert cost_of_delta(_plan((vm, ("delete", "create"))), None) == 0
    assert cost_of_delta(_plan((vm, ("create",))), None) is None


def test_the_allowed_types_are_those_that_the_modules_make() -> None:
    from pathlib import Path

    from docs.hcl_blocks import read_folder

    root = Path(__file__).resolve().parents[2] / "terraform"
    for stack, modules in {"azure": ("gpu_vms_azure", "network_azure"), "aws": ("nvidia_pool_aws", "network_aws")}.items():
        folders = [root / "stacks" / stack, *(root / "modules" / m for m in modules)]
        made = {b.labels[0] for f in folders for b in read_folder(f) if b.kind in {"resource", "data"}}
        assert made == ALLOWED[stack]
