"""Store and traffic, adapter layer: which file system holds a file. Never opens the file itself."""

from __future__ import annotations

import os

NETWORK_KINDS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "lustre", "glusterfs", "fuse.sshfs", "fuse.glusterfs", "afs"}
)


def network_filesystem(path: str) -> str | None:
    """Name the network filesystem that holds `path`; None for a local one or where that cannot be told."""
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as f:
            mounts = [line.split()[1:3] for line in f]
    except OSError:
        return None
    real = os.path.realpath(path)
    best, kind = "", ""
    for point, fs in mounts:
        point = point.replace("\\040", " ")
        if len(point) >= len(best) and (real == point or real.startswith(point.rstrip("/") + "/")):
            best, kind = point, fs
    return kind if kind in NETWORK_KINDS else None
