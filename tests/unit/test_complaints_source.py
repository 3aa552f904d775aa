"""What users complain of in canary judges, as tests of the sources: what empty, aborted, mistyped and impossible mean."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fleetctl.adapters.routers.evidence import RouterLogEvidence
from fleetctl.analysis.judge import fresh, judge
from fleetctl.domain.evidence import Cursor, Evidence
from fleetctl.domain.ids import CellId
from fleetctl.domain.workload import Guardrail, GuardrailSpec
from fleetctl.formats.evidence_sources import check_evidence
from fleetctl.rollout.gates import gate
from tests.rollouts import T0, all_pass, evidence, rollout, seeing

CHAT = CellId("chat")
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
ERRORS = (GuardrailSpec(name=Guardrail("errors"), margin=0.02, fail_margin=0.0),)


def line(i: int, arm: str, **changes: object) -> str:
    base: dict[str, object] = {
        "c": "chat", "a": arm, "srv": "c1" if arm == "canary" else "b1", "st": 200, "ts": "--", "t0": round(NOW.timestamp() * 1000) + i,
        "ta": 52, "tr": 50, "b": 900, "pt": 40, "ct": 16, "cc": 8, "bp": 5000, "p": "-", "rc": "0",
    }  # fmt: skip
    return json.dumps(base | changes, separators=(",", ":"))


def read(folder: Path, lines: list[str]) -> Evidence:
    folder.mkdir(exist_ok=True)
    (folder / "haproxy-1.log").write_text("".join(f"{text}\n" for text in lines))
    return RouterLogEvidence(folder, now=lambda: NOW + timedelta(seconds=1)).read(CHAT, Cursor(position="0:0", since=NOW))


def test_t05_and_t10_no_error_lines_are_zero_errors_and_no_lines_are_no_data(tmp_path: Path) -> None:
    both = read(tmp_path / "a", [line(i, arm) for i in range(40) for arm in ("baseline", "canary")])
    assert {arm: (c.attempts, c.errors) for arm, c in both.arms.items()} == {"baseline": (40, 0), "canary": (40, 0)}
    assert set(both.state.values()) == {"ok"}
    alone = read(tmp_path / "b", [line(i, "baseline") for i in range(40)])
    assert alone.state == {"baseline": "ok", "canary": "empty"}
    assert judge(fresh(), alone, ERRORS)[1][0].kind == "NO_DATA"


def test_t08_an_empty_answer_is_a_verdict_that_names_the_arm_and_no_crash(tmp_path: Path) -> None:
    verdicts = judge(fresh(), read(tmp_path / "log", []), ERRORS)[1]
    assert {v.kind for v in verdicts} == {"NO_DATA"}
    assert verdicts[0].detail == "baseline empty, canary empty"


def test_t13_what_the_client_ended_counts_neither_as_good_nor_as_failed(tmp_path: Path) -> None:
    gone = [line(100 + i, "canary", st=-1, ts=ts, ta=-1) for i, ts in enumerate(("CR", "CH", "CD"))]
    e = read(tmp_path / "log", [*(line(i, arm) for i in range(20) for arm in ("baseline", "canary")), *gone])
    assert (e.arms["canary"].attempts, e.arms["canary"].errors) == (20, 0)


def test_t27_a_share_that_cannot_be_served_never_advances() -> None:
    settled = replace(rollout(), step=1, settled_at=T0, weight_bp=1000)
    late = T0 + timedelta(hours=1)
    for baseline, canary in ((0, 2000), (2000, 2000), (4000, 0)):  # one replica: all, half or nothing, never the 10 % that were set
        opened = gate(settled, seeing(late, 1000, all_pass(late), evidence(late, baseline=baseline, canary=canary)), late)
        assert not opened.open
        assert "is not the 10.0% that was set" in opened.why
    assert gate(settled, seeing(late, 1000, all_pass(late), evidence(late, baseline=9000, canary=1000)), late).open


@pytest.mark.parametrize(
    ("kind", "settings", "said"),
    [
        ("promethus", {}, "did you mean 'prometheus'"),
        ("scrape", {"evry": "5s"}, "did you mean 'every'"),
        ("scrape", {"counter.orders": "orders_total"}, "events_series / all_series"),
        ("prometheus", {}, "url is missing"),
        ("scrape", {"baseline_engine": "vlm"}, "must be"),
    ],
)
def test_t33_a_mistyped_source_is_refused_before_anything_starts(kind: str, settings: dict[str, str], said: str) -> None:
    assert any(said in text for _, text in check_evidence(kind, settings, {}))
