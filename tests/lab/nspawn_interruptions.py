"""Configure, test bench: runs over a real host that are interrupted at tasks, compared with one that was left alone. Never a test."""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from fleetctl.domain.ids import Token
from fleetctl.domain.provision import HostResult, Progress
from fleetctl.errors import ConfigureFailed
from fleetctl.lab.nspawn import run
from fleetctl.lab.standins import Repository
from tests.lab import nspawn_bench as nb
from tests.lab import nspawn_lab as nl

KINDS = ("kill", "reboot", "full", "lock", "cut")
"""The run's processes are killed, the host reboots, its disk is full, apt's lock is taken, its sessions and its cable are cut."""
DISK = "256m"
"""Size of a host's own disk, in memory, so that it can be filled; what a host of stand-ins writes is a tenth of it."""
LOCK_S = 15
"""How long these runs wait for apt's lock: what holds it here goes on holding it until the run is over."""
LOCKS = ("var/lib/dpkg/lock-frontend", "var/lib/apt/lists/lock")
NEVER_THE_SAME = ("var/lib/fleetctl/models-ready.json", "etc/ssh/ssh_host_ed25519_key", "etc/ssh/ssh_host_ed25519_key.pub")
"""A file that holds a time, and the keys that a bare host is made with each time."""


@dataclass(kw_only=True)
class Bench(nb.Bench):
    """A lab with one host, which begins anew as often as wanted and whose disk is small."""

    ready: dict[str, Path] = field(default_factory=dict)

    @property
    def host(self) -> nl.RealHost:
        """Return its only host."""
        return self.lab.hosts[0]

    def variables(self) -> dict[str, object]:
        """Return the site play's variables for the host."""
        waits = {"apt_ready_lock_timeout": LOCK_S, "apt_packages_lock_timeout": LOCK_S}
        return self.repository.variables() | {"preflight_free_gib": 0, **waits}

    def again(self, kept: Path | None = None) -> None:
        """Make the host anew, bare or with what was kept of it."""
        self.host.remove()
        for name in ("upper", "work"):
            shutil.rmtree(self.host.folder / name)
        if kept:
            run("cp", "--archive", kept, self.host.folder / "upper")
        self.host.make()
        self.host.start()

    def begin_with(self, tags: Sequence[str]) -> Path | None:
        """Return what to begin with on a host that has these roles; made once, None is a bare one."""
        name = "-".join(tags)
        if tags and name not in self.ready:
            self.again()
            (result,) = self.run("rocm_node", self.variables(), tags=tags)
            assert (result.state, result.detail) == ("ok", "")
            self.host.kill()
            self.ready[name] = self.lab.folder / f"ready-{name}"
            run("cp", "--archive", self.host.folder / "upper", self.ready[name])
        return self.ready.get(name)

    def state(self) -> dict[str, str]:
        """Return what is on the host: paths that it has written since it was bare, and packages."""
        paths = nb.touched(self.host) - set(NEVER_THE_SAME)
        return {p: nb.state_of(self.host.root / p) for p in paths} | {"packages": "\n".join(nb.packages(self.host))}

    def differs(self, wanted: Mapping[str, str]) -> dict[str, tuple[str, str]]:
        """Return where the host is not as wanted: {path: (wanted, there is)}."""
        found, nothing = self.state(), self.lab.base
        pairs = {p: (wanted.get(p) or nb.state_of(nothing / p), found.get(p) or nb.state_of(nothing / p)) for p in {*wanted, *found}}
        return {p: pair for p, pair in pairs.items() if pair[0] != pair[1]}


@contextmanager
def bench() -> Iterator[Bench]:
    """Make a lab with a repository and one host with a small disk, and remove every trace of them."""
    with nl.nspawn_lab(0) as lab:
        folder = lab.hosts_folder / "node-1"
        folder.mkdir()
        run("mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", folder)
        lab.add("node-1")
        repository = Repository(folder=lab.folder / "repo", address=lab.gateway)
        try:
            repository.make()
            yield Bench(lab=lab, repository=repository)
        finally:
            repository.close()
            repository.stop_agent()


class Steps:
    """Counts the tasks of one role, "" all, with those of the packages that it installs."""

    def __init__(self, role: str) -> None:
        """Begin at none."""
        self.role, self.count = role, 0
        self._within = False

    def take(self, p: Progress) -> bool:
        """Tell whether that is the beginning of one more task of the role."""
        if p.state != "started":
            return False
        role = p.step.split(" : ")[0]
        self._within = not self.role or role == self.role or (self._within and role == "apt_packages")
        self.count += self._within
        return self._within


