"""Checks of both arms: their files, how answers are scored, what a run keeps, threads beside the ticker, the fleet file's keys."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.adapters.checks import BackgroundChecks, PromptFiles
from fleetctl.adapters.engines.forced import choices_of
from fleetctl.analysis.answers import accuracy
from fleetctl.analysis.identity import compare_arms
from fleetctl.analysis.scoring import is_right, is_valid
from fleetctl.catalog.quality import BUILT_IN, built_in_prompts
from fleetctl.domain.checks import CheckResult, CheckSeen, record_id
from fleetctl.domain.evidence import Arm
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.identity import ArmsIdentity, CallKind, ContractAnswer, ContractReport, ContractResult, Identity
from fleetctl.domain.ids import CellId
from fleetctl.domain.quality import Form, Item, Match, QualityReport, Spoken
from fleetctl.domain.workload import CHECKS, CheckName, CheckSpec
from fleetctl.errors import ConfigInvalid, EvidenceUnavailable
from fleetctl.formats.both_arms import parse_items
from fleetctl.formats.fleet_file import parse_fleet
from fleetctl.usecases.checks import CheckPorts, Remembered, run_check, standing
from tests.fakes.clock import FakeClock
from tests.fakes.store import MemoryStore
from tests.rollouts import CELL
from tests.unit.test_evidence_in_fleet_file import TEXT

ONE = Identity(model="m", weights="w1")


@pytest.mark.parametrize(
    ("match", "expect", "said", "right"),
    [
        ("exact", "Paris", "  paris ", True),
        ("exact", "New  York", "new york", True),
        ("exact", "Paris", "Paris, France", False),
        ("contains", "Paris", "It is PARIS, of course.", True),
        ("number", "42", "6 times 7 is 42.", True),
        ("number", "1,000", "so 1000", True),
        ("number", "42", "42 is not the answer, 41 is", False),
        ("number", "42", "no idea", False),
        ("choice", "B", "(b) because", True),
        ("choice", "B", "Answer: C", False),
        ("choice", "A", "Because", False),
        ("json", '{"a": 1}', '{ "a":1 }', True),
        ("json", '{"a": 1}', "a=1", False),
    ],
)
def test_an_answer_is_right_as_its_item_says(match: Match, expect: str, said: str, right: bool) -> None:
    assert is_right(Item(prompt="?", expect=expect, match=match), said) is right


@pytest.mark.parametrize(
    ("form", "said", "valid"),
    [
        ("text", "Hello.", True),
        ("text", "   ", False),
        ("text", "#" * 40, False),
        ("text", "a\ufffd\ufffd\ufffdb", False),
        ("number", "about 7", True),
        ("number", "about seven", False),
        ("json", '```json\n{"a": 1}\n```', True),
        ("json", "{'a': 1}", False),
    ],
)
def test_what_is_no_answer_of_its_form_is_invalid(form: Form, said: str, valid: bool) -> None:
    assert is_valid(form, said) is valid


@given(said=st.text(max_size=300), expect=st.text(max_size=30), match=st.sampled_from(["exact", "contains", "number", "choice", "json"]))
def test_hostile_answers_are_scored_without_an_exception(said: str, expect: str, match: Match) -> None:
    assert is_right(Item(prompt="?", expect=expect, match=match), said) in (True, False)
    assert is_valid("json", said) in (True, False)


def test_items_that_the_source_cannot_answer_itself_show_nothing() -> None:
    assert accuracy([(False, False)] * 2000).kind == "INCONCLUSIVE"
    assert accuracy([(True, True)] * 2000).kind == "PASS"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no prompt"),
        ("nonsense", "f:1: is no JSON"),
        ("[]", "f:1: is no object"),
        ('{"prompt": ""}', "prompt is no text"),
        ('{"prompt": "a"}', "expect is no text"),
        ('{"prompt": "a", "expect": 4, "match": "regex"}', "match must be exact"),
        ('{"prompt": "a", "expect": 4, "extra": 1}', "unknown key 'extra'"),
        ('{"prompt": "a", "expect": 4}\n\n{"prompt": "a", "expect": 5}', "f:3: the prompt stands here twice"),
    ],
)
def test_a_file_of_items_is_refused_line_by_line(text: str, says: str) -> None:
    with pytest.raises(ConfigInvalid) as e:
        parse_items(text, "f", is_scored=True)
    assert e.value.code == "config.items"
    assert any(says in line for line in (e.value.message, *e.value.details))


def test_a_file_of_items_is_read() -> None:
    assert parse_items('{"prompt": "2+2", "expect": 4, "match": "number"}\n', "f", is_scored=True)[0].expect == "4"
    assert parse_items('{"prompt": "list", "form": "json"}\n', "f", is_scored=False)[0].form == "json"
    assert len(set(built_in_prompts(BUILT_IN))) == BUILT_IN >= 150


def test_prompt_files_are_hashed_by_content_and_refused_by_name(tmp_path: Path) -> None:
    files = PromptFiles(tmp_path)
    (tmp_path / "a.jsonl").write_text("x")
    first = files.digest("a.jsonl")
    assert files.digest("a.jsonl") == first
    (tmp_path / "a.jsonl").write_text("xy")
    assert files.digest("a.jsonl") != first
    assert files.digest("") == ""
    (tmp_path / "b.jsonl").write_bytes(b"\xff\xfe")
    for name in ("none.jsonl", "."):
        with pytest.raises(ConfigInvalid):
            files.digest(name)
    with pytest.raises(ConfigInvalid, match=r"b\.jsonl is no UTF-8"):
        files.text("b.jsonl")


def test_a_whole_answers_choices_are_read_in_both_shapes() -> None:
    entry = {"token": "a", "id": 7, "logprob": -0.1, "top_logprobs": [{"token": "a", "id": 7, "logprob": -0.1}]}
    chat = ContractAnswer(status=200, body={"choices": [{"logprobs": {"content": [entry, {**entry, "top_logprobs": []}]}}]})
    assert [c.token for c in choices_of(chat)] == ["7", "7"]
    plain = {"tokens": ["a", "b"], "top_logprobs": [{"a": -0.1, "x": -3}, {"b": -0.2}]}
    found = choices_of(ContractAnswer(status=200, body={"choices": [{"logprobs": plain}]}))
    assert [(c.token, len(c.top)) for c in found] == [("a", 2), ("b", 1)]
    assert choices_of(ContractAnswer(status=200, body={"choices": [{"logprobs": None}]})) == ()


class Arms:
    """Two made-up arms: what each model name says on each, what they serve, how the contract goes."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.records = MemoryStore(self.clock.now)
        self.baseline = self.canary = ONE
        self.says: Mapping[tuple[str, str], str] = {}
        self.broken: tuple[ContractResult, ...] = ()
        self.kinds: tuple[CallKind, ...] = ("ok", "ok", "unsupported")
        self.items: tuple[Item, ...] = tuple(Item(prompt=f"{i}", expect=f"{i}", match="number") for i in range(600))
        self.shift = 0.0
        self.asked = 0
        self.changes_after = 10**9

    def arms(self, c: CellId) -> ArmsIdentity:
        self.asked += 1
        canary = Identity(model="m", weights="w2") if self.asked > self.changes_after else self.canary
        return compare_arms(self.baseline, canary, self.clock.now())

    def ports(self) -> CheckPorts:
        return CheckPorts(
            arms=self.arms,
            contract=self._contract,
            quality=self._quality,
            speaker=lambda c, arm, model, spec: Speaker(self, arm, model),
            vectors=self._vectors,
            items=lambda spec: self.items,
            file_digest=lambda spec: "file" if spec.file else "",
            records=self.records,
            clock=self.clock,
        )

    def _contract(self, c: CellId, identity: ArmsIdentity) -> ContractReport:
        good = tuple(ContractResult(call=f"c{i}", kind=k) for i, k in enumerate(self.kinds))
        return ContractReport(cell=c, at=self.clock.now(), arms=identity.hash(), results=(*good, *self.broken))

    def _quality(self, c: CellId, spec: CheckSpec, model: str, say: object) -> QualityReport:
        raise EvidenceUnavailable("evidence.quality", "it does not tell tokens.")

    def _vectors(self, c: CellId, arm: Arm, model: str, texts: Sequence[str]) -> list[list[float]]:
        shift = self.shift if arm == "canary" else 0.0
        return [[1.0 + i, 2.0 + (i * 7) % 11 + shift * ((-1) ** i), (i * 5) % 13] for i in range(len(texts))]


