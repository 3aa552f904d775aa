"""Judge, pure layer: what the judge remembers between looks, exact and versioned. Never a rule, never I/O.

Floats are written with the shortest text that reads back to the same number, keys are sorted: the same looks give the same bytes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil
from typing import Any

from fleetctl.analysis.eprocess import log_mean
from fleetctl.domain.evidence import Counts, Evidence, JudgeState

JUDGE_FORMAT = 1


@dataclass(slots=True, kw_only=True)
class FailBank:
    """One FAIL process: log-likelihoods per alternative since the rollout began, and a snapshot of them at each step's start."""

    llr: list[float]
    marks: list[list[float]]


@dataclass(slots=True, kw_only=True)
class PassBank:
    """One PASS process of this step: log-likelihoods per alternative, its highest log e-value, whether it has reached the bound."""

    llr: list[float]
    best: float = 0.0
    reached: bool = False


@dataclass(slots=True, kw_only=True)
class ArmSeen:
    """Counts of one arm that have been used already (cumulative since the step's cursor)."""

    attempts: int = 0
    errors: int = 0
    misses: int = 0
    mismatches: int = 0
    timed: int = 0
    ladders: dict[str, list[int]] = field(default_factory=dict)
    timed_of: dict[str, int] = field(default_factory=dict)
    shares: dict[str, tuple[int, int]] = field(default_factory=dict)

    def timed_for(self, metric: str) -> int:
        """Return the attempts that a metric's ladders were counted over."""
        return self.timed if metric == "latency" else self.timed_of.get(metric, 0)


@dataclass(slots=True, kw_only=True)
class ClusterWindow:
    """Errors of one arm per second of start: sums at the start of the open window and now."""

    errors_then: int = 0
    squares_then: float = 0
    errors: int = 0
    squares: float = 0


@dataclass(slots=True, kw_only=True)
class ClusterMemory:
    """What the design effect is computed from, over all steps.

    Args:
        spread: chance-corrected sum of squares of the closed windows; errors: in them; seconds: of both arms.
        opened, now: seconds since the step's cursor.
    """

    spread: float = 0.0
    errors: float = 0.0
    seconds: float = 0.0
    opened: float = 0.0
    now: float = 0.0
    windows: dict[str, ClusterWindow] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Stretch:
    """The newest stretch in which the canary has failed, by one alternative, and what the baseline did in it.

    Args:
        run: evidence of failing in it, falling with every good request; 0: it is over.
        n1, k1, n0, k0: attempts and errors of canary and baseline from its beginning to the last look with an error of the canary.
        more: canary attempts, baseline attempts and errors since that look.
    """

    run: float = 0.0
    n1: float = 0.0
    k1: float = 0.0
    n0: float = 0.0
    k0: float = 0.0
    more: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])


@dataclass(slots=True, kw_only=True)
class BreakerMemory:
    """The one-arm process: log capital per alternative (restarts folded in), canary attempts seen, whether it has tripped.

    Args:
        trip: the alternative by which it tripped, -1 while it has not; stretches: per alternative.
        baseline: attempts and errors of the baseline seen; is_shared: it was seen to fail too in the stretch in which it tripped.
    """

    capital: list[float] = field(default_factory=list)
    total: int = 0
    seen: int = 0
    peak: float = 0.0
    tripped: bool = False
    trip: int = -1
    baseline: list[int] = field(default_factory=lambda: [0, 0])
    stretches: list[Stretch] = field(default_factory=list)
    is_shared: bool = False


@dataclass(slots=True, kw_only=True)
class SuddenMemory:
    """What gets worse late: log capital per alternative (restarts folded in), restarts, canary requests since the last one."""

    capital: list[float] = field(default_factory=list)
    restarts: int = 0
    waited: int = 0


