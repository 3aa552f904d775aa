"""Every step, domain layer: units that more than one module needs. Never I/O."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

Instant = datetime
"""An aware UTC datetime."""

Scalar = str | int | float | bool | None

FULL_BP = 10_000
"""All buckets: 100 % in basis points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """An amount of one currency; never a float.

    Args:
        amount: in units of `currency`, exact.
        currency: ISO 4217 code.
    """

    amount: Decimal
    currency: str = "USD"

    def __add__(self, other: Money) -> Money:
        if other.currency != self.currency:
            raise ValueError(f"cannot add {other.currency} to {self.currency}")
        return Money(amount=self.amount + other.amount, currency=self.currency)

    def times(self, factor: Decimal | int) -> Money:
        """Return this amount multiplied by a unitless factor."""
        return Money(amount=self.amount * factor, currency=self.currency)


def require_utc(at: datetime) -> Instant:
    """Return `at` if it is an aware UTC datetime.

    Raises:
        ValueError: it is naive or of another zone.
    """
    if at.tzinfo is not UTC and (at.tzinfo is None or at.utcoffset() != UTC.utcoffset(None)):
        raise ValueError(f"{at!r} is not an aware UTC datetime")
    return at
