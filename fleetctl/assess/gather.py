"""Assess, pure layer: takes what was read, piece by piece, and says what was found. Never I/O, never a decision on routes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from fleetctl.assess.binaries import of_elf
from fleetctl.assess.collected import Collected, Place
from fleetctl.assess.manifests import included_by, looks_like_an_environment, looks_like_requirements, requirements
from fleetctl.assess.models import CONFIG_NAMES, of_config, of_file, of_precision
from fleetctl.assess.notebooks import cells
from fleetctl.assess.other_languages import cuda_words, is_other_language
from fleetctl.assess.python_source import PythonFacts, python_facts, script_metadata
from fleetctl.assess.requirements import PackageTable, Requirement, holds, normalised, repository_name, too_old
from fleetctl.assess.source import C_SUFFIXES, CUDA_SUFFIXES, SourceFacts, SourceScanner
from fleetctl.assess.text_rules import HIP_BUILD, TextScanner, effective, scopes_of
from fleetctl.domain.plan import Finding
from fleetctl.domain.portability import ElfFile, ImageFacts, ModelFile, PackageRule, ProbeResult, Read, RuleBook, Skipped, TextFile
from fleetctl.domain.units import Instant
from fleetctl.domain.workload import Workload

PORTED_GUARDS, PORTED_FILES = 10, 2
"""From so many places that name AMD's platform, in so many files, a tree counts as ported by its owners. Source: guard counts of public
trees: ggml 60, bitsandbytes 52, faiss 29; flashinfer, TransformerEngine, apex 0."""
CUDA_ONLY_MOVES = {"substitute": "rebuild", "rebuild": "rebuild", "stay": "stay", "hipify": "hipify", "native": "native", "drop": "native"}

_STATUS = {
    "native": "has a ROCm build",
    "native-source": "builds from source for ROCm",
    "replace": "has a replacement",
    "fork": "has an AMD fork",
    "cuda-only": "is CUDA-only",
}


_FOR_CUDA = re.compile(r"(?<![a-z])(?:cuda|nvidia|cu1)[\d.]*(?![a-z])")
_EXTRAS = re.compile(r"(?<![\w.])\.{1,2}/?\[([\w, .-]{1,200})\]|--extra[= ]([\w.-]{1,100})|--all-extras")
"""Extras of the tree's own project that something installs."""
_WORDS = re.compile(r"[A-Za-z_]\w*")
_CALLS = frozenset(
    {"inline_asm_elementwise", "__global__", "__device__", "subprocess", "system", "popen", "pip_install", "uv_pip_install", "run_commands"}
)
OPENED_BY_NAME = frozenset({"R098", "R099"})
MOST_USES = 50
"""Imports of one module that are kept: a guarded one counts for nothing beside one that is not."""


class _Use(NamedTuple):
    rule: PackageRule
    module: str
    place: Place
    guarded: bool


@dataclass(slots=True)
class Gathered:
    """Counts of what was read."""

    files: int = 0
    lines: int = 0
    cuda_files: int = 0
    kernel_headers: int = 0
    guards: int = 0
    guard_files: int = 0
    has_hip_build: bool = False
    covered: set[str] = field(default_factory=set)
    defined: set[str] = field(default_factory=set)

    @property
    def is_ported(self) -> bool:
        """Tell whether the tree's owners build it for AMD already."""
        return self.guards >= PORTED_GUARDS and (self.guard_files >= PORTED_FILES or self.has_hip_build)


