"""Traffic, adapter layer: one writer at a time of a router's start-up files. Never waits for long: going home does not stand behind it.

What cells of one router have to write at the same time is written together: a thousand cells do not wait for a thousand disk writes.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

LOCK_LIMIT_S = 0.15


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file for the length of a block.

    Raises:
        OSError: it cannot be made, or another process has held it for over 150 ms.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        end = time.monotonic() + LOCK_LIMIT_S
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if time.monotonic() > end:
                raise TimeoutError(f"{path} is held by another process")
            time.sleep(0.002)
        yield
    finally:
        os.close(handle)


@dataclass(slots=True)
class _Group:
    """What waits to be written under one lock file, and whose turn it is."""

    guard: threading.Lock = field(default_factory=threading.Lock)
    turn: threading.Lock = field(default_factory=threading.Lock)
    waiting: list[tuple[Any, Future[None]]] = field(default_factory=list)


_GROUPS: dict[Path, _Group] = {}


def write_together(lock_file: Path, item: T, write: Callable[[Sequence[T]], None]) -> None:
    """Write an item with all others that wait by then, oldest first, while the lock file is held; return when it is written.

    Args:
        write: writes several; the same for all items of a lock file.

    Raises:
        OSError: as `locked` and `write` raise it.
    """
    group, done = _GROUPS.setdefault(lock_file, _Group()), Future[None]()
    with group.guard:
        group.waiting.append((item, done))
    with group.turn:
        with group.guard:
            taken, group.waiting = group.waiting, []
        if taken:  # else the one before has written it
            _write(lock_file, taken, write)
    done.result()


def _write(lock_file: Path, taken: list[tuple[T, Future[None]]], write: Callable[[Sequence[T]], None]) -> None:
    try:
        with locked(lock_file):
            write([item for item, _ in taken])
    except BaseException as e:
        for _, done in taken:
            done.set_exception(e)
        if not isinstance(e, Exception):
            raise
    else:
        for _, done in taken:
            done.set_result(None)
