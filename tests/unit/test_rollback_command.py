"""`fleetctl rollback` says what stands, not what was wished for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from click.testing import CliRunner

from fleetctl.cli.commands import rollback
from fleetctl.cli.main import cli
from fleetctl.domain.rollout import Rollout
from tests.rollouts import rollout

RAMP = replace(rollout(), step=2, weight_bp=5_000)


@pytest.mark.parametrize(
    ("obeyed", "exit_code"),
    [(RAMP, 0), (replace(RAMP, weight_bp=9_500), 8), (replace(RAMP, ended="aborted", weight_bp=0), 0), (None, 0)],
)
def test_a_step_lower_that_waits_for_the_source_is_pending(obeyed: Rollout | None, exit_code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollback, "give_order", lambda *_, **__: (obeyed,))
    assert CliRunner().invoke(cli, ["rollback", "chat-lab"]).exit_code == exit_code
