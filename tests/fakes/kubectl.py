"""A double of kubectl: get by three shapes of jsonpath, JSON patch and annotate, on HTTPRoutes that lie as JSON files.

Each kubeconfig is a cluster of its own: a folder of its name under KUBECTL_DOUBLE, "default" where none is named.
"""

from __future__ import annotations

import json
import os
import re
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

from fleetctl.adapters.routers.httproute.router import MARK


def install(folder: Path) -> dict[str, str]:
    """Put it into a folder as `kubectl`; return the environment in which it is found, with the clusters in that folder."""
    program = folder / "kubectl"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={Path(__file__).parents[2]} exec {sys.executable} -m tests.fakes.kubectl "$@"\n')
    program.chmod(0o700)
    return {"PATH": f"{folder}:{os.environ['PATH']}", "KUBECTL_DOUBLE": str(folder)}


def place(folder: Path, kubeconfig: str, name: str, whole: dict[str, Any] | None = None) -> dict[str, Any]:
    """Write a route of one cluster, or only read it."""
    file = folder / "clusters" / (Path(kubeconfig).name or "default") / f"{name}.json"
    if whole is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(whole))
    found = json.loads(file.read_text())
    assert isinstance(found, dict)
    return found


def patched(whole: dict[str, Any], steps: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Apply a JSON patch of tests and adds (RFC 6902); None where a step fails, which leaves everything as it was."""
    found = deepcopy(whole)
    for step in steps:
        *path, last = step["path"].strip("/").split("/")
        at: Any = found
        try:
            for part in path:
                at = at[int(part)] if isinstance(at, list) and part.isdigit() else at[part]
            if step["op"] == "test" and at.get(last) != step["value"]:
                return None
        except (LookupError, TypeError):
            return None
        if step["op"] == "add":
            at[last] = step["value"]
    return found


def _told(whole: dict[str, Any], output: str) -> str:
    asked = output.removeprefix("jsonpath=")
    if asked == f"{{.metadata.annotations.{MARK}}}":
        return str(whole["metadata"].get("annotations", {}).get(MARK, ""))
    found = re.fullmatch(r'(?:\{range )?\{?\.spec\.rules\[(\d+)\]\.backendRefs(\[\*\])?\}(?:\{\.name\}\{"\\n"\}\{end\})?', asked)
    assert found is not None, f"this double does not know {asked}"
    backends = whole["spec"]["rules"][int(found[1])]["backendRefs"]
    return "".join(f"{b['name']}\n" for b in backends) if found[2] else json.dumps(backends)


def main(words: list[str]) -> int:
    """Do as kubectl does; return its exit code."""
    options = {"--kubeconfig": "", "--context": "", "-n": ""}
    while words[0] in options:
        options[words[0]], words = words[1], words[2:]
    verb, rest = words[0], [w for w in words[1:] if w not in ("httproute", "--overwrite", "--type=json")]
    folder, cluster, name = Path(os.environ["KUBECTL_DOUBLE"]), options["--kubeconfig"], rest[0]
    try:
        whole = place(folder, cluster, name)
    except OSError:
        print(f'Error from server (NotFound): httproutes "{name}" not found', file=sys.stderr)
        return 1
    if verb == "get":
        print(_told(whole, rest[2]), end="")
    elif verb == "annotate":
        key, _, value = rest[1].partition("=")
        whole["metadata"].setdefault("annotations", {})[key] = value
        place(folder, cluster, name, whole)
    elif verb == "patch":
        done = patched(whole, json.loads(rest[2]))
        if done is None:
            print(f'The HTTPRoute "{name}" is invalid: the JSON patch does not apply', file=sys.stderr)
            return 1
        place(folder, cluster, name, done)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