@dataclass(slots=True, kw_only=True)
class Memory:
    """All of it.

    Args:
        steps: how many steps share the FAIL capital; started: of them; fed: this step has used evidence.
        cursor: digest of the cursor that `seen` counts from, "" before this step's first look.
        failed: why a FAIL was given; never cleared.
        beside: the breaker over customers' own requests where the evidence is a replay.
        guardrails: how many share the FAIL capital over all steps, 0 where an older release began the rollout.
        clusters_of: as `clusters`, of other shares whose events come in clusters, by name.
        quits_seen: requests and those given up that have been used, by arm; quits: how they cluster.
        cuts: of the source since the step's cursor, that have been taken in.
        suddens: by guardrail, what gets worse late.
        used_s: seconds from the step's cursor to the last evidence that was used.
        caches: by arm, prompt and cached tokens that have been used since the cursor, then both weighted by how new they are.
    """

    steps: int
    started: int = 1
    fed: bool = False
    cursor: str = ""
    failed: str = ""
    seen: dict[str, ArmSeen] = field(default_factory=dict)
    fails: dict[str, FailBank] = field(default_factory=dict)
    passes: dict[str, PassBank] = field(default_factory=dict)
    clusters: ClusterMemory = field(default_factory=ClusterMemory)
    breaker: BreakerMemory = field(default_factory=BreakerMemory)
    beside: BreakerMemory = field(default_factory=BreakerMemory)
    suddens: dict[str, SuddenMemory] = field(default_factory=dict)
    clusters_of: dict[str, ClusterMemory] = field(default_factory=dict)
    guardrails: int = 0
    quits_seen: dict[str, tuple[int, int]] = field(default_factory=dict)
    quits: ClusterMemory = field(default_factory=ClusterMemory)
    cuts: int = 0
    caches: dict[str, list[float]] = field(default_factory=dict)
    used_s: float = 0.0

    def since_used_s(self, e: Evidence) -> float:
        """Return the seconds since evidence was used last in this step, at least 0."""
        return max(0.0, (e.at - e.cursor.since).total_seconds() - self.used_s)

    def arm(self, name: str) -> ArmSeen:
        """Return what has been used of an arm."""
        if name not in self.seen:
            self.seen[name] = ArmSeen()
        return self.seen[name]

    def fail_bank(self, name: str, alternatives: int) -> FailBank:
        """Return a FAIL process, made if it is new: one that starts late has had nothing to say so far."""
        if name not in self.fails:
            zeros = [0.0] * alternatives
            self.fails[name] = FailBank(llr=list(zeros), marks=[list(zeros) for _ in range(self.started)])
        return self.fails[name]

    def sudden(self, name: str) -> SuddenMemory:
        """Return a guardrail's process for what gets worse late, made if it is new."""
        return self.suddens.setdefault(name, SuddenMemory())

    def pass_bank(self, name: str, alternatives: int) -> PassBank:
        """Return a PASS process of this step, made if it is new."""
        if name not in self.passes:
            self.passes[name] = PassBank(llr=[0.0] * alternatives)
        return self.passes[name]


_NO_BREAKER, _NO_CLUSTERS = BreakerMemory(), ClusterMemory()


def pack(memory: Memory) -> JudgeState:
    """Encode; the same memory always gives the same bytes."""
    data = {
        "steps": memory.steps,
        "started": memory.started,
        "fed": memory.fed,
        "cursor": memory.cursor,
        "failed": memory.failed,
        "seen": {arm: _seen(s) for arm, s in memory.seen.items()},
        "fails": {name: [b.llr, b.marks] for name, b in memory.fails.items()},
        "passes": {name: [b.llr, b.best, b.reached] for name, b in memory.passes.items()},
        **_clusters(memory.clusters),
        "breaker": _breaker(memory.breaker),
    }
    if memory.beside != _NO_BREAKER:
        data["beside"] = _breaker(memory.beside)
    suddens = {name: [s.capital, s.restarts, s.waited] for name, s in memory.suddens.items() if s.capital}
    if suddens:
        data["suddens"] = suddens
    if memory.guardrails:
        data["guardrails"] = memory.guardrails
    if memory.clusters_of:
        data["clusters_of"] = {name: _clusters(m) for name, m in memory.clusters_of.items()}
    if memory.quits_seen or memory.quits != _NO_CLUSTERS:
        data["quits"] = {"seen": memory.quits_seen, **_clusters(memory.quits)}
    if memory.caches:
        data["caches"] = memory.caches
    if memory.used_s:
        data["used"] = memory.used_s
    if memory.cuts:
        data["cuts"] = memory.cuts
    return JudgeState(format_version=JUDGE_FORMAT, numbers=_written(data))


