"""Provision, tests: refusals of clouds in their three shapes, with the one action that each must lead to. Data only.

Bodies follow those of Azure/karpenter-provider-azure pkg/fake/aksmachinesapi.go, dstackai/dstack and the EC2 API Reference,
in our own words where
the original is long. Names in them are invented.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.planning.provision_codes import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One condition: its code, its message, and what must be done."""

    code: str
    cloud: str
    message: str
    action: Action
    leaves: bool = False


_QUOTA = (
    "Operation could not be completed as it results in exceeding approved {name} quota. Additional details - Deployment "
    "Model: Resource Manager, "
    "Location: eastus2, Current Limit: {limit}, Current Usage: {used}, Additional Required: 96, (Minimum) New Limit Required: {least}. "
    "Submit a request for Quota increase."
)

AZURE: tuple[Refusal, ...] = (
    Refusal(
        code="SkuNotAvailable",
        cloud="azure",
        message=(
            "The requested VM size for resource 'Following SKUs have failed for Capacity Restrictions: "
            "Standard_ND96isr_MI300X_v5' is currently not available in location 'eastus2'. Please try another size or deploy "
            "to a different location or different zone."
        ),
        action=Action.OTHER_PLACE,
    ),
    Refusal(
        code="AllocationFailed",
        cloud="azure",
        message="Allocation failed. We do not have sufficient capacity for the requested VM size in this region.",
        action=Action.CLEAN_OTHER_REGION,
        leaves=True,
    ),
    Refusal(
        code="ZonalAllocationFailed",
        cloud="azure",
        message="Allocation failed. We do not have sufficient capacity for the requested VM size in this zone.",
        action=Action.OTHER_ZONE,
        leaves=True,
    ),
    Refusal(
        code="OverconstrainedAllocationRequest",
        cloud="azure",
        message=(
            "Create or update VM allocation request is overconstrained: VM Size, Ephemeral disk, Accelerated Networking. "
            "Allocation request is overconstrained by these."
        ),
        action=Action.OTHER_ZONE,
        leaves=True,
    ),
    Refusal(
        code="OverconstrainedZonalAllocationRequest",
        cloud="azure",
        message="Allocation failed: the VM cannot be allocated to the conditions requested: Availability Zone, VM Size.",
        action=Action.OTHER_ZONE,
        leaves=True,
    ),
    Refusal(
        code="OperationNotAllowed",
        cloud="azure",
        message=_QUOTA.format(name="standardNDISv5MI300XFamily Cores", limit=96, used=96, least=192),
        action=Action.RAISE_QUOTA,
    ),
    Refusal(
        code="QuotaExceeded",
        cloud="azure",
        message="Provisioning of resource(s) for agent pool failed: the quota is exceeded.",
        action=Action.RAISE_QUOTA,
    ),
    Refusal(
        code="VMMarketplaceInvalidInput",
        cloud="azure",
        message=(
            "Creating a virtual machine from Marketplace image or a custom image sourced from a Marketplace image requires "
            "Plan information."
        ),
        action=Action.FIX_CONFIG,
        leaves=True,
    ),
    Refusal(
        code="AuthorizationFailed",
        cloud="azure",
        message="The client does not have authorization to perform action 'Microsoft.Compute/virtualMachines/write'.",
        action=Action.FIX_ACCESS,
    ),
    Refusal(code="ExpiredAuthenticationToken", cloud="azure", message="The access token expiry is in the past.", action=Action.FIX_ACCESS),
    Refusal(code="TooManyRequests", cloud="azure", message="The request is throttled. Retry-After: 17", action=Action.WAIT_RETRY),
    Refusal(code="SubscriptionRequestsThrottled", cloud="azure", message="Number of requests exceeded.", action=Action.WAIT_RETRY),
    Refusal(code="RequestDisallowedByPolicy", cloud="azure", message="Resource 'vm-1' was disallowed by policy.", action=Action.FIX_CONFIG),
)

