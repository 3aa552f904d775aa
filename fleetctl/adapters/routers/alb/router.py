"""Traffic, adapter layer: the Router over a listener or rule of an Application Load Balancer. Never decides a weight.

The rule forwards to two target groups by weight; Terraform creates it and leaves its weights alone. Cap, token and lease stand in one
tag of the rule. Nothing there compares, so this is a single writer: the tag is read again right before each write.
What the load balancer does not tell: which requests are open. They count as open until the longest answer is over.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from fleetctl.adapters.deadline import Deadline
from fleetctl.adapters.routers.alb.wire import Elb
from fleetctl.adapters.routers.marks import LONGEST_ANSWER_S, Mark, read_mark, read_token, still_open
from fleetctl.adapters.routers.odd import understood
from fleetctl.adapters.routers.open_writes import ended
from fleetctl.adapters.routers.route import Backends
from fleetctl.adapters.routers.splits import as_split, checked_cell, epoch_ms, natural, rounded
from fleetctl.domain.evidence import Cursor
from fleetctl.domain.fleet import Connection
from fleetctl.domain.ids import CellId, PoolId, Token
from fleetctl.domain.split import Applied, Drained, RouterCapabilities, Served, Split, Stale
from fleetctl.domain.units import FULL_BP, Instant
from fleetctl.errors import ConfigInvalid, TrafficNotApplied

TAG, TOKEN_TAG = "fleetctl:split", "fleetctl:token"
"""Whoever fences writes the token alone, whoever sets never writes it: so neither undoes what the other has just done."""
STEP_BP = 10
"""Smallest step of a weight. Source: a weight is a whole number from 0 to 999, and two of them share 1,000 (AWS ELB, forward actions)."""
WEIGHT_MOST = 999
MINUTE = timedelta(minutes=1)
RAISE_S = 2.0
"""A raise is not begun with less time than that: it would come when nobody looks any more. Going home always is."""
COUNTED_S = 300.0
"""CloudWatch tells whole minutes, and some minutes late. Source: AWS, CloudWatch metrics for your Application Load Balancer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Standing:
    """A rule as it stands: its actions as AWS gave them, both target groups, the target's share, the mark, and why it is no plain split."""

    actions: tuple[dict[str, Any], ...]
    baseline: str
    canary: str
    bp: int
    mark: Mark
    odd: str = ""


