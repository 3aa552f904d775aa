"""The inventory as a new user meets it: 200 VMs on the emulated clouds, scanned, listed, compared, exported; hostile names stay letters."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetctl.cli.main import main
from tests.cases.hostile_text import CANARY, HOSTILE
from tests.fakes.arm_double import TOKEN, ArmDouble, Fault, arm_double
from tests.fakes.arm_estate import SUBSCRIPTION, Estate
from tests.fakes.json_double import json_double

pytestmark = pytest.mark.lab
NAMES = list(HOSTILE)


def hostile_tags(_: str, n: int) -> Mapping[str, str]:
    text = HOSTILE[NAMES[n % len(NAMES)]].encode("utf-8", "replace").decode()
    return {"owner": text, "cost_centre": text, "tenant": text, "data_class": text, "workload": text}


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    monkeypatch.setenv("EMULATED_TOKEN", TOKEN)
    monkeypatch.setenv("FLEETCTL_WORKSPACE", str(tmp_path))
    assert main(["init"]) == 0
    capsys.readouterr()
    return tmp_path


def with_source(workspace: Path, text: str) -> None:
    file = workspace / "inventory/example/fleet.yaml"
    file.write_text(file.read_text().replace("sources: {}\n", f"sources:\n{text}"))


def azure(double: ArmDouble) -> str:
    settings = f"{{subscriptions: {SUBSCRIPTION}, endpoint: '{double.url}', ca_file: '{double.ca_file}'}}"
    return f"  prod:\n    kind: azure\n    settings: {settings}\n    secrets: {{token: {{kind: env, name: EMULATED_TOKEN}}}}\n"


@pytest.fixture
def double(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArmDouble]:
    with arm_double(Estate(regions={"eastus2": 150, "westus3": 50}), tmp_path_factory.mktemp("arm")) as running:
        yield running


def run(*argv: str) -> int:
    return main(["inventory", *argv])


def test_two_hundred_vms_from_scan_to_ansible(workspace: Path, double: ArmDouble, capsys: pytest.CaptureFixture[str]) -> None:
    with_source(workspace, azure(double))
    assert run("scan") == 0
    out = capsys.readouterr().out
    assert f"{SUBSCRIPTION}/eastus2" in out or "eastus2" in out
    assert "0 gaps" in out
    assert (workspace / ".fleetctl/inventory.db").stat().st_mode & 0o777 == 0o600
    assert run("list", "--what", "pools") == 0
    assert "200 machines, 1,600 GPUs" in capsys.readouterr().out
    assert run() == 0
    text = capsys.readouterr().out
    assert "Not in the fleet file:" in text
    assert "fleetctl inventory list --what pools" in text
    assert run("show", "gpu-eastus2-7") == 0
    text = capsys.readouterr().out
    assert f"by azure prod/{SUBSCRIPTION}/eastus2" in " ".join(text.split())
    assert "team-0" in text
    hosts = workspace / "hosts.yaml"
    assert run("export", "-o", "ansible", "--out", str(hosts)) == 0
    listed = _ansible_inventory(hosts)
    assert sum(name.startswith("gpu-") for name in listed["_meta"]["hostvars"]) == 200
    assert len(listed["pool_h100_eastus2"]["hosts"]) >= 75


def test_the_script_is_a_dynamic_inventory(workspace: Path, double: ArmDouble) -> None:
    with_source(workspace, azure(double))
    assert run("scan") == 0
    script = workspace / "hosts"
    assert run("export", "-o", "ansible-script", "--out", str(script)) == 0
    book = workspace / "book.yml"
    book.write_text("- hosts: pool_h100_eastus2\n  gather_facts: false\n  connection: local\n  tasks: [{debug: {var: owner}}]\n")
    program = Path(sys.executable).parent / "ansible-playbook"
    environment = {**os.environ, "ANSIBLE_HOME": str(workspace / "ah"), "ANSIBLE_NOCOLOR": "1", "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [str(program), "-i", str(script), "-e", "ansible_connection=local", str(book), "--limit", "gpu-eastus2-0:gpu-eastus2-2"],
        capture_output=True,
        text=True,
        env=environment,
        cwd=workspace,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "team-" in done.stdout


def test_a_region_down_is_a_gap_and_the_rest_is_listed(workspace: Path, double: ArmDouble, capsys: pytest.CaptureFixture[str]) -> None:
    with_source(workspace, azure(double))
    double.faults.append(Fault(path="westus3/virtualMachines", status=400, code="RegionDown", message="emulated outage", times=1))
    assert run("scan", "-o", "json") == 0
    first = json.loads(capsys.readouterr().out)
    assert sum("/virtualmachines/" in f["values"].get("machine", "") for f in first["facts"]) == 150
    assert ["emulated outage" in g["reason"] for g in first["gaps"]] == [True]
    seen = len(double.requests)
    assert run("scan", "--only-gaps") == 0
    assert "not asked" in capsys.readouterr().out
    assert not any("/eastus2/" in path for _, path, _ in double.requests[seen:])
    assert run("diff", "--detailed-exitcode", "-o", "json") == 3
    diff = json.loads(capsys.readouterr().out)
    assert {(c["what"], c["kind"]) for c in diff["changes"]} == {("added", "machine"), ("added", "quota"), ("added", "size")}
    assert sum(c["kind"] == "machine" for c in diff["changes"]) == 50
    seen = len(double.requests)
    assert run("scan", "--fresh", "15m") == 0
    assert not any("locations" in path for _, path, _ in double.requests[seen:])
    assert run("diff", "--detailed-exitcode") == 0


def test_a_vm_that_went_is_removed_and_one_that_could_not_be_seen_is_not(
    workspace: Path, double: ArmDouble, capsys: pytest.CaptureFixture[str]
) -> None:
    with_source(workspace, azure(double))
    assert run("scan") == 0
    double.estate.regions["eastus2"] = 149
    double.estate.stopped.add(double.estate.vm_id("westus3", 3))
    capsys.readouterr()
    assert run("scan") == 0
    capsys.readouterr()
    assert run("diff", "-o", "json") == 0
    changes = json.loads(capsys.readouterr().out)["changes"]
    by_kind = {(c["what"], c["kind"]): c for c in changes if c["kind"] == "machine"}
    assert by_kind["removed", "machine"]["id"].endswith("gpu-eastus2-149")
    assert by_kind["changed", "machine"]["fields"] == [["state", "running", "deallocated"]]


@pytest.mark.parametrize("problem", ["expired", "missing", "right"])
def test_a_credential_problem_ends_with_4_and_says_what_to_set(
    workspace: Path, double: ArmDouble, problem: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_source(workspace, azure(double) + "  people:\n    kind: table\n    settings: {files: people.csv}\n")
    (workspace / "people.csv").write_text("workload,owner\nassistant,ada\n")
    if problem == "expired":
        double.token = "new"
    elif problem == "missing":
        monkeypatch.delenv("EMULATED_TOKEN")
    else:
        double.faults.append(Fault(path="skus$", status=403, code="AuthorizationFailed", message="no right"))
    assert run("scan") == 4
    out, err = capsys.readouterr()
    assert "people.csv" in out
    assert "error[credentials." in err
    assert {"expired": "az login", "missing": "EMULATED_TOKEN", "right": "azure-role.json"}[problem] in err
    assert run("show", "assistant-eastus2") == 0
    assert "but ada says table people/people.csv" in " ".join(capsys.readouterr().out.split())


def test_engines_fill_in_and_contradict(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = 'vllm:num_requests_running{model_name="other"} 1\n'
    answers = {
        "/metrics": metrics,
        "/v1/models": {"data": [{"id": "other"}, {"id": "lora", "parent": "other"}]},
        "/version": {"version": "9"},
    }
    with json_double(answers) as server:
        file = workspace / "inventory/example/fleet.yaml"
        tables = workspace / "t.yaml"
        tables.write_text(f"engine:\n  127.0.0.1:{server.port}: {{cell: assistant-eastus2}}\n")
        assert file.exists()
        assert run("scan", "--from", f"engines:{server.url}", "--from", str(tables)) == 0
        assert run("scan", "--from", str(tables)) == 0
        capsys.readouterr()
    assert run("show", "assistant-eastus2") == 0
    text = capsys.readouterr().out
    assert "adapters     lora  (engine cli)" in text
    assert "Conflict: model: other (engine cli), but" in text
    assert run("list", "--what", "engines", "-o", "json") == 0
    (engine,) = json.loads(capsys.readouterr().out)["items"]
    assert engine["origin"]["cell"].startswith("table") or engine["source"].startswith("table")


def test_hostile_names_come_out_as_letters_everywhere(
    workspace: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [HOSTILE[n].encode("utf-8", "replace").decode()[:200] for n in NAMES]
    regions = {"eastus2": len(names), "westus3": len(names)}
    estate = Estate(regions=regions, name_of=lambda place, n: names[n] if place == "eastus2" else f"vm-{n}", tags_of=hostile_tags)
    with arm_double(estate, tmp_path_factory.mktemp("arm")) as double:
        with_source(workspace, azure(double))
        assert run("scan") == 0
    _no_control(capsys.readouterr().out)
    for argv in (["list", "--what", "machines"], ["list", "--what", "machines", "-o", "wide"], ["list", "--what", "pools"], []):
        assert run(*argv) == 0
        _no_control(capsys.readouterr().out)
    assert run("list", "--what", "machines", "-o", "json") == 0
    items = json.loads(capsys.readouterr().out)["items"]
    assert sum("/virtualmachines/" in i["id"] for i in items) == 2 * len({n.lower() for n in names})
    assert run("list", "--what", "machines", "-o", "yaml") == 0
    assert yaml.safe_load(capsys.readouterr().out)["items"][0]["values"] == items[0]["values"]
    assert run("export", "-o", "csv", "--what", "machines") == 0
    for row in csv.reader(io.StringIO(capsys.readouterr().out)):
        assert not any(cell.lstrip().startswith(("=", "+", "-", "@", "\t", "\r", "＝")) for cell in row)
        assert not any(c in cell for cell in row for c in "\r\n\t\x00\x1b")
    for form in ("ansible", "ansible-list"):
        out = workspace / form
        assert run("export", "-o", form, "--out", str(out)) == 0
    said = _said_by_ansible(workspace)
    lure = HOSTILE["jinja"]
    assert lure in said
    assert HOSTILE["jinja-comment"] in said
    assert "49" not in said
    assert run("scan", "--from", f"ansible:{workspace / 'ansible'}") == 0
    assert run("list", "--what", "machines", "-o", "json") == 0
    owners = {i["values"].get("owner") for i in json.loads(capsys.readouterr().out.partition("\n{")[2].join(["{", ""]))["items"]}
    assert lure in owners
    assert not Path(CANARY).exists()


def _said_by_ansible(workspace: Path) -> set[str]:
    """Let a real ansible-playbook use every host's owner in a template, and return what came out."""
    book = workspace / "say.yml"
    tasks = [{"debug": {"msg": "said {{ owner | default('') }}"}}]
    book.write_text(yaml.safe_dump([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    program = Path(sys.executable).parent / "ansible-playbook"
    environment = {**os.environ, "ANSIBLE_HOME": str(workspace / "ah"), "ANSIBLE_NOCOLOR": "1", "ANSIBLE_STDOUT_CALLBACK": "minimal"}
    argv = [str(program), "-i", str(workspace / "ansible"), "-e", "ansible_connection=local", str(book)]
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=280, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    answers = [json.JSONDecoder().raw_decode(part)[0]["msg"] for part in done.stdout.split(" | SUCCESS => ")[1:]]
    assert len(answers) > 25
    return {text.removeprefix("said ") for text in answers}


def _no_control(text: str) -> None:
    assert not any(c in text for c in "\x1b\x00\x07\r\u202e\u2028\u2029")


def _ansible_inventory(path: Path) -> Any:
    program = Path(sys.executable).parent / "ansible-inventory"
    environment = {**os.environ, "ANSIBLE_HOME": str(path.parent / "ah"), "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(
        [str(program), "-i", str(path), "--list"], capture_output=True, text=True, env=environment, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
