"""Configure, lab layer: an emulated host is a folder. Stands in for a machine; never more than files.

Run as `python -m fleetctl.lab.host create <json>` where <json> is an object or the path of a file that holds one, with `folder` (absolute)
and `id`, and any other strings (pool, vendor, sku, address). Prints one JSON line: {"changed": ..., "folder": ..., "emulated": true}.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from fleetctl.domain.ids import is_id

HOST_FILE = "host.json"


def create_host(folder: Path, facts: dict[str, str]) -> bool:
    """Make the folder (0700) of an emulated host with its facts; return whether anything changed. Idempotent.

    Args:
        folder: absolute.
        facts: strings; `id` is a host id.

    Raises:
        ValueError: the folder is not absolute or the id is none.
    """
    if not folder.is_absolute() or ".." in folder.parts:
        raise ValueError(f"folder {str(folder)!r} is not an absolute path")
    if not is_id(facts.get("id", "")):
        raise ValueError(f"id {facts.get('id', '')!r} does not name a host")
    text = json.dumps({**facts, "emulated": True}, indent=2, sort_keys=True) + "\n"
    path = folder / HOST_FILE
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        if path.read_text() == text:
            return False
    except FileNotFoundError:
        pass
    new = folder / f".{HOST_FILE}.{os.getpid()}.new"
    new.write_text(text)
    os.replace(new, path)
    return True


def _read(argument: str) -> tuple[Path, dict[str, str]]:
    data = json.loads(argument if argument.lstrip().startswith("{") else Path(argument).read_text())
    if not isinstance(data, dict) or not all(isinstance(v, str) for v in data.values()):
        raise ValueError("not an object of strings")
    facts = {str(k): str(v) for k, v in data.items() if k != "folder"}
    return Path(data.get("folder", "")), facts


def main(argv: list[str]) -> int:
    """Run `create <json>`. Returns an exit code: 0 done, 1 failed, 2 usage."""
    if len(argv) != 2 or argv[0] != "create":
        sys.stderr.write("usage: python -m fleetctl.lab.host create <json object or file>\n")
        return 2
    try:
        folder, facts = _read(argv[1])
        changed = create_host(folder, facts)
    except (OSError, ValueError) as e:
        sys.stderr.write(f"emulated host cannot be made: {e}\n")
        return 1
    sys.stdout.write(json.dumps({"changed": changed, "folder": str(folder), "emulated": True}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
