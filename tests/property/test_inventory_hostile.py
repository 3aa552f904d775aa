"""A corpus of hostile names, from what each source says to every form in which the inventory comes out: letters everywhere, obeyed nowhere.

Azure's names and a real ansible-playbook are tried in tests/lab/test_inventory_cli.py with the same corpus.
"""

from __future__ import annotations

import csv
import io
import json
import random
import re
import unicodedata
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetctl.cli.commands.inventory import WHAT
from fleetctl.cli.main import main
from tests.cases.hostile_text import CANARY, HOSTILE
from tests.fakes.json_double import json_double

SEED = 20261130
# fmt: off
PIECES = [
    "{{", "}}", "{%", "%}", "{#", "$(", "`", ";", "|", "&&", "=", "+", "-", "@", '"', "'", "<b>", "</td>", "<script>", "\\", "!unsafe",
    "__ansible_unsafe", "...", ": ", "#", "&a", "*a", "${", "%{", "../",
    "é", "😀", "＝", "1e5", "null", "~", "\t", "\r\n", "\x1b[2J", "\x00",
    "\u202e", "\u2028", "---\n", " ",
]
# fmt: on
COUNT = 30


def corpus() -> list[str]:
    """Return the written corpus, and random mixtures of what the languages around us take for syntax."""
    chance = random.Random(SEED)
    mixed = ["".join(chance.choice(PIECES) for _ in range(chance.randint(1, 9))) for _ in range(COUNT)]
    return [text.encode("utf-8", "replace").decode() for text in (*HOSTILE.values(), *mixed)]


NAMES = corpus()


