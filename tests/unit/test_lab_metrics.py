"""The emulated engine's metrics: vLLM's names and bounds, cumulative buckets."""

from __future__ import annotations

import math
import re

from fleetctl.lab.engine_metrics import EngineMetrics, length_bounds

SAMPLE = re.compile(r"^(?P<name>[a-z0-9_:]+)\{(?P<labels>[^}]*)\} (?P<value>\S+)$")


def parsed(text: str) -> dict[str, float]:
    out: dict[str, float] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            found = SAMPLE.match(line)
            assert found, line
            out[f"{found['name']}{{{found['labels']}}}"] = float(found["value"])
    return out


def filled() -> EngineMetrics:
    m = EngineMetrics('a "model"', 8192)
    m.finish(reason="length", prompt=100, cached=48, generated=16, ttft_s=0.022, whole_s=0.052)
    m.finish(reason="length", prompt=100, cached=0, generated=1, ttft_s=0.3, whole_s=0.3)
    m.finish(reason="error", prompt=0, cached=0, generated=0, ttft_s=0, whole_s=0)
    return m


def test_counts_stand_under_vllm_names() -> None:
    found = parsed(filled().render())
    lab = 'model_name="a \\"model\\"",engine="0"'
    assert found[f"vllm:prompt_tokens_total{{{lab}}}"] == 200
    assert found[f"vllm:prompt_tokens_cached_total{{{lab}}}"] == 48
    assert found[f"vllm:generation_tokens_total{{{lab}}}"] == 17
    assert found[f'vllm:request_success_total{{{lab},finished_reason="length"}}'] == 2
    assert found[f'vllm:request_success_total{{{lab},finished_reason="error"}}'] == 1
    assert found[f'vllm:request_success_total{{{lab},finished_reason="stop"}}'] == 0


def test_buckets_are_cumulative_and_end_in_infinity() -> None:
    found = parsed(filled().render())
    lab = 'model_name="a \\"model\\"",engine="0"'
    ttft = [v for k, v in found.items() if k.startswith("vllm:time_to_first_token_seconds_bucket")]
    assert len(ttft) == 23
    assert ttft == sorted(ttft)
    assert found[f'vllm:time_to_first_token_seconds_bucket{{{lab},le="0.02"}}'] == 0
    assert found[f'vllm:time_to_first_token_seconds_bucket{{{lab},le="0.04"}}'] == 1
    assert found[f'vllm:time_to_first_token_seconds_bucket{{{lab},le="+Inf"}}'] == 2
    assert found[f"vllm:inter_token_latency_seconds_count{{{lab}}}"] == 15
    assert math.isclose(found[f"vllm:inter_token_latency_seconds_sum{{{lab}}}"], 0.030)
    assert found[f'vllm:e2e_request_latency_seconds_bucket{{{lab},le="0.3"}}'] == 2


def test_bounds_are_those_of_the_real_engine() -> None:
    text = filled().render()
    for name, bounds in {
        "time_to_first_token_seconds": "0.001;0.005;0.01;0.02;0.04;0.06;0.08;0.1;0.25;0.5;0.75;1;2.5;5;7.5;10;20;40;80;160;640;2560",
        "inter_token_latency_seconds": "0.01;0.025;0.05;0.075;0.1;0.15;0.2;0.3;0.4;0.5;0.75;1;2.5;5;7.5;10;20;40;80",
        "e2e_request_latency_seconds": "0.3;0.5;0.8;1;1.5;2;2.5;5;10;15;20;30;40;50;60;120;240;480;960;1920;7680",
        "request_queue_time_seconds": "0.3;0.5;0.8;1;1.5;2;2.5;5;10;15;20;30;40;50;60;120;240;480;960;1920;7680",
    }.items():
        found = re.findall(rf'vllm:{name}_bucket\{{.*le="([0-9.]+)"', text)
        assert [float(f) for f in found] == [float(b) for b in bounds.split(";")], name
    assert length_bounds(100) == (1, 2, 5, 10, 20, 50, 100)
    assert length_bounds(8192)[-1] == 5000


def test_nan_is_in_every_sample_and_every_family_has_a_type() -> None:
    m = filled()
    assert all(math.isnan(v) for v in parsed(m.render(nan=True)).values())
    text = m.render()
    families = set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))
    for line in text.splitlines():
        if not line.startswith("#"):
            name = re.sub(r"_(bucket|count|sum)$", "", line.partition("{")[0])
            assert name in families, line
