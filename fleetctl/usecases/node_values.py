"""Configure, use-case layer: values that are known only when a run begins: secrets and signed addresses. Never kept, never logged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fleetctl.domain.fleet import SecretRef
from fleetctl.ports.capacity import ModelSources
from fleetctl.ports.state import Secrets
from fleetctl.usecases.configure_nodes import Nodes

SPARE_S = 900
"""How long an address lives beyond the longest run, so that the last host's last file can still be fetched."""


def values_of(
    nodes: Nodes, variables: Mapping[str, object], secrets: Secrets, sources: ModelSources, secret_of: Callable[[object], SecretRef | None],
    longest_s: int,
) -> dict[str, object]:  # fmt: skip
    """Return the variables with each `{secret: {env: NAME}}` resolved and each file's address signed.

    Args:
        secret_of: reads what stands under `secret`; longest_s: longest run, seconds.

    Raises:
        CredentialsMissing: credentials.*; ToolMissing: tool.azure_blob_missing.
    """

    def resolved(value: object) -> object:
        if isinstance(value, Mapping):
            ref = secret_of(value["secret"]) if set(value) == {"secret"} else None
            return secrets.resolve(ref) if ref is not None else {k: resolved(v) for k, v in value.items()}
        if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
            return [resolved(v) for v in value]
        return value

    found = {k: resolved(v) for k, v in variables.items()}
    if nodes.models:
        found["model_store_files"] = [_row(sources, nodes, n, longest_s + SPARE_S) for n in range(len(nodes.models))]
    return found


def _row(sources: ModelSources, nodes: Nodes, number: int, seconds: int) -> dict[str, object]:
    file = nodes.models[number]
    signed = sources.sign(file, nodes.stores[file.store], seconds)
    row: dict[str, object] = {"path": signed.path, "sha256": signed.sha256}
    if signed.source:
        return row | {"source": signed.source}
    return row | {"url": signed.url} | ({"headers": dict(signed.headers)} if signed.headers else {})
