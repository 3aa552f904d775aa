"""The mapping table of metric names: versions, renames, splits, text values, opposite polarity, and what it refuses."""

from __future__ import annotations

import math
from importlib.resources import files

import pytest

from fleetctl.catalog.metrics import load_metrics, parse_metrics
from fleetctl.domain.metrics import CANONICAL, Family, Series, Totals, parse_roles, version_of
from fleetctl.errors import ConfigInvalid
from fleetctl.formats.exposition import samples

TABLE = load_metrics()
TEXT = (files("fleetctl.catalog") / "data" / "metric_names.csv").read_text("utf-8")


def read(system: str, version: str, page: str) -> Totals:
    return TABLE.read(system, version, samples(page))


def test_every_row_has_source_date_and_known_roles() -> None:
    assert len(TABLE.families) == 250
    assert all(f.source and f.as_of == "2026-11-30" for f in TABLE.families)
    assert {f.system for f in TABLE.families} >= {"vllm", "sglang", "tgi", "triton", "llamacpp", "dcgm", "amd_exporter"}
    used = {r.canonical for f in TABLE.families for r in f.roles}
    assert used <= set(CANONICAL)
    assert set(CANONICAL) - used == set()


@pytest.mark.parametrize(
    "f", [f for f in TABLE.families if f.kind in ("counter", "gauge", "histogram")], ids=lambda f: f"{f.system}-{f.name}-{f.until}"
)
def test_every_row_is_read_back_in_its_versions_and_refused_outside(f: Family) -> None:
    name = f.name + ("_bucket" if f.kind == "histogram" else "")
    one = Series(name=name, labels={"le": "1"}, value=1.0)
    last = version_of(f.until) if f.until[:1].isdigit() else ()
    if last:
        inside = TABLE.read(f.system, f.until, [one])
        assert name not in inside.odd
        after = ".".join(map(str, (*last[:-1], last[-1] + 1)))
        others = [g for g in TABLE.families if g.name == f.name and g.system == f.system and g is not f]
        if not others:
            assert TABLE.read(f.system, after, [one]).odd == (name,)
    assert name not in TABLE.read(f.system, "", [one]).unknown


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ("0.8.5", {"vllm:time_per_output_token_seconds"}),
        ("0.10.2", {"vllm:time_per_output_token_seconds", "vllm:inter_token_latency_seconds"}),
        ("0.15.1", {"vllm:inter_token_latency_seconds", "vllm:request_time_per_output_token_seconds"}),
        ("0.33.0", {"vllm:inter_token_latency_seconds", "vllm:request_time_per_output_token_seconds"}),
    ],
)
def test_vllms_renames_of_time_per_token_by_version(version: str, names: set[str]) -> None:
    assert set(TABLE.names("vllm", version, ["time_per_output_token_seconds"])) == names


def test_a_renamed_series_says_what_it_is_called_in_that_version() -> None:
    text = TABLE.explain("vllm", "0.16.0", "time_per_output_token_seconds")
    assert "vllm:inter_token_latency_seconds" in text
    assert "vllm:time_per_output_token_seconds (since 0.8.5 until 0.14.1)" in text


def test_two_names_of_one_thing_are_never_added() -> None:
    page = "".join(
        f'{name}_bucket{{le="{le}"}} {n}\n'
        for name in ("vllm:time_per_output_token_seconds", "vllm:inter_token_latency_seconds")
        for le, n in (("0.01", 5), ("+Inf", 8))
    )
    buckets = read("vllm", "0.10.2", page).buckets
    assert buckets == {"time_per_output_token_seconds/per_step": {0.01: 5.0, math.inf: 8.0}}


def test_a_mean_per_request_is_another_statistic_than_a_gap_per_step() -> None:
    page = 'vllm:request_time_per_output_token_seconds_bucket{le="+Inf"} 3\n'
    assert list(read("vllm", "0.33.0", page).buckets) == ["time_per_output_token_seconds/per_request"]
    both = page + 'vllm:inter_token_latency_seconds_bucket{le="+Inf"} 700\n'
    assert list(read("vllm", "0.33.0", both).buckets) == ["time_per_output_token_seconds/per_request"], "one sample a request goes first"


