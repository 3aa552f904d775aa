"""`fleetctl assess` as a user runs it: a tree, an image's name, a workload, the fleet; what it keeps, and what the planner makes of it."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleetctl.cli.main import main
from tests.cases.binaries import tar

HAZARDS = Path(__file__).resolve().parents[1] / "cases" / "hazards"
KERNEL = "#include <cuda_runtime.h>\n__global__ void k(float *v) { v[0] = 1; }\nvoid f(float **p) { cudaMalloc(p, 4); /* cudaFree */ }\n"


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one run said and how it ended."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        return self.stdout + self.stderr


def fleetctl(*argv: str) -> Result:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(list(argv))
        except SystemExit as e:
            code = e.code if isinstance(e.code, int) else 1
    return Result(exit_code=code, stdout=out.getvalue(), stderr=err.getvalue())


class Desk:
    """A workspace with the example fleet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        assert self.run("init").exit_code == 0

    def run(self, *argv: str) -> Result:
        return fleetctl("-C", str(self.folder), *argv)

    def json(self, *argv: str) -> dict[str, object]:
        result = self.run(*argv, "-o", "json")
        assert result.exit_code == 0, result.output
        data = json.loads(result.stdout)
        assert isinstance(data, dict)
        return data


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "desk")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "k.cu").write_text(KERNEL)
    return folder


def test_a_tree_needs_no_workspace(tmp_path: Path, tree: Path) -> None:
    result = fleetctl("-C", str(tmp_path), "assess", str(tree))
    assert result.exit_code == 0, result.output
    assert "hipify (open): its CUDA source can be translated" in result.stdout
    assert "wave64" in fleetctl("-C", str(tmp_path), "assess", str(tree), "-o", "wide").stdout
    assert all(len(line) <= 80 for line in result.stdout.splitlines())
    assert not (tmp_path / ".fleetctl" / "store.db").exists()


def test_every_output(desk: Desk, tree: Path) -> None:
    assert desk.json("assess", str(tree))["route"] == "hipify"
    sarif = json.loads(desk.run("assess", str(HAZARDS), "-o", "sarif").stdout)
    assert sarif["version"] == "2.1.0"
    assert {r["ruleId"] for r in sarif["runs"][0]["results"]} >= {"R038", "R051"}
    assert desk.run("assess", str(HAZARDS), "-o", "html").stdout.startswith("<!doctype html>")
    assert "R038" in desk.run("assess", str(HAZARDS), "-o", "name").stdout
    assert "EVIDENCE" in desk.run("assess", str(HAZARDS), "-o", "wide").stdout


def test_the_blocking_set_stands_under_the_table_with_its_evidence(tmp_path: Path) -> None:
    result = fleetctl("-C", str(tmp_path), "assess", str(HAZARDS))
    assert "blocker!" in result.stdout
    said = " ".join(result.stdout.split())
    assert "! Blocking: mend it, or accept it with a reason" in said
    assert "R038 01_inline_ptx.cu:" in said
    assert "evidence SCALE docs comparison.md" in said
    assert all(len(line) <= 80 for line in result.stdout.splitlines())


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("notes.md", b"x", "no source, requirements, container, model or binary file"),
        ("a.tar", b"x" * 600, "a.tar: archive: not a tar archive, or damaged"),
        ("image.tar", tar({"layer": b"x" * 2000})[:1500], "archive: cut off in a member"),
    ],
)
def test_what_holds_nothing_to_judge_gets_no_verdict(tmp_path: Path, name: str, data: bytes, why: str) -> None:
    folder = tmp_path / "subject"
    folder.mkdir()
    (folder / name).write_bytes(data)
    result = fleetctl("-C", str(tmp_path), "assess", str(folder))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "error[assess.nothing_read]" in result.stderr
    assert why in result.stderr


@pytest.mark.parametrize(
    ("argv", "exit_code", "why"),
    [
        (("registry.example.com/own:1",), 1, "error[assess.unknown_image]"),
        (("typo/kernels",), 1, "Name a path that is there"),
        (("tree/typo.cu",), 2, "error[usage.no_path]"),
        (("./typo",), 2, "error[usage.no_path]"),
        (("tree", "--target", "mi300x"), 2, "Add: --target gfx942 (MI300X)"),
        (("tree", "--target", "gfx942 --evil"), 2, "error[usage.target]"),
        *(
            (("tree", "--target", t), 2, "gfx90a, gfx90c, gfx942, gfx950, gfx1010")
            for t in ("gfx9999", "gfx94", "GFX942", "gfx942:xnack+", "")
        ),
        (("--target", "gfx9999"), 2, "error[usage.target]"),
        (("nvidia/cuda:12.4.1-devel-ubuntu22.04",), 0, "R008"),
        (("tree", "registry.example.com/own:1"), 0, "R089"),
    ],
)
def test_what_was_mistyped_gets_no_verdict(
    tmp_path: Path, tree: Path, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...], exit_code: int, why: str
) -> None:
    assert tree.parent == tmp_path
    monkeypatch.chdir(tmp_path)
    result = fleetctl("-C", str(tmp_path), "assess", *argv)
    assert (result.exit_code, bool(result.stdout)) == (exit_code, exit_code == 0)
    assert why in " ".join(result.output.split())


