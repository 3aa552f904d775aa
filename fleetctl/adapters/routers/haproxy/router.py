"""Traffic, adapter layer: the Router over HAProxy's admin socket. Never decides a weight, never reloads HAProxy."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeVar

from fleetctl.adapters.deadline import Deadline, within
from fleetctl.adapters.routers.haproxy.config import TURNS, TURNS_OFF, WEIGHT_MAP
from fleetctl.adapters.routers.haproxy.maps import Standing, read_standing, write_standing, write_standings
from fleetctl.adapters.routers.haproxy.wire import AdminSocket, map_command, value_of
from fleetctl.adapters.routers.late import FILE_LIMIT_S, LateWriter
from fleetctl.adapters.routers.odd import understood
from fleetctl.adapters.routers.prober import Replica, Replicas
from fleetctl.adapters.routers.route import Backends, backends_of
from fleetctl.adapters.routers.served import served_by_log
from fleetctl.adapters.routers.splits import as_split, checked_cell, epoch_ms, first_line, natural, rounded, whole
from fleetctl.domain.evidence import Arm, Cursor
from fleetctl.domain.fleet import Connection
from fleetctl.domain.ids import CellId, PoolId, Token
from fleetctl.domain.split import Applied, Drained, RouterCapabilities, Served, Split, Stale
from fleetctl.domain.units import FULL_BP
from fleetctl.errors import ConfigInvalid, FleetctlError, TrafficNotApplied

T = TypeVar("T")

FENCE_LIMIT_S = 1.0
"""How long a single writer waits until its token is on the disk: more than a start-up file, since the token stands nowhere else, and less
than going home may take."""


class HaproxyRouter:
    """Splits a cell through one HAProxy.

    Args:
        connection: settings `socket` and `map_folder`, and `log_folder` where served counts are wanted; `fence` = "single_writer" for a
            HAProxy without our Lua (found out by itself where it is not said).
        sources: source pool per cell, so that `drain` knows the side a pool is on; any other pool is the target.
        backends: where a cell's backends are not called `<cell>_baseline` and `<cell>_canary`.
    """

    def __init__(
        self, connection: Connection, *, sources: Mapping[CellId, PoolId] | None = None, backends: Mapping[CellId, Backends] | None = None
    ) -> None:
        settings = connection.settings
        missing = [name for name in ("socket", "map_folder") if not settings.get(name)]
        if missing:
            raise ConfigInvalid(
                "config.router", f"router {connection.name} lacks the settings {', '.join(missing)}.", hint="Correct the fleet file."
            )
        self.name = connection.name
        self._socket = AdminSocket(Path(settings["socket"]), connection.name)
        self._maps = Path(settings["map_folder"])
        self._logs = Path(settings["log_folder"]) if settings.get("log_folder") else None
        self._sources = dict(sources or {})
        self._backends = dict(backends or {})
        self._single: bool | None = True if settings.get("fence") == "single_writer" else None
        self._turns: bool | None = None
        self._took_ms: deque[float] = deque(maxlen=20)
        self._fencing: dict[CellId, Token] = {}
        self._unwritten: dict[CellId, int] = {}
        self._late = LateWriter(connection.name)

    def capabilities(self) -> RouterCapabilities:
        """Tell what this router can do; `switch_ms` is the slowest of the last 20 sets, from the order to the read-back.

        Raises:
            TrafficNotApplied: traffic.router_down.
        """
        deadline = Deadline()
        single = self._single_writer(deadline)
        fence: Literal["target", "single_writer"] = "single_writer" if single else "target"
        return RouterCapabilities(
            switch_ms=max(self._took_ms, default=None),
            streaming=True,
            mirror=not single,
            fence=fence,
            weight_lease="none" if single else "router",
            keyless_off=TURNS_OFF if self._counts_turns(deadline) else None,
        )

    @understood
    def read(self, c: CellId) -> Split:
        """Return what HAProxy routes by now; a foreign weight above the cap is shown with the cap raised to it.

        Raises:
            TrafficNotApplied: traffic.router_down, traffic.unknown_cell, traffic.not_shown.
        """
        return self._read(checked_cell(c), Deadline())

    @understood
    def fence(self, c: CellId, token: Token) -> Split | Stale:
        """Raise the floor to `token` and return what stands; Stale unless token > floor or this very fence was ours.

        Raises:
            TrafficNotApplied: traffic.router_down, traffic.unknown_cell, traffic.not_shown.
        """
        deadline = Deadline()
        cell, wanted = checked_cell(c), natural("token", token)
        mine = self._fencing.get(cell) == wanted
        self._fencing[cell] = token
        answer = (
            self._fence_file(cell, wanted, deadline)
            if self._single_writer(deadline)
            else self._ask(cell, f"fleetctl fence {cell} {wanted}", deadline)
        )
        if isinstance(answer, Stale):
            if mine and answer.seen == wanted:
                return self._read(cell, deadline)
            self._fencing.pop(cell, None)
            return answer
        self._file(answer, FILE_LIMIT_S)
        return answer

    @understood
    def set(self, s: Split) -> Applied | Stale:
        """Set split, cap and lease, compare the token in HAProxy, read back, and keep the start-up files in step.

        Raises:
            TrafficNotApplied: traffic.router_down, traffic.unknown_cell, traffic.not_shown.
        """
        started, deadline = time.monotonic(), Deadline()
        cell = checked_cell(s.cell)
        standing = self._read(cell, deadline)
        if standing.token != s.token:
            return Stale(cell=cell, seen=standing.token)
        lowering = s.target_bp < standing.target_bp
        reported = self._file(s, FILE_LIMIT_S) if lowering else ""
        answer = self._apply(s, deadline)
        if isinstance(answer, Stale):
            return answer
        shown = self._shown(s, deadline)
        if isinstance(shown, Stale):
            return shown
        self._took_ms.append((time.monotonic() - started) * 1_000)
        if not lowering:
            reported = self._file(s, min(2.0, deadline.left_s()))
        return _applied(shown, reported)

    @understood
    def read_many(self, cells: Sequence[CellId]) -> Mapping[CellId, Split | FleetctlError]:
        """Return what HAProxy routes many cells by, as `read`, in a few exchanges."""
        deadline = Deadline()
        if self._single_writer(deadline):
            return {c: _or_error(lambda c=c: self.read(c)) for c in cells}  # type: ignore[misc]
        found = self._ask_many({checked_cell(c): f"fleetctl read {c}" for c in cells}, deadline)
        return {c: self._no_write(c) if isinstance(answer, Stale) else answer for c, answer in found.items()}

    @understood
    def fence_many(self, tokens: Mapping[CellId, Token]) -> Mapping[CellId, Split | Stale | FleetctlError]:
        """Raise the floors of many cells, each as `fence` does, in a few exchanges; their start-up files are written once."""
        deadline = Deadline()
        if self._single_writer(deadline):
            return {c: _or_error(lambda c=c, t=t: self.fence(c, t)) for c, t in tokens.items()}  # type: ignore[misc]
        self._fencing |= tokens
        found = self._ask_many({checked_cell(c): f"fleetctl fence {c} {natural('token', t)}" for c, t in tokens.items()}, deadline)
        for c, answer in found.items():
            if isinstance(answer, Stale):
                self._fencing.pop(c, None)
        self._file_many([s for s in found.values() if isinstance(s, Split)], FILE_LIMIT_S)
        return found

    @understood
    def set_many(self, splits: Sequence[Split]) -> Mapping[CellId, Applied | Stale | FleetctlError]:
        """Set many cells, each as `set` does: compared in HAProxy, read back; their start-up files are written once, lowered ones first."""
        started, deadline = time.monotonic(), Deadline()
        if self._single_writer(deadline):
            return {s.cell: _or_error(lambda s=s: self.set(s)) for s in splits}  # type: ignore[misc]
        wanted = {checked_cell(s.cell): s for s in splits}
        found: dict[CellId, Applied | Stale | FleetctlError] = {}
        stood: dict[CellId, Split] = {}
        for c, standing in self.read_many(list(wanted)).items():
            if isinstance(standing, FleetctlError):
                found[c] = standing
            elif standing.token != wanted[c].token:
                found[c] = Stale(cell=c, seen=standing.token)
            else:
                stood[c] = standing
        down = {c for c, standing in stood.items() if wanted[c].target_bp < standing.target_bp}
        said = self._file_many([wanted[c] for c in stood if c in down], FILE_LIMIT_S)
        for c, answer in self._ask_many({c: self._set_command(wanted[c]) for c in stood}, deadline).items():
            if not isinstance(answer, Split):
                found[c] = answer
        shown = self._shown_many([wanted[c] for c in stood if c not in found], deadline)
        self._took_ms.append((time.monotonic() - started) * 1_000)
        rest = [s for c, s in shown.items() if isinstance(s, Split) and c not in down]
        later = self._file_many(rest, min(2.0, deadline.left_s()))
        return found | {c: _applied(s, said if c in down else later) if isinstance(s, Split) else s for c, s in shown.items()}

    @understood
    def drain(self, c: CellId, pool: PoolId, token: Token) -> Drained | Stale:
        """Count requests open on that side of the cell; cuts nothing.

        Raises:
            TrafficNotApplied: traffic.router_down, traffic.unknown_cell, traffic.unknown_pool where the cell's source pool is not known.
        """
        deadline = Deadline()
        cell = checked_cell(c)
        standing = self._read(cell, deadline)
        if standing.token != token:
            return Stale(cell=cell, seen=standing.token)
        if cell not in self._sources:
            raise TrafficNotApplied("traffic.unknown_pool", f"router {self.name} was not told the source pool of cell {cell}.")
        names = self._names(cell)
        side = "b" if self._sources[cell] == pool else "c"
        rows = (*self._socket.servers(names.baseline, deadline), *self._socket.servers(names.canary, deadline))
        return Drained(open_streams=sum(row.sessions for row in rows if row.name.startswith(side)))

    @understood
    def served(self, c: CellId, since: Cursor) -> Served:
        """Count requests started at or after `since.since`, by the server that answered; pinned ones (probes, shadow) count nowhere.

        Raises:
            TrafficNotApplied: traffic.not_shown where the log cannot be read.
        """
        return served_by_log(self.name, self._logs, checked_cell(c), since.since)

    def set_shadow(self, c: CellId, sample_per_s: float, max_share: float = 1.0) -> None:
        """Let HAProxy copy at most `sample_per_s` (0 to 1,000) requests a second of a cell, and `max_share` (0 to 1) of those that it could
        copy, to the collector; 0 stops it.

        Raises:
            TrafficNotApplied: traffic.router_down, traffic.unknown_cell, traffic.not_shown.
        """
        cell = checked_cell(c)
        if not 0 <= sample_per_s <= 1_000:
            raise TrafficNotApplied("traffic.not_shown", f"cell {cell}: {sample_per_s} copies a second are not within 0 to 1,000.")
        if not 0 <= max_share <= 1:
            raise TrafficNotApplied("traffic.not_shown", f"cell {cell}: a copied share of {max_share} is not within 0 to 1.")
        answer = self._socket.ask(f"fleetctl shadow {cell} {round(sample_per_s * 1_000)} {round(max_share * FULL_BP)}", Deadline())
        if answer == "unknown":
            raise self._unknown(cell)
        if answer != "ok":
            raise TrafficNotApplied("traffic.not_shown", f"router {self.name} cannot copy requests of cell {cell}: {first_line(answer)}.")

    def tee_counts(self) -> Mapping[str, int]:
        """Return how many copies were sent, dropped, failed, refused (calls with tools) and wait.

        Raises:
            TrafficNotApplied: traffic.router_down, traffic.not_shown.
        """
        words = self._socket.ask("fleetctl tee", Deadline()).split(" ")
        if words[0] != "ok" or len(words) != 6:
            raise TrafficNotApplied("traffic.not_shown", f"router {self.name} has no shadow tee.")
        return dict(zip(("sent", "dropped", "failed", "refused", "waiting"), map(int, words[1:]), strict=True))

    def _single_writer(self, deadline: Deadline) -> bool:
        if self._single is None:
            self._single = self._socket.ask("fleetctl tee", deadline).startswith("Unknown command")
        return self._single

    def _counts_turns(self, deadline: Deadline) -> bool:
        """Tell whether requests without a key take turns here; asked once. Where nobody can tell, they do not."""
        if self._turns is None:
            with suppress(TrafficNotApplied):
                self._turns = self._socket.ask(f"show table {TURNS}", deadline).startswith(f"# table: {TURNS},")
        return bool(self._turns)

    def _names(self, cell: CellId) -> Backends:
        return backends_of(self._backends, cell)

    def _ask(self, cell: CellId, command: str, deadline: Deadline) -> Split | Stale:
        return self._answered(cell, command, self._socket.ask(command, deadline))

    def _ask_many(self, commands: Mapping[CellId, str], deadline: Deadline) -> dict[CellId, Split | Stale | FleetctlError]:
        """Ask one thing of each cell. Raises TrafficNotApplied where the router as a whole does not answer."""
        answers = self._socket.ask_many(list(commands.values()), deadline)
        return {
            c: _or_error(lambda c=c, command=command, answer=answer: self._answered(c, command, answer))  # type: ignore[misc]
            for (c, command), answer in zip(commands.items(), answers, strict=True)
        }

    def _answered(self, cell: CellId, command: str, answer: str) -> Split | Stale:
        words = answer.split(" ")
        if words[0] == "unknown":
            raise self._unknown(cell)
        if words[0] == "stale" and len(words) == 2 and words[1].isdigit():
            return Stale(cell=cell, seen=Token(int(words[1])))
        if words[0] != "ok" or len(words) != 5:
            raise TrafficNotApplied("traffic.not_shown", f"router {self.name} refused {command!r}: {first_line(' '.join(words))}.")
        bp, cap, token, lease = (whole(word) for word in words[1:])
        return as_split(cell, bp, cap, token, lease)

    def _read(self, cell: CellId, deadline: Deadline) -> Split:
        if self._single_writer(deadline):
            shown = self._socket.map_value(self._maps / WEIGHT_MAP, cell, deadline)
            if shown is None:
                raise self._unknown(cell)
            files = self._standing(cell, deadline) or Standing(bp=0, cap_bp=0, token=0, lease_ms=0)
            return as_split(cell, whole(shown), files.cap_bp, files.token, files.lease_ms)
        answer = self._ask(cell, f"fleetctl read {cell}", deadline)
        if isinstance(answer, Stale):
            raise self._no_write(cell)
        return answer

    def _no_write(self, cell: CellId) -> TrafficNotApplied:
        return TrafficNotApplied("traffic.not_shown", f"router {self.name} answered a read of cell {cell} as if it were a write.")

    def _standing(self, cell: CellId, deadline: Deadline) -> Standing | None:
        """Return what the files say; a disk that hangs holds nobody up."""
        try:
            return within(deadline, lambda: read_standing(self._maps, cell), f"maps of {self.name}")
        except (OSError, UnicodeError) as e:  # TimeoutError is one
            raise TrafficNotApplied(
                "traffic.not_shown", f"router {self.name}: {self._maps} cannot be read: {e}.", hint="Run: fleetctl doctor"
            ) from e

    def _fence_file(self, cell: CellId, token: int, deadline: Deadline) -> Split | Stale:
        standing = self._read(cell, deadline)
        if token <= standing.token:
            return Stale(cell=cell, seen=standing.token)
        failed = self._file(replace(standing, token=Token(token)), min(FENCE_LIMIT_S, deadline.left_s()))
        if failed:  # a disk that hangs holds nobody up; the write may still come
            self._unwritten[cell] = token
            raise TrafficNotApplied("traffic.not_shown", f"cell {cell} cannot be fenced: {failed}.", hint="Run: fleetctl doctor")
        return self._read(cell, deadline)

    def _apply(self, s: Split, deadline: Deadline) -> Split | Stale:
        if self._single_writer(deadline):
            answer = self._socket.ask(f"set map {self._maps / WEIGHT_MAP} {s.cell} {s.target_bp}", deadline)
            if answer:
                raise TrafficNotApplied(
                    "traffic.not_shown", f"router {self.name} refused the weight of cell {s.cell}: {first_line(answer)}."
                )
            return s
        return self._ask(s.cell, self._set_command(s), deadline)

    def _set_command(self, s: Split) -> str:
        return f"fleetctl set {s.cell} {s.target_bp} {s.cap_bp} {natural('token', s.token)} {epoch_ms(s.lease_until)}"

    def _shown_many(self, splits: Sequence[Split], deadline: Deadline) -> dict[CellId, Split | Stale | FleetctlError]:
        """Read many back, as `_shown`."""
        commands = [word for s in splits for word in (map_command(self._maps / WEIGHT_MAP, s.cell), f"fleetctl read {s.cell}")]
        answers = self._socket.ask_many(commands, deadline)

        def one(s: Split, routed: str, read: str) -> Split | Stale:
            standing = self._answered(s.cell, f"fleetctl read {s.cell}", read)
            if isinstance(standing, Stale):
                raise self._no_write(s.cell)
            return self._judged(s, value_of(routed), standing, deadline)

        told = zip(splits, answers[::2], answers[1::2], strict=True)
        return {s.cell: _or_error(lambda s=s, a=a, b=b: one(s, a, b)) for s, a, b in told}  # type: ignore[misc]

    def _shown(self, s: Split, deadline: Deadline) -> Split | Stale:
        """Read back from the map that routes and from the fence."""
        routed = self._socket.map_value(self._maps / WEIGHT_MAP, s.cell, deadline)
        return self._judged(s, routed, self._read(s.cell, deadline), deadline)

    def _judged(self, s: Split, routed: str | None, standing: Split, deadline: Deadline) -> Split | Stale:
        """Tell what the map that routes and the fence say after a set."""
        if standing.token > s.token:
            if self._single and routed == str(s.target_bp) != "0":  # somebody fenced us off in between, and our word came last: it is home
                self._apply(replace(s, target_bp=0), deadline)
            return Stale(cell=s.cell, seen=standing.token)
        if routed == str(s.target_bp) and (self._single or standing == rounded(s)):
            return rounded(s)
        raise TrafficNotApplied(
            "traffic.not_shown",
            f"router {self.name} shows {routed} bp for cell {s.cell} after {s.target_bp} bp were set: somebody else writes there too.",
            hint="Run: fleetctl status",
        )

    def _file(self, s: Split, limit_s: float) -> str:
        """Write the start-up files beside the caller's path; return what failed or was late, "" where nothing was."""
        return self._late.write(
            s.cell, lambda: write_standing(self._maps, s.cell, self._standing_of(s)), limit_s, lambda: self._in_step((s,))
        )

    def _file_many(self, splits: Sequence[Split], limit_s: float) -> str:
        """Write the start-up files of many cells at once, as `_file`."""
        by_cell = {s.cell: s for s in splits}

        def write(newest: Collection[CellId]) -> None:
            write_standings(self._maps, [(c, self._standing_of(by_cell[c])) for c in newest])

        return self._late.write_many(tuple(by_cell), write, limit_s, lambda: self._in_step(splits)) if by_cell else ""

    def _in_step(self, splits: Sequence[Split]) -> None:
        """Write what HAProxy shows of cells where somebody fenced us off while we held the files, and could not write them."""
        if self._single:
            return  # the token is nowhere else
        found = self.read_many([s.cell for s in splits])
        for s in splits:
            shown = found[s.cell]
            if isinstance(shown, Split) and shown.token > s.token:
                write_standings(self._maps, ((s.cell, self._standing_of(shown)),), floor=s.token)

    def _standing_of(self, s: Split) -> Standing:
        token = max(s.token, self._unwritten.get(s.cell, 0))  # else the files would keep what a fence that comes late brings along
        return Standing(bp=s.target_bp, cap_bp=s.cap_bp, token=token, lease_ms=epoch_ms(s.lease_until))

    def _unknown(self, cell: CellId) -> TrafficNotApplied:
        return TrafficNotApplied("traffic.unknown_cell", f"router {self.name} does not route cell {cell}.", hint="Run: fleetctl inventory")