def exposition(text: str) -> str:
    """Return a text as the value of a label in Prometheus' text format."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", " ").replace("\u2028", " ").replace("\x00", "")


def engine_answers() -> dict[str, Any]:
    models = [{"id": NAMES[0], "root": NAMES[0]}, *({"id": n, "parent": NAMES[0]} for n in NAMES)]
    page = f'vllm:num_requests_running{{model_name="{exposition(NAMES[0])}"}} 1\n'
    return {"/metrics": page, "/v1/models": {"data": models}, "/version": {"version": NAMES[1]}}


def prometheus_answer() -> dict[str, Any]:
    series = [{"metric": {"instance": n, "model_name": n, "Hostname": n}, "value": [0, "0.5"]} for n in NAMES]
    return {"/api/v1/query": {"status": "success", "data": {"resultType": "vector", "result": series}}}


def cluster_answers() -> dict[str, Any]:
    gpu = {"name": "c", "image": "vllm/vllm-openai:v0.11.0", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    nodes, pods, deployments, services = [], [], [], []
    for text in NAMES:
        labels = {"team": text, "app": text, "cost-center": text, "tenant": text, "node.kubernetes.io/instance-type": text}
        meta = {"name": text, "namespace": text, "labels": labels, "annotations": {"argocd.argoproj.io/tracking-id": text}}
        nodes.append({"metadata": meta, "spec": {"providerID": text}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}})
        owner = [{"kind": text, "name": text, "controller": True}]
        pods.append({"metadata": {**meta, "ownerReferences": owner}, "spec": {"nodeName": text, "containers": [gpu]}})
        deployments.append({"metadata": meta, "spec": {"replicas": 1, "template": {"spec": {"containers": [gpu]}}}})
        model = {"modelFormat": {"name": text}, "storageUri": text}
        services.append({"metadata": meta, "spec": {"predictor": {"model": model}}})
    return {
        "/api/v1/nodes": {"items": nodes},
        "/api/v1/pods": {"items": pods},
        "/apis/apps/v1/deployments": {"items": deployments},
        "/apis/apps/v1/statefulsets": {"items": []},
        "/apis/autoscaling/v2/horizontalpodautoscalers": {"items": []},
        "/apis/serving.kserve.io/v1beta1/inferenceservices": {"items": services},
    }


def write_tables(folder: Path) -> None:
    fields = ("owner", "cost_centre", "tenant", "data_class", "notes")
    machines = {
        f"{n} {text}": {"address": "10.0.0.1", "gpus": 8, "sku": text, "region": text} | dict.fromkeys(fields, text)
        for n, text in enumerate(NAMES)
    }
    tree = {"machine": machines, "cell": {"assistant-eastus2": dict.fromkeys(fields, NAMES[0])}}
    (folder / "t.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    with (folder / "t.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["workload", "owner", "autoscaler"])
        writer.writerows([["assistant", NAMES[2], NAMES[3]], *([text, text, text] for text in NAMES if "\x00" not in text)])


def write_kubeconfig(path: Path, url: str) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    config |= {"clusters": [{"name": "c", "cluster": {"server": url}}], "users": [{"name": "u", "user": {"token": "emulated"}}]}
    path.write_text(json.dumps(config))


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("kubernetes", reason="the client for Kubernetes is not installed: pip install 'fleetctl[kubernetes]'")
    folder = tmp_path_factory.mktemp("hostile")
    assert main(["-C", str(folder), "init"]) == 0
    write_tables(folder)
    with json_double(engine_answers()) as engine, json_double(prometheus_answer()) as meter, json_double(cluster_answers()) as cluster:
        write_kubeconfig(folder / "kubeconfig", cluster.url)
        sources = {
            "servers": {"kind": "engines", "settings": {"urls": engine.url}},
            "site": {"kind": "prometheus", "settings": {"url": meter.url}},
            "c1": {"kind": "kubernetes", "settings": {"kubeconfig": str(folder / "kubeconfig")}},
            "people": {"kind": "table", "settings": {"files": "t.yaml t.csv"}},
        }
        file = folder / "inventory/example/fleet.yaml"
        file.write_text(file.read_text().replace("sources: {}\n", f"sources: {json.dumps(sources)}\n"))
        assert main(["-C", str(folder), "inventory", "scan", "--from", str(folder / "t.csv")]) == 0
        assert main(["-C", str(folder), "inventory", "scan"]) == 0
    return folder


def said(workspace: Path, capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    capsys.readouterr()
    assert main(["-C", str(workspace), "inventory", *argv]) == 0, argv
    out, err = capsys.readouterr()
    letters(err)
    return out


def letters(text: str) -> None:
    """Nothing in a text drives a terminal, turns its direction, or begins a line that nobody wrote."""
    bad = {c for c in text if c != "\n" and unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}}
    assert bad == set()


@pytest.mark.parametrize("form", ["table", "wide", "name"])
def test_tables_hold_letters_alone(workspace: Path, capsys: pytest.CaptureFixture[str], form: str) -> None:
    for what in WHAT:
        text = said(workspace, capsys, "list", "--what", what, "-o", form)
        letters(text)
        assert "Traceback" not in text
    if form == "table":
        letters(said(workspace, capsys, "diff"))
        machines = json.loads(said(workspace, capsys, "list", "--what", "machines", "-o", "json"))["items"]
        for name in ("assistant-eastus2", *(m["id"] for m in machines[::12])):
            letters(said(workspace, capsys, "show", "--", name))


def test_json_and_yaml_say_the_same(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen = set()
    for what in WHAT:
        texts = [said(workspace, capsys, "list", "--what", what, "-o", form) for form in ("json", "yaml")]
        plain, other = (re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "moment", text) for text in texts)  # when the fleet file was read
        data = json.loads(plain)
        assert yaml.safe_load(other) == data
        seen |= (
            {str(v) for i in data.get("items", []) for v in i.get("values", {}).values()} if what in ("machines", "deployments") else set()
        )
    whole = [n for n in NAMES if len(n) <= 150 and n == n.strip()]
    assert sum(n in seen for n in whole) > len(whole) // 2, "names arrive as they are, and are not thrown away"


def test_no_cell_of_csv_is_a_formula_or_breaks_its_line(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = 0
    for what in WHAT:
        text = said(workspace, capsys, "export", "-o", "csv", "--what", what)
        table = list(csv.reader(io.StringIO(text)))
        rows += len(table)
        assert {len(row) for row in table} <= {len(table[0])} if table else True
        for cell in (cell for row in table[1:] for cell in row):
            number = cell.lstrip("-").replace(".", "", 1).isdigit()
            assert number or not cell.lstrip().startswith(("=", "+", "-", "@", "\t", "\r", "|", "%", "＝")), (what, cell)
            letters(cell)
    assert rows > len(NAMES) * 3


class _Marks(yaml.SafeLoader):
    """Reads a marked mapping as Ansible does, noting that it was marked."""


def _marked(loader: _Marks, node: yaml.Node) -> dict[Hashable, Any]:
    assert isinstance(node, yaml.MappingNode)
    return {"marked": loader.construct_mapping(node, deep=True)}


_Marks.add_constructor("!unsafe", _marked)


def test_every_host_of_the_ansible_inventory_is_marked_and_every_name_is_one(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = yaml.load(said(workspace, capsys, "export", "-o", "ansible"), _Marks)
    hosts: Mapping[str, Any] = tree["all"]["hosts"]
    assert len(hosts) > len(NAMES) // 2
    assert all(set(h) == {"marked"} for h in hosts.values())
    plain = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")
    assert all(set(name) <= plain for name in (*hosts, *tree["all"].get("children", {})))
    listed = json.loads(said(workspace, capsys, "export", "-o", "ansible-list"))
    for values in listed["_meta"]["hostvars"].values():
        assert all(list(v) == ["__ansible_unsafe"] for v in values.values() if not isinstance(v, (int, float, bool, type(None))))


def test_the_script_names_nothing_that_was_found(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = said(workspace, capsys, "export", "-o", "ansible-script")
    assert script.count("\n") == 3
    assert not any(text in script for text in NAMES if len(text) > 3)
    assert not Path(CANARY).exists()
