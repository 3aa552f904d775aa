"""Provision, adapters layer: what Terraform's JSON lines mean. Never reads prose, but for two summaries without a code."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from fleetctl.domain.provision import Progress
from fleetctl.errors import FleetctlError, PlanStale, ProvisionFailed

_STALE = "Saved plan is stale"
_LOCKED = "Error acquiring the state lock"
_HALTED = "execution halted"
_WHO = re.compile(r"^\s*Who:\s*(\S.*?)\s*$", re.MULTILINE)
_SINCE = re.compile(r"^\s*Created:\s*(\S.*?)\s*$", re.MULTILINE)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_LONGEST = 500
_WHOLE = 8000
_State = Literal["started", "running", "changed", "failed"]
_HOOKS: Mapping[str, _State] = {
    "apply_start": "started",
    "apply_progress": "running",
    "apply_complete": "changed",
    "apply_errored": "failed",
    "provision_progress": "running",
    "provision_errored": "failed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """An error diagnostic of Terraform's."""

    summary: str
    detail: str
    address: str

    @property
    def text(self) -> str:
        """One line for people."""
        return clean(": ".join(part for part in (self.address, self.summary, self.detail) if part))


@dataclass(slots=True, kw_only=True)
class Said:
    """What a run has said so far."""

    complaints: list[Complaint] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    added: int = 0
    changed: int = 0
    destroyed: int = 0

    def take(self, line: Mapping[str, object]) -> Progress | None:
        """Take one line in; return it as progress where it tells any."""
        kind = line.get("type")
        if kind == "diagnostic":
            self._complain(_mapping(line.get("diagnostic")))
        elif kind == "change_summary":
            self._sum(_mapping(line.get("changes")))
        elif kind in _HOOKS:
            return self._hook(str(kind), _mapping(line.get("hook")))
        return None

    def error(self, code: str, what: str) -> FleetctlError:
        """Return the error that these complaints come to; `code` where they are of no kind of their own.

        Args:
            what: what was being done, on which pool.
        """
        for complaint in self.complaints:
            if complaint.summary == _STALE:
                return PlanStale(
                    "provision.stale", f"{what}: the pool's state has changed since the plan was made", hint="Run: fleetctl provision"
                )
            if complaint.summary == _LOCKED:
                who, since = (clean(m[1]) if (m := p.search(complaint.detail)) else "unknown" for p in (_WHO, _SINCE))
                return ProvisionFailed(
                    "provision.locked",
                    f"{what}: the state is locked by {who} (since: {since})",
                    hint="Wait until that run ends, then run the same command again.",
                )
        return ProvisionFailed(code, f"{what}: {self.text}", hint="Mend the cause, then run: fleetctl provision", details=self._telling())

    @property
    def text(self) -> str:
        """The first complaint that says something, or that there is none."""
        return self._telling()[0]

    def whole(self) -> tuple[str, ...]:
        """Return every complaint with all its lines, at most 8000 characters each: what a classifier of errors needs."""
        return tuple("\n".join(p for p in (c.address, c.summary, c.detail) if p)[:_WHOLE] for c in self.complaints if c.summary != _HALTED)

    def _telling(self) -> tuple[str, ...]:
        telling = tuple(c.text for c in self.complaints if c.summary != _HALTED) or tuple(c.text for c in self.complaints)
        return telling or ("Terraform gave no reason",)

    def _complain(self, diagnostic: Mapping[str, object]) -> None:
        if diagnostic.get("severity") == "error":
            words = {k: v if isinstance(v := diagnostic.get(k), str) else "" for k in ("summary", "detail", "address")}
            self.complaints.append(Complaint(**words))

    def _sum(self, changes: Mapping[str, object]) -> None:
        if changes.get("operation") in {"apply", "destroy"}:
            self.added, self.changed, self.destroyed = (_count(changes.get(k)) for k in ("add", "change", "remove"))

    def _hook(self, kind: str, hook: Mapping[str, object]) -> Progress | None:
        resource = _mapping(hook.get("resource"))
        subject = clean(str(resource.get("addr", "")))
        action = clean(str(hook.get("action") or hook.get("provisioner") or ""))
        elapsed = hook.get("elapsed_seconds")
        seconds = float(elapsed) if isinstance(elapsed, (int, float)) else 0.0
        text = clean(str(hook.get("output") or ""))
        if kind == "provision_progress" and (not text or text.startswith("Executing:")):
            return None
        if kind == "apply_complete" and action == "create":
            self.made.append(subject)
        return Progress(subject=subject, step=action, state=_HOOKS[kind], text=text, seconds=seconds)


def clean(text: str) -> str:
    """Return text as one line without control characters, at most 500 characters."""
    line = " ".join(_CONTROL.sub(" ", text).split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def read_lines(out: str) -> Said:
    """Take in all that a finished command said with -json."""
    said = Said()
    for line in out.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            said.take(value)
    return said


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0
