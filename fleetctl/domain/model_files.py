"""Configure, domain layer: the files of models: where they lie, what they are by SHA-256, how a host gets them. Never I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from fleetctl.domain.fleet import SecretRef

StoreKind = Literal["s3", "az", "hub", "path"]
STORE_KINDS: tuple[StoreKind, ...] = ("s3", "az", "hub", "path")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStore:
    """Where files of models lie; its name is what a nodes file calls it.

    Args:
        place: bucket (s3), container (az), repository such as "org/name" (hub), folder on the host, a share as a rule (path).
        endpoint: address instead of the cloud's own, "" for that; account: of az; region, profile: of s3.
        revision: of hub, a commit of 40 digits; secret: the account's key (az; None: your own identity signs) or the token (hub).
    """

    name: str
    kind: StoreKind
    place: str
    endpoint: str = ""
    account: str = ""
    region: str = ""
    profile: str = ""
    revision: str = ""
    secret: SecretRef | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """One file.

    Args:
        store: name of its store; key: its name there; path: below the host's folder of models; sha256: 64 digits.
    """

    store: str
    key: str
    path: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedFile:
    """How a host gets a file. The address and the headers are secrets and are never logged or kept.

    Args:
        url: to fetch it from, "" where it lies on the host; source: its path on the host, "" else; headers: that the fetch needs.
    """

    path: str
    sha256: str
    url: str = field(default="", repr=False)
    source: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
