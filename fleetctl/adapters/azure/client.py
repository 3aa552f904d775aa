"""Inventory and migrate, adapter layer: the connection to Azure: credential, endpoint, pace, errors in fleetctl's words.

Big lists are read as JSON through Azure's own pipeline (azure-mgmt-core), small ones through azure-mgmt-compute: its models take about
1 ms of CPU per VM to build, the JSON 0.05 ms. Source: 5,000 VMs of the emulated API, azure-mgmt-compute 39.0.0, Python 3.11, 2026-11-30.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleetctl.adapters.azure.pace import RETRIES, JitteredRetry, Pace, PacePolicy
from fleetctl.errors import CredentialsMissing, FleetctlError, InventoryFailed

if TYPE_CHECKING:
    from azure.core.credentials import TokenCredential
    from azure.mgmt.compute import ComputeManagementClient

PUBLIC = "https://management.azure.com"
COMPUTE_VERSION = "2024-11-01"
"""Version of the two big lists. Source: specification/compute/resource-manager/Microsoft.Compute/ComputeRP/stable."""
_PLAIN_PATH = re.compile(r"[A-Za-z0-9/_-]+")
TIMEOUT_S = 60
CALL_S = 2
SIGN_IN = "Run: az login (or set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET)"


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureAccess:
    """How Azure is reached.

    Args:
        subscriptions: ids; endpoint: of the management API; ca_file: an authority to trust instead of the system's, "" for those.
        token: gives a ready access token; None: the identity of this machine or person is used.
    """

    subscriptions: tuple[str, ...]
    endpoint: str = PUBLIC
    ca_file: str = ""
    token: Callable[[], str] | None = None


class AzureApi:
    """Reads of one subscription."""

    def __init__(self, access: AzureAccess, subscription: str, credential: TokenCredential) -> None:
        self.subscription = subscription
        self.pace = Pace()
        self._access = access
        self._credential = credential
        self._scope = f"{access.endpoint.rstrip('/')}/.default"
        self._verify: Any = access.ca_file or True
        self._raw = self._pipeline()

    def compute(self) -> ComputeManagementClient:
        """Return the compute client."""
        from azure.mgmt.compute import ComputeManagementClient

        return ComputeManagementClient(
            self._credential,
            self.subscription,
            base_url=self._access.endpoint,
            credential_scopes=[self._scope],
            connection_verify=self._verify,
            retry_policy=JitteredRetry(retry_total=RETRIES, retry_backoff_max=30),
            per_retry_policies=[PacePolicy(self.pace)],
            read_timeout=TIMEOUT_S,
        )

    def pages(self, path: str, **query: str) -> Iterator[list[Mapping[str, Any]]]:
        """Yield the pages of a list of Microsoft.Compute, following nextLink, which may not lead away from the endpoint.

        Raises:
            CredentialsMissing, InventoryFailed: as `translated`.
        """
        from azure.core.exceptions import HttpResponseError
        from azure.core.rest import HttpRequest

        if not _PLAIN_PATH.fullmatch(path):
            raise InventoryFailed("inventory.azure", f"{path[:80]!r} is no list of Microsoft.Compute.", hint="Mend: settings.regions")
        url = f"{self._access.endpoint.rstrip('/')}/subscriptions/{self.subscription}/providers/Microsoft.Compute/{path}"
        params: dict[str, str] | None = {"api-version": COMPUTE_VERSION, **query}
        seen = set()
        while url:
            seen.add(url)
            response = self._raw.send_request(HttpRequest("GET", url, params=params))
            if response.status_code != 200:
                raise HttpResponseError(response=response)
            body = json.loads(response.read())
            yield [item for item in body.get("value", ()) if isinstance(item, dict)]
            url, params = str(body.get("nextLink") or ""), None
            if url and (url in seen or not url.startswith(self._access.endpoint.rstrip("/") + "/")):
                raise InventoryFailed("inventory.azure_page", f"Azure's list of {path} leads on to {url[:120]!r}, which is not followed.")

    def call(self, method: str, path: str, version: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the JSON of one call below the subscription, within 2 s and without retries: what a pinned minimum needs.

        Raises:
            CredentialsMissing, InventoryFailed: as `translated`.
        """
        from azure.core.exceptions import HttpResponseError
        from azure.core.rest import HttpRequest

        url = f"{self._access.endpoint.rstrip('/')}/subscriptions/{self.subscription}/{path}"
        with translated(path.rpartition("/providers/")[2][:120]):
            request = HttpRequest(method, url, params={"api-version": version}, json=body)
            response = self._raw.send_request(request, retry_total=0, connection_timeout=CALL_S, read_timeout=CALL_S)
            if response.status_code not in (200, 201):
                raise HttpResponseError(response=response)
            found = json.loads(response.read())
            return found if isinstance(found, dict) else {}

    def _pipeline(self) -> Any:
        from azure.core.pipeline.policies import HeadersPolicy, RequestIdPolicy, UserAgentPolicy
        from azure.core.pipeline.transport import RequestsTransport
        from azure.mgmt.core import ARMPipelineClient
        from azure.mgmt.core.policies import ARMChallengeAuthenticationPolicy

        return ARMPipelineClient(
            base_url=self._access.endpoint,
            policies=[
                RequestIdPolicy(),
                HeadersPolicy({"Accept": "application/json"}),
                UserAgentPolicy(sdk_moniker="fleetctl"),
                JitteredRetry(retry_total=RETRIES, retry_backoff_max=30),
                ARMChallengeAuthenticationPolicy(self._credential, self._scope),
                PacePolicy(self.pace),
            ],
            transport=RequestsTransport(connection_verify=self._verify, read_timeout=TIMEOUT_S),
        )


