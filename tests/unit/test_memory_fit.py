"""Memory fit and the declared assessment."""

from __future__ import annotations

import pytest

from fleetctl.assess import declared, fits, memory_fit
from fleetctl.catalog import load_catalog
from fleetctl.domain.pool import Sku
from fleetctl.domain.workload import Model, Traffic
from tests.cases.planning_fleet import NOW, workload


def sku(name: str) -> Sku:
    found = load_catalog().sku(name)
    assert found is not None
    return found


LLAMA70 = Model(name="Llama-3.3-70B", parameters_billion=70.6, precision="bf16", context_tokens=32768, layers=80, kv_heads=8, head_dim=128)


def test_the_formula_by_hand() -> None:
    w = workload("w", model=LLAMA70, concurrency=4, traffic=Traffic(requests_per_s=1.0, input_tokens=900.0, output_tokens=100.0))
    weights = 70.6e9 * 2 / 2**30
    cache = (32768 + 3 * 1000) * 2 * 80 * 8 * 128 * 2 / 2**30
    fit = memory_fit(w, sku("lab-mi300x"))
    assert fit.needed_gib == round(weights + cache + 0.1 * 192 + 4, 1)
    assert fit.available_gib == 192


def test_seventy_billion_in_bf16_fits_one_mi300x_and_not_one_h100() -> None:
    w = workload("w", model=LLAMA70, concurrency=4)
    assert fits(memory_fit(w, sku("lab-mi300x")))
    assert not fits(memory_fit(w, sku("lab-nvidia")))
    four = workload("w", model=LLAMA70, concurrency=4, accelerators_per_replica=4)
    assert fits(memory_fit(four, sku("lab-nvidia")))


def test_what_was_estimated_is_named() -> None:
    tiny = Model(name="x", parameters_billion=0.135, precision="odd", context_tokens=2048)
    note = memory_fit(workload("w", model=tiny, adapters=("a", "b")), sku("lab-mi300x")).estimated
    assert "30 layers" in note
    assert "8 KV heads of 128" in note
    assert "'odd' counted as 2 bytes" in note
    assert "2 adapters" in note
    assert memory_fit(workload("w", model=LLAMA70), sku("lab-mi300x")).estimated == "runtime 4 GiB per accelerator"


def test_more_gpus_than_kv_heads_copy_the_cache() -> None:
    def needed(gpus: int) -> float:
        reserve = gpus * (0.1 * 192 + 4)
        return memory_fit(workload("w", model=LLAMA70, accelerators_per_replica=gpus), sku("lab-mi300x")).needed_gib - reserve

    assert needed(16) > needed(8) == pytest.approx(needed(4), abs=0.1)


@pytest.mark.parametrize(("route", "rule"), [("native", None), ("stay", None), ("zluda", "route.zluda"), ("magic", "route.unknown")])
def test_declared_routes(route: str, rule: str | None) -> None:
    assessment = declared(workload("w", route=route), NOW)
    assert assessment.kind == "declared"
    assert assessment.as_of == NOW
    assert [f.rule for f in assessment.blocking] == ([rule] if rule else [])
