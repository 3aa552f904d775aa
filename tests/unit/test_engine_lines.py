"""A prompt that quotes an error is no fault, in whatever shape an engine prints it; what engines, runtimes and drivers say is one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.analysis.engine_lines import OwnLines
from fleetctl.analysis.faults import KINDS, classify

SAID = {
    "memory_access_fault": "Memory access fault by GPU node-1 (Agent handle: 0x55) on address 0x7f. Reason: Unknown.",
    "no_kernel_image": "HIP error: no kernel image is available for execution on the device",
    "invalid_device": "hipErrorInvalidDevice: invalid device ordinal",
    "hsa_status_error": "HSA_STATUS_ERROR_OUT_OF_RESOURCES: the runtime failed to allocate",
    "gpu_hang": "amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!",
    "ecc": "amdgpu 0000:c1:00.0: amdgpu: uncorrectable ecc hardware errors detected",
    "xid": "NVRM: Xid (PCI:0000:65:00): 79, pid=17, GPU has fallen off the bus",
    "xid_program": "NVRM: Xid (PCI:0000:65:00): 13, pid=17, name=python3, Graphics Exception",
    "hipblas_not_supported": "RuntimeError: HIPBLAS_STATUS_NOT_SUPPORTED when calling hipblasLtMatmul",
    "stream_capture": "RuntimeError: HIP error: operation not permitted when stream is capturing",
    "out_of_memory": "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2 GiB",
    "nccl": "RCCL error: unhandled system error",
}

ASKED = (
    "INFO 11-30 12:00:01 [logger.py:43] Received request chatcmpl-1: prompt: {repr}, params: SamplingParams(n=1), prompt_token_ids: None.",
    "(APIServer pid=9) INFO 11-30 12:00:01 [logger.py:39] Received request cmpl-2: prompt: '<|im_start|>user\\n{text}<|im_end|>'",
    "DEBUG 11-30 12:00:01 [serving_chat.py:210] {text}",
    "WARNING 11-30 12:00:01 [api_server.py:9] cannot parse prompt: {text}",
    "ERROR 11-30 12:00:01 [serving_chat.py:200] Error in preprocessing prompt inputs: {repr} is too long",
    "[2026-11-30 12:00:01] Receive: obj=GenerateReqInput(text={repr}, input_ids=None)",
    "[2026-11-30 12:00:01 TP0] Prefill batch. text={repr}",
    "2026-11-30T12:00:01.1Z  INFO generate_stream{{inputs={repr}}}: text_generation_router::server: Success",
    "srv  log_server_r: request:  {json}",
    "slot update_slots: id 0 | task 0 | prompt: {repr}",
    "I1130 12:00:01.123456 1 http_server.cc:12] request body: {json}",
    '{{"time":"12:00","level":"info","message":{quoted}}}',
    '{{"time":"12:00","level":"warning","message":"cannot parse","prompt":{quoted}}}',
    '{{"time":"12:00","level":"error","message":"bad request","body":{{"messages":[{{"content":{quoted}}}]}}}}',
    "{json}",
    'ERROR 11-30 12:00:01 the user said "{text}" and the parser refused it',
)
SAYS = (
    "{text}",
    "ERROR 11-30 12:00:01 [core.py:396] {text}",
    "(EngineCore_0 pid=12) ERROR 11-30 12:00:01 [core.py:396] {text}",
    "[rank0]: {text}",
    "[2026-11-30 12:00:01 TP0] Scheduler hit an exception: {text}",
    "\x1b[31mCRITICAL\x1b[0m 2026-11-30 12:00:01 engine died: {text}",
    "while serving a batch: {text}",
    "failed request: RuntimeError: {text}",
    "Nov 30 12:00:01 gpu-3 kernel: {text}",
    "[  812.123456] {text}",
    ":0:rocdevice.cpp            :2881: 123456 us: [pid:12 tid:0x7f] Callback: Queue 0x7f aborting with error : {text}",
    "RuntimeError('{text}')",
    '{{"time":"12:00","level":"error","message":{quoted}}}',
    '{{"severity":"CRITICAL","msg":"engine died","exception":{quoted}}}',
)


def printed(shape: str, text: str) -> str:
    body = json.dumps({"messages": [{"role": "user", "content": text}]})
    return shape.format(text=text, repr=repr(text), quoted=json.dumps(text), json=body)


def found(*lines: str) -> str:
    """Return the kind that a log names."""
    own = OwnLines()
    return next((k for line in lines if (k := classify(own.own(line)))), "")


def test_every_kind_has_a_sample() -> None:
    assert SAID.keys() == {k.name for k in KINDS}
    assert {k: classify(text) for k, text in SAID.items()} == {k: k for k in SAID}


@pytest.mark.parametrize("shape", ASKED)
@pytest.mark.parametrize("kind", SAID)
def test_a_request_that_is_printed_names_no_fault(kind: str, shape: str) -> None:
    for text in (SAID[kind], f"I get {SAID[kind]} - what is it?", f'it says "{SAID[kind]}", why?', f"it's {SAID[kind]}"):
        assert found(printed(shape, text)) == "", shape


@pytest.mark.parametrize("shape", SAYS)
@pytest.mark.parametrize("kind", SAID)
def test_what_the_engine_says_names_it(kind: str, shape: str) -> None:
    assert found(printed(shape, SAID[kind])) == kind, shape


@pytest.mark.parametrize("kind", SAID)
def test_a_prompt_over_several_lines_ends_with_the_next_line_of_the_log(kind: str) -> None:
    asked = ("INFO 11-30 12:00:01 Received request 1: prompt: my job died:", f"  it says {SAID[kind]}", f"> {SAID[kind]}", "what now?")
    assert found(*asked) == ""
    assert found("INFO 11-30 12:00:01 Received request 1: prompt: 'my job died:", f"and {SAID[kind]}', params: None") == ""
    assert found(*asked, "INFO 11-30 12:00:02 served", SAID[kind]) == kind
    assert found(*asked, f"ERROR 11-30 12:00:02 {SAID[kind]}") == kind


@pytest.mark.parametrize("kind", ["memory_access_fault", "gpu_hang", "ecc", "xid", "hipblas_not_supported", "no_kernel_image"])
def test_what_a_runtime_prints_right_after_an_open_prompt_is_seen(kind: str) -> None:
    assert found("INFO 11-30 12:00:01 Received request 1: prompt: hello", SAID[kind]) == kind


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(ASKED[:2] + ASKED[5:13]), st.sampled_from(list(SAID.values())), st.text(max_size=30), st.text(max_size=30))
def test_whatever_stands_around_it_in_a_prompt_that_is_quoted(shape: str, text: str, before: str, after: str) -> None:
    asked = f"{before}{text}{after}"
    if shape is ASKED[1]:
        asked = repr(asked)[1:-1]
    assert found(*printed(shape, asked).splitlines()) == ""


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(max_size=60), max_size=6))
def test_no_line_breaks_it(lines: list[str]) -> None:
    own = OwnLines()
    assert all(isinstance(own.own(line), str) for line in lines)
