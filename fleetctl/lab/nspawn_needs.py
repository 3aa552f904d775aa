"""Lab, lab layer: tells whether this machine can run real hosts, before anything is started. Never starts one."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NEEDED = ("systemd-nspawn", "debootstrap", "ip", "ssh-keygen", "dpkg-deb", "apt-ftparchive", "gpg")


def why_not() -> str:
    """Return why this machine cannot run real hosts, "" where it can."""
    if os.geteuid() != 0:
        return "needs root for systemd-nspawn"
    missing = [n for n in NEEDED if shutil.which(n) is None]
    if missing:
        packages = "systemd-container debootstrap iproute2 openssh-client dpkg-dev apt-utils gpg"
        return f"needs {', '.join(missing)}: apt-get install {packages}"
    return refused() or no_root()


_PROBES = (
    ("a mount", ("unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt")),
    ("a network namespace", ("unshare", "--net", "true")),
)
"""What a container often refuses even root; both leave nothing behind."""


@contextmanager
def usual_modes() -> Iterator[None]:
    """Let what is made have the modes that a distribution gives it, whatever umask this process was started with (Terraform's is 077).

    A host's root that only root may enter lets nobody in by ssh.
    """
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


@functools.cache
def refused() -> str:
    """Return what this machine refuses root that real hosts need, "" where nothing; it is asked once."""
    if Path("/proc/self/uid_map").read_text().split() != ["0", "0", "4294967295"]:
        return "needs root of the machine itself, not of a user namespace"
    for what, argv in _PROBES:
        try:
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=20)
        except (OSError, subprocess.TimeoutExpired) as e:
            return f"needs {what}, which cannot be tried here: {e}"
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            return f"needs {what}, which this machine refuses: {last}"
    if read_only := [str(g) for g in control_group_tops() if os.statvfs(g).f_flag & os.ST_RDONLY]:
        return f"needs control groups, and {read_only[0]} is read-only"
    return ""


def control_group_tops() -> list[Path]:
    """Return the folders that control groups are made in: those of systemd, or the only one."""
    return [g for g in (Path("/sys/fs/cgroup/systemd"), Path("/sys/fs/cgroup/unified")) if g.is_dir()] or [Path("/sys/fs/cgroup")]


SUITE = "bookworm"


def root_tar(suite: str = SUITE) -> Path:
    """Return where the tar of the Debian root is kept, made or not."""
    return Path(os.environ.get("FLEETCTL_CACHE") or Path.home() / ".cache" / "fleetctl") / f"nspawn-{suite}-1.tar"


@functools.cache
def archive() -> str:
    """Return the Debian archive that apt of this machine uses, as a URL; "" where it knows none."""
    asked = ("apt-get", "indextargets", "--format", "$(ORIGIN) $(SITE)", "Created-By: Packages")
    try:
        done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    sites = (line.partition(" ")[2].strip() for line in done.stdout.splitlines() if line.startswith("Debian "))
    return next((site for site in sites if site.startswith(("http://", "https://")) and not site.endswith("-security")), "")


@functools.cache
def no_root(suite: str = SUITE) -> str:
    """Return why there can be no Debian root, "" where it is kept or Debian's archive answers; it is asked once."""
    if root_tar(suite).exists():
        return ""
    if not archive():
        return "needs a Debian root: none is kept, and apt here knows no Debian archive (apt-get update)"
    try:
        with urllib.request.urlopen(f"{archive()}/dists/{suite}/InRelease", timeout=10):  # noqa: S310 - http(s) alone, as apt is set up
            return ""
    except (OSError, ValueError) as e:
        return f"needs a Debian root: none is kept, and {archive()} does not answer ({e})"
