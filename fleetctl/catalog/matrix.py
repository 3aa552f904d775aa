"""Configure, catalogue layer: reads the version matrix into domain rows. Never a network call, never a guessed checksum."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from functools import cache
from importlib.resources import files
from typing import cast

from fleetctl.domain.matrix import LAYERS, OF_THE_HOST, UNKNOWN, Download, Layer, Matrix, PackageRepository, Release, SigningKey
from fleetctl.domain.pool import Vendor
from fleetctl.errors import ConfigInvalid

FORMAT_VERSION = 1
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_SHAPES = {
    "fingerprint": re.compile(rf"(?:[0-9A-F]{{40}}|{UNKNOWN}|{OF_THE_HOST})\Z"),
    "sha256": re.compile(rf"(?:[0-9a-f]{{64}}|{UNKNOWN})\Z"),
    "image_digest": re.compile(rf"(?:sha256:[0-9a-f]{{64}}|none|{UNKNOWN})\Z"),
    "expires": re.compile(rf"(?:[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}|never|{UNKNOWN}|{OF_THE_HOST})\Z"),
    "as_of": _DATE,
}
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}\Z")
_TEXTS = re.compile(r"[^\x00-\x1f]{0,400}\Z")


@cache
def load_matrix() -> Matrix:
    """Return the shipped matrix.

    Raises:
        ConfigInvalid: config.matrix, with every bad row.
    """
    return parse_matrix((files("fleetctl.catalog") / "data" / "matrix.json").read_text("utf-8"), "matrix.json")


def parse_matrix(text: str, name: str) -> Matrix:
    """Build a matrix from JSON.

    Raises:
        ConfigInvalid: config.matrix: not JSON, another format version, a missing, unknown or misshapen field, a name twice.
    """
    faults: list[str] = []
    try:
        data = json.loads(text)
    except ValueError as e:
        raise ConfigInvalid("config.matrix", f"{name} is not JSON: {e}") from e
    if not isinstance(data, dict) or data.get("format_version") != FORMAT_VERSION:
        raise ConfigInvalid("config.matrix", f"{name} is not of format version {FORMAT_VERSION}")
    keys = [SigningKey(**row) for row in _rows(data, "keys", SigningKey, faults)]  # type: ignore[arg-type]
    downloads = [Download(**row) for row in _rows(data, "downloads", Download, faults)]  # type: ignore[arg-type]
    releases = [_release(row) for row in _rows(data, "releases", Release, faults)]
    known = {k.name for k in keys}
    faults += [f"releases: {r.id} names the key {p.key!r}, which is no row" for r in releases for p in r.repositories if p.key not in known]
    if faults:
        raise ConfigInvalid("config.matrix", f"{name} has {len(faults)} mistakes", details=tuple(faults))
    return Matrix(
        format_version=FORMAT_VERSION,
        as_of=str(data.get("as_of", "")),
        keys=tuple(keys),
        downloads=tuple(downloads),
        releases=tuple(releases),
    )


def _release(row: dict[str, object]) -> Release:
    repositories = tuple(PackageRepository(**r) for r in cast("list[dict[str, str]]", row["repositories"]))
    layers = tuple(cast("list[Layer]", row["layers"]))
    return Release(
        **(row | {"repositories": repositories, "layers": layers, "vendor": cast(Vendor, row["vendor"])})  # type: ignore[arg-type]
    )


_ONE = {"repository": "uri", "suite": "suite", "components": "components", "key": "key"}


def _with_repositories(row: dict[str, object]) -> dict[str, object]:
    """Return a release's row with a list of repositories, also where it names one only, as rows did before there was a list."""
    if "repositories" in row or not set(_ONE) <= set(row):
        return row
    one = {"name": row["key"], **{field: row[old] for old, field in _ONE.items()}}
    return {k: v for k, v in row.items() if k not in _ONE} | {"repositories": [one]}


def _rows(data: dict[str, object], kind: str, of: type, faults: list[str]) -> list[dict[str, object]]:
    found = data.get(kind)
    if not isinstance(found, list):
        faults.append(f"{kind} is not a list")
        return []
    names = {f.name for f in fields(of)}
    good: list[dict[str, object]] = []
    seen: set[object] = set()
    for n, given in enumerate(found):
        row = _with_repositories(given) if of is Release and isinstance(given, dict) else given
        wrong = [f"{kind}[{n}] is not a mapping"] if not isinstance(row, dict) else _wrong(row, names, f"{kind}[{n}]")
        if not wrong:
            own = row.get("id", row.get("name"))
            wrong = [f"{kind}[{n}]: {own!r} is there twice"] if own in seen else []
            seen.add(own)
            good += [] if wrong else [row]
        faults += wrong
    return good


def _wrong(row: dict[str, object], names: set[str], where: str) -> list[str]:
    wrong = [f"{where}: {name} is missing" for name in sorted(names - set(row))]
    wrong += [f"{where}: {name} is no field" for name in sorted(set(row) - names)]
    for name in sorted(names & set(row)):
        value = row[name]
        if name.endswith("_packages"):
            ok = isinstance(value, dict) and all(isinstance(v, str) and v and _TEXTS.match(v) for v in value.values())
        elif name == "repositories":
            ok = isinstance(value, list) and all(_is_repository(r) for r in value) and len({r["name"] for r in value}) == len(value)
        elif name == "layers":
            ok = isinstance(value, list) and all(v in LAYERS for v in value)
        elif name == "vendor":
            ok = value in ("amd", "nvidia")
        else:
            ok = isinstance(value, str) and bool(_SHAPES.get(name, _TEXTS).match(value)) and (bool(value) or name == "kernel_flavour")
        wrong += [] if ok else [f"{where}: {name} is {value!r}, which it cannot be"]
    return wrong


def _is_repository(row: object) -> bool:
    if not isinstance(row, dict) or set(row) != {f.name for f in fields(PackageRepository)}:
        return False
    flat = isinstance(row["suite"], str) and row["suite"].endswith("/")  # it has no components
    may_lack = {"components"} if flat else set()
    return all(isinstance(v, str) and (v or k in may_lack) and _TEXTS.match(v) for k, v in row.items()) and bool(_NAME.match(row["name"]))