class Speaker:
    """Says the prompt itself, unless the test says otherwise."""

    def __init__(self, of: Arms, arm: Arm, model: str) -> None:
        self._of, self._arm, self._model = of, arm, model

    def answer(self, prompt: str) -> Spoken:
        said = self._of.says.get((self._arm, self._model))
        return Spoken(text=prompt if said is None or int(prompt) % 3 else said, finish="stop")


def run(a: Arms, name: CheckName, **numbers: float) -> CheckResult:
    return run_check(CELL, CheckSpec(name=name, numbers=numbers), a.ports())


def test_each_check_passes_on_equal_arms_and_is_kept_with_what_it_holds_for() -> None:
    a = Arms()
    for name in ("contract", "answers", "accuracy", "embeddings"):
        found = run(a, name)
        assert (found.kind, found.why) == ("PASS", ""), found
        assert a.records.get(CheckResult, record_id(CELL, found.check)) == found
        seen = standing(CELL, (CheckSpec(name=found.check),), a.arms(CELL).hash(), frozenset(), a.ports())
        assert [s.state for s in seen] == ["passed"]
    assert a.records.get(ContractReport, CELL) is not None


def test_each_check_fails_on_a_broken_canary_and_says_why() -> None:
    a = Arms()
    a.broken = (ContractResult(call="chat.stop", kind="broken", canary="no stop"),)
    a.says = {("canary", "m"): "!!"}
    a.shift = 5.0
    assert run(a, "contract").why == "chat.stop (no stop)"
    answers, scored, vectors = run(a, "answers"), run(a, "accuracy"), run(a, "embeddings")
    assert [f.kind for f in (answers, scored, vectors)] == ["FAIL"] * 3
    assert answers.numbers["answers"] < 100, "it stops as soon as it is shown"
    assert "right on the source" in scored.why
    assert "cosine p1" in vectors.why


