"""Inventory, formats layer: the shape of `inventory/<name>/fleet.yaml`; its JSON Schema comes from it. Never decides."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema

from fleetctl.domain.ids import ID_PATTERN, require_id
from fleetctl.domain.units import Instant, Money
from fleetctl.formats import quantities as q
from fleetctl.formats.guardrail_names import GUARDRAIL, GUARDRAIL_TEXT
from fleetctl.formats.presets import PRESETS, expand_steps
from fleetctl.formats.texts import a_day, matching, plain, scalar_text, uuid

FLEET_FORMAT = 1


def _short_form(key: str) -> BeforeValidator:
    """Let a lone name stand for a mapping with that one key."""
    return BeforeValidator(lambda value: {key: value} if isinstance(value, str) else value)


Text = Annotated[str, AfterValidator(plain)]
ScalarText = Annotated[Text, BeforeValidator(scalar_text), WithJsonSchema({"type": ["string", "number", "boolean"]})]
Id = Annotated[str, AfterValidator(require_id), WithJsonSchema({"type": "string", "pattern": ID_PATTERN})]
Region = Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}", "a region: use letters, digits and '-'")]
SkuName = Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", "a SKU: use letters, digits, '.', '_' and '-'")]
SkuPattern = Annotated[str, matching(r"[A-Za-z0-9*][A-Za-z0-9._*-]{0,79}", "a SKU or a pattern: letters, digits, '.', '_', '-' and '*'")]
Backend = Annotated[str, matching(r"[A-Za-z0-9_.:-]{1,120}", "a backend's name: use letters, digits, '_', '.', ':' and '-'")]
HeaderName = Annotated[str, matching(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,80}", "a header's or cookie's name")]
CohortValue = Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", "a cohort's value: use letters, digits, '_', '.' and '-'")]
Address = Annotated[str, matching(r"[A-Za-z0-9:\[][A-Za-z0-9.:%\]-]{0,252}", "an address: use a host name or an IP address")]
UserName = Annotated[str, matching(r"[a-z_][a-z0-9_-]{0,31}", "a user's name")]
VariableName = Annotated[str, matching(r"[a-z_][a-z0-9_]{0,63}", "a variable's name: use a-z, 0-9 and '_'")]
Duration = Annotated[
    timedelta,
    BeforeValidator(q.parse_duration),
    PlainSerializer(q.format_duration),
    WithJsonSchema({"type": "string", "pattern": q.DURATION_PATTERN}),
]
ShareBp = Annotated[
    int, BeforeValidator(q.parse_share_bp), PlainSerializer(q.format_share), WithJsonSchema({"type": "string", "pattern": q.SHARE_PATTERN})
]
Ratio = Annotated[
    float, BeforeValidator(q.parse_ratio), PlainSerializer(q.format_ratio), WithJsonSchema({"type": "string", "pattern": q.SHARE_PATTERN})
]
Points = Annotated[
    float,
    BeforeValidator(q.parse_points),
    Field(gt=0, le=0.5),
    PlainSerializer(lambda v: f"{v * 100:g} points"),
    WithJsonSchema({"type": "string", "pattern": q.POINTS_PATTERN}),
]
At = Annotated[Instant, BeforeValidator(q.parse_instant), WithJsonSchema({"type": "string", "format": "date-time"})]
Usd = Annotated[Decimal, BeforeValidator(q.parse_decimal), WithJsonSchema({"type": ["number", "string"], "minimum": 0})]
Amount = Annotated[Money, BeforeValidator(q.parse_money), WithJsonSchema({"type": "string", "pattern": q.MONEY_PATTERN})]
Endpoint = Annotated[str, BeforeValidator(q.parse_endpoint), WithJsonSchema({"type": "string", "pattern": q.ENDPOINT_PATTERN})]
IsoDate = Annotated[str, matching(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])", "a date such as 2027-06-30"), AfterValidator(a_day)]
Lineage = Annotated[str, AfterValidator(uuid), WithJsonSchema({"type": "string", "format": "uuid"})]
Count = Annotated[int, Field(ge=0, le=1_000_000)]
Positive = Annotated[int, Field(ge=1, le=1_000_000_000)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
AboveZero = Annotated[float, Field(gt=0, allow_inf_nan=False)]
PhaseName = Literal["preflight", "shadow", "canary", "ramp", "full", "soak", "complete"]
GuardrailName = Annotated[str, matching(GUARDRAIL, GUARDRAIL_TEXT)]
"""Metrics with a direction. Source: design section 7, evidence.md."""
ClassName = Literal["batch", "online", "realtime"]


class Shape(BaseModel):
    """A mapping of the file: unknown keys are mistakes, and text never turns into a number by itself."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class SecretShape(Shape):
    """Where a secret lies; the file never holds the secret itself."""

    kind: Literal["env", "file"] = Field(description="env: a variable. file: a file readable by its owner alone.")
    name: Text = Field(description="The variable's or file's name.")


