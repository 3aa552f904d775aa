"""Configure, adapter layer: reads the JSON lines that the callback writes and sums them up per host. Never starts a process."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

from fleetctl.domain.ids import HostId
from fleetctl.domain.provision import HostResult, Progress

State = Literal["started", "running", "ok", "changed", "skipped", "failed", "unreachable"]
_STATES = frozenset({"ok", "changed", "skipped", "failed", "unreachable"})
LINE_LIMIT = 65_536
"""Bytes; a longer line is not one of ours and is dropped."""


class EventFile:
    """The file of events, read on as it grows; half a line is kept until its end is there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""

    def new(self) -> Iterator[Mapping[str, object]]:
        """Yield the events that were added since the last call; lines that are no event are left out."""
        try:
            with self._path.open("rb") as f:
                f.seek(self._offset)
                data = f.read()
        except FileNotFoundError:
            return
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LINE_LIMIT:
            self._rest = b""
        for line in lines:
            try:
                event = json.loads(line) if len(line) <= LINE_LIMIT else None
            except ValueError:
                continue
            if isinstance(event, dict):
                yield event


@dataclass(slots=True)
class _Tally:
    ok: int = 0
    changed: int = 0
    failed: int = 0
    skipped: int = 0
    unreachable: bool = False
    detail: str = ""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What the events came to so far.

    Args:
        stats: per host, as Ansible summed it up; None until a run has come to its end.
    """

    stats: Mapping[str, Mapping[str, int]] | None = None
    _tallies: dict[str, _Tally] = field(default_factory=dict)
    _open: dict[str, str] = field(default_factory=dict)
    _finished: dict[str, None] = field(default_factory=dict)

    def unfinished(self) -> str:
        """Tell in a clause what the hosts were doing last."""
        return "; ".join(f"{host} was at '{task}'" for host, task in sorted(self._open.items())) or "no host was at work"

    def ended_wave(self, event: Mapping[str, object]) -> tuple[Progress, ...]:
        """Return which hosts have come to their end, by an event that begins the next wave: Ansible runs one after the other."""
        if event.get("event") != "play":
            return ()
        new = [h for h, t in self._tallies.items() if not t.failed and h not in self._open and h not in self._finished]
        self._finished |= dict.fromkeys(new)
        return tuple(Progress(subject=h, step="all of it", state="ok", last=True) for h in new)

    def take(self, event: Mapping[str, object]) -> Progress | None:
        """Note one event and return the progress it means, None where it means none."""
        match event.get("event"):
            case "start":
                self._open[_str(event, "host")] = _str(event, "task")
                self._finished.pop(_str(event, "host"), None)
                return Progress(subject=_str(event, "host"), step=_str(event, "task"), state="started")
            case "retry":
                tries = f"try {event.get('attempt')} of {event.get('of')}"
                return Progress(subject=_str(event, "host"), step=_str(event, "task"), state="running", text=tries)
            case "result":
                return self._result(event)
            case "stats":
                hosts = event.get("hosts")
                if isinstance(hosts, dict):
                    self.stats = {
                        str(h): {k: v for k, v in s.items() if isinstance(v, int)} for h, s in hosts.items() if isinstance(s, dict)
                    }
            case _:
                pass
        return None

    def _result(self, event: Mapping[str, object]) -> Progress | None:
        host, state, text = _str(event, "host"), _str(event, "state"), _str(event, "text")
        if state not in _STATES:
            return None
        self._open.pop(host, None)
        tally = self._tallies.setdefault(host, _Tally())
        match state:
            case "ok":
                tally.ok += 1
            case "changed":
                tally.ok += 1
                tally.changed += 1
            case "skipped":
                tally.skipped += 1
            case _:
                if event.get("ignored"):
                    return None
                tally.failed += 1
                tally.unreachable = state == "unreachable"
                tally.detail = f"{_str(event, 'task')}: {text}"
        seconds = event.get("seconds")
        return Progress(
            subject=host,
            step=_str(event, "task"),
            state=cast(State, state),
            text=text,
            seconds=float(seconds) if isinstance(seconds, (int, float)) else 0.0,
        )

    def results(self, hosts: Sequence[HostId]) -> tuple[HostResult, ...]:
        """Return one result per host; a host that the run did not come to its end with is "cancelled"."""
        return tuple(self._of(h) for h in hosts)

    def _of(self, host: HostId) -> HostResult:
        tally = self._tallies.get(host, _Tally())
        if self.stats is None or host not in self.stats:
            detail = tally.detail or (
                "the run was ended before it was done" if self.stats is None else "the run stopped before it came to this host"
            )
            state: Literal["ok", "cancelled"] = "ok" if host in self._finished else "cancelled"
            if state == "ok":
                detail = ""
            return HostResult(
                host=host, state=state, ok=tally.ok, changed=tally.changed, failed=tally.failed, skipped=tally.skipped, detail=detail
            )
        s = self.stats[host]
        unreachable, failures = s.get("unreachable", 0), s.get("failures", 0)
        return HostResult(
            host=host,
            state="unreachable" if unreachable else "failed" if failures else "ok",
            ok=s.get("ok", 0),
            changed=s.get("changed", 0),
            failed=failures + unreachable,
            skipped=s.get("skipped", 0),
            detail=tally.detail,
        )


def _str(event: Mapping[str, object], key: str) -> str:
    value = event.get(key)
    return value if isinstance(value, str) else ""
