"""Assess, pure layer: takes what was read, piece by piece, and says what was found. Never I/O, never a decision on routes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from fleetctl.assess.binaries import of_elf
from fleetctl.assess.collected import Collected, Place, project_of
from fleetctl.assess.file_kinds import C_SUFFIXES, CUDA_SUFFIXES
from fleetctl.assess.installs import lists_of_odd_names, modules_run_by
from fleetctl.assess.manifests import included_by, looks_like_an_environment, looks_like_requirements, requirements
from fleetctl.assess.models import CONFIG_NAMES, of_config, of_file, of_precision
from fleetctl.assess.notebooks import cells
from fleetctl.assess.other_languages import cuda_words, is_other_language
from fleetctl.assess.packages import Packages
from fleetctl.assess.python_source import python_facts, script_metadata
from fleetctl.assess.requirements import PackageTable, Requirement, normalised
from fleetctl.assess.source import SourceFacts, SourceScanner
from fleetctl.assess.text_rules import COMPILES_HIP, HIP_BUILD, WHOLE_COMMENTS, TextHit, TextScanner, effective, scopes_of
from fleetctl.assess.twins import Twins
from fleetctl.domain.plan import Finding
from fleetctl.domain.portability import ElfFile, ImageFacts, ModelFile, ProbeResult, Read, RuleBook, Skipped, TextFile
from fleetctl.domain.units import Instant
from fleetctl.domain.workload import Workload

PORTED_GUARDS, PORTED_FILES = 10, 2
"""From so many places that name AMD's platform, in so many files, a tree counts as ported by its owners, if its build names HIP too.

