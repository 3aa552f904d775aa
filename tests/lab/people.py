"""Lab tests: people with real SSH keys, and lines of the file that says whose signatures are allowed."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path


def make_keys(folder: Path, people: Sequence[str]) -> Path:
    """Make a key per person, without a passphrase; return the folder."""
    for name in people:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", folder / name], check=True)
    return folder


def allowed_line(keys: Path, name: str, options: str = "", of: str = "") -> str:
    """Return the line that allows a person the key of that name, or the key of another one (`of`)."""
    kind, key, *_ = (keys / f"{of or name}.pub").read_text().split()
    return f"{name} {options} {kind} {key}\n".replace("  ", " ")
