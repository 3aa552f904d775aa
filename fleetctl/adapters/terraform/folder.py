"""Provision, adapters layer: a pool's own folder and the files that fleetctl writes there. Never runs anything.

The stack may lie in a read-only package, so its files are copied; the state, the provider cache and the variables stay beside the copy.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fleetctl.adapters.terraform.modules import Backend, extra_files
from fleetctl.domain.canonical import canonical, digest
from fleetctl.domain.ids import PoolId, Sha256, is_id
from fleetctl.errors import PlanStale, ProvisionFailed

_COPIED = (".tf", ".tf.json", ".tofu", ".tofu.json", ".tftpl")
_LOCK_FILE = ".terraform.lock.hcl"
_READY = Path(".terraform") / "fleetctl-ready"
MANIFEST_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPlan:
    """One pool's plan file as the manifest binds it."""

    pool: PoolId
    file: str
    sha256: Sha256
    lineage: str
    serial: int


def private_folder(path: Path) -> Path:
    """Make a folder (0700) with what is above it, and return it."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.chmod(0o700)
    return path


def write_private(path: Path, data: bytes) -> None:
    """Replace a file atomically, mode 0600."""
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    number = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(number, "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def empty_private(path: Path) -> None:
    """Make an empty file of mode 0600 for a program to write into."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))


@contextlib.contextmanager
def scratch(folder: Path, what: str) -> Iterator[Path]:
    """Lend a private file for a plan that nobody keeps."""
    remove_scratch(folder)
    file = folder / f".{what}.{os.getpid()}.tfplan"
    empty_private(file)
    try:
        yield file
    finally:
        file.unlink(missing_ok=True)


def remove_scratch(folder: Path) -> None:
    """Remove the plans that killed runs were lent: a plan holds every variable."""
    for old in folder.glob(".*.tfplan"):
        if not _is_at_work(old.name):
            old.unlink(missing_ok=True)


def _is_at_work(name: str) -> bool:
    """Tell whether the process whose scratch file this is may still run."""
    number = name.split(".")[-2]
    if not number.isdigit() or int(number) == os.getpid():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def file_digest(path: Path) -> Sha256:
    """Return the SHA-256 of a file's bytes.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return Sha256(hashlib.file_digest(file, "sha256").hexdigest())


def copy_stack(stack: Path, folder: Path, pool: PoolId, *, guarded: bool = True, backend: Backend | None = None) -> None:
    """Make the folder's Terraform files those of the stack and its modules; only what differs is written, what does not belong is removed.

    Args:
        guarded: leave prevent_destroy on the hosts; backend: where the state is kept, None for beside the copy.

    Raises:
        ProvisionFailed: provision.stack_missing.
    """
    wanted = {path.relative_to(stack): path.read_bytes() for path in _sources(stack)}
    if not wanted:
        raise ProvisionFailed(
            "provision.stack_missing", f"{stack} holds no Terraform files", hint="Install fleetctl again. Run: fleetctl doctor"
        )
    wanted |= extra_files(stack, wanted, guarded=guarded, backend=backend, pool=pool)
    private_folder(folder)
    for path in list(_sources(folder)):
        if path.relative_to(folder) not in wanted and path.name != _LOCK_FILE:
            path.unlink()
    for name, data in wanted.items():
        target = folder / name
        if not target.is_file() or target.read_bytes() != data:
            private_folder(target.parent)
            write_private(target, data)


def is_ready(folder: Path, tool: str) -> bool:
    """Tell whether `init` has been run by this tool on these very files."""
    try:
        return (folder / _READY).read_text() == _fingerprint(folder, tool)
    except OSError:
        return False


def mark_ready(folder: Path, tool: str) -> None:
    """Remember that; beside what `init` fetched, so that it goes when that goes."""
    private_folder((folder / _READY).parent)
    write_private(folder / _READY, _fingerprint(folder, tool).encode())


def _fingerprint(folder: Path, tool: str) -> str:
    return digest([tool, [[str(path.relative_to(folder)), file_digest(path)] for path in _sources(folder)]])


def _sources(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(root).parts[:-1])
        if not hidden and path.is_file() and (path.name.endswith(_COPIED) or path.name == _LOCK_FILE):
            yield path


def variables_file(folder: Path, pool: PoolId) -> Path:
    """Return where the pool's variables are; Terraform reads the name by itself."""
    return folder / f"{pool}.auto.tfvars.json"


