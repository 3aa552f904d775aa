"""The first hour of a new user: an empty folder, an empty home, 200 VMs on two emulated clouds, three trees, a report in a real browser.

Every command runs as its own process, as a person runs it. Nothing here knows the program from inside.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("moto", reason="moto[server] is not installed: AWS is not emulated here")

from tests.cases.new_user import ROUTES, write_trees
from tests.cases.sarif_shape import SARIF_SHAPE
from tests.fakes.arm_double import TOKEN, arm_double
from tests.fakes.arm_estate import SUBSCRIPTION, Estate
from tests.fakes.moto_account import CREDENTIALS, moto_server, run_instances
from tests.fakes.picture import pixels

pytestmark = pytest.mark.lab
ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@dataclass(frozen=True, kw_only=True)
class Desk:
    """A person's terminal: 80 columns wide, with an empty home; the folder holds nothing but what the person made."""

    folder: Path
    home: Path

    def run(self, *argv: str, code: int = 0, more: Mapping[str, str] | None = None) -> str:
        """Run a command to its end and return what it said; every line of a table fits the terminal."""
        base = {"PATH": os.environ["PATH"], "HOME": str(self.home), "PYTHONPATH": str(ROOT), "COLUMNS": "80", "LANG": "C.UTF-8"}
        environment = {**base, "AWS_EC2_METADATA_DISABLED": "true", **(more or {})}
        done = subprocess.run(
            [sys.executable, "-m", "fleetctl.cli", *argv],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        if "-o" not in argv:
            assert [line for line in done.stdout.splitlines() if len(line) > 80 and max(map(len, line.split())) < 60] == []
        return done.stdout + done.stderr

    def json(self, *argv: str, code: int = 0) -> dict[str, Any]:
        data, _ = json.JSONDecoder().raw_decode(self.run(*argv, "-o", "json", code=code))
        assert isinstance(data, dict)
        return data


SIGNED_IN = {"EMULATED_TOKEN": TOKEN, **CREDENTIALS}


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    base = tmp_path_factory.mktemp("user")
    made = Desk(folder=base / "work", home=base / "home")
    for folder in (made.folder, made.home, base / "doubles"):
        folder.mkdir()
    write_trees(made.folder)
    assert "Next: edit inventory/example/fleet.yaml" in made.run("init")
    estate = Estate(regions={"eastus2": 100, "westus3": 60}, scale_sets={"pool-a": 3})
    with moto_server(base / "doubles") as aws, arm_double(estate, base / "doubles") as arm:
        run_instances(aws, "us-east-1", 30, tags={"Name": "chat", "team": "red", "CostCenter": "42", "workload": "chat"})
        run_instances(aws, "eu-west-1", 10, tags={"Name": "embed", "owner": "blue"})
        run_instances(aws, "us-east-1", 5, type_="m5.large")
        file = made.folder / "inventory/example/fleet.yaml"
        sources = (
            f"sources:\n  prod:\n    kind: azure\n    settings: {{subscriptions: {SUBSCRIPTION}, endpoint: '{arm.url}', "
            f"ca_file: '{arm.ca_file}'}}\n    secrets: {{token: {{kind: env, name: EMULATED_TOKEN}}}}\n"
            f"  main:\n    kind: aws\n    settings: {{endpoint: '{aws}', regions: us-east-1 eu-west-1}}\n"
            "  people:\n    kind: table\n    settings: {files: people.csv}\n"
        )
        assert "sources: {}\n" in file.read_text()
        file.write_text(file.read_text().replace("sources: {}\n", sources))
        (made.folder / "people.csv").write_text("workload,owner,autoscaler\nassistant,ada,KEDA assistant\n")
        said = made.run("inventory", "scan", code=4)
        assert "error[credentials." in said
        assert "people.csv" in said
        assert "0 gaps" in made.run("inventory", "scan", more=SIGNED_IN)
        yield made


def test_two_hundred_machines_are_there_with_where_each_fact_comes_from(desk: Desk) -> None:
    machines = desk.json("inventory", "list", "--what", "machines")["items"]
    gpus = [m for m in machines if m["values"].get("gpus") and m["source"].startswith(("azure", "aws"))]
    assert len(gpus) == 160 + 3 + 40
    assert "USD an hour at list prices" in " ".join(desk.run("inventory").split())
    pools = desk.run("inventory", "list", "--what", "pools")
    assert pools.splitlines()[1].startswith("eastus2")
    assert "p4d.24xlarge" in pools
    assert desk.run("inventory", "list", "--what", "workloads").splitlines()[1].startswith("assistant")
    shown = desk.run("inventory", "show", "assistant-eastus2")
    assert "(table people/people.csv)" in shown
    assert "Conflict: owner: team-assist" in " ".join(shown.split())
    one = desk.run("inventory", "show", "gpu-westus3-7")
    assert f"azure prod/{SUBSCRIPTION}/westus3" in " ".join(one.split())
    rows = list(csv.DictReader(io.StringIO(desk.run("inventory", "export", "-o", "csv", "--what", "machines"))))
    assert sum(row["sku"] == "p4d.24xlarge" for row in rows) == 40
    assert "+203 machine" in desk.run("inventory", "diff")


@pytest.mark.parametrize("name", list(ROUTES))
def test_each_tree_gets_the_verdict_that_a_reader_would_give(desk: Desk, name: str) -> None:
    said = desk.run("assess", name)
    assert f"Route of {name} to gfx942: {ROUTES[name]}" in said
    found = desk.json("assess", name)
    assert found["route"] == ROUTES[name]
    assert all(f["evidence"] and f["as_of"] for f in found["findings"])
    rules = {f["rule"] for f in found["findings"]}
    assert (
        rules
        >= {
            "ragged": {"R038", "R040", "R042", "R043", "R035", "R053", "R060", "P001"},
            "service": {"P034", "P035", "R008", "R013", "R014", "R084"},
            "llama-70b": {"R009", "R018", "R022", "R025", "R066"},
        }[name]
    )
    if name == "ragged":
        assert {f["rule"] for f in found["blocking"]} == {"R038", "R040"}
        assert "! Blocking" in said


def test_every_other_form_can_be_read_by_its_readers(desk: Desk) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    sarif = json.loads(desk.run("assess", "ragged", "-o", "sarif"))
    jsonschema.validate(sarif, SARIF_SHAPE)
    place = next(r for r in sarif["runs"][0]["results"] if r["ruleId"] == "R038")["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "csrc/reduce.cuh"}, "region": {"startLine": 9}}
    assert "R038\n" in desk.run("assess", "ragged", "-o", "name")
    assert "ZLUDA cannot run on gfx942" in desk.run("assess", "llama-70b", "-o", "wide")


@pytest.fixture(scope="module")
def report(desk: Desk) -> Path:
    """Return the fleet's report, with the three trees kept as the verdicts of its three workloads."""
    for tree, workload in (("service", "assistant"), ("llama-70b", "code-complete"), ("ragged", "summaries")):
        desk.run("assess", tree, "--save", workload)
    desk.run("assess", "-o", "html", "--out", "report.html")
    return desk.folder / "report.html"


def test_the_fleet_says_how_many_and_how_much_money_and_the_plan_takes_it(desk: Desk, report: Path) -> None:
    totals = {t["route"]: t["workloads"] for t in desk.json("assess")["totals"]}
    assert totals == {"native": 1, "rebuild": 1, "stay": 1}
    assert "stay     1 workload, 32.77 USD an hour" in desk.run("assess")
    outcomes = {o["workload"]: o for o in desk.json("plan")["outcomes"]}
    assert outcomes["summaries"]["reason"]["code"].startswith("assess.")
    assert outcomes["assistant"]["kind"] == "move"
    runs = json.loads(desk.run("assess", "-o", "sarif"))["runs"]
    assert {r["automationDetails"]["id"] for r in runs} == {f"fleetctl/{w}/" for w in ("assistant", "code-complete", "summaries")}


@pytest.mark.skipif(CHROMIUM is None, reason="no browser is installed (Debian: chromium)")
@pytest.mark.parametrize("width", [1280, 420], ids=["desktop", "narrow"])
def test_the_report_in_a_real_browser(desk: Desk, report: Path, width: int) -> None:
    picture = desk.folder / f"report-{width}.png"
    argv = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={desk.home / 'browser'}"]
    subprocess.run(
        [*argv, f"--window-size={width},520", f"--screenshot={picture}", report.as_uri()],
        check=True,
        capture_output=True,
        timeout=120,
        env={**os.environ, "HOME": str(desk.home)},
    )
    rows = pixels(picture)
    seen = {colour for row in rows for colour in row}
    assert (len(rows[0]), len(rows)) == (width, 520)
    assert {(246, 247, 249), (255, 255, 255), (31, 146, 84), (213, 52, 59)} <= seen, (
        "page, card, and the bar's green and red: the style applies"
    )
    edge = {row[-1] for row in rows}
    assert edge == {(246, 247, 249)}, "nothing runs over the right edge"
