"""Inventory, domain layer: a served model endpoint with an SLO, and the same in one region (a cell). Never I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, NewType

from fleetctl.domain.canonical import LATER, digest
from fleetctl.domain.ids import CellId, PoolId, WorkloadId
from fleetctl.domain.people import Actor

Guardrail = NewType("Guardrail", str)
"""Name of a metric with a direction: "errors", "latency", "ttft", "token_time", "nll", "slo_misses", "quality", "counter_..."."""
REFUSALS = Guardrail("refusals")
"""4xx answers that are no errors: a target that refuses what the source answers. Judged beside errors by itself, where a source tells."""

Requests = int
SLOW_MARGINS = (0.20, 0.10)
"""PASS and FAIL margin of an adapter model's slow requests, points / 100. Source: at log-sd 0.25 a target 10 % slower has 9 points more of
them, which is the latency FAIL margin of one canary host (evidence.md 4)."""


def model_guardrails(adapter: str) -> tuple[Guardrail, Guardrail]:
    """Return the guardrails of one adapter model: its failed requests, and those slower than the baseline's p90 of their class."""
    slug = "".join(c if c.isascii() and c.isalnum() else "_" for c in adapter.lower())[:60]
    return Guardrail(f"model_errors_{slug}"), Guardrail(f"model_slow_{slug}")


