"""Assess, adapter layer: compile the Triton kernels of a Python file for the target with the triton wheel, without a GPU.

Never imports the file: kernels are cut out of its syntax tree, without decorators but `triton.jit` and without default values but plain
constants, and are compiled by a sandboxed child. Types of arguments are guessed, so a failure that smells of a guess is "unknown".
"""

from __future__ import annotations

import ast
import json
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from fleetctl.adapters.probes.sandbox import Ended, Limits, first_line, run
from fleetctl.assess.python_source import has_triton_kernels
from fleetctl.domain.portability import ProbeResult

INNER = Path(__file__).with_name("triton_child.py")
MOST_KERNELS = 20
_REFUSALS = (
    "CompilationError",
    "CompileTimeAssertionFailure",
    "UnsupportedLanguageConstruct",
    "RuntimeError: PassManager",
    "RuntimeError: AMD LLVM",
)
_GUESSES = ("IncompatibleType", "pointer", "constexpr", "dtype", "Cannot bitcast", "int32[", "must be a power of 2", "is not defined")


class TritonProbe:
    """Implements the port Probe with the triton wheel of this or another Python.

    Args:
        python: an interpreter that can import triton.
    """

    name = "triton"

    def __init__(self, python: str = "", limits: Limits | None = None) -> None:
        self._python = python
        self._limits = limits or Limits(cpu_s=120, wall_s=180.0, memory=16 * 2**30)

    def missing(self) -> str:
        """Return what is not installed."""
        return "" if self._python or find_spec("triton") is not None else "the triton wheel is not installed (pip install triton)"

    def wants(self, path: str, text: str) -> bool:
        """Tell whether a file defines Triton kernels."""
        return path.lower().endswith(".py") and has_triton_kernels(text)

    def probe(self, root: Path, path: str, text: str, target: str) -> ProbeResult:
        """Cut the kernels out and compile them."""
        try:
            source, kernels = cut_out(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return ProbeResult(tool="triton", path=path, outcome="unknown", detail="the file is not Python that can be parsed")
        if not kernels:
            return ProbeResult(tool="triton", path=path, outcome="unknown", detail="no kernel could be cut out")
        with tempfile.TemporaryDirectory(prefix="fl-probe-") as folder:
            scratch = Path(folder)
            (scratch / "kernels.py").write_text(source, encoding="utf-8")
            (scratch / "plan.json").write_text(
                json.dumps({"kernels": kernels, "target": target, "wave": wave_of(target)}), encoding="utf-8"
            )
            argv = [self._python or sys.executable, "-I", str(INNER)]
            readable = [INNER.parent] + ([Path(self._python).parent.parent] if self._python else [])
            env = {"TRITON_CACHE_DIR": str(scratch / "cache"), "TRITON_HOME": str(scratch)}
            ended = run(argv, scratch=scratch, readable=readable, limits=self._limits, env=env)
        return _result(path, ended)


def wave_of(target: str) -> int:
    """Return the lanes of a wavefront of the target."""
    return 64 if target.startswith("gfx9") else 32


def cut_out(text: str) -> tuple[str, dict[str, list[tuple[str, bool]]]]:
    """Return a module of the Triton functions alone, and the kernels' arguments with whether each is a compile-time constant.

    Raises:
        SyntaxError, ValueError: the text is not Python.
    """
    tree = ast.parse(text)
    parts = ["import triton", "import triton.language as tl", "from triton.language import constexpr", ""]
    kernels: dict[str, list[tuple[str, bool]]] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and _is_constant(node.value) and all(isinstance(t, ast.Name) for t in node.targets):
            parts.append(ast.unparse(node))
        if not isinstance(node, ast.FunctionDef) or not any(_is_jit(d) for d in node.decorator_list):
            continue
        node.decorator_list = [ast.parse("triton.jit", mode="eval").body]
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        for one in arguments:
            is_constant = one.annotation is not None and "constexpr" in ast.unparse(one.annotation)
            one.annotation = ast.parse("tl.constexpr", mode="eval").body if is_constant else None
        node.returns = None
        node.args.defaults = [d if _is_constant(d) else ast.Constant(None) for d in node.args.defaults]
        node.args.kw_defaults = [d if d is not None and _is_constant(d) else ast.Constant(None) for d in node.args.kw_defaults]
        parts += [ast.unparse(node), ""]
        if len(kernels) < MOST_KERNELS and not any(isinstance(n, ast.Return) and n.value is not None for n in ast.walk(node)):
            kernels[node.name] = [(a.arg, a.annotation is not None) for a in arguments]
    return "\n".join(parts) + "\n", kernels


def _is_jit(node: ast.expr) -> bool:
    word = ast.unparse(node)
    return word in {"triton.jit", "jit"} or word.startswith("triton.jit(")


def _is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float, bool, str, type(None)))


def _result(path: str, ended: Ended) -> ProbeResult:
    if ended.code is None or ended.code < 0:
        return ProbeResult(tool="triton", path=path, outcome="unknown", detail="it reached a limit of time or memory")
    try:
        said = json.loads(ended.out.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return ProbeResult(tool="triton", path=path, outcome="unknown", detail=first_line(ended.err, "Error", "error"))
    failed = {str(k): first_line(str(v)) for k, v in said.get("failed", {}).items()}
    if not failed:
        return ProbeResult(tool="triton", path=path, outcome="passed", detail=f"{len(said.get('passed', []))} kernels")
    kernel, detail = next(iter(failed.items()))
    raw = str(said["failed"][kernel])
    guessed = any(g in raw for g in _GUESSES) or not raw.startswith(_REFUSALS)
    return ProbeResult(tool="triton", path=path, outcome="unknown" if guessed else "failed", detail=f"{kernel}: {detail}"[:400])
