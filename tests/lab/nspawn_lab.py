"""Configure, test bench: real hosts (systemd as first process, sshd, apt) in systemd-nspawn on a bridge. Never touches other hosts.

Each host is an overlay over one Debian root made by debootstrap and kept as a tar in the cache. Only the packages
are no real ones: small stand-ins under AMD's names, which say so.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fleetctl.adapters.ansible.settings import SshFiles
from fleetctl.domain.ids import HostId, PoolId
from fleetctl.domain.pool import Host

SUITE = "bookworm"
INCLUDED = "systemd,systemd-sysv,dbus,openssh-server,python3,python3-apt,sudo,gpg,gpgv,ca-certificates,iproute2,udev,kmod"
CACHED = f"nspawn-{SUITE}-1.tar"
NEEDED = ("systemd-nspawn", "debootstrap", "ip", "ssh-keygen", "dpkg-deb", "apt-ftparchive", "gpg")
USER = "ops"
POOL = PoolId("mi300x-nspawn")


def why_not() -> str:
    """Return why this machine cannot run real hosts, "" where it can."""
    if os.geteuid() != 0:
        return "needs root for systemd-nspawn"
    missing = [n for n in NEEDED if shutil.which(n) is None]
    return (
        f"needs {', '.join(missing)}: apt-get install systemd-container debootstrap iproute2 openssh-client dpkg-dev apt-utils gpg"
        if missing
        else ""
    )


def _run(*argv: str | Path, **kwargs: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, check=False, **kwargs)  # type: ignore[call-overload]
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return done  # type: ignore[no-any-return]


def cached_root() -> Path:
    """Return the tar of the Debian root; made by debootstrap where the cache lacks it."""
    folder = Path(os.environ.get("FLEETCTL_CACHE") or Path.home() / ".cache" / "fleetctl")
    tar = folder / CACHED
    if not tar.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = Path("/var/tmp") / f"fl-root-{uuid.uuid4().hex[:8]}"
        try:
            _run("debootstrap", "--variant=minbase", f"--include={INCLUDED}", SUITE, made)
            for spare in ("var/cache/apt/archives", "var/lib/apt/lists"):
                shutil.rmtree(made / spare, ignore_errors=True)
            _run("tar", "-C", made, "-cf", tar.with_suffix(".new"), ".")
            os.replace(tar.with_suffix(".new"), tar)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return tar


def unpacked_root() -> Path:
    """Return the Debian root as a folder, which hosts are overlays over; nobody writes in it."""
    tar = cached_root()
    folder = tar.with_suffix("")
    if not folder.exists():
        made = folder.with_name(f"{folder.name}.{uuid.uuid4().hex[:8]}")
        made.mkdir(mode=0o755)
        try:
            _run("tar", "-C", made, "-xf", tar)
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
        return self.lab.folder / self.name

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def address(self) -> str:
        return f"{self.lab.network}.{10 + self.number}"

    @property
    def netns(self) -> str:
        return f"{self.lab.id}-{self.number}"

    @property
    def host(self) -> Host:
        return Host(id=HostId(self.name), pool=POOL, address=self.address, user=USER)

    def make(self) -> None:
        """Make root and network; nothing runs yet."""
        for d in ("upper", "work", "root"):
            (self.folder / d).mkdir(parents=True)
        layers = f"lowerdir={self.lab.folder}/prepared:{unpacked_root()},upperdir={self.folder}/upper,workdir={self.folder}/work"
        _run("mount", "-t", "overlay", "overlay", "-o", layers, self.root)
        (self.root / "etc/hostname").write_text(self.name + "\n")
        (self.root / "etc/hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {self.name}\n")
        key = self.root / "etc/ssh/ssh_host_ed25519_key"
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", self.name, "-f", key)
        kind, public, *_ = key.with_suffix(".pub").read_text().split()
        with self.lab.known_hosts.open("a") as f:
            f.write(f"{self.address} {kind} {public}\n")
        veth, inside = f"{self.lab.id}v{self.number}", f"{self.lab.id}p{self.number}"
        _run("ip", "netns", "add", self.netns)
        _run("ip", "link", "add", veth, "type", "veth", "peer", "name", inside)
        _run("ip", "link", "set", inside, "netns", self.netns, "name", "host0")
        _run("ip", "link", "set", veth, "master", self.lab.bridge, "up")
        _run("ip", "-n", self.netns, "link", "set", "lo", "up")
        _run("ip", "-n", self.netns, "addr", "add", f"{self.address}/24", "dev", "host0")
        _run("ip", "-n", self.netns, "link", "set", "host0", "up")

    def start(self) -> None:
        """Boot it, and boot it again whenever it asks for a reboot."""
        self._stop.clear()
        self._spawn()
        self._watch = threading.Thread(target=self._again, daemon=True)
        self._watch.start()
        self.wait()

    def _spawn(self) -> None:
        argv = [
            "systemd-nspawn",
            "--quiet",
            "--register=no",
            "--keep-unit",
            "--boot",
            f"--directory={self.root}",
            f"--machine={self.netns}",
        ]
        argv += [f"--network-namespace-path=/run/netns/{self.netns}", "--link-journal=no", "--console=read-only"]
        groups = self._groups()
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
            )

    def _again(self) -> None:
        while not self._stop.is_set():
            process = self.process
            assert process is not None
            if process.wait() != 133 or self._stop.is_set():  # 133: it asks to be started again
                return
            self.reboots += 1
            self._spawn()

    def wait(self, seconds: float = 240) -> None:
        """Wait until sshd greets."""
        until = time.monotonic() + seconds
        while True:
            with contextlib.suppress(OSError), socket.create_connection((self.address, 22), timeout=2) as s:
                if s.recv(4) == b"SSH-":
                    return
            assert time.monotonic() < until, (self.folder / "console.log").read_text(errors="replace")[-2000:]
            time.sleep(0.1)

    def kill(self) -> None:
        """Take its power away: everything in its own control groups, because its first process outlives systemd-nspawn."""
        self._stop.set()
        until = time.monotonic() + 20
        while members := self._members():
            assert time.monotonic() < until, f"{len(members)} processes of {self.name} cannot be killed"
            for pid in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        if self.process:
            self.process.wait()

    def _groups(self) -> list[Path]:
        """Return its control groups, made by this lab and nobody else's."""
        tops = [g for g in (Path("/sys/fs/cgroup/systemd"), Path("/sys/fs/cgroup/unified")) if g.is_dir()] or [Path("/sys/fs/cgroup")]
        return [g / self.lab.id / self.name for g in tops]

    def _members(self) -> set[int]:
        """Return every process in its control groups; one that is dying has no command line and is not counted."""
        found: set[int] = set()
        for group in self._groups():
            for file in group.rglob("cgroup.procs"):
                with contextlib.suppress(OSError):
                    found |= {int(line) for line in file.read_text().split()}
        return {pid for pid in found if pid > 1 and not _is_dying(pid)}

    def running(self, what: str) -> list[str]:
        """Return the command lines of its processes that hold a text; read from outside, so that nothing is started on it."""
        found = []
        for pid in self._members():
            with contextlib.suppress(OSError):
                found.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        return [line for line in found if what in line]

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
        _run("ip", "link", "set", f"{self.lab.id}v{self.number}", "up" if up else "down")

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
        """Undo `make`; a machine that is thrown away needs no orderly end."""
        self.kill()
        subprocess.run(["ip", "link", "del", f"{self.lab.id}v{self.number}"], check=False, capture_output=True)
        subprocess.run(["umount", "--lazy", str(self.root)], check=False, capture_output=True)
        subprocess.run(["ip", "netns", "del", self.netns], check=False, capture_output=True)
        for top in self._groups():
            _remove_cgroups(top)


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


