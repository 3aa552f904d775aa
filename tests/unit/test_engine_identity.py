"""What each engine tells of what it serves, over answers as the engines give them; and that silence is no change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from fleetctl.adapters.engines.api import Api
from fleetctl.adapters.engines.arms import EngineArms
from fleetctl.adapters.engines.identity import read_identity
from fleetctl.domain.evidence import Arm
from fleetctl.domain.identity import ContractReport, ContractResult, Identity
from fleetctl.domain.ids import CellId
from fleetctl.errors import CredentialsMissing
from tests.fakes.json_double import JsonDouble

NOW = datetime(2026, 11, 30, tzinfo=UTC)
C = CellId("chat-lab")
LISTED = {"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 8192}, {"id": "tuned", "root": "/lora/tuned-v2", "parent": "m"}]}
VLLM: Mapping[str, Any] = {"/v1/models": LISTED, "/version": {"version": "0.11.0"}, "/tokenize": {"tokens": [1, 2, 3], "count": 3}}
SGLANG: Mapping[str, Any] = {
    "/v1/models": {"data": [{"id": "m", "owned_by": "sglang", "max_model_len": 8192}]},
    "/get_server_info": {"version": "0.5", "model_path": "/m", "revision": "abc", "tool_call_parser": "llama3", "kv_cache_dtype": "fp8"},
}
TGI: Mapping[str, Any] = {"/v1/models": {"data": [{"id": "m"}]}, "/info": {"model_id": "m", "model_sha": "abc", "max_total_tokens": 4096}}


def told(answers: Mapping[str, Any]) -> Identity:
    double = JsonDouble(answers)
    try:
        found = read_identity(Api(double.url))
    finally:
        double.close()
    assert found is not None
    return found


def test_vllm_tells_adapters_by_name_and_has_no_revision() -> None:
    found = told(VLLM)
    assert (found.model, found.engine, found.adapters) == ("m", "vllm 0.11.0", (("tuned", "tuned-v2"),))
    assert found.weights == ""
    assert found.tokenizer
    assert found.chat_template
    assert found.told == {"max_model_len": "8192"}
    assert told({**VLLM, "/tokenize": {"tokens": [1, 2, 4]}}).tokenizer != found.tokenizer


def test_sglang_and_tgi_tell_a_revision() -> None:
    found = told(SGLANG)
    assert found.weights
    assert found.told["tool_call_parser"] == "llama3"
    assert found.shown == {"kv_cache_dtype": "fp8"}
    changed = told({**SGLANG, "/get_server_info": {**SGLANG["/get_server_info"], "revision": "abd"}})
    assert changed.weights != found.weights
    tgi = told(TGI)
    assert tgi.weights
    assert tgi.engine == "tgi"
    assert told({**TGI, "/info": {**TGI["/info"], "max_total_tokens": 2048}}).flags != tgi.flags


@pytest.mark.parametrize("odd", [None, 7, [], {"x": 1}, ""])
def test_a_name_that_is_no_text_is_no_name(odd: object) -> None:
    listed = {"data": [{"id": odd, "owned_by": odd}, {"id": "m", "owned_by": odd}, {"id": odd, "parent": "m", "root": "/x"}, odd]}
    found = told({"/v1/models": listed, "/version": {"version": odd}})
    assert (found.model, found.engine, found.adapters) == ("m", "", ())
    props = {"build_info": odd, "default_generation_settings": {"n_ctx": None}}
    found = told({"/v1/models": {"data": [{"id": odd}]}, "/props": props})
    assert (found.model, found.engine, found.told) == ("", "llama.cpp", {})
    assert told({"/info": {"model_id": "m", "version": odd}}).engine == "tgi"


@pytest.mark.parametrize("broken", [(503, {}), (502, {}), (429, {})])
def test_a_server_that_cannot_answer_now_has_no_identity(broken: object) -> None:
    double = JsonDouble({**VLLM, "/version": broken})
    try:
        assert read_identity(Api(double.url)) is None
    finally:
        double.close()


def test_arms_are_asked_once_in_30_s_and_a_broken_contract_of_these_arms_counts() -> None:
    double = JsonDouble({f"/{C}{path}": a for path, a in VLLM.items()})
    report: list[ContractReport] = []

    def api(c: CellId, arm: Arm) -> Api:
        return Api(f"{double.url}/{c}", headers={"x-arm": arm})

    try:
        arms = EngineArms(api, lambda: NOW, report=lambda _: report[0] if report else None)
        found = arms.arms(C)
        assert found is not None
        assert found.differs == ()
        asked = len(double.asked)
        assert arms.arms(C) is found
        assert len(double.asked) == asked
        assert {h["x-arm"] for h in double.headers} == {"baseline", "canary"}
        wrong = ContractResult(call="stream.usage", kind="broken", canary="the stream has no usage")
        report.append(ContractReport(cell=C, at=NOW, arms=found.hash(), results=(wrong,)))
        again = EngineArms(api, lambda: NOW, report=lambda _: report[0]).arms(C)
        assert again is not None
        assert again.differs == ("contract stream.usage: the stream has no usage",)
        report[0] = replace(report[0], arms="of others")
        other = EngineArms(api, lambda: NOW, report=lambda _: report[0]).arms(C)
        assert other is not None
        assert other.differs == ()
    finally:
        double.close()


def test_an_answer_that_differs_from_the_one_before_is_asked_for_again_soon() -> None:
    double = JsonDouble({f"/{C}{path}": a for path, a in SGLANG.items()})
    passed = [0.0]

    def asked_at(seconds: float) -> int:
        passed[0], before = seconds, len(double.asked)
        assert arms.arms(C) is not None
        return len(double.asked) - before

    try:
        arms = EngineArms(lambda c, arm: Api(f"{double.url}/{c}"), lambda: NOW, seconds=lambda: passed[0])
        assert [asked_at(t) > 0 for t in (0, 29, 30, 59)] == [True, False, True, False]
        double.answers[f"/{C}/get_server_info"] = {**SGLANG["/get_server_info"], "revision": "abd"}
        assert [asked_at(t) > 0 for t in (60, 61, 62, 64, 91, 92)] == [True, False, True, False, False, True]
    finally:
        double.close()


def test_flags_that_the_fleet_file_lets_differ_are_passed_on() -> None:
    double = JsonDouble({f"/{a}{p}": v for a in ("b", "c") for p, v in SGLANG.items()})
    info = SGLANG["/get_server_info"]
    double.answers |= {"/b/get_server_info": {**info, "dtype": "bfloat16"}, "/c/get_server_info": {**info, "dtype": "float8"}}
    try:
        for declared, differs in (((), ("flags: dtype bfloat16 and float8",)), (("dtype",), ())):
            arms = EngineArms(lambda c, arm: Api(f"{double.url}/{arm[0]}"), lambda: NOW, declared=lambda c, d=declared: d)  # type: ignore[misc]
            found = arms.arms(C)
            assert found is not None
            assert found.differs == differs
    finally:
        double.close()


def test_no_key_and_no_server_are_silence() -> None:
    def no_key(c: CellId, arm: Arm) -> Api:
        raise CredentialsMissing("credentials.missing", "no key")

    assert EngineArms(no_key, lambda: NOW).arms(C) is None
    assert EngineArms(lambda c, arm: Api("http://127.0.0.1:9"), lambda: NOW).arms(C) is None
