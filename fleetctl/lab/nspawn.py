"""Lab, lab layer: real hosts (systemd as first process, sshd, apt) in systemd-nspawn on a bridge of their own. Never touches others.

Each host is an overlay over one Debian root made by debootstrap and kept as a tar in the cache. Needs root. No accelerator, no kernel of
its own, no way out of the bridge.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from fleetctl.adapters.ansible.settings import SshFiles
from fleetctl.domain.ids import HostId, PoolId
from fleetctl.domain.pool import Host
from fleetctl.errors import LabFailed
from fleetctl.lab.nspawn_needs import SUITE, archive, control_group_tops, root_tar, usual_modes

INCLUDED = "systemd,systemd-sysv,dbus,openssh-server,python3,python3-apt,sudo,gpg,gpgv,ca-certificates,iproute2,udev,kmod"
USER = "ops"
POOL = PoolId("mi300x-nspawn")
FIRST_ADDRESS = 10
"""A host's number is added to it; below are the bridge and room for a person's own."""
ASKS_FOR_REBOOT = 133
"""Exit code of systemd-nspawn. Source: systemd-nspawn(1), "Exit status"."""


def run(*argv: str | Path, timeout_s: float = 900.0) -> str:
    """Run a program of this machine to its end and return what it said.

    Raises:
        LabFailed: lab.machine, with its last words.
    """
    try:
        done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, check=False, timeout=timeout_s)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise LabFailed("lab.machine", f"{argv[0]} could not be run to its end: {e}.", hint=_HINT) from None
    if done.returncode != 0:
        last = (done.stderr or done.stdout).strip()[-400:]
        raise LabFailed("lab.machine", f"{argv[0]} ended with {done.returncode}: {last}.", hint=_HINT)
    return done.stdout


_HINT = "Run: fleetctl lab down, then fleetctl lab up --hosts nspawn"


@usual_modes()
def cached_root(suite: str = SUITE) -> Path:
    """Return the tar of the Debian root; made by debootstrap where the cache lacks it."""
    tar = root_tar(suite)
    if not tar.exists():
        tar.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = Path("/var/tmp") / f"fl-root-{uuid.uuid4().hex[:8]}"  # noqa: S108 - a random name; /tmp may be too small
        try:
            run("debootstrap", "--variant=minbase", f"--include={INCLUDED}", suite, made, archive(), timeout_s=1800)
            for spare in ("var/cache/apt/archives", "var/lib/apt/lists"):
                shutil.rmtree(made / spare, ignore_errors=True)
            new = tar.with_suffix(f".{made.name}")
            run("tar", "-C", made, "-cf", new, ".")
            os.replace(new, tar)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return tar


def unpacked_root(suite: str = SUITE) -> Path:
    """Return the Debian root as a folder, which hosts are overlays over; nobody writes in it."""
    tar = cached_root(suite)
    folder = tar.with_suffix("")
    if not folder.exists():
        made = folder.with_name(f"{folder.name}.{uuid.uuid4().hex[:8]}")
        made.mkdir(mode=0o755)
        try:
            run("tar", "-C", made, "-xf", tar)
            made.rename(folder)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
    return folder


@dataclass(kw_only=True)
class RealHost:
    """One host: its root, its network namespace, its machine."""

    lab: NspawnLab
    name: str
    number: int
    process: subprocess.Popen[bytes] | None = None
    reboots: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _watch: threading.Thread | None = None

    @property
    def folder(self) -> Path:
        """Return its folder on this machine."""
        return self.lab.hosts_folder / self.name

    @property
    def root(self) -> Path:
        """Return its root file system, as seen from this machine."""
        return self.folder / "root"

    @property
    def address(self) -> str:
        """Return its address on the bridge."""
        return f"{self.lab.network}.{FIRST_ADDRESS + self.number}"

    @property
    def netns(self) -> str:
        """Return its network namespace."""
        return f"{self.lab.id}-{self.number}"

    @property
    def host(self) -> Host:
        """Return it as fleetctl reaches it."""
        return Host(id=HostId(self.name), pool=self.lab.pool, address=self.address, user=USER)

    @usual_modes()
    def make(self) -> None:
        """Make root and network; nothing runs yet. Nothing is done where both are there.

        Raises:
            LabFailed: lab.machine.
        """
        if os.path.ismount(self.root):
            return
        for d in ("upper", "work", "root"):
            (self.folder / d).mkdir(mode=0o755, parents=True, exist_ok=True)
        lower = f"{self.lab.folder}/prepared:{unpacked_root(self.lab.suite)}"
        layers = f"lowerdir={lower},upperdir={self.folder}/upper,workdir={self.folder}/work"
        run("mount", "-t", "overlay", "overlay", "-o", layers, self.root)
        (self.root / "etc/hostname").write_text(self.name + "\n")
        (self.root / "etc/hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {self.name}\n")
        key = self.root / "etc/ssh/ssh_host_ed25519_key"
        if not key.exists():
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", self.name, "-f", key)
        self._pin(key.with_suffix(".pub"))
        veth, inside = f"{self.lab.id}v{self.number}", f"{self.lab.id}p{self.number}"
        run("ip", "netns", "add", self.netns)
        run("ip", "link", "add", veth, "type", "veth", "peer", "name", inside)
        run("ip", "link", "set", inside, "netns", self.netns, "name", "host0")
        run("ip", "link", "set", veth, "master", self.lab.bridge, "up")
        run("ip", "-n", self.netns, "link", "set", "lo", "up")
        run("ip", "-n", self.netns, "addr", "add", f"{self.address}/24", "dev", "host0")
        run("ip", "-n", self.netns, "link", "set", "host0", "up")

    def _pin(self, public: Path) -> None:
        """Write its key, and no older one of its address, among those that count."""
        kind, key, *_ = public.read_text().split()
        with self.lab.known_hosts.open("a+") as f:
            fcntl.flock(f, fcntl.LOCK_EX)  # hosts are made side by side
            f.seek(0)
            rows = [line for line in f.read().splitlines() if not line.startswith(f"{self.address} ")]
            f.truncate(0)
            f.write("".join(f"{line}\n" for line in (*rows, f"{self.address} {kind} {key}")))

    def start(self) -> None:
        """Boot it, and boot it again whenever it asks for a reboot.

        Raises:
            LabFailed: lab.machine: sshd did not greet, with the console's last words.
        """
        self._stop.clear()
        self._spawn()
        self._watch = threading.Thread(target=self._again, daemon=True)
        self._watch.start()
        self.wait()

    def _spawn(self) -> None:
        argv = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--boot"]
        argv += [f"--directory={self.root}", f"--machine={self.netns}"]
        argv += [f"--network-namespace-path=/run/netns/{self.netns}", "--link-journal=no", "--console=read-only"]
        argv += ["--system-call-filter=@keyring bpf"] if self.lab.containers else []
        groups = self.groups()
        for g in groups:
            g.mkdir(parents=True, exist_ok=True)
        join = "import os,sys\nn=int(sys.argv[1])\nfor g in sys.argv[2:2+n]: open(g+'/cgroup.procs','w').write(str(os.getpid()))\n"
        join += "os.execvp(sys.argv[2+n],sys.argv[2+n:])"
        with (self.folder / "console.log").open("ab") as log:
            self.process = subprocess.Popen(
                ["/usr/bin/python3", "-I", "-c", join, str(len(groups)), *map(str, groups), *argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=dict(os.environ) | ({"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"} if self.lab.containers else {}),
            )

    def _again(self) -> None:
        while not self._stop.is_set():
            process = self.process
            if process is None or process.wait() != ASKS_FOR_REBOOT or self._stop.is_set():
                return
            self.reboots += 1
            self._spawn()

    def wait(self, seconds: float = 240) -> None:
        """Wait until sshd greets.

        Raises:
            LabFailed: lab.machine.
        """
        until = time.monotonic() + seconds
        while True:
            with contextlib.suppress(OSError), socket.create_connection((self.address, 22), timeout=2) as s:
                if s.recv(4) == b"SSH-":
                    return
            if time.monotonic() > until or (self.process and self.process.poll() not in (None, ASKS_FOR_REBOOT)):
                console = (self.folder / "console.log").read_text(errors="replace")[-600:]
                raise LabFailed("lab.machine", f"host {self.name} did not come up within {seconds:g} s: {console}", hint=_HINT)
            time.sleep(0.1)

    @property
    def is_running(self) -> bool:
        """Tell whether its machine lives."""
        return bool(self._watch and self._watch.is_alive())

    def kill(self) -> None:
        """Take its power away: everything in its own control groups, because its first process outlives systemd-nspawn.

        Raises:
            LabFailed: lab.machine, what cannot be killed within 20 s.
        """
        self._stop.set()
        _kill_all(self.groups(), self.name)
        if self.process:
            self.process.wait()

    def groups(self) -> list[Path]:
        """Return its control groups, made by this lab and nobody else's."""
        return [g / self.lab.id / self.name for g in control_group_tops()]

    def running(self, what: str) -> list[str]:
        """Return the command lines of its processes that hold a text; read from outside, so that nothing is started on it."""
        return [line for line in self.command_lines().values() if what in line]

    def command_lines(self) -> dict[int, str]:
        """Return what runs on it: command line by process id, as this machine counts them."""
        found = {}
        for pid in _members(self.groups()):
            with contextlib.suppress(OSError):
                found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return found

    def stop(self) -> None:
        """Shut it down in order; power off where it takes long."""
        self._stop.set()
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()

    def network(self, up: bool) -> None:
        """Cut or mend its cable."""
        run("ip", "link", "set", f"{self.lab.id}v{self.number}", "up" if up else "down")

    def ssh(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run a command on it."""
        key, known = self.lab.folder / "id", self.lab.known_hosts
        options = ["-i", str(key), "-o", f"UserKnownHostsFile={known}", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"]
        return subprocess.run(
            ["ssh", *options, f"{USER}@{self.address}", *argv],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def remove(self) -> None:
        """Undo `make`, also what another process made; a machine that is thrown away needs no orderly end.

        Raises:
            LabFailed: lab.machine, what cannot be killed or unmounted; its folder is then left alone.
        """
        self.kill()
        subprocess.run(["ip", "link", "del", f"{self.lab.id}v{self.number}"], check=False, capture_output=True)
        _unmount([self.root])
        subprocess.run(["ip", "netns", "del", self.netns], check=False, capture_output=True)
        for top in self.groups():
            _remove_cgroups(top)


def _members(groups: list[Path]) -> set[int]:
    """Return every process in control groups; one that is dying has no command line and is not counted."""
    found: set[int] = set()
    for group in groups:
        for file in group.rglob("cgroup.procs"):
            with contextlib.suppress(OSError):
                found |= {int(line) for line in file.read_text().split()}
    return {pid for pid in found if pid > 1 and not _is_dying(pid)}


def _kill_all(groups: list[Path], name: str) -> None:
    until = time.monotonic() + 20
    while members := _members(groups):
        if time.monotonic() > until:
            raise LabFailed("lab.machine", f"{len(members)} processes of {name} cannot be killed.", hint="Run: fleetctl lab down")
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _is_dying(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return True
    return stat[stat.rfind(b")") + 2 :][:1] in (b"Z", b"X")


def _remove_cgroups(top: Path) -> None:
    for folder, _, _ in os.walk(top, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def _unmount(places: list[Path]) -> None:
    for place in places:
        subprocess.run(["umount", "--lazy", str(place)], check=False, capture_output=True)
        if os.path.ismount(place):
            raise LabFailed("lab.machine", f"{place} cannot be unmounted.", hint="Run: fleetctl lab down")


def mounts_below(folder: Path) -> list[Path]:
    """Return what is mounted below a folder, the deepest first."""
    rows = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    below = [Path(row) for row in rows if row.startswith(f"{folder}/")]
    return sorted(below, key=lambda p: len(p.parts), reverse=True)


@dataclass(kw_only=True)
class NspawnLab:
    """A bridge with hosts on it.

    Args:
        folder: of key, pinned host keys and prepared root; absolute, mode 0700.
        id: at most 9 letters and digits, first in the name of every link, namespace and control group.
        network: first three numbers of the addresses.
        hosts_folder: holds a folder per host.
        containers: hosts can run containers: they have control groups of version 2 and the system calls that runtimes make.
    """

    folder: Path
    id: str
    network: str
    suite: str = SUITE
    pool: PoolId = POOL
    hosts_folder: Path = field(default_factory=Path)
    containers: bool = False
    hosts: list[RealHost] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Hosts lie beside the rest where nothing else was said."""
        if self.hosts_folder == Path():
            self.hosts_folder = self.folder

    @property
    def base(self) -> Path:
        """Return the root that every host begins with."""
        return self.folder / "base"

    @property
    def bridge(self) -> str:
        """Return the bridge's name."""
        return f"{self.id}br"

    @property
    def known_hosts(self) -> Path:
        """Return the file of pinned host keys."""
        return self.folder / "known_hosts"

    @property
    def gateway(self) -> str:
        """Return this machine's address on the bridge."""
        return f"{self.network}.1"

    @property
    def ssh_files(self) -> SshFiles:
        """Return what the hosts are reached by."""
        return SshFiles(known_hosts=self.known_hosts, identity=self.folder / "id")

    @usual_modes()
    def make(self) -> None:
        """Make bridge, key and prepared root; nothing is done where they are there.

        Raises:
            LabFailed: lab.machine.
        """
        self.folder.mkdir(mode=0o700, exist_ok=True)
        if not os.path.ismount(self.base):
            for name in ("base", "prepared", "work"):
                (self.folder / name).mkdir(mode=0o755, exist_ok=True)
            layers = f"lowerdir={unpacked_root(self.suite)},upperdir={self.folder}/prepared,workdir={self.folder}/work"
            run("mount", "-t", "overlay", "overlay", "-o", layers, self.base)
        if not (self.folder / "id").exists():
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / "id")
            prepare(self.base, (self.folder / "id.pub").read_text())
        if not Path(f"/sys/class/net/{self.bridge}").exists():
            run("ip", "link", "add", self.bridge, "type", "bridge")
            run("ip", "addr", "add", f"{self.gateway}/24", "dev", self.bridge)
            run("ip", "link", "set", self.bridge, "up")

    def add(self, name: str) -> RealHost:
        """Make and boot one more host."""
        made = RealHost(lab=self, name=name, number=len(self.hosts) + 1)
        self.hosts.append(made)
        made.make()
        made.start()
        return made

    def remove(self) -> None:
        """End every machine and remove links, namespaces, control groups and mounts, also those that a crash has left; files stay.

        Raises:
            LabFailed: lab.machine, what cannot be killed or unmounted.
        """
        for h in self.hosts:
            h.remove()
        tops = [Path("/sys/fs/cgroup") / self.id, *Path("/sys/fs/cgroup").glob(f"*/{self.id}")]
        _kill_all(tops, self.id)
        for name in [*Path("/sys/class/net").glob(f"{self.id}v*"), *Path("/sys/class/net").glob(self.bridge)]:
            subprocess.run(["ip", "link", "del", name.name], check=False, capture_output=True)
        for space in Path("/run/netns").glob(f"{self.id}-*"):
            subprocess.run(["ip", "netns", "del", space.name], check=False, capture_output=True)
        _unmount([m for top in {self.folder, self.hosts_folder} for m in mounts_below(top)])
        for top in tops:
            _remove_cgroups(top)