def test_vllm_errors_exist_only_from_the_version_that_counts_them() -> None:
    page = 'vllm:request_success_total{finished_reason="stop"} 90\nvllm:request_success_total{finished_reason="abort"} 7\n'
    new = read("vllm", "0.33.0", page + 'vllm:request_success_total{finished_reason="error"} 3\n').values
    assert (new["requests_total/engine"], new["errors_total/engine"]) == (93.0, 3.0)
    assert read("vllm", "0.33.0", page).values["errors_total/engine"] == 0.0
    assert "errors_total/engine" not in read("vllm", "0.10.2", page).values


def test_the_http_layer_goes_before_the_engine_and_only_completions_count() -> None:
    page = (
        'http_requests_total{handler="/v1/completions",status="2xx"} 50\nhttp_requests_total{handler="/v1/completions",status="5xx"} 4\n'
        'http_requests_total{handler="/metrics",status="2xx"} 900\nvllm:request_success_total{finished_reason="stop"} 40\n'
    )
    values = read("vllm", "0.33.0", page).values
    assert (values["requests_total/http"], values["errors_total/http"]) == (54.0, 4.0)
    assert "requests_total/engine" not in values


def test_ranks_and_splits_of_one_family_add_up() -> None:
    page = 'sglang:num_running_reqs{dp_rank="0"} 3\nsglang:num_running_reqs{dp_rank="1"} 4\n'
    assert read("sglang", "0.5.23", page).values["running"] == 7.0
    split = 'sglang:cached_tokens_total{cache_source="device"} 5\nsglang:cached_tokens_total{cache_source="total"} 8\n'
    assert read("sglang", "0.5.23", split).values["cached_tokens_total"] == 8.0


def test_cached_blocks_are_no_tokens() -> None:
    page = "vllm:gpu_prefix_cache_hits_total 12\n"
    assert "cached_tokens_total" not in read("vllm", "0.8.5", page).values
    assert read("vllm", "0.9.1", page).values["cached_tokens_total"] == 12.0


def test_a_histogram_whose_name_ends_in_total_is_no_counter() -> None:
    rows = TABLE.families_of("vllm", "vllm:iteration_tokens_total_sum")
    assert [f.kind for f in rows] == ["histogram"]


