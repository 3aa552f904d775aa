"""Paired probes against real engine processes: what is measured is what the engine did, and the judge finds a slower or a failing arm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleetctl.adapters.paired.runner import PairedProbes, PairSpec
from fleetctl.adapters.paired.stream import Api, Side
from fleetctl.adapters.recording.evidence import RecordedEvidence
from fleetctl.adapters.recording.files import Recorder, files_of, records_of
from fleetctl.analysis.judge import fresh, judge
from fleetctl.domain.evidence import Cursor, Verdict
from fleetctl.domain.ids import CellId
from fleetctl.domain.records import Attempt
from fleetctl.domain.workload import Guardrail, GuardrailSpec
from fleetctl.lab.faults import write_faults
from fleetctl.usecases.evidence import Probed
from tests.lab.lab_tools import engine, until

pytestmark = pytest.mark.lab
CELL = CellId("stream-lab")
TTFT_MS, TOKEN_MS = 30.0, 4.0
SPECS = tuple(
    GuardrailSpec(name=Guardrail(name), margin=margin, fail_margin=fail)
    for name, margin, fail in (("errors", 0.1, 0.02), ("ttft", 1.0, 0.1), ("token_time", 1.0, 0.1), ("nll", 1.0, 0.1))
)


def now() -> datetime:
    return datetime.now(UTC)


@dataclass
class World:
    """Two engines, probes of both, and the source that reads their records."""

    folder: Path
    ports: dict[str, int]
    probes: PairedProbes
    source: Probed

    def records(self) -> list[Attempt]:
        place = self.folder / "recordings"
        found = [r for path in (files_of(place, CELL) if place.is_dir() else []) for _, r in records_of(path)]
        assert not [r for r in found if isinstance(r, str)]
        return [r for r in found if isinstance(r, Attempt)]

    def cursor(self) -> Cursor:
        until(lambda: self.source.freeze(CELL, (1.1, 1.5), 60) is not None, "sixty pairs", 60)
        frozen = self.source.freeze(CELL, (1.1, 1.5), 60)
        assert frozen is not None
        return replace(self.source.mark(CELL), thresholds=frozen)

    def fault(self, **faults: dict[str, float]) -> None:
        write_faults(self.folder / "stream-lab-c1.faults.json", faults)

    def looked(self, cursor: Cursor, is_so: Callable[[tuple[Verdict, ...]], bool], what: str) -> tuple[Verdict, ...]:
        state = fresh()
        verdicts: tuple[Verdict, ...] = ()

        def look() -> bool:
            nonlocal state, verdicts
            state, verdicts = judge(state, self.source.read(CELL, cursor), SPECS)
            return is_so(verdicts)

        try:
            until(look, what, 120)
        except AssertionError as e:
            raise AssertionError([(v.guardrail, v.kind, v.missing, v.look.canary_n, v.detail) for v in verdicts]) from e
        return verdicts


def world(folder: Path, stack: ExitStack, api: Api = "chat") -> World:
    config = {"ttft_ms": TTFT_MS, "token_ms": TOKEN_MS, "log_sd": 0.1}
    ports = {side: stack.enter_context(engine(folder, name=f"stream-lab-{side}1", **config)) for side in "bc"}
    recorder = Recorder(folder / "recordings")
    stack.callback(recorder.close)
    spec = PairSpec(
        sides={"baseline": (Side(host="127.0.0.1", port=ports["b"]),), "canary": (Side(host="127.0.0.1", port=ports["c"]),)},
        model="m",
        api=api,
        per_s=20,
        max_tokens=8,
        limit_s=5,
    )
    probes = PairedProbes(lambda c: spec, recorder.add)
    stack.callback(probes.close)
    return World(folder, ports, probes, Probed(probes, RecordedEvidence(folder / "recordings", now=now, may_begin=True), least=60))


@pytest.fixture
def made(tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        yield world(tmp_path, stack)


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_times_tokens_and_logprobs_are_those_of_the_engine(tmp_path: Path, api: Api) -> None:
    with ExitStack() as stack:
        w = world(tmp_path, stack, api)
        w.probes.keep(CELL)
        until(lambda: len(w.records()) >= 40, "twenty pairs", 30)
        rows = w.records()
    by_pair: dict[int, set[str]] = {}
    for r in rows:
        by_pair.setdefault(r.pair, set()).add(r.arm)
    assert all(arms == {"baseline", "canary"} for arms in by_pair.values()), "both sides of every pair are written together"
    assert not any(r.failed for r in rows)
    assert {r.output_tokens for r in rows} == {8}
    assert {r.finish for r in rows} == {"length"}
    assert all(r.nll is not None and r.nll > 0 for r in rows)
    assert len({r.prompt_tokens for r in rows}) > 1, "several classes of prompt length"
    assert {r.cached_tokens for r in rows} == {0}, "no pair finds the prompt of another in the cache"
    assert min(r.ttft_ms or 0.0 for r in rows) >= 0.6 * TTFT_MS
    assert min(r.latency_ms or 0.0 for r in rows) >= 0.6 * (TTFT_MS + 7 * TOKEN_MS)
    assert all((r.ttft_ms or 0.0) + 7 * (r.token_ms or 0.0) <= (r.latency_ms or 0.0) + 0.1 for r in rows), "the parts are within the whole"
    assert max(r.token_ms or 0.0 for r in rows) >= 0.5 * TOKEN_MS, "a reader that waits for the CPU sees tokens together, never too late"


def test_alike_arms_do_not_fail_and_a_slower_arm_fails_on_what_became_slower(made: World) -> None:
    cursor = made.cursor()
    alike = made.looked(cursor, lambda v: v[0].kind == "FAIL" or v[0].look.canary_n >= 150, "150 pairs")
    assert alike[0].kind in ("PASS", "INCONCLUSIVE")
    made.fault(latency={"factor": 4.0})
    slower = replace(made.source.mark(CELL), thresholds=cursor.thresholds)
    failed = made.looked(slower, lambda v: v[0].kind == "FAIL", "a slower arm fails")
    assert "ttft" in failed[0].detail or "token_time" in failed[0].detail


def test_an_arm_that_fails_is_found_and_another_process_counts_the_same(made: World) -> None:
    cursor = made.cursor()
    made.fault(errors={"ratio": 0.5})
    made.looked(cursor, lambda v: v[0].kind == "FAIL", "an arm with errors fails")
    made.probes.close()
    again = RecordedEvidence(made.folder / "recordings", now=now)
    assert again.read(CELL, cursor).arms == made.source._recorded.read(CELL, cursor).arms
