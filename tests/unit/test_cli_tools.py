"""init, inventory and doctor as a user types them."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from fleetctl.cli.main import main
from fleetctl.formats.access import AWS_ACTIONS, AZURE_ACTIONS


@pytest.fixture(autouse=True)
def _clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("FLEETCTL_", "AZURE_", "ARM_", "AWS_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))


@pytest.fixture
def workspace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Return a workspace that init has written."""
    folder = tmp_path / "w"
    folder.mkdir()
    assert main(["-C", str(folder), "init"]) == 0
    capsys.readouterr()
    return folder


def mode(path: Path) -> int:
    """Return the permission bits of a file."""
    return stat.S_IMODE(path.stat().st_mode)


def test_init_writes_what_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-C", str(tmp_path), "init", "prod", "--dry-run"]) == 0
    assert list(tmp_path.iterdir()) == []
    assert "planned" in capsys.readouterr().out
    assert main(["-C", str(tmp_path), "init", "prod", "-o", "json"]) == 0
    items = json.loads(capsys.readouterr().out)["items"]
    assert {item["path"] for item in items} == {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert {item["state"] for item in items} == {"written"}
    assert (mode(tmp_path / ".fleetctl"), mode(tmp_path / ".fleetctl/key")) == (0o700, 0o600)
    assert len(bytes.fromhex((tmp_path / ".fleetctl/key").read_text().strip())) == 32


def test_init_overwrites_nothing(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {p: p.read_bytes() for p in workspace.rglob("*") if p.is_file()}
    (workspace / "fleetctl.toml").write_text("# mine\n")
    (workspace / "inventory/example/access/aws-policy.json").unlink()
    assert main(["-C", str(workspace), "init"]) == 0
    out = capsys.readouterr().out
    assert out.count(" kept ") == len(before) - 1
    assert (workspace / "fleetctl.toml").read_text() == "# mine\n"
    assert (workspace / ".fleetctl/key").read_bytes() == before[workspace / ".fleetctl/key"]
    assert (workspace / "inventory/example/access/aws-policy.json").exists()


def test_init_does_not_follow_a_link_out(tmp_path: Path) -> None:
    outside = tmp_path / "outside.toml"
    (tmp_path / "w").mkdir()
    (tmp_path / "w/fleetctl.toml").symlink_to(outside)
    assert main(["-C", str(tmp_path / "w"), "init"]) == 0
    assert not outside.exists()


def test_init_says_where_it_cannot_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "inventory").write_text("a file where a folder belongs\n")
    assert main(["-C", str(tmp_path), "init"]) == 1
    assert "error[store.unwritable]" in capsys.readouterr().err
    assert main(["-C", str(tmp_path), "init", "../x"]) == 2
    assert "error[usage.name]" in capsys.readouterr().err


def test_two_fleets_have_two_lineages(tmp_path: Path) -> None:
    lineages = set()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        main(["-C", str(tmp_path / name), "init"])
        text = (tmp_path / name / "inventory/example/fleet.yaml").read_text()
        lineages.add(next(line for line in text.splitlines() if line.startswith("lineage:")))
    assert len(lineages) == 2


def test_rights_only_read() -> None:
    assert all(action.endswith("/read") and "*" not in action for action in AZURE_ACTIONS)
    for actions in AWS_ACTIONS.values():
        for action in actions:
            service, verb = action.split(":")
            assert service in {"ec2", "autoscaling", "elasticloadbalancing", "servicequotas"}
            assert verb.startswith(("Describe", "List", "Get"))
            assert "*" not in action


def test_inventory_of_the_example(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-C", str(workspace), "inventory"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].split() == ["CELL", "MODEL", "CLASS", "SOURCE", "TARGET", "REQ/S", "USD/H"]
    assert all(len(line) <= 80 for line in out.splitlines())
    assert main(["-C", str(workspace), "inventory", "-o", "name"]) == 0
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "cell/assistant-eastus2",
        "cell/code-complete-eastus2",
        "cell/summaries-eastus2",
    ]
    assert main(["-C", str(workspace), "inventory", "list", "-o", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["format_version"], data["kind"], data["fleet"], len(data["rows"])) == ("1.0", "inventory", "example", 3)
    assert data["provenance"][0]["source"] == "file inventory/example/fleet.yaml"


def test_inventory_show_scan_schema_export(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = ["-C", str(workspace), "inventory"]
    assert main([*run, "show", "summaries-eastus2"]) == 0
    assert "target       (plan)" in capsys.readouterr().out
    assert main([*run, "show", "summary-eastus2"]) == 2
    assert "did you mean 'summaries-eastus2'?" in capsys.readouterr().err
    assert main([*run, "scan", "mi300x", "-o", "json"]) == 0
    scan = json.loads(capsys.readouterr().out)
    assert [fact["values"]["pool"] for fact in scan["facts"]] == ["mi300x-eastus2"]
    assert scan["gaps"] == []
    assert main([*run, "schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "fleetctl fleet file"
    out = workspace / "fleet.json"
    assert main([*run, "export", "--out", str(out)]) == 0
    assert json.loads(out.read_text())["lineage"] == scan["facts"][0].get("lineage", json.loads(out.read_text())["lineage"])
    assert main([*run, "export", "--out", str(out)]) == 2
    assert "error[usage.file_exists]" in capsys.readouterr().err


def test_inventory_names_every_mistake(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = workspace / "inventory/example/fleet.yaml"
    file.write_text(file.read_text().replace("vendor: amd", "vendor: intel").replace("approvals: 1", "approval: 1"))
    assert main(["-C", str(workspace), "inventory"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("error[config.invalid]: the fleet file inventory/example/fleet.yaml has 2 mistakes.")
    assert len(said) == 3
    assert all(line.startswith("  inventory/example/fleet.yaml:") for line in said[1:])


def test_doctor_names_what_is_missing(workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["-C", str(workspace), "doctor", "-o", "json"]) == 1
    needs = {need["name"]: need for need in json.loads(capsys.readouterr().out)["items"]}
    assert needs["fleet file"]["state"] == "ok"
    assert (needs["azure credential"]["state"], needs["azure credential"]["mend"]) == ("missing", "az login")
    assert needs["aws credential"]["state"] == "not configured"
    assert needs["key"]["state"] == "ok"
    assert needs["secret edge.pin_key"]["state"] == "missing"
    for part in ("TENANT_ID", "CLIENT_ID", "CLIENT_SECRET"):
        monkeypatch.setenv(f"AZURE_{part}", "s3cr3t-value")
    main(["-C", str(workspace), "doctor", "-o", "wide"])
    out = capsys.readouterr().out
    assert "compare its rights with inventory/example/access/azure-role.json" in out
    assert "s3cr3t-value" not in out


def test_doctor_in_an_empty_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-C", str(tmp_path), "doctor"]) == 1
    out = capsys.readouterr().out
    assert "fleetctl init" in out
    assert "[config.missing]" in out


def test_doctor_sees_files_that_others_can_read(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (workspace / ".fleetctl/key").chmod(0o644)
    (workspace / ".fleetctl/store.db").write_bytes(b"this is no database, and long enough to say so" * 50)
    assert main(["-C", str(workspace), "doctor", "-o", "json"]) == 1
    needs = {need["name"]: need for need in json.loads(capsys.readouterr().out)["items"]}
    assert needs["key"]["mend"].startswith("chmod 600")
    assert needs["store"]["state"] == "missing"
