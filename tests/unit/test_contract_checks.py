"""The serving contract: what a right answer is, and when two arms are not alike."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.analysis.contract import lookup, problem, result
from fleetctl.analysis.identity import compare_arms
from fleetctl.catalog.contract import load_contract, parse_contract
from fleetctl.domain.identity import ContractAnswer, ContractCall, ContractReport, ContractResult, Identity
from fleetctl.errors import ConfigInvalid

NOW = datetime(2026, 11, 30, tzinfo=UTC)
CALLS = {c.id: c for c in load_contract()}


def call(expect: Mapping[str, object], *, optional: bool = False) -> ContractCall:
    return ContractCall(id="x", topic="chat", method="POST", path="/", body={}, expect=expect, optional=optional)


def chat(text: str = "hi", finish: str = "stop", prompt: int = 9) -> dict[str, object]:
    usage = {"prompt_tokens": prompt, "completion_tokens": 3, "total_tokens": prompt + 3}
    return {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": finish}], "usage": usage}


def answer(body: object = None, status: int = 200, **more: object) -> ContractAnswer:
    return ContractAnswer(status=status, body=body, **more)  # type: ignore[arg-type]


def test_there_are_about_40_calls_of_every_topic() -> None:
    assert 38 <= len(CALLS) <= 50
    topics = {c.topic for c in CALLS.values()}
    assert topics == {"models", "completions", "chat", "stream", "logprobs", "stops", "tools", "json", "errors", "limits", "adapters"}


@pytest.mark.parametrize(
    ("expect", "good", "bad"),
    [
        ({"status": [200]}, answer(), answer(status=500)),
        ({"has": ["usage.prompt_tokens"]}, answer(chat()), answer({})),
        ({"sum": True}, answer(chat()), answer({"usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 4}})),
        ({"equals": {"choices.0.finish_reason": "stop"}}, answer(chat()), answer(chat(finish="length"))),
        ({"at_most": {"usage.completion_tokens": 3}}, answer(chat()), answer({"usage": {"completion_tokens": 4}})),
        ({"count": {"choices": 1}}, answer(chat()), answer({"choices": []})),
        ({"text": "choices.0.message.content"}, answer(chat()), answer(chat(""))),
        ({"listed": "m"}, answer({"data": [{"id": "m"}]}), answer({"data": [{"id": "n"}]})),
        ({"lacks": {"choices.0.message.content": "7"}}, answer(chat("1 2")), answer(chat("6 7"))),
        ({"json": {"path": "choices.0.message.content", "required": ["a"]}}, answer(chat('{"a":1}')), answer(chat('{"b":1}'))),
        ({"error": True}, answer({"error": {"message": "no"}}), answer({})),
        ({"stream": {"done": True}}, answer(ended=True), answer(ended=False)),
        ({"stream": {"usage": True}}, answer(events=({"usage": {"completion_tokens": 1}},)), answer(events=({},))),
        ({"stream": {"finish": ["stop"]}}, answer(events=({"choices": [{"finish_reason": "stop"}]},)), answer(events=({},))),
    ],
)
def test_each_check(expect: Mapping[str, object], good: ContractAnswer, bad: ContractAnswer) -> None:
    assert problem(call(expect), good) == ""
    assert problem(call(expect), bad) != ""


def test_log_probabilities_that_are_no_numbers_are_found() -> None:
    expect = {"logprobs": {"least": 1, "top": 1}}

    def body(logprob: float) -> ContractAnswer:
        entry = {"logprob": logprob, "top_logprobs": [{"logprob": logprob}]}
        return answer({"choices": [{"logprobs": {"content": [entry]}}]})

    assert problem(call(expect), body(-0.5)) == ""
    for wrong in (-9999.0, float("nan"), 0.7):
        assert problem(call(expect), body(wrong)) != ""
    plain = {"choices": [{"logprobs": {"token_logprobs": [-1.0], "top_logprobs": [{"a": -1.0, "b": -2.0}]}}]}
    assert problem(call({"logprobs": {"least": 1, "top": 2}}), answer(plain)) == ""
    assert problem(call({"logprobs": {"least": 1, "top": 3}}), answer(plain)) != ""
    assert problem(call({"logprobs": {"least": 1}}), answer({})) != ""


def test_tool_calls_must_parse() -> None:
    expect = {"tool_call": {"name": "f", "required": ["city"]}}

    def body(arguments: str, finish: str = "tool_calls") -> ContractAnswer:
        function = {"name": "f", "arguments": arguments}
        return answer({"choices": [{"message": {"tool_calls": [{"function": function}]}, "finish_reason": finish}]})

    assert problem(call(expect), body('{"city": "Paris"}')) == ""
    assert problem(call(expect), body('{"city": ')) != ""
    assert problem(call(expect), body('{"city": ', "length")) == ""
    assert problem(call(expect), answer(chat())) != ""


def test_arms_are_held_against_each_other() -> None:
    same = call({"status": [200], "same": ["usage.prompt_tokens"]})
    assert result(same, answer(chat()), answer(chat())).kind == "ok"
    other = result(same, answer(chat(prompt=9)), answer(chat(prompt=41)))
    assert (other.kind, other.canary) == ("broken", "usage.prompt_tokens is 41, on the baseline 9")
    assert result(same, answer(chat()), answer(status=500)).kind == "broken"
    assert result(same, answer(status=500), answer(status=500)).kind == "both_broken"
    assert result(same, answer(status=0, error="refused"), answer(chat())).baseline == "no answer: refused"


def test_what_both_do_not_offer_is_no_difference_and_what_one_does_not_is() -> None:
    tools = call({"status": [200]}, optional=True)
    assert result(tools, answer(status=400), answer(status=501)).kind == "unsupported"
    assert result(tools, answer(chat()), answer(status=501)).kind == "broken"


@settings(max_examples=25, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda x: (
            st.lists(x, max_size=3)
            | st.dictionaries(
                st.sampled_from(["choices", "usage", "message", "logprobs", "content", "tool_calls", "error", "data", "0"]), x, max_size=4
            )
        ),
        max_leaves=12,
    )
)
def test_no_answer_however_odd_breaks_a_check(body: object) -> None:
    for c in CALLS.values():
        got = answer(body, events=(body, body), ended=True)
        assert isinstance(problem(c, got), str)
        assert result(c, got, got).kind in ("ok", "both_broken")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not JSON"),
        ('{"format_version": 2, "calls": []}', "format version"),
        (json.dumps({"format_version": 1, "calls": [{"id": "a"}]}), "mistakes"),
    ],
)
def test_a_bad_table_is_refused(text: str, says: str) -> None:
    with pytest.raises(ConfigInvalid, match=says):
        parse_contract(text, "x.json")


def test_an_unknown_check_or_an_id_twice_is_refused() -> None:
    row = {
        "id": "a",
        "topic": "chat",
        "method": "GET",
        "path": "/",
        "body": None,
        "expect": {"statos": [200]},
        "optional": False,
        "says": "",
    }
    with pytest.raises(ConfigInvalid) as caught:
        parse_contract(json.dumps({"format_version": 1, "calls": [row, row]}), "x.json")
    assert any("statos" in d for d in caught.value.details)
    assert any("twice" in d for d in caught.value.details)


def test_paths() -> None:
    assert lookup({"a": [{"b": 1}]}, "a.0.b") == 1
    assert lookup({"a": []}, "a.0.b") is None
    assert lookup("text", "a") is None


ONE = Identity(model="m", engine="vllm 0.11", weights="w", tokenizer="t", chat_template="c", flags="f", adapters=(("tuned", "m"),))


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({"model": "n"}, ("model 'm' and 'n'",)),
        ({"weights": "x"}, ("weights",)),
        ({"tokenizer": "x"}, ("tokenizer",)),
        ({"chat_template": "x"}, ("chat template",)),
        ({"flags": "x", "told": {"n_ctx": "1024"}}, ("flags: n_ctx absent and 1024",)),
        ({"adapters": ()}, ("adapter tuned is missing on the canary",)),
        ({"adapters": (("tuned", "other"),)}, ("adapter tuned is another one",)),
        ({"engine": "sglang"}, ()),
        ({"shown": {"kv_cache_dtype": "fp8"}}, ()),
        ({"weights": ""}, ()),
    ],
)
def test_what_makes_two_arms_differ(change: dict[str, object], differs: tuple[str, ...]) -> None:
    found = compare_arms(ONE, replace(ONE, **change), NOW)  # type: ignore[arg-type]
    assert found.differs == differs
    assert (found.unknown == ("weights",)) == (change == {"weights": ""})


def test_a_flag_that_is_declared_to_differ_is_no_difference_and_any_other_stays_one() -> None:
    here, there = (
        replace(ONE, flags="1", told={"dtype": "bfloat16", "n_ctx": "8"}),
        replace(ONE, flags="2", told={"dtype": "fp8", "n_ctx": "8"}),
    )
    assert compare_arms(here, there, NOW).differs == ("flags: dtype bfloat16 and fp8",)
    found = compare_arms(here, there, NOW, declared=("dtype",))
    assert (found.differs, found.declared) == ((), ("dtype bfloat16 and fp8",))
    shorter = replace(there, told={"dtype": "fp8", "n_ctx": "4"})
    assert compare_arms(here, shorter, NOW, declared=("dtype",)).differs == ("flags: n_ctx 8 and 4",)
    assert compare_arms(replace(here, told={}), replace(there, told={}), NOW, declared=("dtype",)).differs == ("flags",), (
        "untold is no excuse"
    )
    assert found.hash() == compare_arms(here, there, NOW).hash(), "a change of it is still a change"


def test_the_hash_changes_with_every_part_that_matters_and_with_no_other() -> None:
    arms = compare_arms(ONE, ONE, NOW)
    for part in ("model", "weights", "tokenizer", "chat_template", "flags"):
        assert compare_arms(ONE, replace(ONE, **{part: "other"}), NOW).hash() != arms.hash()  # type: ignore[arg-type]
    assert compare_arms(ONE, replace(ONE, engine="x", shown={"a": "b"}), NOW).hash() == arms.hash()


def test_a_report_names_what_is_broken() -> None:
    results = (ContractResult(call="a", kind="ok"), ContractResult(call="b", kind="broken", canary="no"))
    assert [r.call for r in ContractReport(cell="c", at=NOW, arms="h", results=results).broken] == ["b"]
