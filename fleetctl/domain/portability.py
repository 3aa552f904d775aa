"""Assess, domain layer: rules, names, and what was read of a tree, an image or a model. Never I/O, never a decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from fleetctl.domain.people import Actor
from fleetctl.domain.plan import Grade, Route
from fleetctl.domain.units import Instant

TARGETS = (
    *("gfx900", "gfx902", "gfx904", "gfx906", "gfx908", "gfx909", "gfx90a", "gfx90c", "gfx942", "gfx950"),
    *("gfx1010", "gfx1011", "gfx1012", "gfx1013", "gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"),
    *("gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153", "gfx1200", "gfx1201", "gfx1250", "gfx1251"),
)
"""AMD's architectures that a compiler of ROCm may be asked for. Source: LLVM's AMDGPUUsage, table of processors from GFX9 on."""
ROUTES: tuple[Route, ...] = ("native", "rebuild", "hipify", "scale", "zluda", "stay")
"""In the order in which they are tried; the first that is open is taken."""

USABLE = frozenset({"supported", "deprecated", "experimental", "drop"})
"""Statuses of a name that hipify can replace; "roc_only" has a name in a ROCm library but none in HIP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One signal and what it means for a move.

    Args:
        kind: what it is read from, such as "source" or "requirement".
        grade: how much it costs; least: the first route that copes with it, "" where it says nothing about routes.
        since, until: versions of what it speaks about, "" where it holds for all; as_of: date it was last checked, ISO.
        scopes: kinds of text that the pattern is tried on; triggers: words (parts of them in settings), one of which a text must hold.
        pattern: a regular expression, "" where code detects it; mode: "code" (strings and comments blank) or "text" (comments blank).
    """

    id: str
    kind: str
    grade: Grade
    least: Route | Literal[""]
    signal: str
    effect: str
    why: str
    evidence: str
    as_of: str
    since: str = ""
    until: str = ""
    scopes: tuple[str, ...] = ()
    triggers: tuple[str, ...] = ()
    pattern: str = ""
    mode: Literal["code", "text"] = "code"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageRule:
    """What becomes of one Python package (or a family of them).

    Args:
        names: normalised, a trailing * stands for any ending; imports: module names that betray it in source.
        status: native, native-source, replace, fork, cuda-only, drop, ...; move: what the migrant does with it.
        replaced_by: a requirement on one of these means that it has been dealt with.
    """

    id: str
    names: tuple[str, ...]
    imports: tuple[str, ...]
    status: str
    move: str
    action: str
    evidence: str
    as_of: str
    since: str = ""
    until: str = ""
    replaced_by: tuple[str, ...] = ()


class ApiName(NamedTuple):
    """One CUDA name and what HIP has for it; `status` as HIPIFY's tables give it."""

    status: str
    hip_name: str
    lib: str
    kind: str
    hip_added: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleBook:
    """All rules, immutable.

    Args:
        names: every CUDA name of the table; names_from: HIPIFY version it was made of; names_as_of: that version's date, ISO.
    """

    rules: Mapping[str, Rule]
    packages: tuple[PackageRule, ...]
    names: Mapping[str, ApiName]
    names_from: str
    names_as_of: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFile:
    """A file that is text, whole.

    Args:
        installed: True for what a package manager put there; data: its bytes, None where no file of exactly this name holds them (a member
            of an archive or an image, a name that is not UTF-8).
    """

    path: str
    text: str
    installed: bool = False
    data: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ElfFile:
    """What an ELF file says of itself.

    Args:
        needed: DT_NEEDED; sections: names, or marks found where the section table could not be read.
        gfx: targets of its HIP code objects; sm: CUDA targets of its fat binaries; has_ptx: PTX is inside.
        opens: CUDA's libraries, and HIP's, that its data names: what it opens at run time.
    """

    path: str
    needed: tuple[str, ...] = ()
    sections: tuple[str, ...] = ()
    gfx: tuple[str, ...] = ()
    sm: tuple[str, ...] = ()
    has_ptx: bool = False
    opens: tuple[str, ...] = ()
    installed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """What the header of a model file says.

    Args:
        format: safetensors, gguf, onnx, tensorrt, torchscript, aotinductor, cubin, ptx.
        dtypes: element types in it; facts: short strings such as the opset.
    """

    path: str
    format: str
    dtypes: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFacts:
    """What an image's configuration says; base: references in its labels or history."""

    path: str
    env: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    base: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Something that was not read, and why; stated instead of left out.

    Args:
        hides: it may hold anything, such as an archive, a layer or a folder: the verdict does not cover it.
        elsewhere: what it leads to is read where it lies, so nothing is missing from a verdict.
    """

    path: str
    reason: str
    hides: bool = False
    elsewhere: bool = False


Read = TextFile | ElfFile | ModelFile | ImageFacts | Skipped


@dataclass(frozen=True, slots=True, kw_only=True)
class LicenceAcceptance:
    """A person's word that a licence which a route needs has been taken.

    Args:
        licence: such as "scale"; reference: the contract or order that proves it.
    """

    licence: str
    reference: str
    actor: Actor
    at: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """What a real tool said of one file.

    Args:
        outcome: "passed", "failed" (the tool refused the code), "unknown" (no tool, no time, or not the code's fault).
        detail: the first message, cleaned, at most 400 characters.
    """

    tool: str
    path: str
    outcome: Literal["passed", "failed", "unknown"]
    detail: str = ""
