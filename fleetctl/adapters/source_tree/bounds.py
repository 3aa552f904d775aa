"""Assess, adapter layer: how much is read at most, and a counter of what was. Never reads by itself."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Limits of one assessment; sizes in bytes.

    Args:
        ratio: decompressed to compressed, judged once `ratio_from` bytes came out. Source: layers of public images stay under 20;
            deflate can reach 1,032.
        zip_directory: of a zip archive's list of members, which is held in memory: about 300,000 of them.
        spool: of one member of an archive kept in memory at a time; unpacked_image: of an image archive that is compressed as a whole, on
            disk while it is read, and never more than half of what is free.
    """

    files: int = 500_000
    depth: int = 64
    text: int = 8 * MIB
    json: int = 1 * MIB
    header: int = 16 * MIB
    spool: int = 32 * MIB
    members: int = 1_000_000
    archive: int = 64 * 1024 * MIB
    unpacked_image: int = 32 * 1024 * MIB
    ratio: int = 100
    ratio_from: int = 64 * MIB
    nesting: int = 3
    zip_directory: int = 32 * MIB


@dataclass(slots=True)
class Spent:
    """What has been read so far."""

    files: int = 0
    members: int = 0
    unpacked: int = 0


class OverBound(Exception):
    """A bound was reached or an archive lies; the text says which."""
