"""What a run is started with: its own settings, little of the environment, nothing of the user's Ansible."""

from __future__ import annotations

import configparser
import sys
from pathlib import Path

import pytest

from fleetctl.adapters.ansible import settings
from fleetctl.adapters.ansible.configurator import AnsibleConfigurator
from fleetctl.domain.ids import HostId, PoolId, Token
from fleetctl.domain.pool import Host
from fleetctl.errors import ConfigInvalid, ConfigureFailed, ToolMissing


def test_the_settings_keep_host_keys_checked_and_everything_inside_the_folder(tmp_path: Path) -> None:
    path = settings.write_settings(tmp_path, tmp_path / "playbooks", forks=7)
    read = configparser.ConfigParser(interpolation=None)
    read.read(path)
    assert read["defaults"]["host_key_checking"] == "True"
    assert read["defaults"]["forks"] == "7"
    assert read["defaults"]["home"] == f"{tmp_path}/home"
    assert read["connection"]["pipelining"] == "True"
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_environment_has_no_credential_and_nothing_of_the_users_ansible(tmp_path: Path) -> None:
    ours = {
        "PYTHONPATH": ".:/x",
        "PATH": "/bin",
        "HOME": "/h",
        "AWS_SECRET_ACCESS_KEY": "s",
        "ARM_CLIENT_SECRET": "s",
        "ANSIBLE_STRATEGY": "free",
        "SSH_AUTH_SOCK": "/a",
    }
    env = settings.environment(tmp_path / "ansible.cfg", tmp_path / "e", ours)
    assert {k for k in env if k in ours} == {"PATH", "HOME", "SSH_AUTH_SOCK", "PYTHONPATH"}
    assert env["PYTHONPATH"] == f"{Path.cwd()}:/x"
    assert (env["ANSIBLE_CONFIG"], env["FLEETCTL_EVENTS"]) == (str(tmp_path / "ansible.cfg"), str(tmp_path / "e"))
    assert "s" not in env.values()


@pytest.mark.parametrize("name", ["a%b", "a;b", "a\nb", "a{b"])
def test_a_folder_that_the_settings_would_misread_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        settings.write_settings(tmp_path / name, tmp_path, forks=1)
    assert caught.value.code == "config.path"


def test_a_missing_ansible_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissing) as caught:
        settings.find_program()
    assert caught.value.code == "tool.ansible_missing"
    assert "pip install" in caught.value.hint


def test_bad_variables_are_refused_before_anything_is_started(tmp_path: Path) -> None:
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "x.yml").write_text("---\n")
    made = AnsibleConfigurator(tmp_path / "books", tmp_path / "run", sys.executable)
    host = Host(id=HostId("a"), pool=PoolId("p"), address="h")
    refused: tuple[dict[str, object], ...] = (
        {"by_host": {"b": {}}},
        {"by_host": {"a": 1}},
        {"by_host": 1},
        {"ansible_shell_executable": "x"},
    )
    for variables in refused:
        with pytest.raises(ConfigInvalid):
            made.run("x", [host], variables, Token(1), lambda _: None)
    with pytest.raises(ConfigureFailed, match="there is: x"):
        made.run("y", [host], {}, Token(1), lambda _: None)
    assert not list((tmp_path / "run").rglob("events.jsonl"))


def test_a_manifest_that_is_no_object_or_not_there_is_empty(tmp_path: Path) -> None:
    made = AnsibleConfigurator(tmp_path, tmp_path, sys.executable)
    assert made.manifest(HostId("a")) == {}
    (tmp_path / "manifest.json").write_text("[1]")
    (tmp_path / "ansible-hosts.json").write_text(f'{{"a": "{tmp_path}", "b": 1}}')
    assert made.manifest(HostId("a")) == {}
    assert made.manifest(HostId("b")) == {}
    (tmp_path / "manifest.json").write_text('{"n": 1}')
    assert made.manifest(HostId("a")) == {"n": "1"}
