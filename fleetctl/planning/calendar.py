"""Plan, pure layer: waves in time: overlapping soaks, freeze windows, what is given back when, what both sides cost. Never I/O.

start of a wave   when the wave before has its last cell in soak (as `fleetctl migrate` goes on) and the new VMs of its targets can be
                  ready (as long as it took last time), never inside a freeze window
end of a step     its planned hours later; where that is inside a freeze window, the window's end (a freeze binds advance alone)
                  a later stage's first wave: when every soak of the stages before is over, since their sources are released first
release of VMs    of a source pool: after the soak of the stage's last wave that takes a cell from it
both sides        VMs that come are paid for from the start of a stage's first wave (no freeze window is open), less the time in which
                  they get ready; VMs that go until their release, and a freeze that holds a step holds that too
on top            the most that the bill so far has been above today's: VMs that came less VMs given back, hour by hour
payback           that / what an hour saves in the end; and the moment from which the bill so far is below today's
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import ROUND_HALF_UP, Decimal
from itertools import pairwise
from types import MappingProxyType

from fleetctl.domain.calendar import Calendar, ReadyTime, Release, WaveDates
from fleetctl.domain.fleet import FreezeWindow
from fleetctl.domain.ids import CellId, PoolId
from fleetctl.domain.plan import Outcome, StepNeed, Wave
from fleetctl.domain.units import Instant, Money
from fleetctl.planning.cost import CENT, PoolCost

AFTER_SOAK = frozenset({"soak", "complete", "release"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Times:
    """When one cell of a wave is in soak and has it behind it."""

    soak: Instant
    end: Instant
    waits: tuple[str, ...]


def make_calendar(
    waves: Sequence[Wave],
    outcomes: Mapping[CellId, Outcome],
    needs: Mapping[CellId, tuple[StepNeed, ...]],
    stages: Sequence[Sequence[PoolCost]],
    freeze: Sequence[FreezeWindow],
    now: Instant,
    *,
    saving: Decimal,
    deadline: Instant | None = None,
    ready: Mapping[PoolId, ReadyTime] = MappingProxyType({}),
) -> tuple[Calendar | None, Money, Money]:
    """Return the waves in time (None where nothing moves), what both sides cost, and what of it comes on top of today's bill.

    Args:
        needs: per moving cell, its steps (finite); stages: VMs before and after each, with prices; saving: USD per hour in the end.
        ready: how long a pool's hosts took from bare to ready, where that was measured.
    """
    if not waves:
        return None, _money(Decimal(0)), _money(Decimal(0))
    dates: list[WaveDates] = []
    cursor, over, ends = now, now, dict[CellId, Instant]()
    stage, released, begins, paid_from = 1, tuple[PoolId, ...](), {1: now}, dict[int, Instant]()
    coming_up = {n: _coming_up(pools, ready) for n, pools in enumerate(stages, start=1)}
    for wave in waves:
        if wave.stage > stage:
            released = tuple(sorted({p.pool for pools in stages[: wave.stage - 1] for p in pools if _more(p) < 0}))
            cursor = max(cursor, over)
            begins[wave.stage], stage = cursor, wave.stage
        targets = {outcomes[cell].target for cell in wave.cells}
        lead = timedelta(seconds=max((t.seconds for p, t in coming_up[stage].items() if p in targets), default=0.0))
        start, waits = _thawed(max(cursor, begins[stage] + lead), freeze)
        paid_from.setdefault(stage, start - lead)
        known: dict[int, _Times] = {}
        for cell in wave.cells:
            key = id(needs[cell])
            if key not in known:
                known[key] = _walk(start, needs[cell], freeze)
            ends[cell] = known[key].end
        names = tuple(dict.fromkeys((*waits, *(name for t in known.values() for name in t.waits))))
        soak, end = max(t.soak for t in known.values()), max(t.end for t in known.values())
        dates.append(WaveDates(index=wave.index, start=start, soak=soak, end=end, waits=names, after=released))
        cursor, over = soak, max(over, end)
    releases, flows, going = _both_sides(list(zip(waves, dates, strict=True)), stages, paid_from, outcomes)
    extra, earned = _on_top(flows)
    calendar = Calendar(
        start=dates[0].start,
        end=max(d.end for d in dates),
        waves=tuple(dates),
        releases=releases,
        validation=_money(_validation(outcomes, needs)),
        payback_hours=round(float(extra / saving), 2) if saving > 0 else None,
        payback_at=earned if saving > 0 else None,
        deadline=deadline,
        ready=tuple(sorted({t for found in coming_up.values() for t in found.values()}, key=lambda t: t.pool)),
        late=tuple(sorted(c for c, end in ends.items() if deadline is not None and end > deadline)),
    )
    return calendar, _money(extra + going), _money(extra)


def _both_sides(
    dated: Sequence[tuple[Wave, WaveDates]],
    stages: Sequence[Sequence[PoolCost]],
    paid_from: Mapping[int, Instant],
    outcomes: Mapping[CellId, Outcome],
) -> tuple[tuple[Release, ...], list[tuple[Instant, Decimal]], Decimal]:
    """Return what is given back when, each change of the bill (when, USD per hour), and the USD of VMs that go until they are released."""
    releases, flows, going = list[Release](), list[tuple[Instant, Decimal]](), Decimal(0)
    for number, begin in paid_from.items():
        mine = [(w, d) for w, d in dated if w.stage == number]
        by_pool = {p.pool: p for p in stages[number - 1]}
        targets = dict.fromkeys(t for w, _ in mine for c in w.cells if (t := outcomes[c].target) is not None)
        given_back = _releases(by_pool, mine, outcomes)
        flows += [(begin, _usd(by_pool[p], max(0, _more(by_pool[p])))) for p in targets]
        flows += [(r.at, -_usd(by_pool[r.pool], r.vms)) for r in given_back]
        going += sum((_usd(by_pool[r.pool], r.vms) * _hours(r.at - begin) for r in given_back), Decimal(0))
        releases += given_back
    return tuple(releases), flows, going


def _on_top(flows: Iterable[tuple[Instant, Decimal]]) -> tuple[Decimal, Instant | None]:
    """Return the most USD by which the bill so far is above today's, and from when on it stays below; None where it never does."""
    ordered = sorted(flows, key=lambda f: f[0])
    rate, so_far, most, earned = Decimal(0), Decimal(0), Decimal(0), None
    for (at, change), (until, _) in pairwise([*ordered, (ordered[-1][0], Decimal(0))] if ordered else []):
        rate += change
        before, so_far = so_far, so_far + rate * _hours(until - at)
        most = max(most, so_far)
        if so_far > 0:
            earned = None
        elif before > 0:
            earned = at + _span(before / -rate)
    if so_far > 0 and rate < 0:
        earned = ordered[-1][0] + _span(so_far / -rate)
    return most, None if rate > 0 else earned