def _applied(shown: Split, reported: str) -> Applied:
    return Applied(split=shown, reported=reported, unfiled=bool(reported))


def _or_error(action: Callable[[], T]) -> T | FleetctlError:
    """Return what it raises of ours, so that one cell of many stands in the way of no other."""
    try:
        return action()
    except FleetctlError as e:
        return e


def replicas_of(connection: Connection, backends: Mapping[CellId, Backends]) -> Replicas:
    """Return what lists a side's own servers (no spares) over the admin socket."""
    socket = AdminSocket(Path(connection.settings.get("socket", "")), connection.name)

    def listed(c: CellId, arm: Arm, deadline: Deadline) -> tuple[Replica, ...]:
        names = backends_of(backends, c)
        rows = socket.servers(names.baseline if arm == "baseline" else names.canary, deadline)
        return tuple(Replica(name=row.name, is_up=row.status.startswith("UP")) for row in rows if not row.backup)

    return listed


def cut_streams(connection: Connection, cell: CellId, backends: Mapping[CellId, Backends]) -> int:
    """End what the target's own servers of a cell still answer, and return how many streams there were.

    Raises:
        TrafficNotApplied: traffic.router_down, traffic.unknown_cell, traffic.not_shown.
    """
    socket, deadline = AdminSocket(Path(connection.settings.get("socket", "")), connection.name), Deadline()
    backend = backends_of(backends, checked_cell(cell)).canary
    rows = [row for row in socket.servers(backend, deadline) if not row.backup]
    for row in rows:
        answer = socket.ask(f"shutdown sessions server {backend}/{row.name}", deadline)
        if answer:
            raise TrafficNotApplied(
                "traffic.not_shown", f"router {connection.name} did not end streams of {row.name}: {first_line(answer)}."
            )
    return sum(row.sessions for row in rows)