def test_a_part_that_could_not_be_read_is_a_risk_that_is_shown(tmp_path: Path, tree: Path) -> None:
    (tree / "vendor.tar.gz").write_bytes(b"\x1f\x8b" + b"junk" * 50)
    result = fleetctl("-C", str(tmp_path), "assess", str(tree))
    assert "R089" in result.stdout
    assert "not judged: archive: damaged" in result.stdout


def test_the_result_goes_to_a_file(desk: Desk, tree: Path, tmp_path: Path) -> None:
    assert desk.run("assess", str(tree), "-o", "html", "--out", str(tmp_path / "r.html")).exit_code == 0
    assert "<h1 " in (tmp_path / "r.html").read_text("utf-8")
    assert desk.run("assess", str(tree), "--out", str(tmp_path / "no" / "r.html")).exit_code == 2


def test_a_verdict_is_kept_and_the_planner_takes_it(desk: Desk) -> None:
    assert desk.run("plan").exit_code == 0
    result = desk.run("assess", str(HAZARDS), "--save", "summaries")
    assert result.exit_code == 0, result.output
    outcomes = {o["workload"]: o for o in json.loads(desk.run("plan", "-o", "json").stdout)["outcomes"]}
    assert outcomes["summaries"]["kind"] == "infeasible"
    assert outcomes["summaries"]["reason"]["code"].startswith("assess.R0")
    fleet = desk.json("assess")
    rows = fleet["rows"]
    assert isinstance(rows, list)
    assert {r["workload"]: (r["route"], r["kind"]) for r in rows}["summaries"] == ("stay", "found")
    assert "assess.saved" in desk.run("audit", "list").stdout


def test_waivers_are_kept_with_their_reason(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text('__global__ void k() { asm volatile("x"); }\n')
    argv = ("assess", str(tmp_path / "a.cu"), "--save", "summaries")
    assert desk.json(*argv)["route"] == "stay"
    first = desk.json(*argv, "--waive", "R038=we have a HIP kernel")
    assert first["route"] == "hipify"
    again = desk.json(*argv)
    assert again["route"] == "hipify"
    waived = again["waived"]
    assert isinstance(waived, list)
    assert [(w["rule"], w["reason"]) for w in waived] == [("R038", "we have a HIP kernel")]


def test_scale_needs_a_recorded_licence(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text('__global__ void k() { asm volatile("x"); }\n')
    assert "record the licence" in desk.run("assess", str(tmp_path / "a.cu")).stdout.replace("\n ", "")
    assert desk.run("assess", "--accept-licence", "scale=C-17").exit_code == 0
    found = desk.json("assess", str(tmp_path / "a.cu"))
    assert (found["route"], found["licence"]) == ("scale", "C-17")


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["nothing-of-that-name"], "usage.no_workload"),
        (["./nothing/here"], "usage.no_path"),
        (["summaries", "assistant"], "usage.two_workloads"),
        (["summaries", "--waive", "R038"], "usage.waiver"),
        (["summaries", "--waive", "R068=we paid"], "usage.licence_waiver"),
        (["--accept-licence", "zluda=x"], "usage.licence"),
        (["summaries", "--convert", "x"], "usage.convert"),
    ],
)
def test_mistakes_are_named(desk: Desk, argv: list[str], code: str) -> None:
    result = desk.run("assess", *argv)
    assert result.exit_code == 2
    assert f"error[{code}]" in result.output


def test_an_empty_name_is_no_folder(desk: Desk) -> None:
    for name in ("", " "):
        result = desk.run("assess", name)
        assert (result.exit_code, "error[usage.no_path]" in result.output) == (2, True)


def test_an_image_s_name_is_judged_unpulled(desk: Desk) -> None:
    found = desk.json("assess", "nvcr.io/nvidia/tritonserver:24.05-py3")
    assert found["route"] == "rebuild"


def test_a_workload_is_judged_by_what_the_fleet_file_says(desk: Desk) -> None:
    path = desk.folder / "inventory" / "example" / "fleet.yaml"
    assert desk.json("assess", "summaries")["route"] == "native"
    assert path.exists()


def test_the_exit_code_tells_on_request(desk: Desk, tree: Path) -> None:
    assert desk.run("assess", str(HAZARDS), "--detailed-exitcode").exit_code == 3
    assert desk.run("assess", str(tree), "--detailed-exitcode").exit_code == 0


