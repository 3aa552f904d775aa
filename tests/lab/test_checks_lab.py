"""Checks of both arms against real servers: the lab's emulated engine, and SmolLM2 under llama.cpp with types of KV cache."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from fleetctl.adapters.checks import PromptFiles
from fleetctl.adapters.engines.api import Api
from fleetctl.adapters.engines.arms import EngineArms
from fleetctl.adapters.engines.contract import filled, run_call
from fleetctl.adapters.engines.forced import ForcedTexts
from fleetctl.adapters.engines.free import FreeAnswers, embed
from fleetctl.catalog.contract import load_contract
from fleetctl.catalog.quality import BUILT_IN, built_in_prompts, quality_texts
from fleetctl.domain.checks import CheckResult
from fleetctl.domain.evidence import Arm
from fleetctl.domain.identity import ArmsIdentity
from fleetctl.domain.ids import CellId
from fleetctl.domain.quality import Item, QualitySpec
from fleetctl.domain.workload import CheckName, CheckSpec
from fleetctl.formats.both_arms import parse_items
from fleetctl.lab.faults import write_faults
from fleetctl.lab.model import can_serve, find_model
from fleetctl.usecases.checks import CheckPorts, run_check
from fleetctl.usecases.contract import ContractArm, run_contract
from fleetctl.usecases.quality import judge_quality
from tests.fakes.clock import FakeClock
from tests.fakes.store import MemoryStore
from tests.lab.lab_tools import complete, engine
from tests.lab.test_lab_llm import llm

pytestmark = pytest.mark.lab
CELL = CellId("chat-lab")
MISSING = can_serve() or find_model().reason
needs_model = pytest.mark.skipif(bool(MISSING), reason=f"no real model: {MISSING}")
SMOL = "SmolLM2-135M-Instruct"
FACTS = (
    ("The capital of France is", "Paris"),
    ("The capital of Italy is", "Rome"),
    ("The capital of Japan is", "Tokyo"),
    ("The capital of Spain is", "Madrid"),
    ("The capital of Germany is", "Berlin"),
    ("Monday, Tuesday, Wednesday,", "Thursday"),
    ("One, two, three, four,", "five"),
    ("The opposite of hot is", "cold"),
    ("The sun rises in the", "east"),
    ("Water freezes at zero degrees", "Celsius"),
)


class Both:
    """Both arms as servers on loopback, each asked directly."""

    def __init__(self, folder: Path, baseline: int, canary: int, model: str, context: int = 1024, chunk: int = 256) -> None:
        one, other = (Api(f"http://127.0.0.1:{port}", timeout_s=240) for port in (baseline, canary))
        self.apis: dict[Arm, Api] = {"baseline": one, "canary": other}
        self.model, self.context, self.chunk = model, context, chunk
        self.clock, self.files = FakeClock(), PromptFiles(folder)
        self.records = MemoryStore(self.clock.now)
        self.most = BUILT_IN

    def run(self, name: CheckName, file: str = "", **numbers: float) -> CheckResult:
        ports = CheckPorts(
            arms=self._arms,
            contract=lambda c, arms: run_contract(c, load_contract(), arms, self._side("baseline"), self._side("canary"), self.clock),
            quality=lambda c, spec, model, say: judge_quality(
                tuple(t for t in quality_texts(self.chunk) if len(t) < 200)[:2],
                ForcedTexts(self.apis["baseline"], model),
                ForcedTexts(self.apis["canary"], model),
                QualitySpec(prefill_chunk=self.chunk),
                self.clock,
                model=model,
                positions=2,
            ),
            speaker=lambda c, arm, model, spec: FreeAnswers(
                self.apis[arm], model, kind=spec.api, max_tokens=int(spec.numbers.get("max_tokens", 12))
            ),
            vectors=lambda c, arm, model, texts: embed(self.apis[arm], model, texts),
            items=self._items,
            file_digest=lambda spec: self.files.digest(spec.file),
            records=self.records,
            clock=self.clock,
        )
        return run_check(CELL, CheckSpec(name=name, file=file, api="completions", numbers=numbers), ports)

    def _arms(self, c: CellId) -> ArmsIdentity:
        found = EngineArms(lambda _, arm: self.apis[arm], self.clock.now, every_s=0).arms(c)
        assert found is not None
        return found

    def _side(self, arm: Arm) -> ContractArm:
        return ContractArm(
            ask=lambda call, adapter: run_call(self.apis[arm], call, model=self.model, adapter=adapter, context_tokens=self.context),
            expects=lambda call: filled(call, self.model),
        )

    def _items(self, spec: CheckSpec) -> tuple[Item, ...]:
        if spec.file:
            return parse_items(self.files.text(spec.file), spec.file, is_scored=spec.name == "accuracy")
        return tuple(Item(prompt=p) for p in built_in_prompts(self.most))


def items_file(folder: Path, items: Sequence[tuple[str, str]], match: str) -> str:
    rows = (json.dumps({"prompt": p, "expect": e, "match": match}) for p, e in items)
    (folder / "items.jsonl").write_text("\n".join(rows) + "\n")
    return "items.jsonl"


def test_emulated_engines_that_are_alike_pass_and_wrong_tokens_fail_what_is_about_answers(tmp_path: Path) -> None:
    """Emulated: the engine's right answer is its own, so every item is right on the source and wrong where tokens are."""
    with engine(tmp_path, "chat-lab-b1") as one, engine(tmp_path, "chat-lab-c1") as other:
        asked = [f"question {i}" for i in range(400)]
        right = [complete(one, prompt=q)[1]["choices"][0]["text"] for q in asked]
        items = items_file(tmp_path, list(zip(asked, right, strict=True)), "exact")
        both = Both(tmp_path, one, other, "m", context=8192)
        contract, answers = both.run("contract"), both.run("answers", max_tokens=4)
        scored = both.run("accuracy", items, max_tokens=4)
        assert [(r.check, r.kind) for r in (contract, answers, scored)] == [("contract", "PASS"), ("answers", "PASS"), ("accuracy", "PASS")]
        assert scored.numbers["baseline"] == 1.0
        quality, vectors = both.run("quality"), both.run("embeddings")
        assert (quality.kind, vectors.kind) == ("NO_DATA", "NO_DATA")
        assert "/tokenize" in quality.why
        assert "/v1/embeddings" in vectors.why
        write_faults(tmp_path / "chat-lab-c1.faults.json", {"wrong_tokens": {"ratio": 0.2}})
        worse = both.run("answers", max_tokens=4)
        while worse.kind == "PASS":  # the engine looks at its faults five times a second
            worse = both.run("answers", max_tokens=4)
        scored = both.run("accuracy", items, max_tokens=4)
        assert (worse.kind, scored.kind) == ("FAIL", "FAIL")
        assert scored.numbers["canary"] < 0.8
        assert both.run("contract").kind == "PASS", "wrong tokens keep the contract: only answers show them"


