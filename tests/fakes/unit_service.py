"""Configure, test stand-in for the lab's service tool: `python -m tests.fakes.unit_service {start,stop,status} <folder> <unit>`."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def _alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def _known(folder: Path, unit: str) -> tuple[int, str]:
    try:
        data = json.loads((folder / f"{unit}.pid").read_bytes())
    except FileNotFoundError:
        return 0, ""
    return (int(data["pid"]), str(data["digest"])) if _alive(int(data["pid"])) else (0, "")


def _end(pid: int) -> None:
    os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + 5
    while _alive(pid) and time.monotonic() < until:
        time.sleep(0.01)


def main(verb: str, folder: Path, unit: str) -> dict[str, object]:
    """Do it and return what it came to."""
    pid, digest = _known(folder, unit)
    if verb == "status":
        return {"changed": False, "state": "running" if pid else "stopped", "pid": pid}
    if verb == "stop":
        if pid:
            _end(pid)
        (folder / f"{unit}.pid").unlink(missing_ok=True)
        return {"changed": bool(pid), "state": "stopped", "pid": 0}
    data = (folder / f"{unit}.json").read_bytes()
    wanted = hashlib.sha256(data).hexdigest()
    if pid and digest == wanted:
        return {"changed": False, "state": "running", "pid": pid}
    if pid:
        _end(pid)
    content = json.loads(data)
    with (folder / f"{unit}.log").open("ab") as log:
        child = subprocess.Popen(
            content["argv"],
            cwd=folder,
            env={**os.environ, **content["env"]},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    (folder / f"{unit}.pid").write_text(json.dumps({"pid": child.pid, "digest": wanted}))
    return {"changed": True, "state": "running", "pid": child.pid}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])))
