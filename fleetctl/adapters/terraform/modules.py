"""Provision, adapters layer: what a pool's copy of a stack holds beside it: modules, the lifted guard, the backend. Never runs anything.

A stack names its modules as ../../modules/NAME; a pool's copy has them inside, as ./modules/NAME, so that pools share nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fleetctl.domain.ids import PoolId
from fleetctl.errors import ConfigInvalid

_OUTSIDE = b'"../../modules/'
_INSIDE = b'"./modules/'
_NAMED = re.compile(rb'source\s*=\s*"(?:\.\./\.\./modules|\.\.)/([a-z0-9_]+)"')
_PARTS = (".tf", ".tftpl")
GUARDED: Mapping[str, tuple[tuple[str, str], ...]] = {
    "gpu_vms_azure": (("azurerm_linux_virtual_machine", "host"),),
    "nvidia_pool_aws": (("aws_instance", "host"), ("aws_autoscaling_group", "pool")),
}
"""Resources of each module that stand under prevent_destroy; a pool that is not held gets an override that lifts it."""
_UNGUARDED = "unguarded_override.tf.json"
_BACKEND = Path("backend.tf.json")
_PLACES = {"azurerm": "key", "s3": "key", "local": "path", "gcs": "prefix"}
_SECRET = re.compile(r"secret|password|access_key|sas|token|certificate|encryption_key|customer_key|credentials", re.IGNORECASE)
_LOCKS = ("use_lockfile", "dynamodb_table")
"""Settings of the backend s3 of which one must be there: alone of the kinds it locks nothing by itself.
Source: Terraform, "Backend Type: s3", State Locking; use_lockfile is of 1.10; read 2026-11-30."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """Where states are kept; each pool has its own key.

    Args:
        kind: azurerm, s3, gcs or local; settings: of that backend, without its key; never a secret (those come from the environment).
        prefix: of every key, such as "fleetctl/prod/".
    """

    kind: str
    settings: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""


def check_backend(backend: Backend) -> Backend:
    """Return it where it may be written to a file.

    Raises:
        ConfigInvalid: config.backend, for an unknown kind, a secret, or a state that nothing would lock.
    """
    if backend.kind not in _PLACES:
        known = ", ".join(sorted(_PLACES))
        raise ConfigInvalid("config.backend", f"terraform.backend is {backend.kind!r}; known are {known}.", hint="Change the fleet file")
    secret = next((k for k, v in backend.settings.items() if _SECRET.search(k) and v not in ("", "true", "false")), None)
    if secret is not None:
        text = f"terraform.backend.{secret} looks like a secret, and settings are no place for one."
        raise ConfigInvalid("config.backend", text, hint="Give it to Terraform by its environment variable, or use an identity")
    if backend.kind == "s3" and all(backend.settings.get(k, "false") in ("", "false") for k in _LOCKS):
        text = "terraform.backend s3 locks no state by itself: two people at once would lose machines."
        hint = 'Set terraform.backend.use_lockfile: "true" in the fleet file (Terraform 1.10 or newer), or terraform.backend.dynamodb_table'
        raise ConfigInvalid("config.backend", text, hint=hint)
    return backend


def extra_files(stack: Path, wanted: Mapping[Path, bytes], *, guarded: bool, backend: Backend | None, pool: PoolId) -> dict[Path, bytes]:
    """Return what goes into a pool's copy beside, or instead of, the stack's own files.

    Args:
        wanted: the stack's own files by relative path.
        guarded: leave prevent_destroy where it stands.
    """
    found = {name: data.replace(_OUTSIDE, _INSIDE) for name, data in wanted.items() if _OUTSIDE in data}
    for module in _modules(stack, wanted.values()):
        for path in sorted((stack.parent.parent / "modules" / module).iterdir()):
            if path.is_file() and path.name.endswith(_PARTS):
                found[Path("modules") / module / path.name] = path.read_bytes()
        if not guarded and module in GUARDED:
            found[Path("modules") / module / _UNGUARDED] = _lifted(module)
    if backend is not None:
        place = _PLACES[backend.kind]
        ending = "" if backend.kind == "gcs" else ".tfstate"
        settings = {**backend.settings, place: f"{backend.prefix}{pool}{ending}"}
        found[_BACKEND] = json.dumps({"terraform": {"backend": {backend.kind: settings}}}, indent=2, sort_keys=True).encode() + b"\n"
    return found


def _modules(stack: Path, texts: Iterable[bytes]) -> list[str]:
    """Return the modules that the stack uses, and those that these use."""
    found: list[str] = []
    waiting = [name for text in texts for name in _NAMED.findall(text)]
    while waiting:
        name = waiting.pop().decode()
        folder = stack.parent.parent / "modules" / name
        if name not in found and folder.is_dir():
            found.append(name)
            waiting += [n for path in folder.glob("*.tf") for n in _NAMED.findall(path.read_bytes())]
    return sorted(found)


def _lifted(module: str) -> bytes:
    resources: dict[str, dict[str, object]] = {}
    for kind, name in GUARDED[module]:
        resources.setdefault(kind, {})[name] = {"lifecycle": {"prevent_destroy": False}}
    return json.dumps({"resource": resources}, indent=2, sort_keys=True).encode() + b"\n"