def free_network() -> str:
    """Return the first three numbers of a network that this machine has no address in."""
    taken = run("ip", "-4", "addr")
    return next(f"10.213.{n}" for n in range(os.getpid() % 200, 250) if f"10.213.{n}." not in taken)


_TIMERS = ("apt-daily", "apt-daily-upgrade", "dpkg-db-backup", "e2scrub_all", "fstrim", "systemd-tmpfiles-clean")


def prepare(base: Path, public: str) -> None:
    """Make a root one that ssh reaches fast and that nothing changes by itself."""
    for folder in ("var/lib/apt/lists/partial", "var/cache/apt/archives/partial"):  # apt makes neither
        (base / folder).mkdir(parents=True, exist_ok=True)
    (base / "etc/resolv.conf").unlink(missing_ok=True)
    (base / "etc/resolv.conf").write_text("")
    (base / "etc/apt/sources.list").write_text("")
    (base / "etc/machine-id").write_text("")
    with (base / "etc/ssh/sshd_config").open("a") as f:
        f.write("\nUseDNS no\nMaxStartups 100\nMaxSessions 50\nPermitRootLogin no\nPasswordAuthentication no\n")
    for key in (base / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    run("chroot", base, "useradd", "--create-home", "--shell", "/bin/bash", USER)
    (base / f"etc/sudoers.d/{USER}").write_text(f"{USER} ALL=(ALL) NOPASSWD: ALL\n")
    (base / f"etc/sudoers.d/{USER}").chmod(0o440)
    ssh = base / "home" / USER / ".ssh"
    ssh.mkdir(mode=0o700)
    (ssh / "authorized_keys").write_text(public)
    run("chroot", base, "chown", "-R", f"{USER}:{USER}", f"/home/{USER}/.ssh")
    for timer in _TIMERS:
        link = base / "etc/systemd/system" / f"{timer}.timer"
        link.unlink(missing_ok=True)
        link.symlink_to("/dev/null")