@contextmanager
def disturbed(b: Bench, kind: str) -> Iterator[None]:
    """Do to the host, or to the run, what the kind says, and put it right at the end; neither waits for the run."""
    h = b.host
    match kind:
        case "kill":
            _kill_run(b)
            yield
        case "reboot":
            _reboot(h)
            yield
        case "full":
            with _full(h.root / "var/tmp/full"):
                yield
        case "lock":
            with ExitStack() as held:
                for path in LOCKS:
                    f = held.enter_context((h.root / path).open("w"))
                    with suppress(OSError):  # the run holds it itself
                        fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield
        case "cut":
            _end_sessions(h)
            h.network(up=False)
            try:
                yield
            finally:
                h.network(up=True)
        case _:
            raise AssertionError(kind)


def _kill_run(b: Bench) -> None:
    listed = subprocess.run(["pgrep", "-f", f"ansible-playbook.*{b.lab.folder}"], capture_output=True, text=True, check=False)
    for pid in listed.stdout.split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def _reboot(h: nl.RealHost) -> None:
    before, until = h.reboots, time.monotonic() + 120
    h.ssh("sudo", "systemctl", "reboot", "--force")
    while h.reboots == before:
        assert time.monotonic() < until, "it does not reboot"
        time.sleep(0.1)
    h.wait()


def _end_sessions(h: nl.RealHost) -> None:
    for pid, line in h.command_lines().items():
        if line.startswith("sshd: "):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextmanager
def _full(filler: Path) -> Iterator[None]:
    with filler.open("wb") as f:
        for size in (1 << 20, 4096, 1):
            with suppress(OSError):
                while True:
                    os.write(f.fileno(), b"x" * size)
        try:
            yield
        finally:
            f.truncate(0)
            filler.unlink()


def interrupted(b: Bench, play: str, role: str, kind: str, at: int, variables: Mapping[str, object]) -> HostResult | None:
    """Run a play and disturb it when the host begins the n-th task of a role, "" of all.

    Returns:
        What the run came to; None where it was ended.
    """
    steps = Steps(role)
    began: list[object] = []
    found: tuple[HostResult, ...] = ()
    disturbance = disturbed(b, kind)

    def on(p: Progress) -> None:
        if steps.take(p) and steps.count >= at and not began:
            began.append(p.step)
            disturbance.__enter__()

    try:
        with suppress(ConfigureFailed):  # configure.broken, where its main process was killed
            found = b.configurator(tags=_tags(role)).run(play, [b.host.host], variables, Token(1), on)
    finally:
        if began:
            disturbance.__exit__(None, None, None)
    assert began, f"the run before left what cannot be mended: only {steps.count} of {at} tasks of {role or 'the play'} were begun: {found}"
    return found[0] if found else None


def _tags(role: str) -> tuple[str, ...]:
    return (role,) if role else ()


def points(role: str, count: int) -> list[tuple[int, str]]:
    """Return 5 seeded points of a role with that many tasks, one of each kind: (number of the task, kind), the first first."""
    chance = random.Random(f"interruptions of {role or 'the site play'}")
    among = range(1, count + 1)
    numbers = sorted(chance.sample(among, len(KINDS)) if count >= len(KINDS) else chance.choices(among, k=len(KINDS)))
    return list(zip(numbers, chance.sample(KINDS, len(KINDS)), strict=True))


def interrupt_and_compare(b: Bench, play: str, role: str, variables: Mapping[str, object], begin: Path | None) -> None:
    """Interrupt a role at 5 points, run after run on the same host, and prove that the last makes what an undisturbed one makes.

    A run that lives through its disturbance is compared too, and the host begins anew.
    """
    b.again(begin)
    steps = Steps(role)

    def count(p: Progress) -> None:
        steps.take(p)

    (alone,) = b.configurator(tags=_tags(role)).run(play, [b.host.host], variables, Token(1), count)
    assert (alone.state, alone.detail) == ("ok", "")
    wanted = b.state()
    b.again(begin)
    for at, kind in points(role, steps.count):
        result = interrupted(b, play, role, kind, at, variables)
        print(f"{role or play}: {kind} at task {at} of {steps.count}: {result.state if result else 'ended'}", flush=True)
        if result is not None and result.state == "ok":
            assert not (left := b.differs(wanted)), (kind, at, left)
            b.again(begin)
    (last,) = b.run(play, variables, tags=_tags(role))
    assert (last.state, last.detail) == ("ok", "")
    assert not (left := b.differs(wanted)), left