class RouterShape(Shape):
    """How to reach a router."""

    kind: Text = Field(description='The adapter, such as "haproxy".')
    settings: dict[str, ScalarText] = Field(
        default_factory=dict, description="What that adapter knows: socket, map_folder, log_folder, url, shadow_folder."
    )
    secrets: dict[str, SecretShape] = Field(default_factory=dict, description="Secrets by reference, such as pin_key.")


class SourceShape(Shape):
    """Where the inventory finds facts."""

    kind: Text = Field(description="azure, aws, ansible, engines, prometheus, table or kubernetes.")
    settings: dict[str, ScalarText] = Field(default_factory=dict, description="What that kind knows: docs/how-to/inventory-*.md.")
    secrets: dict[str, SecretShape] = Field(default_factory=dict, description="Secrets by reference: token or key.")


class EvidenceShape(Shape):
    """A source of evidence beside the routers' logs."""

    kind: Text = Field(description="probes, replay, scrape, prometheus, logs or recording.")
    settings: dict[str, ScalarText] = Field(default_factory=dict, description="What that kind knows: docs/how-to/choose-evidence.md.")
    secrets: dict[str, SecretShape] = Field(default_factory=dict, description="Secrets by reference: token or key.")


class NotifyShape(Shape):
    """Whom to tell of what happens: every terminal state, holds and pages."""

    kind: Literal["slack", "webhook", "pagerduty"] = Field(description="slack: a Slack-compatible webhook. webhook: signed by HMAC.")
    settings: dict[Literal["least", "url"], ScalarText] = Field(
        default_factory=dict, description="least: info (default), warning or page. url: of PagerDuty's events API, where it is another."
    )
    secrets: dict[Literal["url", "key"], SecretShape] = Field(
        default_factory=dict, description="slack: url. webhook: url and key, which signs. pagerduty: key, the integration's."
    )


class HostShape(Shape):
    """One machine that exists already."""

    address: Address = Field(description="Host name or IP address.")
    connection: Literal["ssh", "local"] = "ssh"
    user: UserName | None = Field(default=None, description="Who Ansible logs in as.")
    variables: dict[VariableName, ScalarText] = Field(
        default_factory=dict, description="What its roles need; always passed on as plain text."
    )


class PoolShape(Shape):
    """Machines of one SKU in one region."""

    vendor: Literal["nvidia", "amd"]
    sku: SkuName = Field(description="VM size as its cloud names it.")
    region: Region
    count: Count = Field(description="VMs that exist now; 0 for a pool still to be made.")
    limit: Count = Field(description="Most VMs that may exist, at least `count`.")
    priority: Literal["regular", "spot"] = "regular"
    provisioned_by: Id = Field(default="existing", description="Terraform stack that makes it, or existing where others built it.")
    price_usd_per_hour: Usd | None = Field(default=None, description="USD per VM and hour; left out: the catalogue's list price.")
    ends: IsoDate | None = Field(default=None, description="Day after which its capacity is gone: a capacity block's or reservation's end.")
    hosts: dict[Id, HostShape] = Field(default_factory=dict, description="Machines that exist already, by name.")


class ModelShape(Shape):
    """What is served."""

    name: Text
    parameters_billion: AboveZero
    precision: Text = Field(description='Of the weights, such as "bf16" or "fp8".')
    context_tokens: Positive = Field(description="Longest request it accepts, in tokens.")
    layers: Count = Field(default=0, description="For the KV cache; 0: unknown, then estimated and said so.")
    kv_heads: Count = 0
    head_dim: Count = 0


