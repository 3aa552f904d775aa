#!/usr/bin/python3
"""Configure, inside Ansible, on the host: runs checks of the hardware and holds their numbers against thresholds. Never imports fleetctl.

A module of our own, because a loop over builtin modules cannot do it: each check has its own time-out that ends its whole process group, a
failed check must not hide the others, and the result is one JSON object with one `ok`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: health_checks
short_description: Hold numbers that commands print against thresholds
options:
  checks: {type: list, elements: dict, required: true}
  tier: {type: str, choices: [auto, quick, deep], default: auto}
  quick_limit: {type: float, default: 120}
  records: {type: path, required: true}
  path: {type: list, elements: path, default: []}
  without: {type: list, elements: str, default: []}
  servers: {type: path, default: ""}
  trying: {type: bool, default: false}
"""

FIELDS = {
    "name",
    "tier",
    "argv",
    "timeout",
    "pattern",
    "take",
    "key",
    "proof",
    "shows",
    "exit_codes",
    "at_least",
    "at_most",
    "equals",
    "unit",
    "source",
    "required",
    "reboot_helps",
}
TAKES = {"count": len, "min": min, "max": max, "sum": sum}
OUTPUT_LIMIT = 4_194_304
DEEP_PASSED = "deep-passed"


def under(key: str, data: Any) -> list[float]:
    """Return the numbers that stand under a key anywhere in what JSON says; "N/A" and the like are none."""
    if isinstance(data, dict):
        own = [float(v) for k, v in data.items() if k == key and isinstance(v, (int, float)) and not isinstance(v, bool)]
        return own + [n for v in data.values() for n in under(key, v)]
    return [n for v in data for n in under(key, v)] if isinstance(data, list) else []


def number_of(output: str, check: dict[str, Any]) -> float | None:
    """Return the number that an output stands for; None where there is nothing to take the number of."""
    take = check.get("take", "min")
    if "key" in check:
        try:
            numbers = under(check["key"], json.loads(output))
        except ValueError:
            return None
        return float(TAKES[take](numbers)) if numbers else None
    found = re.findall(check["pattern"], output, re.MULTILINE)
    if take == "count":
        return float(len(found))
    return float(TAKES[take](float(f) for f in found)) if found else None


def verdict_of(number: float | None, check: dict[str, Any]) -> tuple[str, str]:
    """Return "ok", "bad" or "unknown" and why."""
    if number is None:
        return "unknown", "the output has no number in it"
    for word, holds in (
        ("at_least", lambda a, b: a >= b),
        ("at_most", lambda a, b: a <= b),
        ("equals", lambda a, b: a == b),
    ):
        if word in check and not holds(number, float(check[word])):
            return "bad", f"{number:g} {check.get('unit', '')}".strip() + f", wanted {word.replace('_', ' ')} {float(check[word]):g}"
    return "ok", ""


def run(argv: list[str], timeout: float, path: list[str]) -> tuple[str, str, int]:
    """Return what a command prints, "" and its exit code; or why it is no answer instead of ""."""
    env = {**os.environ, "PATH": os.pathsep.join([os.environ.get("PATH", os.defpath), *path])}
    program = shutil.which(argv[0], path=env["PATH"]) or argv[0]
    try:
        process = subprocess.Popen(
            argv,
            executable=program,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as e:
        return "", f"{argv[0]} cannot be run: {e.strerror}", 0
    try:
        output, _ = process.communicate(timeout=timeout)
        return output[:OUTPUT_LIMIT].decode(errors="replace"), "", process.returncode
    except subprocess.TimeoutExpired:
        return "", f"no answer within {timeout:g} s", 0
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def judgement(check: dict[str, Any], output: str, code: int) -> tuple[float | None, str, str]:
    """Return the number of an output, "ok", "bad" or "unknown", and why.

    A program that ended with another exit code than it may is never ok: bad where its output shows that it ran, else unknown.
    """
    proven = "proof" in check and bool(re.search(check["proof"], output, re.MULTILINE))
    wrong = code not in check.get("exit_codes", [0])
    last = (output.strip().splitlines() or [""])[-1][:200]
    if "proof" in check and not proven:
        return None, "unknown", f"exit code {code}: {last}" if wrong else "the output does not show that it ran"
    number = number_of(output, check)
    state, text = verdict_of(number, check)
    if state != "bad" and "shows" in check and not re.search(check["shows"], output, re.MULTILINE):
        state, text = "bad", f"the output does not show {check['shows']}"
    if state != "bad" and wrong:
        state, text = "bad" if proven else "unknown", f"exit code {code}: {last}"
    return number, state, text


def result_of(check: dict[str, Any], left: float | None = None, path: list[str] | None = None) -> dict[str, Any]:
    """Run one check, for at most the seconds that are left, and return its row of the verdict."""
    own = float(check.get("timeout", 60))
    number: float | None = None
    if left is not None and left <= 0:
        state, text = "unknown", "no time was left for it"
    else:
        output, why, code = run([str(a) for a in check["argv"]], own if left is None else min(own, left), path or [])
        number, state, text = (None, "unknown", why) if why else judgement(check, output, code)
    return {
        "name": check["name"],
        "state": state,
        "value": number,
        "unit": check.get("unit", ""),
        "text": text,
        "required": bool(check.get("required", True)),
        "reboot_helps": bool(check.get("reboot_helps", False)),
    }


def mistakes(checks: list[dict[str, Any]]) -> list[str]:
    """Return what is wrong with the checks themselves."""
    found = []
    for n, c in enumerate(checks):
        name = str(c.get("name", n))
        found += [f"{name}: {key} is no field" for key in sorted(set(c) - FIELDS)]
        found += [f"{name}: {key} is missing" for key in ("name", "argv") if not c.get(key)]
        if bool(c.get("pattern")) == bool(c.get("key")):
            found.append(f"{name}: it needs pattern or key, and not both")
        if c.get("take", "min") not in TAKES or c.get("tier", "quick") not in ("quick", "deep"):
            found.append(f"{name}: take or tier is none that is known")
        if not {"at_least", "at_most", "equals"} & set(c):
            found.append(f"{name}: it has no threshold")
        if not isinstance(c.get("exit_codes", []), list) or not all(isinstance(x, int) for x in c.get("exit_codes", [])):
            found.append(f"{name}: exit_codes is not a list of whole numbers")
        for field in ("pattern", "proof", "shows"):
            try:
                re.compile(str(c.get(field, "")))
            except re.error as e:
                found.append(f"{name}: {field}: {e}")
    return found


def chosen(tier: str, records: str) -> str:
    """Return quick or deep; auto is deep at the first join and after a fault."""
    if tier != "auto":
        return tier
    return "quick" if os.path.exists(os.path.join(records, DEEP_PASSED)) else "deep"


def good(rows: list[dict[str, Any]]) -> bool:
    """Tell whether nothing is bad, and nothing that is required unknown."""
    return all(r["state"] == "ok" or (r["state"] == "unknown" and not r["required"]) for r in rows)


def serving(folder: str) -> list[str]:
    """Return the names of model servers of this node that are not at rest; `folder` holds an environment file per server."""
    try:
        names = sorted(n[: -len(".env")] for n in os.listdir(folder) if n.endswith(".env"))
        asked = [(n, ["systemctl", "is-active", f"fleetctl-{n}.service"]) for n in names]
        said = [(n, subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30).stdout.strip()) for n, argv in asked]
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [n for n, state in said if state not in ("inactive", "failed", "unknown", "")]


