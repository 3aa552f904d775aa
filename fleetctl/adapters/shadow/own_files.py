"""Migrate, adapters layer: the collector's own secrets, files of 0600 that are ours. Never logged, never kept."""

from __future__ import annotations

import os
import stat

from fleetctl.errors import CredentialsMissing


def read_own(path: str, what: str) -> str:
    """Read a secret's text.

    Raises:
        CredentialsMissing: credentials.missing, credentials.open_file.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as e:
        raise CredentialsMissing("credentials.missing", f"{what} {path} cannot be read: {e.strerror}.") from e
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_mode & 0o077 or found.st_uid != os.geteuid():
            text = f"{what} {path} can be used by others (mode {stat.S_IMODE(found.st_mode):04o})."
            raise CredentialsMissing("credentials.open_file", text, hint=f"Run: chmod 600 {path}")
        key = os.read(fd, 1024).decode("ascii", "replace").strip()
    finally:
        os.close(fd)
    if not key or not all("!" <= ch <= "~" for ch in key):
        raise CredentialsMissing("credentials.missing", f"{path} holds no key of printable characters.")
    return key
