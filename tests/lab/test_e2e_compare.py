"""Comparing the two sides in a running lab: calibration from HAProxy's log, the serving contract through it, identity in the ticker."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fleetctl.domain.checks import CheckResult, record_id
from tests.lab.e2e import CHAT, HALF, Lab
from tests.lab.lab_tools import until

pytestmark = pytest.mark.lab


def test_the_source_is_calibrated_and_both_arms_keep_the_contract(whole_lab: Lab) -> None:
    lab = whole_lab.fresh(HALF, ticker=False)

    def enough() -> bool:
        return lab.run("calibrate", CHAT, "--dry-run", "-o", "name", code=None).code != 1 or not _too_few(lab)

    until(enough, "3,000 requests of the source", 90)
    done = lab.run("calibrate", CHAT, "--contract", "-o", "json", code=None, within_s=120)
    assert done.code in (0, 1), done.err
    value = json.loads(done.out)
    found = value["cells"][0]
    assert found["requests"] >= 3000
    assert len(found["hosts"]) == 2
    assert not any(h["failed"] for h in found["halves"])
    assert found["least_fail_margins"]["latency"] >= 0.05
    results = value["contracts"][0]["results"]
    assert len(results) >= 40
    assert [r for r in results if r["kind"] == "broken"] == []
    assert sum(r["kind"] == "ok" for r in results) >= 25
    text = lab.run("calibrate", CHAT, "--dry-run", code=None, within_s=60).out
    assert "host effects beyond chance" in text
    assert all(len(line) <= 80 for line in text.splitlines())


def _too_few(lab: Lab) -> bool:
    return "more are needed" in lab.run("calibrate", CHAT, "--dry-run", code=None).err


def test_the_ticker_knows_what_both_arms_serve(whole_lab: Lab) -> None:
    lab = whole_lab.fresh(HALF, ticker=True)
    child = lab.start("migrate", CHAT, "--phase", "canary")
    lab.wait_phase(CHAT, "canary")
    until(lambda: bool((r := lab.rollout(CHAT)) and r.identity), "an identity in the rollout", 40)
    assert child.runs
    r = lab.rollout(CHAT)
    assert r is not None
    assert not r.hold_reason.startswith("identity.")


def test_the_ticker_runs_the_contract_before_the_canary_and_a_person_the_rest(whole_lab: Lab) -> None:
    lab = whole_lab.fresh(replace(HALF, checks="{required: [contract, quality]}"), ticker=True)
    child = lab.start("migrate", CHAT, "--phase", "canary")
    held = lab.wait(CHAT, lambda r: r.hold_reason.startswith("checks."), "the emulated engine tells no tokens", 90)
    assert (held.phase, held.weight_bp, lab.weight(CHAT)) == ("preflight", 0, 0)
    store = lab.store()
    try:
        kept = {name: store.get(CheckResult, record_id(CHAT, name)) for name in ("contract", "quality")}
    finally:
        store.close()
    assert {name: r.kind for name, r in kept.items() if r is not None} == {"contract": "PASS", "quality": "NO_DATA"}
    said = lab.run("status").out
    assert "quality cannot be made" in " ".join(said.split())
    done = lab.run("calibrate", CHAT, "--checks", "contract", "--dry-run", "-o", "json", code=None, within_s=240)
    checks = {r["check"]: r["kind"] for r in json.loads(done.out)["checks"]}
    assert (done.code, checks) == (0, {"contract": "PASS"}), done.err
    lab.run("promote", CHAT, "--confirm", CHAT)
    lab.wait_phase(CHAT, "canary")
    assert child.runs or child.end(None).code in (0, 6)