Source: guard counts of public trees: ggml 60, bitsandbytes 52, faiss 29; flashinfer, TransformerEngine, apex 0.
"""
_WORDS = re.compile(r"[A-Za-z_]\w*")
_CALLS = frozenset(
    {"inline_asm_elementwise", "__global__", "__device__", "subprocess", "system", "popen", "pip_install", "uv_pip_install", "run_commands"}
)
OPENED_BY_NAME = frozenset({"R098", "R099"})


@dataclass(slots=True)
class _Port:
    """What of one project speaks for AMD.

    Args:
        guards: places in its sources and builds that name AMD's platform; sources: of its sources alone, with uses of HIP's headers.
        has_hip_build: a build of its names HIP, without which guards may have come with a copied header; builds: one compiles by it.
    """

    guards: int = 0
    files: int = 0
    sources: int = 0
    has_hip_build: bool = False
    builds: bool = False

    @property
    def is_ported(self) -> bool:
        many = self.guards >= PORTED_GUARDS and self.files >= PORTED_FILES and self.has_hip_build
        return many or (self.builds and self.sources > 0)


@dataclass(slots=True)
class Gathered:
    """Counts of what was read."""

    files: int = 0
    lines: int = 0
    cuda_files: int = 0
    kernel_headers: int = 0
    covered: set[str] = field(default_factory=set)
    defined: set[str] = field(default_factory=set)
    ports: dict[str, _Port] = field(default_factory=dict)

    def port_of(self, path: str) -> _Port:
        """Return what speaks for AMD in the project that a path lies in."""
        return self.ports.setdefault(project_of(path), _Port())

    def ported(self) -> frozenset[str]:
        """Return the projects whose owners build them for AMD already."""
        return frozenset(name for name, port in self.ports.items() if port.is_ported)


class Gatherer:
    """One assessment in the making.

    Args:
        target: accelerator architecture, such as "gfx942".
    """

    def __init__(self, book: RuleBook, target: str) -> None:
        self._book, self._target = book, target
        self._source, self._text = SourceScanner(book), TextScanner(book)
        table = PackageTable.of(book.packages)
        self._module_words = {m.partition(".")[0] for m in table.imports} | _CALLS
        self._found = Collected(book)
        self._packages = Packages(table, self._found)
        self._twins = Twins()
        self._sources: list[SourceFacts] = []
        self._files: set[str] = set()
        self._later: list[tuple[str, TextHit, bool]] = []
        self._listed: set[str] = set()
        self._included: list[tuple[str, str, int]] = []
        self._odd_lists: list[tuple[str, str, int]] = []
        self._modules_of_git: list[tuple[str, str]] = []
        self._headers: list[tuple[str, dict[str, tuple[int, bool]], bool]] = []
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
        self._packages.require(Requirement(normalised(workload.engine), workload.engine_version, where, 0))
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
            self._found.add(hit.rule, Place(path, hit.line), hit.subject, count=hit.times)

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
        self._twins.read(path, text, scopes)
        is_hip = bool(scopes & {"build", "python"}) and self._hip_build(path, text)
        if "python" in scopes:
            self._python(path, text, scopes)
            carried, above = script_metadata(text) if "# /// script" in text else ("", 0)
            if carried:
                self._requirements(path, carried, "pyproject.toml", above)
        else:
            for hit in self._text.scan(effective(text, scopes), scopes):
                self._later.append((path, hit, is_hip and self._book.rules[hit.rule].kind == "build"))
        if scopes & {"requirement", "docker", "config", "build"}:
            self._requirements(path, text)
        if scopes & {"docker", "config", "build"}:
            self._packages.imports(path, modules_run_by(text))
        if scopes & {"requirement", "docker", "config", "build"} or ".[" in text:
            self._packages.asks(path, text)
        if "docker" in scopes:
            self._base(path, text)

    def _hip_build(self, path: str, text: str) -> bool:
        """Count what a build says of HIP; tell whether it names HIP at all."""
        said = WHOLE_COMMENTS.sub("", text)
        named = len(HIP_BUILD.findall(said))
        if named:
            port = self.counts.port_of(path)
            port.has_hip_build |= not path.lower().endswith(".py") or path.lower().endswith("setup.py")
            port.guards += named
            port.files += 1
            port.builds = port.builds or COMPILES_HIP.search(said) is not None
        return named > 0

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
                self._packages.require(one._replace(path=inner))
            self._packages.imports(inner, modules_run_by(cell.commands))
            for hit in self._text.scan(effective(cell.commands, {"config"}), {"config", "env", "flags"}):
                self._found.add(hit.rule, Place(inner, hit.line), hit.subject)

    def _take(self, facts: SourceFacts, lower: str) -> None:
        self.counts.lines += facts.lines
        if facts.guards or facts.hip_headers:
            port = self.counts.port_of(facts.path)
            port.guards += facts.guards
            port.files += facts.guards > 0
            port.sources += facts.guards + facts.hip_headers
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
            self._found.add(hit.rule, Place(facts.path, hit.line), hit.subject, guarded=hit.guarded, count=hit.times)
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
        else:
            self._odd_lists += [(path, name, line + above) for name, line in lists_of_odd_names(text)]
        of_own = next((self._packages.rule_for(r.name) for r in found if r.name and not r.path.endswith("#requires")), None)
        for one in found:
            if one.path.endswith("#requires"):
                if of_own is None:
                    self._packages.require(one._replace(path=path))
            else:
                self._packages.require(one._replace(path=path, line=one.line + above))

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
            self._found.add(hit.rule, Place(path, hit.line), hit.subject, guarded=facts.is_guarded(hit.line, soft=soft), count=hit.times)
        self._packages.imports(path, facts.imports)
        for line, source in facts.strings:
            self._take(self._source.scan(path, source, line), path.lower())
        for line, command in facts.commands:
            for one in requirements(f"{path}.sh", command):
                self._packages.require(one._replace(path=path, line=line))
            self._packages.imports(path, ((m, line, facts.is_guarded(line)) for m, _, _ in modules_run_by(command)))
            for hit in self._text.scan(command, {"flags", "command"}):
                self._found.add(hit.rule, Place(path, line), hit.subject, guarded=facts.is_guarded(line))
        for asm in facts.asm:
            if asm.kind not in {"amd", "empty"}:
                self._found.add("R092", Place(path, asm.line), asm.said, guarded=asm.guarded)

    def _finish_includes(self) -> None:
        """State the files that requirement files include and the submodules that are not among what was read."""
        for path, name, line in self._included:
            folder = path.lower().replace("!", "/").rpartition("/")[0]
            if _joined(folder, name.lower()) not in self._listed:
                self._found.not_read(Place(path, line), f"it includes {name[:100]}, which was not read as a list of packages", hides=True)
        known = {n.rpartition("/")[2] for n in self._listed}
        for path, name, line in self._odd_lists:
            if name.lower().rpartition("/")[2] not in known:
                self._found.not_read(Place(path, line), f"it installs the list {name[:100]}, which was not read", hides=True)
        for path, name in self._modules_of_git:
            inside = _joined(path.lower().rpartition("/")[0], name.lower()) + "/"
            if not any(f.startswith(inside) for f in self._files):
                self._found.not_read(Place(path, 0), f"submodule {name[:100]} has no files here", hides=False)
        self._included, self._odd_lists, self._modules_of_git = [], [], []

    def findings(self, now: Instant) -> tuple[Finding, ...]:
        """Return everything found so far, the heaviest first."""
        self._finish_names()
        self._twins.close(self._files)
        for path, text_hit, guarded in self._later:
            place = Place(path, text_hit.line)
            self._found.add(
                text_hit.rule, place, text_hit.subject, guarded=guarded or self._twins.has(path, place.line), count=text_hit.times
            )
        self._later = []
        self._packages.finish(self._files, self._twins)
        self._finish_includes()
        for elf in self._elves:
            for hit in of_elf(elf, self._target, has_source=self.counts.cuda_files > 0):
                self._found.add(hit.rule, Place(elf.path, 0), hit.subject, subject=hit.about)
        self._elves = []
        if self._python_base is not None and "vllm" in self._packages.names:
            self._found.add("R005", self._python_base, "python is not 3.12")
        return self._found.findings(now, target=self._target, ported=self.counts.ported())

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


def _joined(folder: str, name: str) -> str:
    parts = folder.split("/") if folder else []
    for part in name.split("/"):
        if part == ".." and parts:
            parts.pop()
        elif part not in {"", "."}:
            parts.append(part)
    return "/".join(parts)


def gather(book: RuleBook, target: str, reads: Iterable[Read]) -> Gatherer:
    """Return a gatherer that has taken all of this."""
    gatherer = Gatherer(book, target)
    for read in reads:
        gatherer.add(read)
    return gatherer
