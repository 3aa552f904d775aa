"""Assess, pure layer: one C-like source text in, what it uses and what stands in the way out. Never I/O, never a decision on routes.

One pass finds words; a rule is tried only where one of its trigger words is, so a clean file costs next to nothing.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from fleetctl.assess.asm_text import asm_statements
from fleetctl.assess.clean_source import GUARD_WORDS, Views, guarded_lines, inside, views
from fleetctl.assess.file_kinds import CUDA_SUFFIXES
from fleetctl.assess.names import LOOKS_LIKE_CUDA, is_generic
from fleetctl.assess.warps import LANE_WORDS, dynamic_launches, narrow_masks, thirty_two_lanes
from fleetctl.domain.portability import USABLE, Rule, RuleBook

KERNEL_WORDS = frozenset(
    {
        "__global__",
        "__device__",
        "__shared__",
        "__constant__",
        "__launch_bounds__",
        "threadIdx",
        "blockIdx",
        "blockDim",
        "gridDim",
        "__syncthreads",
        "cudaStream_t",
        "cudaError_t",
    }
)
OTHERS_HEADERS = frozenset(
    {
        *("channel_descriptor.h", "device_functions.h", "device_launch_parameters.h", "driver_types.h", "helper_math.h"),
        *("library_types.h", "math_constants.h", "vector_types.h", "texture_fetch_functions.h"),
    }
)
"""Headers of the table whose names other projects use too: alone they make no CUDA source."""
DEVICE_WORDS = frozenset({"__global__", "__device__", "__shared__", "__launch_bounds__", "threadIdx", "blockIdx"})
MOST_ASM = 5000
MOST_HITS = 50
"""Places kept per rule and file, with a branch for AMD and without; more are counted only."""

_WORD = re.compile(r"[A-Za-z_]\w*")
ASM_WORDS = frozenset({"asm", "__asm__", "__asm"})
_INCLUDE = re.compile(
    r"^[ \t]*#[ \t]*(?:include|include_next|import|define[ \t]+\w{1,100})[ \t]*([<\"])([^>\"\n]{1,300})[>\"]", re.MULTILINE
)
_HEADER_IN_CODE = re.compile(r"^([ \t]*#[ \t]*(?:include|include_next|import)\b)([^\n]*)", re.MULTILINE)
_INCLUDE_WORDS = re.compile(r"cu|cooperative_groups|nv|Nv|NV|nccl|npp|optix|thrust|sm_")
LOOKS_LIKE_A_HEADER = re.compile(
    r"(?:cuda(?:_\w+|[A-Z]\w*)?|cu(?:blas|dnn|fft|rand|sparse|solver|tensor|pti)\w*|nv(?:rtc|ml|tx|vm|shmem|jpeg|cuvid|fatbin|comp|infer|JitLink|PTX)\w*"
    r"|nccl\w*|sm_\d+_\w+)\.(?:h|hpp|cuh|inl)\Z"
)
"""Names of headers that CUDA's toolkit and libraries have."""
_KNOWN_DEVICE_HEADERS = ("cub/", "thrust/", "cute/", "cutlass/", "hipcub/")
_THIRTY_TWO = re.compile(r"[&>%/=({ \t](?:31|0[xX]1[fF]|5|32)\b")


class Hit(NamedTuple):
    """One place where a rule matched; `subject` is the name or text that matched; `times` more than 1 where it stands for the rest."""

    rule: str
    line: int
    subject: str
    guarded: bool
    times: int = 1


@dataclass(slots=True, kw_only=True)
class SourceFacts:
    """What one source holds.

    Args:
        cuda: it is CUDA code; device: it has code that runs on the GPU.
        covered: table names used; unsupported, unknown: name -> (first line, places, all of them guarded).
        defined: names among `unsupported` and `unknown` that this file defines; guards: places that name AMD's platform.
        hip_headers: includes of HIP's own headers.
        headers: headers in <> that look like CUDA's and are in no table -> (line, whether AMD's platform has a branch there).
        device_headers: the same of headers in quotes, and of those that end in .cuh.
    """

    path: str
    lines: int
    cuda: bool = False
    device: bool = False
    hits: list[Hit] = field(default_factory=list)
    covered: set[str] = field(default_factory=set)
    unsupported: dict[str, tuple[int, int, bool]] = field(default_factory=dict)
    unknown: dict[str, tuple[int, int, bool]] = field(default_factory=dict)
    defined: set[str] = field(default_factory=set)
    headers: dict[str, tuple[int, bool]] = field(default_factory=dict)
    device_headers: dict[str, tuple[int, bool]] = field(default_factory=dict)
    guards: int = 0
    hip_headers: int = 0


