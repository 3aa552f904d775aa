"""Evidence, formats layer: lines that are encrypted and bound to their header (AES-256-GCM). Never a file, never where a key comes from.

    {"n":<nonce, 12 bytes>,"d":<text, encrypted>}        both base64

Whoever changes the header makes every line unreadable, so terms cannot be changed after the fact.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from binascii import Error as BadBase64
from hashlib import sha256

CIPHER = "AES-256-GCM"
KEY_BYTES = 32
NONCE_BYTES = 12


def key_of(text: str) -> bytes:
    """Return the key that a secret's text holds: 32 bytes in base64, as `openssl rand -base64 32` makes them.

    Raises:
        ValueError: it holds none; the text is not told.
    """
    try:
        key = b64decode(text.strip(), validate=True)
    except (BadBase64, ValueError):
        key = b""
    if len(key) != KEY_BYTES or len(set(key)) < KEY_BYTES // 4:
        raise ValueError("the key is not 32 random bytes in base64 (make one: umask 077; openssl rand -base64 32 > FILE)")
    return key


def key_id(key: bytes) -> str:
    """Return the key's name, by which the right one is told from another; it tells nothing of the key."""
    return sha256(b"fleetctl kept requests\n" + key).hexdigest()[:16]


class Seal:
    """Encrypts and reads the lines under one header.

    Args:
        key: 32 bytes; header: the first line as it stands in the file, without its end.
    """

    def __init__(self, key: bytes, header: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._cipher, self._bound = AESGCM(key), sha256(header).digest()

    def line(self, text: str, nonce: bytes) -> str:
        """Return a text as a line. `nonce`: 12 random bytes, never used before with this key."""
        sealed = self._cipher.encrypt(nonce, text.encode(), self._bound)
        return json.dumps({"n": b64encode(nonce).decode(), "d": b64encode(sealed).decode()}, separators=(",", ":"))

    def text(self, line: bytes) -> str:
        """Return what a line holds.

        Raises:
            ValueError: it is cut, changed, of another header or key, or not encrypted at all.
        """
        from cryptography.exceptions import InvalidTag

        try:
            row = json.loads(line)
            nonce, sealed = (b64decode(row[k], validate=True) for k in ("n", "d"))
            return self._cipher.decrypt(nonce, sealed, self._bound).decode()
        except (ValueError, KeyError, TypeError, RecursionError, InvalidTag) as e:
            raise ValueError("a line cannot be decrypted") from e
