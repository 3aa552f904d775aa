"""Configure, pure layer: fills what the matrix leaves unknown from a user's pins. Never replaces a known value, never I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date

from fleetctl.domain.matrix import UNKNOWN, Download, Matrix, Release, SigningKey
from fleetctl.domain.people import Diagnostic

Pins = Mapping[str, Mapping[str, object]]
"""Value by field by "keys.<name>", "downloads.<name>" or "releases.<id>"; there are fields "packages.<name>" and "repositories.<name>"."""

_FORMS: Mapping[str, tuple[re.Pattern[str], str]] = {
    "sha256": (re.compile(r"[0-9a-f]{64}\Z"), "64 hexadecimal digits"),
    "image_digest": (re.compile(r"sha256:[0-9a-f]{64}\Z"), "sha256: and 64 hexadecimal digits"),
    "fingerprint": (re.compile(r"[0-9A-F]{40}\Z"), "40 hexadecimal digits in upper case"),
    "expires": (re.compile(r"(?:[0-9]{4}-[0-9]{2}-[0-9]{2}|never)\Z"), "a date such as 2027-08-31, or never"),
    "url": (re.compile(r"https://[!-~]{1,400}\Z"), "an https address"),
    "repository": (re.compile(r"https?://[!-~]{1,400}\Z"), "an address of a package repository"),
    "image": (re.compile(r"[a-z0-9][a-z0-9._/:-]{0,254}\Z"), "an image's name"),
}
_VERSION = (re.compile(r"[0-9A-Za-z][0-9A-Za-z.+:~-]{0,79}\Z"), "a package's version")
_PACKAGES = ("driver_packages", "rocm_packages", "kernel_packages")


def with_pins(matrix: Matrix, pins: Pins) -> tuple[Matrix, tuple[Diagnostic, ...]]:
    """Fill unknown values from pins and return the matrix with what is wrong with the pins."""
    faults: list[Diagnostic] = []
    left = dict(pins)

    def of_key(k: SigningKey) -> SigningKey:
        changes = _changes(f"keys.{k.name}", left, faults, {"fingerprint": k.fingerprint, "expires": k.expires}.get)
        return replace(k, fingerprint=changes.get("fingerprint", k.fingerprint), expires=changes.get("expires", k.expires))

    def of_download(d: Download) -> Download:
        changes = _changes(f"downloads.{d.name}", left, faults, {"url": d.url, "sha256": d.sha256}.get)
        return replace(d, url=changes.get("url", d.url), sha256=changes.get("sha256", d.sha256))

    pinned = replace(
        matrix,
        keys=tuple(of_key(k) for k in matrix.keys),
        downloads=tuple(of_download(d) for d in matrix.downloads),
        releases=tuple(_release(r, left, faults) for r in matrix.releases),
    )
    faults += [_fault(name, "is nothing of the matrix") for name in sorted(left)]
    return pinned, tuple(faults)


def _release(r: Release, left: dict[str, Mapping[str, object]], faults: list[Diagnostic]) -> Release:
    packages = {name: dict(getattr(r, name)) for name in _PACKAGES}
    known = {"image": r.image, "image_digest": r.image_digest} | {f"repositories.{p.name}": p.uri for p in r.repositories}
    known |= {f"packages.{name}": version for group in packages.values() for name, version in group.items()}
    changes = _changes(f"releases.{r.id}", left, faults, known.get)
    for field in [f for f in changes if f.startswith("packages.")]:
        name, version = field.removeprefix("packages."), changes.pop(field)
        for group in packages.values():
            if name in group:
                group[name] = version
    return replace(
        r,
        repositories=tuple(replace(p, uri=changes.get(f"repositories.{p.name}", p.uri)) for p in r.repositories),
        image=changes.get("image", r.image),
        image_digest=changes.get("image_digest", r.image_digest),
        driver_packages=packages["driver_packages"],
        rocm_packages=packages["rocm_packages"],
        kernel_packages=packages["kernel_packages"],
    )


def _changes(
    where: str, left: dict[str, Mapping[str, object]], faults: list[Diagnostic], known: Callable[[str], str | None]
) -> dict[str, str]:
    changes: dict[str, str] = {}
    for field, value in left.pop(where, {}).items():
        text = _wrong(field, value, known(field))
        if text:
            faults.append(_fault(f"{where}.{field}", text))
        elif isinstance(value, str):
            changes[field] = value
    return changes


def _wrong(field: str, value: object, known: str | None) -> str:
    if known is None:
        return "is nothing that can be pinned here"
    kind, _, name = field.partition(".")
    pattern, form = _VERSION if kind == "packages" else _FORMS["repository" if name else field]
    if not isinstance(value, str) or not pattern.match(value) or not _is_date(field, value):
        return f"{value!r} is not {form}"
    if known not in (UNKNOWN, value):
        return f"is known to be {known}; a pin never replaces a known value"
    return ""


def _is_date(field: str, value: str) -> bool:
    if field != "expires" or value == "never":
        return True
    try:
        date.fromisoformat(value)
    except ValueError:
        return False
    return True


def _fault(path: str, text: str) -> Diagnostic:
    return Diagnostic(severity="error", code="matrix.pin", path=path, text=text)
