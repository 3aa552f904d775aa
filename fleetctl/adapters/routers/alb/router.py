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
from fleetctl.adapters.routers.alb.wire import Elb, is_about_stickiness
from fleetctl.adapters.routers.marks import LONGEST_ANSWER_S, Floors, Mark, read_mark, read_token, still_open
from fleetctl.adapters.routers.odd import understood
from fleetctl.adapters.routers.open_writes import READ_BACK_S, TAKE_BACK_S, ended
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
LOOKS = 2
"""Calls that tell how a rule stands: its actions and its tags."""
LOOK_S = 5.0
"""How often a cell is looked at, at most: AWS gives few looks for all cells of an account and Region."""
COUNTED_S = 300.0
"""CloudWatch tells whole minutes, and some minutes late. Source: AWS, CloudWatch metrics for your Application Load Balancer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Standing:
    """A rule as it stands: its actions as AWS gave them, the weight of each target group, both sides' groups, the target's share, the mark.

    Args:
        canary: "" where it was taken out to come home; tag: the mark as it is written there.
        odd: why it is no plain split; lost: what its mark has lost.
    """

    actions: tuple[dict[str, Any], ...]
    groups: Mapping[str, int]
    baseline: str
    canary: str
    bp: int
    mark: Mark
    tag: str
    odd: str = ""
    lost: str = ""

    @property
    def others(self) -> dict[str, int]:
        """Weights of groups that are neither side, which are somebody else's."""
        return {arn: weight for arn, weight in self.groups.items() if arn not in (self.baseline, self.canary)}

    @property
    def is_sticky(self) -> bool:
        """Whether the load balancer keeps clients to their group by a cookie."""
        found = [a.get("ForwardConfig") or {} for a in self.actions if a.get("Type") == "forward"]
        return any((config.get("TargetGroupStickinessConfig") or {}).get("Enabled") is True for config in found)


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
        self._floors = Floors()
        self._sticky_s = _number(connection, "sticky_s", 0.0, 604_800.0)
        self._longest_s = _number(connection, "longest_answer_s", LONGEST_ANSWER_S, 86_400.0)

    def capabilities(self) -> RouterCapabilities:
        """Tell what this router can do; `switch_ms` is the slowest of the last 20 sets, from the order to the read-back."""
        return RouterCapabilities(
            switch_ms=max(self._took_ms, default=None),
            streaming=True,
            mirror=False,
            fence="single_writer",
            served_s=COUNTED_S,
            tells="counts",
            look_s=LOOK_S,
            keeps=self._sticky_s > 0,
        )

    @understood
    def read(self, c: CellId) -> Split:
        """Return what the rule forwards by now; a foreign weight above the cap is shown with the cap raised to it.

        Raises:
            TrafficNotApplied: traffic.router_down, traffic.throttled, traffic.unknown_cell, traffic.not_shown.
        """
        cell, deadline = checked_cell(c), Deadline()
        with self._elb.turn(self._arn(cell), LOOKS, deadline):
            return _shown(cell, self._standing(cell, deadline))

    @understood
    def fence(self, c: CellId, token: Token) -> Split | Stale:
        """Raise the floor to `token` and return what stands; Stale unless token > floor or this very fence was ours.

        Raises:
            TrafficNotApplied: traffic.router_down, traffic.throttled, traffic.unknown_cell, traffic.not_shown.
        """
        cell, wanted, deadline = checked_cell(c), natural("token", token), Deadline()
        with self._elb.turn(self._arn(cell), LOOKS, deadline):
            standing = self._standing(cell, deadline)
        if wanted <= standing.mark.token:
            if wanted == standing.mark.token and self._fencing.get(cell) == wanted:
                return _shown(cell, standing)
            self._fencing.pop(cell, None)
            return Stale(cell=cell, seen=Token(standing.mark.token))
        self._elb.tag(self._arn(cell), TOKEN_TAG, str(wanted), deadline)
        self._fencing[cell] = token
        return _shown(cell, replace(standing, mark=replace(standing.mark, token=wanted)))  # AWS took it: a look more would be one too many

    @understood
    def set(self, s: Split) -> Applied | Stale:
        """Set split, cap and lease, then read back. At 0 the load balancer's stickiness is off too, else it would keep clients there.

        A share between two weights that the load balancer can hold is refused where it raises, and becomes the lower one where it lowers:
        nothing holds up going home. A raise whose lease cannot be written is none; one that is not shown is taken back in the same call.

        Raises:
            TrafficNotApplied: traffic.router_down, traffic.throttled, traffic.unknown_cell, traffic.not_shown, traffic.refused,
                traffic.unrealisable.
        """
        deadline = Deadline()
        cell = checked_cell(s.cell)
        with self._elb.turn(self._arn(cell), 2 * LOOKS, deadline):
            standing = self._standing(cell, deadline)
            if standing.mark.token != s.token:
                return Stale(cell=cell, seen=Token(standing.mark.token))
            if s.target_bp > standing.bp:
                return self._raised(cell, s, standing, deadline)
            s = replace(s, target_bp=s.target_bp - s.target_bp % STEP_BP)
            return self._set(cell, s, standing, deadline)

    def _raised(self, cell: CellId, s: Split, standing: _Standing, deadline: Deadline) -> Applied | Stale:
        """Raise what may be, its lease first; what AWS does not show is taken back."""
        if s.target_bp % STEP_BP:
            text = f"cell {cell}: an ALB can hold shares in steps of {STEP_BP / 100:g} %, not {s.target_bp / 100:g} %."
            raise TrafficNotApplied("traffic.unrealisable", text, hint="Mend the steps in the fleet file.")
        if why := self._refusal(standing, deadline):
            raise _odd(cell, why, "traffic.refused" if not (standing.odd or standing.lost) else "traffic.not_shown")
        if deadline.left_s() < RAISE_S:
            text = f"router {self.name}: AWS answers too slowly to raise cell {cell} and look what became of it."
            raise TrafficNotApplied("traffic.router_down", text, hint="Run: fleetctl doctor")
        self._elb.tag(self._arn(cell), TAG, str(self._mark(s, standing)), deadline)
        try:
            return self._set(cell, s, standing, Deadline(max(0.0, deadline.left_s() - TAKE_BACK_S)))
        except TrafficNotApplied as e:
            raise TrafficNotApplied(e.code, f"{e.message} {self._taken_back(cell, s, standing, deadline)}", hint=e.hint) from e

    def _taken_back(self, cell: CellId, s: Split, before: _Standing, deadline: Deadline) -> str:
        """Write what stood before a raise that was not shown, whatever is read: what AWS answers may be older. Return that in words."""
        try:
            if self._standing(cell, deadline).mark.token != s.token:
                return "A newer writer is there."
            self._elb.forward(self._arn(cell), [_kept(action) for action in before.actions], deadline)
        except TrafficNotApplied as e:
            return f"It may stand: {e.message}"
        return f"{before.bp / 100:g} % stand again."

    def _mark(self, s: Split, standing: _Standing) -> Mark:
        changed_ms = standing.mark.changed_ms if s.target_bp == standing.bp else epoch_ms(self._now())
        return Mark(cap_bp=s.cap_bp, token=standing.mark.token, lease_ms=epoch_ms(s.lease_until), changed_ms=changed_ms)

    def _set(self, cell: CellId, s: Split, standing: _Standing, deadline: Deadline) -> Applied | Stale:
        started, arn, mark, is_raise = time.monotonic(), self._arn(cell), self._mark(s, standing), s.target_bp > standing.bp
        before, reported = self._elb.open_writes(arn), ""
        if s.target_bp != standing.bp or (not s.target_bp and standing.is_sticky):
            reported = self._forward(cell, standing, s.target_bp, deadline, lambda: self._late(cell, s, standing.bp))
        if before:
            self._after(before, cell, s, deadline)
        if not is_raise and str(mark) != standing.tag:
            try:
                self._elb.tag(arn, TAG, str(mark), deadline)
            except TrafficNotApplied as e:
                if s.target_bp:
                    raise
                reported = "; ".join(filter(None, (reported, f"at 0 %, but its tag is not written: {e.message}")))
        shown = self._until_shown(cell, s, deadline, is_odd=bool(standing.others))
        if shown.mark.token > s.token:
            if shown.bp == s.target_bp > 0:  # somebody fenced us off in between, and our word came last: then the last word is home
                self._forward(cell, shown, 0, deadline)
            return Stale(cell=cell, seen=Token(shown.mark.token))
        self._took_ms.append((time.monotonic() - started) * 1_000)
        return Applied(split=rounded(replace(s, target_bp=shown.bp)), reported=reported)

    def _until_shown(self, cell: CellId, s: Split, deadline: Deadline, *, is_odd: bool) -> _Standing:
        """Read back until it is shown or a newer writer is there: what AWS answers may be older than what it has taken.

        Raises:
            TrafficNotApplied: traffic.not_shown.
        """
        while True:
            shown = self._standing(cell, deadline)
            if shown.mark.token > s.token or shown.bp == s.target_bp or (is_odd and shown.bp <= s.target_bp):
                return shown
            if deadline.left_s() < READ_BACK_S:
                text = f"router {self.name} shows {shown.bp} bp for cell {cell} after {s.target_bp} bp were set: others write there."
                raise TrafficNotApplied("traffic.not_shown", text, hint="Run: fleetctl status")
            time.sleep(0.1)

    def _refusal(self, standing: _Standing, deadline: Deadline) -> str:
        """Say why a weight is not raised, "" where nothing speaks against it. Raises TrafficNotApplied, where AWS cannot be asked."""
        if standing.odd or standing.lost:
            return standing.odd or standing.lost
        for group in (standing.baseline, standing.canary):
            if self._elb.sticky(group, deadline):
                return f"target group {_name(group)} has stickiness of its own, beside which AWS lets no weight go home: turn it off there"
        free = datetime.fromtimestamp(standing.mark.changed_ms / 1_000, UTC) + timedelta(seconds=self._sticky_s)
        if self._sticky_s and standing.mark.changed_ms and not standing.is_sticky and self._now() < free:
            return (
                f"clients of the weight before may hold its cookie until {free:%Y-%m-%d %H:%M:%S}Z, and all of them would come back at once"
            )
        return ""

    @understood
    def refusal(self, c: CellId) -> str:
        """Say why no weight of a cell would be raised as its rule stands, "" where nothing speaks against it; asks, changes nothing.

        Raises:
            TrafficNotApplied: traffic.router_down, traffic.throttled, traffic.unknown_cell, traffic.not_shown.
        """
        deadline = Deadline()
        return self._refusal(self._standing(checked_cell(c), deadline), deadline)

    def _forward(self, cell: CellId, standing: _Standing, bp: int, deadline: Deadline, late: Callable[[], None] = lambda: None) -> str:
        """Write a share; where a target group's own stickiness forbids what lowers it, the next best. Return what could not be done."""
        try:
            self._elb.forward(self._arn(cell), self._actions(standing, bp), deadline, late)
        except TrafficNotApplied as e:
            if bp > standing.bp or not is_about_stickiness(e):
                raise
            self._elb.forward(self._arn(cell), self._actions(standing, bp, is_whole=False), deadline, late)
            return f"a target group of {cell} is sticky by itself: " + (
                "its cookies hold clients there" if bp else "it is out of the rule now"
            )
        return ""

    def _after(self, before: Sequence[threading.Event], cell: CellId, s: Split, deadline: Deadline) -> None:
        """Have the last word: wait for changes of ours whose answers nobody waited for, and say ours again where one came after it.

        Raises:
            TrafficNotApplied: traffic.not_shown, one may still come; what was asked for now stands until then.
        """
        ended(before, deadline, f"router {self.name}: a change of cell {cell}")
        standing = self._standing(cell, deadline)
        if standing.bp != s.target_bp and standing.mark.token == s.token:
            self._forward(cell, standing, s.target_bp, deadline, lambda: self._late(cell, s, standing.bp))

    def _late(self, cell: CellId, s: Split, before_bp: int) -> None:
        """Take a change back that came when nobody waited for it any more: a raise, and where somebody had fenced us off, all of it."""
        deadline = Deadline()
        standing = self._standing(cell, deadline)
        if standing.mark.token > s.token and standing.bp > 0:
            self._forward(cell, standing, 0, deadline)
        elif standing.mark.token == s.token and standing.bp == s.target_bp > before_bp:
            self._forward(cell, standing, before_bp, deadline)

    @understood
    def drain(self, c: CellId, pool: PoolId, token: Token) -> Drained | Stale:
        """Tell whether that side can still hold an open request: 1 until the longest answer has passed since it got its last one, else 0.

        Raises:
            TrafficNotApplied: traffic.router_down, traffic.throttled, traffic.unknown_cell, traffic.unknown_pool where the cell's source
                pool is not known.
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
            TrafficNotApplied: traffic.router_down, traffic.throttled, traffic.unknown_cell, traffic.not_shown.
        """
        cell, deadline = checked_cell(c), Deadline()
        with self._elb.turn(self._arn(cell), LOOKS, deadline):
            standing = self._standing(cell, deadline)
        whole = since.since.replace(second=0, microsecond=0)
        start = whole if whole == since.since else whole + MINUTE
        end = self._now() + MINUTE
        counts = {arn: self._elb.requests(arn, start, end, deadline) for arn in (standing.baseline, standing.canary) if arn}
        canary = counts.get(standing.canary, {})
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
        tags = self._elb.tags(arn, deadline)
        mark, lost = self._known(cell, tags)
        names = self._backends.get(cell)
        baseline = _pick(cell, groups, names.baseline if names else "", "-baseline")
        if len(groups) == 1 and mark.changed_ms:  # we took the other one out to come home
            text = "the target's group was taken out to come home: put it back with weight 0"
            found = _Standing(actions=actions, groups=groups, baseline=baseline, canary="", bp=0, mark=mark, tag=tags.get(TAG, ""))
            return replace(found, odd=text, lost=lost)
        canary = _pick(cell, groups, names.canary if names else "", "-canary")
        others = [arn for arn, weight in groups.items() if weight and arn not in (baseline, canary)]
        odd = f"it forwards to {_name(others[0])} too, which is neither side" if others else ""
        total = sum(groups.values())
        odd = odd or ("" if total else "both weights are 0")
        bp = round(groups[canary] * FULL_BP / total) if total else 0
        found = _Standing(actions=actions, groups=groups, baseline=baseline, canary=canary, bp=bp, mark=mark, tag=tags.get(TAG, ""))
        return replace(found, odd=odd, lost=lost)

    def _known(self, cell: CellId, tags: Mapping[str, str]) -> tuple[Mark, str]:
        """Return the mark that both tags make, and what they have lost."""
        mark, fenced = read_mark(tags.get(TAG, "")), read_token(tags.get(TOKEN_TAG, ""))
        has = frozenset(name for name, held in ((f"tag {TAG}", mark.token), (f"tag {TOKEN_TAG}", fenced)) if held)
        torn = frozenset({f"tag {TOKEN_TAG}"} if mark.token and not fenced else ())
        return self._floors.look(cell, replace(mark, token=max(mark.token, fenced)), has, torn)

    def _actions(self, standing: _Standing, bp: int, *, is_whole: bool = True) -> list[dict[str, Any]]:
        """Return the rule's actions with other weights; what else it does (such as signing in) stays, and what others route to.

        Cookies hold clients only while a weight is on its way up: lowered, the weight alone says who goes where; at 100 % too.

        Args:
            is_whole: else as far as target groups that are sticky by themselves let it: with cookies, at 0 without the target's group.
        """
        weights = _weights(standing, bp)
        is_sticky = bool(self._sticky_s) and 0 < bp < FULL_BP and bp >= standing.bp
        if not is_whole and bp:
            is_sticky = True
        elif not is_whole:
            weights.pop(standing.canary, None)
        sticky: dict[str, Any] = {"Enabled": is_sticky}
        if is_sticky:
            sticky["DurationSeconds"] = int(self._sticky_s) or 1
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


def _weights(standing: _Standing, bp: int) -> dict[str, int]:
    """Return the weight of each target group for a share of the target; those of others stay."""
    if not standing.canary:
        return dict(standing.groups)
    others = standing.others
    if not any(others.values()):
        share = bp // STEP_BP
        return {standing.canary: min(share, WEIGHT_MOST), standing.baseline: min(1_000 - share, WEIGHT_MOST), **others}
    total = sum(standing.groups.values())
    canary = bp * total // FULL_BP
    baseline = standing.groups[standing.baseline] + standing.groups[standing.canary] - canary
    return {standing.canary: canary, standing.baseline: min(baseline, WEIGHT_MOST), **others}


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


def _odd(cell: CellId, why: str, code: str = "traffic.not_shown") -> TrafficNotApplied:
    return TrafficNotApplied(code, f"the rule of cell {cell} cannot be used: {why}.", hint="Run: fleetctl doctor")


def _shown(cell: CellId, standing: _Standing) -> Split:
    return as_split(cell, standing.bp, standing.mark.cap_bp, standing.mark.token, standing.mark.lease_ms)
