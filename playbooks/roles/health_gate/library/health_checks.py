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
"""

FIELDS = {
    "name",
    "tier",
    "argv",
    "timeout",
    "pattern",
    "take",
    "proof",
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


def number_of(output: str, check: dict[str, Any]) -> float | None:
    """Return the number that an output stands for; None where the pattern finds nothing to take the number of."""
    found = re.findall(check["pattern"], output, re.MULTILINE)
    take = check.get("take", "min")
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


def run(argv: list[str], timeout: float) -> tuple[str, str]:
    """Return what a command prints and "", or what it printed and why it is no answer."""
    try:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    except OSError as e:
        return "", f"{argv[0]} cannot be run: {e.strerror}"
    try:
        output, _ = process.communicate(timeout=timeout)
        return output[:OUTPUT_LIMIT].decode(errors="replace"), ""
    except subprocess.TimeoutExpired:
        return "", f"no answer within {timeout:g} s"
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def result_of(check: dict[str, Any], left: float | None = None) -> dict[str, Any]:
    """Run one check, for at most the seconds that are left, and return its row of the verdict."""
    own = float(check.get("timeout", 60))
    if left is not None and left <= 0:
        output, why = "", "no time was left for it"
    else:
        output, why = run([str(a) for a in check["argv"]], own if left is None else min(own, left))
    if not why and "proof" in check and not re.search(check["proof"], output, re.MULTILINE):
        why = "the output does not show that it ran"
    number = None if why else number_of(output, check)
    state, text = ("unknown", why) if why else verdict_of(number, check)
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
        found += [f"{name}: {key} is missing" for key in ("name", "argv", "pattern") if not c.get(key)]
        if c.get("take", "min") not in TAKES or c.get("tier", "quick") not in ("quick", "deep"):
            found.append(f"{name}: take or tier is none that is known")
        if not {"at_least", "at_most", "equals"} & set(c):
            found.append(f"{name}: it has no threshold")
        try:
            re.compile(str(c.get("pattern", "")))
            re.compile(str(c.get("proof", "")))
        except re.error as e:
            found.append(f"{name}: pattern: {e}")
    return found


def chosen(tier: str, records: str) -> str:
    """Return quick or deep; auto is deep at the first join and after a fault."""
    if tier != "auto":
        return tier
    return "quick" if os.path.exists(os.path.join(records, DEEP_PASSED)) else "deep"


def good(rows: list[dict[str, Any]]) -> bool:
    """Tell whether nothing is bad, and nothing that is required unknown."""
    return all(r["state"] == "ok" or (r["state"] == "unknown" and not r["required"]) for r in rows)


def judged(checks: list[dict[str, Any]], tier: str, records: str, quick_limit: float = 120) -> dict[str, Any]:
    """Run the checks of a tier, the deep ones only once the quick ones are good; keep and return the verdict.

    The quick ones together take at most `quick_limit` seconds: what has no answer by then is unknown.
    """
    begun = time.monotonic()
    rows = [result_of(c, begun + quick_limit - time.monotonic()) for c in checks if c.get("tier", "quick") == "quick"]
    if tier == "deep" and good(rows):
        rows += [result_of(c) for c in checks if c.get("tier") == "deep"]
    ok = good(rows)
    verdict = {"ok": ok, "tier": tier, "seconds": round(time.monotonic() - begun, 1), "checks": rows}
    os.makedirs(records, mode=0o755, exist_ok=True)
    path, deep_passed = os.path.join(records, "health.json"), os.path.join(records, DEEP_PASSED)
    with open(path + ".new", "w", encoding="utf-8") as f:
        json.dump(verdict, f, indent=2, sort_keys=True)
    os.replace(path + ".new", path)
    if ok and tier == "deep":
        open(deep_passed, "w").close()
    elif not ok and os.path.exists(deep_passed):
        os.unlink(deep_passed)  # after a fault the next gate is deep
    return verdict


def main() -> None:
    """Run the checks of a tier, write health.json and return the verdict."""
    module = AnsibleModule(
        argument_spec={
            "checks": {"type": "list", "elements": "dict", "required": True},
            "tier": {"type": "str", "choices": ["auto", "quick", "deep"], "default": "auto"},
            "quick_limit": {"type": "float", "default": 120},
            "records": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    checks, tier, records = module.params["checks"], module.params["tier"], module.params["records"]
    if wrong := mistakes(checks):
        module.fail_json(msg="health.thresholds: " + "; ".join(wrong))
    if module.check_mode:
        module.exit_json(changed=False, ok=True, tier=chosen(tier, records), checks=[])
    verdict = judged(checks, chosen(tier, records), records, module.params["quick_limit"])
    module.exit_json(changed=False, **verdict)


if __name__ == "__main__":
    main()