def _clusters(c: ClusterMemory) -> dict[str, Any]:
    windows = {arm: [w.errors_then, w.squares_then, w.errors, w.squares] for arm, w in c.windows.items()}
    return {"clusters": [c.spread, c.errors, c.seconds, c.opened, c.now], "windows": windows}


def _read_clusters(data: dict[str, Any]) -> ClusterMemory:
    spread, errors, seconds, opened, now = data["clusters"]
    return ClusterMemory(
        spread=spread,
        errors=errors,
        seconds=seconds,
        opened=opened,
        now=now,
        windows={arm: ClusterWindow(errors_then=a, squares_then=b, errors=c, squares=d) for arm, (a, b, c, d) in data["windows"].items()},
    )


def _breaker(b: BreakerMemory) -> list[Any]:
    stretches = [[s.run, s.n1, s.k1, s.n0, s.k0, s.more] for s in b.stretches]
    return [b.capital, b.total, b.seen, b.peak, b.tripped, b.trip, b.baseline, stretches, *([True] if b.is_shared else [])]


def _read_suddens(data: dict[str, Any]) -> dict[str, SuddenMemory]:
    if "sudden" in data:
        return {"errors": _older_sudden(*data["sudden"])}
    rows = data.get("suddens", {})
    return {name: SuddenMemory(capital=[*capital], restarts=restarts, waited=waited) for name, (capital, restarts, waited) in rows.items()}


def _older_sudden(capital: list[float], restarts: int, waited: int) -> SuddenMemory:
    """Take over what an older release had, for errors alone: what its two alternatives hold, and 40 / (40 + restarts) not yet staked."""
    same = ceil(160 * restarts / (40 + restarts)) if restarts <= 40 else 40 + restarts
    return SuddenMemory(capital=[log_mean(capital, [1.0] * len(capital))], restarts=same, waited=waited)


def _read_breaker(row: list[Any]) -> BreakerMemory:
    capital, total, seen, peak, tripped, *later = row
    trip, baseline, stretches, *shared = later or (-1, [0, 0], [])  # older releases did not look at the baseline here
    return BreakerMemory(
        capital=[*capital],
        total=total,
        seen=seen,
        peak=peak,
        tripped=tripped,
        trip=trip,
        baseline=[*baseline],
        stretches=[Stretch(run=run, n1=n1, k1=k1, n0=n0, k0=k0, more=[*more]) for run, n1, k1, n0, k0, more in stretches],
        is_shared=bool(shared),
    )


def _seen(s: ArmSeen) -> list[Any]:
    whole = [s.attempts, s.errors, s.misses, s.mismatches, s.timed, s.ladders]
    return [*whole, s.timed_of, {k: list(v) for k, v in s.shares.items()}] if s.timed_of or s.shares else whole


def _read_seen(row: list[Any]) -> ArmSeen:
    attempts, errors, misses, mismatches, timed, ladders, *more = row
    timed_of, shares = more or ({}, {})
    return ArmSeen(
        attempts=attempts,
        errors=errors,
        misses=misses,
        mismatches=mismatches,
        timed=timed,
        ladders=dict(ladders),
        timed_of=dict(timed_of),
        shares={name: (n, k) for name, (n, k) in shares.items()},
    )


