"""What `migrate` shows: one line per change, and what a cell that does not move waits for, in growing gaps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fleetctl.domain.rollout import Rollout
from fleetctl.views.migrate import FIRST_WAIT_S, MOST_WAIT_S, MigrateView
from tests.fakes.rollouts import rollout

WHY = "target answers on 0% of its replicas"


def waiting() -> Rollout:
    return rollout(ended="", step_done=False)


def test_a_change_is_one_line_and_a_long_wait_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    r = waiting()
    view = MigrateView(why=lambda: {r.cell: WHY}, clock=lambda: now[0])
    said: list[float] = []
    with view:
        view.show((r, None))
        assert WHY not in capsys.readouterr().err
        while now[0] < 1_000:
            now[0] += 1.0
            view.show((r,))
            if (err := capsys.readouterr().err) != "":
                assert f"waits: {WHY}" in err
                assert r.cell in err
                said.append(now[0])
        for still in (replace(r, hold_reason="traffic.router_down"), replace(r, step_done=True)):
            view.show((still,))
            now[0] += 1_000
            view.show((still,))
            assert capsys.readouterr().err.count("\n") == 1, "one that is held has said why, one that is done waits for nothing"
    gaps = [b - a for a, b in zip([0.0, *said], said, strict=False)]
    assert gaps[0] == FIRST_WAIT_S
    assert gaps == sorted(gaps)
    assert max(gaps) <= MOST_WAIT_S


def test_a_stream_gets_the_same_as_objects(capsys: pytest.CaptureFixture[str]) -> None:
    now: list[float] = [0.0]
    got: list[tuple[str, Any]] = []
    r = waiting()
    view = MigrateView(why=lambda: {r.cell: WHY}, stream=lambda kind, value: got.append((kind, value)), clock=lambda: now[0])
    with view:
        view.show((r,))
        now[0] = FIRST_WAIT_S
        view.show((r,))
    assert [(k, v["cell"], v["waits"]) for k, v in got] == [("migrate.cell", r.cell, ""), ("migrate.cell", r.cell, WHY)]
    assert capsys.readouterr() == ("", "")


def test_a_long_reason_stays_within_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    now: list[float] = [0.0]
    r = waiting()
    long = "4 of 587 token positions differ (0.7%, at most 5.0% may, 15 near ties, 600 positions needed)"
    view = MigrateView(why=lambda: {r.cell: long}, clock=lambda: now[0])
    with view:
        view.show((r,))
        now[0] = FIRST_WAIT_S
        view.show((r,))
    err = capsys.readouterr().err
    assert all(len(line) <= 80 for line in err.splitlines())
    assert long in " ".join(err.split())