class SloShape(Shape):
    """What users were promised."""

    latency: Duration | None = Field(default=None, description="A slower request is a miss.")
    error_ratio: Ratio = Field(default=0.01, description="Tolerated share of failed requests.")
    ttft: Duration | None = Field(default=None, description="To the first token of a stream; only runs that kept it count for a move.")
    tpot: Duration | None = Field(default=None, description="Per token after the first, such as 40ms.")


class TrafficShape(Shape):
    """What arrives."""

    requests_per_s: NotNegative = Field(description="Mean over a day.")
    trough_per_s: NotNegative = Field(default=0.0, description="The quietest hour; 0: unknown.")
    input_tokens: NotNegative = Field(description="Mean per request.")
    output_tokens: NotNegative = Field(description="Mean per request.")
    streaming: bool = Field(default=False, description="Answers are server-sent events.")


class ShadowShape(Shape):
    """How answers are compared before the target serves any customer."""

    positions: Positive = Field(default=600, description="Least number of compared token positions.")
    max_mismatch: Ratio = Field(default=0.05, description="Largest share of positions whose top token differs without a near tie.")
    near_tie_nat: NotNegative = Field(default=0.2, description="Log-probability gap under which two top tokens count as tied, in nat.")
    sample_per_s: AboveZero = Field(default=2.0, description="Most requests copied per second.")
    max_share: Annotated[float, Field(gt=0, le=1)] = Field(default=0.1, description="Most of its requests that are copied, of all.")


class ContractShape(Shape):
    """The serving contract: about 40 calls of the API that both arms must answer alike."""


class QualityShape(Shape):
    """Forced texts: what each arm would say next, position by position."""

    excess: Points = Field(default=0.02, description="Tolerated over what the source differs from itself, of positions.")
    near_tie_nat: NotNegative = Field(default=0.125, description="Log-probability gap under which two tokens count as tied, in nat.")
    kl_excess: NotNegative = Field(default=0.002, description="Tolerated mean divergence over the source's own, in nat.")
    prefill_chunk: Positive = Field(default=2048, description="Tokens that the engine prefills at a time; some texts are longer.")
    positions: Annotated[int, Field(ge=1, le=512)] = Field(default=24, description="Of each text's continuation.")
    texts: Text = Field(default="", description='JSON lines of {"prompt": "..."}. Left out: the shipped ones.')


class AnswersShape(Shape):
    """Free answers: where they part, how long they are, how many are not what was asked for."""

    prompts: Text = Field(default="", description='JSON lines of {"prompt": "...", "form": "text|json|number"}. Left out: built-in ones.')
    api: Literal["chat", "completions"] = "chat"
    margin: Points = Field(default=0.10, description="Answers that may part from the source's, over what it parts from itself.")
    invalid_margin: Points = Field(default=0.05, description="The same of answers that are not of their form.")
    length_ratio: Annotated[float, Field(gt=1, le=10)] = Field(default=1.15, description="Most that answers may be longer or shorter.")
    max_tokens: Annotated[int, Field(ge=2, le=4096)] = 64


class AccuracyShape(Shape):
    """Scored answers to the same items on both arms."""

    items: Text = Field(description='JSON lines of {"prompt": "...", "expect": "...", "match": "exact|contains|number|choice|json"}.')
    api: Literal["chat", "completions"] = "chat"
    margin: Points = Field(default=0.02, description="Drop of accuracy that is tolerated.")
    max_tokens: Annotated[int, Field(ge=1, le=4096)] = 64


class EmbeddingsShape(Shape):
    """Vectors of the same texts on both arms."""

    texts: Text = Field(default="", description='100 or more JSON lines of {"prompt": "..."}. Left out: built-in ones.')
    least_cosine: Annotated[float, Field(gt=0, le=1)] = Field(default=0.999, description="Least first percentile of cosines.")
    least_overlap: Annotated[float, Field(gt=0, le=1)] = Field(default=0.99, description="Least share of common nearest neighbours.")


class ChecksShape(Shape):
    """Checks of both arms that must stand before a weight is raised."""

    contract: ContractShape | None = None
    quality: QualityShape | None = None
    answers: AnswersShape | None = None
    accuracy: AccuracyShape | None = None
    embeddings: EmbeddingsShape | None = None


