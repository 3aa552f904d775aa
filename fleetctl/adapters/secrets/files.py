"""Every step, adapters layer: secrets from variables and 0600 files, read at their use. Never logged, never kept."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

from fleetctl.domain.fleet import SecretRef
from fleetctl.errors import CredentialsMissing

MOST_BYTES = 65_536


class FileSecrets:
    """`Secrets` from the environment and from files.

    Args:
        folder: where relative file names begin.
        environment: the process's own where None.
    """

    def __init__(self, folder: str | os.PathLike[str] = ".", environment: Mapping[str, str] | None = None) -> None:
        self._folder = os.fspath(folder)
        self._environment = os.environ if environment is None else environment

    def resolve(self, ref: SecretRef) -> str:
        """Return the secret's text, without the line end that editors add; never log it.

        Raises:
            CredentialsMissing: credentials.missing, credentials.open_file (others may read it, or it is not ours).
        """
        if ref.kind == "env":
            text = self._environment.get(ref.name, "")
            if not text:
                raise CredentialsMissing("credentials.missing", f"the variable {ref.name} is not set.", hint=f"Run: export {ref.name}=...")
            return text
        return self._from_file(os.path.join(self._folder, os.path.expanduser(ref.name)))

    def _from_file(self, path: str) -> str:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as e:
            text = f"the secret file {path} cannot be read: {e.strerror}."
            raise CredentialsMissing("credentials.missing", text, hint="Run: fleetctl doctor") from e
        try:
            found = os.fstat(fd)  # of what is open, so that no other file can be put in its place after the check
            if not stat.S_ISREG(found.st_mode):
                raise CredentialsMissing("credentials.missing", f"{path} is no regular file.", hint="Run: fleetctl doctor")
            if found.st_mode & 0o077 or found.st_uid != os.geteuid():
                text = f"the secret file {path} can be used by others (mode {stat.S_IMODE(found.st_mode):04o}, owner {found.st_uid})."
                raise CredentialsMissing("credentials.open_file", text, hint=f"Run: chmod 600 {path}")
            data = os.read(fd, MOST_BYTES + 1)
        finally:
            os.close(fd)
        try:
            secret = data.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            secret = ""
        if not secret or len(data) > MOST_BYTES:
            raise CredentialsMissing(
                "credentials.missing", f"{path} holds no text of at most {MOST_BYTES} bytes.", hint="Run: fleetctl doctor"
            )
        return secret
