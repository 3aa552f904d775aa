"""Composition root, inventory part: which adapter reads a source. Never decides; imports an adapter when it is asked for."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.errors import FleetctlError

if TYPE_CHECKING:
    from fleetctl.domain.fleet import Connection
    from fleetctl.domain.people import Facts, Gap
    from fleetctl.domain.units import Instant
    from fleetctl.ports.capacity import PartedDiscovery

Now = Callable[[], "Instant"]


def discovery_of(source: Connection, workspace: Path, now: Now, endpoints: tuple[str, ...]) -> PartedDiscovery:
    """Return the adapter of a source.

    Args:
        workspace: where relative paths begin; endpoints: of the fleet file's cells, for engines that are not named.
    """
    quiet_clients()
    try:
        if source.kind == "engines" and not source.settings.get("urls"):
            return _engines(source, workspace, now, endpoints)
        return MAKERS[source.kind](source, workspace, now)
    except (FleetctlError, OSError, ValueError) as e:
        return _Unusable(f"{source.kind} {source.name}", e)


def quiet_clients() -> None:
    """Keep what the clouds' clients log by themselves off stderr: what failed is said once, as a gap or an error."""
    import logging

    for name in ("azure", "msal", "urllib3", "botocore", "boto3", "kubernetes"):
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())


def _secret(source: Connection, name: str, workspace: Path) -> Callable[[], str] | None:
    from fleetctl.adapters.secrets.files import FileSecrets

    ref = source.secrets.get(name)
    return None if ref is None else lambda: FileSecrets(workspace).resolve(ref)


def _paths(text: str, workspace: Path) -> tuple[Path, ...]:
    return tuple(workspace / os.path.expanduser(word) for word in shlex.split(text))


class _Unusable:
    """A source that cannot even be made, such as one whose address is none: it is one gap, and the others are asked."""

    def __init__(self, name: str, error: Exception) -> None:
        self.name, self._error = name, error

    def parts(self) -> tuple[str, ...]:
        """Raise what is wrong with it."""
        raise self._error

    def scan(self, scope: str) -> Iterator[Facts | Gap]:
        """Raise what is wrong with it."""
        raise self._error


def _azure(source: Connection, workspace: Path, now: Now) -> PartedDiscovery:
    from fleetctl.adapters.azure.client import PUBLIC, AzureAccess
    from fleetctl.adapters.azure.discovery import AzureDiscovery

    s = source.settings
    access = AzureAccess(
        subscriptions=tuple((s.get("subscriptions") or os.environ.get("AZURE_SUBSCRIPTION_ID", "")).split()),
        endpoint=s.get("endpoint", PUBLIC),
        ca_file=s.get("ca_file", ""),
        token=_secret(source, "token", workspace),
    )
    return AzureDiscovery(source.name, access, now, regions=tuple(s.get("regions", "").split()), every_vm=s.get("every_vm") == "true")


def _aws(source: Connection, workspace: Path, now: Now) -> PartedDiscovery:
    from fleetctl.adapters.aws.client import AwsAccess
    from fleetctl.adapters.aws.discovery import AwsDiscovery

    s = source.settings
    access = AwsAccess(profile=s.get("profile", ""), endpoint=s.get("endpoint", ""))
    return AwsDiscovery(source.name, access, now, regions=tuple(s.get("regions", "").split()), every_vm=s.get("every_vm") == "true")


def _ansible(source: Connection, workspace: Path, now: Now) -> PartedDiscovery:
    from fleetctl.adapters.ansible_inventory import AnsibleDiscovery

    return AnsibleDiscovery(source.name, _paths(source.settings.get("inventories", ""), workspace), now, os.environ)


def _engines(source: Connection, workspace: Path, now: Now, endpoints: tuple[str, ...] = ()) -> PartedDiscovery:
    from fleetctl.adapters.engines.discovery import EngineDiscovery

    urls = tuple(source.settings.get("urls", "").split()) or endpoints
    return EngineDiscovery(source.name, urls, now, key=_secret(source, "key", workspace), ca_file=source.settings.get("ca_file", ""))


def _prometheus(source: Connection, workspace: Path, now: Now) -> PartedDiscovery:
    from fleetctl.adapters.prometheus.client import PrometheusApi
    from fleetctl.adapters.prometheus.discovery import PrometheusDiscovery

    s = source.settings
    api = PrometheusApi(s.get("url", ""), token=_secret(source, "token", workspace), ca_file=s.get("ca_file", ""))
    return PrometheusDiscovery(source.name, api, now, window=s.get("window", "24h"))


def _tables(source: Connection, workspace: Path, now: Now) -> PartedDiscovery:
    from fleetctl.adapters.files import TableDiscovery

    def shown(path: Path) -> str:
        return str(path.relative_to(workspace)) if path.is_relative_to(workspace) else str(path)

    return TableDiscovery(source.name, _paths(source.settings.get("files", ""), workspace), now, shown=shown)


def _cluster(source: Connection, workspace: Path, now: Now) -> PartedDiscovery:
    from fleetctl.adapters.kubernetes.client import ClusterAccess
    from fleetctl.adapters.kubernetes.discovery import KubernetesDiscovery

    s = source.settings
    return KubernetesDiscovery(source.name, ClusterAccess(kubeconfig=s.get("kubeconfig", ""), context=s.get("context", "")), now)


MAKERS: Mapping[str, Callable[[Connection, Path, Now], PartedDiscovery]] = {
    "azure": _azure,
    "aws": _aws,
    "ansible": _ansible,
    "engines": _engines,
    "prometheus": _prometheus,
    "table": _tables,
    "kubernetes": _cluster,
}