class PolicyChecksShape(Shape):
    """Which checks every workload needs, and who runs them."""

    required: list[Literal["contract", "quality", "answers", "accuracy", "embeddings"]] = Field(
        default_factory=list, description="Beside those that a workload names itself."
    )
    run: Literal["auto", "by_hand"] = Field(
        default="auto", description="auto: the ticker runs what is due. by_hand: fleetctl calibrate CELL --checks."
    )
    valid: Duration = Field(default=timedelta(days=7), description="How long a result stands while neither arm changes.")


class BreakageShape(Shape):
    """The mark of a test workload that `fleetctl runbook drill` may break on purpose; without it nothing outside a lab is ever broken."""

    inject: list[Text] = Field(min_length=1, max_length=40, description="Command that begins the fault, as words; {fault} is its kind.")
    mend: list[Text] = Field(min_length=1, max_length=40, description="Command that takes the fault away, as words.")


class WorkloadShape(Shape):
    """A served model endpoint with an SLO."""

    model: ModelShape
    engine: Text = Field(description="Serving engine, such as vllm, sglang or llama.cpp.")
    engine_version: ScalarText = ""
    adapters: list[Text] = Field(default_factory=list, description="LoRA adapter models served beside the base model.")
    class_: ClassName = Field(alias="class", description="Cheapest to disturb first: batch, online, realtime.")
    slo: SloShape = SloShape()
    traffic: TrafficShape
    replicas: Positive = Field(default=1, description="Serving processes per cell.")
    accelerators_per_replica: Positive = 1
    concurrency: Positive = Field(default=8, description="Requests that one replica works on at once.")
    guardrails: list[GuardrailName] = Field(default_factory=lambda: ["errors", "latency"], description="Left out: errors and latency.")
    shadow: ShadowShape | None = None
    owner: Text = ""
    cost_centre: ScalarText = ""
    tenant: Text = ""
    data_class: Text = ""
    route: Literal["native", "rebuild", "hipify", "scale", "zluda", "stay"] = Field(
        default="native", description="How it can run on the target."
    )
    serving: dict[str, ScalarText] = Field(default_factory=dict, description="What the roles and the lab need to start it.")
    apart: Text = Field(default="", description="Cells of workloads with the same word here never share a target pool.")
    after: list[Id] = Field(default_factory=list, description="Workloads whose cells must be in soak before its own begin.")
    may_differ: list[Literal["dtype", "quantization", "quant", "weight_type"]] = Field(
        default_factory=list, description="Engine flags in which the two sides differ on purpose (bf16 here, fp8 there)."
    )
    checks: ChecksShape = Field(default=ChecksShape(), description="Checks of both arms that must stand before a weight is raised.")
    drill: BreakageShape | None = Field(default=None, description="A test workload that a rehearsal may break on purpose.")


class AffinityShape(Shape):
    """What keeps a conversation on one side."""

    kind: Literal["header", "cookie"]
    name: HeaderName


class LaneShape(Shape):
    """How the cell can get a verdict; anything but `own` says why and who decided it."""

    kind: Literal["own", "pooled", "replay", "accepted", "stay"]
    reason: Text = ""
    actor: Text = Field(default="", description="The person who decided it.")
    bake: Duration = Field(default=timedelta(0), description="accepted: least time at each step that raises the weight.")


class RouterRefShape(Shape):
    """The router of a cell, and what it calls the two sides."""

    name: Id
    baseline_backend: Backend = Field(default="", description="Left out: <cell>_baseline.")
    canary_backend: Backend = Field(default="", description="Left out: <cell>_canary.")
    baseline_endpoints: list[Endpoint] = Field(default_factory=list, description="host:port of each replica on the source.")
    canary_endpoints: list[Endpoint] = Field(default_factory=list, description="host:port of each replica on the target.")


class TargetShape(Shape):
    """Where a cell goes: a pool that fleetctl makes (`pool`), or one that others built (`existing`)."""

    pool: Id | None = None
    existing: Id | None = None


class CohortShape(Shape):
    """Requests of another cell that go by this one, and move before the rest: internal users, a free tier, one tenant."""

    of: Id = Field(description="The other cell: same region, router and model.")
    header: HeaderName | None = Field(default=None, description="Set by your gateway; what a client sends by itself must not count.")
    cookie: HeaderName | None = Field(default=None, description="Instead of a header, where the router is an HAProxy or an Envoy.")
    values: Annotated[list[CohortValue], Field(min_length=1, max_length=50)] = Field(description="Its values that belong here.")


