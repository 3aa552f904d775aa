"""Every step, shell layer: stdout whose failure is an error with a code, stderr whose failure stops no work. Never decides."""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from fleetctl.errors import OutputFailed


class _Stream:
    """A text stream that stands for another; all that it does not define is the other's."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        if isinstance(stream, io.TextIOWrapper) and codecs.lookup(stream.encoding).name == "ascii":
            stream.reconfigure(encoding="utf-8")  # as click does where it finds ASCII, but it would write past this stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def isatty(self) -> bool:
        """Tell whether a terminal shows it."""
        return self._stream is not None and not self._stream.closed and self._stream.isatty()

    def _silence(self) -> None:
        """Send what is still buffered nowhere, or the interpreter would fail once more at its end."""
        if self._stream is None:
            return
        try:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
            self._stream.flush()
        except (OSError, ValueError):
            return


def _written(stream: TextIO, text: str) -> int:
    """Write text; a character that the stream's encoding lacks becomes "?"."""
    try:
        return stream.write(text)
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        stream.write(text.encode(encoding, "replace").decode(encoding))
        return len(text)


class Results(_Stream):
    """stdout: what cannot be written raises OutputFailed, output.closed or output.failed."""

    def write(self, text: str) -> int:
        """Write text; "" (by which click tells text streams from others) reaches nobody."""
        if text == "":
            return 0
        if self._stream is None:
            raise _closed()
        try:
            return _written(self._stream, text)
        except (OSError, ValueError) as e:
            raise self._failed(e) from None

    def flush(self) -> None:
        """Hand on what was written."""
        if self._stream is None:
            return
        try:
            self._stream.flush()
        except (OSError, ValueError) as e:
            raise self._failed(e) from None

    def _failed(self, error: OSError | ValueError) -> OutputFailed:
        self._silence()
        number = error.errno if isinstance(error, OSError) else errno.EBADF
        if number in (errno.EPIPE, errno.EBADF):
            return _closed()
        why = os.strerror(number) if number else str(error)
        return OutputFailed(
            "output.failed", f"the output cannot be written: {why}.", hint="Make room or name another place, and run it again"
        )


def _closed() -> OutputFailed:
    text = "whatever read the output has closed it, and the rest is lost."
    return OutputFailed("output.closed", text, hint="Run it again without a pipe that ends early")


class Messages(_Stream):
    """stderr: what cannot be written is lost, for the work is worth more than its messages."""

    def write(self, text: str) -> int:
        """Write text, or lose it."""
        if text == "" or self._stream is None:
            return len(text)
        try:
            return _written(self._stream, text)
        except (OSError, ValueError):
            self._silence()
            return len(text)

    def flush(self) -> None:
        """Hand on what was written, or lose it."""
        try:
            if self._stream is not None:
                self._stream.flush()
        except (OSError, ValueError):
            self._silence()


@contextmanager
def guarded() -> Iterator[None]:
    """Put both streams in place of the process's own, and take them away again."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = Results(before[0]), Messages(before[1])
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
