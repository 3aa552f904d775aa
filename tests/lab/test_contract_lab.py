"""Identity and the serving contract on real servers: llama.cpp with a real model, and the emulated engine."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleetctl.adapters.engines.api import Api
from fleetctl.adapters.engines.contract import filled, run_call
from fleetctl.adapters.engines.identity import read_identity
from fleetctl.analysis.identity import compare_arms
from fleetctl.catalog.contract import load_contract
from fleetctl.domain.identity import ContractReport, Identity
from fleetctl.lab.model import can_serve, find_model
from fleetctl.usecases.contract import ContractArm, run_contract
from tests.fakes.clock import FakeClock
from tests.lab.lab_tools import engine
from tests.lab.test_lab_llm import llm

pytestmark = pytest.mark.lab
NOW = datetime(2026, 11, 30, tzinfo=UTC)
MISSING = can_serve() or find_model().reason


def identity(port: int) -> Identity:
    found = read_identity(Api(f"http://127.0.0.1:{port}"))
    assert found is not None
    return found


def arm(port: int, model: str, context: int) -> ContractArm:
    api = Api(f"http://127.0.0.1:{port}")
    return ContractArm(
        ask=lambda call, adapter: run_call(api, call, model=model, adapter=adapter, context_tokens=context),
        expects=lambda call: filled(call, model),
    )


def contract(one: int, other: int, model: str, context: int, only: frozenset[str] = frozenset()) -> ContractReport:
    arms = compare_arms(identity(one), identity(other), NOW)
    calls = tuple(c for c in load_contract() if not only or c.id in only)
    return run_contract("c", calls, arms, arm(one, model, context), arm(other, model, context), FakeClock())


QUICK = frozenset({"models.listed", "completions.unicode", "chat.system", "stream.usage", "logprobs.twenty", "stops.one", "errors.path"})


@pytest.mark.skipif(bool(MISSING), reason=f"no real model: {MISSING}")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("only", [QUICK, pytest.param(frozenset(), marks=pytest.mark.slow)], ids=["few", "all"])
def test_llama_cpp_with_two_types_of_cache_keeps_the_contract(tmp_path: Path, only: frozenset[str]) -> None:
    with ExitStack() as stack:
        f16 = stack.enter_context(llm(tmp_path, "f16", name="smollm-lab-b1"))
        q8 = stack.enter_context(llm(tmp_path, "q8_0", name="smollm-lab-c1"))
        arms = compare_arms(identity(f16), identity(q8), NOW)
        assert arms.differs == ()
        assert arms.unknown == ()
        assert arms.hash() == compare_arms(identity(f16), identity(q8), NOW).hash()
        assert arms.baseline.hash() != replace(arms.baseline, weights="other").hash()
        report = contract(f16, q8, "SmolLM2-135M-Instruct", 1024, only)
    kinds = Counter(r.kind for r in report.results)
    assert report.broken == (), report.broken
    ok = {r.call for r in report.results if r.kind == "ok"}
    assert ok >= only
    if only:
        return
    assert kinds["ok"] >= 33, [r for r in report.results if r.kind != "ok"]
    assert {"stream.usage", "logprobs.twenty", "json.schema", "limits.longest", "limits.too_long", "stops.list"} <= ok


def test_the_emulated_engine_against_itself_and_against_another_model(tmp_path: Path) -> None:
    with ExitStack() as stack:
        one = stack.enter_context(engine(tmp_path, "a-lab-b1", model="m"))
        two = stack.enter_context(engine(tmp_path, "a-lab-c1", model="m"))
        other = stack.enter_context(engine(tmp_path, "b-lab-c1", model="other"))
        assert compare_arms(identity(one), identity(two), NOW).differs == ()
        assert "tokenizer" in compare_arms(identity(one), identity(two), NOW).unknown
        assert compare_arms(identity(one), identity(other), NOW).differs == ("model 'm' and 'other'",)
        report = contract(one, two, "m", 8192)
        wrong = contract(one, other, "m", 8192)
    assert report.broken == (), report.broken
    assert Counter(r.kind for r in report.results)["ok"] >= 25, [r for r in report.results if r.kind != "ok"]
    assert [r.call for r in wrong.broken] == ["models.listed"]


def test_silence_is_no_identity() -> None:
    assert read_identity(Api("http://127.0.0.1:9")) is None
