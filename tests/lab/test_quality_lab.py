"""The quality gate on a real model: the same weights with an f16, q8_0 and q4_0 KV cache are the easy, middle and hard case."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleetctl.adapters.engines.api import Api
from fleetctl.adapters.engines.forced import ForcedTexts
from fleetctl.analysis.quality import quality_report
from fleetctl.catalog.quality import quality_texts
from fleetctl.domain.quality import QualityReport, QualitySpec, Triple
from fleetctl.lab.model import can_serve, find_model
from fleetctl.usecases.quality import judge_quality
from tests.fakes.clock import FakeClock
from tests.lab.test_lab_llm import llm

MISSING = can_serve() or find_model().reason
pytestmark = [pytest.mark.lab, pytest.mark.skipif(bool(MISSING), reason=f"no real model: {MISSING}")]
NOW = datetime(2026, 11, 30, tzinfo=UTC)
NAME = "SmolLM2-135M-Instruct"
CHUNK = 256
"""Of the lab's server (n_ubatch)."""


def side(port: int) -> ForcedTexts:
    return ForcedTexts(Api(f"http://127.0.0.1:{port}", timeout_s=240), NAME)


def reports(folder: Path, texts: tuple[str, ...], positions: int, spec: QualitySpec) -> dict[str, QualityReport]:
    """Compare f16 with a second f16, a q8_0 and a q4_0 server on the same positions; the reference is asked twice, once for all."""
    with llm(folder, "f16", name="smollm-lab-b1") as port:
        reference = side(port)
        forced = [(ids := reference.tokens(text), reference.goes_on(ids, positions)) for text in texts]
        once = [reference.choices(*f) for f in forced]
        again = [reference.choices(*f) for f in forced]
    out = {}
    for kv in ("f16", "q8_0", "q4_0"):
        with llm(folder, kv, name=f"smollm-lab-{kv.replace('_', '')}") as port:
            canary = side(port)
            said = [canary.choices(*f) for f in forced]
        found = [
            Triple(prompt=str(p), prompt_len=len(ids) + i, forced=str(after[i]), reference=a, repeat=b, canary=c)
            for p, (ids, after) in enumerate(forced)
            for i, (a, b, c) in enumerate(zip(once[p], again[p], said[p], strict=True))
        ]
        out[kv] = quality_report(found, spec, NOW, NAME)
    return out


@pytest.mark.timeout(900)
def test_the_types_of_cache_are_told_apart_by_their_divergence(tmp_path: Path) -> None:
    texts = tuple(t for t in quality_texts(CHUNK) if len(t) < 200)[:6]
    found = reports(tmp_path, texts, 4, QualitySpec(prefill_chunk=CHUNK))
    assert all(r.whole.positions >= 20 for r in found.values())
    assert all(r.whole.floor <= 0.05 for r in found.values())
    kl = {kv: r.whole.kl for kv, r in found.items()}
    assert kl["f16"] is not None
    assert kl["q8_0"] is not None
    assert kl["q4_0"] is not None
    assert kl["f16"] < 1e-4
    assert kl["f16"] < kl["q8_0"] < kl["q4_0"]
    assert all(r.kind == "INCONCLUSIVE" for r in found.values())


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_the_easy_case_passes_the_middle_one_is_left_open_and_the_hard_one_fails(tmp_path: Path) -> None:
    spec = QualitySpec(prefill_chunk=CHUNK, least_prompts=20)
    found = reports(tmp_path, quality_texts(CHUNK)[:24], 12, spec)
    for kv, r in found.items():
        print(kv, r.kind, r.why, r.whole, r.e_fail, r.e_pass, r.missing)
    assert (found["f16"].kind, found["q4_0"].kind) == ("PASS", "FAIL")
    assert found["q8_0"].kind == "INCONCLUSIVE"
    assert "mean KL" in found["q8_0"].why
    assert any(b.name.startswith("over") and b.positions for b in found["f16"].buckets)
    assert found["q4_0"].whole.same_top < found["f16"].whole.same_top


def test_a_whole_text_at_once_is_asked_for_first_and_one_token_at_a_time_works(tmp_path: Path) -> None:
    with llm(tmp_path) as port:
        one = side(port)
        ids = one.tokens("The capital of France is")
        after = one.goes_on(ids, 3)
        choices = one.choices(ids, after)
        assert [c.token for c in choices] == [str(i) for i in after]
        assert all(len(c.top) == 20 and c.logprob <= 0 for c in choices)
        report = judge_quality(("Monday, Tuesday,",), one, one, QualitySpec(), FakeClock(), model=NAME, positions=2)
        assert (report.kind, report.whole.positions) == ("INCONCLUSIVE", 2)
