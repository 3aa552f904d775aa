"""Provision and plan, adapters layer: one compute client per subscription, and what its errors mean. Never keeps a secret."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleetctl.errors import CapacityUnavailable, CredentialsMissing, FleetctlError

if TYPE_CHECKING:
    from azure.core.credentials import TokenCredential
    from azure.mgmt.compute import ComputeManagementClient

_READ_S = 20
RESOURCES_API = "2021-04-01"
"""Version of the generic resource list; stable since 2021."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureConnection:
    """How to reach a subscription.

    Args:
        endpoint: of the resource manager, "" for the public cloud's; ca: file with certificates to trust, "" for the system's.
    """

    subscription: str
    endpoint: str = ""
    ca: str = ""


def connect(c: AzureConnection, credential: TokenCredential) -> ComputeManagementClient:
    """Return a client; it logs in at its first call."""
    from azure.mgmt.compute import ComputeManagementClient

    more: dict[str, Any] = {"connection_verify": c.ca} if c.ca else {}
    if c.endpoint:
        more |= {"base_url": c.endpoint, "credential_scopes": [f"{c.endpoint}/.default"]}
    return ComputeManagementClient(credential, c.subscription, read_timeout=_READ_S, retry_total=3, **more)


def default_credential() -> TokenCredential:
    """Return what azure-identity finds: environment, workload or managed identity, `az login`.

    Raises:
        CredentialsMissing: credentials.azure where azure-identity is not installed.
    """
    try:
        from azure.identity import DefaultAzureCredential
    except ImportError as e:
        text = "logging in to Azure needs the package azure-identity."
        raise CredentialsMissing("credentials.azure", text, hint="Run: pip install azure-identity") from e
    found: TokenCredential = DefaultAzureCredential(exclude_interactive_browser_credential=True)
    return found


class FixedToken:
    """A credential for the lab double of Azure, which takes any token; never a real one."""

    def get_token(self, *scopes: str, **_: object) -> Any:
        """Return a token that says what it is."""
        import time

        from azure.core.credentials import AccessToken

        return AccessToken("lab-double", int(time.time()) + 3600)


def is_loopback(c: AzureConnection) -> bool:
    """Tell whether the endpoint is a lab double on this machine: no real credential is ever sent there."""
    return c.endpoint.startswith("https://127.0.0.1:")


@contextmanager
def told(what: str) -> Iterator[None]:
    """Turn the client's errors into ours.

    Raises:
        CredentialsMissing: credentials.refused; CapacityUnavailable: capacity.unreachable.
    """
    from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError

    try:
        yield
    except ClientAuthenticationError as e:
        raise CredentialsMissing("credentials.refused", f"{what}: Azure refused the credentials: {_line(e)}", hint="Run: az login") from e
    except HttpResponseError as e:
        if e.status_code == 401:
            raise CredentialsMissing(
                "credentials.refused", f"{what}: Azure refused the credentials: {_line(e)}", hint="Run: az login"
            ) from e
        if e.status_code == 403:
            hint = "Ask for the role of inventory/NAME/access/azure-role.json, and the right to make machines. Run: fleetctl doctor"
            raise CredentialsMissing("credentials.refused", f"{what}: Azure says no: {_line(e)}", hint=hint) from e
        raise _unreachable(what, e) from e
    except AzureError as e:
        raise _unreachable(what, e) from e


def _unreachable(what: str, e: Exception) -> FleetctlError:
    return CapacityUnavailable("capacity.unreachable", f"{what}: Azure did not answer: {_line(e)}", hint="Run: fleetctl doctor")


def _line(e: Exception) -> str:
    text = str(getattr(e, "message", "") or e)
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:300]
