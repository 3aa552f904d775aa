"""A fleet file's own counters and cached tokens end to end: emulated engines and a shop, a real Prometheus, the fleet file, the judge."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from fleetctl.analysis import caches
from fleetctl.analysis.judge import fresh, judge
from fleetctl.domain.evidence import Arm, JudgeState, Verdict, cached_shares
from fleetctl.domain.ids import CellId
from fleetctl.errors import ConfigInvalid
from fleetctl.formats.fleet_file import parse_fleet
from fleetctl.lab.processes import free_port
from fleetctl.planning.evidence_need import phases_for
from fleetctl.wiring.evidence import EvidenceMaker
from tests.fakes.evidence import FakeEvidence, Served
from tests.fakes.json_double import json_double
from tests.lab.lab_tools import ask, engine, until
from tests.lab.test_counter_evidence import PROMETHEUS, _is_ready, now

pytestmark = [pytest.mark.lab, pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed (Debian: prometheus)")]
CELL = CellId("chat-lab")
FLEET = """\
name: shop
lineage: 3f0c2b9e-7d41-4c55-9a5e-1b6f2a7d8e90
routers:
  edge: {{kind: haproxy, settings: {{url: "http://127.0.0.1:9000"}}}}
evidence:
  prom:
    kind: prometheus
    settings:
      url: "http://127.0.0.1:{prometheus}"
      settle: 1s
      arm_label: side
      counter.failed_orders: 'shop_orders_total{{state="failed"}} / shop_orders_total'
pools:
  green: {{vendor: nvidia, sku: lab-nvidia, region: lab, count: 2, limit: 2}}
  red: {{vendor: amd, sku: lab-mi300x, region: lab, count: 0, limit: 2, provisioned_by: lab}}
workloads:
  chat:
    model: {{name: m, parameters_billion: 1, precision: bf16, context_tokens: 4096}}
    engine: emulated
    class: online
    traffic: {{requests_per_s: 5, input_tokens: 10, output_tokens: 10}}
    guardrails: [errors, counter_failed_orders]
cells:
  chat-lab:
    workload: chat
    region: lab
    source: green
    target: red
    router: {{name: edge, baseline_endpoints: ["127.0.0.1:{b}"], canary_endpoints: ["127.0.0.1:{c}"]}}
    evidence: [log, prom]
policy:
  steps:
    - phase: canary
      weight: 50%
      guardrails:
        errors: {{margin: 2 points}}
        {counter}: {{margin: 2 points, fail_margin: 0.5 points}}
    - {{phase: complete, weight: 100%}}
"""


class Shop:
    """Orders by arm as a page of counters; `failing` is the canary's share of failed ones, in per cent."""

    def __init__(self) -> None:
        self.failing = 1
        self.orders = {"baseline": 0, "canary": 0}
        self.failed = {"baseline": 0, "canary": 0}

    def sell(self, n: int) -> None:
        for side, share in (("baseline", 1), ("canary", self.failing)):
            for i in range(self.orders[side], self.orders[side] + n):
                self.failed[side] += i % 100 < share
            self.orders[side] += n

    def page(self, *_: object) -> str:
        rows = []
        for side in self.orders:
            rows.append(f'shop_orders_total{{side="{side}",state="done"}} {self.orders[side] - self.failed[side]}')
            rows.append(f'shop_orders_total{{side="{side}",state="failed"}} {self.failed[side]}')
        return "\n".join(rows) + "\n"