def test_a_translated_tree_with_patch_and_rest(desk: Desk, tree: Path, tmp_path: Path) -> None:
    (tree / "left.cu").write_text("#include <cuda_runtime.h>\nvoid g() { cudaLaunchKernelEx(0, 0); }\n")
    out = tmp_path / "out"
    assert desk.run("assess", str(tree), "--convert", str(out)).exit_code == 0
    text = (out / "k.cu").read_text("utf-8")
    assert "#include <hip/hip_runtime.h>" in text
    assert "hipMalloc(p, 4); /* cudaFree */" in text
    assert "-#include <cuda_runtime.h>" in (out / "hipify.patch").read_text("utf-8")
    assert "left.cu:2: cudaLaunchKernelEx" in (out / "BY-HAND.md").read_text("utf-8")
    inside = desk.run("assess", str(tree), "--convert", str(tree / "hip"))
    assert (inside.exit_code, (tree / "hip").exists()) == (2, False)
    assert "lies in the tree that is read" in inside.stderr
    again = desk.run("assess", str(tree), "--convert", str(out))
    assert again.exit_code == 2
    assert "usage.folder_used" in again.output


TABLE = """\
## **1. Stream functions**

|**CUDA**|**A**|**D**|**C**|**R**|**HIP**|**A**|**D**|**C**|**R**|**U**|**E**|
|:--|:-:|:-:|:-:|:-:|:--|:-:|:-:|:-:|:-:|:-:|:-:|
|`cudaLaunchKernelEx`|11.8| | | |`hipLaunchKernelEx`|7.9.0| | | | | |
|`cudaOld`| | | | |`hipOld`|1.0.0|7.0.0| | | | |
|`cudaGone`| | | | |`hipGone`|1.0.0| | |7.0.0| | |
|`cudaTrial`| | | | |`hipTrial`|7.0.0| | | | |7.0.0|
|`cudaNothing`| | | | | | | | | | | |
|`=cmd()|evil`| | | | | | | | | | | |
"""


def test_names_are_refreshed_from_a_checkout(desk: Desk, tmp_path: Path) -> None:
    tables = tmp_path / "hipify" / "docs" / "reference" / "tables"
    tables.mkdir(parents=True)
    more = "".join(f"|`cudaMore{i}`| | | | |`hipMore{i}`|1.0.0| | | | | |\n" for i in range(10))
    (tables / "CUDA_Runtime_API_functions_supported_by_HIP.md").write_text(TABLE + more)
    (tmp_path / "a.cpp").write_text("#include <cuda_runtime.h>\nvoid g() { cudaLaunchKernelEx(0, 0); ncclCommInitAll(0, 0, 0); }\n")

    def rules() -> set[str]:
        found = desk.json("assess", str(tmp_path / "a.cpp"))["findings"]
        assert isinstance(found, list)
        return {f["rule"] for f in found}

    assert "R037" in rules()
    result = desk.run("assess", "--import-names", str(tmp_path / "hipify"))
    assert result.exit_code == 0, result.output
    assert "R037" not in rules()
    own = (desk.folder / ".fleetctl" / "catalog" / "hip_api.csv").read_text("utf-8")
    assert "runtime,function,cudaOld,hipOld,1.0.0,deprecated" in own
    assert "runtime,function,cudaGone,hipGone,1.0.0,removed" in own
    assert "runtime,function,cudaTrial,hipTrial,7.0.0,experimental" in own
    assert "cmd" not in own
    assert "ncclAllReduce" in own


def test_wide_tables_with_two_libraries_are_read(desk: Desk, tmp_path: Path) -> None:
    tables = tmp_path / "hipify"
    tables.mkdir()
    head = "|**CUDA**|**A**|**D**|**C**|**R**|**HIP**|**A**|**D**|**C**|**R**|**E**|**ROC**|**A**|**D**|**C**|**R**|**E**|\n"
    rows = "|`curandOnlyRoc`| | | | | | | | | | |`rocrand_only`|1.5.0| | | | |\n"
    rows += "".join(f"|`curandBoth{i}`| | | | |`hiprandBoth{i}`|1.5.0| | | |1.6.0|`rocrand_both`|1.5.0| | | | |\n" for i in range(10))
    (tables / "CURAND_API_supported_by_HIP_and_ROC.md").write_text(f"## **2. Host API Functions**\n\n{head}{rows}")
    (tables / "CUDNN_API_supported_by_MIOPEN.md").write_text(
        "## **2. CUDNN Functions**\n|**CUDA**|**A**|**D**|**C**|**R**|**MIOPEN**|**A**|**D**|**C**|**R**|**E**|\n"
        "|`cudnnX`| | | | |`miopenX`|2.0.0| | | | |\n"
    )
    assert desk.run("assess", "--import-names", str(tables)).exit_code == 0
    own = (desk.folder / ".fleetctl" / "catalog" / "hip_api.csv").read_text("utf-8")
    assert "curand,function,curandOnlyRoc,,,roc_only" in own
    assert "curand,function,curandBoth3,hiprandBoth3,1.5.0,experimental" in own
    assert "cudnn,function,cudnnX,miopenX,2.0.0,supported" in own


def test_a_folder_without_tables_is_refused(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = desk.run("assess", "--import-names", str(tmp_path / "empty"))
    assert result.exit_code == 2
    assert "catalog.no_tables" in result.output
