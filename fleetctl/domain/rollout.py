"""Migrate, domain layer: one cell's rollout, what was observed, what was decided. Never I/O; the rules are in fleetctl.rollout."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from fleetctl.domain.canonical import LATER
from fleetctl.domain.checks import CheckSeen
from fleetctl.domain.evidence import Cursor, Evidence, JudgeState, Pair, Verdict
from fleetctl.domain.fleet import Phase, PhaseSpec
from fleetctl.domain.identity import ArmsIdentity
from fleetctl.domain.ids import CellId, PlanId, PoolId
from fleetctl.domain.people import Actor, Reason, Signal
from fleetctl.domain.plan import Approval
from fleetctl.domain.split import Served, Split
from fleetctl.domain.units import FULL_BP, Instant
from fleetctl.domain.workload import CheckSpec, Lane, OnSourceLoss, ShadowSpec

ROLLOUT_FORMAT = 1
OrderKind = Literal["promote", "pause", "resume", "abort", "rollback", "fallback", "retry", "advance", "lift"]
Ended = Literal["", "complete", "rolled_back", "aborted", "fell_back", "lost_evidence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A person's (or timer's) wish as a row that the next tick obeys.

    Args:
        until: for `advance`: the last phase to pass.
    """

    kind: OrderKind
    actor: Actor
    at: Instant
    note: str = ""
    until: Phase | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSpec:
    """Copied from the approved plan, so that deciding needs nothing else.

    Args:
        phases: one entry per step, ascending weights: preflight, shadow (if any), canary, ramp..., full, soak, complete.
        min_canary_requests: least canary attempts for a PASS of a step.
        group: the cells whose evidence counts together with this one's (lane pooled), itself among them.
        other_lane: what would fit where a step comes to no verdict, for a person to read.
        checks: of both arms, which must stand before the weight is raised.
        part: of a cohort: which requests of which cell it serves, for a person to read.
        on_source_loss: what a source that answers nothing does to the cap.
    """

    source: PoolId
    target: PoolId
    phases: tuple[PhaseSpec, ...]
    warm_up: timedelta
    cap_bp: int
    lane: Lane
    weight_lease: timedelta
    lost_evidence_home: timedelta
    step_deadline: timedelta
    shadow: ShadowSpec | None = None
    min_canary_requests: int = 100
    group: tuple[CellId, ...] = field(default=(), metadata=LATER)
    other_lane: str = field(default="", metadata=LATER)
    checks: tuple[CheckSpec, ...] = field(default=(), metadata=LATER)
    part: str = field(default="", metadata=LATER)
    on_source_loss: OnSourceLoss = field(default="hold_cap", metadata=LATER)

    @property
    def stays_split(self) -> bool:
        """Tell whether its end leaves customers on both sides: a cohort, or a cap below 100 %; its source is never given back."""
        return bool(self.part) or self.cap_bp < FULL_BP


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmsMemory:
    """What the arms said that they serve, so that one odd answer changes nothing.

    Args:
        last: hash of the newest answer; at: when it was given; sure: it agrees with the answer before.
        told: what people were told of already (hashes of answers), newest last.
    """

    last: str = ""
    at: Instant | None = None
    sure: bool = True
    told: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """What a cell of a pooled group had shown at a step when it left it.

    Args:
        step: index into spec.phases; canary: attempts on the canary there.
        passes: log of each PASS process as it stood, by name; one that had reached its bound stands at the bound.
    """

    step: int
    canary: int
    passes: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One cell on its way. A current rollout per cell is the state of record.

    Args:
        step: index into spec.phases.
        until: last phase to pass before it stops raising; it then holds, judged and leased.
        weight_bp: what the rollout wants the router to show.
        settled_at: when the router was seen to show this step's weight (None: not yet); evidence counts from here.
        since: cursor of this step's evidence.
        step_done: this step's gate has passed and `until` or a freeze keeps it here.
        promoted: a person accepted this step as it is; stands until the step is left, whatever holds it meanwhile.
        latched: the FAIL that ended it; never cleared.
        lost_since: since when there has been no evidence, None while there is.
        deadline: when this step becomes INCONCLUSIVE: its bake time and the policy's step_deadline after it was first settled.
        shown: steps that ended on a PASS of evidence, not on a person's word.
        identity: what both arms were when this step's evidence began; "" where it is not known; arms: what they said lately.
        anew: an arm has changed, and what the judge has gathered of it before is still to be forgotten.
        first_settled_at: when this step was settled first: evidence that begins anew does not move its deadline.
        stops: of a pooled cell: what it had shown at each step that it left, for the cells that are still there.
        proof_at: when a completion was sent last to see whether the source of evidence is at work while no customer sends any.
        foreign: what somebody else wrote; it holds the cell until a person resumes; foreign_writes: of ours against it, at most 3.
        ends_told: of which ends of pools people were paged already, and how long before.
        left_at: when the weight was taken to 0 on the way home, None before; the rollout ends once customers are shown to have left.
        lifted_by: people who want the cap lifted because the source is lost; two of them lift it.
        hold_reason: code of what holds it here, or (once ended) why it ended; home_for: what sent it home, if no verdict did.
    """

    cell: CellId
    plan: PlanId
    spec: RolloutSpec
    judge: JudgeState
    step: int = 0
    until: Phase = "soak"
    direction: Literal["forward", "home"] = "forward"
    paused: bool = False
    ended: Ended = ""
    weight_bp: int = 0
    settled_at: Instant | None = None
    since: Cursor | None = None
    step_done: bool = False
    promoted: bool = False
    latched: Verdict | None = None
    lost_since: Instant | None = None
    deadline: Instant | None = None
    hold_reason: str = ""
    home_for: str = ""
    orders: tuple[Order, ...] = ()
    approvals: tuple[Approval, ...] = ()
    attempt: int = 1
    shown: tuple[int, ...] = field(default=(), metadata=LATER)
    identity: str = field(default="", metadata=LATER)
    arms: ArmsMemory = field(default=ArmsMemory(), metadata=LATER)
    anew: bool = field(default=False, metadata=LATER)
    first_settled_at: Instant | None = field(default=None, metadata=LATER)
    foreign: str = field(default="", metadata=LATER)
    foreign_writes: int = field(default=0, metadata=LATER)
    ends_told: tuple[str, ...] = field(default=(), metadata=LATER)
    stops: tuple[Stop, ...] = field(default=(), metadata=LATER)
    proof_at: Instant | None = field(default=None, metadata=LATER)
    lifted_by: tuple[str, ...] = field(default=(), metadata=LATER)
    left_at: Instant | None = field(default=None, metadata=LATER)
    format_version: int = ROLLOUT_FORMAT

    @property
    def phase(self) -> Phase:
        """The phase of the current step."""
        return self.spec.phases[self.step].phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Freeze:
    """Whether a freeze window is open now: binds advance, never rollback."""

    active: bool = False
    name: str = ""
    until: Instant | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeSeen:
    """What is known of customers of a cell whose weight is 0 on its way home.

    Args:
        tells: as the router's capabilities say; served: who answered those that began since it settled, None where nobody can count.
        told_within: how late the router may tell of them.
    """

    tells: Literal["itself", "gateway", "counts"] = "itself"
    served: Served | None = None
    told_within: timedelta = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """All that one decision may look at.

    Args:
        split: what the router shows; evidence: None where it could not be read at all.
        source_ready, target_ready: share of replicas that answered a real completion, 0 to 1; None where not probed this tick.
        pairs: shadow comparisons so far.
        providers_lost: cells of the fleet that have no evidence now (three or more: the provider is at fault).
            identity: what each arm serves now; None where it was not asked or did not answer.
            is_paged: another cell holds for the same provider already, so somebody has been paged.
        checks: how the checks of both arms stand.
        served: who answered customers since the step was shown, where it has no evidence of its own (nothing, or all, on the target).
        told_within: how late the router may tell of them.
        calm: what customers got while nothing was on the target yet.
        foreign_write: what others wrote to the source's minimum; writer: who wrote the weight that stands, "" where nobody can tell.
        both_failing: cells whose customers get errors on both sides, where this one's do; is_all_paged: somebody was paged for them.
        wrong_series: why evidence cannot be read as the fleet file says, found before any customer is on the target.
        blind: what went wrong in reading it that nobody foresaw, "" for nothing.
        is_unheld: the source's minimum was to be pinned, and its owner did not answer.
        tells: what proves that a weight carries traffic there, as the router's capabilities say.
        keeps: whether the router keeps clients to their side while a weight is raised, as its capabilities say.
        home: what is known of customers once the weight is 0 on the way home; None where nothing needs to be proven.
    """

    split: Split
    evidence: Evidence | None
    verdicts: tuple[Verdict, ...] = ()
    judge: JudgeState | None = None
    source_ready: float | None = None
    target_ready: float | None = None
    signals: tuple[Signal, ...] = ()
    window: Freeze = field(default_factory=Freeze)
    pairs: tuple[Pair, ...] = ()
    providers_lost: int = 0
    is_paged: bool = False
    mark: Cursor | None = None
    foreign_write: str = ""
    writer: str = ""
    identity: ArmsIdentity | None = None
    checks: tuple[CheckSeen, ...] = ()
    served: Served | None = None
    told_within: timedelta = timedelta(0)
    calm: Evidence | None = None
    both_failing: int = 0
    is_all_paged: bool = False
    wrong_series: str = ""
    blind: str = ""
    is_unheld: bool = False
    tells: Literal["itself", "gateway", "counts"] = "itself"
    keeps: bool = False
    home: HomeSeen | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSplit:
    """Set the weight (also renews its lease)."""

    target_bp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Let the target's open streams finish."""

    pool: PoolId


@dataclass(frozen=True, slots=True, kw_only=True)
class StartShadow:
    """Begin (or go on with) comparing answers."""

    sample_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StopShadow:
    """Stop comparing answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Keep a pool's capacity against anyone who would take it."""

    pool: PoolId


@dataclass(frozen=True, slots=True, kw_only=True)
class Unhold:
    """Give a pool's minimum back to its owner."""

    pool: PoolId


@dataclass(frozen=True, slots=True, kw_only=True)
class Warm:
    """Bring a pool's replicas up before traffic comes."""

    pool: PoolId


@dataclass(frozen=True, slots=True, kw_only=True)
class Notify:
    """Tell people; `cause` groups it, where it is another than why the decision was made."""

    level: Literal["info", "warning", "page"]
    text: str
    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChecks:
    """Begin (or go on with) checks of both arms, beside the ticker."""

    checks: tuple[CheckSpec, ...]


Effect = SetSplit | Drain | StartShadow | StopShadow | Hold | Unhold | Warm | Notify | RunChecks
"""Closed union; at most one of a decision's effects (SetSplit) touches traffic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The next rollout, what to do, why, and when to look again."""

    next: Rollout
    effects: tuple[Effect, ...]
    why: Reason
    look_again: timedelta
