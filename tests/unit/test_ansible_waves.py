"""Waves of a play: what is written for Ansible, and what is refused before it begins."""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping
from pathlib import Path

import pytest

from fleetctl.adapters.ansible.waves import wave_arguments
from fleetctl.errors import ConfigInvalid
from fleetctl.formats.role_variables import role_variables
from tests.fakes.ansible_world import PLAYBOOKS


@pytest.mark.parametrize("asked", [{"node_serial": 2}, {"node_serial": "25%", "node_max_fail": 10}, {"node_serial": [1, 5, "100%"]}])
def test_they_are_given_in_a_private_file(tmp_path: Path, asked: dict[str, object]) -> None:
    flag, place = wave_arguments(tmp_path, asked | {"rocm_state": "present"}, {"h": {}})
    assert (flag, place[0]) == ("--extra-vars", "@")
    assert json.loads(Path(place[1:]).read_text()) == asked
    assert stat.S_IMODE(Path(place[1:]).stat().st_mode) == 0o600


def test_nothing_is_given_where_nothing_is_asked(tmp_path: Path) -> None:
    assert wave_arguments(tmp_path, {"rocm_state": "present"}, {}) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("asked", "of_host"),
    [
        ({"node_serial": 0}, {}),
        ({"node_serial": True}, {}),
        ({"node_serial": "{{ lookup('pipe', 'id') }}"}, {}),
        ({"node_serial": []}, {}),
        ({"node_serial": [1, "0%"]}, {}),
        ({"node_serial": "101%"}, {}),
        ({"node_max_fail": "10"}, {}),
        ({"node_max_fail": 101}, {}),
        ({}, {"node_serial": 1}),
    ],
    ids=str,
)
def test_what_is_no_wave_is_refused(tmp_path: Path, asked: Mapping[str, object], of_host: Mapping[str, object]) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        wave_arguments(tmp_path, asked, {"h": of_host})
    assert refused.value.code == "config.variable"
    assert list(tmp_path.iterdir()) == []


def test_the_names_that_count_are_those_of_roles_and_plays() -> None:
    known = role_variables(PLAYBOOKS)
    assert {"rocm_accelerators", "health_gate_wait", "node_serial", "model_server_units"} <= known
    assert "rocm_acelerators" not in known
    assert len(known) > 90
