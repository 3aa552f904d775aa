"""Configure, adapter layer: what one ansible-playbook run is started with: program, settings file, environment. Never starts it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fleetctl.errors import ConfigInvalid, ToolMissing

PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "SSH_AUTH_SOCK", "PYTHONPATH", "VIRTUAL_ENV")
"""Variables of ours that a run gets; no cloud credential and no ANSIBLE_* of the user's is among them."""

_SETTINGS = """\
[defaults]
home = {run}/home
local_tmp = {run}/home/tmp
collections_path = {run}/home/collections
roles_path = {playbooks}/roles
callback_plugins = {playbooks}/plugins/callback
callbacks_enabled = fleetctl_events
forks = {forks}
timeout = 10
gathering = explicit
fact_caching = jsonfile
fact_caching_connection = {run}/facts
fact_caching_timeout = 3600
host_key_checking = True
interpreter_python = auto_silent
inject_facts_as_vars = False
retry_files_enabled = False
localhost_warning = False
no_target_syslog = True
system_warnings = False
nocows = True
nocolor = True
any_unparsed_is_failed = True

[inventory]
enable_plugins = ansible.builtin.yaml
unparsed_warning = False
any_unparsed_is_failed = True

[connection]
pipelining = True

[ssh_connection]
pipelining = True
retries = 1
ssh_args = {ssh_args}
control_path_dir = {control}

[diff]
always = False
"""
_SSH = "-C -o BatchMode=yes -o ServerAliveInterval=10 -o ServerAliveCountMax=3"
CONTROL_PERSIST_S = 60
"""How long a connection outlives its last task, should nobody close it; `close_connections` does at the end of each run."""


def find_program(name: str = "ansible-playbook") -> Path:
    """Return the program beside the running Python, else on PATH.

    Raises:
        ToolMissing: tool.ansible_missing.
    """
    beside = Path(sys.executable).parent / name
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which(name)
    if not found:
        raise ToolMissing(
            "tool.ansible_missing",
            f"{name} is neither beside {sys.executable} nor on PATH",
            hint="Install it: pip install 'ansible-core>=2.19,<2.23'.",
        )
    return Path(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class SshFiles:
    """What hosts are reached by over ssh.

    Args:
        known_hosts: the pinned host keys, and the only ones that count; None is the user's own file.
        identity: private key; None lets ssh choose.
    """

    known_hosts: Path | None = None
    identity: Path | None = None


def write_settings(folder: Path, playbooks: Path, *, forks: int, ssh: SshFiles | None = None, control: Path | None = None) -> Path:
    """Write ansible.cfg into the run's folder and return its path.

    Args:
        control: short private folder for connections that tasks share; None opens one per task.

    Raises:
        ConfigInvalid: config.path where a path holds what the file's format would read as something else.
    """
    ssh = ssh or SshFiles()
    within = [p for p in (ssh.known_hosts, ssh.identity, control) if p]
    for path in (folder, playbooks, *within):
        if any(c in str(path) for c in "\n\r%;:#{}$" + (" '\"" if path in within else "")):
            raise ConfigInvalid(
                "config.path", f"the path {str(path)!r} cannot stand in Ansible's settings", hint="Use a folder with a plain name."
            )
    path = folder / "ansible.cfg"
    args = [_SSH, f"-o ControlMaster=auto -o ControlPersist={CONTROL_PERSIST_S}" if control else "-o ControlMaster=no"]
    if ssh.known_hosts:
        args.append(f"-o UserKnownHostsFile={ssh.known_hosts} -o GlobalKnownHostsFile=/dev/null -o StrictHostKeyChecking=yes")
    if ssh.identity:
        args.append(f"-o IdentitiesOnly=yes -i {ssh.identity}")
    shared = control or folder / "home"
    write_private(path, _SETTINGS.format(run=folder, playbooks=playbooks, forks=forks, ssh_args=" ".join(args), control=shared))
    return path


def environment(settings: Path, events: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a run: little of ours, nothing of Ansible's that the user has set."""
    ours = {k: environ[k] for k in PASSED_ON if k in environ}
    if ours.get("PYTHONPATH"):
        # The run has another working directory, and so have the lab's service tools that it starts.
        ours["PYTHONPATH"] = os.pathsep.join(os.path.abspath(p) for p in ours["PYTHONPATH"].split(os.pathsep))
    return {
        **ours,
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "ANSIBLE_CONFIG": str(settings),
        "FLEETCTL_EVENTS": str(events),
    }


def close_connections(control: Path) -> None:
    """Close the connections that a run's tasks shared, and remove their folder; nothing of the run keeps running."""
    for socket in [*control.glob("*")]:
        with suppress(OSError, subprocess.TimeoutExpired):
            argv = ["ssh", "-O", "exit", "-o", f"ControlPath={socket}", "host"]
            subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=5)
    shutil.rmtree(control, ignore_errors=True)


END_TASKS_S = 4.0
"""How long the hosts' ends are waited for, all at once. Source: this program's promise that a cancelled run is gone within 5 s."""


def end_tasks(control: Path) -> None:
    """End what a run that is over has still going on its hosts: sshd lets a command go on when its connection ends."""
    program = (Path(__file__).parent / "remote_end.py").read_bytes()
    asked = []
    for socket in [*control.glob("*")]:
        argv = ["ssh", "-o", f"ControlPath={socket}", "-o", "ControlMaster=no", "-o", "BatchMode=yes", "host"]
        with suppress(OSError):
            asked.append(
                subprocess.Popen(
                    [*argv, "sudo -n python3 -I - || python3 -I -"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            )
    for process in asked:
        if process.stdin is not None:
            with suppress(OSError):
                process.stdin.write(program)
                process.stdin.close()
    until = time.monotonic() + END_TASKS_S
    for process in asked:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def write_private(path: Path, text: str) -> None:
    """Replace a file of ours (0600) in one step."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w", encoding="utf-8") as f:
        f.write(text)
    os.replace(beside, path)