class SourceScanner:
    """Rules and names made ready once for many files."""

    def __init__(self, book: RuleBook) -> None:
        self._names = book.names
        self._headers = {n for n, row in book.names.items() if row.lib == "include"}
        self._usable = {n for n, row in book.names.items() if row.status in USABLE}
        self._refused = {n for n, row in book.names.items() if row.status not in USABLE and row.lib not in {"include", "cub"}}
        self._by_word: dict[str, list[Rule]] = {}
        prefixes: list[tuple[str, Rule]] = []
        for rule in book.rules.values():
            if not rule.pattern or not {"cuda", "cu", "device"} & set(rule.scopes):
                continue
            for trigger in rule.triggers:
                if trigger.endswith("*"):
                    prefixes.append((trigger[:-1], rule))
                else:
                    self._by_word.setdefault(trigger, []).append(rule)
        self._prefixes = prefixes
        self._any_prefix = re.compile("|".join(re.escape(p) for p, _ in prefixes) or r"(?!)")
        self._patterns = {r.id: re.compile(r.pattern, re.MULTILINE) for r in book.rules.values() if r.pattern}

    def scan(self, path: str, source: str, first_line: int = 1) -> SourceFacts:
        """Scan one source.

        Args:
            first_line: line of its file that the text begins at, for source inside another file.
        """
        lower = path.lower()
        facts = SourceFacts(path=path, lines=source.count("\n") + (not source.endswith("\n") and bool(source)))
        words = set(_WORD.findall(source))
        is_cu = lower.endswith(CUDA_SUFFIXES)
        guarded_words = words & GUARD_WORDS
        may_be = is_cu or _is_cuda(words) or ("include" in words and _INCLUDE_WORDS.search(source) is not None)
        if not (may_be or guarded_words or words & ASM_WORDS or self._triggered(words, is_cu=False, is_cuda=False)):
            return facts
        seen = views(source)
        code = _HEADER_IN_CODE.sub(lambda m: m.group(1) + " " * len(m.group(2)), seen.code)  # a header's stem is no name
        words = set(_WORD.findall(code))
        ranges = guarded_lines(seen.code) if guarded_words else []
        facts.guards = sum(seen.code.count(word) for word in guarded_words)
        lines, texts = _Lines(seen.code, first_line), _Lines(seen.text, first_line)
        claimed: set[str] = set()
        named = self._includes(seen.text, texts, ranges, first_line, facts)
        facts.device = bool(words & DEVICE_WORDS)
        facts.cuda = is_cu or _is_cuda(words) or named
        for rule in self._triggered(set(_WORD.findall(seen.text)), is_cu=is_cu, is_cuda=facts.cuda):
            self._try(rule, seen, lines if rule.mode == "code" else texts, ranges, first_line, facts, claimed)
        facts.device_headers = {name: at for name, at in facts.device_headers.items() if name.partition(".")[0] not in claimed}
        facts.headers = {name: at for name, at in facts.headers.items() if name.partition(".")[0] not in claimed}
        if words & ASM_WORDS:
            self._asm(seen.text, texts, ranges, first_line, facts, is_cu=is_cu)
        facts.covered = words & self._usable
        if facts.cuda:
            self._look_up(words - facts.covered - claimed, code, lines, ranges, first_line, facts)
            if facts.device or is_cu:
                self._warps(words, seen.code, lines, ranges, first_line, facts)
        return facts

    def _includes(self, text: str, lines: _Lines, ranges: list[tuple[int, int]], first: int, facts: SourceFacts) -> bool:
        """Keep the headers that look like CUDA's; tell whether one is of CUDA's own by the table."""
        is_cuda = False
        for match in _INCLUDE.finditer(text):
            name = match.group(2)
            base = name.rpartition("/")[2]
            facts.hip_headers += name.startswith("hip/")
            if name in self._headers or base in self._headers:
                is_cuda = is_cuda or base not in OTHERS_HEADERS
            elif match.group(1) == "<" and _is_uncovered(name, base) and base not in facts.headers:
                line = lines.of(match.start(2))
                facts.headers[base] = (line, inside(line - first + 1, ranges))
            elif _may_be_cuda(name, base) and base not in facts.headers:
                line = lines.of(match.start(2))
                facts.device_headers[base] = (line, inside(line - first + 1, ranges))
        return is_cuda

    def _asm(self, text: str, lines: _Lines, ranges: list[tuple[int, int]], first: int, facts: SourceFacts, *, is_cu: bool) -> None:
        """Take assembly that is for NVIDIA: PTX anywhere, and what cannot be told in code for the GPU."""
        for count, asm in enumerate(asm_statements(text)):
            if count >= MOST_ASM:
                return
            if asm.kind == "ptx" or (asm.kind == "unknown" and (facts.device or is_cu)):
                line = lines.of(asm.start)
                facts.hits.append(Hit("R038", line, f"asm {asm.said}".strip()[:80], inside(line - first + 1, ranges)))

    def _triggered(self, words: set[str], *, is_cu: bool, is_cuda: bool) -> list[Rule]:
        found: dict[str, Rule] = {}
        for word in words & self._by_word.keys():
            for rule in self._by_word[word]:
                found[rule.id] = rule
        for word in words:
            if self._any_prefix.match(word):
                for prefix, rule in self._prefixes:
                    if word.startswith(prefix):
                        found[rule.id] = rule
        return [r for r in found.values() if "cuda" in r.scopes or (is_cuda and "device" in r.scopes) or is_cu]

    def _try(
        self, rule: Rule, seen: Views, lines: _Lines, ranges: list[tuple[int, int]], first: int, facts: SourceFacts, claimed: set[str]
    ) -> None:
        text = seen.code if rule.mode == "code" else seen.text
        kept = _Kept(facts.hits)
        for match in self._patterns[rule.id].finditer(text):
            found = match.group().strip()
            claimed.update(_WORD.findall(found))
            line = lines.of(match.start() + len(match.group()) - len(match.group().lstrip()))
            kept.add(rule.id, line, " ".join(found.split())[:80], inside(line - first + 1, ranges))

    def _look_up(
        self, words: Iterable[str], code: str, lines: _Lines, ranges: list[tuple[int, int]], first: int, facts: SourceFacts
    ) -> None:
        refused = {w for w in words if w in self._refused and (facts.device or not is_generic(w, self._names))}
        wanted = refused | {w for w in words if w not in self._refused and LOOKS_LIKE_CUDA.match(w)}
        found: dict[str, list[int]] = {}
        for word, start, end in _places(wanted, code):
            before = code[start - 1] if start else ""
            if before in {".", ">"} and code[max(0, start - 2) : start] != ">>":
                continue
            if before == ":" and _is_member(code, start):
                continue
            if word in refused and is_generic(word, self._names) and not code[end : end + 4].lstrip().startswith("("):
                continue
            found.setdefault(word, []).append(start)
            if word not in facts.defined and _is_definition(code, start, end):
                facts.defined.add(word)
        for word, starts in found.items():
            into = facts.unsupported if word in refused else facts.unknown
            into[word] = (lines.of(starts[0]), len(starts), all(inside(lines.of(p) - first + 1, ranges) for p in starts))

    def _warps(self, words: set[str], code: str, lines: _Lines, ranges: list[tuple[int, int]], first: int, facts: SourceFacts) -> None:
        found: list[tuple[str, int, str]] = []
        if any(w.endswith("_sync") for w in words):
            found += [("R042", at, text) for at, text in narrow_masks(code)]
        shuffles = any(w.startswith("__shfl") for w in words)
        if shuffles or (words & LANE_WORDS and _THIRTY_TWO.search(code)) or any("WARP" in w or "Warp" in w for w in words):
            found += [("R043", at, text) for at, text in thirty_two_lanes(code)]
        if "__global__" in words and "<<<" in code:
            found += [("R049", at, text) for at, text in dynamic_launches(code)]
        kept = _Kept(facts.hits)
        for rule, at, text in found:
            line = lines.of(at)
            kept.add(rule, line, text, inside(line - first + 1, ranges))


