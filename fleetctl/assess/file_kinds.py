"""Assess, pure layer: kinds of files by their names: one list of each, for the reader and for the rules alike. Never I/O."""

from __future__ import annotations

from fleetctl.assess.manifests import is_requirement_file
from fleetctl.assess.other_languages import OTHER_LANGUAGES

TEMPLATES = (".jinja", ".jinja2", ".j2", ".in", ".tmpl", ".tpl", ".template", ".mako")
CUDA_SUFFIXES = (".cu", ".cuh", ".cu.cc", ".cu.h", *(f"{kind}{t}" for kind in (".cu", ".cuh") for t in TEMPLATES))
C_SUFFIXES = (
    *(".h", ".hpp", ".hh", ".hxx", ".h++", ".inl", ".inc", ".ipp", ".tpp", ".tcc", ".txx"),
    *(".cl", ".clh", ".c", ".cc", ".cpp", ".cxx", ".c++", ".cppm", ".ixx"),
)
CONTAINER_NAMES = ("dockerfile", "containerfile")
"""Beginnings of names."""
CONTAINER_SUFFIXES = (".dockerfile", ".containerfile")
BUILD_NAMES = frozenset(
    {
        *("makefile", "gnumakefile", "meson.build", "meson.options", "build.gradle", "justfile", "build", "workspace"),
        *("sconstruct", "sconscript", ".bazelrc", "xmake.lua", "premake5.lua", "cmakepresets.json"),
    }
)
BUILD_SUFFIXES = (".cmake", ".mk", ".bazel", ".bzl", ".gn", ".ninja", ".vcxproj", ".props", ".targets", ".bazelrc")
CONFIG_SUFFIXES = (
    ".yml",
    ".yaml",
    ".sh",
    ".bash",
    ".zsh",
    ".ksh",
    ".fish",
    ".def",
    ".nomad",
    ".sbatch",
    ".slurm",
    ".pbs",
    ".lsf",
    ".nix",
    ".service",
    ".env",
    ".conf",
    ".cfg",
    ".toml",
    ".ini",
    ".tf",
    ".hcl",
    ".j2",
    ".json",
)
CONFIG_NAMES = frozenset({"procfile"})
_OTHER_SUFFIXES = (".py", ".ipynb", ".pbtxt", ".txt", ".in", ".pip", ".lock", ".lua", ".csproj", ".gradle", ".kts")
_OTHER_NAMES = frozenset({"cmakelists.txt", "os-release"})
TEXT_SUFFIXES = (
    *(*CUDA_SUFFIXES, *C_SUFFIXES, *OTHER_LANGUAGES, *CONTAINER_SUFFIXES, *BUILD_SUFFIXES, *CONFIG_SUFFIXES, *_OTHER_SUFFIXES),
)
"""All that is read as text: what any rule looks at, and nothing that none does."""
TEXT_NAMES = BUILD_NAMES | CONFIG_NAMES | _OTHER_NAMES


def is_text_name(lower: str) -> bool:
    """Tell whether a file of this name is worth reading as text.

    Args:
        lower: its path in lower case.
    """
    name = lower.rpartition("/")[2]
    return (
        name.endswith(TEXT_SUFFIXES)
        or name in TEXT_NAMES
        or name.startswith((*CONTAINER_NAMES, ".env", "makefile."))
        or is_requirement_file(lower)
    )
