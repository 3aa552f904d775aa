"""Configure, inside Ansible on the host: makes the serving units of a lab host what is wanted. Never imports fleetctl.

One module instead of a loop of copy and command tasks, for two reasons: the token is compared and everything is written under one
lock, so a stale run cannot slip in between a check and a write; and a task costs about half a second of processor time per host.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import re
import time

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: lab_units
short_description: Make the serving units of a lab host what is wanted
description:
  - Writes a unit file (0600) per unit, starts what does not run, restarts what changed.
  - Removes what it placed before and is no longer wanted.
  - Units that it did not place are left alone.
  - Refuses to do anything when the folder has seen a higher token.
options:
  folder: {description: Folder of the host; must exist., type: path, required: true}
  token: {description: Fencing number of the run; 0 or more., type: int, required: true}
  units:
    description: Wanted units; an empty list removes every unit that was placed.
    type: list
    elements: dict
    required: true
    suboptions:
      name: {description: Name of the unit and of its file., type: str, required: true}
      folder: {description: Where given it must be the folder of this host., type: path}
      content:
        description: What the unit file holds.
        type: dict
        required: true
        suboptions:
          argv: {description: Program and its arguments., type: list, elements: str, required: true}
          env: {description: Environment; may hold secrets., type: dict}
          config: {description: Configuration that the program reads., type: dict}
  python: {description: Python on the host that has fleetctl., type: path, required: true}
  lock_seconds: {description: How long to wait for another run., type: int, default: 30}
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
author:
  - fleetctl
"""

EXAMPLES = r"""
- name: Serve one model
  lab_units:
    folder: /tmp/fl-0a1b2c3d/hosts/mi300x-lab-1
    token: 7
    python: /usr/bin/python3
    units:
      - name: chat-lab-c1
        content: {argv: [/usr/bin/python3, -m, fleetctl.lab.engine, --config, chat-lab-c1.json], config: {port: 20001}}
"""

RETURN = r"""
written: {description: Units whose file changed., type: list, elements: str, returned: success}
started: {description: Units that were started., type: list, elements: str, returned: success}
removed: {description: Units that were stopped and removed., type: list, elements: str, returned: success}
digests: {description: SHA-256 of what each unit file holds., type: dict, returned: success}
python: {description: Version of Python on the host., type: str, returned: success}
"""

MARKER = "fleetctl-units.json"
"""Record of the highest token seen and of the units placed here."""
SERVICE = "fleetctl.lab.service"
"""Python module that starts and stops a unit; stands in for systemd."""
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
RESERVED = ("host", "manifest", "fleetctl-units")