class AlbRouter:
    """Splits cells through one load balancer.

    Args:
        connection: setting `rule` (ARN of a listener or a rule; `rule.CELL` where several cells share the connection),
            `longest_answer_s`, `sticky_s` (0 or more: how long a client keeps its side, by the load balancer's own cookie).
        elb: the load balancer's API.
        backends: names of the target groups; without them those whose names end in -baseline and -canary.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        elb: Elb,
        now: Callable[[], Instant] = lambda: datetime.now(UTC),
        sources: Mapping[CellId, PoolId] | None = None,
        backends: Mapping[CellId, Backends] | None = None,
    ) -> None:
        self.name = connection.name
        self._settings = connection.settings
        self._elb = elb
        self._now = now
        self._sources = dict(sources or {})
        self._backends = dict(backends or {})
        self._took_ms: deque[float] = deque(maxlen=20)
        self._fencing: dict[CellId, Token] = {}
        self._sticky_s = _number(connection, "sticky_s", 0.0, 604_800.0)
        self._longest_s = _number(connection, "longest_answer_s", LONGEST_ANSWER_S, 86_400.0)

    def capabilities(self) -> RouterCapabilities:
        """Tell what this router can do; `switch_ms` is the slowest of the last 20 sets, from the order to the read-back."""
        return RouterCapabilities(
            switch_ms=max(self._took_ms, default=None), streaming=True, mirror=False, fence="single_writer", served_s=COUNTED_S
        )

    @understood
    def read(self, c: CellId) -> Split:
        """Return what the rule forwards by now; a foreign weight above the cap is shown with the cap raised to it.

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
        cell, wanted, deadline = checked_cell(c), natural("token", token), Deadline()
        standing = self._standing(cell, deadline)
        if wanted <= standing.mark.token:
            if wanted == standing.mark.token and self._fencing.get(cell) == wanted:
                return _shown(cell, standing)
            self._fencing.pop(cell, None)
            return Stale(cell=cell, seen=Token(standing.mark.token))
        self._elb.tag(self._arn(cell), TOKEN_TAG, str(wanted), deadline)
        self._fencing[cell] = token
        return _shown(cell, self._standing(cell, deadline))

    @understood
    def set(self, s: Split) -> Applied | Stale:
        """Set split, cap and lease, then read back. At 0 the load balancer's stickiness is off too, else it would keep clients there.

        A share between two weights that the load balancer can hold is refused where it raises, and becomes the lower one where it lowers:
        nothing holds up going home.

        Raises:
            TrafficNotApplied: traffic.router_down, traffic.unknown_cell, traffic.not_shown, traffic.unrealisable.
        """
        started, deadline = time.monotonic(), Deadline()
        cell = checked_cell(s.cell)
        standing = self._standing(cell, deadline)
        if standing.mark.token != s.token:
            return Stale(cell=cell, seen=Token(standing.mark.token))
        if s.target_bp > standing.bp and standing.odd:
            raise _odd(cell, standing.odd)
        if s.target_bp % STEP_BP:
            if s.target_bp > standing.bp:
                text = f"cell {cell}: an ALB can hold shares in steps of {STEP_BP / 100:g} %, not {s.target_bp / 100:g} %."
                raise TrafficNotApplied("traffic.unrealisable", text, hint="Mend the steps in the fleet file.")
            s = replace(s, target_bp=s.target_bp - s.target_bp % STEP_BP)
        arn = self._arn(cell)
        changed_ms = standing.mark.changed_ms if s.target_bp == standing.bp else epoch_ms(self._now())
        mark = Mark(cap_bp=s.cap_bp, token=standing.mark.token, lease_ms=epoch_ms(s.lease_until), changed_ms=changed_ms)
        if s.target_bp > standing.bp and deadline.left_s() < RAISE_S:
            text = f"router {self.name}: AWS answers too slowly to raise cell {cell} and look what became of it."
            raise TrafficNotApplied("traffic.router_down", text, hint="Run: fleetctl doctor")
        before = self._elb.open_writes(arn)
        if s.target_bp != standing.bp or standing.odd:
            self._elb.forward(arn, self._actions(standing, s.target_bp), deadline, lambda: self._late(cell, s.token))
        if before:
            self._after(before, cell, s, deadline)
        if mark != standing.mark:
            self._elb.tag(arn, TAG, str(mark), deadline)
        shown = self._standing(cell, deadline)
        if shown.mark.token > s.token:
            if shown.bp == s.target_bp > 0:  # somebody fenced us off in between, and our word came last: then the last word is home
                self._elb.forward(arn, self._actions(shown, 0), deadline)
            return Stale(cell=cell, seen=Token(shown.mark.token))
        if (shown.bp, shown.mark) != (s.target_bp, mark):
            text = (
                f"router {self.name} shows {shown.bp} bp for cell {cell} after {s.target_bp} bp were set: somebody else writes there too."
            )
            raise TrafficNotApplied("traffic.not_shown", text, hint="Run: fleetctl status")
        self._took_ms.append((time.monotonic() - started) * 1_000)
        return Applied(split=rounded(s))

    def _after(self, before: Sequence[threading.Event], cell: CellId, s: Split, deadline: Deadline) -> None:
        """Have the last word: wait for changes of ours whose answers nobody waited for, and say ours again where one came after it.

        Raises:
            TrafficNotApplied: traffic.not_shown, one may still come; what was asked for now stands until then.
        """
        ended(before, deadline, f"router {self.name}: a change of cell {cell}")
        standing = self._standing(cell, deadline)
        if standing.bp != s.target_bp and standing.mark.token == s.token:
            self._elb.forward(self._arn(cell), self._actions(standing, s.target_bp), deadline, lambda: self._late(cell, s.token))

    def _late(self, cell: CellId, token: Token) -> None:
        """Take a change back that came when nobody waited for it any more, where somebody had fenced us off: the last word is home."""
        deadline = Deadline()
        standing = self._standing(cell, deadline)
        if standing.mark.token > token and standing.bp > 0:
            self._elb.forward(self._arn(cell), self._actions(standing, 0), deadline)

    @understood
    def drain(self, c: CellId, pool: PoolId, token: Token) -> Drained | Stale:
        """Tell whether that side can still hold an open request: 1 until the longest answer has passed since it got its last one, else 0.

        Raises:
            TrafficNotApplied: traffic.router_down, traffic.unknown_cell, traffic.unknown_pool where the cell's source pool is not known.
        """
        cell = checked_cell(c)
        standing = self._standing(cell, Deadline())
        if standing.mark.token != token:
            return Stale(cell=cell, seen=Token(standing.mark.token))
        if cell not in self._sources:
            raise TrafficNotApplied("traffic.unknown_pool", f"router {self.name} was not told the source pool of cell {cell}.")
        share = standing.bp if self._sources[cell] != pool else FULL_BP - standing.bp
        return still_open(standing.mark, share, self._now(), self._longest_s)

    @understood
    def served(self, c: CellId, since: Cursor) -> Served:
        """Count requests by target group, in whole minutes that began at or after `since.since`: that is how CloudWatch counts.

        Raises:
            TrafficNotApplied: traffic.router_down, traffic.unknown_cell, traffic.not_shown.
        """
        cell, deadline = checked_cell(c), Deadline()
        standing = self._standing(cell, deadline)
        whole = since.since.replace(second=0, microsecond=0)
        start = whole if whole == since.since else whole + MINUTE
        end = self._now() + MINUTE
        counts = {arn: self._elb.requests(arn, start, end, deadline) for arn in (standing.baseline, standing.canary)}
        canary = counts[standing.canary]
        last = max((at for at, n in canary.items() if n), default=None)
        return Served(
            baseline=sum(counts[standing.baseline].values()),
            canary=sum(canary.values()),
            last_canary_start=None if last is None else last + MINUTE,
        )

    def _arn(self, cell: CellId) -> str:
        arn = self._settings.get(f"rule.{cell}") or self._settings.get("rule", "")
        if not arn:
            text = f"router {self.name} has no setting rule.{cell}, the ARN of the listener or rule that serves it."
            raise TrafficNotApplied("traffic.unknown_cell", text, hint="Correct the fleet file.")
        if cell not in self._sources and f"rule.{cell}" not in self._settings:
            raise TrafficNotApplied(
                "traffic.unknown_cell", f"router {self.name} does not route cell {cell}.", hint="Run: fleetctl inventory"
            )
        return arn

    def _standing(self, cell: CellId, deadline: Deadline) -> _Standing:
        arn = self._arn(cell)
        actions = self._elb.actions(arn, deadline)
        groups = _groups(actions)
        names = self._backends.get(cell)
        baseline = _pick(cell, groups, names.baseline if names else "", "-baseline")
        canary = _pick(cell, groups, names.canary if names else "", "-canary")
        others = [arn for arn, weight in groups.items() if weight and arn not in (baseline, canary)]
        odd = f"it forwards to {_name(others[0])} too, which is neither side" if others else ""
        total = sum(groups.values())
        odd = odd or ("" if total else "both weights are 0")
        bp = round(groups[canary] * FULL_BP / total) if total else 0
        tags = self._elb.tags(arn, deadline)
        mark = read_mark(tags.get(TAG, ""))
        mark = replace(mark, token=max(mark.token, read_token(tags.get(TOKEN_TAG, ""))))  # a fence that came late lowers no floor
        return _Standing(actions=actions, baseline=baseline, canary=canary, bp=bp, mark=mark, odd=odd)

    def _actions(self, standing: _Standing, bp: int) -> list[dict[str, Any]]:
        """Return the rule's actions with other weights; what else it does (such as signing in) stays."""
        share = bp // STEP_BP
        weights = {standing.canary: min(share, WEIGHT_MOST), standing.baseline: min(1_000 - share, WEIGHT_MOST)}
        sticky: dict[str, Any] = {"Enabled": bool(self._sticky_s) and bp > 0}
        if sticky["Enabled"]:
            sticky["DurationSeconds"] = int(self._sticky_s)
        forward = {
            "TargetGroups": [{"TargetGroupArn": arn, "Weight": weight} for arn, weight in weights.items()],
            "TargetGroupStickinessConfig": sticky,
        }
        kept = []
        for action in standing.actions:
            if action.get("Type") == "forward":
                order = {"Order": action["Order"]} if "Order" in action else {}
                kept.append({"Type": "forward", "ForwardConfig": forward, **order})
            else:
                kept.append(_kept(action))
        return kept