@needs_model
@pytest.mark.timeout(600)
def test_the_real_model_with_another_type_of_cache_is_compared_by_answers_items_and_vectors(tmp_path: Path) -> None:
    with ExitStack() as stack:
        f16 = stack.enter_context(llm(tmp_path, "f16", name="smollm-lab-b1", embeddings=1))
        q8 = stack.enter_context(llm(tmp_path, "q8_0", name="smollm-lab-c1", embeddings=1))
        both = Both(tmp_path, f16, q8, SMOL)
        both.most = 4
        answers = both.run("answers", max_tokens=4)
        scored = both.run("accuracy", items_file(tmp_path, FACTS[:6], "contains"), max_tokens=4)
        both.most = 12
        vectors = both.run("embeddings")
    assert (answers.kind, answers.why) == ("INCONCLUSIVE", "4 of 20 answers")
    assert answers.numbers["floor"] == 0.0, "the same server repeats itself"
    assert answers.missing
    assert scored.kind == "INCONCLUSIVE"
    assert scored.numbers["baseline"] >= 0.5, "it knows most of these"
    assert abs(scored.numbers["baseline"] - scored.numbers["canary"]) <= 0.3
    assert (vectors.kind, vectors.missing) == ("INCONCLUSIVE", 88)
    assert vectors.numbers["cosine_p1"] > 0.99


@needs_model
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kv", "kind", "cosine", "overlap"), [("f16", "PASS", (0.9999, 1.0), (0.999, 1.0)), ("q4_0", "FAIL", (0.9, 0.995), (0.7, 0.97))]
)
def test_vectors_of_a_whole_set_on_the_real_model(
    tmp_path: Path, kv: str, kind: str, cosine: tuple[float, float], overlap: tuple[float, float]
) -> None:
    """100 built-in texts, as many as a verdict rests on: the same cache passes, a 4-bit one fails."""
    with ExitStack() as stack:
        one = stack.enter_context(llm(tmp_path, "f16", name="smollm-lab-b1", embeddings=1))
        other = stack.enter_context(llm(tmp_path, kv, name="smollm-lab-c1", embeddings=1))
        both = Both(tmp_path, one, other, SMOL)
        both.most = 100
        found = both.run("embeddings")
    assert (found.kind, found.numbers["texts"]) == (kind, 100.0), found.why
    assert cosine[0] <= found.numbers["cosine_p1"] <= cosine[1] + 1e-9
    assert overlap[0] <= found.numbers["overlap"] <= overlap[1] + 1e-9
