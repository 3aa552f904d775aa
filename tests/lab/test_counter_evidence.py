"""Counters of real engine processes as evidence: from their own pages, and out of a real Prometheus that scrapes them."""

from __future__ import annotations

import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleetctl.adapters.engines.scrapes import Page, PageScraper
from fleetctl.adapters.prometheus.client import PrometheusApi
from fleetctl.adapters.prometheus.scrapes import OwnCounter, PrometheusScraper, Target
from fleetctl.analysis.judge import fresh, judge
from fleetctl.catalog.metrics import load_metrics
from fleetctl.domain.evidence import Cursor, Thresholds, Verdict
from fleetctl.domain.ids import CellId
from fleetctl.domain.workload import Guardrail, GuardrailSpec
from fleetctl.errors import ConfigInvalid, EvidenceUnavailable
from fleetctl.lab.faults import write_faults
from fleetctl.lab.processes import free_port
from fleetctl.lab.service import start, stop
from fleetctl.usecases.evidence import CounterEvidence
from tests.fakes.json_double import json_double
from tests.lab.lab_tools import complete, engine, until

pytestmark = pytest.mark.lab

PROMETHEUS = shutil.which("prometheus")
CELL = CellId("chat-lab")
NEEDS = ("requests_total", "errors_total", "ttft_seconds")
SPECS = (
    GuardrailSpec(name=Guardrail("errors"), margin=0.05, fail_margin=0.01),
    GuardrailSpec(name=Guardrail("ttft"), margin=0.25, fail_margin=0.1),
)


def now() -> datetime:
    return datetime.now(UTC)


@dataclass
class World:
    """Two engines, and a source that reads their counters."""

    folder: Path
    ports: dict[str, int]
    source: CounterEvidence
    again: Callable[[], CounterEvidence]
    stop_source: Callable[[], None] | None = None

    def serve(self, n: int) -> None:
        """Send n requests to each side, eight at a time."""
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda i: complete(self.ports["b" if i % 2 else "c"], prompt=f"question {i}", temperature=1), range(2 * n)))

    def cursor(self) -> Cursor:
        self.serve(150)
        until(lambda: self.frozen() is not None, "enough baseline requests", 40)
        frozen = self.frozen()
        assert frozen is not None
        cursor = replace(self.source.mark(CELL), thresholds=frozen)
        until(lambda: self.begun(cursor) == 2, "the first scrape of both sides after the cursor", 20)
        return cursor

    def frozen(self) -> Thresholds | None:
        try:
            return self.source.freeze(CELL, (1.1,), 100)
        except ConfigInvalid:  # Prometheus has not scraped its targets yet
            return None

    def begun(self, cursor: Cursor) -> int:
        self.source.read(CELL, cursor)
        return len(self.source._kept[CELL][cursor].tally.bases())

    def judged(self, cursor: Cursor, is_so: Callable[[tuple[Verdict, ...]], bool], what: str) -> tuple[Verdict, ...]:
        state = fresh()
        verdicts: tuple[Verdict, ...] = ()

        def look() -> bool:
            nonlocal state, verdicts
            self.serve(20)
            state, verdicts = judge(state, self.source.read(CELL, cursor), SPECS)
            return is_so(verdicts)

        until(look, what, 60)
        return verdicts


def _engines(stack: ExitStack, folder: Path) -> dict[str, int]:
    config = {"ttft_ms": 22, "token_ms": 1, "log_sd": 0.25}
    return {side: stack.enter_context(engine(folder, name=f"chat-lab-{side}1", **config)) for side in "bc"}


def _pages(stack: ExitStack, folder: Path) -> World:
    ports = _engines(stack, folder)
    pages = tuple(
        Page(arm="baseline" if side == "b" else "canary", url=f"127.0.0.1:{port}", system="vllm", version="0.33.0", needs=NEEDS)
        for side, port in ports.items()
    )

    def make() -> CounterEvidence:
        scraper = PageScraper({CELL: pages}, load_metrics(), folder / "starts", now=now, every_s=0.2)
        return CounterEvidence(scraper, now=now, settle_s=0.5)

    return World(folder, ports, make(), make)


