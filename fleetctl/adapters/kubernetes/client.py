"""Inventory, adapter layer: the connection to a cluster: kubeconfig or the pod's own account, pages, errors. Never a call that writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fleetctl.errors import CredentialsMissing, FleetctlError, InventoryFailed, ToolMissing

PAGE = 500
TIMEOUT_S = 60
RETRIES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAccess:
    """How a cluster is reached.

    Args:
        kubeconfig: file, "" for the usual one (or the pod's own account inside a cluster); context: "" for the current one.
    """

    kubeconfig: str = ""
    context: str = ""


def need_client() -> None:
    """Import the client. Raises ToolMissing (tool.kubernetes) where it is not installed."""
    try:
        import kubernetes.client
        import kubernetes.config  # noqa: F401 - that both can be
    except ImportError as e:
        text = "the client for Kubernetes is not installed."
        raise ToolMissing("tool.kubernetes", text, hint="Run: pip install 'fleetctl[kubernetes]'") from e


class ClusterApi:
    """Reads of one cluster, as plain JSON: the client's models take many times longer to build than an inventory needs.

    Args:
        retries: of a call that the cluster cannot answer now; 0 for calls that must not wait.
    """

    def __init__(self, access: ClusterAccess, retries: int = RETRIES) -> None:
        need_client()
        import kubernetes.client
        import kubernetes.config
        from urllib3.util import Retry

        client: Any = kubernetes.client
        config: Any = kubernetes.config
        settings = client.Configuration()
        try:
            if access.kubeconfig or access.context or not _inside():
                config.load_kube_config(access.kubeconfig or None, access.context or None, client_configuration=settings)
            else:
                config.load_incluster_config(client_configuration=settings)
        except (config.ConfigException, OSError, ValueError) as e:
            text = f"no cluster can be reached: {str(e)[:200]}."
            raise CredentialsMissing("credentials.kubernetes", text, hint="Set: KUBECONFIG, or settings.kubeconfig and context") from e
        settings.retries = Retry(
            total=retries,
            backoff_factor=0.5,
            backoff_jitter=0.5,
            status_forcelist=(429, 500, 502, 503, 504),
            respect_retry_after_header=True,
            raise_on_status=False,
            redirect=0,
        )
        self._api = client.ApiClient(settings)
        self.core, self.apps = client.CoreV1Api(self._api), client.AppsV1Api(self._api)
        self.scaling, self.custom = client.AutoscalingV2Api(self._api), client.CustomObjectsApi(self._api)

    def items(self, call: Callable[..., Any], what: str, **options: Any) -> Iterator[Mapping[str, Any]]:
        """Yield the items of a list, page by page; a kind that the cluster does not have is an empty list.

        Raises:
            CredentialsMissing, InventoryFailed: as `translated`.
        """
        more = ""
        while True:
            page_options = {**options, "limit": PAGE, **({"_continue": more} if more else {})}
            with translated(what):
                answer = call(_preload_content=False, _request_timeout=TIMEOUT_S, **page_options)
                page = json.loads(answer.data)
            yield from (item for item in page.get("items") or () if isinstance(item, dict))
            more = str((page.get("metadata") or {}).get("continue") or "")
            if not more:
                return

    def custom_items(self, group: str, version: str, plural: str) -> Iterator[Mapping[str, Any]]:
        """Yield all objects of a custom kind; nothing where the cluster does not know it."""
        from kubernetes.client.exceptions import ApiException

        try:
            yield from self.items(self.custom.list_cluster_custom_object, plural, group=group, version=version, plural=plural)
        except InventoryFailed as e:
            if not (isinstance(e.__cause__, ApiException) and e.__cause__.status == 404):
                raise


def _inside() -> bool:
    import os

    return "KUBERNETES_SERVICE_HOST" in os.environ and not os.environ.get("KUBECONFIG")


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn the client's errors into fleetctl's.

    Raises:
        CredentialsMissing: credentials.kubernetes, credentials.kubernetes_rights; InventoryFailed: inventory.kubernetes.
    """
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except FleetctlError:
        raise
    except ApiException as e:
        said = _said(e)
        if e.status == 401:
            text = f"the cluster does not accept the credential for {what}: {said}."
            raise CredentialsMissing("credentials.kubernetes", text, hint="Set: KUBECONFIG (or log in again)") from e
        if e.status == 403:
            hint = "Apply inventory/NAME/access/kubernetes-role.yaml"
            raise CredentialsMissing("credentials.kubernetes_rights", f"the cluster refuses {what}: {said}.", hint=hint) from e
        raise InventoryFailed("inventory.kubernetes", f"the cluster answers {e.status} for {what}: {said}.") from e
    except (HTTPError, OSError, ValueError) as e:
        raise InventoryFailed("inventory.kubernetes", f"the cluster cannot be read for {what}: {str(e)[:200]}.") from e


def _said(e: Any) -> str:
    try:
        return str(json.loads(e.body)["message"])[:200].rstrip(".")
    except (ValueError, KeyError, TypeError):
        return str(e.reason)[:200]
