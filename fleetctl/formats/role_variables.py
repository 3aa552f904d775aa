"""Configure, formats layer: the names of variables that the shipped roles and plays know. Never reads a value."""

from __future__ import annotations

from pathlib import Path

from fleetctl.formats.yaml_source import read_yaml

OF_PLAYS = frozenset({"node_serial", "node_max_fail", "health_gate_profile"})
"""What plays themselves take: hosts at a time, share that may fail before the play stops (percent), thresholds of the health gate."""


def role_variables(playbooks: Path) -> frozenset[str]:
    """Return every name that a role's argument_specs.yml or a play has."""
    found: set[str] = set(OF_PLAYS)
    for path in sorted(playbooks.glob("roles/*/meta/argument_specs.yml")):
        specs = read_yaml(path.read_text("utf-8")).value
        found |= set(specs["argument_specs"]["main"]["options"])
    return frozenset(found)
