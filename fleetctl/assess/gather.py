"""Assess, pure layer: takes what was read, piece by piece, and says what was found. Never I/O, never a decision on routes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from fleetctl.assess.binaries import of_elf
from fleetctl.assess.collected import Collected, Place
from fleetctl.assess.models import CONFIG_NAMES, of_config, of_file, of_precision
from fleetctl.assess.python_source import embedded_cuda, imported_modules
from fleetctl.assess.requirements import PackageTable, Requirement, holds, normalised, requirements, too_old
from fleetctl.assess.source import C_SUFFIXES, CUDA_SUFFIXES, SourceFacts, SourceScanner
from fleetctl.assess.text_rules import HIP_BUILD, TextScanner, scopes_of
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
        self._names: set[str] = set()
        self._imported: dict[str, tuple[PackageRule, Place]] = {}
        self._found = Collected(book)
        self._python_base: Place | None = None
        self._elves: list[ElfFile] = []
        self.counts = Gathered()

    def add(self, read: Read) -> None:
        """Take one thing that was read."""
        if isinstance(read, Skipped):
            self._found.add("R089" if read.hides else "R088", Place(read.path, 0), read.reason, subject=read.reason)
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
            self._found.add("R088", Place(result.path, 0), f"{result.tool}: {result.detail}", subject=f"{result.tool} could not tell")
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
        name = lower.rpartition("/")[2]
        if name == "metadata":
            self._requirements(path, file.text)
            return
        if file.installed:
            return
        if lower.endswith((*CUDA_SUFFIXES, *C_SUFFIXES)):
            self._take(self._source.scan(path, file.text), lower)
            return
        scopes = scopes_of(path)
        self.counts.lines += file.text.count("\n")
        if name in CONFIG_NAMES:
            self._config(path, file.text)
        if not scopes:
            return
        if scopes & {"build", "python"} and HIP_BUILD.search(file.text):
            self.counts.has_hip_build = True
            self.counts.guards += len(HIP_BUILD.findall(file.text))
            self.counts.guard_files += 1
        for hit in self._text.scan(file.text, scopes):
            self._found.add(hit.rule, Place(path, hit.line), hit.subject)
        if scopes & {"requirement", "docker"} or name.endswith((".sh", ".bash")):
            self._requirements(path, file.text)
        if "docker" in scopes:
            self._base(path, file.text)
        if "python" in scopes:
            self._python(path, file.text)

    def _take(self, facts: SourceFacts, lower: str) -> None:
        self.counts.lines += facts.lines
        if facts.guards:
            self.counts.guards += facts.guards
            self.counts.guard_files += 1
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
            self.add(Skipped(path=path, reason=f"not JSON: {str(e)[:80]}"))
            return
        for hit in hits:
            self._found.add(hit.rule, Place(path, 0), hit.subject)

    def _requirements(self, path: str, text: str) -> None:
        try:
            found = requirements(path, text)
        except ValueError as e:
            self.add(Skipped(path=path, reason=f"cannot be parsed: {str(e)[:80]}"))
            return
        for one in found:
            self._require(one)

    def _require(self, one: Requirement) -> None:
        self._names.add(one.name)
        if self._packages.rule_for(one.name) is not None:
            kept = self._required.get(one.name)
            if kept is None or (one.version and not kept.version):
                self._required[one.name] = one

    def _base(self, path: str, text: str) -> None:
        for number, line in enumerate(text.splitlines(), 1):
            word = line.strip().lower()[:200]
            if word.startswith("from python:3.") and not word.startswith("from python:3.12"):
                self._python_base = Place(path, number)

    def _python(self, path: str, text: str) -> None:
        for module, line in imported_modules(text):
            rule = self._packages.imports.get(module) or self._packages.imports.get(module.partition(".")[0])
            if rule is not None and rule.id not in self._imported:
                self._imported[rule.id] = (rule, Place(path, line))
        for line, source in embedded_cuda(text):
            self._take(self._source.scan(path, source, line), path.lower())

    def findings(self, now: Instant) -> tuple[Finding, ...]:
        """Return everything found so far, the heaviest first."""
        self._finish_names()
        self._finish_packages()
        for elf in self._elves:
            for hit in of_elf(elf, self._target, has_source=self.counts.cuda_files > 0):
                self._found.add(hit.rule, Place(elf.path, 0), hit.subject, subject=hit.about)
        self._elves = []
        if self._python_base is not None and "vllm" in self._names:
            self._found.add("R005", self._python_base, "python is not 3.12")
        return self._found.findings(now, target=self._target, ported=self.counts.is_ported)

    def _finish_names(self) -> None:
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
        for name, one in sorted(self._required.items()):
            rule = self._packages.rule_for(name)
            if rule is None or (name.startswith("nvidia-") and "-cu1" in name) or not holds(rule, one.version):
                continue
            done.add(rule.id)
            self._package(rule, name, one.version, Place(one.path, one.line))
        for rule, place in self._imported.values():
            if rule.id not in done:
                self._package(rule, rule.imports[0], "", place)
        self._required = {}
        self._imported = {}

    def _package(self, rule: PackageRule, name: str, version: str, place: Place) -> None:
        replaced = next((r for r in rule.replaced_by if any(_matches(r, n) for n in self._names)), "")
        text = f"{name}{'==' + version if version else ''} {_STATUS.get(rule.status, 'is ' + rule.status)}: {rule.action}"
        if replaced:
            text += f" ({replaced} is there)"
        least = CUDA_ONLY_MOVES.get(rule.move, "rebuild")
        if too_old(rule, version):
            text += f"; it needs {rule.since} or newer"
        self._found.package(rule, place, text, name, least="native" if replaced else least, is_replaced=bool(replaced))


def _matches(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def gather(book: RuleBook, target: str, reads: Iterable[Read]) -> Gatherer:
    """Return a gatherer that has taken all of this."""
    gatherer = Gatherer(book, target)
    for read in reads:
        gatherer.add(read)
    return gatherer
