"""Assess, pure layer: what a Python source imports, opens, compiles and writes in assembly, by its syntax tree. Never I/O, never runs it.

Comments and docstrings do not count. A branch on AMD's platform, or a `try` that goes on without the module, lowers what is in it.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from fleetctl.assess.asm_text import AsmKind, kind_of

_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(?P<of>[\w.]{1,100})[ \t]+import[ \t]+\(?(?P<names>[^\n#]{0,300})|import[ \t]+(?P<plain>[\w., \t]{1,300}))",
    re.MULTILINE,
)
_LONG_STRING = re.compile(r'"""|\'\'\'')
AMD_TEST = re.compile(r"hip\b|rocm|is_amd|amdgpu|amdsmi|torch\.version\.cuda|is_cuda\b|gfx9|__HIP", re.IGNORECASE)
"""Words of a condition that tells AMD's platform from NVIDIA's."""
_GOES_ON = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException", "OSError", "AttributeError", "RuntimeError"})
_DEVICE = ("__global__", "__device__")
MOST_TREE = 4_000_000
"""Characters of a source whose syntax tree is made; larger ones are read by patterns."""


_IMPORTERS = frozenset(
    {
        *("import_module", "__import__", "lazy_import", "LazyLoader", "importorskip", "optional_import", "find_spec"),
        *("is_module_available", "lazy_load", "LazyImport", "try_import"),
    }
)
_LISTS = frozenset({"packages_to_install", "requirements", "pip", "pip_packages", "python_packages", "pip_requirements", "libraries"})
"""Keywords and keys whose lists are packages: Kubeflow, Airflow, Ray, Metaflow and their like."""
_SHELLS = frozenset(
    {
        *("system", "popen", "Popen", "run", "call", "check_call", "check_output", "getoutput", "run_commands", "sh"),
        *("pip_install", "uv_pip_install", "install", "apt_install", "create_subprocess_shell", "create_subprocess_exec"),
    }
)


class Import(NamedTuple):
    """One module that is imported; guarded where the program goes on without it."""

    module: str
    line: int
    guarded: bool


class TritonAsm(NamedTuple):
    """One call of Triton's inline assembly."""

    line: int
    kind: AsmKind
    said: str
    guarded: bool


@dataclass(slots=True)
class PythonFacts:
    """What a Python source holds.

    Args:
        code: the source with comments and docstrings blank, same lines; strings: first line and text of each string with CUDA source.
        commands: first line and text of what it gives to a shell or to pip; asm: its calls of Triton's inline assembly.
        guarded: line ranges with a branch for AMD or that the program goes on without, 1-based, inclusive.
    """

    code: str
    imports: list[Import] = field(default_factory=list)
    strings: list[tuple[int, str]] = field(default_factory=list)
    asm: list[TritonAsm] = field(default_factory=list)
    commands: list[tuple[int, str]] = field(default_factory=list)
    guarded: list[tuple[int, int]] = field(default_factory=list)
    soft: list[tuple[int, int]] = field(default_factory=list)

    def is_guarded(self, line: int, *, soft: bool = False) -> bool:
        """Tell whether a line has a branch for AMD, or (soft) lies in a `try` that goes on."""
        ranges = (*self.guarded, *self.soft) if soft else self.guarded
        return any(a <= line <= b for a, b in ranges)


def python_facts(text: str) -> PythonFacts:
    """Read a source by its syntax tree, or by patterns where it has none."""
    tree = parsed(text)
    if tree is None:
        return _by_patterns(text)
    facts = PythonFacts(code="")
    reader = _Reader(text, facts)
    reader.read(tree)
    facts.code = _without(text, reader.docstrings)
    return facts


def parsed(text: str) -> ast.Module | None:
    """Return the syntax tree of a source, None where it has none or is too long."""
    if len(text) > MOST_TREE:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


_ASKED = re.compile(
    r"^[ \t]*(\w{1,100})(?:[ \t]*:[^=\n]{1,100})?[ \t]*=[^\n=][^\n]{0,300}?\b(?:find_spec|is_module_available)\(", re.MULTILINE
)
"""Names that are told whether a module is there."""
_PLATFORMS = re.compile(
    r"^[ \t]*(\w{1,100})(?:[ \t]*:[^=\n]{1,100})?[ \t]*=[^\n=][^\n]{0,300}?(?:\btorch\.version\.(?:hip|cuda)\b|\bis_(?:hip|rocm)\()",
    re.MULTILINE,
)
"""Names that are told which platform it is."""


_PORTABLE = ("triton.language.extra.libdevice", "triton.language.extra.hip")


