"""Provision, adapters layer: short Terraform commands through python-terraform, its faults worked round. Never applies anything.

What python-terraform 0.10.1 does wrong and what is done here instead:
- it logs the child's error output as a warning (it may hold secrets): the child is taken over before it gets that far;
- it has no deadline and blocks: `synchronous=False` gives us the child, once the option is kept out of Terraform's own command line;
- it parses local state after each success, wrong with a remote backend: not read at all;
- destroy() passes -force, output(name) expects an old shape, plan() hides that 2 means changes: only cmd() is called;
- variables go to temporary files that survive a crash: none are passed, fleetctl writes its own file;
- its child gets our whole environment: env(1) drops and sets what a run needs.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from python_terraform import IsFlagged, Terraform

from fleetctl.adapters.terraform.tool import Tool, dropped, own_settings
from fleetctl.errors import ProvisionFailed, ToolMissing

FLAG = IsFlagged
_NOT_RUN = frozenset({126, 127})
_STOP_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a command said: exit status, standard output, standard error."""

    status: int
    out: str
    err: str


class _Wrapped(Terraform):  # type: ignore[misc]  # the package is untyped
    """python-terraform with our command line in front; a name it lacks would run as a Terraform command, so nothing else is added."""

    def __init__(self, folder: Path, before: tuple[str, ...]) -> None:
        self.before = before
        super().__init__(working_dir=str(folder))

    def generate_cmd_string(self, cmd: str, *args: str, **kwargs: object) -> list[str]:
        """Build argv; without `synchronous`, which is an option of python-terraform's."""
        kwargs.pop("synchronous", None)
        return [*self.before, *super().generate_cmd_string(cmd, *args, **kwargs)[1:]]

    def read_state_file(self, file_path: str | None = None) -> None:
        """Read nothing: where the state is, is Terraform's own business."""
        self.tfstate = None


class Calls:
    """Runs commands that change no machine in one pool's folder.

    Args:
        folder: the pool's copy of the stack; deadline_s: longest a command may take, in seconds.
    """

    def __init__(self, tool: Tool, folder: Path, *, deadline_s: float = 600.0) -> None:
        self._tool = tool
        self._folder = folder
        self._deadline_s = deadline_s

    def run(self, command: str, *args: str, **options: object) -> Answer:
        """Run one command and wait for it.

        Raises:
            ToolMissing: tool.terraform_missing; ProvisionFailed: provision.timeout.
        """
        child = self._start(command, args, options)
        try:
            out, err = child.communicate(timeout=self._deadline_s)
        except subprocess.TimeoutExpired:
            _stop(child)
            raise ProvisionFailed(
                "provision.timeout",
                f"{self._tool.name} {command} in {self._folder} took over {self._deadline_s:.0f} s",
                hint="Run: fleetctl doctor",
            ) from None
        except BaseException:
            _stop(child)
            raise
        if child.returncode in _NOT_RUN:
            raise self._gone()
        return Answer(status=child.returncode, out=out.decode(errors="replace"), err=err.decode(errors="replace"))

    def _start(self, command: str, args: tuple[str, ...], options: dict[str, object]) -> subprocess.Popen[bytes]:
        settings = (f"{k}={v}" for k, v in own_settings(self._folder / ".terraform").items())
        drops = (word for name in dropped(os.environ) for word in ("-u", name))
        wrapped = _Wrapped(self._folder, ("env", *drops, *settings, *self._tool.argv))
        try:
            child, _, _ = wrapped.cmd(command, *args, synchronous=False, **options)
        except FileNotFoundError as e:
            raise self._gone() from e
        if not isinstance(child, subprocess.Popen):
            raise TypeError(f"python-terraform gave {type(child).__name__} instead of a process")
        return child

    def _gone(self) -> ToolMissing:
        return ToolMissing(
            "tool.terraform_missing", f"{' '.join(self._tool.argv)} cannot be run any more", hint="Install it again. Run: fleetctl doctor"
        )


def _stop(child: subprocess.Popen[bytes]) -> None:
    """End a command that only reads: ask, wait, then kill."""
    try:
        child.communicate(timeout=1.0)  # the terminal may have asked already
    except subprocess.TimeoutExpired:
        child.terminate()
        try:
            child.communicate(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
