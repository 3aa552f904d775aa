"""Assess, adapter layer: writes a translated tree into a new folder. Never overwrites, never follows a name out of the folder."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from fleetctl.errors import UsageError


class FolderWriter:
    """Implements the port CopyWriter on a local folder."""

    def write(self, folder: Path, files: Iterable[tuple[str, bytes]]) -> int:
        """Write files by relative name.

        Raises:
            UsageError: usage.folder_used where the folder holds something, usage.folder where it or a file in it cannot be written.
        """
        written = 0
        at = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with os.scandir(folder) as found:
                if any(found):
                    raise UsageError("usage.folder_used", f"{folder} holds files already.", hint="Name a new folder")
            for name, data in files:
                at = folder / name
                if name.startswith("/") or ".." in name.split("/"):
                    raise UsageError("usage.folder", f"{name!r} would lie outside {folder}.", hint="Rename it")
                at.parent.mkdir(parents=True, exist_ok=True)
                with at.open("xb") as stream:
                    stream.write(data)
                written += 1
        except OSError as e:
            raise UsageError("usage.folder", f"{at} cannot be written: {e.strerror}.", hint="Name a folder where you may write") from None
        return written