def _hours(span: timedelta) -> Decimal:
    return Decimal(str(round(span.total_seconds() / 3600, 6)))


def _span(hours: Decimal) -> timedelta:
    return timedelta(seconds=round(min(float(hours), 24 * 365 * 1000) * 3600))


def _coming_up(pools: Sequence[PoolCost], ready: Mapping[PoolId, ReadyTime]) -> dict[PoolId, ReadyTime]:
    """Return what was measured of the pools that get more VMs."""
    return {p.pool: ready[p.pool] for p in pools if p.pool in ready and _more(p) > 0}


def _walk(start: Instant, steps: Iterable[StepNeed], freeze: Sequence[FreezeWindow]) -> _Times:
    at, soak, waits = start, None, list[str]()
    for step in steps:
        if step.phase in AFTER_SOAK and soak is None:
            soak = at
        at, names = _thawed(at + timedelta(hours=step.hours), freeze)
        waits += names
    return _Times(soak=soak if soak is not None else at, end=at, waits=tuple(waits))


def _thawed(at: Instant, freeze: Sequence[FreezeWindow]) -> tuple[Instant, tuple[str, ...]]:
    """Return the first moment from `at` on in which something may advance, and the windows in between."""
    names = []
    for window in sorted(freeze, key=lambda w: w.start):
        if window.start <= at < window.end:
            at = window.end
            names.append(window.name)
    return at, tuple(names)


def _releases(
    pools: Mapping[PoolId, PoolCost], mine: Sequence[tuple[Wave, WaveDates]], outcomes: Mapping[CellId, Outcome]
) -> list[Release]:
    last: dict[PoolId, tuple[Instant, int]] = {}
    for wave, when in mine:
        for cell in wave.cells:
            source = outcomes[cell].source
            last[source] = max((when.end, wave.index), last.get(source, (when.end, wave.index)))
    found = (
        Release(pool=name, vms=-_more(pools[name]), wave=wave, at=at)
        for name, (at, wave) in last.items()
        if name in pools and _more(pools[name]) < 0
    )
    return sorted(found, key=lambda r: (r.at, r.pool))


def _more(pool: PoolCost) -> int:
    return pool.vms_then - pool.vms_now


def _usd(pool: PoolCost, vms: int) -> Decimal:
    return Decimal(0) if pool.price is None else vms * pool.price.amount


def _validation(outcomes: Mapping[CellId, Outcome], needs: Mapping[CellId, tuple[StepNeed, ...]]) -> Decimal:
    total = Decimal(0)
    for cell, steps in needs.items():
        then = outcomes[cell].cost_then
        if then is not None:
            total += then.amount * Decimal(str(round(sum(s.hours for s in steps if s.weight_bp == 0), 6)))
    return total


def _money(amount: Decimal) -> Money:
    return Money(amount=amount.quantize(CENT, ROUND_HALF_UP))
