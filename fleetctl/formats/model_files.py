"""Configure, formats layer: which model files a nodes file gives its nodes, and from where. Never a file without SHA-256."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from fleetctl.domain.fleet import SecretRef
from fleetctl.domain.ids import is_id
from fleetctl.domain.model_files import STORE_KINDS, ModelFile, ModelStore
from fleetctl.errors import ConfigInvalid
from fleetctl.formats.yaml_source import Document

MANIFEST_LIMIT = 4_194_304
"""Bytes; a line is about 100."""

_NEEDED: Mapping[str, tuple[str, ...]] = {
    "s3": ("bucket",),
    "az": ("account", "container"),
    "hub": ("repository", "revision"),
    "path": ("folder",),
}
_ALLOWED: Mapping[str, tuple[str, ...]] = {
    "s3": ("region", "profile", "endpoint"),
    "az": ("endpoint", "key"),
    "hub": ("endpoint", "token"),
    "path": (),
}
_FORMS: Mapping[str, re.Pattern[str]] = {
    "bucket": re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]\Z"),
    "account": re.compile(r"[a-z0-9]{3,24}\Z"),
    "container": re.compile(r"[a-z0-9][a-z0-9-]{2,62}\Z"),
    "repository": re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}\Z"),
    "revision": re.compile(r"[0-9a-f]{40}\Z"),
    "folder": re.compile(r"/[!-~]{1,400}\Z"),
    "region": re.compile(r"[a-z0-9-]{1,40}\Z"),
    "profile": re.compile(r"[A-Za-z0-9._-]{1,64}\Z"),
    "endpoint": re.compile(r"https?://[A-Za-z0-9.:\[\]/_-]{1,255}\Z"),
}
_LINE = re.compile(r"([0-9a-f]{64}) [ *]([^\x00-\x1f\\]{1,512})\Z")
_UNSAFE_PATH = re.compile(r"^/|(^|/)\.{0,2}(/|$)")

Faults = list[tuple[int, str]]


def model_mistakes(document: Document) -> Faults:
    """Return what is wrong with `stores` and `models` of a nodes file, by line."""
    stores, models = document.value.get("stores", {}), document.value.get("models", [])
    if not isinstance(stores, dict):
        return [(document.line(("stores",)), "stores is not a mapping of name to store")]
    if not isinstance(models, list):
        return [(document.line(("models",)), "models is not a list")]
    found: Faults = []
    for name, row in stores.items():
        line = document.line(("stores", name))
        found += [(line, f"store {name}: {text}") for text in _store_mistakes(name, row)]
    for n, row in enumerate(models):
        line = document.line(("models", n))
        found += [(line, f"model {n + 1}: {text}") for text in _model_mistakes(row, stores)]
    return found


def _store_mistakes(name: object, row: Any) -> list[str]:
    if not isinstance(name, str) or not is_id(name) or not isinstance(row, dict) or row.get("kind") not in STORE_KINDS:
        return [f"it needs a name of a-z, 0-9 and '-' and a kind: {', '.join(STORE_KINDS)}"]
    needed, allowed = _NEEDED[row["kind"]], _ALLOWED[row["kind"]]
    found = [f"{k} is missing" for k in needed if k not in row]
    found += [f"{k} is no key of kind {row['kind']}" for k in row if k not in (*needed, *allowed, "kind")]
    for key, form in _FORMS.items():
        if key in row and not (isinstance(row[key], str) and form.match(row[key])):
            found.append(f"{key} has not the form {form.pattern.removesuffix(chr(92) + 'Z')}")
    return found + [f"{k} is not {{env: NAME}} or {{file: PATH}}" for k in ("key", "token") if k in row and secret_of(row[k]) is None]


def _model_mistakes(row: Any, stores: Mapping[str, object]) -> list[str]:
    if not isinstance(row, dict) or not all(isinstance(v, str) for v in row.values()):
        return ["it is not a mapping of texts: store, manifest, folder, into"]
    found = [f"{k} is missing" for k in ("store", "manifest") if k not in row]
    found += [f"{k} is no key; known are folder, into, manifest, store" for k in row if k not in ("store", "manifest", "folder", "into")]
    found += [f"{k} leads outside" for k in ("folder", "into") if k in row and _UNSAFE_PATH.search(row[k])]
    return found + ([f"{row['store']} is no store of the file"] if "store" in row and row["store"] not in stores else [])


def secret_of(row: object) -> SecretRef | None:
    """Return the secret that {env: NAME} or {file: PATH} names, None where it is neither."""
    if isinstance(row, dict) and len(row) == 1:
        (kind, name), *_ = row.items()
        if kind in ("env", "file") and isinstance(name, str) and name and name.isprintable():
            return SecretRef(kind=cast(Any, kind), name=name)
    return None


def read_models(data: Mapping[str, Any], folder: Path) -> tuple[dict[str, ModelStore], tuple[ModelFile, ...]]:
    """Return stores and files of a nodes file that has no mistakes; manifests are what sha256sum writes.

    Raises:
        ConfigInvalid: config.models, a manifest that cannot be read or has a line of another form, or two files at one place.
    """
    stores = {name: _store(name, row) for name, row in data.get("stores", {}).items()}
    files: list[ModelFile] = []
    for row in data.get("models", []):
        files += _manifest(folder / row["manifest"], row)
    twice = (
        sorted({f.path for f in files if [g.path for g in files].count(f.path) > 1}) if len({f.path for f in files}) < len(files) else []
    )
    if twice:
        raise ConfigInvalid("config.models", f"two files would lie at {twice[0]!r}", hint="Give each model an `into` of its own")
    return stores, tuple(files)


def _store(name: str, row: Mapping[str, Any]) -> ModelStore:
    place = next(row[k] for k in ("bucket", "container", "repository", "folder") if k in row)
    secret = secret_of(row.get("key", row.get("token")))
    texts = {k: row.get(k, "") for k in ("endpoint", "account", "region", "profile", "revision")}
    return ModelStore(name=name, kind=row["kind"], place=place, secret=secret, **texts)


def _manifest(path: Path, row: Mapping[str, str]) -> list[ModelFile]:
    try:
        if path.stat().st_size > MANIFEST_LIMIT:
            raise ConfigInvalid("config.models", f"{path} has more than {MANIFEST_LIMIT} bytes")
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigInvalid("config.models", f"the manifest {path} cannot be read: {e}", hint="Make it: sha256sum *") from e
    files = []
    for n, line in enumerate(lines, 1):
        found = _LINE.match(line)
        name = found[2].removeprefix("./") if found else ""
        if found is None or _UNSAFE_PATH.search(name):
            text = f"{path}:{n}: this is no line of sha256sum with a path below the folder"
            raise ConfigInvalid("config.models", text, hint="Make it anew: sha256sum *")
        files.append(
            ModelFile(store=row["store"], key=_below(row.get("folder", ""), name), path=_below(row.get("into", ""), name), sha256=found[1])
        )
    if not files:
        raise ConfigInvalid("config.models", f"the manifest {path} names no file", hint="Make it: sha256sum *")
    return files


def _below(folder: str, name: str) -> str:
    return f"{folder.strip('/')}/{name}".lstrip("/")