def write_variables(folder: Path, pool: PoolId, values: Mapping[str, object]) -> None:
    """Write the variables, 0600; the only file of the stack's copy that fleetctl makes up.

    Raises:
        ProvisionFailed: provision.variables where a value has no JSON form.
    """
    try:
        data = json.dumps(dict(values), indent=2, sort_keys=True, allow_nan=False).encode()
    except (TypeError, ValueError) as e:
        raise ProvisionFailed("provision.variables", f"a variable of pool {pool} has no JSON form: {e}", hint="Run: fleetctl plan") from e
    for other in (*folder.glob("*.auto.tfvars*"), *folder.glob("terraform.tfvars*")):
        if other != variables_file(folder, pool):
            other.unlink()
    write_private(variables_file(folder, pool), data + b"\n")


def manifest_name(pools: tuple[PoolId, ...]) -> str:
    """Return the name of the manifest of these pools; plans of other pools in the same run's folder keep theirs."""
    return f"provision-{digest(pools)[:12]}.json"


def write_manifest(path: Path, stack: str, tool: str, plans: tuple[SavedPlan, ...]) -> Sha256:
    """Write the file that binds the plan files of a run to each other; return its digest."""
    write_private(path, canonical({"format": MANIFEST_FORMAT, "stack": stack, "tool": tool, "plans": plans}))
    return file_digest(path)


def read_manifest(path: Path, expected: Sha256, pools: tuple[PoolId, ...]) -> tuple[SavedPlan, ...]:
    """Return the plans of a manifest, each checked to be the very file that was saved.

    Raises:
        ProvisionFailed: provision.changed where a byte of the manifest or a plan file differs, or one is gone.
    """
    try:
        data = path.read_bytes()
    except OSError as e:
        raise _changed(path, f"cannot be read ({e.strerror})") from e
    if hashlib.sha256(data).hexdigest() != expected:
        raise _changed(path, "is not the file that was planned and approved")
    plans = tuple(_saved(item, path) for item in json.loads(data)["plans"])
    if tuple(plan.pool for plan in plans) != pools:
        raise _changed(path, "is of other pools")
    for plan in plans:
        file = path.parent / plan.file
        try:
            same = file_digest(file) == plan.sha256
        except OSError as e:
            raise _changed(file, f"cannot be read ({e.strerror})") from e
        if not same:
            raise _changed(file, "is not the file that was planned and approved")
    return plans


def require_tool(planned: str, label: str) -> None:
    """Refuse a plan of another tool or version, which Terraform could not apply either.

    Raises:
        PlanStale: provision.stale.
    """
    if planned != label:
        raise PlanStale("provision.stale", f"the plan was made by {planned}, and {label} is here now", hint="Run: fleetctl provision")


def _saved(item: Mapping[str, object], path: Path) -> SavedPlan:
    pool, file, sha256, lineage, serial = (item.get(k) for k in ("pool", "file", "sha256", "lineage", "serial"))
    whole = isinstance(pool, str) and is_id(pool) and file == plan_name(PoolId(pool))
    if not whole or not isinstance(sha256, str) or not isinstance(lineage, str) or not isinstance(serial, int):
        raise _changed(path, "has not the shape of a plan")
    return SavedPlan(pool=PoolId(str(pool)), file=str(file), sha256=Sha256(sha256), lineage=lineage, serial=serial)


def plan_name(pool: PoolId) -> str:
    """Return the name of a pool's plan file in a run's folder."""
    return f"{pool}.tfplan"


def _changed(path: Path, why: str) -> ProvisionFailed:
    return ProvisionFailed("provision.changed", f"{path} {why}; nothing was applied", hint="Plan and approve anew. Run: fleetctl provision")
