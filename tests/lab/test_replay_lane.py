"""Lane replay with real sockets: a cell without customers to speak of is judged on recorded requests that both arms get."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fleetctl.adapters.clock.system import SystemClock
from fleetctl.adapters.routers.evidence import RouterLogEvidence
from fleetctl.analysis.judge import fresh
from fleetctl.domain.evidence import Arm
from fleetctl.domain.ids import CellId
from fleetctl.domain.rollout import Rollout
from fleetctl.formats.fleet_file import parse_fleet
from fleetctl.formats.replay import ReplayHeader
from fleetctl.lab.faults import write_faults
from fleetctl.planning.rollout_spec import spec_for
from fleetctl.usecases.tick import TickPorts, TickSettings, tick
from fleetctl.wiring.evidence import EvidenceMaker
from tests.cases.planning_fleet import plan_of
from tests.fakes.kept_requests import KEY_ID, write_recording
from tests.fakes.router import FakeRouter, Target
from tests.fakes.shadow import GivenShadow
from tests.fakes.small import KeptNotices, OwnedHolds
from tests.fakes.store import MemoryStore
from tests.lab.lab_tools import engine, until
from tests.simulator import Ready

pytestmark = pytest.mark.lab
CELL = CellId("quiet-lab")

FLEET = """\
name: small
lineage: 3f0c2b9e-7d41-4c55-9a5e-1b6f2a7d8e90
routers:
  edge: {{kind: haproxy, settings: {{url: "http://127.0.0.1:9"}}}}
evidence:
  replayed:
    kind: replay
    settings: {{recording: kept.jsonl, opted_out: opted-out.txt, via: endpoints, max_tokens: 6, least: 60}}
    secrets: {{key: {{kind: file, name: "{folder}/kept.key"}}}}
pools:
  nvidia-lab: {{vendor: nvidia, sku: lab-nvidia, region: lab, count: 1, limit: 1}}
  mi300x-lab: {{vendor: amd, sku: lab-mi300x, region: lab, count: 0, limit: 1, provisioned_by: lab}}
workloads:
  quiet:
    model: {{name: m, parameters_billion: 0.1, precision: bf16, context_tokens: 4096}}
    engine: emulated
    class: online
    serving: {{kind: emulated, log_sd: "0.25"}}
    traffic: {{requests_per_s: 0.001, input_tokens: 10, output_tokens: 10}}
    shadow: {{sample_per_s: 25}}
cells:
  quiet-lab:
    workload: quiet
    region: lab
    source: nvidia-lab
    target: mi300x-lab
    router: {{name: edge, baseline_endpoints: ["127.0.0.1:{b}"], canary_endpoints: ["127.0.0.1:{c}"]}}
    evidence: [log, replayed]
    lane: {{kind: replay, reason: a handful of calls a day, actor: ana}}
policy:
  approvals: 0
  warm_up: 0s
  lost_evidence_home: 5s
  steps:
    - {{phase: canary, weight: 10%, bake: 0s, guardrails: {{errors: {{margin: 10 points}}, latency: {{margin: 150%}}}}}}
    - {{phase: ramp, weight: 50%, bake: 1h, guardrails: {{errors: {{margin: 10 points}}, latency: {{margin: 150%}}}}}}
    - {{phase: complete, weight: 100%}}
