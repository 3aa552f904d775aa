"""Configure, adapter layer: runs a playbook over hosts, follows it live and ends it cleanly. Never decides what a host should run."""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast

from fleetctl.adapters.ansible.child import Child
from fleetctl.adapters.ansible.events import EventFile, Outcome
from fleetctl.adapters.ansible.inventory import LocalPlace, Variables, inventory_yaml
from fleetctl.adapters.ansible.settings import (
    SshFiles,
    close_connections,
    end_tasks,
    environment,
    find_program,
    write_private,
    write_settings,
)
from fleetctl.adapters.ansible.waves import wave_arguments
from fleetctl.domain.ids import HostId, PoolId, Token, is_id
from fleetctl.domain.pool import Host, Vendor
from fleetctl.domain.provision import HostResult, Progress
from fleetctl.errors import ConfigInvalid, ConfigureFailed

LOOK_EVERY_S = 0.05
FOLDERS = "ansible-hosts.json"
MANIFEST = "manifest.json"
COPIES = "manifests"
REPORTS = "preflight"
MANIFEST_LIMIT = 1_048_576
"""Bytes; a manifest is a few hundred."""
MANIFEST_ROWS, MANIFEST_TEXT = 500, 300
"""Rows and letters of each that are taken from a manifest: it comes from a host."""


