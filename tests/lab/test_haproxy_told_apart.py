"""Adapter models and cohorts in the logs of a real HAProxy and Envoy, with hostile headers and bodies; and a source of evidence over it."""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fleetctl.adapters.routers.evidence import RouterLogEvidence
from fleetctl.adapters.routers.log import parse
from fleetctl.domain.records import Attempt
from fleetctl.domain.workload import AffinityKey, model_guardrails
from fleetctl.usecases.analyze import by_cohort
from tests.lab.envoy_lab import EnvoyRig, envoy_rig
from tests.lab.haproxy_lab import CELL, STREAM, Rig, put, rig, until

pytestmark = pytest.mark.lab
LONG = "x" * 50_000


COHORT = AffinityKey(kind="header", name="x-variant")


@pytest.mark.parametrize("made", [rig, envoy_rig], ids=["haproxy", "envoy"])
def test_models_and_cohorts_are_logged_counted_and_compared(made: Callable[..., AbstractContextManager[Rig | EnvoyRig]]) -> None:
    with made(adapters=("team/sql", "legal"), cohort=COHORT) as r:
        r.healthy()
        put(r.router(), 5_000, token=1)
        source = RouterLogEvidence(r.folder / "log", now=lambda: datetime.now(UTC), cells=(CELL, STREAM))
        cursor = replace(source.mark(CELL), since=datetime.now(UTC) - timedelta(seconds=1))  # the log tells whole milliseconds
        asked: tuple[tuple[dict[str, Any], dict[str, str]], ...] = (
            ({"model": "team/sql", "prompt": "a"}, {"x-variant": "control"}),
            ({"prompt": LONG, "model": "legal"}, {"x-variant": "test"}),
            ({"model": "tiny", "prompt": "a"}, {}),
            ({"model": 'x","a":"canary', "prompt": "a"}, {"x-variant": 'q"},{"c":"' + CELL + "\\"}),
            ({"model": ["team/sql"], "prompt": "a"}, {"x-variant": "é" * 3}),
            ({"prompt": 'no model, but "model":"legal" in the text'}, {"x-variant": "y" * 400}),
        )
        for body, headers in asked * 4:
            encoded = {k: v.encode("utf-8").decode("latin-1") for k, v in headers.items()}
            assert r.ask(headers=encoded, body=dict(body)).status == 200
        assert r.ask(STREAM, body={"model": "legal"}, headers={"x-variant": "control"}).status == 200
        until(lambda: len([row for row in r.log() if row["p"] == "-" and row["c"] in (CELL, STREAM)]) >= 25, "logged")
        lines = [line for line in r.log_text().splitlines() if line.startswith("{")]
        found = [a for line in lines if isinstance(a := parse(line.encode()), Attempt)]
        mine = [a for a in found if a.cell == CELL]
        assert Counter(a.model for a in mine) == {"team/sql": 4, "legal": 4, "": 16}
        cohorts = Counter(a.cohort for a in mine)
        assert {name: cohorts[name] for name in ("control", "test", "")} == {"control": 4, "test": 4, "": 4}
        assert max(len(name) for name in cohorts) <= 64
        assert {(a.model, a.cohort) for a in found if a.cell == STREAM} == {("", "")}, "only what this cell declares"
        assert all(json.loads(line)["c"] for line in lines), "a header cannot break out of its field"
        shares: Counter[str] = Counter()
        for counts in source.read(CELL, cursor).arms.values():
            for name, (n, _) in counts.shares.items():
                shares[name] += n
        assert (shares[model_guardrails("team/sql")[0]], shares[model_guardrails("legal")[0]]) == (4, 4)
        assert Counter(a.arm for a in by_cohort(mine, ("control", "test")) if isinstance(a, Attempt)) == {"baseline": 4, "canary": 4}


def test_a_cohort_may_be_a_cookie_and_a_long_body_is_read_whole_by_envoy() -> None:
    with envoy_rig(adapters=("legal",), cohort=AffinityKey(kind="cookie", name="tier")) as r:
        put(r.router(), 5_000, token=1)
        for cookie in ("a=1; tier=free; b=2", 'tier=in"ternal', "tiers=x", "xtier=y"):
            assert r.ask(headers={"cookie": cookie}, body={"prompt": "x" * 3_000_000, "model": "legal"}).status == 200
        until(lambda: len(r.log()) >= 4, "logged")
        assert [(row["m"], row["co"]) for row in r.log()] == [("legal", "free"), ("legal", "in_ternal"), ("legal", "-"), ("legal", "-")]


@pytest.mark.parametrize("adapters", [(), ("sql",)], ids=["tee", "adapters"])
def test_a_client_that_sends_its_body_slowly_is_served(adapters: tuple[str, ...]) -> None:
    """What waits for bodies (shadow, adapter models) is in the client's path: it must never cut a slow one."""
    with rig(adapters=adapters) as r:
        r.healthy()
        if not adapters:
            r.router().set_shadow(CELL, 1_000.0)
        body = json.dumps({"model": "sql", "prompt": "slow"}).encode()
        head = f"POST /{CELL}/v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", r.port), timeout=10) as link:
            link.sendall(head.encode() + body[:5])
            seen = len(r.log())
            link.settimeout(0.5)
            with pytest.raises(TimeoutError):
                link.recv(1)  # nobody answers before the request is whole
            link.settimeout(10)
            link.sendall(body[5:])
            assert link.recv(200).startswith(b"HTTP/1.1 200")
        until(lambda: len(r.log()) > seen, "logged")
