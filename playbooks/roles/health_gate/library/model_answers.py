#!/usr/bin/python3
"""Configure, inside Ansible, on the host: asks a model server once for a real completion, and its unit how it is. Never imports fleetctl.

A module of our own, because `uri` cannot tell a server that still loads its model from one whose unit has failed.
"""

from __future__ import annotations

import json
import re
import subprocess
import urllib.error
import urllib.request
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: model_answers
short_description: Ask a model server for one token
options:
  name: {type: str, required: true}
  port: {type: int, required: true}
  model: {type: str, required: true}
  timeout: {type: int, default: 300}
  environments: {type: str, default: ""}
  key_names: {type: list, elements: str, default: []}
"""
RESTARTS = 3
"""So many restarts, and waiting for one more, is a server that never comes up: systemd itself would try for ever."""
ANSWER_LIMIT = 1_048_576
REFUSING = frozenset({400, 401, 403, 405, 422})
"""Answers of HTTP that waiting does not change; a server that still loads answers 404, 425, 429 or 503, or nothing."""


def key_of(environment: str, names: list[str]) -> str:
    """Return what a server wants to be asked with: the first of these names in its environment file, "" where there is none."""
    try:
        with open(environment, encoding="utf-8") as f:
            rows = dict(line.rstrip("\n").split("=", 1) for line in f if "=" in line and not line.startswith("#"))
    except OSError:
        return ""
    found = next((rows[n] for n in names if n in rows), "")
    return re.sub(r"\\(.)", r"\1", found[1:-1]) if found[:1] == '"' else found


def completion(port: int, model: str, timeout: float, key: str = "") -> tuple[bool, str, bool]:
    """Return whether a completion with at least one token came, why not, and whether to ask again is of no use."""
    body = json.dumps({"model": model, "prompt": "ping", "max_tokens": 1, "temperature": 0}).encode()
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", data=body, headers=headers, method="POST")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=timeout) as answer:
            said = json.loads(answer.read(ANSWER_LIMIT))
        tokens = said["usage"]["completion_tokens"]
    except urllib.error.HTTPError as e:
        wants = " (it wants a key, which health_gate_key_names finds in its environment)" if e.code in (401, 403) else ""
        unknown = e.code == 404 and b"does not exist" in e.read(ANSWER_LIMIT)  # of the model: OpenAI's words, which vLLM and SGLang use
        return False, f"it answers {e.code}{wants}", unknown or e.code in REFUSING
    except (OSError, urllib.error.URLError) as e:
        return False, f"no answer: {getattr(e, 'reason', e)}", False
    except (ValueError, KeyError, TypeError):
        return False, "its answer is no completion", False
    return (True, "", False) if isinstance(tokens, int) and tokens >= 1 else (False, "its answer has no generated token", False)


def has_failed(shown: str) -> bool:
    """Tell by what systemctl shows whether a unit will not come up any more."""
    found = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    restarts = found.get("NRestarts", "0")
    tried = found.get("SubState") == "auto-restart" and restarts.isdigit() and int(restarts) >= RESTARTS
    return found.get("ActiveState") == "failed" or tried


def unit(name: str) -> str:
    """Return what systemctl shows of a server's unit; "" where there is no systemd to ask."""
    argv = ["systemctl", "show", "--property=ActiveState,SubState,NRestarts", f"fleetctl-{name}.service"]
    try:
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def main() -> None:
    """Ask once and return whether it answered, and whether there is no use in asking again."""
    spec: dict[str, Any] = {
        "name": {"type": "str", "required": True},
        "port": {"type": "int", "required": True},
        "model": {"type": "str", "required": True},
        "timeout": {"type": "int", "default": 300},
        "environments": {"type": "str", "default": ""},
        "key_names": {"type": "list", "elements": "str", "default": [], "no_log": False},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    p = module.params
    key = key_of(f"{p['environments']}/{p['name']}.env", p["key_names"]) if p["environments"] else ""
    answered, why, refused = completion(p["port"], p["model"], p["timeout"], key)
    failed = not answered and has_failed(unit(p["name"]))
    text = f"configure.unhealthy: {p['name']} gave no completion: {why}" + ("; its unit has failed" if failed else "")
    next_ = f". Next: journalctl -u fleetctl-{p['name']} on the node"
    module.exit_json(changed=False, answered=answered, failed_unit=failed, refused=refused, msg="" if answered else text + next_)


if __name__ == "__main__":
    main()