def judged(
    checks: list[dict[str, Any]],
    tier: str,
    records: str,
    quick_limit: float = 120,
    path: list[str] | None = None,
    without: list[str] | None = None,
    trying: bool = False,
) -> dict[str, Any]:
    """Run the checks of a tier, the deep ones only once the quick ones are good; keep and return the verdict.

    The quick ones together take at most `quick_limit` seconds: what has no answer by then is unknown. While it is only tried again until
    the accelerators are there, what is not good is no fault yet.
    """
    begun = time.monotonic()
    wanted = [c for c in checks if c["name"] not in (without or [])]
    quick = [c for c in wanted if c.get("tier", "quick") == "quick"]
    rows = [result_of(c, begun + quick_limit - time.monotonic(), path) for c in quick]
    if tier == "deep" and good(rows):
        rows += [result_of(c, None, path) for c in wanted if c.get("tier") == "deep"]
    ok = good(rows)
    verdict = {"ok": ok, "tier": tier, "seconds": round(time.monotonic() - begun, 1), "checks": rows, "without": sorted(without or [])}
    os.makedirs(records, mode=0o755, exist_ok=True)
    kept = os.path.join(records, "health.json")
    with open(kept + ".new", "w", encoding="utf-8") as f:
        json.dump(verdict, f, indent=2, sort_keys=True)
    os.replace(kept + ".new", kept)
    deep_passed = os.path.join(records, DEEP_PASSED)
    if ok and tier == "deep":
        open(deep_passed, "w").close()
    elif not ok and not trying and os.path.exists(deep_passed):
        os.unlink(deep_passed)  # after a fault the next gate is deep
    return verdict


def main() -> None:
    """Run the checks of a tier, write health.json and return the verdict.

    It returns besides what a run of all tiers would be (`due`), and the names of servers that serve.
    """
    module = AnsibleModule(
        argument_spec={
            "checks": {"type": "list", "elements": "dict", "required": True},
            "tier": {"type": "str", "choices": ["auto", "quick", "deep"], "default": "auto"},
            "quick_limit": {"type": "float", "default": 120},
            "records": {"type": "path", "required": True},
            "path": {"type": "list", "elements": "path", "default": []},
            "without": {"type": "list", "elements": "str", "default": []},
            "servers": {"type": "path", "default": ""},
            "trying": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    p = module.params
    wrong = mistakes(p["checks"])
    wrong += [f"{n}: no check has this name" for n in sorted(set(p["without"]) - {c.get("name") for c in p["checks"]})]
    if wrong:
        module.fail_json(msg="health.thresholds: " + "; ".join(wrong))
    due, tier = chosen("auto", p["records"]), chosen(p["tier"], p["records"])
    if module.check_mode:
        module.exit_json(changed=False, ok=True, tier=tier, due=due, serving=[], checks=[])
    verdict = judged(p["checks"], tier, p["records"], p["quick_limit"], p["path"], p["without"], p["trying"])
    module.exit_json(changed=False, due=due, serving=serving(p["servers"]), **verdict)


if __name__ == "__main__":
    main()