def _kept(action: dict[str, Any]) -> dict[str, Any]:
    """Return another action as it may be sent back: AWS never tells a client secret, and keeps the one that it has where asked to."""
    found = dict(action)
    if "AuthenticateOidcConfig" in found:
        config = {k: v for k, v in found["AuthenticateOidcConfig"].items() if k != "ClientSecret"}
        found["AuthenticateOidcConfig"] = {**config, "UseExistingClientSecret": True}
    return found


def _number(connection: Connection, key: str, default: float, most: float) -> float:
    text = connection.settings.get(key, "")
    try:
        found = float(text) if text else default
    except ValueError:
        found = -1.0
    if not 0 <= found <= most:
        text = f"router {connection.name}: {key} {text[:40]!r} is no number from 0 to {most:g}."
        raise ConfigInvalid("config.router", text, hint="Correct the fleet file.")
    return found


def _groups(actions: tuple[dict[str, Any], ...]) -> dict[str, int]:
    """Return the weight of each target group that a rule forwards to."""
    found: dict[str, int] = {}
    for action in actions:
        if action.get("Type") == "forward":
            listed = (action.get("ForwardConfig") or {}).get("TargetGroups") or []
            if not listed and action.get("TargetGroupArn"):
                listed = [{"TargetGroupArn": action["TargetGroupArn"], "Weight": 1}]
            for group in listed:
                found[str(group["TargetGroupArn"])] = int(group.get("Weight", 1))
    return found


def _name(arn: str) -> str:
    parts = arn.split("/")
    return parts[1] if len(parts) > 1 else arn


def _pick(cell: CellId, groups: Mapping[str, int], name: str, ending: str) -> str:
    fits = [arn for arn in groups if (_name(arn) == name if name else _name(arn).endswith(ending))]
    if len(fits) != 1:
        wanted = name or f"...{ending}"
        raise _odd(cell, f"{'no' if not fits else 'more than one'} target group {wanted} is among its targets")
    return fits[0]


def _odd(cell: CellId, why: str) -> TrafficNotApplied:
    return TrafficNotApplied("traffic.not_shown", f"the rule of cell {cell} cannot be used: {why}.", hint="Run: fleetctl doctor")


def _shown(cell: CellId, standing: _Standing) -> Split:
    return as_split(cell, standing.bp, standing.mark.cap_bp, standing.mark.token, standing.mark.lease_ms)
