"""Coming home, adapters layer: ways home and marks as files with an HMAC under a key of ours. Never traffic, never the store.

A file is one line: {"hmac":"<64 hex>","value":<canonical JSON>}. The HMAC covers every byte of the value, all else is fixed,
so one changed byte anywhere is refused. The cell's name is in the value: one cell's file put in another's place is refused too.
An older file of the same cell put back is not noticed; its `made_at` tells.
Domain values are imported where they are used: going home must start fast.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import os
import secrets
import stat
from typing import TYPE_CHECKING, TypeVar

from fleetctl.errors import CredentialsMissing, UnsafeFallback

if TYPE_CHECKING:
    from fleetctl.domain.home import WayHome
    from fleetctl.domain.ids import CellId, Token
    from fleetctl.domain.people import Actor
    from fleetctl.domain.units import Instant
    from fleetctl.ports.home import Mark

T = TypeVar("T")
KEY_BYTES = 32
MOST_BYTES = 1 << 20
"""A way home is a few kB; a file over 1 MiB is none."""
_HEAD, _MIDDLE, _TAIL = b'{"hmac":"', b'","value":', b"}\n"
_MARK = ".returned"


def make_key(key_file: str | os.PathLike[str]) -> bool:
    """Make the key (0600, 32 random bytes as hex) and tell whether it was made now; one that is there stays.

    Raises:
        UnsafeFallback: fallback.unwritable.
    """
    path = os.path.abspath(key_file)
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        if os.path.exists(path):
            return False
        _write_whole(path, secrets.token_hex(KEY_BYTES).encode() + b"\n", replace=False)
    except FileExistsError:
        return False
    except OSError as e:
        raise _unwritable(path, e) from e
    return True


class WayHomeFiles:
    """`WaysHome` in a folder: `<cell>.json` and, after a return without the store, `<cell>.returned.json`.

    Args:
        folder: made (0700) at the first write.
        key_file: made by `make_key`; must be 0600 and ours.
    """

    def __init__(self, folder: str | os.PathLike[str], key_file: str | os.PathLike[str]) -> None:
        self._folder = os.path.abspath(folder)
        self._key_file = os.path.abspath(key_file)

    def write(self, way: WayHome) -> None:
        """Replace the cell's file in one step.

        Raises:
            UnsafeFallback: fallback.unwritable; CredentialsMissing: the key.
        """
        self._save(self._path(way.cell), way)

    def read(self, c: CellId) -> WayHome:
        """Return the cell's way home.

        Raises:
            UnsafeFallback: fallback.no_way_home, fallback.tampered; CredentialsMissing: the key.
        """
        from fleetctl.domain.home import WayHome

        way = self._load(self._path(c), WayHome)
        if way.cell != c:
            raise _tampered(self._path(c), f"it is the way home of {way.cell}")
        return way

    def read_all(self) -> tuple[WayHome, ...]:
        """Return every way home, by cell; one that is refused refuses all.

        Raises:
            UnsafeFallback: fallback.tampered; CredentialsMissing: the key.
        """
        return tuple(self.read(c) for c in self.cells())

    def cells(self) -> tuple[CellId, ...]:
        """Name the cells that have a file, whether it holds or not."""
        return self._named(".json")

    def mark(self, cell: CellId, token: Token, at: Instant, actor: Actor) -> Mark:
        """Note a return without the store; of two the one with the higher token stays.

        Raises:
            UnsafeFallback: fallback.unwritable; CredentialsMissing: the key.
        """
        from fleetctl.ports.home import Mark

        path, new = self._path(cell, _MARK), Mark(cell=cell, token=token, at=at, actor=actor)
        try:
            old = self._load(path, Mark)
        except UnsafeFallback:  # none, or none that holds
            old = None
        if old is not None and old.token > token:
            return old
        self._save(path, new)
        return new

    def marked(self) -> tuple[CellId, ...]:
        """Name the cells that have a mark, whether it holds or not."""
        return self._named(_MARK + ".json")

    def read_mark(self, c: CellId) -> Mark:
        """Return the cell's mark.

        Raises:
            UnsafeFallback: fallback.no_way_home, fallback.tampered; CredentialsMissing: the key.
        """
        from fleetctl.ports.home import Mark

        mark = self._load(self._path(c, _MARK), Mark)
        if mark.cell != c:
            raise _tampered(self._path(c, _MARK), f"it is the mark of {mark.cell}")
        return mark

    def clear_mark(self, c: CellId) -> None:
        """Forget a mark; idempotent.

        Raises:
            UnsafeFallback: fallback.unwritable.
        """
        path = self._path(c, _MARK)
        try:
            os.unlink(path)
            _sync_folder(self._folder)
        except FileNotFoundError:
            return
        except OSError as e:
            raise _unwritable(path, e) from e

    def _path(self, c: str, mark: str = "") -> str:
        from fleetctl.domain.ids import require_id

        return os.path.join(self._folder, require_id(c) + mark + ".json")

    def _named(self, end: str) -> tuple[CellId, ...]:
        from fleetctl.domain.ids import CellId, is_id

        try:
            names = sorted(os.listdir(self._folder))
        except FileNotFoundError:
            return ()
        except OSError as e:
            raise _unwritable(self._folder, e) from e
        return tuple(CellId(n.removesuffix(end)) for n in names if n.endswith(end) and is_id(n.removesuffix(end)))

    def _save(self, path: str, value: object) -> None:
        from fleetctl.domain.canonical import canonical

        body = canonical(value)
        line = _HEAD + self._sign(body) + _MIDDLE + body + _TAIL
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            _write_whole(path, line, replace=True)
        except OSError as e:
            raise _unwritable(path, e) from e

    def _load(self, path: str, kind: type[T]) -> T:
        from fleetctl.domain.canonical import decode

        try:
            with open(path, "rb") as f:
                line = f.read(MOST_BYTES + 1)
        except FileNotFoundError as e:
            text = f"there is no {os.path.basename(path)} in {self._folder}."
            raise UnsafeFallback("fallback.no_way_home", text, hint="Run: fleetctl plan") from e
        except OSError as e:
            raise UnsafeFallback("fallback.no_way_home", f"{path} cannot be read: {e.strerror}.", hint="Run: fleetctl doctor") from e
        at = len(_HEAD) + 64
        start = at + len(_MIDDLE)
        if line[: len(_HEAD)] != _HEAD or line[at:start] != _MIDDLE or line[-len(_TAIL) :] != _TAIL or len(line) > MOST_BYTES:
            raise _tampered(path, "it is not such a file")
        body = line[start : -len(_TAIL)]
        if not hmac.compare_digest(line[len(_HEAD) : at], self._sign(body)):
            raise _tampered(path, "its HMAC does not fit the key")
        try:
            return decode(kind, body)
        except (ValueError, TypeError) as e:
            raise _tampered(path, f"it cannot be read by this release: {e}") from e

    def _sign(self, body: bytes) -> bytes:
        return hmac.new(self._key(), body, hashlib.sha256).hexdigest().encode()

    def _key(self) -> bytes:
        try:
            fd = os.open(self._key_file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as e:
            text = f"the key {self._key_file} cannot be read: {e.strerror}."
            raise CredentialsMissing("credentials.missing", text, hint="Run: fleetctl init") from e
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or found.st_mode & 0o077 or found.st_uid != os.geteuid():
                text = f"the key {self._key_file} can be used by others (mode {stat.S_IMODE(found.st_mode):04o}, owner {found.st_uid})."
                raise CredentialsMissing("credentials.open_file", text, hint=f"Run: chmod 600 {self._key_file}")
            text_of_key = os.read(fd, 4096).strip()
        finally:
            os.close(fd)
        try:
            key = bytes.fromhex(text_of_key.decode("ascii"))
        except ValueError:
            key = b""
        if len(key) < KEY_BYTES:
            raise CredentialsMissing(
                "credentials.missing", f"{self._key_file} holds no key of {KEY_BYTES} bytes.", hint="Run: fleetctl init"
            )
        return key


def _write_whole(path: str, data: bytes, *, replace: bool) -> None:
    """Write a 0600 file so that at every moment there is the old one, or the new one, whole."""
    temporary = f"{path}.{os.getpid()}.{secrets.token_hex(4)}.new"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(fd)
        if replace:
            os.replace(temporary, path)
        else:
            os.link(temporary, path)
            os.unlink(temporary)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    _sync_folder(os.path.dirname(path))


def _sync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _tampered(path: str, why: str) -> UnsafeFallback:
    return UnsafeFallback(
        "fallback.tampered", f"{path} is not what was written: {why}.", hint="Run: fleetctl plan (or go home by the runbook)"
    )


def _unwritable(path: str, e: OSError) -> UnsafeFallback:
    why = "the disk is full" if e.errno in (errno.ENOSPC, errno.EDQUOT) else e.strerror
    return UnsafeFallback("fallback.unwritable", f"{path} cannot be written: {why}.", hint="Run: fleetctl doctor")