@pytest.mark.parametrize(
    ("system", "page", "canonical", "value"),
    [
        ("triton", "nv_gpu_utilization 0.5\n", "gpu_util_ratio", 0.5),
        ("dcgm", 'DCGM_FI_DEV_GPU_UTIL{gpu="0"} 50\n', "gpu_util_ratio", 0.5),
        ("amd_exporter", 'gpu_gfx_activity{gpu_id="0"} 50\n', "gpu_util_ratio", 0.5),
        ("dcgm", "DCGM_FI_DEV_FB_USED 1024\n", "gpu_mem_used_bytes", 1024 * 1048576.0),
        ("triton", "nv_gpu_memory_used_bytes 1024\n", "gpu_mem_used_bytes", 1024.0),
        ("dcgm", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION 5000\n", "gpu_energy_joules", 5.0),
        ("amd_exporter", "gpu_energy_consumed 5000000\n", "gpu_energy_joules", 5.0),
        ("amd_exporter", "gpu_health 1\n", "gpu_health", 1.0),
        ("amd_exporter", 'gpu_health{gpu_id="0"} 1\ngpu_health{gpu_id="1"} 0\n', "gpu_health", 0.0),
        ("dcgm", "DCGM_EXP_GPU_HEALTH_STATUS 0\n", "gpu_health", 1.0),
        ("dcgm", "DCGM_EXP_GPU_HEALTH_STATUS 20\n", "gpu_health", 0.0),
        ("dcgm", "DCGM_FI_DEV_ROW_REMAP_FAILURE 1\n", "gpu_health", 0.0),
        ("amd_exporter", "amd_gpu_package_power 300\n", "gpu_power_watts", 300.0),
    ],
)
def test_units_and_polarity_are_the_canonical_ones(system: str, page: str, canonical: str, value: float) -> None:
    assert read(system, "", page).values[canonical] == pytest.approx(value)


@pytest.mark.parametrize(
    ("system", "page", "canonical"),
    [
        ("dcgm", "DCGM_FI_DEV_GPU_UTIL ERROR - FAILED TO CONVERT TO STRING\n", "gpu_util_ratio"),
        ("dcgm", "DCGM_FI_DEV_GPU_UTIL 120\n", "gpu_util_ratio"),
        ("dcgm", "DCGM_FI_DEV_GPU_TEMP 644245923\n", "gpu_temp_celsius"),
        ("dcgm", "DCGM_FI_DEV_POWER_USAGE 9223372036854775794\n", "gpu_power_watts"),
        ("dcgm", "DCGM_FI_DEV_FB_USED 140737488355328\n", "gpu_mem_used_bytes"),
        ("amd_exporter", "gpu_package_power 0\n", "gpu_power_watts"),
        ("amd_exporter", "gpu_edge_temperature 0\n", "gpu_temp_celsius"),
        ("amd_exporter", "gpu_health NaN\n", "gpu_health"),
    ],
)
def test_a_missing_gpu_metric_is_never_zero(system: str, page: str, canonical: str) -> None:
    totals = read(system, "", page)
    assert canonical not in totals.values
    assert totals.unusable


@pytest.mark.parametrize(
    ("system", "name"),
    [("vllm", "vllm:brand_new_seconds"), ("sglang", "sglang:x_total"), ("tgi", "tgi_x"), ("dcgm", "DCGM_FI_DEV_NEW"), ("triton", "nv_x")],
)
def test_an_unknown_series_of_a_known_exporter_is_told(system: str, name: str) -> None:
    assert read(system, "", f"{name} 1\nother_thing 2\n").unknown == (name,)


def test_prefixes_of_ray_gateway_and_amd_are_the_same_series() -> None:
    for name in ("ray_vllm:num_requests_running", "ray_vllm_num_requests_running"):
        assert read("vllm", "", f"{name} 2\n").values["running"] == 2.0
    assert read("sglang", "", "sglang_num_queue_reqs 2\n").values["waiting"] == 2.0


def test_tgi_shows_no_failure_family_until_the_first_failure() -> None:
    assert read("tgi", "3.3.7", "tgi_request_count 10\n").values["errors_total/received"] == 0.0
    assert not any("errors" in key for key in read("tgi", "3.3.7", "tgi_queue_size 1\n").values)
    page = 'tgi_request_count 10\ntgi_request_failure{err="validation"} 3\ntgi_request_failure{err="overloaded"} 2\n'
    assert read("tgi", "3.3.7", page).values["errors_total/received"] == 2.0


def test_a_page_of_nothing_but_nan_says_so() -> None:
    assert read("vllm", "0.33.0", 'vllm:prompt_tokens_total NaN\nvllm:request_success_total{finished_reason="stop"} NaN\n').is_nan
    assert not read("vllm", "0.33.0", "vllm:prompt_tokens_total NaN\nvllm:generation_tokens_total 3\n").is_nan


@pytest.mark.parametrize("text", ["", "PR 5708 (2024-02)", "2026"])
def test_what_is_no_version_binds_nothing(text: str) -> None:
    assert version_of(text) == ()


def test_odd_versions_are_read_by_their_numbers() -> None:
    assert version_of("v3.3.7") == (3, 3, 7)
    assert version_of("0.5.10.post1") == (0, 5, 10)
    assert version_of("0.11.0rc1+rocm") == (0, 11, 0)


def _with(line: str) -> list[str]:
    return [*TEXT.splitlines()[:3], line]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("nope,x,gauge,,1,,,,,,1,,m,s,2026-11-30", "no system"),
        ("vllm,x,dial,,1,,,,,,1,,m,s,2026-11-30", "no kind"),
        ("vllm,x,gauge,,0,,,,,,1,,m,s,2026-11-30", "no number above 0"),
        ("vllm,x,gauge,,1,,,,speed,,1,,m,s,2026-11-30", "no role"),
        ("vllm,x,gauge,,1,,,,,,1,,m,,2026-11-30", "no source"),
        ("vllm,x,gauge,,1,,,,,,1,,m,s,yesterday", "no source or date"),
        ("vllm,x,histogram,,1,,,,,,1,2;1,m,s,2026-11-30", "do not ascend"),
        ("vllm,vllm:num_requests_running,gauge,,1,,,,running,,1,,m,s,2026-11-30", "stands twice"),
    ],
)
def test_a_bad_row_is_refused_with_its_place(line: str, why: str) -> None:
    with pytest.raises(ConfigInvalid) as e:
        parse_metrics(_with(line))
    assert e.value.code == "catalog.metrics"
    assert why in " ".join(e.value.details)


def test_roles_say_which_series_count() -> None:
    (role,) = parse_roles("errors_total[status=5..&handler=/v1/.*]>=0.13.0")
    assert role.fits({"status": "503", "handler": "/v1/completions"})
    assert not role.fits({"status": "404", "handler": "/v1/completions"})
    assert role.since == (0, 13, 0)
