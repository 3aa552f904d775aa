"""The source scanner: the hazard set, the compile samples, names, guards, masks, headers; comments and strings do not count."""

from __future__ import annotations

import csv
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleetctl.assess.clean_source import views
from fleetctl.assess.gather import Gatherer, gather
from fleetctl.assess.names import coverage, status_of
from fleetctl.assess.warps import narrow_masks
from fleetctl.catalog.portability import load_rule_book, shipped_names
from fleetctl.domain.plan import Finding
from fleetctl.domain.portability import USABLE, RuleBook, TextFile

CASES = Path(__file__).resolve().parents[1] / "cases"
NOW = datetime(2026, 12, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def book() -> RuleBook:
    return load_rule_book()


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def findings(book: RuleBook, target: str = "gfx942", **files: str) -> tuple[Finding, ...]:
    return gather(book, target, [TextFile(path=name.replace("_DOT_", "."), text=text) for name, text in files.items()]).findings(NOW)


def flagged(found: tuple[Finding, ...]) -> set[str]:
    return {f.rule for f in found if f.grade in {"blocker", "rework", "risk"} and f.rule != "R035"}


@pytest.mark.parametrize("row", rows(CASES / "hazards" / "expected.csv"), ids=lambda row: str(row["file"]))
def test_each_of_the_24_hazards_is_found(book: RuleBook, row: dict[str, str]) -> None:
    text = (CASES / "hazards" / row["file"]).read_text("utf-8")
    found = gather(book, "gfx942", [TextFile(path=row["file"], text=text)]).findings(NOW)
    assert row["rule"] in {f.rule for f in found}
    assert all(f.evidence and f.as_of for f in found)


def test_there_are_24_hazards() -> None:
    assert len(rows(CASES / "hazards" / "expected.csv")) == 24


@pytest.mark.parametrize("row", rows(CASES / "samples" / "fail" / "classes.csv"), ids=lambda row: str(row["file"]))
def test_what_failed_to_compile_is_flagged(book: RuleBook, row: dict[str, str]) -> None:
    text = (CASES / "samples" / "fail" / row["file"]).read_text("utf-8")
    assert flagged(gather(book, "gfx942", [TextFile(path=row["file"], text=text)]).findings(NOW))


def test_every_kind_of_compile_failure_has_a_sample() -> None:
    kinds = {row["reason_class"] for row in rows(CASES / "samples" / "fail" / "classes.csv")}
    assert kinds == {
        "host_header_clash", "missing_device_fn", "missing_header", "api_signature_or_type", "old_hip_header", "texture_hw", "other",
    }  # fmt: skip


@pytest.mark.parametrize("path", sorted((CASES / "samples" / "pass").glob("*.cu")), ids=lambda p: p.name)
def test_what_compiled_is_not_flagged(book: RuleBook, path: Path) -> None:
    assert flagged(gather(book, "gfx942", [TextFile(path=path.name, text=path.read_text("utf-8"))]).findings(NOW)) == set()


def test_every_name_of_the_table_is_classified_as_the_table_says(book: RuleBook) -> None:
    table = list(csv.DictReader(shipped_names().splitlines()))
    assert len(table) == 10_232
    wrong = [r["cuda_name"] for r in table if status_of(r["cuda_name"], book.names) != r["status"]]
    wrong += [r["cuda_name"] for r in table if (coverage(r["cuda_name"], book.names) == "covered") != (r["status"] in USABLE)]
    assert wrong == []


def test_names_in_comments_and_strings_do_not_count(book: RuleBook) -> None:
    text = (
        '// cudaLaunchKernelEx(a)\n/* asm("x") */\nconst char *s = "cudaLaunchKernelEx asm(";\n__global__ void k(float *v) { v[0] = 1; }\n'
    )
    assert flagged(findings(book, a_DOT_cu=text)) == set()


def test_a_digit_separator_and_a_raw_string_do_not_hide_code(book: RuleBook) -> None:
    text = '__device__ int n = 1\'000\'000; const char *s = R"x(" // )x"; __device__ void f() { __nanosleep(); }\n'
    assert "R037" in flagged(findings(book, a_DOT_cu=text))


def test_views_keep_line_numbers() -> None:
    source = 'int a; /* one\ntwo */ int b; // c\nconst char *s = R"(x\ny)"; int d;\n'
    seen = views(source)
    assert seen.text.count("\n") == seen.code.count("\n") == source.count("\n")
    assert "two" not in seen.code
    assert seen.code.splitlines()[3].strip().endswith("int d;")


def test_a_name_that_the_tree_defines_elsewhere_is_its_own(book: RuleBook) -> None:
    header = "inline void cudaCheckMine(int status) { if (status) throw status; }\n"
    source = "#include <cuda_runtime.h>\nvoid f(float *p) { cudaCheckMine(cudaFree(p)); }\n"
    assert "R037" not in flagged(findings(book, check_DOT_h=header, use_DOT_cu=source))
    assert "R037" in flagged(findings(book, use_DOT_cu=source))


def test_members_and_namespaces_are_not_api_calls(book: RuleBook) -> None:
    text = "#include <cuda_runtime.h>\nvoid f(S *s) { s->cudaMine(); s->x.cudaYours(); at::cudaTheirs(); ::cudaNobody(); }\n"
    assert [f.subject for f in findings(book, a_DOT_cu=text) if f.rule == "R037"] == ["cudaNobody"]


def test_a_branch_for_amd_lowers_a_finding(book: RuleBook) -> None:
    inner = '__device__ void f() { asm volatile("mov.u32 %0, 1;"); }\n'
    guarded = f"#ifdef USE_ROCM\nint a;\n#else\n{inner}#endif\n__global__ void k() {{}}\n"
    found = next(f for f in findings(book, a_DOT_cu=guarded) if f.rule == "R038")
    assert found.is_guarded
    assert (found.grade, found.least) == ("risk", "native")
    assert next(f for f in findings(book, a_DOT_cu=inner) if f.rule == "R038").grade == "blocker"


def test_a_tree_that_its_owners_build_for_amd_is_lowered_whole(book: RuleBook) -> None:
    guard = "#ifdef GGML_USE_HIP\nint a;\n#endif\n" * 6
    found = findings(book, a_DOT_h=guard, b_DOT_h=guard, c_DOT_cu='__device__ void f() { asm("x"); }\n', a_DOT_cmake="option(GGML_HIP)\n")
    assert all(f.is_guarded for f in found if f.rule in {"R035", "R038"})


def test_guards_of_copied_headers_alone_make_no_port(book: RuleBook) -> None:
    guard = "#ifdef USE_ROCM\nint a;\n#endif\n" * 9
    found = findings(book, a_DOT_h=guard, b_DOT_h=guard, c_DOT_cu='__device__ void f() { asm("x"); }\n', app_DOT_py="torch.version.hip\n")
    assert [f.is_guarded for f in found if f.rule == "R038"] == [False]


def test_headers_count(book: RuleBook) -> None:
    found = findings(book, kernels_DOT_hpp='template <class T> __device__ void f(T v) { asm volatile("x"); }\n')
    assert {"R035", "R038", "R056"} <= {f.rule for f in found}


def test_a_plain_header_says_nothing(book: RuleBook) -> None:
    assert findings(book, a_DOT_h='int f(int lane) { asm("cpuid"); return (lane >> 5) + (lane & 31); }\n') == ()


@pytest.mark.parametrize(
    ("mask", "narrow"),
    [
        ("0xffffffff", True), ("0xFFFFFFFFu", True), ("4294967295u", True), ("~0u", True), ("-1", True), ("(unsigned)0xffffffff", True),
        ("0xffffffffffffffffull", False), ("~0ull", False), ("__activemask()", False), ("mask64", False), ("MASK", True),
        ("lane_mask", True), ("0xffffffffULL", False),
    ],
)  # fmt: skip
def test_the_argument_of_a_warp_function_decides(mask: str, narrow: bool) -> None:
    code = f"#define MASK 0xffffffff\nunsigned int lane_mask = 1; uint64_t mask64 = 1;\nint x = __shfl_xor_sync({mask}, v, 1);\n"
    assert bool(list(narrow_masks(code))) is narrow


def test_wave64_and_textures_do_not_hold_everywhere(book: RuleBook) -> None:
    text = "__global__ void k(float *v) { v[threadIdx.x & 31] = __shfl_sync(0xffffffff, v[0], 0) + tex2D<float>(t, 0, 0); }\n"
    assert {"R042", "R043", "R051"} <= flagged(findings(book, a_DOT_cu=text))
    assert not {"R042", "R043", "R051"} & flagged(findings(book, "gfx1100", a_DOT_cu=text))


def test_cuda_inside_python_strings_is_read_with_its_line(book: RuleBook) -> None:
    text = 'import cupy\n\ncode = """\n__global__ void k(float *v) { asm volatile("x"); }\n"""\n'
    assert next(f for f in findings(book, a_DOT_py=text) if f.rule == "R038").where == "a.py:4"


def test_types_and_constants_without_a_twin_are_work_not_a_wall(book: RuleBook) -> None:
    found = findings(
        book, a_DOT_cpp="#include <cuda_runtime.h>\nint f() { return cudaErrorNotMapped == cudaErrorLaunchMaxDepthExceeded; }\n"
    )
    assert {f.grade for f in found if f.rule == "R036"} <= {"rework"}


def test_many_names_lose_nothing_that_closes_a_route(book: RuleBook) -> None:
    names = " ".join(f"cudaNobodyKnows{i}();" for i in range(1000))
    found = findings(book, a_DOT_cu=f"__global__ void k() {{}}\nvoid f() {{ {names} }}\n")
    assert sum(f.count for f in found if f.rule == "R037") == 1000
    assert len(found) < 420


def test_an_empty_assessment_finds_nothing(book: RuleBook) -> None:
    assert Gatherer(book, "gfx942").findings(NOW) == ()