class _Reader:
    """Walks a syntax tree without recursion, with what guards each node."""

    def __init__(self, text: str, facts: PythonFacts) -> None:
        self._lines = text.split("\n")
        self._facts = facts
        self._assigned: dict[str, list[ast.expr]] = {}
        self._calls: list[tuple[ast.Call, bool]] = []
        self._asked = set(_ASKED.findall(text))
        self._platforms = set(_PLATFORMS.findall(text))
        self._importers = set(re.findall(r"\bimport_module[ \t]+as[ \t]+(\w+)", text))
        self.docstrings: list[ast.Constant] = []

    def read(self, tree: ast.Module) -> None:
        waiting: list[tuple[ast.AST, bool, bool]] = [(tree, False, False)]
        while waiting:
            node, amd, soft = waiting.pop()
            self._take(node, amd, soft)
            if isinstance(node, (ast.Constant, ast.JoinedStr)):
                continue
            waiting.extend(self._inner(node, amd, soft))
        for call, guarded in self._calls:
            self._facts.asm.append(self._asm(call, guarded))

    def _inner(self, node: ast.AST, amd: bool, soft: bool) -> Iterator[tuple[ast.AST, bool, bool]]:
        if isinstance(node, ast.If):
            plain = node.test.operand if isinstance(node.test, ast.UnaryOp) else node.test
            is_told = isinstance(plain, ast.Name) and plain.id in self._platforms
            names_amd = is_told or bool(AMD_TEST.search(self._words(node.test)))
            if names_amd:
                self._facts.guarded.append(_span(node))
            is_typing = "TYPE_CHECKING" in self._words(node.test)
            asks = self._asks(node.test)
            goes_on = not _leaves(node.orelse if asks == "there" else node.body, returns=False)
            yield node.test, amd, soft
            yield from self._body(node.body, amd or names_amd, soft or is_typing or (asks == "there" and goes_on))
            yield from self._body(node.orelse, amd or names_amd, soft or (asks == "absent" and goes_on))
        elif isinstance(node, ast.Try):
            goes_on = any(_goes_on(h) for h in node.handlers)
            if goes_on and node.body:
                self._facts.soft.append((node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno))
            if goes_on and any(isinstance(n, ast.ImportFrom) and (n.module or "").startswith(_PORTABLE) for n in node.body):
                self._facts.guarded += [_span(h) for h in node.handlers]  # what an old Triton needs
            yield from self._body(node.body, amd, soft or goes_on)
            for rest in (node.handlers, node.orelse, node.finalbody):
                for inner in rest:
                    yield inner, amd, soft
        elif isinstance(node, (ast.With, ast.AsyncWith)) and any(_suppresses(i.context_expr) for i in node.items):
            self._facts.soft.append((node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno))
            yield from self._body(node.body, amd, soft=True)
        else:
            for _, value in ast.iter_fields(node):
                if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                    yield from self._body(value, amd, soft)
                elif isinstance(value, list):
                    yield from ((v, amd, soft) for v in value if isinstance(v, ast.AST))
                elif isinstance(value, ast.AST):
                    yield value, amd, soft

    def _body(self, body: Iterable[ast.AST], amd: bool, soft: bool) -> Iterator[tuple[ast.AST, bool, bool]]:
        """Yield the statements of a body: what follows a branch on AMD's platform that leaves is guarded too."""
        statements = list(body)
        for at, node in enumerate(statements):
            yield node, amd, soft
            if isinstance(node, ast.If) and not amd and _leaves(node.body) and AMD_TEST.search(self._words(node.test)):
                amd = True
                if at + 1 < len(statements):
                    self._facts.guarded.append((_span(statements[at + 1])[0], _span(statements[-1])[1]))

    def _asks(self, test: ast.expr) -> str:
        """Return "there" or "absent" for a condition that asks whether a module can be imported, "" for any other."""
        is_not = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
        inner = test.operand if isinstance(test, ast.UnaryOp) and is_not else test
        if isinstance(inner, ast.Compare) and len(inner.ops) == 1 and isinstance(inner.comparators[0], ast.Constant):
            is_not ^= isinstance(inner.ops[0], (ast.Is, ast.Eq)) and inner.comparators[0].value is None
            inner = inner.left
        if isinstance(inner, ast.BoolOp) and isinstance(inner.op, ast.And) and not is_not:
            return "there" if any(self._asks(v) == "there" for v in inner.values) else ""
        is_asked = isinstance(inner, ast.Name) and inner.id in self._asked
        is_asked |= isinstance(inner, ast.Call) and name_of(inner.func) in {"find_spec", "is_module_available"}
        return ("absent" if is_not else "there") if is_asked else ""

    def _words(self, node: ast.expr) -> str:
        return " ".join(self._lines[node.lineno - 1 : min(node.end_lineno or node.lineno, node.lineno + 5)])[:2000]

    def _take(self, node: ast.AST, amd: bool, soft: bool) -> None:
        if isinstance(node, ast.Import):
            self._facts.imports += [Import(a.name, node.lineno, amd or soft) for a in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            self._facts.imports += [Import(f"{node.module}.{a.name}", node.lineno, amd or soft) for a in node.names]
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            self.docstrings.append(node.value)
            node.value = ast.Constant(value=None, lineno=node.lineno, col_offset=0)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    self._assigned.setdefault(target.id, []).append(node.value)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            self._assigned.setdefault(node.target.id, []).append(node.value)
        elif isinstance(node, ast.Call):
            self._call(node, amd, soft)
        elif isinstance(node, ast.Dict):
            for name, value in zip(node.keys, node.values, strict=True):
                if isinstance(name, ast.Constant) and name.value in _LISTS:
                    self._installs(value)
        elif isinstance(node, (ast.Constant, ast.JoinedStr)):
            text = _text_of(node)
            if any(word in text for word in _DEVICE):
                self._facts.strings.append((node.lineno, text))

    def _call(self, node: ast.Call, amd: bool, soft: bool) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""
        if name == "inline_asm_elementwise":
            self._calls.append((node, amd))
        elif name in _IMPORTERS | self._importers and node.args:
            first = node.args[-1] if name == "LazyLoader" else node.args[0]
            first = first.left if isinstance(first, ast.BinOp) else first
            if isinstance(first, ast.Constant) and isinstance(first.value, str) and not first.value.startswith("."):
                only_asks = amd or soft or name in {"find_spec", "importorskip", "is_module_available"}
                self._facts.imports.append(Import(first.value[:100].rstrip("."), node.lineno, only_asks))
        elif name in _SHELLS and node.args:
            self._command(name, node)
        for key in node.keywords:
            if key.arg in _LISTS:
                self._installs(key.value)

    def _installs(self, node: ast.expr) -> None:
        """Take a list of packages that a job's or an environment's description asks for."""
        items = node.elts if isinstance(node, (ast.List, ast.Tuple, ast.Set)) else node.keys if isinstance(node, ast.Dict) else ()
        for item in items[:1000]:
            if isinstance(item, ast.Constant) and isinstance(item.value, str) and item.value[:1].isalnum():
                self._facts.commands.append((item.lineno, f"pip install '{item.value[:200]}'"))

    def _command(self, name: str, node: ast.Call) -> None:
        words = [_word_of(x) for a in node.args[:50] for x in (a.elts if isinstance(a, (ast.List, ast.Tuple)) else [a])]
        if any(words):
            before = "pip install " if "install" in name and name != "apt_install" else "apt-get install " if name == "apt_install" else ""
            self._facts.commands.append((node.lineno, before + " ".join(w for w in words if w)[:4000]))

    def _asm(self, node: ast.Call, guarded: bool) -> TritonAsm:
        named = {k.arg: k.value for k in node.keywords}
        text = named.get("asm", node.args[0] if node.args else None)
        bindings = named.get("constraints", node.args[1] if len(node.args) > 1 else None)
        said = self._strings(text)
        kind = kind_of(said, self._strings(bindings))
        parts = {kind_of(part) for part in self._parts(text)}
        guarded = guarded or parts >= {"ptx", "amd"}  # one of both is chosen by the platform
        is_bare = isinstance(text, ast.Constant) and not said.strip()
        if kind == "empty" and not is_bare:
            kind = "unknown"
        return TritonAsm(node.lineno, kind, " ".join(said.split())[:60], guarded)

    def _strings(self, node: ast.expr | None) -> str:
        return " ".join(self._parts(node))[:20_000]

    def _parts(self, node: ast.expr | None) -> list[str]:
        """Return all text that an expression is made of; names are followed within the file, once."""
        if node is None:
            return []
        found: list[str] = []
        for inner in _few(ast.walk(node)):
            found.append(_text_of(inner))
            for value in self._assigned.get(inner.id, ())[:8] if isinstance(inner, ast.Name) else ():
                found += [_text_of(x) for x in _few(ast.walk(value))]
        return [f for f in found if f]


def _few(nodes: Iterator[ast.AST]) -> Iterator[ast.AST]:
    for count, node in enumerate(nodes):
        if count > 2000:
            return
        yield node


def _word_of(node: ast.AST) -> str:
    """Return a word of a command line: `sys.executable` is Python, whatever its path."""
    return "python" if isinstance(node, ast.Attribute) and node.attr == "executable" else _text_of(node)


def _text_of(node: ast.AST) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(v.value if isinstance(v, ast.Constant) and isinstance(v.value, str) else "x" for v in node.values)
    return ""


def _span(node: ast.AST) -> tuple[int, int]:
    start = int(getattr(node, "lineno", 1))
    return start, int(getattr(node, "end_lineno", None) or start)


def _goes_on(handler: ast.ExceptHandler) -> bool:
    """Tell whether a handler takes a missing module and lets the program go on."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {k.id if isinstance(k, ast.Name) else k.attr if isinstance(k, ast.Attribute) else "" for k in kinds if k is not None}
    if handler.type is not None and not names & _GOES_ON:
        return False
    return not _leaves(handler.body, returns=False)


def _suppresses(node: ast.expr) -> bool:
    """Tell whether a context takes a missing module and goes on: contextlib.suppress."""
    if not isinstance(node, ast.Call) or name_of(node.func) != "suppress":
        return False
    return any(name_of(a) in _GOES_ON for a in node.args)


def _leaves(body: Iterable[ast.stmt], *, returns: bool = True) -> bool:
    """Tell whether a body ends the program, or (returns) its function or loop."""
    for node in body:
        if isinstance(node, ast.Raise) or (returns and isinstance(node, (ast.Return, ast.Continue, ast.Break))):
            return True
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            called = node.value.func
            name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
            if name in {"exit", "_exit", "quit", "abort", "fail"}:
                return True
    return False


_TOKEN = re.compile(r"#[^\n]*|\"\"\"(?:[^\\]|\\.)*?\"\"\"|'''(?:[^\\]|\\.)*?'''|\"(?:[^\"\\\n]|\\.)*+\"?|'(?:[^'\\\n]|\\.)*+'?", re.DOTALL)


def _without(text: str, docstrings: Iterable[ast.Constant]) -> str:
    """Return the source with comments and docstrings blank; line breaks stay."""
    blank: set[int] = set()
    for node in docstrings:
        blank.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    text = _TOKEN.sub(lambda m: "" if m.group().startswith("#") else m.group(), text)
    if not blank:
        return text
    return "\n".join("" if n in blank else line for n, line in enumerate(text.split("\n"), start=1))


def _by_patterns(text: str) -> PythonFacts:
    """Read what is no Python that this interpreter knows: imports, strings and calls by their shapes."""
    code = _TOKEN.sub(lambda m: "" if m.group().startswith("#") else m.group(), text)
    facts = PythonFacts(code=code)
    line, counted = 1, 0
    for match in _IMPORT.finditer(code):
        line += code.count("\n", counted, match.start())
        counted = match.start()
        of = match.group("of")
        names = [w.split()[0] for w in re.split(r"[,()]", match.group("names") or match.group("plain") or "") if w.split()]
        if of and not of.startswith("."):
            names = [f"{of}.{n}" for n in names or ["*"]]
        facts.imports += [Import(n[:200], line, False) for n in names[:50] if not n.startswith(".") and not (of or "").startswith(".")]
    facts.strings += list(_embedded(text))
    for match in re.finditer(r"\binline_asm_elementwise\s*\(", code):
        near = code[match.end() : match.end() + 600]
        facts.asm.append(TritonAsm(code.count("\n", 0, match.start()) + 1, kind_of(near), " ".join(near.split())[:60], False))
    return facts


def _embedded(text: str) -> Iterator[tuple[int, str]]:
    if not any(word in text for word in _DEVICE):
        return
    at = counted = 0
    line = 1
    while match := _LONG_STRING.search(text, at):
        end = text.find(match.group(), match.end())
        if end < 0:
            return
        body = text[match.end() : end]
        if any(word in body for word in _DEVICE):
            line += text.count("\n", counted, match.end())
            counted = match.end()
            yield line, body
        at = end + 3


_SCRIPT = re.compile(r"^# /// script[ \t]*\n((?:#[^\n]*\n){1,500}?)# ///[ \t]*$", re.MULTILINE)


def script_metadata(text: str) -> tuple[str, int]:
    """Return the TOML that a script carries in its comments, and the line before it; "" where it carries none. Source: PEP 723."""
    found = _SCRIPT.search(text)
    if found is None:
        return "", 0
    return "\n".join(line[1:].removeprefix(" ") for line in found.group(1).splitlines()), text.count("\n", 0, found.start()) + 1


def name_of(node: ast.expr) -> str:
    """Return the last name of what is called or used, "" where it has none."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def has_triton_kernels(text: str) -> bool:
    """Tell whether a Python source defines Triton kernels."""
    return "triton" in text and re.search(r"^[ \t]*@(?:triton\.)?(?:jit|autotune)\b", text, re.MULTILINE) is not None
