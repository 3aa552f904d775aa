"""Provision, tests: stands in for a Python with the lab's host maker. Never imports fleetctl: it is copied and run by Terraform.

Files beside the host folders steer it: control/fail-ID lets a creation fail, control/hang-ID makes it wait for control/go.
"""

import json
import shutil
import sys
import time
from pathlib import Path


def main(argv: list[str]) -> None:
    if argv[0] == "-c":
        exec(argv[1], {"exit": sys.exit})
        return
    module, verb, text = argv[1:]
    if argv[0] != "-m" or module != "fleetctl.lab.host" or verb not in {"create", "destroy"}:
        raise SystemExit(f"unexpected arguments {argv}")
    spec = json.loads(text)
    if set(spec) != {"id", "folder", "pool", "vendor", "sku", "delay_s"}:
        raise SystemExit(f"unexpected keys {sorted(spec)}")
    folder = Path(spec["folder"])
    if verb == "destroy":
        shutil.rmtree(folder, ignore_errors=True)
        return
    control = folder.parent / "control"
    if (control / f"hang-{spec['id']}").exists():
        (control / f"hanging-{spec['id']}").touch()
        deadline = time.monotonic() + 60
        while not (control / "go").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
    if (control / f"fail-{spec['id']}").exists():
        raise SystemExit(f"no room for {spec['id']}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "host.json").write_text(text)
    print(f"made {spec['id']}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
