"""`fleetctl inventory scan`: how it ends when sources are silent, lack a credential or are named wrongly, and where paths begin."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

import pytest

from fleetctl.cli.main import main
from tests.fakes.json_double import json_double

pytestmark = pytest.mark.lab
TABLE = "workload,owner\nassistant,ada\n"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    for name in [n for n in os.environ if n.startswith(("AWS_", "AZURE_", "KUBE", "FLEETCTL_"))]:
        monkeypatch.delenv(name)
    for name, value in {
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_DEFAULT_REGION": "us-east-1",
        "HOME": str(tmp_path / "nobody"),
        "FLEETCTL_WORKSPACE": str(tmp_path / "ws"),
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "KUBECONFIG"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    (tmp_path / "ws").mkdir()
    assert main(["init"]) == 0
    capsys.readouterr()
    return tmp_path / "ws"


def with_sources(workspace: Path, text: str) -> None:
    file = workspace / "inventory/example/fleet.yaml"
    file.write_text(file.read_text().replace("sources: {}\n", f"sources:\n{text}"))


def scan(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(["inventory", "scan", *argv])
    out, err = capsys.readouterr()
    return code, " ".join(out.split()), err


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_silent_sources_end_with_1_and_with_0_beside_one_that_tells(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (workspace / "t.csv").write_text(TABLE)
    nobody = f"127.0.0.1:{closed_port()}"
    for silent in (f"engines:{nobody}", f"table:{workspace}/none.csv", f"ansible:{workspace}/none", "prometheus:no-address"):
        code, out, err = scan(capsys, "--from", silent)
        assert (code, err.split(":")[0]) == (1, "error[inventory.nothing_told]"), silent
        assert "Not known: " in out
        assert " failed " in out
        code, out, err = scan(capsys, "--from", silent, "--from", str(workspace / "t.csv"))
        assert (code, err) == (0, ""), silent
        assert "Not known: " in out
    code, out, _ = scan(capsys, "--from", "prometheus:no-address", "-o", "json")
    assert code == 1
    assert json.loads(out)["gaps"][0]["mend"] == "Set: http(s)://HOST:PORT"
    assert scan(capsys)[0] == 0  # no source is none that is silent


def test_what_was_seen_before_does_not_make_a_silent_source_speak(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with_sources(workspace, "  people: {kind: table, settings: {files: t.csv}}\n")
    (workspace / "t.csv").write_text(TABLE)
    assert scan(capsys)[0] == 0
    (workspace / "t.csv").unlink()
    code, out, err = scan(capsys)
    assert (code, "failed, kept" in out, "error[inventory.nothing_told]" in err) == (1, True, True)


def test_a_source_named_once_and_silent_is_not_dragged_along(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with_sources(workspace, "  people: {kind: table, settings: {files: t.csv}}\n  hosts: {kind: ansible, settings: {inventories: gone}}\n")
    (workspace / "t.csv").write_text(TABLE)
    scan(capsys, "--from", "table:/nowhere.csv")
    scan(capsys)
    code, out, _ = scan(capsys, "--from", f"engines:127.0.0.1:{closed_port()}")
    assert code == 1
    assert "nowhere.csv" not in out
    assert "table people t.csv 1 " in out
    assert "ansible hosts" in out  # of the fleet file: its gap stays


def test_paths_begin_here_for_from_and_at_the_workspace_in_the_fleet_file(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "my table.csv").write_text(TABLE)
    (workspace / "a b.csv").write_text(TABLE)
    monkeypatch.chdir(here)
    assert scan(capsys, "--from", "my table.csv")[0] == 0
    assert scan(capsys, "--from", "table:my table.csv")[0] == 0
    assert scan(capsys, "--from", "a b.csv")[0] == 1
    with_sources(workspace, "  people: {kind: table, settings: {files: \"'a b.csv'\"}}\n")
    assert scan(capsys)[0] == 0


def test_what_a_source_needs_is_asked_for_with_its_line(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with_sources(workspace, "  a: {kind: table}\n  b:\n    kind: prometheus\n  c: {kind: ansible, settings: {inventories: ''}}\n")
    code, _, err = scan(capsys)
    assert code == 2
    for word in ("files", "url", "inventories"):
        assert f"needs {word}: " in err
    assert err.count("fleet.yaml:") >= 3


@pytest.mark.parametrize("subscription", ["a/../b?x=1", "..", "x#y", "{{ 7*7 }}", "%2e%2e"])
def test_no_subscription_leads_to_another_path(subscription: str, workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = scan(capsys, "--from", f"azure:{subscription}")
    assert code == 1
    assert "is no id of a subscription" in out


def test_clients_say_nothing_by_themselves(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with_sources(workspace, f"  c: {{kind: azure, settings: {{subscriptions: {'1' * 8}-1111-1111-1111-{'1' * 12}}}}}\n  a: {{kind: aws}}\n")
    assert main(["inventory", "scan"]) == 4
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err.startswith("error[credentials.")


CREDENTIALS = {
    "azure": ("", "AZURE_SUBSCRIPTION_ID"),
    "aws": ("", "aws"),
    "kubernetes": ("", "KUBECONFIG"),
    "prometheus": ("{url: 'URL'}", "secrets.token"),
    "engines": ("{urls: 'URL'}", "secrets.key"),
    "ansible": ("{inventories: cloud}", "ansible-inventory"),
    "secret": ("", "export NOT_SET_AT_ALL=..."),
}


@pytest.mark.parametrize("kind", CREDENTIALS)
def test_each_source_without_its_credential_ends_with_4_and_says_what_to_set(
    kind: str, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if kind == "kubernetes":
        pytest.importorskip("kubernetes")
    settings, hint = CREDENTIALS[kind]
    program = workspace / "cloud"
    program.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('ExpiredToken: log in again')\n")
    program.chmod(0o755)
    no = (401, "who are you?")
    paths = ("/api/v1/query", "/metrics", "/info", "/v1/models", "/props", "/v2", "/get_model_info")
    with json_double(dict.fromkeys(paths, no)) as double:
        text = f"  it: {{kind: {kind}" + (f", settings: {settings.replace('URL', double.url)}" if settings else "") + "}\n"
        if kind == "secret":
            text = (
                f"  it: {{kind: prometheus, settings: {{url: '{double.url}'}}, secrets: {{token: {{kind: env, name: NOT_SET_AT_ALL}}}}}}\n"
            )
        with_sources(workspace, text)
        code, out, err = scan(capsys)
    assert (code, err.split("[")[0]) == (4, "error")
    assert err.startswith("error[credentials.")
    assert hint in err
    assert "Not known: " in out
