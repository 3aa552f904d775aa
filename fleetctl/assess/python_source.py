"""Assess, pure layer: CUDA source inside Python strings, imports, and Triton kernels. Never I/O, never runs or imports a line of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+([\w.]{1,100})[ \t]+import|import[ \t]+([\w.]{1,100}))", re.MULTILINE)
_LONG_STRING = re.compile(r'"""|\'\'\'')


def imported_modules(text: str) -> Iterator[tuple[str, int]]:
    """Yield module names that a Python source imports, with their lines."""
    line, counted = 1, 0
    for match in _IMPORT.finditer(text):
        line += text.count("\n", counted, match.start())
        counted = match.start()
        yield match.group(1) or match.group(2), line


def embedded_cuda(text: str) -> Iterator[tuple[int, str]]:
    """Yield first line and text of each long string that holds CUDA source (for a run-time compiler)."""
    if "__global__" not in text and "__device__" not in text:
        return
    at = counted = 0
    line = 1
    while match := _LONG_STRING.search(text, at):
        end = text.find(match.group(), match.end())
        if end < 0:
            return
        body = text[match.end() : end]
        if "__global__" in body or "__device__" in body:
            line += text.count("\n", counted, match.end())
            counted = match.end()
            yield line, body
        at = end + 3


def has_triton_kernels(text: str) -> bool:
    """Tell whether a Python source defines Triton kernels."""
    return "triton" in text and re.search(r"^[ \t]*@(?:triton\.)?(?:jit|autotune)\b", text, re.MULTILINE) is not None
