"""Configure, adapter layer: what a play itself is told, not its hosts: how many at a time, and how many may fail. Never starts it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from fleetctl.adapters.ansible.settings import write_private
from fleetctl.errors import ConfigInvalid

SERIAL, MAX_FAIL = "node_serial", "node_max_fail"
_SHARE = re.compile(r"(?:[1-9][0-9]?|100)%\Z")


def wave_arguments(folder: Path, variables: Mapping[str, object], by_host: Mapping[str, Mapping[str, object]]) -> list[str]:
    """Return arguments of ansible-playbook that set its waves; it reads them before there is a host, so the inventory cannot hold them.

    Args:
        folder: private folder of the run; variables: of all hosts; by_host: of one.

    Raises:
        ConfigInvalid: config.variable: no number of hosts, share or percentage, or one that is said of a single host.
    """
    if host := next((h for h, row in by_host.items() if {SERIAL, MAX_FAIL} & set(row)), None):
        raise ConfigInvalid("config.variable", f"{SERIAL} and {MAX_FAIL} are of the whole play and cannot be said of host {host}")
    asked = {name: variables[name] for name in (SERIAL, MAX_FAIL) if name in variables}
    serial = asked.get(SERIAL, 1)
    steps = serial if isinstance(serial, list) else [serial]
    if not steps or not all(_is_number(s, 1, 1_000_000) or (isinstance(s, str) and _SHARE.match(s)) for s in steps):
        raise ConfigInvalid("config.variable", f'{SERIAL} is {serial!r}, not hosts at a time: 1, "25%" or a list of such')
    if not _is_number(asked.get(MAX_FAIL, 0), 0, 100):
        raise ConfigInvalid("config.variable", f"{MAX_FAIL} is {asked[MAX_FAIL]!r}, not a percentage from 0 to 100")
    if not asked:
        return []
    path = folder / "waves.json"
    write_private(path, json.dumps(asked))
    return ["--extra-vars", f"@{path}"]


def _is_number(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
