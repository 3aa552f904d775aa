"""A router that tries again: what the target failed stays on the target's account, though no client has seen it (masked by retries)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fleetctl.adapters.routers.evidence import RouterLogEvidence
from tests.lab.haproxy_lab import CELL, put, rig, until

pytestmark = pytest.mark.lab


def test_a_failure_that_a_retry_hid_is_the_canarys() -> None:
    with rig(retries=2, canaries=("c1", "c2")) as own:
        own.healthy()
        put(own.router(), 10_000, token=1)
        evidence = RouterLogEvidence(Path(own.connection.settings["log_folder"]), now=lambda: datetime.now(UTC))
        marked = evidence.mark(CELL)
        cursor = replace(marked, since=marked.since - timedelta(milliseconds=2))  # a log line's start has whole milliseconds
        for i in range(4):
            assert own.ask(key=f"before-{i}").status == 200
        until(lambda: evidence.read(CELL, cursor).arms["canary"].attempts == 4, "logged")
        assert evidence.read(CELL, cursor).arms["canary"].errors == 0
        own.backends[CELL]["c1"].stop()
        answers = [own.ask(key=f"after-{i}").status for i in range(12)]
        until(lambda: evidence.read(CELL, cursor).arms["canary"].attempts == 16, "logged")
        retried = [row for row in own.log() if row["c"] == CELL and row["p"] == "-" and row["rc"] not in ("0", "+0")]
        e = evidence.read(CELL, cursor)
    assert set(answers) == {200}, "no client has seen a failure"
    assert len(retried) >= 1
    assert {row["srv"] for row in retried} == {"c2"}, "answered by the other replica of the same side"
    assert e.arms["canary"].errors == len(retried)
    assert (e.arms["baseline"].attempts, e.arms["baseline"].errors) == (0, 0), "the second try counts in no arm"