class AnsibleConfigurator:
    """A Configurator over ansible-playbook; one run at a time.

    `variables` of `run` go to every host, except the key "by_host": a mapping of host id to that host's own variables, such as
    {"mi300x-lab-1": {"lab_serving_units": [...]}}. Every string of them, and of the hosts, is marked unsafe.
    """

    def __init__(
        self,
        playbooks: Path,
        run_folder: Path,
        python: str,
        *,
        forks: int = 5,
        timeout_s: float = 900.0,
        check: bool = False,
        diff: bool = False,
        tags: Sequence[str] = (),
        vendors: Mapping[PoolId, Vendor] | None = None,
        ssh: SshFiles | None = None,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """Remember where things are; nothing is started.

        Args:
            playbooks: folder of the playbooks, their roles and plugins.
            run_folder: private folder of this run; each call of `run` makes a folder of its own in it.
            python: Python that serves hosts of connection "local".
            forks: hosts at a time, at least 1; timeout_s: longest run, seconds.
            check: predict only; nothing is changed on any host. diff: keep what differs in the run's output.
            tags: only tasks of these tags (and those that always run); vendors: gives hosts the group of their pool's vendor.
            ssh: pinned host keys and the key to reach hosts with.
            seconds: the clock that the time-out is measured by.
        """
        self._playbooks = playbooks.resolve()
        self._run_folder = run_folder.resolve()
        self._python = python
        self._forks = forks
        self._timeout_s = timeout_s
        self._seconds = seconds
        self._flags = [*(["--check"] if check else []), *(["--diff"] if diff else [])]
        self._flags += ["--tags", ",".join(_tags(tags))] if tags else []
        self._vendors = vendors or {}
        self._ssh = ssh
        self._child: Child | None = None
        self._cancelled = False

    def run(
        self,
        play: str,
        hosts: Sequence[Host],
        variables: Mapping[str, object],
        token: Token,
        on: Callable[[Progress], None],
    ) -> tuple[HostResult, ...]:
        """Run `<play>.yml` to its end and return one result per host; running it again changes nothing.

        Args:
            on: called in this thread, for each step of each host as it happens.

        Raises:
            ConfigureFailed: configure.no_play, configure.timeout, configure.broken (it did not come to its end).
            ConfigInvalid: config.host, config.variable, config.value; ToolMissing: tool.ansible_missing.
        """
        book = self._book(play)
        program = find_program()
        if not hosts:
            return ()
        folder = self._new_folder()
        inventory = folder / "inventory.yml"
        by_host, folders = self._host_variables(hosts, variables)
        waves = wave_arguments(folder, variables, by_host)
        common = {k: v for k, v in variables.items() if k != "by_host"} | {"lab_serving_token": int(token)}
        for name, kept in (("node_manifest_copies", COPIES), ("preflight_reports", REPORTS)):
            (self._run_folder / kept).mkdir(mode=0o700, exist_ok=True)
            common[name] = str(self._run_folder / kept)
        local = LocalPlace(python=self._python, tmp=str(folder / "tmp"))
        write_private(inventory, inventory_yaml(hosts, vendors=self._vendors, common=common, by_host=by_host, local=local))
        self._remember(folders)
        control = Path(tempfile.mkdtemp(prefix="fl-ssh-")) if any(h.connection == "ssh" for h in hosts) else None
        settings = write_settings(folder, self._playbooks, forks=self._forks, ssh=self._ssh, control=control)
        events = folder / "events.jsonl"
        argv = [str(program), "--inventory", str(inventory), *self._flags, *waves, str(book)]
        env = environment(settings, events, os.environ)
        self._cancelled = False
        outcome = Outcome()
        try:
            code = self._follow(Child(argv, env=env, cwd=folder, output=folder / "output.log"), EventFile(events), outcome, on)
        except OSError as e:
            raise ConfigureFailed("configure.broken", f"{program} cannot be started: {e.strerror}") from e
        finally:
            # It may hold secrets of units; `fleetctl inventory export` makes it again.
            inventory.unlink(missing_ok=True)
            if control:
                if outcome.stats is None:
                    end_tasks(control)
                close_connections(control)
        if outcome.stats is None and not self._cancelled:
            raise ConfigureFailed(
                "configure.broken",
                f"the run of {play} ended with code {code} before its end{_last_words(folder / 'output.log')}",
                hint=f"Read {folder / 'output.log'}, then run the same command again.",
            )
        return outcome.results([h.id for h in hosts])

    def cancel(self) -> None:
        """End the run; nothing of it keeps running. May be called from another thread or a signal handler; `run` then returns."""
        self._cancelled = True
        child = self._child
        if child is not None:
            child.ask_to_end()

    def manifest(self, host: HostId) -> Mapping[str, str]:
        """Return what the last run wrote of that host (versions, digests); {} where nothing was."""
        try:
            folders = json.loads((self._run_folder / FOLDERS).read_bytes())
            path = Path(folders[host]) / MANIFEST if host in folders else self._run_folder / COPIES / f"{HostId(host)}.json"
            with path.open("rb") as f:
                data = json.loads(f.read(MANIFEST_LIMIT))
        except (OSError, ValueError, KeyError, TypeError):
            return {}
        if not isinstance(data, dict):
            return {}
        return {str(k)[:MANIFEST_TEXT]: str(v)[:MANIFEST_TEXT] for k, v in list(data.items())[:MANIFEST_ROWS]}

    def _book(self, play: str) -> Path:
        book = self._playbooks / f"{play}.yml"
        if not is_id(play.replace("_", "-")) or not book.is_file():
            known = ", ".join(sorted(p.stem for p in self._playbooks.glob("*.yml"))) or "none"
            raise ConfigureFailed("configure.no_play", f"there is no playbook {play!r} in {self._playbooks}; there is: {known}")
        return book

    def _new_folder(self) -> Path:
        self._run_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = 1 + max((int(p.name[8:]) for p in self._run_folder.glob("ansible-*") if p.name[8:].isdigit()), default=0)
        folder = self._run_folder / f"ansible-{number}"
        folder.mkdir(mode=0o700)
        return folder

    def _host_variables(self, hosts: Sequence[Host], variables: Mapping[str, object]) -> tuple[dict[str, Variables], dict[str, str]]:
        own = variables.get("by_host", {})
        if not isinstance(own, Mapping) or not all(isinstance(v, Mapping) for v in own.values()):
            raise ConfigInvalid("config.variable", 'the variable "by_host" is not a mapping of host to variables')
        unknown = sorted(set(own) - {h.id for h in hosts})
        if unknown:
            raise ConfigInvalid("config.variable", f"variables are given for {', '.join(map(repr, unknown))}, which the run does not have")
        by_host: dict[str, Variables] = {}
        folders: dict[str, str] = {}
        for h in hosts:
            mine: dict[str, object] = dict(cast(Mapping[str, object], own.get(h.id, {})))
            given = dict(h.variables)
            if "folder" in given:
                mine.setdefault("lab_serving_folder", given["folder"])
            if h.connection == "local":
                mine.setdefault("lab_serving_python", self._python)
                if isinstance(where := mine.get("lab_serving_folder"), str):
                    folders[h.id] = where
            by_host[h.id] = mine
        return by_host, folders

    def _remember(self, folders: Mapping[str, str]) -> None:
        """Keep the folder of each host, so that `manifest` finds it in another process too."""
        path = self._run_folder / FOLDERS
        known: dict[str, str] = {}
        with suppress(OSError, ValueError):
            known = json.loads(path.read_bytes())
        write_private(path, json.dumps({**known, **folders}, sort_keys=True))

    def _follow(self, child: Child, events: EventFile, outcome: Outcome, on: Callable[[Progress], None]) -> int | None:
        """Report the run's steps until it is over; whatever ends this ends the run."""
        self._child = child
        until = self._seconds() + self._timeout_s
        try:
            if self._cancelled:
                child.ask_to_end()
            while True:
                code = child.wait(LOOK_EVERY_S)
                for event in events.new():
                    for progress in (*outcome.ended_wave(event), outcome.take(event)):
                        if progress is not None:
                            on(progress)
                if code is not None:
                    return code
                if self._cancelled:
                    child.end()
                elif self._seconds() > until:
                    child.end()
                    raise ConfigureFailed(
                        "configure.timeout",
                        f"the run was not over after {self._timeout_s:g} s and was ended; {outcome.unfinished()}",
                        hint="Run the same command again: what was done is not done twice.",
                    )
        finally:
            self._child = None
            child.end()


def _tags(tags: Sequence[str]) -> Sequence[str]:
    """Return the tags if each is a plain name."""
    if wrong := [t for t in tags if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", t)]:
        raise ConfigInvalid("config.tags", f"{wrong[0]!r} is no tag", hint="Use the name of a role, such as rocm")
    return tags


def _last_words(output: Path) -> str:
    """Return the last error that Ansible printed, as one short clause."""
    try:
        with output.open("rb") as f:
            f.seek(max(0, output.stat().st_size - 65_536))
            lines = f.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    telling = [line for line in lines if line.startswith(("ERROR!", "[ERROR]", "fatal:"))] or [line for line in lines if line.strip()]
    if not telling:
        return ""
    return ": " + "".join(c if c.isprintable() else " " for c in telling[-1])[:300]