def _prometheus(stack: ExitStack, folder: Path) -> World:
    if PROMETHEUS is None:
        pytest.skip("prometheus is not installed (Debian: prometheus): its real API is not tried here")
    ports = _engines(stack, folder)
    port = free_port(27_000)
    lists = ", ".join(f'"127.0.0.1:{p}"' for p in ports.values())
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
        f"scrape_configs: [{{job_name: lab, static_configs: [{{targets: [{lists}]}}]}}]\n"
    )
    argv = [PROMETHEUS, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with (folder / "prometheus.log").open("wb") as log:
        child = subprocess.Popen([*argv, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)

    def end() -> None:
        child.terminate()
        child.wait(20)

    stack.callback(end)
    url = f"http://127.0.0.1:{port}"
    until(lambda: _is_ready(url), "prometheus is ready", 60)
    targets = tuple(
        Target(arm="baseline" if side == "b" else "canary", instance=f"127.0.0.1:{p}", system="vllm", version="0.33.0", needs=NEEDS)
        for side, p in ports.items()
    )

    def make() -> CounterEvidence:
        api = PrometheusApi(url, timeout_s=2, tries=1)
        return CounterEvidence(PrometheusScraper(api, {CELL: targets}, load_metrics(), now=now), now=now, settle_s=0.5)

    return World(folder, ports, make(), make, end)


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


@pytest.fixture(params=[_pages, _prometheus], ids=["pages", "prometheus"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        yield request.param(stack, tmp_path)


def test_counts_are_those_that_were_served_and_a_slow_target_fails(world: World) -> None:
    cursor = world.cursor()
    world.serve(40)

    def counted() -> set[int]:
        return {counts.attempts for counts in world.source.read(CELL, cursor).arms.values()}

    until(lambda: counted() == {40}, "all forty of each side are counted", 20)
    e = world.source.read(CELL, cursor)
    assert e.state == {"baseline": "ok", "canary": "ok"}
    assert world.again().read(CELL, cursor).arms == e.arms, "another process comes to the same counts"
    assert {s.name for s in world.source.describe(CELL) if s.arm == "canary" and s.present} >= {"requests_total", "ttft_seconds"}
    write_faults(world.folder / "chat-lab-c1.faults.json", {"latency": {"factor": 3.0}})
    verdicts = world.judged(cursor, lambda v: v[0].kind == "FAIL", "a slower target fails")
    assert "ttft" in verdicts[0].detail


def test_nan_gone_restart_and_a_dead_source_are_told_apart(world: World) -> None:
    cursor = world.cursor()
    world.serve(10)
    until(lambda: set(world.source.read(CELL, cursor).state.values()) == {"ok"}, "both arms are ok", 20)
    faults = world.folder / "chat-lab-c1.faults.json"
    write_faults(faults, {"metrics": {"state": "nan"}})
    until(lambda: world.source.read(CELL, cursor).state["canary"] == "nan", "NaN is told", 20)
    write_faults(faults, {"metrics": {"state": "gone"}})
    until(lambda: world.source.read(CELL, cursor).state["canary"] == "down", "a page that is gone is told", 20)
    assert world.source.read(CELL, cursor).state["baseline"] == "ok"
    write_faults(faults, {})
    stop(world.folder, "chat-lab-c1")
    start(world.folder, "chat-lab-c1")
    until(lambda: world.source.read(CELL, cursor).state["canary"] == "reset", "counters that began again are told", 20)
    if world.stop_source is not None:
        world.stop_source()
        with pytest.raises(EvidenceUnavailable) as e:
            world.source.read(CELL, cursor)
        assert e.value.code == "evidence.down"


def test_own_counters_and_an_unknown_target_in_prometheus(tmp_path: Path) -> None:
    if PROMETHEUS is None:
        pytest.skip("prometheus is not installed (Debian: prometheus): its real API is not tried here")
    sold = {"n": 100}

    def shop(*_: object) -> str:
        sold["n"] += 10
        return "".join(
            f'shop_orders_total{{arm="{a}"}} {sold["n"]}\nshop_failed_total{{arm="{a}"}} {sold["n"] // 10}\n'
            for a in ("baseline", "canary")
        )

    with json_double({"/metrics": shop}) as exporter, ExitStack() as stack:
        port = free_port(27_100)
        (tmp_path / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
            f'scrape_configs: [{{job_name: shop, static_configs: [{{targets: ["127.0.0.1:{exporter.port}"]}}]}}]\n'
        )
        argv = [PROMETHEUS, f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
        with (tmp_path / "log").open("wb") as log:
            child = subprocess.Popen([*argv, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
        stack.callback(child.wait, 20)
        stack.callback(child.terminate)
        url = f"http://127.0.0.1:{port}"
        until(lambda: _is_ready(url), "prometheus is ready", 60)
        own = (OwnCounter(name="failed_orders", events="shop_failed_total", of="shop_orders_total"),)
        targets = (Target(arm="canary", instance="127.0.0.1:1", system="vllm", needs=NEEDS),)
        scraper = PrometheusScraper(PrometheusApi(url, timeout_s=2, tries=1), {CELL: targets}, load_metrics(), now=now, own=own)
        source = CounterEvidence(scraper, now=now, settle_s=0.5)
        cursor = source.mark(CELL)
        until(
            lambda: source.read(CELL, cursor).arms["canary"].shares.get("counter_failed_orders", (0, 0))[0] >= 20, "orders are counted", 30
        )
        e = source.read(CELL, cursor)
        n, k = e.arms["canary"].shares["counter_failed_orders"]
        assert n == 10 * k
        assert e.state["canary"] == "mislabelled"
        assert 'no target with instance="127.0.0.1:1"' in e.detail
