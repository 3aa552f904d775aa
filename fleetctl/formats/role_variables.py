"""Configure, formats layer: names of variables that shipped roles and plays know, and how long deep checks take. Never a host's values."""

from __future__ import annotations

from pathlib import Path

from fleetctl.formats.yaml_source import read_yaml

OF_PLAYS = frozenset({"node_serial", "node_max_fail", "health_gate_profile"})
"""What plays themselves take: hosts at a time, share that may fail before the play stops (percent), thresholds of the health gate."""

DEFAULT_CHECK_S = 60
"""What a check of the health gate may take where it says nothing, in seconds; as in the gate's own module."""


def role_variables(playbooks: Path) -> frozenset[str]:
    """Return every name that a role's argument_specs.yml or a play has."""
    found: set[str] = set(OF_PLAYS)
    for path in sorted(playbooks.glob("roles/*/meta/argument_specs.yml")):
        specs = read_yaml(path.read_text("utf-8")).value
        found |= set(specs["argument_specs"]["main"]["options"])
    return frozenset(found)


def deep_checks(playbooks: Path, profile: str) -> dict[str, int]:
    """Return the deep checks of a profile of the health gate, with the seconds that each may take; {} for a profile that is none."""
    data = read_yaml((playbooks / "vars" / "thresholds.yml").read_text("utf-8")).value
    rows = data["health_thresholds"].get(profile, [])
    return {str(c["name"]): int(c.get("timeout", DEFAULT_CHECK_S)) for c in rows if c.get("tier") == "deep"}
