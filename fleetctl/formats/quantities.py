"""Inventory, formats layer: quantities as people write them ("20s", "10%", "0.5 points"). Never guesses a unit."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from ipaddress import ip_address

from fleetctl.domain.units import Instant, Money

DURATION_PATTERN = r"^[0-9]+(\.[0-9]+)?(ms|s|m|h|d)$"
SHARE_PATTERN = r"^[0-9]+(\.[0-9]+)?%$|^[0-9]+bp$"
POINTS_PATTERN = r"^[0-9]+(\.[0-9]+)? points?$"
ENDPOINT_PATTERN = r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?):[0-9]{1,5}$"
MONEY_PATTERN = r"^[0-9]+(\.[0-9]+)? [A-Z]{3}$"

MOST_AMOUNT = 1_000_000_000
"""Sums of amounts up to this one stay exact in 28 digits; no price or budget is near it."""

_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(ms|s|m|h|d)\Z")
_SHARE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(%|bp)\Z")
_POINTS = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?points?\Z")
_MONEY = re.compile(r"([0-9]+(?:\.[0-9]+)?) ([A-Z]{3})\Z")
_ENDPOINT = re.compile(ENDPOINT_PATTERN[:-1] + r"\Z")


def parse_duration(value: object) -> timedelta:
    """Read a duration such as "20s", "5m", "2h" or "7d".

    Raises:
        ValueError: there is no unit, or it is not a duration.
    """
    found = _DURATION.match(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f'must be a time with its unit, such as "20s", "5m", "2h" or "7d", not {value!r}')
    ms = Decimal(found[1]) * _UNIT_MS[found[2]]
    if ms > 3650 * _UNIT_MS["d"]:
        raise ValueError(f"must be at most 3650d, not {value!r}")
    return timedelta(milliseconds=float(ms))


def parse_share_bp(value: object) -> int:
    """Read a share such as "10%" or "1000bp" as basis points, 0 to 10,000.

    Raises:
        ValueError: no unit, negative, above 100 %, or finer than one basis point.
    """
    found = _SHARE.match(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f'must be a share from 0% to 100% with its unit, such as "10%" or "1000bp", not {value!r}')
    bp = Decimal(found[1]) * (100 if found[2] == "%" else 1)
    if bp > 10_000:
        raise ValueError(f"must be at most 100%, not {value!r}")
    if bp != int(bp):
        raise ValueError(f"must be whole basis points (0.01%), not {value!r}")
    return int(bp)


def parse_ratio(value: object) -> float:
    """Read a share such as "1%" as a ratio (0.01); above 100 % is allowed for margins.

    Raises:
        ValueError: there is no unit, or it is not a share.
    """
    found = _SHARE.match(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f'must be a share with its unit, such as "25%", not {value!r}')
    return float(Decimal(found[1]) / (100 if found[2] == "%" else 10_000))


def parse_points(value: object) -> float:
    """Read percentage points such as "0.5 points" as a difference of ratios (0.005).

    Raises:
        ValueError: it is not written in points, or above 100.
    """
    found = _POINTS.match(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f'must be percentage points, such as "0.5 points", not {value!r}')
    points = Decimal(found[1])
    if points > 100:
        raise ValueError(f"must be at most 100 points, not {value!r}")
    return float(points / 100)


def parse_instant(value: object) -> Instant:
    """Read an instant such as "2026-12-18T00:00:00Z" as aware UTC.

    Raises:
        ValueError: no time zone, or not an instant.
    """
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        at = None
    if at is None:
        raise ValueError(f"must be an instant such as 2026-12-18T00:00:00Z, not {value!r}")
    if at.tzinfo is None:
        raise ValueError(f"{value} has no time zone: write {value}Z for UTC, or an offset such as +01:00")
    try:
        return at.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{value} is out of range") from None


def parse_decimal(value: object) -> Decimal:
    """Read an amount (number, or text of one) exactly, at least 0.

    Raises:
        ValueError: not a finite number, or negative.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Decimal)):
        raise ValueError(f"must be a number, not {value!r}")
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        amount = Decimal("nan")
    if not amount.is_finite():
        raise ValueError(f"must be a number, not {value!r}")
    if amount < 0:
        raise ValueError(f"must be at least 0, not {value!r}")
    if amount > MOST_AMOUNT:
        raise ValueError(f"must be at most {MOST_AMOUNT:,}, not {str(value)[:40]}")
    return amount


def parse_money(value: object) -> Money:
    """Read money such as "12.50 USD".

    Raises:
        ValueError: there is no currency, or it is not an amount.
    """
    found = _MONEY.match(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f'must be an amount with its currency, such as "12.50 USD", not {value!r}')
    return Money(amount=parse_decimal(found[1]), currency=found[2])


def parse_endpoint(value: object) -> str:
    """Check an endpoint "host:port" (IPv6 in brackets, port 1 to 65535) and return it.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(value, str) or not _ENDPOINT.match(value) or not 1 <= int(value.rsplit(":", 1)[1]) <= 65_535:
        raise ValueError(f'must be "host:port" with a port from 1 to 65535, not {value!r}')
    host = value.rsplit(":", 1)[0].strip("[]")
    if ":" in host or host.rpartition(".")[2].isdigit():  # no name ends in a number: short and octal addresses mean what they do not say
        try:
            ip_address(host)
        except ValueError as e:
            raise ValueError(f"{host!r} is neither an IP address nor a host's name") from e
    return value


def place_of(endpoint: str) -> str:
    """Return one spelling of where an endpoint is: names in lower case, addresses in full, this machine as 127.0.0.1.

    Two names of one machine cannot be told apart here.
    """
    host, _, port = endpoint.rpartition(":")
    host = host.strip("[]").lower()
    with suppress(ValueError):
        address = ip_address(host)
        mapped = getattr(address, "ipv4_mapped", None)
        host = str(mapped or address)
    return f"{'127.0.0.1' if host in ('localhost', '::1') else host}:{int(port)}"


def format_duration(value: timedelta) -> str:
    """Write a duration the way `parse_duration` reads it, in the largest unit that is exact."""
    ms = round(value / timedelta(milliseconds=1))
    for unit in ("d", "h", "m", "s"):
        if ms and ms % _UNIT_MS[unit] == 0:
            return f"{ms // _UNIT_MS[unit]}{unit}"
    return f"{ms}ms" if ms else "0s"


def format_share(bp: int) -> str:
    """Write basis points as a percentage: 1000 is "10%"."""
    return f"{bp / 100:g}%"


def format_ratio(ratio: float) -> str:
    """Write a ratio as a percentage: 0.05 is "5%"."""
    return f"{round(ratio * 100, 6):g}%"
