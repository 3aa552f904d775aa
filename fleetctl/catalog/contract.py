"""Evidence, catalogue layer: reads the calls of the serving contract. Never a network call; what a right answer is, is in the rows."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import get_args

from fleetctl.domain.identity import ContractCall, ContractTopic
from fleetctl.errors import ConfigInvalid

FORMAT_VERSION = 1
CHECKS = frozenset(
    [
        "status",
        "has",
        "equals",
        "at_most",
        "count",
        "sum",
        "text",
        "same",
        "listed",
        "stream",
        "logprobs",
        "lacks",
        "json",
        "tool_call",
        "error",
    ],
)
_KEYS = {"id", "topic", "method", "path", "body", "expect", "optional", "says"}


@cache
def load_contract() -> tuple[ContractCall, ...]:
    """Return the shipped calls.

    Raises:
        ConfigInvalid: config.contract, with every bad row.
    """
    return parse_contract((files("fleetctl.catalog") / "data" / "contract_calls.json").read_text("utf-8"), "contract_calls.json")


def parse_contract(text: str, name: str) -> tuple[ContractCall, ...]:
    """Build the calls from JSON.

    Raises:
        ConfigInvalid: config.contract: not JSON, another format version, an unknown key, topic or check, an id twice.
    """
    try:
        data = json.loads(text)
    except ValueError as e:
        raise ConfigInvalid("config.contract", f"{name} is not JSON: {e}") from e
    if not isinstance(data, dict) or data.get("format_version") != FORMAT_VERSION or not isinstance(data.get("calls"), list):
        raise ConfigInvalid("config.contract", f"{name} is not of format version {FORMAT_VERSION}")
    faults: list[str] = []
    seen: set[str] = set()
    for i, row in enumerate(data["calls"]):
        where = row.get("id", f"call {i}") if isinstance(row, dict) else f"call {i}"
        faults += [f"{where}: {fault}" for fault in _faults(row, seen)]
    if faults:
        raise ConfigInvalid("config.contract", f"{name} has {len(faults)} mistakes", details=tuple(faults))
    return tuple(ContractCall(**row) for row in data["calls"])


def _faults(row: object, seen: set[str]) -> list[str]:
    if not isinstance(row, dict) or set(row) != _KEYS:
        return [f"its keys are not {', '.join(sorted(_KEYS))}"]
    found = [f"unknown check {k!r}" for k in sorted(set(row["expect"]) - CHECKS)]
    if row["topic"] not in get_args(ContractTopic):
        found.append(f"unknown topic {row['topic']!r}")
    if row["id"] in seen:
        found.append("stands here twice")
    seen.add(row["id"])
    return found
