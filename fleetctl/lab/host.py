"""Provision, lab layer: an emulated host is a folder. Stands in for a machine; never more than files and the units in them.

Run as `python -m fleetctl.lab.host {create,destroy} <json>` where <json> is an object, or the path of a file that holds one, with `folder`
(absolute), `id`, and any other values (pool, vendor, sku); `delay_s` makes it take as long as a machine would. With `network` and `number`
it is a real machine in systemd-nspawn (fleetctl.lab.machine), and the folder is where that lies.
Prints one JSON line: {"changed": bool, "folder": path, "emulated": true}.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path

from fleetctl.domain.ids import is_id
from fleetctl.errors import FleetctlError

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
    text = json.dumps({**facts, "emulated": not facts.get("network")}, indent=2, sort_keys=True) + "\n"
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


def destroy_host(folder: Path, id_: str) -> bool:
    """Stop the units of an emulated host and remove its folder; return whether there was one. Idempotent.

    Raises:
        ValueError: the folder is not that of an emulated host of this id; nothing was touched.
    """
    from fleetctl.lab.service import stop

    if not folder.is_absolute() or ".." in folder.parts:
        raise ValueError(f"folder {str(folder)!r} is not an absolute path")
    if not folder.exists():
        return False
    try:
        found = json.loads((folder / HOST_FILE).read_bytes())
    except (OSError, ValueError):
        found = {}
    if not isinstance(found, dict) or not isinstance(found.get("emulated"), bool) or found.get("id") != id_:
        raise ValueError(f"{folder} is not the folder of the emulated host {id_!r}")
    for pid_file in folder.glob("*.pid"):
        stop(folder, pid_file.stem)
    if found.get("network"):
        from fleetctl.lab.machine import forget

        forget(folder, int(found["number"]), str(found["network"]))
    shutil.rmtree(folder)
    return True


def _read(argument: str) -> tuple[Path, dict[str, str], float]:
    data = json.loads(argument if argument.lstrip().startswith("{") else Path(argument).read_text())
    if not isinstance(data, dict) or not isinstance(data.get("folder"), str):
        raise ValueError("not an object with a folder")
    delay_s = float(data.get("delay_s", 0))
    if not 0 <= delay_s <= 600:
        raise ValueError(f"delay_s is {delay_s:g}, not 0 to 600 seconds")
    facts = {str(k): str(v) for k, v in data.items() if k not in ("folder", "delay_s")}
    return Path(data["folder"]), facts, delay_s


def main(argv: list[str]) -> int:
    """Run `create <json>` or `destroy <json>`. Returns an exit code: 0 done, 1 failed, 2 usage."""
    if len(argv) != 2 or argv[0] not in ("create", "destroy"):
        sys.stderr.write("usage: python -m fleetctl.lab.host {create,destroy} <json object or file>\n")
        return 2
    facts: dict[str, str] = {}
    try:
        folder, facts, delay_s = _read(argv[1])
        time.sleep(delay_s)
        if argv[0] == "create":
            changed = create_host(folder, facts)
            if facts.get("network"):
                from fleetctl.lab.machine import boot

                boot(folder, int(facts["number"]), facts["network"])
        else:
            changed = destroy_host(folder, facts.get("id", ""))
    except (OSError, ValueError, TypeError, RuntimeError, FleetctlError) as e:
        sys.stderr.write(f"{'host' if facts.get('network') else 'emulated host'}: {argv[0]} failed: {e}\n")
        return 1
    sys.stdout.write(json.dumps({"changed": changed, "folder": str(folder), "emulated": not facts.get("network")}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