class Gatherer:
    """One assessment in the making.

    Args:
        target: accelerator architecture, such as "gfx942".
    """

    def __init__(self, book: RuleBook, target: str) -> None:
        self._book, self._target = book, target
        self._source, self._text = SourceScanner(book), TextScanner(book)
        self._packages = PackageTable.of(book.packages)
        self._sources: list[SourceFacts] = []
        self._required: dict[str, Requirement] = {}
        self._maybe: dict[tuple[str, str, str], Requirement] = {}
        self._extras: set[str] = set()
        self._twins: dict[str, bool] = {}
        self._names: set[str] = set()
        self._imported: dict[tuple[str, str], list[_Use]] = {}
        self._module_words = {m.partition(".")[0] for m in self._packages.imports} | _CALLS
        self._files: set[str] = set()
        self._own_modules: set[str] = set()
        self._listed: set[str] = set()
        self._included: list[tuple[str, str, int]] = []
        self._modules_of_git: list[tuple[str, str]] = []
        self._headers: list[tuple[str, dict[str, tuple[int, bool]], bool]] = []
        self._found = Collected(book)
        self._python_base: Place | None = None
        self._elves: list[ElfFile] = []
        self.counts = Gathered()

    def add(self, read: Read) -> None:
        """Take one thing that was read."""
        if isinstance(read, Skipped):
            if read.elsewhere:
                return
            self._found.not_read(Place(read.path, 0), read.reason, hides=read.hides)
            return
        self.counts.files += 1
        if isinstance(read, TextFile):
            self._add_text(read)
        elif isinstance(read, ElfFile):
            self._elves.append(read)
        elif isinstance(read, ModelFile):
            for hit in of_file(read, self._target):
                self._found.add(hit.rule, Place(read.path, 0), hit.subject)
        else:
            self._add_image(read)

    def add_image_name(self, reference: str, where: str) -> bool:
        """Take the name of an image whose contents are not read; tell whether it says anything."""
        hits = [*self._text.scan(reference, {"image"}), *self._text.scan(reference, {"env"})]
        for hit in hits:
            self._found.add(hit.rule, Place(where, 0), hit.subject)
        return bool(hits)

    def add_workload(self, workload: Workload) -> None:
        """Take what the fleet file says of a workload: engine, precision, flags and environment."""
        where = f"workload {workload.id}"
        for hit in of_precision(workload.model.precision, self._target):
            self._found.add(hit.rule, Place(where, 0), hit.subject)
        self._require(Requirement(normalised(workload.engine), workload.engine_version, where, 0))
        for key, value in sorted(workload.serving.items()):
            if key == "image":
                self.add_image_name(value, where)
            else:
                for found in self._text.scan(f"{key}={value}", {"config", "env", "flags"}):
                    self._found.add(found.rule, Place(where, 0), found.subject)

    def add_probe(self, result: ProbeResult) -> None:
        """Take what a compiler said."""
        if result.outcome == "unknown":
            self._found.add("R091", Place(result.path, 0), f"{result.tool}: {result.detail}", subject=result.tool)
            return
        failed = "R087" if result.tool == "triton" else "R085"
        rule = "R086" if result.outcome == "passed" else failed
        self._found.add(rule, Place(result.path, 0), result.detail)

    def _add_image(self, image: ImageFacts) -> None:
        self._scan_lines(image.path, "\n".join(image.env), {"env", "docker"})
        self._scan_lines(image.path, " ".join(image.command), {"flags", "config"})
        for base in image.base:
            self.add_image_name(base, image.path)

    def _scan_lines(self, path: str, text: str, scopes: set[str]) -> None:
        for hit in self._text.scan(text, scopes):
            self._found.add(hit.rule, Place(path, hit.line), hit.subject)

    def _add_text(self, file: TextFile) -> None:
        path, lower = file.path, file.path.lower()
        name = lower.replace("!", "/").rpartition("/")[2]
        if name in {"metadata", "pkg-info"} or "var/lib/dpkg/status" in lower or "conda-meta/" in lower:
            self._requirements(path, file.text)
            return
        if file.installed:
            return
        self._files.add(lower)
        if lower.endswith((*CUDA_SUFFIXES, *C_SUFFIXES)):
            self._take(self._source.scan(path, file.text), lower)
            return
        self.counts.lines += file.text.count("\n")
        if name in CONFIG_NAMES:
            self._config(path, file.text)
        if name == ".gitmodules":
            self._modules_of_git += [(path, m) for m in re.findall(r"^[ \t]*path[ \t]*=[ \t]*(\S{1,300})", file.text, re.MULTILINE)]
        if name.endswith(".ipynb"):
            self._notebook(path, file.text)
        elif is_other_language(name):
            for line, said in cuda_words(path, file.text):
                self._found.add("R101", Place(path, line), said)
        else:
            self._settings(path, name, file.text)

    def _settings(self, path: str, name: str, text: str) -> None:
        """Take a script, a build or requirement file, or a text of settings."""
        scopes = set(scopes_of(path, text))
        is_yaml = name.endswith((".yml", ".yaml"))
        if "requirement" not in scopes and (
            (name.endswith((".txt", ".in")) and looks_like_requirements(text)) or (is_yaml and looks_like_an_environment(text))
        ):
            scopes.add("requirement")
        if not scopes:
            return
        is_hip = bool(scopes & {"build", "python"}) and HIP_BUILD.search(text) is not None
        if is_hip:
            self.counts.has_hip_build = True
            self.counts.guards += len(HIP_BUILD.findall(text))
            self.counts.guard_files += 1
        if "python" in scopes:
            self._python(path, text, scopes)
            carried, above = script_metadata(text) if "# /// script" in text else ("", 0)
            if carried:
                self._requirements(path, carried, "pyproject.toml", above)
        else:
            for hit in self._text.scan(effective(text, scopes), scopes):
                guarded = is_hip and self._book.rules[hit.rule].kind == "build"
                self._found.add(hit.rule, Place(path, hit.line), hit.subject, guarded=guarded)
        if scopes & {"requirement", "docker", "config", "build"}:
            self._requirements(path, text)
            for asked in _EXTRAS.finditer(text):
                self._extras |= {normalised(e.strip()) for e in (asked.group(1) or asked.group(2) or "*").split(",")}
        if "docker" in scopes:
            self._base(path, text)

    def _notebook(self, path: str, text: str) -> None:
        try:
            found = cells(text)
        except ValueError as e:
            self.add(Skipped(path=path, reason=f"not a notebook: {str(e)[:80]}", hides=True))
            return
        for cell in found:
            inner = f"{path}!cell{cell.number}"
            if cell.kind == "cuda":
                self._take(self._source.scan(inner, cell.text), f"{inner}.cu")
            elif cell.kind == "python":
                self._python(inner, cell.text, {"python", "env"})
            for one in requirements(f"{path}!cell{cell.number}.sh", cell.commands):
                self._require(one._replace(path=inner))
            for hit in self._text.scan(effective(cell.commands, {"config"}), {"config", "env", "flags"}):
                self._found.add(hit.rule, Place(inner, hit.line), hit.subject)

    def _take(self, facts: SourceFacts, lower: str) -> None:
        self.counts.lines += facts.lines
        if facts.guards:
            self.counts.guards += facts.guards
            self.counts.guard_files += 1
        if facts.headers:
            self._headers.append((facts.path, facts.headers, False))
        if facts.device_headers:
            self._headers.append((facts.path, facts.device_headers, True))
        if not facts.cuda and not facts.hits:
            return
        if facts.cuda:
            self.counts.cuda_files += 1
            self._found.add("R035", Place(facts.path, 1), "")
            if facts.device and not lower.endswith(CUDA_SUFFIXES):
                self._found.add("R056", Place(facts.path, 1), "")
        self.counts.covered |= facts.covered
        self.counts.defined |= facts.defined
        for hit in facts.hits:
            self._found.add(hit.rule, Place(facts.path, hit.line), hit.subject, guarded=hit.guarded)
        if facts.unsupported or facts.unknown:
            facts.covered = set()
            facts.hits = []
            self._sources.append(facts)

    def _config(self, path: str, text: str) -> None:
        try:
            hits = of_config(text, self._target)
        except ValueError as e:
            self.add(Skipped(path=path, reason=f"not JSON: {str(e)[:80]}", hides=True))
            return
        for hit in hits:
            self._found.add(hit.rule, Place(path, 0), hit.subject)

    def _requirements(self, path: str, text: str, kind: str = "", above: int = 0) -> None:
        """Take the packages that a file names.

        Args:
            kind: a name that says how it is read, where its own does not; above: lines of the file before this text.
        """
        try:
            found = requirements(kind or path.replace("!", "/"), text)
        except ValueError as e:
            self.add(Skipped(path=path, reason=f"cannot be parsed: {str(e)[:80]}", hides=True))
            return
        self._listed.add(path.lower().replace("!", "/"))
        if path.lower().endswith((".txt", ".in", ".pip")):
            self._included += [(path, name, line) for name, line in included_by(text)]
        of_own = next((self._packages.rule_for(r.name) for r in found if r.name and not r.path.endswith("#requires")), None)
        for one in found:
            if one.path.endswith("#requires"):
                if of_own is None:
                    self._require(one._replace(path=path))
            else:
                self._require(one._replace(path=path, line=one.line + above))

    def _require(self, one: Requirement) -> None:
        self._names.add(repository_name(one.name))
        if self._packages.rule_for(one.name) is not None:
            if one.extra or _FOR_CUDA.search(one.path.rpartition("/")[2].lower()):
                self._maybe.setdefault((one.name, one.path, one.extra), one)
                return
            kept = self._required.get(one.name)
            if kept is None or (one.version and not kept.version):
                self._required[one.name] = one

    def _base(self, path: str, text: str) -> None:
        for number, line in enumerate(text.splitlines(), 1):
            word = line.strip().lower()[:200]
            if word.startswith("from python:3.") and not word.startswith("from python:3.12"):
                self._python_base = Place(path, number)

    def _python(self, path: str, text: str, scopes: set[str]) -> None:
        """Take a Python source; its syntax tree is made only where a word of it matters."""
        hits = self._text.scan(text, scopes)
        if not hits and self._module_words.isdisjoint(_WORDS.findall(text)):
            return
        facts = python_facts(text)
        for hit in self._text.scan(facts.code, scopes) if hits else ():
            soft = hit.rule in OPENED_BY_NAME
            self._found.add(hit.rule, Place(path, hit.line), hit.subject, guarded=facts.is_guarded(hit.line, soft=soft))
        self._imports(path, facts)
        for line, source in facts.strings:
            self._take(self._source.scan(path, source, line), path.lower())
        for line, command in facts.commands:
            for one in requirements(f"{path}.sh", command):
                self._require(one._replace(path=path, line=line))
            for hit in self._text.scan(command, {"flags", "command"}):
                self._found.add(hit.rule, Place(path, line), hit.subject, guarded=facts.is_guarded(line))
        for asm in facts.asm:
            if asm.kind not in {"amd", "empty"}:
                self._found.add("R092", Place(path, asm.line), asm.said, guarded=asm.guarded)

    def _imports(self, path: str, facts: PythonFacts) -> None:
        for module, line, guarded in facts.imports:
            rule = self._packages.rule_of_module(module)
            if rule is not None:
                uses = self._imported.setdefault((rule.id, module.partition(".")[0]), [])
                if len(uses) < MOST_USES:
                    uses.append(_Use(rule, module, Place(path, line), guarded))

    def _finish_includes(self) -> None:
        """State the files that requirement files include and the submodules that are not among what was read."""
        for path, name, line in self._included:
            folder = path.lower().replace("!", "/").rpartition("/")[0]
            if _joined(folder, name.lower()) not in self._listed:
                self._found.not_read(Place(path, line), f"it includes {name[:100]}, which was not read as a list of packages", hides=True)
        for path, name in self._modules_of_git:
            inside = _joined(path.lower().rpartition("/")[0], name.lower()) + "/"
            if not any(f.startswith(inside) for f in self._files):
                self._found.not_read(Place(path, 0), f"submodule {name[:100]} has no files here", hides=False)
        self._included, self._modules_of_git = [], []

    def findings(self, now: Instant) -> tuple[Finding, ...]:
        """Return everything found so far, the heaviest first."""
        self._finish_names()
        self._finish_packages()
        self._finish_includes()
        for elf in self._elves:
            for hit in of_elf(elf, self._target, has_source=self.counts.cuda_files > 0):
                self._found.add(hit.rule, Place(elf.path, 0), hit.subject, subject=hit.about)
        self._elves = []
        if self._python_base is not None and "vllm" in self._names:
            self._found.add("R005", self._python_base, "python is not 3.12")
        return self._found.findings(now, target=self._target, ported=self.counts.is_ported)

    def _finish_names(self) -> None:
        own = {name.replace("!", "/").rpartition("/")[2] for name in self._files}
        for path, headers, is_other in self._headers:
            for name, (line, guarded) in sorted(headers.items()):
                if name.lower() not in own:
                    self._found.add("R108", Place(path, line), name, subject=name, guarded=guarded, lighter=is_other)
        self._headers = []
        for facts in self._sources:
            tables = (("R036", facts.unsupported), ("R037", facts.unknown))
            for rule, names in tables:
                for name, (line, count, guarded) in sorted(names.items()):
                    if name not in self.counts.defined:
                        row = self._book.names.get(name)
                        is_call = row is None or row.kind == "function"
                        place = Place(facts.path, line)
                        self._found.add(rule, place, name, subject=name, guarded=guarded, count=count, lighter=not is_call)
        self._sources = []

    def _finish_packages(self) -> None:
        done: set[str] = set()
        self._own_modules = {name.replace("!", "/") for name in self._files if name.endswith(".py")}
        optional: dict[str, Requirement] = {}
        for one in self._maybe.values():
            (optional if self._is_optional(one) else self._required).setdefault(one.name, one)
        for name, one in [*sorted(self._required.items()), *sorted((n, o) for n, o in optional.items() if n not in self._required)]:
            rule = self._packages.rule_for(name)
            if rule is not None and rule.status == "native" and "+rocm" in one.version:
                continue
            if rule is None or (name.startswith("nvidia-") and "-cu1" in name) or not holds(rule, one.version):
                continue
            if name.startswith("deb:") and rule.id in done:
                continue  # a distribution cuts one library into dozens of packages
            is_asked = name in self._required
            if is_asked:
                done.add(rule.id)
            self._package(rule, name, one.version, Place(one.path, one.line), optional=not is_asked)
        for uses in self._imported.values():
            use = min((u for u in uses if not self._is_own(u)), key=lambda u: u.guarded, default=None)
            if use is not None and use.rule.id not in done:
                self._package(use.rule, use.module.partition(".*")[0], "", use.place, guarded=use.guarded)
        self._required, self._maybe, self._imported, self._twins = {}, {}, {}, {}

    def _is_optional(self, one: Requirement) -> bool:
        """Tell whether only an extra that nothing asks for needs it, or a file for CUDA beside one for ROCm."""
        if one.extra and "*" not in self._extras and one.extra not in self._extras:
            return True
        if one.path not in self._twins:
            self._twins[one.path] = self._has_twin(one.path.lower())
        return self._twins[one.path]

    def _has_twin(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        beside = re.escape(f"{folder}/" if folder else "")
        parts = _FOR_CUDA.split(name)
        twin = re.compile(beside + r"(?:rocm|amd|hip)[\d.]*".join(re.escape(p) for p in parts))
        return len(parts) > 1 and any(twin.fullmatch(f) for f in self._files)

    def _is_own(self, use: _Use) -> bool:
        """Tell whether a module lies in the tree, where Python would find it from the file that imports it."""
        folder = use.place.path.lower().replace("!", "/")
        while folder:
            folder = folder.rpartition("/")[0]
            for inner in ("", "src/", "lib/", "python/"):
                base = f"{folder}/{inner}".lstrip("/") + use.module.partition(".")[0].lower()
                if f"{base}.py" in self._own_modules or f"{base}/__init__.py" in self._own_modules:
                    return True
        return False

    def _package(self, rule: PackageRule, name: str, version: str, place: Place, *, guarded: bool = False, optional: bool = False) -> None:
        replaced = next((r for r in rule.replaced_by if any(_matches(r, n) for n in self._names)), "")
        text = f"{name}{'==' + version if version else ''} {_STATUS.get(rule.status, 'is ' + rule.status)}: {rule.action}"
        if replaced:
            text += f" ({replaced} is there)"
        least = CUDA_ONLY_MOVES.get(rule.move, "rebuild")
        if too_old(rule, version):
            text += f"; it needs {rule.since} or newer"
        self._found.package(
            rule, place, text, name, least="native" if replaced else least, is_replaced=bool(replaced), guarded=guarded, optional=optional
        )


def _joined(folder: str, name: str) -> str:
    parts = folder.split("/") if folder else []
    for part in name.split("/"):
        if part == ".." and parts:
            parts.pop()
        elif part not in {"", "."}:
            parts.append(part)
    return "/".join(parts)


def _matches(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def gather(book: RuleBook, target: str, reads: Iterable[Read]) -> Gatherer:
    """Return a gatherer that has taken all of this."""
    gatherer = Gatherer(book, target)
    for read in reads:
        gatherer.add(read)
    return gatherer