def credential_of(access: AzureAccess) -> TokenCredential:
    """Return what signs requests: the given token, else azure-identity's chain (environment, workload, managed identity, az)."""
    if access.token is not None:
        return _GivenToken(access.token)
    try:
        from azure.identity import DefaultAzureCredential
    except ImportError as e:
        text = "signing in to Azure needs the package azure-identity."
        raise CredentialsMissing("credentials.azure", text, hint="Run: pip install azure-identity") from e
    found: TokenCredential = DefaultAzureCredential(
        exclude_interactive_browser_credential=True,
        exclude_visual_studio_code_credential=True,
        exclude_shared_token_cache_credential=True,
        exclude_powershell_credential=True,
        exclude_developer_cli_credential=True,
    )
    return found


class _GivenToken:
    """A token that somebody else fetched; it is taken to last an hour, and a 401 tells when it does not."""

    def __init__(self, token: Callable[[], str]) -> None:
        self._token = token

    def get_token(self, *scopes: str, **_: Any) -> Any:
        import time

        from azure.core.credentials import AccessToken

        return AccessToken(self._token(), int(time.time()) + 3600)


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn Azure's errors into fleetctl's.

    Raises:
        CredentialsMissing: credentials.azure (none, or expired), credentials.azure_rights (a right is missing).
        InventoryFailed: inventory.azure.
    """
    from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError, ServiceRequestError

    try:
        yield
    except FleetctlError:
        raise
    except ClientAuthenticationError as e:
        raise CredentialsMissing("credentials.azure", f"Azure does not accept a credential for {what}: {_said(e)}.", hint=SIGN_IN) from e
    except HttpResponseError as e:
        if e.status_code == 401:
            raise CredentialsMissing("credentials.azure", f"Azure's credential for {what} has expired: {_said(e)}.", hint=SIGN_IN) from e
        if e.status_code == 403:
            hint = "Give the role of inventory/NAME/access/azure-role.json to this identity"
            raise CredentialsMissing("credentials.azure_rights", f"Azure refuses {what}: {_said(e)}.", hint=hint) from e
        raise InventoryFailed("inventory.azure", f"Azure answers {e.status_code} for {what}: {_said(e)}{_later(e)}.") from e
    except ServiceRequestError as e:
        raise InventoryFailed("inventory.azure", f"Azure cannot be reached for {what}: {_said(e)}.") from e
    except (AzureError, ValueError) as e:
        raise InventoryFailed("inventory.azure", f"Azure's answer for {what} cannot be read: {_said(e)}.") from e


def _said(e: Exception) -> str:
    code = getattr(getattr(e, "error", None), "code", None)
    message = getattr(getattr(e, "error", None), "message", None) or str(e)
    first = str(message).strip().splitlines()[0] if str(message).strip() else type(e).__name__
    return (f"{code}: " if code and str(code) not in first else "") + first.rstrip(".")[:240]


def _later(e: Any) -> str:
    headers = getattr(getattr(e, "response", None), "headers", None) or {}
    after = headers.get("Retry-After", "")
    return f" (try again in {after} s)" if str(after).isdigit() else ""
