"""Approve, ports layer: proving which person says yes. Never decides what they say."""

from __future__ import annotations

from typing import Protocol

from fleetctl.domain.units import Instant


class Signatures(Protocol):
    """Signs with the key of the person at this terminal, and checks what anybody signed against the allowed signers of the project."""

    def me(self) -> str:
        """Return the name that the allowed signers give this person's key.

        Raises:
            CredentialsMissing: approve.no_key, approve.unknown_key; ConfigInvalid: approve.signers; ToolMissing: tool.ssh_keygen.
        """
        ...

    def sign(self, text: bytes) -> str:
        """Return this person's signature of exactly these bytes, armoured.

        Raises:
            CredentialsMissing: approve.unsigned, and as `me`.
        """
        ...

    def refused(self, text: bytes, signature: str, name: str, at: Instant) -> str:
        """Return why a signature of `text` by `name` does not hold at a moment, "" where it does. Raises as `me`, but for the own key."""
        ...
