"""Init, adapter layer: new files in a workspace directory. Never overwrites one and never follows a link out of it."""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path

from fleetctl.errors import StoreUnavailable

KEY_BYTES = 32


class WorkspaceFolder:
    """A workspace directory.

    Args:
        root: it must exist.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def exists(self, path: str) -> bool:
        """Tell whether something of that name is there (also a broken link)."""
        return os.path.lexists(self._root / path)

    def create(self, path: str, content: bytes, *, secret: bool) -> bool:
        """Write a new file as a whole; False where it was there already.

        Raises:
            StoreUnavailable: store.unwritable.
        """
        file = self._root / path
        try:
            self._make_folder(file.parent, secret=secret)
            return _write_new(file, content, 0o600 if secret else 0o644)
        except OSError as e:
            raise StoreUnavailable(
                "store.unwritable", f"{file} cannot be written: {e.strerror}.", hint="Add: -C DIR, a directory you may write"
            ) from e

    def _make_folder(self, folder: Path, *, secret: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if secret:
            folder.chmod(0o700)


def _write_new(file: Path, content: bytes, mode: int) -> bool:
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, mode)
        try:
            os.link(temporary, file)
        except FileExistsError:
            return False
        return True
    finally:
        os.unlink(temporary)


def new_key() -> bytes:
    """Return 32 random bytes as hex, for the HMAC of the files that show the way home."""
    return secrets.token_hex(KEY_BYTES).encode() + b"\n"
