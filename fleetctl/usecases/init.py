"""Init, use case layer: write a workspace that a person can begin with. Never overwrites a file and never touches a cloud."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile:
    """A file to write.

    Args:
        path: relative to the workspace, with "/"; what: one phrase for the person who runs init; secret: readable by its owner alone.
        make: gives the content when the file is really written (a key is drawn no sooner).
    """

    path: str
    what: str
    make: Callable[[], bytes]
    secret: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What became of a file: "written", "kept" (it was there already) or "planned" (dry run)."""

    path: str
    what: str
    state: Literal["written", "kept", "planned"]


class Folder(Protocol):
    """The workspace. `create` raises StoreUnavailable (store.unwritable) where it cannot be written."""

    def exists(self, path: str) -> bool:
        """Tell whether something of that name is there (also a broken link)."""
        ...

    def create(self, path: str, content: bytes, *, secret: bool) -> bool:
        """Write a new file as a whole and return True; False where it was there already. Secret: file 0600, its folder 0700."""
        ...


def init_workspace(files: Iterable[NewFile], folder: Folder, *, dry_run: bool = False) -> tuple[Written, ...]:
    """Write each file that is not there yet and tell what was done, in the order given."""
    done = []
    for file in files:
        if folder.exists(file.path):
            state: Literal["written", "kept", "planned"] = "kept"
        elif dry_run:
            state = "planned"
        else:
            state = "written" if folder.create(file.path, file.make(), secret=file.secret) else "kept"
        done.append(Written(path=file.path, what=file.what, state=state))
    return tuple(done)