"""


def now() -> datetime:
    return datetime.now(UTC)


def keep(path: Path, *, for_s: float = 3600.0, region: str = "lab") -> None:
    """Write a recording as one that somebody opted in to."""
    at = now()
    head = ReplayHeader(
        cell=CELL,
        region=region,
        recorded=at,
        expires=at + timedelta(seconds=for_s),
        by="ana",
        reason="few calls",
        tenant="user",
        key_id=KEY_ID,
    )
    chats = [{"messages": [{"role": "user", "content": f"Say {i} in words."}], "max_tokens": 64, "user": "someone"} for i in range(20)]
    asked = [*chats, *({"prompt": f"Count to {i}:"} for i in range(20))]
    write_recording(path, head, asked)


@dataclass
class World:
    """Two engines, a router in memory, a log with hardly a customer in it, and the real tick."""

    folder: Path
    maker: EvidenceMaker
    rollout: Rollout
    target: Target = field(default_factory=lambda: Target((CELL,)))
    notices: KeptNotices = field(default_factory=KeptNotices)

    def __post_init__(self) -> None:
        self.store = MemoryStore(now)
        self.store.start(self.rollout, ())
        router = FakeRouter({CELL: self.rollout.spec.source}, target=self.target)
        self.ports = TickPorts(
            store=self.store,
            clock=SystemClock(),
            notifier=self.notices,
            holds=OwnedHolds({self.rollout.spec.source: 1, self.rollout.spec.target: 0}),
            router=lambda _: router,
            evidence=self.maker.of,
            shadow=lambda _: GivenShadow(),
            prober=lambda _: Ready(),
        )

    def state(self) -> Rollout:
        found = self.store.load(CELL)
        assert found is not None
        return found

    def run(self, is_so: Callable[[Rollout], bool], what: str, within_s: float = 60.0) -> Rollout:
        why: list[str] = [""]

        def step() -> bool:
            why[0] = tick(CELL, self.ports, TickSettings(holder="test", ttl=timedelta(seconds=5))).why
            return is_so(self.state())

        until(step, what, within_s, lambda: f"({self.state().phase}: {why[0]}; since {self.state().since})")
        return self.state()

    def customers(self, arm: Arm, count: int, status: int) -> None:
        """Let customers of an arm get answers of a status, now."""
        at = round(time.time() * 1000)
        row = {"c": CELL, "a": arm, "srv": f"{arm[0]}1", "st": status, "ts": "--", "t0": at, "ta": 30, "tr": 20, "b": 90, "pt": 4, "ct": 4}
        lines = [json.dumps({**row, "cc": 0, "bp": 1000, "p": "-", "rc": "0"}) + "\n" for _ in range(count)]
        with (self.folder / "log" / "haproxy-1.log").open("a") as f:
            f.writelines(lines)


def world(folder: Path, stack: ExitStack) -> World:
    ports = {arm: stack.enter_context(engine(folder, name=f"quiet-lab-{arm}1", ttft_ms=4, token_ms=0.5, log_sd=0.1)) for arm in "bc"}
    fleet = parse_fleet(FLEET.format(**ports, folder=folder), file="fleet.yaml")
    (folder / "log").mkdir()
    (folder / "log" / "haproxy-1.log").touch()
    log = RouterLogEvidence(folder / "log", now=now)
    maker = EvidenceMaker(lambda: fleet, lambda _: log, lambda c, arm: {}, workspace=folder, folder=lambda: folder / "evidence", now=now)
    stack.callback(lambda: [s._probes.close() for s in maker._named.values()])  # type: ignore[attr-defined]
    plan = plan_of(fleet)
    outcome = next(o for o in plan.outcomes if o.cell == CELL)
    assert (outcome.kind, outcome.lane.kind if outcome.lane else "") == ("move", "replay"), outcome.reason
    spec = spec_for(plan, fleet, CELL)
    return World(folder, maker, Rollout(cell=CELL, plan=plan.id, spec=spec, judge=fresh(), until="complete"))


@pytest.fixture
def quiet(tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        yield world(tmp_path, stack)


@pytest.mark.slow
def test_a_cell_without_customers_passes_on_recorded_requests_and_a_customers_hard_failure_takes_it_home(quiet: World) -> None:
    keep(quiet.folder / "kept.jsonl")
    quiet.maker.check(CELL)
    r = quiet.run(lambda r: r.phase == "ramp" and r.settled_at is not None, "the canary's step passes on the replay alone")
    assert r.latched is None
    assert quiet.target.splits[CELL].target_bp == 5000
    decided = next(row for row in quiet.store.rows(CELL, None) if row.verdicts and row.phase == "ramp")  # the look that ended the canary
    assert decided.arms["canary"].attempts >= 100
    assert abs(decided.arms["canary"].attempts - decided.arms["baseline"].attempts) <= 1, "both arms got the same requests"
    assert "replay of 40 recorded requests, 25/s" in decided.query
    assert decided.served_bp is None, "no customer was served, whatever was replayed"
    kept = next((quiet.folder / "evidence" / "replays" / "replayed").glob("*.jsonl")).read_text()
    assert "Count to" not in kept, "no text is kept beside the recording"
    quiet.customers("canary", 30, 500)
    r = quiet.run(lambda r: bool(r.ended), "home", 20.0)
    assert (r.ended, quiet.target.splits[CELL].target_bp) == ("rolled_back", 0)
    assert r.latched is not None
    assert (r.latched.guardrail, r.latched.detail) == ("breaker", "customers' own requests")


@pytest.mark.slow
def test_a_worse_target_fails_on_the_replay(quiet: World) -> None:
    keep(quiet.folder / "kept.jsonl")
    quiet.run(lambda r: r.phase == "canary" and r.settled_at is not None, "at the canary's step")
    write_faults(quiet.folder / "quiet-lab-c1.faults.json", {"latency": {"factor": 8.0}, "errors": {"ratio": 0.3}})
    r = quiet.run(lambda r: bool(r.ended), "home")
    assert (r.ended, quiet.target.splits[CELL].target_bp) == ("rolled_back", 0)


@pytest.mark.slow
def test_requests_that_expire_are_sent_no_more_and_the_cell_goes_home(quiet: World) -> None:
    keep(quiet.folder / "kept.jsonl", for_s=9.0)
    quiet.run(lambda r: r.phase == "canary" and r.settled_at is not None, "at the canary's step")
    r = quiet.run(lambda r: bool(r.ended), "home without evidence", 30.0)
    assert r.ended == "lost_evidence"
    sent = [p.read_text() for p in (quiet.folder / "evidence" / "replays" / "replayed").glob("*.jsonl")]
    assert 0 < "".join(sent).count("\n") < 2 * 25 * 11, "none after the ninth second, whoever reads"
