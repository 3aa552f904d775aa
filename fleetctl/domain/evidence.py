"""Evidence, domain layer: attempts counted per arm over frozen thresholds, and what a verdict says. Never I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from fleetctl.domain.canonical import LATER
from fleetctl.domain.ids import CellId
from fleetctl.domain.units import Instant
from fleetctl.domain.workload import Guardrail, GuardrailSpec

Arm = Literal["baseline", "canary"]
ARMS: tuple[Arm, Arm] = ("baseline", "canary")
SignalState = Literal["ok", "empty", "nan", "stale", "reset", "down", "mislabelled", "same_series"]
VerdictKind = Literal["PASS", "FAIL", "INCONCLUSIVE", "NO_DATA", "PROVIDER_ERROR"]
LADDER = (0.50, 0.75, 0.90, 0.95, 0.99)
"""Rungs of the latency ladder: quantiles of the baseline. Source: evidence.md 1, canary.md 3.4."""


LADDER_METRICS = ("latency", "ttft", "token_time", "nll")
"""Metrics that are compared over a ladder of the baseline's quantiles; more is worse: time of the whole answer, to the first token and
per output token (ms), and the negative log-likelihood per token (nat)."""


def ladder_key(scale: float, metric: str = "latency") -> str:
    """Name the ladder of a metric counted at `scale` x the frozen thresholds (1.0 is the baseline's own quantiles)."""
    return f"{metric}@{scale:.4f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """The baseline's own quantiles of one metric, frozen.

    Args:
        class_edges: as in `Thresholds`; rows: shape (classes, rungs), in the metric's unit; n: requests they were taken from.
        edges_only: they are bounds of buckets near to the quantiles: counts over them can show that one arm is worse, but no percentage.
    """

    class_edges: tuple[int, ...]
    rows: tuple[tuple[float, ...], ...]
    n: int
    log_sd: float
    edges_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """The baseline's own quantiles, frozen before the first step; each request is held against its own class.

    Args:
        class_edges: upper bounds (exclusive) of the prompt-length classes in tokens, ascending; the last class is open.
        latency_ms: shape (classes, rungs): the quantiles of `LADDER` per class.
        scales: factors at which the ladder is counted (1 + margin of each step), ascending, each at least 1.
        slo_latency_ms: a slower request is a miss; None where there is no promise.
        baseline_n: requests they were taken from; baseline_error_ratio: among those; log_sd: of their latency.
        others: of the metrics beside latency (and of latency itself where only buckets tell it), by name.
    """

    class_edges: tuple[int, ...]
    latency_ms: tuple[tuple[float, ...], ...]
    scales: tuple[float, ...]
    baseline_n: int
    baseline_error_ratio: float
    log_sd: float
    slo_latency_ms: float | None = None
    others: tuple[tuple[str, Quantiles], ...] = field(default=(), metadata=LATER)

    def quantiles(self, metric: str) -> Quantiles | None:
        """Return the frozen quantiles of a metric, None where there are none."""
        found = dict(self.others).get(metric)
        if found is not None or metric != "latency" or not self.latency_ms:
            return found
        return Quantiles(class_edges=self.class_edges, rows=self.latency_ms, n=self.baseline_n, log_sd=self.log_sd)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """Where evidence begins: requests STARTED at or after `since` count, over these thresholds.

    Args:
        position: opaque place in the source from where reading must start (never after the first such request).
    """

    position: str
    since: Instant
    thresholds: Thresholds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSums:
    """Sums from which the design effect of clustered errors is computed: errors grouped by second of start.

    Args:
        clusters: seconds with at least one error; sum_sq: sum of squared errors per second; errors: all of them.
        spread: sum of squares with what chance alone gives taken off, where the source itself has done so; None: `sum_sq` tells.
    """

    clusters: int = 0
    errors: int = 0
    sum_sq: int = 0
    spread: float | None = field(default=None, metadata=LATER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Cumulative counts of one arm since a cursor, by start time, of finished attempts.

    Args:
        attempts: one try of one request at one replica; the second try of a request counts in no arm.
        errors: 5xx, connection failures, cut streams; misses: slower than the SLO; mismatches: quality.
        ladders: per `ladder_key(scale, metric)`, shape (rungs,): non-error attempts slower than scale x their class's quantile.
        timed: non-error attempts that the ladders of latency were counted over; timed_of: those of the other metrics.
        shares: events k among n attempts of every other share: finish reasons, the fleet file's own counters.
        gave_up: requests whose client went away, in no other count; grouped by second of their end.
        means: of metrics that are shown and not judged by themselves, by name: output_tokens, tokens_per_s, ttft, token_time, nll.
        clusters_of: as `clusters`, of the events of a share that come in clusters too, by its name.
    """

    attempts: int = 0
    errors: int = 0
    misses: int = 0
    mismatches: int = 0
    timed: int = 0
    ladders: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    clusters: ClusterSums = field(default_factory=ClusterSums)
    cached_tokens: int = 0
    prompt_tokens: int = 0
    mean_latency_ms: float = 0.0
    quantiles_ms: tuple[float, ...] = ()
    timed_of: Mapping[str, int] = field(default_factory=dict, metadata=LATER)
    shares: Mapping[str, tuple[int, int]] = field(default_factory=dict, metadata=LATER)
    means: Mapping[str, float] = field(default_factory=dict, metadata=LATER)
    clusters_of: Mapping[str, ClusterSums] = field(default_factory=dict, metadata=LATER)
    gave_up: ClusterSums = field(default=ClusterSums(), metadata=LATER)

    def timed_for(self, metric: str) -> int:
        """Return the attempts that a metric's ladders were counted over."""
        return self.timed if metric == "latency" else self.timed_of.get(metric, 0)


SETTLE_S = 615.0
"""A stream that never begins is cut within so long: it waits in a queue for 10 s, for a connection for 2, then 600 for a token."""
SETTLED = "settled"
"""Name of the share that holds attempts and errors of those requests alone that began so long ago that none of them still runs."""

FINISHED = "finished"
"""Name of the share that holds the answers whose finish reason is known: a reason that an arm has not shown is 0 of these."""


def cached_shares(arms: Mapping[Arm, Counts]) -> Mapping[Arm, float] | None:
    """Return which share of its prompt tokens each arm had in its cache, 0 to 1; None where an arm's engines or router do not tell."""
    if any(arm not in arms or arms[arm].prompt_tokens <= 0 for arm in ARMS):
        return None
    return {arm: arms[arm].cached_tokens / arms[arm].prompt_tokens for arm in ARMS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What one look saw of one cell.

    Args:
        share: real share of attempts that started on the canary, 0 to 1 (never the declared one).
        served_bp: the same in basis points over the last seconds; None without traffic.
        canary_outcomes: newest canary attempts since the cursor in the order in which they ended, "." good and "x" failed, for the
            one-arm breaker; the last of them are new since an earlier look by the growth of the canary's `attempts`.
        baseline_recent_errors, baseline_recent: of the newest seconds, to see whether the baseline is failing too.
        faults: hard faults of the canary's GPUs or runtime since the cursor, which trip the breaker by themselves.
        query: what was asked to get this, so that a person can ask the same.
        beside: customers' own requests where the arms hold replayed ones (lane replay): too few for a verdict, but a hard failure of
            theirs trips the breaker, and theirs is the share that was served.
        missed: attempts of the other arm since an arm's newest one (since the cursor where it has none).
        source_at: when the source itself last wrote anything, of whatever cell or kind; None where nobody can tell.
        baseline_outcomes: newest baseline attempts as `canary_outcomes`, at least the last 50.
        sticky: all requests of one client go to one side (an affinity key), so what one client does is no difference of the arms.
        cuts: how often a part of the source was lost since the cursor; after each, lower counts are a gap and no mistake.
        led: states of the first of several sources, which counts attempts and errors, where another one makes an arm's state worse.
    """

    cell: CellId
    at: Instant
    arms: Mapping[Arm, Counts]
    state: Mapping[Arm, SignalState]
    cursor: Cursor
    served_bp: int | None = None
    first_canary_at: Instant | None = None
    last_at: Instant | None = None
    canary_outcomes: str = ""
    baseline_recent: int = 0
    baseline_recent_errors: int = 0
    detail: str = ""
    faults: tuple[str, ...] = field(default=(), metadata=LATER)
    query: str = field(default="", metadata=LATER)
    beside: Evidence | None = field(default=None, metadata=LATER)
    missed: Mapping[Arm, int] = field(default_factory=dict, metadata=LATER)
    source_at: Instant | None = field(default=None, metadata=LATER)
    baseline_outcomes: str = field(default="", metadata=LATER)
    sticky: bool = field(default=False, metadata=LATER)
    cuts: int = field(default=0, metadata=LATER)
    led: Mapping[Arm, SignalState] = field(default_factory=dict, metadata=LATER)

    @property
    def customers(self) -> Evidence:
        """What customers' own requests show."""
        return self.beside or self


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One named series of an evidence source for one arm, as `doctor` lists them."""

    arm: Arm
    name: str
    present: bool
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One shadow comparison of the same prompt on both arms; no text is kept.

    Args:
        positions: token positions compared (up to and including the first divergence).
        first_divergence: 0-based position where top tokens differ, None where they never do.
        near_tie: the divergence was within the near-tie gap on both sides.
        logprob_delta: mean absolute difference of the chosen token's log-probability, nat.
        kl: top-k KL divergence in nat, None where it cannot be computed.
    """

    at: Instant
    class_: str
    prompt_len: int
    positions: int
    same_top: int
    first_divergence: int | None
    near_tie: bool
    logprob_delta: float
    kl: float | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeState:
    """A few hundred numbers, exact and versioned, kept in the rollout's row."""

    format_version: int
    numbers: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a verdict rests on: enough to recompute it by hand."""

    at: Instant
    baseline_n: int
    canary_n: int
    baseline_events: int
    canary_events: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One guardrail's answer at one look.

    Args:
        e_value: that the target is worse (FAIL at fail_bound); pass_e_value: that it is not worse than the margin (PASS at pass_bound).
            Both at least 0.
        fail_bound, pass_bound: what each must reach (100 and 20).
        interval: of the canary's metric minus (or over) the baseline's, None where it cannot be had.
        missing: canary requests still needed for a PASS if both arms are equal, None where unknown.
        confounded: the arms' caches differ by so much that slowness may be theirs: no PASS, and no FAIL but a gross one.
        blocked: why it has not passed is no lack of requests (`detail` says what it is), so more of them from equal cells do not help.
    """

    kind: VerdictKind
    guardrail: Guardrail
    e_value: float
    look: Look
    pass_e_value: float = 0.0
    fail_bound: float = 100.0
    pass_bound: float = 20.0
    interval: tuple[float, float] | None = None
    missing: int | None = None
    detail: str = ""
    confounded: bool = field(default=False, metadata=LATER)
    blocked: bool = field(default=False, compare=False, metadata=LATER)  # older releases stored verdicts without it: those still agree

    @property
    def holds(self) -> bool:
        """Tell whether it keeps a step waiting though no PASS is asked of it: clients may be hurt, and no more than one is sure."""
        return self.guardrail in ("refusals", "gave_up") and self.kind == "INCONCLUSIVE" and self.e_value >= self.fail_bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a look saw beside its counts: with it the judge's verdict can be computed again from the rows alone.

    Args:
        at: of the evidence; step: of the rollout; compared: the guardrails were judged (not while the arms serve different things).
        states: of each arm; cursor, guardrails: where evidence begins and what is judged, on the first look that counts from there.
        steps, shared_by: steps and guardrails that share the FAIL capital, on the first look of a rollout, else 0.
        outcomes: of canary attempts that are new since the look before, as in `Evidence`.
        recent, recent_errors: of the baseline in the newest seconds; faults: of the canary's GPUs and runtime.
        beside_arms, beside: the same of customers' own requests where the arms hold replayed ones.
        sticky, cuts, led: as in `Evidence`.
    """

    at: Instant
    step: int
    compared: bool
    states: Mapping[Arm, SignalState]
    cursor: Cursor | None = None
    guardrails: tuple[GuardrailSpec, ...] = ()
    steps: int = 0
    outcomes: str = ""
    recent: int = 0
    recent_errors: int = 0
    faults: tuple[str, ...] = ()
    beside_arms: Mapping[Arm, Counts] = field(default_factory=dict)
    beside: Seen | None = None
    shared_by: int = field(default=0, metadata=LATER)
    sticky: bool = field(default=False, metadata=LATER)
    cuts: int = field(default=0, metadata=LATER)
    led: Mapping[Arm, SignalState] = field(default_factory=dict, metadata=LATER)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookRow:
    """One look as the report and `status` show it: what was set, what was served, what the judge said.

    Args:
        seen: what the judge needs besides to say it again; None where nothing was judged.
    """

    cell: CellId
    at: Instant
    phase: str
    target_bp: int
    served_bp: int | None
    arms: Mapping[Arm, Counts]
    verdicts: tuple[Verdict, ...]
    why: str
    query: str = field(default="", metadata=LATER)
    seen: Seen | None = field(default=None, metadata=LATER)
