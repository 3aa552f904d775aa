"""Traffic, adapter layer: the Router over Envoy's admin interface. Never decides a weight, never restarts Envoy.

Envoy has no compare-and-set, so this is a single writer: the token stands in its runtime beside the weights and is compared before a
write, not by Envoy itself.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from fleetctl.adapters.deadline import Deadline
from fleetctl.adapters.routers.envoy.runtime import (
    RUNTIME_FILE,
    Admin,
    HostRow,
    Standing,
    shadow_key,
    standing_of,
    weight_key,
    write_standing,
)
from fleetctl.adapters.routers.envoy.turns import TURN_HEADER, TURNS_OFF
from fleetctl.adapters.routers.late import FILE_LIMIT_S, LateWriter
from fleetctl.adapters.routers.odd import understood
from fleetctl.adapters.routers.open_writes import TAKE_BACK_S, ended
from fleetctl.adapters.routers.prober import Replica, Replicas
from fleetctl.adapters.routers.route import Backends, backends_of
from fleetctl.adapters.routers.served import served_by_log
from fleetctl.adapters.routers.splits import as_split, checked_cell, epoch_ms, natural, rounded
from fleetctl.domain.evidence import Arm, Cursor
from fleetctl.domain.fleet import Connection
from fleetctl.domain.ids import CellId, PoolId, Token
from fleetctl.domain.split import Applied, Drained, RouterCapabilities, Served, Split, Stale
from fleetctl.errors import ConfigInvalid, TrafficNotApplied

_MILLION = 1_000_000
MIRROR_S = 60.0
"""How long what Envoy says of its own configuration, which may be long, is not asked again."""


class EnvoyRouter:
    """Splits a cell through one Envoy.

    Args:
        connection: setting `admin`; `runtime_folder`, the folder of the watched runtime.json, without which a restart goes back to the
            weights of Envoy's own configuration; `log_folder` where served counts are wanted.
        sources: source pool per cell, so that `drain` knows the side a pool is on; any other pool is the target.
        backends: where a cell's clusters are not called `<cell>_baseline` and `<cell>_canary`.
    """

    def __init__(
        self, connection: Connection, *, sources: Mapping[CellId, PoolId] | None = None, backends: Mapping[CellId, Backends] | None = None
    ) -> None:
        settings = connection.settings
        if not settings.get("admin"):
            text = f"router {connection.name} lacks the setting admin, such as http://127.0.0.1:9901."
            raise ConfigInvalid("config.router", text, hint="Correct the fleet file.")
        self.name = connection.name
        self._admin = Admin(settings["admin"], connection.name)
        self._file_path = Path(settings["runtime_folder"]) / RUNTIME_FILE if settings.get("runtime_folder") else None
        self._logs = Path(settings["log_folder"]) if settings.get("log_folder") else None
        self._sources = dict(sources or {})
        self._backends = dict(backends or {})
        self._turns: bool | None = None
        self._took_ms: deque[float] = deque(maxlen=20)
        self._fencing: dict[CellId, Token] = {}
        self._late = LateWriter(connection.name)
        self._mirrors: dict[CellId, tuple[bool, float]] = {}

    def capabilities(self) -> RouterCapabilities:
        """Tell what this router can do; `switch_ms` is the slowest of the last 20 sets, from the order to the read-back.

        Raises:
            TrafficNotApplied: traffic.router_down, traffic.not_shown.
        """
        deadline = Deadline()
        self._admin.runtime(deadline)
        return RouterCapabilities(
            switch_ms=max(self._took_ms, default=None),
            streaming=True,
            mirror=bool(self._sources) and all(self._can_mirror(c, deadline) for c in self._sources),
            fence="single_writer",
            keyless_off=TURNS_OFF if self._counts_turns(deadline) else None,
        )

    @understood
    def read(self, c: CellId) -> Split:
        """Return what Envoy routes by now; a foreign weight above the cap is shown with the cap raised to it.

        Raises:
            TrafficNotApplied: traffic.router_down, traffic.unknown_cell, traffic.not_shown.
        """
        cell = checked_cell(c)
        return _shown(cell, self._standing(cell, Deadline()))

    @understood
    def fence(self, c: CellId, token: Token) -> Split | Stale:
        """Raise the floor to `token` and return what stands; Stale unless token > floor or this very fence was ours.

        Raises:
            TrafficNotApplied: traffic.router_down, traffic.unknown_cell, traffic.not_shown.
        """
        deadline = Deadline()
        cell, wanted = checked_cell(c), natural("token", token)
        standing = self._standing(cell, deadline)
        if wanted <= standing.token:
            if wanted == standing.token and self._fencing.get(cell) == wanted:
                return _shown(cell, standing)
            self._fencing.pop(cell, None)
            return Stale(cell=cell, seen=Token(standing.token))
        fenced = replace(standing, token=wanted)
        self._admin.modify(fenced.fence_entries(cell), deadline)
        self._file(cell, fenced, FILE_LIMIT_S, is_fence=fenced.bp > 0)  # at home the file says so too, whatever failed before
        self._fencing[cell] = token
        return _shown(cell, self._standing(cell, deadline))

    @understood
    def set(self, s: Split) -> Applied | Stale:
        """Set split, cap and lease, read back, and keep the runtime file in step.

        Raises:
            TrafficNotApplied: traffic.router_down, traffic.unknown_cell, traffic.not_shown.
        """
        started, deadline = time.monotonic(), Deadline()
        cell = checked_cell(s.cell)
        standing = self._standing(cell, deadline)
        if standing.token != s.token:
            return Stale(cell=cell, seen=Token(standing.token))
        wanted = replace(standing, bp=s.target_bp, cap_bp=s.cap_bp, lease_ms=epoch_ms(s.lease_until))
        lowering = s.target_bp < standing.bp
        reported = self._file(cell, wanted, FILE_LIMIT_S) if lowering else ""
        shown = self._written(cell, wanted, standing, deadline)
        if shown.token > s.token:
            if shown.bp == s.target_bp > 0:  # somebody fenced us off in between, and our word came last: then the last word is home
                self._write(cell, replace(shown, bp=0), deadline)
            return Stale(cell=cell, seen=Token(shown.token))
        if shown != wanted:
            raise TrafficNotApplied(
                "traffic.not_shown",
                f"router {self.name} shows {shown.bp} bp for cell {cell} after {s.target_bp} bp were set: somebody else writes there too.",
                hint="Run: fleetctl status",
            )
        self._took_ms.append((time.monotonic() - started) * 1_000)
        if not lowering:
            reported = self._file(cell, wanted, min(2.0, deadline.left_s()))
        return Applied(split=rounded(s), reported=reported, unfiled=bool(reported))

    def _written(self, cell: CellId, wanted: Standing, before: Standing, deadline: Deadline) -> Standing:
        """Write a split as our last word and return what is shown then; a raise that is not shown is taken back."""
        is_raise = wanted.bp > before.bp
        limit = Deadline(max(0.0, deadline.left_s() - TAKE_BACK_S)) if is_raise else deadline
        open_writes = self._admin.open_writes(cell)
        try:
            self._write(cell, wanted, limit, lambda: self._came_late(cell, wanted, before))
            shown = self._standing(cell, limit)
            if open_writes:
                ended(open_writes, limit, f"router {self.name}: a change of cell {cell}")
                shown = self._standing(cell, limit)
                if shown.token == wanted.token and shown != wanted:
                    self._write(cell, wanted, limit, lambda: self._came_late(cell, wanted, before))
                    shown = self._standing(cell, limit)
        except TrafficNotApplied as e:
            if not is_raise:
                raise
            raise TrafficNotApplied(e.code, f"{e.message} {self._taken_back(cell, wanted, before, deadline)}", hint=e.hint) from e
        if is_raise and shown != wanted and shown.token == wanted.token and shown.bp > before.bp:
            self._write(cell, before, deadline)  # a raise that is not shown as it was asked for is none
        return shown

    def _taken_back(self, cell: CellId, raised: Standing, before: Standing, deadline: Deadline) -> str:
        """Write what stood before a raise that was not shown, and return that in words."""
        try:
            if self._standing(cell, deadline).token != raised.token:
                return "A newer writer is there."
            self._write(cell, before, deadline)
        except TrafficNotApplied as e:
            return f"It may stand: {e.message}"
        return f"{before.bp / 100:g} % stand again."

    def _came_late(self, cell: CellId, wanted: Standing, before: Standing) -> None:
        """Take a change back that came when nobody waited for it any more: a raise, and where somebody had fenced us off, all of it."""
        deadline = Deadline()
        shown = self._standing(cell, deadline)
        if shown.token > wanted.token and shown.bp == wanted.bp > 0:
            self._write(cell, replace(shown, bp=0), deadline)
        elif shown.token == wanted.token and shown.bp == wanted.bp > before.bp:
            self._write(cell, before, deadline)

    def _write(self, cell: CellId, standing: Standing, deadline: Deadline, late: Callable[[], None] = lambda: None) -> None:
        self._admin.modify(standing.split_entries(cell), deadline, place=cell, late=late)

    @understood
    def drain(self, c: CellId, pool: PoolId, token: Token) -> Drained | Stale:
        """Count requests open on that side of the cell; cuts nothing.

        Raises:
            TrafficNotApplied: traffic.router_down, traffic.unknown_cell, traffic.unknown_pool where the cell's source pool is not known.
        """
        deadline = Deadline()
        cell = checked_cell(c)
        standing = self._standing(cell, deadline)
        if standing.token != token:
            return Stale(cell=cell, seen=Token(standing.token))
        if cell not in self._sources:
            raise TrafficNotApplied("traffic.unknown_pool", f"router {self.name} was not told the source pool of cell {cell}.")
        side = "b" if self._sources[cell] == pool else "c"
        names = backends_of(self._backends, cell)
        rows = self._admin.hosts((names.baseline, names.canary), deadline)
        return Drained(open_streams=sum(row.open_requests for row in rows if _side(row, names) == side))

    @understood
    def served(self, c: CellId, since: Cursor) -> Served:
        """Count requests started at or after `since.since`, by the server that answered; pinned ones (probes, shadow) count nowhere.

        Raises:
            TrafficNotApplied: traffic.not_shown where the log cannot be read.
        """
        return served_by_log(self.name, self._logs, checked_cell(c), since.since)

    def set_shadow(self, c: CellId, share: float) -> None:
        """Let Envoy mirror a share (0 to 1) of a cell's requests to the collector; 0 stops it.

        Raises:
            TrafficNotApplied: traffic.router_down, traffic.unknown_cell, traffic.not_shown (also where none of its routes would mirror).
        """
        deadline = Deadline()
        cell = checked_cell(c)
        if not 0 <= share <= 1:
            raise TrafficNotApplied("traffic.not_shown", f"cell {cell}: a mirrored share of {share} is not within 0 to 1.")
        self._standing(cell, deadline)
        if share and not self._can_mirror(cell, deadline):
            text = f"router {self.name}: no route of cell {cell} has a mirror policy by the runtime key {shadow_key(cell)}."
            raise TrafficNotApplied("traffic.not_shown", text, hint="Add it as docs/how-to/envoy-router.md says, or leave out shadow")
        self._admin.modify({shadow_key(cell): str(round(share * _MILLION))}, deadline)

    def _counts_turns(self, deadline: Deadline) -> bool:
        """Tell whether requests without a key take turns here; asked once. Where nobody can tell, they do not."""
        if self._turns is None:
            with suppress(TrafficNotApplied):
                self._turns = self._admin.is_configured(TURN_HEADER, deadline)
        return bool(self._turns)

    def _can_mirror(self, cell: CellId, deadline: Deadline) -> bool:
        """Tell whether its configuration mirrors a cell's requests, as it said within the last minute."""
        known, at = self._mirrors.get(cell, (False, -MIRROR_S))
        if time.monotonic() - at >= MIRROR_S:
            known = self._admin.mirrors(cell, deadline)
            self._mirrors[cell] = known, time.monotonic()
        return known

    def _standing(self, cell: CellId, deadline: Deadline) -> Standing:
        names = self._backends.get(cell)
        values = self._admin.runtime(deadline)
        found = standing_of(cell, values, baseline=names.baseline if names else "", canary=names.canary if names else "")
        if found is None:
            key = weight_key(backends_of(self._backends, cell).canary)
            text = f"router {self.name} does not route cell {cell}: its runtime has no key {key}."
            raise TrafficNotApplied("traffic.unknown_cell", text, hint="Run: fleetctl inventory")
        return found

    def _file(self, cell: CellId, wanted: Standing, limit_s: float, *, is_fence: bool = False) -> str:
        if self._file_path is None:
            return ""
        path = self._file_path

        def in_step() -> None:  # somebody fenced us off meanwhile, and could not write beside us
            shown = self._standing(cell, Deadline())
            if shown.token > wanted.token:
                write_standing(path, cell, shown, floor=wanted.token)

        return self._late.write(cell, lambda: write_standing(path, cell, wanted, is_fence=is_fence), limit_s, in_step)


def replicas_of(connection: Connection, backends: Mapping[CellId, Backends]) -> Replicas:
    """Return what lists a side's own servers (no spares) over the admin interface."""
    admin = Admin(connection.settings.get("admin", ""), connection.name)

    def listed(c: CellId, arm: Arm, deadline: Deadline) -> tuple[Replica, ...]:
        names = backends_of(backends, c)
        rows = admin.hosts((names.baseline if arm == "baseline" else names.canary,), deadline)
        return tuple(Replica(name=row.name, is_up=row.is_up) for row in rows if not row.is_spare)

    return listed


def _side(row: HostRow, names: Backends) -> str:
    """Return on whose account a server's open requests are: a spare of the target's cluster is the source's."""
    return "b" if row.cluster == names.baseline or row.is_spare else "c"


def _shown(cell: CellId, standing: Standing) -> Split:
    return as_split(cell, standing.bp, standing.cap_bp, standing.token, standing.lease_ms)
