"""Assess, pure layer: what a setup.py lists, of packages it needs and of extras that somebody may ask for. Never runs it, never I/O."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from fleetctl.assess.python_source import name_of, parsed

_NOT_PACKAGES = frozenset(
    [
        "name",
        "version",
        "description",
        "long_description",
        "long_description_content_type",
        "url",
        "author",
        "author_email",
        "maintainer",
        "license",
        "keywords",
        "classifiers",
        "packages",
        "py_modules",
        "package_dir",
        "package_data",
        "data_files",
        "entry_points",
        "scripts",
        "ext_modules",
        "ext_package",
        "cmdclass",
        "platforms",
        "download_url",
        "project_urls",
        "namespace_packages",
        "sources",
        "include_dirs",
        "library_dirs",
        "libraries",
        "extra_compile_args",
        "extra_link_args",
        "define_macros",
        "exclude",
        "where",
        "include",
    ]
)
_NOT_LISTS = frozenset(
    [
        "print",
        "find_packages",
        "find_spec",
        "getenv",
        "get",
        "open",
        "join",
        "exists",
        "Path",
        "log",
        "warn",
        "CUDAExtension",
        "CppExtension",
        "Extension",
    ]
)
_QUOTED = re.compile(r"""["']([A-Za-z0-9][\w.-]{0,100}(?:\[[^\]]{0,100}\])?(?:\s*[=~<>!]=?\s*[\w.*+!-]{1,60})?(?:\s*@\s*\S{1,200})?)["']""")
_PACKAGE = re.compile(r"[A-Za-z0-9][\w.-]{0,100}(?:\[[\w, -]{0,100}\])?\s*(?:[=~<>!(@;]|\Z)")


IMPLIES = "extra:"
"""Begins what an extra asks for where it is another extra, "*" for all."""


class Listed(NamedTuple):
    """One package of a setup.py; `extra` is the optional extra that it belongs to, "" where it is needed in any case."""

    line: int
    text: str
    extra: str = ""


def listed_packages(text: str) -> list[Listed]:
    """Return each string of a setup.py that may name a package it needs; its own names and flags are none."""
    tree = parsed(text)
    if tree is None:
        return [Listed(text.count("\n", 0, m.start()) + 1, m.group(1)) for m in _QUOTED.finditer(text[:200_000])]
    extras, inside = _extras(tree)
    found = [Listed(line, item, extra) for extra, node in extras for line, item in _strings(node, frozenset())]
    found += [Listed(1, IMPLIES + other, extra) for extra, node in extras for other in _others(node)]
    return sorted([*found, *(Listed(line, item) for line, item in _strings(tree, inside))])


def _strings(root: ast.AST, without: frozenset[ast.AST]) -> Iterator[tuple[int, str]]:
    waiting: list[ast.AST] = [root]
    while waiting:
        node = waiting.pop()
        if node in without or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            continue
        if isinstance(node, ast.keyword) and node.arg in _NOT_PACKAGES:
            continue
        if isinstance(node, (ast.Compare, ast.Subscript, ast.JoinedStr)):
            continue
        if isinstance(node, ast.Call) and name_of(node.func) in _NOT_LISTS:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _PACKAGE.match(node.value.strip()):
            yield node.lineno, node.value.strip()[:300]
        waiting.extend(ast.iter_child_nodes(node))


def _extras(tree: ast.AST) -> tuple[list[tuple[str, ast.AST]], frozenset[ast.AST]]:
    """Return the list of each extra that the source gives by name, and the nodes that hold them.

    `extras_require={...}`, a table that is handed to it by name, and `extras["name"] = [...]` are understood; what is used elsewhere too is
    needed in any case.
    """
    tables: list[ast.AST] = []
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "extras_require":
            tables.append(node.value)
            names |= {node.value.id} if isinstance(node.value, ast.Name) else set()
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        if any(isinstance(t, ast.Name) and t.id in names for t in targets) and isinstance(node, (ast.Assign, ast.AnnAssign)):
            tables += [node.value] if node.value is not None else []
    found: list[tuple[str, ast.AST]] = []
    for table in tables:
        if isinstance(table, ast.Dict):
            found += [(_said(k), v) for k, v in zip(table.keys, table.values, strict=True)]
        elif isinstance(table, ast.Call) and name_of(table.func) == "dict":
            found += [(str(k.arg or ""), k.value) for k in table.keywords]
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Subscript):
            at = node.targets[0]
            if isinstance(at.value, ast.Name) and at.value.id in names:
                found.append((_said(at.slice), node.value))
    lists = [node for extra, node in found if extra]
    asked = _asked_for(tree, names, lists)
    named: list[tuple[str, ast.AST]] = []
    for extra, node in found:
        of, _, _ = extra.partition(":")  # a condition may follow; without a name it holds for all
        if of and extra not in asked:
            held = _only_here(tree, node)
            named += [(of.strip(), node), *([(of.strip(), held)] if held is not None else [])]
    return named, frozenset(node for _, node in named)


def _asked_for(tree: ast.AST, tables: set[str], lists: list[ast.AST]) -> set[str]:
    """Return the extras that the source takes out of their table again, but for another extra: what it needs in any case."""
    inner = {node for one in lists for node in ast.walk(one)}
    return {
        _said(node.slice)
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Load)
        and isinstance(node.value, ast.Name)
        and node.value.id in tables
        and node not in inner
    }


def _only_here(tree: ast.AST, node: ast.AST) -> ast.AST | None:
    """Return the list behind a name that is used here and nowhere else."""
    if not isinstance(node, ast.Name):
        return None
    uses = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == node.id]
    made = [n for n in ast.walk(tree) if isinstance(n, ast.Assign) and any(isinstance(t, ast.Name) and t.id == node.id for t in n.targets)]
    return made[0].value if len(uses) == 2 and len(made) == 1 else None


def _others(node: ast.AST) -> Iterator[str]:
    """Yield the other extras that a list is made of."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Subscript) and _said(inner.slice):
            yield _said(inner.slice)
        elif isinstance(inner, ast.Call) and name_of(inner.func) == "values":
            yield "*"


def _said(node: ast.AST | None) -> str:
    return node.value[:100] if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
