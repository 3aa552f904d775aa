"""Quantities carry their unit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from fleetctl.domain.units import Money
from fleetctl.formats import quantities as q


@pytest.mark.parametrize(
    ("text", "seconds"), [("20s", 20), ("5m", 300), ("2h", 7200), ("7d", 604800), ("900ms", 0.9), ("1.5h", 5400), ("0s", 0), ("5 m", 300)]
)
def test_durations(text: str, seconds: float) -> None:
    assert q.parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("value", [20, 20.0, "20", "-5s", "s", "5 minutes", "1h30m", None, True, "9999999d", "٣s"])
def test_what_is_no_duration(value: object) -> None:
    with pytest.raises(ValueError, match="must be"):
        q.parse_duration(value)


@pytest.mark.parametrize(("text", "bp"), [("10%", 1000), ("1000bp", 1000), ("0.5%", 50), ("100%", 10_000), ("0%", 0), ("0.01%", 1)])
def test_shares(text: str, bp: int) -> None:
    assert q.parse_share_bp(text) == bp


@pytest.mark.parametrize("value", [10, 0.1, "10", "101%", "10001bp", "-1%", "0.001%", "1.5bp", "ten%", None])
def test_what_is_no_share(value: object) -> None:
    with pytest.raises(ValueError, match="must be"):
        q.parse_share_bp(value)


def test_margins() -> None:
    assert q.parse_points("0.5 points") == 0.005
    assert q.parse_points("1 point") == 0.01
    assert q.parse_ratio("150%") == 1.5
    for wrong in ("0.5%", "0.5", 0.5, "101 points"):
        with pytest.raises(ValueError, match="points"):
            q.parse_points(wrong)


def test_instants_are_utc() -> None:
    assert q.parse_instant("2027-01-04T08:00:00+01:00") == datetime(2027, 1, 4, 7, tzinfo=UTC)
    with pytest.raises(ValueError, match="no time zone: write 2026-12-18T00:00:00Z"):
        q.parse_instant("2026-12-18T00:00:00")
    for wrong in ("tomorrow", 5, "0001-01-01T00:00:00+14:00"):
        with pytest.raises(ValueError, match=r"must be an instant|out of range"):
            q.parse_instant(wrong)


def test_money_and_amounts_are_exact() -> None:
    assert q.parse_money("12.50 USD") == Money(amount=Decimal("12.50"), currency="USD")
    assert q.parse_decimal(98.32) == Decimal("98.32")
    assert q.parse_decimal("0") == 0
    for wrong in ("12.50", "12.50 dollars", "-1 USD", 5):
        with pytest.raises(ValueError, match="currency"):
            q.parse_money(wrong)
    with pytest.raises(ValueError, match="at most"):
        q.parse_money(f"{'9' * 40} USD")
    for bad in ("nan", "inf", -1, True, None, "ten", "sNaN", 1e300, "1e10", 10**30):
        with pytest.raises(ValueError, match="must be"):
            q.parse_decimal(bad)


@pytest.mark.parametrize("text", ["10.0.0.1:80", "edge.internal:8080", "[::1]:443", "a:65535"])
def test_endpoints(text: str) -> None:
    assert q.parse_endpoint(text) == text


@pytest.mark.parametrize("value", ["10.1:80", "010.0.0.1:80", "300.0.0.1:80", "gpu.7:80", "[1:2]:80"])
def test_a_number_that_is_no_address_is_no_name_either(value: str) -> None:
    with pytest.raises(ValueError, match="neither an IP address"):
        q.parse_endpoint(value)


@pytest.mark.parametrize("value", ["10.0.0.1", "a:0", "a:65536", "a:b", "http://a:80", "a b:80", "a:80\n", "-a:80", 80, "::1:80"])
def test_what_is_no_endpoint(value: object) -> None:
    with pytest.raises(ValueError, match="host:port"):
        q.parse_endpoint(value)


@pytest.mark.parametrize("text", ["0s", "900ms", "20s", "5m", "2h", "7d"])
def test_durations_are_written_as_they_are_read(text: str) -> None:
    assert q.format_duration(q.parse_duration(text)) == text
