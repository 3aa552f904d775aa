"""Traffic, adapter layer: one writer at a time of a router's start-up files. Never waits for long: going home does not stand behind it."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

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
