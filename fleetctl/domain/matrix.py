"""Configure, domain layer: which driver, ROCm, kernel, OS, image and translation layer go together. Never I/O, never a guessed checksum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from fleetctl.domain.ids import HostId
from fleetctl.domain.pool import Vendor

Layer = Literal["native", "hip", "scale", "zluda"]
LAYERS: tuple[Layer, ...] = ("native", "hip", "scale", "zluda")

UNKNOWN = "unknown"
"""Stands where no source gives the value. Such a value is refused when a run needs it; the pins of a nodes file fill it."""

OF_THE_HOST = "of-the-host"
"""Stands where the value comes with the host's own distribution, such as Debian's archive keyring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """Key of a package repository.

    Args:
        fingerprint: 40 hexadecimal digits, UNKNOWN or OF_THE_HOST; expires: ISO date, "never", UNKNOWN or OF_THE_HOST.
    """

    name: str
    fingerprint: str
    expires: str
    source: str
    as_of: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageRepository:
    """An apt repository that packages of a release come from.

    Args:
        name: of its files on the host, a-z, 0-9 and '-'; uri: its address, OF_THE_HOST or UNKNOWN; key: name of the key that signs it.
    """

    name: str
    uri: str
    suite: str
    components: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """A file that a translation layer is installed from, by SHA-256."""

    name: str
    layer: Layer
    version: str
    url: str
    sha256: str
    source: str
    as_of: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One combination that is known to work; what is not a row is refused.

    Args:
        kernel_series: such as "6.8", or "any"; kernel_flavour: such as "azure".
        driver_packages, rocm_packages, kernel_packages: exact version per package, "newest" of the host's own archive, or UNKNOWN.
        repositories: all that the packages come from; AMD ships its driver and ROCm from two.
        image_digest: "sha256:" and 64 digits, "none" where the release offers no image, or UNKNOWN.
    """

    id: str
    vendor: Vendor
    os: str
    os_version: str
    kernel_series: str
    kernel_flavour: str
    driver: str
    rocm: str
    repositories: tuple[PackageRepository, ...]
    driver_packages: Mapping[str, str]
    rocm_packages: Mapping[str, str]
    kernel_packages: Mapping[str, str]
    layers: tuple[Layer, ...]
    image: str
    image_digest: str
    source: str
    as_of: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """All releases with the keys and downloads they name."""

    format_version: int
    as_of: str
    keys: tuple[SigningKey, ...]
    downloads: tuple[Download, ...]
    releases: tuple[Release, ...]

    def release(self, name: str) -> Release | None:
        """Return a release by id."""
        return next((r for r in self.releases if r.id == name), None)

    def key(self, name: str) -> SigningKey | None:
        """Return a key by name."""
        return next((k for k in self.keys if k.name == name), None)

    def download(self, layer: Layer) -> Download | None:
        """Return what a layer is installed from; None for layers that are packages."""
        return next((d for d in self.downloads if d.layer == layer), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a run asks the matrix for.

    Args:
        gpu_target: such as "gfx942"; accepted_licences: names of layers whose licence somebody has accepted on record.
        container: the model server runs from the release's image, so its digest is needed.
        mirror: address that replaces that of the release's only repository, "" for the repository itself; mirrors: by name of repository.
        vendor: whose accelerators the hosts have.
    """

    release: str
    layer: Layer
    gpu_target: str
    accepted_licences: tuple[str, ...] = ()
    container: bool = True
    mirror: str = ""
    vendor: Vendor = "amd"
    mirrors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What a node says of itself before any change.

    Args:
        kernel: release of the running kernel, such as "6.8.0-1017-azure".
    """

    host: HostId
    os: str
    os_version: str
    kernel: str
