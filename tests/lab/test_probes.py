"""Probes: tools that are not there, that refuse, hang or die; the sandbox's walls; the real tools where they are installed."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

from fleetctl.adapters.probes import HipProbe, TritonProbe
from fleetctl.adapters.probes.sandbox import Limits, run
from fleetctl.adapters.probes.triton import cut_out
from fleetctl.catalog.portability import load_rule_book
from tests.lab.lab_tools import until

pytestmark = pytest.mark.lab
NAMES = load_rule_book().names
KERNEL = "#include <cuda_runtime.h>\n__global__ void k(float *v) { v[threadIdx.x] = 1.0f; }\n"
TRITON = """\
import os
import triton
import triton.language as tl

os.system("touch pwned")
SIZE = 64

@triton.autotune(configs=[os.system("touch pwned")], key=["n"])
@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK_SIZE: tl.constexpr = os.getpid()):
    at = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = at < n
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=mask) + tl.load(y_ptr + at, mask=mask), mask=mask)
"""


def tool(folder: Path, body: str) -> str:
    path = folder / "tool"
    path.write_text(f"#!{sys.executable}\nimport os, sys, time\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def outcome(folder: Path, body: str, **limits: float) -> tuple[str, str]:
    bounds = Limits(cpu_s=int(limits.get("cpu_s", 20)), wall_s=limits.get("wall_s", 60.0), memory=2**30)
    probe = HipProbe(NAMES, tools={"hipcc": tool(folder, body), "hipify-perl": ""}, limits=bounds)
    result = probe.probe(folder, "k.cu", KERNEL, "gfx942")
    return result.outcome, result.detail


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "k.cu").write_text(KERNEL)
    return tmp_path


def test_a_compiler_that_accepts(folder: Path) -> None:
    body = "text = open('input.hip').read(); sys.exit(0 if 'hip/hip_runtime.h' in text and '--offload-arch=gfx942' in sys.argv else 1)"
    assert outcome(folder, body)[0] == "passed"


def test_a_compiler_that_refuses(folder: Path) -> None:
    body = "sys.stderr.write('input.hip:2:1: error: use of undeclared \\x1b[2J umin\\n'); sys.exit(1)"
    assert outcome(folder, body) == ("failed", "input.hip:2:1: error: use of undeclared ?[2J umin")


@pytest.mark.parametrize("translator", ["hipify-perl", "hipify-clang"])
def test_what_a_translator_wrote_is_compiled_and_one_that_fails_is_done_without(folder: Path, translator: str) -> None:
    compiler = tool(folder, "sys.exit(0 if '// by ' in open('input.hip').read() else 1)")
    into = "sys.stdout" if translator == "hipify-perl" else "open(sys.argv[sys.argv.index('-o') + 1], 'w')"
    (folder / "bin").mkdir()
    for body, expected in ((f"{into}.write('// by {translator}\\n')", "passed"), ("sys.exit(3)", "failed")):
        tools = {"hipcc": compiler, translator: tool(folder / "bin", body)}
        result = HipProbe(NAMES, tools=tools).probe(folder, "k.cu", KERNEL, "gfx942")
        assert result.outcome == expected or (shutil.which("hipify-perl") and translator == "hipify-clang")


@pytest.mark.parametrize(("header", "expected"), [("cuda/barrier", "failed"), ("my/own.h", "unknown")])
def test_a_missing_header_is_judged_by_whose_it_is(folder: Path, header: str, expected: str) -> None:
    body = f"sys.stderr.write(\"input.hip:1:1: fatal error: '{header}' file not found\\n\"); sys.exit(1)"
    assert outcome(folder, body)[0] == expected


def test_a_compiler_that_hangs_is_stopped_with_its_children(folder: Path) -> None:
    body = "pid = os.fork()\nwhile True: time.sleep(60)"
    assert outcome(folder, body, wall_s=1.5)[0] == "unknown"


@pytest.mark.parametrize("body", ["os.kill(os.getpid(), 9)", "x = bytearray(4 << 30)", "while True: pass"])
def test_a_compiler_that_dies_or_takes_too_much(folder: Path, body: str) -> None:
    assert outcome(folder, body, cpu_s=1)[0] in {"unknown", "failed"}


def test_what_is_missing_is_said_with_the_command() -> None:
    assert "apt-get install" in HipProbe(NAMES, tools={"hipcc": ""}).missing() or shutil.which("hipcc")
    assert TritonProbe().missing() == "" or "pip install triton" in TritonProbe().missing()


def test_the_sandbox_has_no_network_and_one_writable_folder(tmp_path: Path) -> None:
    scratch, secret = tmp_path / "scratch", tmp_path / "secret"
    scratch.mkdir()
    secret.write_text("s3cret")
    script = (
        "import os, socket\n"
        "def tries(f):\n"
        "    try: return f() and 'yes' or 'yes'\n"
        "    except OSError as e: return type(e).__name__\n"
        f"print(tries(lambda: open({str(secret)!r}).read()), tries(lambda: open({str(secret)!r}, 'w')), tries(lambda: open('x', 'w')),\n"
        "      tries(lambda: socket.create_connection(('127.0.0.1', 9), 2)), os.environ.get('SECRET'))\n"
    )
    os.environ["SECRET"] = "x"
    try:
        ended = run([sys.executable, "-c", script], scratch=scratch, readable=[], limits=Limits(), env={})
    finally:
        del os.environ["SECRET"]
    read, write, own, net, inherited = ended.out.split()
    assert (own, inherited) == ("yes", "None")
    assert net != "yes"
    assert (read, write) in {("PermissionError", "PermissionError"), ("yes", "yes")}, "all of Landlock, or a kernel without it"
    assert secret.read_text() == "s3cret" or write == "yes"


def test_nothing_outlives_its_probe(tmp_path: Path) -> None:
    """A child that leaves its session and its parent, and one that is still busy when time is over."""
    script = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    os.fork()\n    open('seen', 'a').write('.')\n    time.sleep(600)\n"
    script += "time.sleep({})"
    for parent, code in (("0.5", 0), ("600", None)):
        scratch = tmp_path / f"scratch-{parent}"
        scratch.mkdir()
        mark = f"outlives-{os.getpid()}-{parent}"
        argv = [sys.executable, "-c", script.format(parent), mark]
        assert run(argv, scratch=scratch, readable=[], limits=Limits(wall_s=4.0), env={}).code == code
        assert (scratch / "seen").exists()
        if _has_own_processes():
            until(partial(_ended, mark), "they have ended", 20.0)


def _ended(mark: str) -> bool:
    return not _running(mark)


def _has_own_processes() -> bool:
    import ctypes

    child = os.fork()
    if child == 0:
        libc = ctypes.CDLL(None)
        os._exit(int(libc.unshare(0x20000000) != 0 and libc.unshare(0x30000000) != 0))
    return os.waitpid(child, 0)[1] == 0


def _running(mark: str) -> list[str]:
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                found += [process.name] if mark.encode() in (process / "cmdline").read_bytes() else []
            except OSError:
                continue
    return found


@pytest.mark.parametrize(
    ("body", "code"), [("import sys; sys.exit(7)", 7), ("import os; os.kill(os.getpid(), 11)", -11), ("import os; os.abort()", -6), ("", 0)]
)
def test_how_a_tool_ended_is_known(tmp_path: Path, body: str, code: int) -> None:
    ended = run([sys.executable, "-c", body], scratch=tmp_path, readable=[], limits=Limits(wall_s=60), env={})
    assert ended.code == code


def test_kernels_are_cut_out_and_nothing_else_is_kept() -> None:
    text, kernels = cut_out(TRITON)
    assert "os." not in text
    assert "SIZE = 64" in text
    assert kernels == {"add": [("x_ptr", False), ("y_ptr", False), ("out_ptr", False), ("n", False), ("BLOCK_SIZE", True)]}


@pytest.mark.slow
def test_the_triton_wheel_compiles_for_the_target(tmp_path: Path) -> None:
    python = os.environ.get("FLEETCTL_TRITON_PYTHON", "")
    if not python and find_spec("triton") is None:
        pytest.skip("triton is not installed: pip install triton")
    result = TritonProbe(python).probe(tmp_path, "add.py", TRITON, "gfx942")
    assert result.outcome == "passed", result.detail
    assert not list(tmp_path.rglob("pwned"))


@pytest.mark.slow
def test_hipcc_compiles_for_the_target(tmp_path: Path) -> None:
    if shutil.which("hipcc") is None:
        pytest.skip("hipcc is not installed: apt-get install hipcc hipify-perl (Debian 13)")
    probe = HipProbe(NAMES)
    assert probe.probe(tmp_path, "k.cu", KERNEL, "gfx942").outcome == "passed"
    bad = "__global__ void k(cudaTextureObject_t t, float *v) { v[0] = tex2D<float>(t, 0, 0); }\n#include <cuda_runtime.h>\n"
    assert probe.probe(tmp_path, "b.cu", "#include <cuda_runtime.h>\n" + bad, "gfx942").outcome == "failed"
