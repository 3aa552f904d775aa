"""Doctor, adapters layer: writes an evidence bundle as a private archive, and reads the secrets it must not hold. Never overwrites."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from fleetctl.errors import UsageError

LONGEST_SECRET = 1 << 16


def write_archive(file: Path, texts: Mapping[str, str], folder: str, at: float) -> int:
    """Write a tar.gz (0600) with one folder, and return its bytes.

    Args:
        at: epoch seconds, of every file in it.

    Raises:
        UsageError: usage.bundle: the file is there already, or cannot be made.
    """
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except OSError as e:
        raise UsageError("usage.bundle", f"the bundle {file} cannot be made: {e.strerror}.", hint="Name another: --bundle FILE") from e
    with os.fdopen(handle, "wb") as out, tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, text in texts.items():
            data = text.encode("utf-8", "replace")
            info = tarfile.TarInfo(f"{folder}/{name}")
            info.size, info.mode, info.mtime = len(data), 0o600, int(at)
            archive.addfile(info, io.BytesIO(data))
    return file.stat().st_size


def read_secrets(files: Iterable[Path]) -> dict[str, str]:
    """Return what secret files hold, by path; those that cannot be read hold nothing that we could have leaked."""
    found = {}
    for file in files:
        try:
            with file.open("rb") as f:
                found[file.name] = f.read(LONGEST_SECRET).decode("utf-8", "replace")
        except OSError:
            continue
    return found