class World:
    """The fleet file's own source of evidence, and everything behind it."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.shop, self.talks = Shop(), count()
        self.ports: dict[Arm, int] = {
            "baseline": stack.enter_context(engine(folder, name="chat-lab-b1")),
            "canary": stack.enter_context(engine(folder, name="chat-lab-c1")),
        }
        exporter = stack.enter_context(json_double({"/metrics": self.shop.page}))
        port = free_port(27_200)
        targets = ", ".join(f'"127.0.0.1:{p}"' for p in (*self.ports.values(), exporter.port))
        (folder / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
            f"scrape_configs: [{{job_name: all, static_configs: [{{targets: [{targets}]}}]}}]\n"
        )
        argv = [str(PROMETHEUS), f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        with (folder / "prometheus.log").open("wb") as log:
            child = subprocess.Popen([*argv, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
        stack.callback(child.wait, 20)
        stack.callback(child.terminate)
        until(lambda: _is_ready(f"http://127.0.0.1:{port}"), "prometheus is ready", 60)
        text = FLEET.format(prometheus=port, b=self.ports["baseline"], c=self.ports["canary"], counter="counter_failed_orders")
        fleet = parse_fleet(text, file="f.yaml")
        self.specs = next(p for p in phases_for(fleet.policy, fleet.workloads[0]) if p.phase == "canary").guardrails
        self.log = FakeEvidence(now)
        maker = EvidenceMaker(lambda: fleet, lambda _: self.log, lambda c, arm: {}, workspace=folder, folder=lambda: folder, now=now)
        self.source = maker.of(CELL)

    def serve(self, n: int) -> None:
        """Serve requests that the router logs (without a word on caches), and that the engines count; the baseline's come again."""
        for arm in self.ports:
            self.log.add(*(Served(cell=CELL, arm=arm, started=now(), latency_ms=50) for _ in range(n)))

        def one(i: int) -> None:
            arm: Arm = "baseline" if i % 2 else "canary"
            talk = f"talk {i % 4}" if arm == "baseline" else f"talk of its own {next(self.talks)}"
            body = {"prompt": "the same long beginning of a conversation " * 10, "max_tokens": 1, "temperature": 0}
            assert ask(self.ports[arm], "POST", "/v1/completions", body, {"x-conversation-id": talk})[0] == 200

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(one, range(2 * n)))

    def frozen(self) -> bool:
        try:
            return self.source.freeze(CELL, (1.0,), 20) is not None
        except ConfigInvalid:  # Prometheus has not scraped every target yet
            return False


@pytest.mark.timeout(240)
def test_business_counters_and_cached_tokens_from_a_fleet_file_to_a_verdict(tmp_path: Path) -> None:
    with ExitStack() as stack:
        world = World(stack, tmp_path)
        state: JudgeState = fresh(1)
        verdicts: dict[str, Verdict] = {}
        world.serve(20)
        world.shop.sell(100)
        until(world.frozen, "thresholds of every source", 60)
        thresholds = world.source.freeze(CELL, (1.0,), 20)
        cursor = replace(world.source.mark(CELL), thresholds=thresholds)

        def look(kind: str) -> bool:
            nonlocal state, verdicts
            world.serve(10)
            world.shop.sell(100)
            state, found = judge(state, world.source.read(CELL, cursor), world.specs)
            verdicts = {v.guardrail: v for v in found}
            return verdicts["counter_failed_orders"].kind == kind

        until(lambda: look("PASS"), "equal shops pass", 90)
        seen = world.source.read(CELL, cursor)
        n, k = seen.arms["canary"].shares["counter_failed_orders"]
        assert abs(k / n - 0.01) < 0.005, "one in a hundred orders fails"
        assert seen.state == {"baseline": "ok", "canary": "ok"}
        gap = caches.gap(cached_shares(seen.arms))
        assert gap is not None, "the log tells nothing of caches, the engines do"
        assert gap > 0.3
        world.shop.failing = 8
        until(lambda: look("FAIL"), "a shop that loses orders on the target fails", 90)
        assert verdicts["all"].kind == "FAIL"
        assert "failed on counter_failed_orders" in verdicts["all"].detail


def test_a_counter_that_prometheus_does_not_have_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with ExitStack() as stack:
        world = World(stack, tmp_path)
        world.serve(20)
        world.shop.orders = {}
        with pytest.raises(ConfigInvalid) as e:
            until(lambda: world.source.freeze(CELL, (1.0,), 20) is None and False, "an error", 30)
        assert "Prometheus has no" in e.value.message
