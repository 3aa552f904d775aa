"""Assess, adapter layer: in the sandboxed child: compiles kernels that were cut out of a file. Imports no fleetctl, launches nothing."""

from __future__ import annotations

import importlib.util
import json
from typing import Any


def signature(arguments: list[list[Any]]) -> tuple[dict[str, str], dict[str, int]]:
    """Guess types: names that end in ptr, or are one capital letter, are pointers to halves; constants are 64; the rest is a number."""
    types: dict[str, str] = {}
    constants: dict[str, int] = {}
    for name, is_constant in arguments:
        word = name.lower()
        if is_constant:
            types[name] = "constexpr"
            constants[name] = 64 if any(w in word for w in ("block", "size", "dim", "bm", "bn", "bk")) else 1
        elif "ptr" in word or (len(name) == 1 and (name.isupper() or name in "xyqkvo")):
            types[name] = "*fp16"
        elif any(w in word for w in ("scale", "eps", "alpha", "beta")):
            types[name] = "fp32"
        else:
            types[name] = "i32"
    return types, constants


def main() -> None:
    """Compile each kernel and print one JSON line."""
    with open("plan.json", encoding="utf-8") as stream:
        plan = json.load(stream)
    from triton.backends.compiler import GPUTarget  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from triton.compiler import ASTSource  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from triton.compiler import compile as compile_kernel

    spec = importlib.util.spec_from_file_location("kernels", "kernels.py")
    if spec is None or spec.loader is None:
        raise SystemExit(3)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    passed: list[str] = []
    failed: dict[str, str] = {}
    for name, arguments in plan["kernels"].items():
        types, constants = signature(arguments)
        try:
            source = ASTSource(fn=getattr(module, name), signature=types, constexprs=constants)
            compile_kernel(source, target=GPUTarget("hip", plan["target"], plan["wave"]))
            passed.append(name)
        except Exception as e:
            failed[name] = f"{type(e).__name__}: {e}"[:2000]
    print(json.dumps({"passed": passed, "failed": failed}))


if __name__ == "__main__":
    main()