def write_private(path, text):
    """Replace a file in one step; it is never readable by others."""
    beside = f"{path}.{os.getpid()}.new"
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def read_text(path):
    """Return a file's text, None where there is no file."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None


def full_content(content):
    """Return what the unit file holds: argv, env and config, the two last empty where not given."""
    return {"argv": content["argv"], "env": content.get("env") or {}, "config": content.get("config") or {}}


def digest(full):
    """Return the SHA-256 of the content, not of its white space."""
    return hashlib.sha256(json.dumps(full, sort_keys=True).encode()).hexdigest()


class Units:
    """The units of one host folder during one run."""

    def __init__(self, module):
        """Read the marker and check the names."""
        self.module = module
        self.folder = module.params["folder"]
        full = {u["name"]: full_content(u["content"]) for u in module.params["units"]}
        self.wanted = {n: json.dumps(c, indent=2, sort_keys=True) + "\n" for n, c in full.items()}
        self.digests = {n: digest(c) for n, c in full.items()}
        foreign = [u["name"] for u in module.params["units"] if u.get("folder") not in (None, self.folder)]
        if foreign:
            module.fail_json(msg=f"units of another folder than {self.folder}: {', '.join(foreign)}; nothing was changed", invocation={})
        bad = [n for n in self.wanted if not NAME.match(n) or n in RESERVED]
        if bad or len(self.wanted) != len(module.params["units"]):
            module.fail_json(
                msg=f"unit names must be distinct plain names; refused: {', '.join(map(repr, bad)) or 'one that stands twice'}",
                invocation={},
            )
        self.marker = self._read_marker()

    def _read_marker(self):
        text = read_text(os.path.join(self.folder, MARKER))
        if text is None:
            return {"token": 0, "units": {}}
        try:
            marker = json.loads(text)
            return {"token": int(marker["token"]), "units": {str(k): str(v) for k, v in marker["units"].items() if NAME.match(k)}}
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            self.module.fail_json(msg=f"the marker {MARKER} in {self.folder} cannot be read ({e}); nothing was changed", invocation={})

    def refuse_stale(self, token):
        """Fail when a later run was here."""
        if token < self.marker["token"]:
            self.module.fail_json(
                msg=f"stale token {token}: this host has seen {self.marker['token']}; nothing was changed", stale=True, invocation={}
            )

    def write_marker(self, token, units):
        """Record token and units where they changed."""
        new = {"token": token, "units": units}
        if new != self.marker:
            write_private(os.path.join(self.folder, MARKER), json.dumps(new, indent=2, sort_keys=True) + "\n")
            self.marker = new

    def path(self, name):
        """Return the path of a unit file."""
        return os.path.join(self.folder, name + ".json")

    def service(self, verb, name):
        """Run the service tool and return its answer."""
        argv = [self.module.params["python"], "-m", SERVICE, verb, self.folder, name]
        code, out, err = self.module.run_command(argv)
        try:
            answer = json.loads(out.strip().splitlines()[-1])
        except (ValueError, IndexError):
            answer = None
        if code == 0 and isinstance(answer, dict):
            return answer
        said = (
            [str(answer.get("error")), *map(str, answer.get("log") or ())]
            if isinstance(answer, dict)
            else (err.strip() or out.strip()).splitlines()
        )
        why = ": ".join(dict.fromkeys([*said[:1], *said[-1:]])) if said else "no output"
        return self.module.fail_json(msg=f"unit {name}: '{verb}' ended with code {code}: {why[:300]}", invocation={})

    def differing(self):
        """Return the units whose file is not as wanted."""
        return [n for n, text in self.wanted.items() if read_text(self.path(n)) != text]

    def surplus(self):
        """Return the units that were placed here and are no longer wanted."""
        return [n for n in sorted(self.marker["units"]) if n not in self.wanted]

    def predict(self):
        """Tell what `make` would do; changes nothing."""
        written = self.differing()
        idle = [n for n in self.wanted if n not in written and self.service("status", n).get("state") != "running"]
        return {"written": written, "started": sorted({*written, *idle}), "removed": self.surplus()}

    def make(self, token):
        """Make the units what is wanted."""
        done = {"written": self.differing(), "started": [], "removed": []}
        # First the record, then the deed: a run that is killed leaves nothing that the next one does not know of.
        self.write_marker(token, {**self.marker["units"], **self.digests})
        for name in self.surplus():
            if os.path.exists(self.path(name)):
                self.service("stop", name)
                os.unlink(self.path(name))
            done["removed"].append(name)
        for name, text in self.wanted.items():
            if name in done["written"]:
                write_private(self.path(name), text)
            # The service tool also restarts a unit whose file is another than the one it was started with.
            if self.service("start", name).get("changed"):
                done["started"].append(name)
        self.write_marker(token, self.digests)
        return done


def lock(module):
    """Wait for the folder's lock; it is held until the module ends."""
    folder = module.params["folder"]
    if not os.path.isdir(folder):
        module.fail_json(msg=f"the host folder {folder} does not exist; create the lab first", invocation={})
    handle = os.open(os.path.join(folder, ".fleetctl-units.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    end = time.monotonic() + module.params["lock_seconds"]
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        except BlockingIOError:
            if time.monotonic() > end:
                module.fail_json(
                    msg=f"another run holds {folder} for more than {module.params['lock_seconds']} s; nothing was changed", invocation={}
                )
            time.sleep(0.05)


def main():
    """Run as an Ansible module."""
    content = {
        "argv": {"type": "list", "elements": "str", "required": True},
        "env": {"type": "dict", "no_log": False},  # see no_log below
        "config": {"type": "dict"},
    }
    unit = {
        "name": {"type": "str", "required": True},
        "folder": {"type": "path"},
        "content": {"type": "dict", "required": True, "options": content},
    }
    module = AnsibleModule(
        argument_spec={
            "folder": {"type": "path", "required": True},
            "token": {"type": "int", "required": True, "no_log": False},
            "units": {"type": "list", "elements": "dict", "required": True, "options": unit},
            "python": {"type": "path", "required": True},
            "lock_seconds": {"type": "int", "default": 30},
        },
        supports_check_mode=True,
        no_log=True,  # the call is never logged on the host; marking env alone would blot out every "1" of the messages instead
    )
    for name in [n for n in os.environ if n.startswith(("FLEETCTL_", "ANSIBLE_"))]:
        del os.environ[name]  # what serves must not inherit the run's own settings
    os.umask(0o077)
    with os.fdopen(lock(module)):
        units = Units(module)
        units.refuse_stale(module.params["token"])
        before = dict(units.marker["units"])
        done = units.predict() if module.check_mode else units.make(module.params["token"])
    diff = {
        "before": json.dumps(before, indent=2, sort_keys=True) + "\n",
        "after": json.dumps(units.digests, indent=2, sort_keys=True) + "\n",
    }
    # An empty invocation, because the arguments may hold secrets.
    module.exit_json(changed=any(done.values()), digests=units.digests, python=platform.python_version(), diff=diff, invocation={}, **done)


if __name__ == "__main__":
    main()