class _Kept:
    """Hits of one file: `MOST_HITS` per rule on each side of a guard, the last of them with the count of the rest."""

    def __init__(self, hits: list[Hit]) -> None:
        self._hits = hits
        self._last: dict[tuple[str, bool], tuple[int, int]] = {}

    def add(self, rule: str, line: int, subject: str, guarded: bool) -> None:
        count, last = self._last.get((rule, guarded), (0, 0))
        if count < MOST_HITS:
            self._last[rule, guarded] = (count + 1, len(self._hits))
            self._hits.append(Hit(rule, line, subject, guarded))
        else:
            self._hits[last] = self._hits[last]._replace(times=self._hits[last].times + 1)


def _is_uncovered(name: str, base: str) -> bool:
    return LOOKS_LIKE_A_HEADER.match(base) is not None or name.startswith("cooperative_groups/")


def _may_be_cuda(name: str, base: str) -> bool:
    return (base.lower().endswith(".cuh") and not name.startswith(_KNOWN_DEVICE_HEADERS)) or LOOKS_LIKE_A_HEADER.match(base) is not None


def _is_cuda(words: set[str]) -> bool:
    return bool(words & KERNEL_WORDS) or any(LOOKS_LIKE_CUDA.match(w) for w in words if w[:2] in {"cu", "CU"})