class CellShape(Shape):
    """A workload in one region: the unit of placement, evidence, traffic and rollback."""

    workload: Id
    region: Region
    source: Id = Field(description="Pool it runs on now.")
    target: Annotated[
        TargetShape | None,
        _short_form("pool"),
        WithJsonSchema({"anyOf": [{"type": "string"}, TargetShape.model_json_schema()]}),
    ] = Field(default=None, description="A pool's name, {existing: POOL}, existing (the region's only one), or left to the plan.")
    router: Annotated[
        RouterRefShape,
        _short_form("name"),
        WithJsonSchema({"anyOf": [{"type": "string"}, RouterRefShape.model_json_schema()]}),
    ] = Field(description="A router's name, existing (the file's only one), or a mapping with name, backends and endpoints.")
    affinity: AffinityShape | None = None
    on_source_loss: Literal["hold_cap", "shed_by_class", "lift_after_two_signatures"] = "hold_cap"
    lane: Annotated[
        LaneShape,
        _short_form("kind"),
        WithJsonSchema({"anyOf": [{"enum": ["own"]}, LaneShape.model_json_schema()]}),
    ] = LaneShape(kind="own")
    evidence: list[Id] = Field(
        default=["log"],
        description="Sources of its evidence: log (its router's) and names of `evidence`; the first counts attempts and errors.",
    )
    cohort: CohortShape | None = Field(default=None, description="It serves only some requests of another cell.")
    wave: Count = Field(default=0, description="Wave it must move in, from 1; 0: the plan chooses.")
    regions: list[Region] = Field(default_factory=list, description="Other regions that its data may be served from.")


class MarginShape(Shape):
    """One guardrail at one step: latency, ttft, token_time and nll as a percentage, all others in points."""

    margin: Text = Field(description='Regression tolerated for a PASS: "0.5 points" for errors and other shares, "10%" for times and nll.')
    fail_margin: Text | None = Field(
        default=None, description="What a FAIL must exceed, same unit. Left out: see docs/reference/fleet-file.md."
    )
    judged: bool = Field(default=True, description="false: shown, gates nothing.")


class StepShape(Shape):
    """One step of a rollout."""

    phase: PhaseName
    weight: ShareBp = Field(default=0, description="Share of buckets on the target.")
    bake: Duration = Field(default=timedelta(0), description="Least time at this step.")
    guardrails: dict[GuardrailName, MarginShape] | None = Field(default=None, description="Left out: the defaults for this share.")


class FreezeShape(Shape):
    """When nothing advances; going home is always allowed."""

    name: Text
    start: At
    end: At


