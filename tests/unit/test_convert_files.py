"""The translated copy and its patch, byte by byte: git and patch make of the tree exactly what the copy holds, whatever the tree holds."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from fleetctl.adapters.source_tree.reader import SourceTreeReader
from fleetctl.adapters.source_tree.writer import FolderWriter
from fleetctl.assess.convert import convert, convert_bytes, patch_of
from fleetctl.catalog.portability import load_rule_book
from fleetctl.domain.ids import WorkloadId
from fleetctl.domain.plan import Assessment
from fleetctl.errors import UsageError
from fleetctl.usecases.convert import BY_HAND_NAME, PATCH_NAME, Conversion, convert_tree
from tests.fakes.clock import FakeClock

BOOK = load_rule_book()
SOURCE = """\
#include <cuda_runtime.h>
// caf\u00e9 cudaMalloc \\
cudaMalloc goes on here
static const char *s = "cudaMalloc \\"cudaFree";
char q = '"'; void a(void **p) { cudaMalloc(p, 4); }



\f
  # include "cublas_v2.h" /* cudaFree */
auto r = u8R"x(cudaMalloc)x"; int n = 1'000'000;
int main() { return cudaDeviceSynchronize(); }"""
FORMS = {
    "unix.cu": (SOURCE + "\n").encode(),
    "no-end.cu": SOURCE.encode(),
    "dos.cu": (SOURCE + "\n").replace("\n", "\r\n").encode(),
    "mixed.cu": SOURCE.replace("\n", "\r\n", 4).encode(),
    "mac.cu": b"int a;\rint b;\r\nvoid f() { cudaFree(0); }\n",
    "latin1.cu": (SOURCE + "\n").encode("latin-1"),
    "mark.cu": b"\xef\xbb\xbf" + (SOURCE + "\n").encode(),
    "shift-jis.cu": "// \u8868\u793a\ncudaError_t e = cudaFree(0);\n".encode("shift-jis"),
    "feeds.cu": b"\x0c\x0bint a;\x1c\x85\ncudaFree(0);\n\x0c\n\xe2\x80\xa8cudaFree(0);\n",
    "trailing.cu": b"cudaFree(0); \t \n\n\n \n",
    "tabs.cuh": b"\tcudaFree(0);\n\t\t\n",
    "empty.cu": b"",
    "plain.h": b"int untouched;\r\n\x0c\xff",
    "dropped.cu": b"#include <cuda_runtime.h>\n#include <device_launch_parameters.h>\nint a;",
    "deep/er/x.cu": b"cudaFree(0);",
}
NAMES = (
    "with space.cu",
    'quote".cu',
    "tab\t.cu",
    "line\n+++ b/evil.cu",
    "back\\slash.cu",
    "bell\a\v\f\r.cu",
    "\u00e4\u8868.cu",
    "-dash.cu",
    "wow!.cu",
    "a b\n--- a/x/c.cu",
    "$(id).cu",
)


def _convert(tree: Path, out: Path) -> Conversion:
    found = Assessment(workload=WorkloadId(""), route="hipify", as_of=FakeClock().now())
    return convert_tree(tree, out, found, SourceTreeReader(), BOOK, FolderWriter())


def _write(tree: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(data)


def _applied(argv: list[str], tree: Path, to: Path) -> None:
    shutil.copytree(tree, to)
    env = {"PATH": os.environ["PATH"], "HOME": str(to.parent), "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
    done = subprocess.run(argv, cwd=to, env=env, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr + done.stdout


def _same(copy: Path, tree: Path, files: dict[str, bytes]) -> None:
    for name in files:
        assert (tree / name).read_bytes() == (copy / name).read_bytes(), name


TOOLS = {"git": ["git", "apply", "--whitespace=nowarn"], "patch": ["patch", "-p1", "--binary", "-s", "-i"]}


@pytest.mark.parametrize("tool", TOOLS)
def test_git_and_patch_make_of_the_tree_what_the_copy_holds(tool: str, tmp_path: Path) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    tree, out = tmp_path / "tree", tmp_path / "out"
    files = FORMS | dict.fromkeys(NAMES, b"void f() {\r\n  cudaFree(0);\n}")
    _write(tree, files)
    done = _convert(tree, out)
    assert (done.files, done.left_out) == (len(files), [])
    assert {str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()} == {*files, PATCH_NAME, BY_HAND_NAME}
    _applied([*TOOLS[tool], str(out / PATCH_NAME)], tree, tmp_path / "patched")
    _same(out, tmp_path / "patched", files)
    left = {str(p.relative_to(tmp_path / "patched")) for p in (tmp_path / "patched").rglob("*") if p.is_file()}
    assert left == set(files)


def test_patches_of_many_shapes_apply(tmp_path: Path) -> None:
    """Every pattern of changed and unchanged lines, with every kind of end."""
    chance = random.Random(5)
    files = {}
    for n in range(300):
        lines = chance.choices([b"cudaFree(0);", b"same();", b"", b"\x0c", b"// cudaFree"], k=chance.randrange(12))
        ends = [chance.choice([b"\n", b"\r\n"]) for _ in lines]
        data = b"".join(a + b for a, b in zip(lines, ends, strict=True))
        files[f"f{n}.cu"] = data[: -len(ends[-1])] if lines and chance.random() < 0.3 else data
    tree, out = tmp_path / "tree", tmp_path / "out"
    _write(tree, files)
    _convert(tree, out)
    for n, (tool, argv) in enumerate(TOOLS.items()):
        if shutil.which(tool) is not None:
            _applied([*argv, str(out / PATCH_NAME)], tree, tmp_path / str(n))
            _same(out, tmp_path / str(n), files)


@pytest.mark.parametrize("name", FORMS)
def test_nothing_but_names_and_headers_changes(name: str) -> None:
    data = FORMS[name]
    after, done = convert_bytes(data, BOOK.names)
    assert after.count(b"\n") == data.count(b"\n")
    back = after.replace(b"hipFree(0)", b"cudaFree(0)").replace(b"hipMalloc(p", b"cudaMalloc(p").replace(b"hipError_t", b"cudaError_t")
    back = back.replace(b"hipDeviceSynchronize", b"cudaDeviceSynchronize").replace(b"hip/hip_runtime.h", b"cuda_runtime.h")
    back = back.replace(b"hipblas/hipblas.h", b"cublas_v2.h").replace(b"hipblas.h", b"cublas_v2.h")
    if name != "dropped.cu":
        assert back == data
    assert (after == data) == (done.replaced == 0)


def test_comments_strings_and_characters_are_left_alone() -> None:
    text = convert(SOURCE, BOOK.names).text
    assert text.count("hipMalloc") == 1
    assert "cudaMalloc goes on here" in text
    assert 'u8R"x(cudaMalloc)x"' in text
    assert '"cudaMalloc \\"cudaFree"' in text
    assert "\u00e9cudaFree cudaFree\u00e9" in convert("\u00e9cudaFree cudaFree\u00e9", BOOK.names).text


@pytest.mark.parametrize("use", ["cub::DeviceReduce::Sum(t, b, d, d, n);", "using namespace cub;", "::cub :: Sum s;", "namespace q = cub;"])
def test_the_namespace_of_cub_is_listed_where_its_header_is_hipcub(use: str) -> None:
    done = convert(f"#include <cub/cub.cuh>\n// cub::x\n{use}\n", BOOK.names)
    assert done.text == f"#include <hipcub/hipcub.hpp>\n// cub::x\n{use}\n"
    assert done.by_hand == (("cub:: (its namespace is hipcub there)", 3),)


@pytest.mark.parametrize("text", ["int cub = 1;", "my::cub::f();", "hipcub::f();", "// cub::f()", 'const char *s = "cub::";'])
def test_other_words_are_not_the_namespace_of_cub(text: str) -> None:
    assert convert(f"{text}\n", BOOK.names).by_hand == ()


@pytest.mark.parametrize("include", ["#include <hip/hip_runtime.h>", '  # include "hip/hip_runtime.h"'])
def test_a_source_for_hip_is_left_alone(include: str) -> None:
    source = f"{include}\n#include <cuda_runtime.h>\nvoid f() {{ cudaFree(0); cub::f(); }}\n"
    assert convert_bytes(source.encode(), BOOK.names)[0] == source.encode()
    assert convert(source, BOOK.names).by_hand == ()


def test_a_name_cannot_write_into_the_patch() -> None:
    for name in NAMES:
        head = patch_of(name, b"a\n", b"b\n").split(b"@@")[0]
        assert head.count(b"\n") == 3
        assert [line[:4] for line in head.splitlines()] == [b"diff", b"--- ", b"+++ "]


def test_files_of_one_stem_are_all_kept(tmp_path: Path) -> None:
    files = {f"a{suffix}": b"cudaFree(0);\n" for suffix in (".cu", ".cuh", ".h", ".cpp", ".cu.h", ".CU")}
    _write(tmp_path / "tree", files | {"a.hip": b"hipFree(0);\n"})
    done = _convert(tmp_path / "tree", tmp_path / "out")
    assert (done.files, done.changed) == (6, 6)
    assert all((tmp_path / "out" / name).read_bytes() == b"hipFree(0);\n" for name in files)


def test_what_cannot_be_translated_is_listed(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    _write(tree, {"ok.cu": b"cudaFree(0);\n", "wide.cu": "cudaFree(0);\n".encode("utf-16"), "plain.cu": b"\0\1\2"})
    for n in (b"\xff", b"\xfe"):  # two names that look alike once they are shown
        Path(os.fsdecode(os.fsencode(tree) + b"/odd" + n + b".cu")).write_bytes(b"cudaFree(0);\n")
    (tree / "link.cu").symlink_to("ok.cu")
    with tarfile.open(tree / "inner.tar", "w") as tar:
        tar.add(tree / "ok.cu", "packed.cu")
    done = _convert(tree, tmp_path / "out")
    assert done.files == 1
    assert {name for name, _ in done.left_out} == {"wide.cu", "plain.cu", "odd?.cu", "link.cu", "inner.tar!packed.cu"}
    assert len(done.left_out) == 6
    text = (tmp_path / "out" / BY_HAND_NAME).read_text()
    assert all(f"    {name}: {reason}\n" in text for name, reason in done.left_out)


def test_nothing_to_translate_is_an_error_and_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_bytes(b"cudaFree(0);\n")
    with tarfile.open(tmp_path / "packed.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "k.cu", "k.cu")
    (tmp_path / "text.py").write_bytes(b"import torch\n")
    for name, word in (("packed.tar.gz", "Unpack it"), ("text.py", "Name a source tree")):
        with pytest.raises(UsageError) as failed:
            _convert(tmp_path / name, tmp_path / "out")
        assert failed.value.code == "usage.convert_nothing"
        assert word in failed.value.hint
        assert not (tmp_path / "out").exists()


def test_a_file_alone_is_translated(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_bytes(b"cudaFree(0);")
    assert _convert(tmp_path / "k.cu", tmp_path / "out").changed == 1
    assert (tmp_path / "out" / "k.cu").read_bytes() == b"hipFree(0);"


def test_a_name_that_leaves_the_folder_is_refused(tmp_path: Path) -> None:
    for name in ("../x.cu", "/tmp/x.cu", "a/../../x.cu"):
        with pytest.raises(UsageError) as failed:
            FolderWriter().write(tmp_path / "out", [(name, b"")])
        assert failed.value.code == "usage.folder"


CAST = "(const void *)"
CALLS = {
    "cudaFuncSetAttribute(k, a, 1);": f"hipFuncSetAttribute({CAST}(k), a, 1);",
    "cudaFuncSetAttribute(k<8, true>, a, size(1, 2));": f"hipFuncSetAttribute({CAST}(k<8, true>), a, size(1, 2));",
    "cudaFuncSetAttribute( &k<N>,\n  cudaFuncAttributeMaxDynamicSharedMemorySize,\n  1);": (
        f"hipFuncSetAttribute( {CAST}(&k<N>),\n  hipFuncAttributeMaxDynamicSharedMemorySize,\n  1);"
    ),
    "CHECK(cudaFuncSetAttribute (f(a, b), c, d[1, 2]));": f"CHECK(hipFuncSetAttribute ({CAST}(f(a, b)), c, d[1, 2]));",
    "cudaFuncSetCacheConfig(ns::k, cudaFuncCachePreferL1);": f"hipFuncSetCacheConfig({CAST}(ns::k), hipFuncCachePreferL1);",
    "cudaFuncGetAttributes(&x, k<1, 2>);": f"hipFuncGetAttributes(&x, {CAST}(k<1, 2>));",
    "cudaFuncSetAttribute(cudaFree, a, 1);": f"hipFuncSetAttribute({CAST}(hipFree), a, 1);",
}
LEFT = (
    "cudaFuncSetAttribute((const void *)k, a, 1);",
    "cudaFuncSetAttribute((void*)k<2, 3>, a, 1);",
    "cudaFuncSetAttribute(reinterpret_cast<const void*>(k), a, 1);",
    "cudaFuncSetAttribute(reinterpret_cast < void * >(&k), a, 1);",
    "cudaError_t cudaFuncSetAttribute(const void *func, cudaFuncAttribute a, int v);",
    "auto f = cudaFuncSetAttribute;",
    "cudaFuncSetAttribute(k);",
    "cudaFuncSetAttribute(k /* a */, b, 1);",
    'cudaFuncSetAttribute(k, "x", 1);',
    "cudaFuncSetAttribute(k, a, (1",
    "cudaFuncGetAttributes(&x, (const void *)k);",
)


@pytest.mark.parametrize("call", CALLS)
def test_a_kernel_is_given_to_hip_as_a_pointer(call: str) -> None:
    for before, after in (("", ""), ("// cudaFree\nvoid f() {\n  ", "\n  cudaFree(0); }\n")):
        done = convert(before + call + after, BOOK.names)
        assert done.text == before + CALLS[call] + after.replace("cudaFree", "hipFree")
        assert done.text.count("\n") == (before + call + after).count("\n")


@pytest.mark.parametrize("call", LEFT)
def test_what_is_a_pointer_already_or_no_call_gets_no_cast(call: str) -> None:
    assert convert(call, BOOK.names).text == call.replace("cuda", "hip")
