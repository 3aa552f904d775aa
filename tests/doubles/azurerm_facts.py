"""Provision, tests: argument names and types of hashicorp/azurerm 5.2.0, read from the facts file. Data only.

The facts lack every argument named "version" or "description" (they were dropped with the prose when the facts were taken);
those that our HCL uses are
put back here by hand, each known from the provider's published documentation.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

FACTS = Path(__file__).resolve().parents[1] / "cases" / "azurerm_5_2_schema.json"
_IMAGE = ("azurerm_linux_virtual_machine", "azurerm_linux_virtual_machine_scale_set", "azurerm_orchestrated_virtual_machine_scale_set")


@cache
def facts() -> dict[str, Any]:
    """Return the facts, with what was dropped put back."""
    found: dict[str, Any] = json.loads(FACTS.read_text())
    for name in _IMAGE:
        image = found["resources"][name]["block"]["block_types"]["source_image_reference"]["block"]
        image["attributes"].setdefault("version", {"required": True, "type": "string"})
    rule = found["resources"]["azurerm_network_security_rule"]["block"]["attributes"]
    rule.setdefault("description", {"optional": True, "type": "string"})
    return found


def block_of(kind: str, name: str) -> dict[str, Any] | None:
    """Return the block of a resource ("resource") or data source ("data"), None where azurerm has none of that name in the facts."""
    found = facts()["resources" if kind == "resource" else "data_sources"].get(name)
    return None if found is None else found["block"]