class PolicyShape(Shape):
    """The rules that a migration keeps."""

    approvals: Count = Field(default=1, description="People needed on a plan besides who made it; 0: the newest plan counts as approved.")
    require_signatures: bool = Field(
        default=False, description="Only approvals signed with an allowed SSH key count, of at least one person besides the author."
    )
    wave_cells: Positive = Field(default=5, description="Most cells that move together.")
    order: list[ClassName] = Field(default=["batch", "online", "realtime"], description="Classes in the order in which they move.")
    cap: ShareBp = Field(default=10_000, description="The most that a target may ever serve.")
    warm_up: Duration = Field(default=timedelta(minutes=5), description="Start of a replica's life that is left out of evidence.")
    lost_evidence_home: Duration = Field(default=timedelta(seconds=120), description="Without evidence for this long, one cell goes home.")
    step_deadline: Duration = Field(default=timedelta(hours=72), description="Longest stay at a step before a person must look.")
    weight_lease: Duration = Field(default=timedelta(seconds=180), description="How long a weight stands without a tick.")
    home_within: Duration | None = Field(
        default=None, description="No plan moves a cell whose router takes longer from the order to go home to its end, such as 2s."
    )
    power_kw: dict[Region, AboveZero] = Field(
        default_factory=dict, description="Most all-in draw (not TDP) per region while both sides run, in kW."
    )
    target_gpus: Count | None = Field(default=None, description="Most GPUs of AMD pools. Left out: no limit.")
    target_share: Ratio | None = Field(
        default=None, description="Most GPUs of AMD pools, as a share of all GPUs of today. Left out: no limit."
    )
    cooling: dict[Region, Literal["air"]] = Field(default_factory=dict, description="Regions whose halls have no liquid cooling: air.")
    budget_usd_per_hour: AboveZero | None = Field(default=None, description="Most that all VMs may cost while both sides run.")
    horizon: Duration = Field(default=timedelta(days=90), description="Time in which a move must earn back what it costs.")
    freeze: list[FreezeShape] = Field(default_factory=list)
    checks: PolicyChecksShape = Field(default=PolicyChecksShape(), description="Checks of both arms that every workload needs.")
    steps: Annotated[
        list[StepShape] | None,
        BeforeValidator(expand_steps),
        WithJsonSchema({"anyOf": [{"enum": list(PRESETS)}, {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/StepShape"}}]}),
    ] = Field(default=None, description="A named set of steps, or the steps themselves. Left out: medium-traffic.")


class PathShape(Shape):
    """The way between two regions, the same in both directions."""

    between: Annotated[list[Region], Field(min_length=2, max_length=2)] = Field(description="The two regions.")
    round_trip: Duration = Field(description="Measured between machines of both, such as 12ms.")
    private: bool = Field(default=False, description="Private addresses reach across: peering, a dedicated line, a VPN.")
    egress_usd_per_gb: NotNegative | None = Field(default=None, description="What a GB costs that leaves either side.")


class ScopeShape(Shape):
    """VMs that match all that is given; at least one of it."""

    clouds: list[Text] = Field(default_factory=list, description="Such as aws, azure.")
    regions: list[Region] = Field(default_factory=list)
    skus: list[SkuPattern] = Field(default_factory=list, description='Names or families, such as "p5.*" or Standard_ND96*.')
    pools: list[Id] = Field(default_factory=list, description="Pools of the accounts or subscriptions that it is shared with.")


class CommitmentShape(Shape):
    """Capacity that is paid for already: VMs of one pool, VMs wherever the scope matches, or money an hour."""

    pool: Id | None = Field(default=None, description="Its VMs are there, used or not (a capacity block, a zonal reservation).")
    scope: ScopeShape | None = Field(default=None, description="Instead of a pool: wherever it is used.")
    count: Positive | None = Field(default=None, description="VMs.")
    of: SkuName | None = Field(default=None, description="Size that count speaks of; others count by their accelerators against it.")
    hourly: Amount | None = Field(default=None, description='Per VM and hour, such as "55.10 USD".')
    spend: Amount | None = Field(
        default=None, description='Instead of count and hourly: of the whole commitment an hour, such as "120 USD".'
    )
    discount: Ratio | None = Field(default=None, description="With spend: what it buys costs so much less than the VMs' own price.")
    name: Text = Field(default="", description="For people.")
    until: IsoDate


class FleetShape(Shape):
    """The fleet file of fleetctl."""

    format_version: Literal[1] = Field(default=1, description="Of this file's format.")
    name: Id
    lineage: Lineage = Field(description="Identity of this fleet, made once by fleetctl init; never changed.")
    routers: dict[Id, RouterShape] = Field(default_factory=dict)
    sources: dict[Id, SourceShape] = Field(default_factory=dict, description="What `fleetctl inventory scan` asks.")
    evidence: dict[Id, EvidenceShape] = Field(default_factory=dict, description="Sources of evidence beside the routers' logs.")
    notify: dict[Id, NotifyShape] = Field(default_factory=dict, description="Who is told: docs/how-to/be-told.md.")
    pools: dict[Id, PoolShape]
    workloads: dict[Id, WorkloadShape]
    cells: dict[Id, CellShape]
    policy: PolicyShape = PolicyShape()
    commitments: list[CommitmentShape] = Field(default_factory=list)
    paths: list[PathShape] = Field(default_factory=list, description="Ways between regions; a move between clouds needs one.")
    settings: dict[str, ScalarText] = Field(default_factory=dict, description="Free text settings that adapters read.")


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the fleet file."""
    from pydantic.json_schema import models_json_schema

    _, shared = models_json_schema([(FleetShape, "validation"), (StepShape, "validation")], by_alias=True)
    definitions = shared["$defs"]
    top = definitions.pop("FleetShape")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **top, "title": "fleetctl fleet file", "$defs": definitions}
