"""Inventory, use case layer: ask every source, part by part and several at once; state what could not be told. Never changes a fleet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from datetime import timedelta
from threading import Event

from fleetctl.domain.merge import subject_of
from fleetctl.domain.people import Facts, Gap
from fleetctl.domain.scan import PartScan, Scan
from fleetctl.domain.units import Instant
from fleetctl.errors import FleetctlError
from fleetctl.ports.capacity import PartedDiscovery

WORKERS = 8
"""Parts asked at once: enough to hide waiting, few enough for a cloud's rate limits."""

Now = Callable[[], Instant]
OnPart = Callable[[PartScan], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """How to look.

    Args:
        fresh: a part that was seen whole within this time is not asked again; 0 asks all.
        only_gaps: ask only the parts that had gaps last time (and new ones).
    """

    fresh: timedelta = timedelta(0)
    only_gaps: bool = False
    workers: int = WORKERS


def scan_sources(
    sources: Sequence[PartedDiscovery],
    last: Scan | None,
    now: Now,
    request: ScanRequest | None = None,
    on: OnPart = lambda part: None,
) -> Scan:
    """Ask every part of every source; a part that fails becomes a gap, and what an earlier look saw there is kept and said so.

    Args:
        last: the look before; on: called in this thread as each part is done.
    """
    request = request or ScanRequest()
    at = now()
    before = {(p.source, p.part): p for p in last.parts} if last else {}
    stop = Event()
    pool = ThreadPoolExecutor(max_workers=request.workers, thread_name_prefix="scan")
    try:
        done, running = _begin(pool, sources, before, request, at, now, stop)
        for part_done in done:
            on(part_done)
        for finished in as_completed(running):
            done.append(finished.result())
            on(done[-1])
    except BaseException:  # a person's Ctrl-C above all: what has not begun never begins, what runs ends at its next fact
        stop.set()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
    done.sort(key=lambda p: (p.source, p.part))
    return Scan(number=0, at=at, parts=tuple(done))


def _begin(
    pool: ThreadPoolExecutor,
    sources: Sequence[PartedDiscovery],
    before: Mapping[tuple[str, str], PartScan],
    request: ScanRequest,
    at: Instant,
    now: Now,
    stop: Event,
) -> tuple[list[PartScan], list[Future[PartScan]]]:
    """Return the parts that need no asking, or whose source cannot name them, and those that are being asked."""
    done: list[PartScan] = []
    running: list[Future[PartScan]] = []
    listed = [pool.submit(_parts, source, now) for source in sources]
    for source, answer in zip(sources, listed, strict=True):
        parts = answer.result()
        if isinstance(parts, PartScan):
            mine = [old for (name, _), old in before.items() if name == source.name and old.facts]
            done += [_failed(parts if n == 0 else replace(parts, gaps=()), old) for n, old in enumerate(mine)] or [parts]
            continue
        for part in parts:
            old = before.get((source.name, part))
            if old is not None and _is_enough(old, request, at):
                done.append(replace(old, reused=True))
            else:
                running.append(pool.submit(_scan, source, part, old, now, stop))
    return done, running


def _is_enough(old: PartScan, request: ScanRequest, at: Instant) -> bool:
    whole = not old.gaps and old.kept_from is None
    return whole and (request.only_gaps or at - old.at < request.fresh)


def _parts(source: PartedDiscovery, now: Now) -> tuple[str, ...] | PartScan:
    try:
        return source.parts()
    except Exception as e:  # whatever breaks one source must not hide the others
        return PartScan(source=source.name, part="", at=now(), seconds=0.0, facts=(), gaps=(gap_of(e, source.name, source.name),))


def _scan(source: PartedDiscovery, part: str, old: PartScan | None, now: Now, stop: Event) -> PartScan:
    begin = now()
    facts: list[Facts] = []
    gaps: list[Gap] = []
    broken = False
    try:
        for found in source.scan(part):
            if stop.is_set():
                break
            if isinstance(found, Facts):
                facts.append(found)
            else:
                gaps.append(found)
    except Exception as e:  # as above
        gaps.append(gap_of(e, part or source.name, source.name))
        broken = True
    seconds = (now() - begin).total_seconds()
    seen = PartScan(source=source.name, part=part, at=begin, seconds=seconds, facts=tuple(facts), gaps=tuple(gaps))
    return _failed(seen, old) if broken and old is not None and old.facts else seen


def _failed(seen: PartScan, old: PartScan) -> PartScan:
    """Return the part with what an earlier look saw there, wherever this one did not come to it."""
    fresh = {subject_of(f) for f in seen.facts}
    kept = tuple(f for f in old.facts if subject_of(f) not in fresh)
    since = old.kept_from or old.at
    gaps = tuple(
        replace(g, scope=old.part or g.scope, reason=f"{g.reason}; shown as seen at {since:%Y-%m-%d %H:%M} UTC") for g in seen.gaps
    )
    return replace(seen, part=old.part, facts=(*seen.facts, *kept), gaps=gaps, kept_from=since)


def gap_of(error: Exception, scope: str, source: str) -> Gap:
    """Return what an error means for an inventory."""
    if isinstance(error, FleetctlError):
        return Gap(scope=scope, reason=error.message.rstrip("."), source=source, code=error.code, mend=error.hint)
    return Gap(scope=scope, reason=f"{type(error).__name__}: {error}"[:300], source=source, code="inventory.failed")


def silent(scan: Scan) -> bool:
    """Tell whether parts were asked this time, some failed, and not one told a fact."""
    asked = [part for part in scan.parts if not part.reused]
    return any(part.gaps for part in asked) and not any(f.seen_at >= scan.at for part in asked for f in part.facts)


def lacking_credentials(scan: Scan) -> tuple[Gap, ...]:
    """Return the gaps of the parts asked this time that only a credential can close."""
    return tuple(g for part in scan.parts if not part.reused for g in part.gaps if g.code.startswith("credentials."))
