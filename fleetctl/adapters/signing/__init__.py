"""Approve, adapters layer: SSH signatures by ssh-keygen (-Y sign, -Y verify); who may sign is a file of the project. Needs no server.

Format and checks are OpenSSH's: ssh-keygen(1), "ALLOWED SIGNERS" and "KEY REVOCATION LISTS".
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from datetime import UTC
from pathlib import Path
from typing import NamedTuple

from fleetctl.domain.units import Instant
from fleetctl.errors import ConfigInvalid, CredentialsMissing, ToolMissing

NAMESPACE = "fleetctl-approve"
"""What a signature is for: one made for git or for a file is none of an approval."""
ALLOWED, REVOKED = "allowed_signers", "revoked_keys"
"""Files beside the fleet file: who may sign, and keys that count no more (public keys, or a key revocation list)."""
LONGEST_FILE = 1 << 20
LONGEST_SIGNATURE = 16_384
WAIT_S = 120.0
"""For a person who types a passphrase or touches a key."""
_LINE = re.compile(r'(\S+)\s+(?:((?:[^\s"]|"[^"]*")+)\s+)?((?:ssh|ecdsa|sk)-\S+)\s+([A-Za-z0-9+/]+=*)(?:\s.*)?')
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")
HOW_TO = "See: docs/how-to/two-people-with-ssh-keys.md"


class Signer(NamedTuple):
    """One line of the allowed signers: who, and the key (base64)."""

    name: str
    key: str


def read_signers(file: Path) -> tuple[Signer, ...]:
    """Return the allowed signers; each key is one person's.

    Raises:
        ConfigInvalid: approve.signers, with every line that cannot be used.
    """
    try:
        with file.open("rb") as f:
            text = f.read(LONGEST_FILE).decode()
    except (OSError, UnicodeDecodeError) as e:
        why = e.strerror if isinstance(e, OSError) else "is not text"
        raise ConfigInvalid("approve.signers", f"the allowed signers {file} cannot be read: {why}.", hint=HOW_TO) from e
    found: list[Signer] = []
    mistakes: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        fault = _take(line.strip(), found)
        if fault:
            mistakes.append(f"{file}:{number}: {fault}")
    if mistakes or not found:
        what = "cannot be used" if mistakes else "name nobody"
        raise ConfigInvalid("approve.signers", f"the allowed signers {file} {what}.", hint=HOW_TO, details=tuple(mistakes[:50]))
    return tuple(found)


def _take(line: str, found: list[Signer]) -> str:
    """Add one line to what was found; return what is wrong with it, "" where nothing is."""
    match = _LINE.fullmatch(line)
    if match is None:
        return "not NAME [OPTIONS] KEYTYPE KEY"
    name, options, _, key = match.groups()
    if not _NAME.fullmatch(name):
        return "the name is not one person's: use letters, digits and . _ @ + -, no list and no pattern"
    if "cert-authority" in (options or "").lower():
        return "a certificate authority signs for anybody; name each person's own key"
    other = next((s.name for s in found if s.key == key and s.name != name), None)
    if other is not None:
        return f"the same key is {other}'s already; one key is one person's"
    found.append(Signer(name, key))
    return ""


class SshSignatures:
    """Signatures of one project.

    Args:
        folder: of the fleet file, where the allowed signers lie; key: private key file, or a public one whose private part an agent holds.
    """

    def __init__(self, folder: Path, key: Path) -> None:
        self._folder, self._key = folder, key

    def me(self) -> str:
        """Return the name that the allowed signers give this person's key."""
        signers = read_signers(self._folder / ALLOWED)
        public = self._public()
        name = next((s.name for s in signers if s.key == public), None)
        if name is None:
            text = f"the key {self._key} is none of the allowed signers."
            hint = f"Have somebody else add its line to {self._folder / ALLOWED}, or set another: signing_key in fleetctl.toml"
            raise CredentialsMissing("approve.unknown_key", text, hint=hint)
        return name

    def _public(self) -> str:
        """Return this person's public key, base64."""
        beside = self._key if self._key.suffix == ".pub" else self._key.with_name(self._key.name + ".pub")
        if not self._key.exists() and not beside.exists():
            hint = f"Make one: ssh-keygen -t ed25519 -f {self._key}; or set another: signing_key in fleetctl.toml"
            raise CredentialsMissing("approve.no_key", f"there is no SSH key {self._key} to sign with.", hint=hint)
        if beside.exists():
            words = beside.read_text("utf-8", "replace").split()
        else:
            words = self._run(("-y", "-f", str(self._key)), b"").stdout.decode("utf-8", "replace").split()
        return words[1] if len(words) > 1 else ""

    def sign(self, text: bytes) -> str:
        """Return this person's signature of exactly these bytes."""
        self.me()
        done = self._run(("-Y", "sign", "-q", "-n", NAMESPACE, "-f", str(self._key)), text)
        signature = done.stdout.decode("ascii", "replace")
        if done.returncode or not signature.startswith("-----BEGIN SSH SIGNATURE-----"):
            hint = "Type its passphrase at a terminal, or load it: ssh-add; then run the same command again"
            raise CredentialsMissing("approve.unsigned", f"the key {self._key} did not sign: {_said(done)}.", hint=hint)
        return signature

    def refused(self, text: bytes, signature: str, name: str, at: Instant) -> str:
        """Return why a signature does not hold at a moment, "" where it does."""
        if name not in {s.name for s in read_signers(self._folder / ALLOWED)}:
            return f"{name[:64]} is none of the allowed signers"
        if not signature or len(signature) > LONGEST_SIGNATURE:
            return "it is not signed" if not signature else "it is no signature of a person"
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "signature"
            file.write_text(signature)
            when = f"verify-time={at.astimezone(UTC):%Y%m%d%H%M%SZ}"
            words = ["-Y", "verify", "-f", str(self._folder / ALLOWED), "-I", name, "-n", NAMESPACE, "-s", str(file), "-O", when]
            done = self._run(words, text)
            if done.returncode == 0 and (self._folder / REVOKED).exists():
                done = self._run((*words, "-r", str(self._folder / REVOKED)), text)
                return "" if done.returncode == 0 else f"its key is revoked ({REVOKED}), or that file cannot be read"
        return "" if done.returncode == 0 else _said(done)

    def _run(self, words: Sequence[str], text: bytes) -> subprocess.CompletedProcess[bytes]:
        tool = shutil.which("ssh-keygen")
        if tool is None:
            raise ToolMissing("tool.ssh_keygen", "there is no ssh-keygen on PATH.", hint="Run: apt-get install openssh-client")
        try:
            return subprocess.run([tool, *words], input=text, capture_output=True, check=False, timeout=WAIT_S)
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess([tool, *words], 1, b"", f"no answer in {WAIT_S:g} s".encode())


_CAUSES = (
    ("expired", "its key has expired"),
    ("not yet valid", "its key is not valid yet"),
    ("namespace", "it was signed for something else than approving (another namespace)"),
    ("incorrect signature", "it was signed for another text, or altered"),
    ("no principal", "its key is none of the allowed signers of that name"),
    ("not permitted", "its key may not sign for this"),
)


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    """Return what ssh-keygen said, in one printable line."""
    said = (done.stderr + b"\n" + done.stdout).decode("utf-8", "replace")
    for word, cause in _CAUSES:
        if word in said.lower():
            return cause
    words = " ".join("".join(c if c.isprintable() else " " for c in said).split())
    return words[:200].rstrip(".") or f"ssh-keygen ended with {done.returncode}"
