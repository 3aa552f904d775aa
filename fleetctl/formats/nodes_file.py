"""Configure, formats layer: the file that says which hosts become which nodes. Never a default release."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from fleetctl.domain.ids import HostId, PoolId, is_id
from fleetctl.domain.matrix import LAYERS, Layer, Wanted
from fleetctl.domain.model_files import ModelFile, ModelStore
from fleetctl.domain.pool import Host, Vendor
from fleetctl.errors import ConfigInvalid
from fleetctl.formats.model_files import model_mistakes, read_models
from fleetctl.formats.yaml_source import Document, read_yaml

LIMIT_BYTES = 4_194_304
_VARIABLE = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")
_TEXTS = ("pool", "vendor", "release", "layer", "gpu_target", "matrix", "known_hosts", "identity")
_MAPS = ("pins", "keys", "hosts", "roles")
_KNOWN = frozenset((*_TEXTS, *_MAPS, "container", "accepted_licences", "stores", "models", "mirror"))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesFile:
    """What a nodes file says.

    Args:
        roles: variables of every host; by_host: of one host; keys: armoured key by repository.
        matrix: path of a matrix that replaces the shipped one, None for the shipped one.
        stores: where files of models lie, by name; models: the files.
    """

    pool: PoolId
    vendor: Vendor
    wanted: Wanted
    hosts: tuple[Host, ...]
    roles: Mapping[str, object]
    by_host: Mapping[str, Mapping[str, object]]
    pins: Mapping[str, Mapping[str, object]]
    keys: Mapping[str, str]
    matrix: Path | None
    known_hosts: Path | None
    identity: Path | None
    stores: Mapping[str, ModelStore] = field(default_factory=dict)
    models: tuple[ModelFile, ...] = ()


def read_nodes(path: Path) -> NodesFile:
    """Read a nodes file; paths in it are relative to its folder.

    Raises:
        ConfigInvalid: config.nodes, with every mistake as `file:line: text`.
    """
    try:
        if path.stat().st_size > LIMIT_BYTES:
            raise ConfigInvalid("config.nodes", f"{path} has more than {LIMIT_BYTES} bytes")
        document = read_yaml(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigInvalid("config.nodes", f"{path} cannot be read: {e}", hint="Give another: --nodes FILE") from e
    faults = [f"{path}:{m.line}: {m.text}" for m in document.mistakes]
    faults += [f"{path}:{line}: {text}" for line, text in _mistakes(document)] if not faults else []
    if faults:
        raise ConfigInvalid("config.nodes", f"{path} has {len(faults)} mistakes", details=tuple(faults))
    return _convert(document.value, path.parent)


def _mistakes(document: Document) -> list[tuple[int, str]]:
    data = document.value
    if not isinstance(data, dict):
        return [(1, "the file is not a mapping")]
    found = [(document.line((k,)), f"{k} is no key; known are {', '.join(sorted(_KNOWN))}") for k in data if k not in _KNOWN]
    found += [(1, f"{k} is missing") for k in ("pool", "release", "hosts") if k not in data]
    found += [(document.line((k,)), f"{k} is not a text") for k in _TEXTS if k in data and not isinstance(data[k], str)]
    found += [(document.line((k,)), f"{k} is not a mapping") for k in _MAPS if k in data and not isinstance(data[k], dict)]
    if found:
        return found
    if not is_id(data["pool"]):
        found.append((document.line(("pool",)), "pool is no name (a-z, 0-9 and '-')"))
    if data.get("vendor", "amd") not in ("amd", "nvidia"):
        found.append((document.line(("vendor",)), "vendor is neither amd nor nvidia"))
    if data.get("layer", "native") not in LAYERS:
        found.append((document.line(("layer",)), f"layer is none of {', '.join(LAYERS)}"))
    if not isinstance(data.get("container", True), bool):
        found.append((document.line(("container",)), "container is neither true nor false"))
    mirror = data.get("mirror", "")
    if not isinstance(mirror, str) and not (isinstance(mirror, dict) and all(isinstance(v, str) for v in mirror.values())):
        found.append((document.line(("mirror",)), "mirror is neither an address nor a mapping of repository to address"))
    licences = data.get("accepted_licences", [])
    if not isinstance(licences, list) or not all(isinstance(x, str) for x in licences):
        found.append((document.line(("accepted_licences",)), "accepted_licences is not a list of names"))
    return found + _host_mistakes(document) + _variable_mistakes(document, ("roles",), data.get("roles", {})) + model_mistakes(document)


def _host_mistakes(document: Document) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for name, row in document.value["hosts"].items():
        place = ("hosts", name)
        if not is_id(name):
            found.append((document.line(place), f"{name!r} is no name of a host"))
        if not isinstance(row, dict) or not isinstance(row.get("address"), str) or not isinstance(row.get("user", ""), str):
            found.append((document.line(place), f"host {name} needs address, and may have user and roles"))
        elif extra := sorted(set(row) - {"address", "user", "roles"}):
            found.append((document.line((*place, extra[0])), f"{extra[0]} is no key of a host"))
        else:
            found += _variable_mistakes(document, (*place, "roles"), row.get("roles", {}))
    for name, row in document.value.get("pins", {}).items():
        if not isinstance(row, dict):
            found.append((document.line(("pins", name)), f"pins.{name} is not a mapping of field to value"))
    for name, file in document.value.get("keys", {}).items():
        if not isinstance(file, str):
            found.append((document.line(("keys", name)), f"keys.{name} is not the path of a file"))
    return found


def _variable_mistakes(document: Document, place: tuple[str, ...], data: object) -> list[tuple[int, str]]:
    if not isinstance(data, dict):
        return [(document.line(place), f"{'.'.join(place)} is not a mapping")]
    wrong = [k for k in data if not _VARIABLE.match(k) or k.startswith("ansible_")]
    return [(document.line((*place, k)), f"{k!r} is no variable of a role") for k in wrong]


def _convert(data: Mapping[str, object], folder: Path) -> NodesFile:
    pool = PoolId(cast(str, data["pool"]))
    rows = cast("dict[str, dict[str, object]]", data["hosts"])
    hosts = tuple(
        Host(id=HostId(name), pool=pool, address=cast(str, row["address"]), user=cast(str, row.get("user", "")))
        for name, row in rows.items()
    )
    mirror = data.get("mirror", "")
    wanted = Wanted(
        release=cast(str, data["release"]),
        layer=cast(Layer, data.get("layer", "native")),
        gpu_target=cast(str, data.get("gpu_target", "gfx942")),
        accepted_licences=tuple(cast("list[str]", data.get("accepted_licences", []))),
        container=cast(bool, data.get("container", True)),
        mirror=mirror if isinstance(mirror, str) else "",
        mirrors=cast("dict[str, str]", mirror) if isinstance(mirror, dict) else {},
        vendor=cast(Vendor, data.get("vendor", "amd")),
    )
    stores, models = read_models(data, folder)
    keys = {name: _text(folder / file, name) for name, file in cast("dict[str, str]", data.get("keys", {})).items()}
    return NodesFile(
        pool=pool,
        vendor=cast(Vendor, data.get("vendor", "amd")),
        wanted=wanted,
        hosts=hosts,
        roles=cast("dict[str, object]", data.get("roles", {})),
        by_host={name: cast("dict[str, object]", row.get("roles", {})) for name, row in rows.items()},
        pins=cast("dict[str, dict[str, object]]", data.get("pins", {})),
        keys=keys,
        matrix=_path(folder, data.get("matrix")),
        known_hosts=_path(folder, data.get("known_hosts")),
        identity=_path(folder, data.get("identity")),
        stores=stores,
        models=models,
    )


def _path(folder: Path, name: object) -> Path | None:
    return (folder / name).absolute() if isinstance(name, str) and name else None


def _text(path: Path, name: str) -> str:
    try:
        return path.read_text("ascii")
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigInvalid("config.nodes", f"the key of {name}, {path}, cannot be read: {e}", hint="Save it in armoured form") from e
