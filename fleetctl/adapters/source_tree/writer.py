"""Assess, adapter layer: writes a translated tree into a new folder. Never overwrites, never follows a name out of the folder."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from fleetctl.adapters.source_tree.packed import safe_name
from fleetctl.errors import UsageError


class FolderWriter:
    """Implements the port CopyWriter on a local folder."""

    def write(self, folder: Path, files: Iterable[tuple[str, str]]) -> int:
        """Write files by relative name; a name that would leave the folder is left out.

        Raises:
            UsageError: usage.folder_used where the folder holds something, usage.folder where it cannot be written.
        """
        written = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with os.scandir(folder) as found:
                if any(found):
                    raise UsageError("usage.folder_used", f"{folder} holds files already.", hint="Name a new folder")
            for name, text in files:
                inner = safe_name(name)
                if inner is None:
                    continue
                path = folder / inner
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("x", encoding="utf-8") as stream:
                    stream.write(text)
                written += 1
        except OSError as e:
            raise UsageError(
                "usage.folder", f"{folder} cannot be written: {e.strerror}.", hint="Name a folder where you may write"
            ) from None
        return written
