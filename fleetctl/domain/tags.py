"""Inventory, domain layer: which of a cloud's tags, or a cluster's labels, name an owner, a cost centre and the like. Never I/O."""

from __future__ import annotations

from collections.abc import Mapping

from fleetctl.domain.units import Scalar

MAX_TEXT = 512
"""Longest discovered text that is kept; clouds allow 256 characters for a tag."""

_WORDS: Mapping[str, tuple[str, ...]] = {
    "owner": ("owner", "team", "contact", "squad", "ownedby", "maintainer"),
    "cost_centre": ("costcentre", "costcenter", "costcode", "billingcode", "chargecode"),
    "tenant": ("tenant", "customer", "client"),
    "data_class": ("dataclass", "dataclassification", "classification", "confidentiality", "datasensitivity"),
    "workload": ("workload", "app", "application", "service", "appkubernetesioname"),
    "class": ("workloadclass", "servingclass"),
    "environment": ("environment", "env", "stage"),
    "pool": ("fleetctlpool",),
    "cell": ("fleetctlcell",),
}
_FIELD = {word: field for field, words in _WORDS.items() for word in words}


def tag_facts(tags: Mapping[str, object]) -> dict[str, Scalar]:
    """Return what the tags say under fleetctl's own names; where two tags say the same thing the earlier word of the list wins.

    Letter case, spaces and "-_./:" in the tag's name do not count: `Cost-Center` and `cost_center` are one.
    """
    found: dict[str, tuple[int, str]] = {}
    for name, value in tags.items():
        word = "".join(c for c in str(name).casefold() if c.isalnum())
        field = _FIELD.get(word)
        if field is None or not isinstance(value, str) or not value.strip():
            continue
        rank = _WORDS[field].index(word)
        if field not in found or rank < found[field][0]:
            found[field] = (rank, short(value.strip()))
    return {field: found[field][1] for field in _WORDS if field in found}


def short(text: str) -> str:
    """Return at most `MAX_TEXT` characters of discovered text; a lone surrogate becomes "?", so that it can be written anywhere."""
    cut = text[:MAX_TEXT]
    return cut if cut.isascii() else cut.encode("utf-8", "replace").decode("utf-8")
