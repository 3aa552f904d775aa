"""Configure, test stand-in: a Configurator in memory that keeps the port's promises. Never starts a process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from fleetctl.domain.canonical import digest
from fleetctl.domain.ids import HostId, Token
from fleetctl.domain.pool import Host
from fleetctl.domain.provision import HostResult, Progress
from fleetctl.errors import ConfigureFailed

State = Literal["ok", "failed", "unreachable"]


@dataclass(slots=True, kw_only=True)
class ConfigureRun:
    """One call of `run`, as it came in."""

    play: str
    hosts: tuple[HostId, ...]
    variables: Mapping[str, object]
    token: Token


@dataclass(slots=True, kw_only=True)
class FakeConfigurator:
    """Hosts that remember what they were told.

    Args:
        plays: names it has.
        states: what a host comes to; "ok" where not named. May be changed between runs.
        raises: raised by the next run instead, once; breaks_at: the host that it reaches first, each host being a wave of its own.
    """

    plays: frozenset[str] = frozenset({"serving", "stop_serving"})
    states: dict[str, State] = field(default_factory=dict)
    raises: ConfigureFailed | None = None
    breaks_at: str = ""
    runs: list[ConfigureRun] = field(default_factory=list)
    _seen: dict[str, Token] = field(default_factory=dict)
    _holds: dict[str, str] = field(default_factory=dict)
    _cancelled: bool = False

    def run(
        self,
        play: str,
        hosts: Sequence[Host],
        variables: Mapping[str, object],
        token: Token,
        on: Callable[[Progress], None],
    ) -> tuple[HostResult, ...]:
        """Remember the call and answer from `states`."""
        if play not in self.plays:
            raise ConfigureFailed("configure.no_play", f"there is no playbook {play!r}")
        if self.raises is not None and not self.breaks_at:
            error, self.raises = self.raises, None
            raise error
        self.runs.append(ConfigureRun(play=play, hosts=tuple(h.id for h in hosts), variables=variables, token=token))
        self._cancelled = False
        found: list[HostResult] = []
        for h in hosts:
            if self.raises is not None and h.id == self.breaks_at:
                error, self.raises, self.breaks_at = self.raises, None, ""
                raise error
            found.append(self._configure(play, h.id, variables, token, on))
            if self.breaks_at and found[-1].state == "ok":
                on(Progress(subject=h.id, step=play, state="ok", last=True))
        return tuple(found)

    def _configure(
        self, play: str, host: HostId, variables: Mapping[str, object], token: Token, on: Callable[[Progress], None]
    ) -> HostResult:
        if not self._cancelled:
            on(Progress(subject=host, step=play, state="started"))
        if self._cancelled:
            return HostResult(host=host, state="cancelled", ok=0, changed=0, failed=0, skipped=0, detail="the run was ended")
        state, detail = self.states.get(host, "ok"), ""
        if state == "ok" and token < self._seen.get(host, 0):
            state, detail = "failed", f"stale token {token}: this host has seen {self._seen[host]}; nothing was changed"
        if state != "ok":
            detail = detail or f"{host} was told to be {state}"
            on(Progress(subject=host, step=play, state=state, text=detail))
            return HostResult(host=host, state=state, ok=0, changed=0, failed=1, skipped=0, detail=detail)
        own = variables.get("by_host", {})
        assert isinstance(own, Mapping)
        wanted = "" if play.startswith("stop") or play == "uninstall" else digest(own.get(host, {}))
        changed = int(self._holds.get(host, "") != wanted)
        self._seen[host], self._holds[host] = token, wanted
        on(Progress(subject=host, step=play, state="changed" if changed else "ok"))
        return HostResult(host=host, state="ok", ok=1, changed=changed, failed=0, skipped=0)

    def cancel(self) -> None:
        """Stop before the next host."""
        self._cancelled = True

    def manifest(self, host: HostId) -> Mapping[str, str]:
        """Return the digest of what the host was told last."""
        held = self._holds.get(host, "")
        return {"gate": "fake", "variables": held} if held else {}