WorkloadClass = Literal["batch", "online", "realtime"]
OnSourceLoss = Literal["hold_cap", "shed_by_class", "lift_after_two_signatures"]
LaneKind = Literal["own", "pooled", "replay", "accepted", "stay"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What is served.

    Args:
        parameters_billion: above 0.
        precision: of the weights, such as "bf16" or "fp8".
        context_tokens: longest request it accepts.
        layers, kv_heads, head_dim: for the KV cache; 0 where unknown (then estimated and said so).
    """

    name: str
    parameters_billion: float
    precision: str
    context_tokens: int
    layers: int = 0
    kv_heads: int = 0
    head_dim: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """What users were promised.

    Args:
        latency_ms: a request slower than this is a miss; None where there is no promise.
        error_ratio: 0 to 1, tolerated share of failed requests.
        ttft_ms, tpot_ms: most to the first token, and per token after it; None where nothing is promised.
    """

    latency_ms: float | None = None
    error_ratio: float = 0.01
    ttft_ms: float | None = field(default=None, metadata=LATER)
    tpot_ms: float | None = field(default=None, metadata=LATER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What arrives.

    Args:
        requests_per_s: mean; trough_per_s: the quietest hour (0 where unknown).
        input_tokens, output_tokens: mean per request.
        streaming: answers are server-sent events.
    """

    requests_per_s: float
    input_tokens: float
    output_tokens: float
    trough_per_s: float = 0.0
    streaming: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardrailSpec:
    """One guardrail at one step.

    Args:
        margin: regression tolerated for a PASS: points / 100 for shares (0.005 is half a point), a ratio for latency (0.10 is 10 %).
        fail_margin: what a FAIL must exceed, same unit.
        judged: False where this cell cannot be judged on it (a stream's latency): shown, gates nothing.
        rungs: PASS margins of the ladder's rungs (p50, p75, p90, p95, p99) as ratios, where a tail is granted more than `margin`;
            empty: `margin` at every rung.
        needs_pass: False: it can FAIL, and a step does not wait for its PASS (an adapter model with little traffic).
    """

    name: Guardrail
    margin: float
    fail_margin: float
    judged: bool = True
    rungs: tuple[float, ...] = field(default=(), metadata=LATER)
    needs_pass: bool = field(default=True, metadata=LATER)

    def rung_margin(self, rung: int) -> float:
        """Return the PASS margin of a rung of the ladder, by its place."""
        return self.rungs[rung] if self.rungs else self.margin


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowSpec:
    """How a workload is compared before any customer is served by the target.

    Args:
        positions: least number of compared token positions.
        max_mismatch_ratio: largest tolerated share of positions whose top token differs without a near tie, 0 to 1.
        near_tie_nat: log-probability gap under which two top tokens count as tied.
        sample_per_s: most copies a second; max_share: of the cell's requests, above 0 to 1. Both hold.
    """

    positions: int = 600
    max_mismatch_ratio: float = 0.05
    near_tie_nat: float = 0.2
    sample_per_s: float = 2.0
    max_share: float = field(default=0.1, metadata=LATER)


CheckName = Literal["contract", "quality", "answers", "accuracy", "embeddings"]
CHECKS: tuple[CheckName, ...] = ("contract", "quality", "answers", "accuracy", "embeddings")
"""Calls of the API; forced texts; free answers; scored answers; vectors."""
ChatApi = Literal["chat", "completions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSpec:
    """One check as the fleet file asks for it.

    Args:
        file: of prompts, items or texts, relative to the workspace; "" for the shipped ones.
        api: which of the two is asked; numbers: margins and sizes by name, only those that the file names.
        valid_for: how long a result stands while neither arm changes; is_auto: the ticker runs it by itself when it is due.
    """

    name: CheckName
    file: str = ""
    api: ChatApi = "chat"
    numbers: Mapping[str, float] = field(default_factory=dict)
    valid_for: timedelta = timedelta(days=7)
    is_auto: bool = True

    def bound(self, file_digest: str = "") -> str:
        """Return the hash of what a result depends on beside the arms, 16 hex digits."""
        return digest([self.name, self.file, self.api, dict(self.numbers), file_digest])[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakage:
    """The mark of a test workload that a rehearsal may break on purpose, and how: two commands of its owner, as words, never a shell's.

    Args:
        inject: begins the fault; "{fault}" in a word stands for its kind. mend: takes it away, and may be run at any time.
    """

    inject: tuple[str, ...]
    mend: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A served model endpoint with an SLO. Cost and portability routes are per workload.

    Args:
        apart: cells of workloads with the same word never share a target pool; "" keeps none apart.
        after: workloads whose cells must be in soak before its own begin, where they move at all.
        may_differ: flags of the engines in which the two sides differ on purpose, of `fleetctl.domain.identity.NUMERIC_FLAGS`.
        checks: of both arms, which must stand before a weight is raised.
        drill: it is a test workload that a rehearsal may break; None: never.
    """

    id: WorkloadId
    model: Model
    engine: str
    klass: WorkloadClass
    slo: Slo
    traffic: Traffic
    replicas: int = 1
    accelerators_per_replica: int = 1
    engine_version: str = ""
    concurrency: int = 8
    adapters: tuple[str, ...] = ()
    guardrails: tuple[Guardrail, ...] = (Guardrail("errors"), Guardrail("latency"))
    shadow: ShadowSpec | None = None
    owner: str = ""
    cost_centre: str = ""
    tenant: str = ""
    data_class: str = ""
    route: str = "native"
    serving: Mapping[str, str] = field(default_factory=dict)
    apart: str = field(default="", metadata=LATER)
    after: tuple[WorkloadId, ...] = field(default=(), metadata=LATER)
    may_differ: tuple[str, ...] = field(default=(), metadata=LATER)
    checks: tuple[CheckSpec, ...] = field(default=(), metadata=LATER)
    drill: Breakage | None = field(default=None, metadata=LATER)


@dataclass(frozen=True, slots=True, kw_only=True)
class AffinityKey:
    """What keeps a conversation together: a header, cookie or the user field of the body."""

    kind: Literal["header", "cookie"]
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cohort:
    """Requests of another cell that go by this one: those whose header, or cookie, has one of these values.

    Args:
        of: the cell that they belong to else; header, cookie: one of the two, set by the users' gateway; values: without spaces or quotes.
    """

    of: CellId
    values: tuple[str, ...]
    header: str = ""
    cookie: str = field(default="", metadata=LATER)

    @property
    def key(self) -> str:
        """Return what tells its requests, for people."""
        return self.header or f"cookie {self.cookie}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """How a cell can get a verdict; anything but `own` carries a reason and an actor.

    Args:
        bake: least time at each step with traffic on the target, beside the policy's own (for `accepted`).
    """

    kind: LaneKind = "own"
    reason: str = ""
    actor: Actor | None = None
    bake: timedelta = field(default=timedelta(0), metadata=LATER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Existing:
    """A target that others built: provision and configure are skipped."""

    pool: PoolId


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterRef:
    """The router of a cell, by its name in the fleet file.

    Args:
        baseline_backend, canary_backend: names there; empty means `<cell>_baseline` and `<cell>_canary`.
        baseline_endpoints, canary_endpoints: "address:port" of each replica, as the router knows them.
    """

    name: str
    baseline_backend: str = ""
    canary_backend: str = ""
    baseline_endpoints: tuple[str, ...] = ()
    canary_endpoints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A workload in one region: the unit of placement, evidence, traffic and rollback.

    Args:
        target: None lets the plan choose; a pool pins it; Existing skips provision and configure.
        regions: others that its data may be served from, beside its own; () is its own alone.
        cohort: it serves only some requests of another cell, and goes before it; None: all that come by its name.
        evidence: names of its sources of evidence; "log" is its router's log; the first counts attempts, errors and the share.
    """

    id: CellId
    workload: WorkloadId
    region: str
    source: PoolId
    router: RouterRef
    target: Existing | PoolId | None = None
    on_source_loss: OnSourceLoss = "hold_cap"
    affinity: AffinityKey | None = None
    lane: Lane = field(default_factory=Lane)
    wave: int = 0
    regions: tuple[str, ...] = ()
    evidence: tuple[str, ...] = field(default=("log",), metadata=LATER)
    cohort: Cohort | None = field(default=None, metadata=LATER)
