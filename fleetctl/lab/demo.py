"""The main job on one machine: every command a user would type, in order, with its output. Run by `make demo`; never used in production.

Standard output ends with one JSON object: seconds, migrated, rolled_back, fallback_ms_to_zero, client_errors, report.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

WORKSPACE = Path("build") / "demo"


class Demo:
    """Runs commands in the demo's workspace and keeps what their end says."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.began = time.monotonic()
        self.peak_mb = 0.0

    def run(self, line: str, *, expect: int = 0, both: bool = False) -> str:
        """Run one command as typed, show it and its output, and return its standard output; its messages too with `both`.

        Raises:
            SystemExit: it ended with another code than `expect`.
        """
        print(f"\n\033[1m$ {line}\033[0m" if sys.stdout.isatty() else f"\n$ {line}", flush=True)
        argv = [sys.executable, "-m", "fleetctl.cli.main", *shlex.split(line)[1:]]
        errors = subprocess.STDOUT if both else None
        env = os.environ | {"PYTHONUNBUFFERED": "1"}
        child = subprocess.Popen(argv, cwd=self.workspace, stdout=subprocess.PIPE, stderr=errors, text=True, env=env)
        out = ""
        for text in child.stdout or ():
            print(text, end="", flush=True)
            out += text
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if line.split()[1] == "migrate":
            self.peak_mb = max(self.peak_mb, usage.ru_maxrss / 1024)
        if child.returncode != expect:
            print(f"(exit {child.returncode}, expected {expect})", flush=True)
            self.clean_up()
            sys.exit(1)
        if expect:
            print(f"(exit {child.returncode}, as it should)", flush=True)
        return out

    def clean_up(self) -> None:
        """Stop the lab whatever happened."""
        subprocess.run([sys.executable, "-m", "fleetctl.cli.main", "lab", "down"], cwd=self.workspace, check=False)

    def say(self, text: str) -> None:
        """Print a line between commands."""
        print(f"\n# {time.monotonic() - self.began:5.1f} s  {text}", flush=True)


def statuses(demo: Demo) -> dict[str, str]:
    """Return how each cell ended."""
    done = subprocess.run(
        [sys.executable, "-m", "fleetctl.cli.main", "status", "-o", "json"], cwd=demo.workspace, check=True, capture_output=True, text=True
    )
    return {row["cell"]: row["ended"] for row in json.loads(done.stdout)["items"]}


def slowest_ms(said: str) -> float:
    """Return the slowest way home that a fallback told of, in milliseconds.

    Raises:
        SystemExit: it told of none, or moved nothing.
    """
    found = re.findall(r"% -> 0 % in ([0-9]+) ms", said)
    if not found:
        sys.exit("the fallback brought no traffic home")
    return max(map(float, found))


def main() -> None:
    """Run the first migration, end to end."""
    from fleetctl.lab.overview import client_errors

    shutil.rmtree(WORKSPACE, ignore_errors=True)
    WORKSPACE.mkdir(parents=True)
    demo = Demo(WORKSPACE.resolve())
    try:
        result = _story(demo)
        result["client_errors"] = client_errors(demo.workspace)
        demo.run("fleetctl lab down")
    except KeyboardInterrupt:
        demo.clean_up()
        sys.exit(130)
    result["seconds"] = round(time.monotonic() - demo.began, 1)
    keys = ("seconds", "migrated", "rolled_back", "fallback_ms_to_zero", "client_errors", "report", "migrate_peak_mb")
    print()
    print(f"The report: {result['report']}")
    print(json.dumps({k: result[k] for k in keys}))


def _story(demo: Demo) -> dict[str, object]:
    demo.say("a local fleet: real router and LLM, emulated engines")
    demo.run("fleetctl lab up")
    demo.run("fleetctl inventory")
    demo.run("fleetctl plan")
    plan = json.loads(
        subprocess.run(
            [sys.executable, "-m", "fleetctl.cli.main", "show", "-o", "json"],
            cwd=demo.workspace,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    )
    demo.run(f"fleetctl approve {plan['id']}")
    demo.say("the target pool: Terraform makes it, Ansible prepares it")
    demo.run("fleetctl provision")
    demo.run("fleetctl configure")
    demo.say("the first wave, to the end of its canary phase, then on")
    demo.run("fleetctl migrate --phase canary")
    demo.run("fleetctl migrate", expect=8)
    demo.run("fleetctl status")
    demo.say("the second wave holds a workload with a regression: its target is twice as slow")
    demo.run("fleetctl lab fault latency summary-lab --factor 2")
    demo.run("fleetctl migrate", expect=5)
    demo.run("fleetctl status")
    ends = statuses(demo)
    demo.say("everything back on NVIDIA, by the runbook: each step is run and held against what it must print")
    demo.run("fleetctl runbook show chat-lab")
    home = demo.run("fleetctl runbook run chat-lab full-fallback --yes", both=True)
    demo.run("fleetctl status")
    report = json.loads(demo.run("fleetctl report -o json"))["path"]
    demo.run("fleetctl audit verify")
    return {
        "migrated": sum(1 for e in ends.values() if e in ("", "complete")),
        "rolled_back": sum(1 for e in ends.values() if e == "rolled_back"),
        "fallback_ms_to_zero": slowest_ms(home),
        "report": report,
        "migrate_peak_mb": round(demo.peak_mb),
    }


if __name__ == "__main__":
    main()
