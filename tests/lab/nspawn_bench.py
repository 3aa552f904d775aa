"""Configure, test bench: runs of the shipped playbooks over real hosts, and what a host's file system holds. Never a test."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from fleetctl.adapters.ansible.configurator import AnsibleConfigurator
from fleetctl.domain.ids import Token
from fleetctl.domain.provision import HostResult, Progress
from fleetctl.lab.standins import Repository
from tests.fakes.ansible_world import PLAYBOOKS
from tests.lab.nspawn_lab import SUITE, NspawnLab, RealHost, nspawn_lab

IGNORED = (
    "var/log", "var/cache", "var/tmp", "tmp", "run",  # what every program may write
    "var/lib/apt",  # lists of packages; the packages themselves are compared by dpkg-query
    "var/lib/dpkg", "etc/ld.so.cache", "etc/mailcap",
    "var/lib/systemd", "var/lib/private", "var/lib/dbus",
    "etc/machine-id", "etc/.pwd.lock", "etc/passwd-", "etc/group-", "etc/shadow-", "etc/gshadow-", "etc/subuid-", "etc/subgid-",
    "home/ops/.ansible", "root/.ansible", "root/.gnupg", "home/ops/.cache",
)  # fmt: skip
"""Paths that a host changes by itself or by being used; all others must be as before after an uninstall."""


@dataclass(kw_only=True)
class Bench:
    """A lab with a repository, and runs over it."""

    lab: NspawnLab
    repository: Repository
    seen: list[Progress] = field(default_factory=list)

    def configurator(self, *, check: bool = False, tags: Sequence[str] = (), timeout_s: float = 2400) -> AnsibleConfigurator:
        """Return what runs plays over the lab's hosts."""
        run = self.lab.folder / "run"
        return AnsibleConfigurator(
            PLAYBOOKS,
            run,
            sys.executable,
            ssh=self.lab.ssh_files,
            vendors={self.lab.pool: "amd"},
            check=check,
            diff=check,
            tags=tags,
            timeout_s=timeout_s,
            forks=8,
        )

    def run(
        self, play: str, variables: Mapping[str, object], *, check: bool = False, tags: Sequence[str] = (), hosts: Sequence[RealHost] = ()
    ) -> tuple[HostResult, ...]:
        """Run a play over hosts, all where none is named, and keep what was seen."""
        self.seen.clear()
        chosen = [h.host for h in (hosts or self.lab.hosts)]
        return self.configurator(check=check, tags=tags).run(play, chosen, variables, Token(1), self.seen.append)

    def changed_roles(self) -> set[str]:
        """Return the roles that changed something in the last run."""
        return {p.step.split(" : ")[0] for p in self.seen if p.state == "changed"}

    def output(self) -> str:
        """Return what the last run printed."""
        newest = max(self.lab.folder.glob("run/ansible-*/output.log"), key=lambda p: int(p.parent.name[8:]))
        return newest.read_text()


@contextmanager
def bench(hosts: int = 1, suite: str = SUITE, containers: bool = False) -> Iterator[Bench]:
    """Make hosts and a repository, and remove every trace of them."""
    with nspawn_lab(hosts, suite, containers) as lab:
        repository = Repository(folder=lab.folder / "repo", address=lab.gateway)
        try:
            repository.make()
            yield Bench(lab=lab, repository=repository)
        finally:
            repository.close()
            repository.stop_agent()


def state_of(path: Path) -> str:
    """Return what stands at a path: kind, mode, owner and content."""
    try:
        s = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return "nothing"
    what = f"{stat.S_IFMT(s.st_mode):o} {stat.S_IMODE(s.st_mode):o} {s.st_uid}:{s.st_gid}"
    if stat.S_ISLNK(s.st_mode):
        return f"{what} {os.readlink(path)}"
    return f"{what} {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}" if stat.S_ISREG(s.st_mode) else what


def touched(h: RealHost) -> set[str]:
    """Return the paths that a host has written or removed since it was made."""
    upper = h.folder / "upper"
    found = {str(Path(folder, name).relative_to(upper)) for folder, dirs, files in os.walk(upper) for name in (*dirs, *files)}
    return {p for p in found if not any(p == i or p.startswith(i + "/") for i in IGNORED)}


def packages(h: RealHost) -> list[str]:
    """Return package, version and selection of everything that dpkg knows."""
    return h.ssh("dpkg-query", "-W", "-f", "'${Package} ${Version} ${Status}\\n'").stdout.splitlines()


def remember(h: RealHost) -> Callable[[], dict[str, tuple[str, str]]]:
    """Note a host's file system and return a function that tells what differs from it: {path: (before, now)}."""
    before = {p: state_of(h.root / p) for p in touched(h)}

    def difference() -> dict[str, tuple[str, str]]:
        paths = touched(h) | set(before)
        pairs = {p: (before.get(p) or state_of(h.lab.base / p), state_of(h.root / p)) for p in paths}
        return {p: pair for p, pair in pairs.items() if pair[0] != pair[1]}

    return difference


def running_ansible(lab: NspawnLab) -> list[str]:
    """Return the command lines of a lab's own runs that are alive on this machine: their programs, and connections that tasks shared."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            mine = Path(os.readlink(process / "cwd")).is_relative_to(lab.folder)
            if mine and ("ansible-playbook" in line or line.startswith("ssh")):
                found.append(line)
    return found
