"""Provision, planning layer: the codes with which clouds refuse machines, each with exactly one action. Pure data; never reads an answer.

Source: Azure/karpenter-provider-azure pkg/providers/instance/offerings/commonerrorhandlers.go (block times),
pkg/fake/aksmachinesapi.go (bodies),
Microsoft Learn "Resolve errors for allocation failures", Amazon EC2 API Reference "Error codes"; read 2026-11-30.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Literal

Cloud = Literal["azure", "aws"]
Scope = Literal["zone", "region", "size", "spot", "none"]
"""How much of the map a failure closes: the zone, the region, the size in the region, the spot market of the size, nothing."""


class Action(Enum):
    """What to do next; every known code leads to exactly one."""

    OTHER_PLACE = "other_place"
    """Take the next candidate: another zone, region, size or priority."""
    CLEAN_OTHER_REGION = "clean_other_region"
    """Delete what the refused request left behind, then leave the region."""
    OTHER_ZONE = "other_zone"
    """Take another zone; the region may still have room. What else the message blames is told: fleetctl gives up none of it by itself."""
    RAISE_QUOTA = "raise_quota"
    """A person must have a quota raised; repeating it changes nothing."""
    FIX_CONFIG = "fix_config"
    """The request itself is wrong; a person must change it."""
    FIX_ACCESS = "fix_access"
    """A credential is missing, expired or has too few rights."""
    WAIT_RETRY = "wait_retry"
    """Wait as long as the cloud says, then the same request again."""
    ASK = "ask"
    """Not known: show it to a person; nothing is repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One code.

    Args:
        needs: words of which the message must hold one, lower case; () where the code alone says it.
        block: how long the place stays closed on demand; block_spot: for spot (None: the same).
        leaves: the request may have left a machine, a card or a disk behind.
        rank: higher wins where an answer holds several codes (a cause beats its wrapper).
    """

    code: str
    cloud: Cloud
    action: Action
    scope: Scope = "none"
    needs: tuple[str, ...] = ()
    block: timedelta = timedelta()
    block_spot: timedelta | None = None
    leaves: bool = False
    rank: int = 5


_HOUR = timedelta(hours=1)
_TEN = timedelta(minutes=10)
_DAY = timedelta(hours=23)

AZURE: tuple[Row, ...] = (
    Row(code="SkuNotAvailable", cloud="azure", action=Action.OTHER_PLACE, scope="size", block=_DAY, block_spot=_HOUR),
    Row(code="AllocationFailed", cloud="azure", action=Action.CLEAN_OTHER_REGION, scope="region", block=_HOUR, leaves=True),
    Row(code="ZonalAllocationFailed", cloud="azure", action=Action.OTHER_ZONE, scope="zone", block=_HOUR, leaves=True, rank=6),
    Row(code="OverconstrainedAllocationRequest", cloud="azure", action=Action.OTHER_ZONE, scope="zone", block=_HOUR, leaves=True, rank=6),
    Row(
        code="OverconstrainedZonalAllocationRequest",
        cloud="azure",
        action=Action.OTHER_ZONE,
        scope="zone",
        block=_HOUR,
        leaves=True,
        rank=7,
    ),
    Row(code="OperationNotAllowed", cloud="azure", action=Action.RAISE_QUOTA, scope="region", needs=("quota",), block=_TEN, rank=6),
    Row(code="QuotaExceeded", cloud="azure", action=Action.RAISE_QUOTA, scope="region", block=_TEN, rank=4),
    Row(code="VMMarketplaceInvalidInput", cloud="azure", action=Action.FIX_CONFIG, leaves=True),
    Row(code="MarketplacePurchaseEligibilityFailed", cloud="azure", action=Action.FIX_CONFIG),
    Row(code="InvalidParameter", cloud="azure", action=Action.FIX_CONFIG, rank=3),
    Row(code="PropertyChangeNotAllowed", cloud="azure", action=Action.FIX_CONFIG),
    Row(code="RequestDisallowedByPolicy", cloud="azure", action=Action.FIX_CONFIG),
    Row(code="MissingSubscriptionRegistration", cloud="azure", action=Action.FIX_CONFIG),
    Row(code="AuthorizationFailed", cloud="azure", action=Action.FIX_ACCESS),
    Row(code="LinkedAuthorizationFailed", cloud="azure", action=Action.FIX_ACCESS),
    Row(code="AuthenticationFailed", cloud="azure", action=Action.FIX_ACCESS),
    Row(code="InvalidAuthenticationTokenTenant", cloud="azure", action=Action.FIX_ACCESS),
    Row(code="ExpiredAuthenticationToken", cloud="azure", action=Action.FIX_ACCESS),
    Row(code="InvalidAuthenticationToken", cloud="azure", action=Action.FIX_ACCESS),
    Row(code="TooManyRequests", cloud="azure", action=Action.WAIT_RETRY),
    Row(code="SubscriptionRequestsThrottled", cloud="azure", action=Action.WAIT_RETRY),
    Row(code="RetryableError", cloud="azure", action=Action.WAIT_RETRY),
    Row(code="InternalExecutionError", cloud="azure", action=Action.WAIT_RETRY, leaves=True, rank=3),
)

AWS: tuple[Row, ...] = (
    Row(code="InsufficientInstanceCapacity", cloud="aws", action=Action.OTHER_PLACE, scope="zone", block=_HOUR, leaves=True),
    Row(code="InsufficientHostCapacity", cloud="aws", action=Action.OTHER_PLACE, scope="zone", block=_HOUR),
    Row(code="InsufficientCapacityOnHost", cloud="aws", action=Action.OTHER_PLACE, scope="zone", block=_HOUR),
    Row(code="UnfulfillableCapacity", cloud="aws", action=Action.OTHER_PLACE, scope="zone", block=_HOUR),
    Row(code="ReservationCapacityExceeded", cloud="aws", action=Action.OTHER_PLACE, scope="zone", block=_TEN),
    Row(code="Unsupported", cloud="aws", action=Action.OTHER_ZONE, scope="zone", block=_DAY, rank=4),
    Row(code="SpotMaxPriceTooLow", cloud="aws", action=Action.OTHER_PLACE, scope="spot", block=_HOUR),
    Row(code="MaxSpotInstanceCountExceeded", cloud="aws", action=Action.RAISE_QUOTA, scope="spot", block=_TEN),
    Row(code="VcpuLimitExceeded", cloud="aws", action=Action.RAISE_QUOTA, scope="region", block=_TEN),
    Row(code="InstanceLimitExceeded", cloud="aws", action=Action.RAISE_QUOTA, scope="region", block=_TEN),
    Row(code="VpcLimitExceeded", cloud="aws", action=Action.RAISE_QUOTA, scope="region", block=_TEN),
    Row(code="AddressLimitExceeded", cloud="aws", action=Action.RAISE_QUOTA, scope="region", block=_TEN),
    Row(code="NatGatewayLimitExceeded", cloud="aws", action=Action.RAISE_QUOTA, scope="region", block=_TEN),
    Row(code="InsufficientFreeAddressesInSubnet", cloud="aws", action=Action.FIX_CONFIG),
    Row(code="InvalidParameterValue", cloud="aws", action=Action.FIX_CONFIG, rank=3),
    Row(code="InvalidAMIID.NotFound", cloud="aws", action=Action.FIX_CONFIG),
    Row(code="OptInRequired", cloud="aws", action=Action.FIX_CONFIG),
    Row(code="PendingVerification", cloud="aws", action=Action.FIX_ACCESS),
    Row(code="UnauthorizedOperation", cloud="aws", action=Action.FIX_ACCESS),
    Row(code="AuthFailure", cloud="aws", action=Action.FIX_ACCESS),
    Row(code="AccessDenied", cloud="aws", action=Action.FIX_ACCESS),
    Row(code="InvalidClientTokenId", cloud="aws", action=Action.FIX_ACCESS),
    Row(code="ExpiredToken", cloud="aws", action=Action.FIX_ACCESS),
    Row(code="RequestExpired", cloud="aws", action=Action.FIX_ACCESS),
    Row(code="RequestLimitExceeded", cloud="aws", action=Action.WAIT_RETRY),
    Row(code="Throttling", cloud="aws", action=Action.WAIT_RETRY, rank=4),
    Row(code="ServiceUnavailable", cloud="aws", action=Action.WAIT_RETRY, rank=3),
)

ROWS = AZURE + AWS

PHRASES: tuple[tuple[str, str], ...] = (
    ("we do not have sufficient capacity for the requested vm size in this zone", "ZonalAllocationFailed"),
    ("we do not have sufficient capacity for the requested vm size in this region", "AllocationFailed"),
    ("is currently not available in location", "SkuNotAvailable"),
    ("approved standard", "OperationNotAllowed"),
    ("approved lowprioritycores quota", "OperationNotAllowed"),
    ("approved total regional cores quota", "OperationNotAllowed"),
    ("allocation request is overconstrained", "OverconstrainedAllocationRequest"),
    ("creating a virtual machine from marketplace image", "VMMarketplaceInvalidInput"),
    ("capacity in the availability zone you requested", "InsufficientInstanceCapacity"),
    ("more vcpu capacity than your current vcpu limit", "VcpuLimitExceeded"),
    ("requested instance type is not supported in your requested availability zone", "Unsupported"),
    ("max spot instance count exceeded", "MaxSpotInstanceCountExceeded"),
    ("capacity reservation does not have sufficient capacity", "ReservationCapacityExceeded"),
    ("request limit exceeded", "RequestLimitExceeded"),
)
"""Sentences by which a code is known where the provider prints none (azurerm: `polling failed ... Status: "..."` with an empty Code;
AWS: the status text of a scaling activity). Lower case; the first that fits counts."""

CONSTRAINTS: tuple[tuple[str, str], ...] = (
    ("availability zone", "zones"),
    ("ephemeral", "os_disk"),
    ("proximity placement", "placement"),
    ("availability set", "placement"),
    ("vm size", "sizes"),
)
"""Words of an Overconstrained message and the setting of a pool (pool.NAME.SETTING) by which its owner can give way."""