AWS: tuple[Refusal, ...] = (
    Refusal(
        code="InsufficientInstanceCapacity",
        cloud="aws",
        message=(
            "We currently do not have sufficient p5.48xlarge capacity in the Availability Zone you requested (us-east-1a). "
            "Our system will be working on provisioning additional capacity."
        ),
        action=Action.OTHER_PLACE,
        leaves=True,
    ),
    Refusal(
        code="ReservationCapacityExceeded",
        cloud="aws",
        message="The requested reservation does not have sufficient compatible and available capacity for this request.",
        action=Action.OTHER_PLACE,
    ),
    Refusal(
        code="VcpuLimitExceeded",
        cloud="aws",
        message=(
            "You have requested more vCPU capacity than your current vCPU limit of 0 allows for the instance bucket that the "
            "specified instance type belongs to."
        ),
        action=Action.RAISE_QUOTA,
    ),
    Refusal(code="MaxSpotInstanceCountExceeded", cloud="aws", message="Max spot instance count exceeded", action=Action.RAISE_QUOTA),
    Refusal(
        code="UnfulfillableCapacity",
        cloud="aws",
        message="Unable to fulfill capacity due to your request configuration.",
        action=Action.OTHER_PLACE,
    ),
    Refusal(code="RequestLimitExceeded", cloud="aws", message="Request limit exceeded.", action=Action.WAIT_RETRY),
    Refusal(
        code="Unsupported",
        cloud="aws",
        message="Your requested instance type (p5.48xlarge) is not supported in your requested Availability Zone (us-east-1e).",
        action=Action.OTHER_ZONE,
    ),
    Refusal(
        code="SpotMaxPriceTooLow", cloud="aws", message="Your Spot request price is below the minimum required.", action=Action.OTHER_PLACE
    ),
    Refusal(code="InsufficientHostCapacity", cloud="aws", message="Insufficient capacity on the host.", action=Action.OTHER_PLACE),
    Refusal(
        code="UnauthorizedOperation", cloud="aws", message="You are not authorized to perform this operation.", action=Action.FIX_ACCESS
    ),
    Refusal(code="ExpiredToken", cloud="aws", message="The provided token has expired.", action=Action.FIX_ACCESS),
    Refusal(
        code="InsufficientFreeAddressesInSubnet",
        cloud="aws",
        message="There are not enough free addresses in subnet 'subnet-1'.",
        action=Action.FIX_CONFIG,
    ),
)

ZERO_QUOTA = _QUOTA.format(name="LowPriorityCores", limit=0, used=0, least=96)


def as_request(r: Refusal) -> object:
    """Return the body of the refused request: Azure's JSON, AWS's XML."""
    if r.cloud == "azure":
        return {"error": {"code": r.code, "message": r.message}}
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<Response><Errors><Error>'
        f"<Code>{r.code}</Code><Message>{r.message}</Message></Error></Errors><RequestID>1</RequestID></Response>"
    )


def as_operation(r: Refusal) -> object:
    """Return the last poll of an operation that failed: Azure's status body, AWS's fleet error or scaling activity."""
    if r.cloud == "azure":
        inner = {"code": r.code, "message": r.message}
        wrapped = {
            "code": "ResourceDeploymentFailure",
            "message": "The resource operation completed with terminal state 'Failed'.",
            "details": [inner],
        }
        return {"startTime": "2026-11-30T10:00:00Z", "status": "Failed", "name": "op-1", "error": wrapped}
    return {
        "Activities": [
            {
                "StatusCode": "Failed",
                "StatusMessage": f"{r.code}: {r.message} Launching EC2 instance failed.",
                "Details": json_text(r),
            }
        ]
    }


def json_text(r: Refusal) -> str:
    """Return AWS's habit of JSON inside a string."""
    return '{"Subnet ID":"subnet-1","ErrorCode":"' + r.code + '"}'


def as_diagnostic(r: Refusal) -> str:
    """Return a provider's text: azurerm and aws as they print it, over several lines."""
    if r.cloud == "azure":
        return (
            'creating Linux Virtual Machine (Subscription: "0000"\nResource Group Name: "rg-mi300x"\nVirtual Machine Name: "mi300x-1"): '
            f'polling after CreateOrUpdate: polling failed: the Azure API returned the following error:\n\nStatus: "{r.code}"\nCode: ""\n'
            f'Message: "{r.message}"\nActivity Id: ""\n'
        )
    return (
        f"creating EC2 Instance: operation error EC2: RunInstances, https response error StatusCode: 500, RequestID: 1, api "
        f"error {r.code}: {r.message}"
    )