def unpack(state: JudgeState) -> Memory:
    """Decode what `pack` made.

    Raises:
        ValueError: another format, or bytes that are not a judge's memory.
    """
    if state.format_version != JUDGE_FORMAT:
        raise ValueError(f"judge state of format {state.format_version}, this release reads {JUDGE_FORMAT}")
    try:
        return _memory(_parsed(state.numbers))
    except (KeyError, TypeError, IndexError, AttributeError) as e:
        raise ValueError(f"judge state cannot be read: {e!r}") from e


_TEXT = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def _written(data: object) -> bytes:
    return _TEXT.encode(data).encode()


@lru_cache(maxsize=4)
def _parsed(numbers: bytes) -> Any:
    """Read the text once where one tick needs it twice; `_memory` copies every list that is changed in place."""
    return json.loads(numbers)


def _memory(data: Any) -> Memory:
    quits = data.get("quits")
    return Memory(
        steps=data["steps"],
        started=data["started"],
        fed=data["fed"],
        cursor=data["cursor"],
        failed=data["failed"],
        seen={arm: _read_seen(row) for arm, row in data["seen"].items()},
        fails={name: FailBank(llr=[*llr], marks=[*marks]) for name, (llr, marks) in data["fails"].items()},
        passes={name: PassBank(llr=[*llr], best=best, reached=reached) for name, (llr, best, reached) in data["passes"].items()},
        clusters=_read_clusters(data),
        clusters_of={name: _read_clusters(row) for name, row in data.get("clusters_of", {}).items()},
        guardrails=data.get("guardrails", 0),
        cuts=data.get("cuts", 0),
        used_s=data.get("used", 0.0),
        caches={arm: [*row] for arm, row in data.get("caches", {}).items()},
        breaker=_read_breaker(data["breaker"]),
        beside=_read_breaker(data["beside"]) if "beside" in data else BreakerMemory(),
        suddens=_read_suddens(data),
        quits_seen={arm: (n, k) for arm, (n, k) in quits["seen"].items()} if quits else {},
        quits=_read_clusters(quits) if quits else ClusterMemory(),
    )


def advance(seen: ArmSeen, counts: Counts) -> None:
    """Remember that these cumulative counts have been used; what a look does not tell (a source is silent) stays as it was."""
    seen.attempts, seen.errors, seen.mismatches = counts.attempts, counts.errors, counts.mismatches
    if _tells_latency(seen, counts):
        seen.misses, seen.timed = counts.misses, counts.timed
    seen.ladders |= {key: list(rungs) for key, rungs in counts.ladders.items()}
    seen.timed_of |= counts.timed_of
    seen.shares |= counts.shares


def went_back(seen: ArmSeen, counts: Counts) -> bool:
    """Tell whether cumulative counts are lower than what has been used already (a counter was reset).

    What is not told at all has not gone back: one of several sources is silent.
    """
    if counts.attempts < seen.attempts or counts.errors < seen.errors or counts.mismatches < seen.mismatches:
        return True
    if _tells_latency(seen, counts) and (counts.misses < seen.misses or counts.timed < seen.timed):
        return True
    if any(counts.timed_of[metric] < n for metric, n in seen.timed_of.items() if metric in counts.timed_of):
        return True
    told = ((counts.shares[name], before) for name, before in seen.shares.items() if name in counts.shares)
    if any(now[0] < before[0] or now[1] < before[1] for now, before in told):
        return True
    ladders = ((counts.ladders[key], before) for key, before in seen.ladders.items() if key in counts.ladders)
    return any(len(now) != len(before) or any(a < b for a, b in zip(now, before, strict=True)) for now, before in ladders)


def _tells_latency(seen: ArmSeen, counts: Counts) -> bool:
    """Tell whether a look tells latency as those before did: its ladders are there, or there never were any."""
    name = "latency@"
    return any(key.startswith(name) for key in counts.ladders) or not any(key.startswith(name) for key in seen.ladders)
