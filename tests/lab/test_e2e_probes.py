"""End to end: a streaming cell that names paired probes is judged on its times to first token and per token, and comes home."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fleetctl.lab.lifecycle import FLEET_FILE
from tests.lab.e2e import STREAM, Lab, Policy, of_kind

pytestmark = [pytest.mark.lab, pytest.mark.slow]
MARGINS = "guardrails: {errors: {margin: 10 points}, latency: {margin: 100%}, ttft: {margin: 100%}, token_time: {margin: 100%}}"
POLICY = Policy(steps=(("canary", 50, 170), ("complete", 100, 0)), margins=MARGINS)
PROBES = "evidence:\n  stream-probes:\n    kind: probes\n    settings: {pairs_per_s: 8, max_tokens: 8, least: 100}\n\n"


@pytest.fixture
def probed(whole_lab: Lab) -> Iterator[Lab]:
    """Name probes for stream-lab in the lab's fleet file, and take them out again."""
    path = whole_lab.workspace / FLEET_FILE
    whole_lab.fresh(POLICY)
    before = path.read_text()
    head, cell = before.split(f"  {STREAM}:\n", 1)
    head = head.replace("guardrails: [errors]\n", "guardrails: [errors, ttft, token_time]\n").replace(
        "\n# Cells:", f"\n{PROBES}# Cells:", 1
    )
    path.write_text(
        f"{head}  {STREAM}:\n" + cell.replace("    on_source_loss:", "    evidence: [log, stream-probes]\n    on_source_loss:", 1)
    )
    try:
        whole_lab.run("plan")
        from fleetctl.domain.plan import Plan

        plan = whole_lab.store().newest(Plan)
        assert plan is not None
        whole_lab.plan_id = plan.id
        whole_lab.ticker(on=True)
        yield whole_lab
    finally:
        path.write_text(before)


@pytest.mark.timeout(600)
def test_a_streaming_cell_judged_by_probes_comes_home_when_it_is_slower(probed: Lab) -> None:
    lab = probed
    child = lab.start("migrate", STREAM, "--phase", "canary")
    lab.wait_phase(STREAM, "canary", within_s=180.0)
    lab.fault("latency", STREAM, "--factor", "5")
    r = lab.wait(STREAM, lambda r: bool(r.ended), "home", within_s=160.0)
    assert (r.ended, lab.weight(STREAM)) == ("rolled_back", 0)
    assert r.latched is not None
    assert r.latched.guardrail in ("ttft", "token_time")
    assert [e.text for e in of_kind(lab.events(STREAM), "verdict.fail")]
    child.end(5, within_s=60.0)
    doctor = lab.run("doctor", code=None).out
    assert "ttft" in doctor