@dataclass(kw_only=True)
class NspawnLab:
    """A bridge with hosts on it."""

    folder: Path
    id: str
    network: str
    hosts: list[RealHost] = field(default_factory=list)

    @property
    def base(self) -> Path:
        return self.folder / "base"

    @property
    def bridge(self) -> str:
        return f"{self.id}br"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    @property
    def gateway(self) -> str:
        return f"{self.network}.1"

    @property
    def ssh_files(self) -> SshFiles:
        return SshFiles(known_hosts=self.known_hosts, identity=self.folder / "id")

    def add(self, name: str) -> RealHost:
        """Make and boot one more host."""
        made = RealHost(lab=self, name=name, number=len(self.hosts) + 1)
        self.hosts.append(made)
        made.make()
        made.start()
        return made


def _free_network() -> str:
    taken = _run("ip", "-4", "addr").stdout
    return next(f"10.213.{n}" for n in range(os.getpid() % 200, 250) if f"10.213.{n}." not in taken)


def _prepare(base: Path, public: str) -> None:
    """Make the root one that ssh reaches fast and that nothing changes by itself."""
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
    _run("chroot", base, "useradd", "--create-home", "--shell", "/bin/bash", USER)
    (base / "etc/sudoers.d/ops").write_text(f"{USER} ALL=(ALL) NOPASSWD: ALL\n")
    (base / "etc/sudoers.d/ops").chmod(0o440)
    ssh = base / "home" / USER / ".ssh"
    ssh.mkdir(mode=0o700)
    (ssh / "authorized_keys").write_text(public)
    _run("chroot", base, "chown", "-R", f"{USER}:{USER}", f"/home/{USER}/.ssh")
    units = (
        "apt-daily.timer",
        "apt-daily-upgrade.timer",
        "dpkg-db-backup.timer",
        "e2scrub_all.timer",
        "fstrim.timer",
        "systemd-tmpfiles-clean.timer",
    )
    for unit in units:
        link = base / "etc/systemd/system" / unit
        link.unlink(missing_ok=True)
        link.symlink_to("/dev/null")


@contextlib.contextmanager
def nspawn_lab(hosts: int = 1) -> Iterator[NspawnLab]:
    """Make a lab with that many booted hosts, and remove every trace of it."""
    number = uuid.uuid4().hex[:4]
    lab = NspawnLab(folder=Path("/var/tmp") / f"fl-nspawn-{number}", id=f"fl{number}", network=_free_network())
    lab.folder.mkdir(mode=0o700)
    try:
        for name in ("base", "prepared", "work"):
            (lab.folder / name).mkdir(mode=0o755)
        layers = f"lowerdir={unpacked_root()},upperdir={lab.folder}/prepared,workdir={lab.folder}/work"
        _run("mount", "-t", "overlay", "overlay", "-o", layers, lab.base)
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", lab.folder / "id")
        _prepare(lab.base, (lab.folder / "id.pub").read_text())
        _run("ip", "link", "add", lab.bridge, "type", "bridge")
        _run("ip", "addr", "add", f"{lab.gateway}/24", "dev", lab.bridge)
        _run("ip", "link", "set", lab.bridge, "up")
        for n in range(hosts):
            lab.add(f"node-{n + 1}")
        yield lab
    finally:
        for h in lab.hosts:
            h.remove()
        subprocess.run(["umount", "--lazy", str(lab.base)], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", lab.bridge], check=False, capture_output=True)
        for top in [Path("/sys/fs/cgroup") / lab.id, *Path("/sys/fs/cgroup").glob(f"*/{lab.id}")]:
            _remove_cgroups(top)
        shutil.rmtree(lab.folder, ignore_errors=True)