def test_a_check_that_cannot_be_made_is_no_data_and_names_the_cause() -> None:
    a = Arms()
    assert (run(a, "quality").kind, run(a, "quality").why) == ("NO_DATA", "it does not tell tokens")
    a.kinds = ("both_broken",)
    assert run(a, "contract").kind == "NO_DATA"
    a.canary = Identity(model="m", weights="w2")
    assert "the arms do not serve the same" in run(a, "answers").why
    a.items = ()
    a.canary = ONE
    assert run(a, "answers").kind == "NO_DATA"


def test_an_arm_that_changes_under_a_check_makes_it_worthless() -> None:
    a = Arms()
    a.changes_after = 1
    found = run(a, "accuracy")
    assert (found.kind, found.why) == ("NO_DATA", "an arm changed what it serves while the check ran")


def test_adapter_models_are_judged_by_name_and_the_worst_counts() -> None:
    a = Arms()
    a.baseline = a.canary = Identity(model="m", weights="w1", adapters=(("sql", "base"),))
    a.says = {("canary", "sql"): "!!"}
    found = run(a, "accuracy")
    assert found.kind == "FAIL"
    assert found.why.startswith("sql: ")


def test_nothing_is_kept_of_a_dry_run_but_its_reports_are_there_to_be_shown() -> None:
    a = Arms()
    ports = a.ports()
    kept = Remembered(a.records, save=False)
    run_check(CELL, CheckSpec(name="contract"), CheckPorts(**{f: getattr(ports, f) for f in CheckPorts.__slots__} | {"records": kept}))
    assert len(kept.of(ContractReport)) == 1
    assert a.records.get(CheckResult, record_id(CELL, "contract")) is None


def test_checks_run_beside_the_ticker_one_after_the_other_and_are_never_doubled() -> None:
    gate, ran = threading.Event(), list[CheckName]()

    def one(c: CellId, spec: CheckSpec) -> None:
        assert gate.wait(10)
        ran.append(spec.name)
        if spec.name == "contract":
            raise RuntimeError("a fault of ours must not end the others")

    def told(c: CellId, specs: Sequence[CheckSpec], arms: str, running: frozenset[CheckName]) -> tuple[CheckSeen, ...]:
        return tuple(CheckSeen(name=s.name, state="running" if s.name in running else "due") for s in specs)

    checks = (CheckSpec(name="contract"), CheckSpec(name="accuracy"))
    b = BackgroundChecks(one, told)
    b.start(CELL, checks)
    b.start(CELL, checks)
    assert [s.state for s in b.standing(CELL, checks, "")] == ["running", "running"]
    gate.set()
    b.join(10)
    assert ran == ["contract", "accuracy"]
    assert [s.state for s in b.standing(CELL, checks, "")] == ["due", "due"]


CHECKED = """
    checks:
      contract: {}
      quality: {excess: 1 points, prefill_chunk: 512}
      accuracy: {items: items.jsonl, api: completions, max_tokens: 8}
"""


def fleet_with(checks: str, policy: str = "") -> Fleet:
    text = TEXT.replace(
        "    guardrails: [errors, ttft, token_time, nll, counter_failed_orders]\n", "    guardrails: [errors]\n" + checks.lstrip("\n")
    )
    return parse_fleet(text + (f"policy:\n  {policy}\n" if policy else ""), file="f.yaml")


def test_the_fleet_file_says_which_checks_a_workload_needs() -> None:
    fleet = fleet_with(CHECKED, "checks: {required: [contract, answers], run: by_hand, valid: 12h}")
    found = {s.name: s for s in fleet.workloads[0].checks}
    assert list(found) == [n for n in CHECKS if n != "embeddings"]
    assert found["quality"].numbers == {"excess": 0.01, "prefill_chunk": 512.0}
    assert (found["accuracy"].file, found["accuracy"].api, found["accuracy"].numbers) == ("items.jsonl", "completions", {"max_tokens": 8.0})
    assert {s.is_auto for s in found.values()} == {False}
    assert {s.valid_for.total_seconds() for s in found.values()} == {12 * 3600.0}


@pytest.mark.parametrize(
    ("checks", "policy", "says"),
    [
        ("    checks: {taste: {}}\n", "", "taste"),
        ("    checks: {accuracy: {}}\n", "", "items"),
        ("    checks: {quality: {excess: 2%}}\n", "", "points"),
        ("", "checks: {required: [accuracy]}", "name its items"),
        ("", "checks: {required: [magic]}", "contract"),
    ],
)
def test_mistakes_in_checks_are_named(checks: str, policy: str, says: str) -> None:
    with pytest.raises(ConfigInvalid) as e:
        fleet_with(checks, policy)
    assert says in json.dumps([e.value.message, *e.value.details])
