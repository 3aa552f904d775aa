"""Plan and bench, adapters layer: the workspace's own catalogue rows as CSV files. Written whole and renamed, never half."""

from __future__ import annotations

import csv
import fcntl
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fleetctl.errors import StoreUnavailable

Row = Mapping[str, str]


class OwnRows:
    """Files in one folder.

    Args:
        folder: .fleetctl/catalog of a workspace; it is made when the first row is written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def merge(self, name: str, columns: Sequence[str], key: Sequence[str], rows: Iterable[Row]) -> tuple[int, int]:
        """Put rows into a file; one with the same key takes the place of the older.

        Returns:
            rows that are new, and rows that have changed.

        Raises:
            StoreUnavailable: catalog.unwritable.
        """
        path = self._folder / name
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with (self._folder / ".lock").open("w", encoding="utf-8") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                return self._merged(path, columns, key, rows)
        except OSError as e:
            raise StoreUnavailable("catalog.unwritable", f"{path} cannot be written: {e.strerror}.", hint="Run: fleetctl doctor") from e

    def _merged(self, path: Path, columns: Sequence[str], key: Sequence[str], rows: Iterable[Row]) -> tuple[int, int]:
        kept: dict[tuple[str, ...], dict[str, str]] = {}
        if path.is_file():
            with path.open(encoding="utf-8", newline="") as text:
                for row in csv.DictReader(text):
                    kept[tuple(row.get(k) or "" for k in key)] = {c: row.get(c) or "" for c in columns}
        new = changed = 0
        for given in rows:
            one = {c: given.get(c, "") for c in columns}
            name = tuple(one[k] for k in key)
            new, changed = new + (name not in kept), changed + (name in kept and kept[name] != one)
            kept[name] = one
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        with draft.open("w", encoding="utf-8", newline="") as out:
            writer = csv.DictWriter(out, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(kept.values())
            out.flush()
            os.fsync(out.fileno())
        draft.replace(path)
        return new, changed