class _Lines:
    """Offsets to line numbers, made when first asked."""

    def __init__(self, text: str, first: int) -> None:
        self._text, self._first = text, first
        self._starts: list[int] | None = None

    def of(self, offset: int) -> int:
        if self._starts is None:
            self._starts = [m.start() for m in re.finditer("\n", self._text)]
        return bisect_right(self._starts, offset - 1) + self._first


FEW_WORDS = 40
"""Up to so many words one pattern of alternatives is faster than looking at every word. Source: timed on CUDA 13.0's headers."""


def _places(wanted: set[str], code: str) -> Iterator[tuple[str, int, int]]:
    if not wanted:
        return
    if len(wanted) <= FEW_WORDS:
        pattern = re.compile("(?:" + "|".join(sorted(wanted, key=len, reverse=True)) + r")\b")
        for match in pattern.finditer(code):
            start = match.start()
            if not start or not (code[start - 1].isalnum() or code[start - 1] == "_"):
                yield match.group(), start, match.end()
        return
    for match in _WORD.finditer(code):
        if match.group() in wanted:
            yield match.group(), match.start(), match.end()


def _is_member(code: str, start: int) -> bool:
    """Tell whether the name after `::` belongs to a class or a namespace, not to the global one."""
    return start > 2 and code[start - 2] == ":" and (code[start - 3].isalnum() or code[start - 3] in "_>")


_NOT_TYPES = frozenset({"return", "else", "case", "throw", "new", "delete", "goto", "co_return", "co_yield", "and", "or", "not", "do"})
_DEFINING = frozenset({"define", "struct", "class", "enum", "union", "namespace", "using", "concept"})
_BEFORE = re.compile(r"([A-Za-z_]\w*)[ \t]*(?:[>*&][ \t]*){0,3}[ \t\n]*[*&]?\Z")


def _is_definition(code: str, start: int, end: int) -> bool:
    """Tell whether this place defines the name: a macro, type, alias, function or variable."""
    before = _BEFORE.search(code[max(0, start - 80) : start])
    if before is None:
        return False
    if before.group(1) in _DEFINING:
        return True
    if before.group(1) in _NOT_TYPES or (not code[start - 1].isspace() and code[start - 1] not in "*&"):
        return False
    after = code[end : end + 8].lstrip()
    return after[:1] in {"(", "=", ";", ",", "{", "["}
