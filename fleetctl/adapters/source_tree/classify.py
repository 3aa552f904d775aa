"""Assess, adapter layer: one file's name and first bytes decide how it is read. Never runs it, never raises for what it holds."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fleetctl.adapters.source_tree.blob import Blob
from fleetctl.adapters.source_tree.bounds import MIB, Bounds
from fleetctl.adapters.source_tree.elf import MAGIC, NotElf, read_elf
from fleetctl.adapters.source_tree.model_headers import BadHeader, read_gguf, read_onnx, read_safetensors
from fleetctl.assess.models import CONFIG_NAMES
from fleetctl.assess.requirements import is_requirement_file
from fleetctl.domain.portability import ModelFile, Read, Skipped, TextFile

SOURCE = (
    ".cu",
    ".cuh",
    ".cuf",
    ".h",
    ".hpp",
    ".hh",
    ".hxx",
    ".inl",
    ".inc",
    ".ipp",
    ".tpp",
    ".c",
    ".cc",
    ".cpp",
    ".cxx",
    ".cppm",
    ".ixx",
    ".py",
    ".cmake",
    ".mk",
    ".bazel",
    ".bzl",
    ".gn",
)
SETTINGS = (
    ".txt",
    ".in",
    ".toml",
    ".lock",
    ".cfg",
    ".ini",
    ".yml",
    ".yaml",
    ".sh",
    ".bash",
    ".zsh",
    ".service",
    ".env",
    ".conf",
    ".tf",
    ".hcl",
    ".j2",
    ".pbtxt",
    ".dockerfile",
    ".json",
)
NAMES = frozenset(
    {"makefile", "gnumakefile", "pipfile", "metadata", "meson.build", "justfile", "build", "workspace", "cmakelists.txt", "os-release"}
)
TAR = re.compile(r"\.(?:tar|tar\.gz|tgz|tar\.bz2|tbz2?|tar\.xz|txz|tar\.zst)\Z")
ZIP = re.compile(r"\.(?:whl|zip|egg)\Z")
TORCH = re.compile(r"\.(?:pt|pth|pt2|ts|torchscript)\Z")
PLAN = re.compile(r"\.(?:engine|plan|trt)\Z")
INSTALLED = re.compile(r"(?:^|/)(?:site|dist)-packages/")


def is_text_name(lower: str) -> bool:
    """Tell whether a file of this name is worth reading as text."""
    name = lower.rpartition("/")[2]
    return name.endswith((*SOURCE, *SETTINGS)) or name in NAMES or name.startswith(("dockerfile", "containerfile", ".env"))


def is_header_name(lower: str) -> bool:
    """Tell whether a file of this name has a header worth reading."""
    name = lower.rpartition("/")[2]
    return (
        name.endswith((".safetensors", ".gguf", ".onnx", ".ptx", ".cubin", ".fatbin", ".so", ".bin", ".dll", ".exe", ".hsaco"))
        or ".so." in name
        or "." not in name
        or TORCH.search(name) is not None
        or PLAN.search(name) is not None
    )


def classify(path: str, blob: Blob, bounds: Bounds, *, installed: bool = False, keep: bool = False) -> Iterator[Read]:
    """Yield what one file says; nothing for a file that says nothing of interest.

    Args:
        installed: a package manager put it there; keep: a text goes with its bytes.
    """
    lower = path.lower()
    installed = installed or INSTALLED.search(lower) is not None
    head = blob.read(0, 8)
    if head[:4] == MAGIC:
        try:
            yield read_elf(path, blob, installed=installed)
        except NotElf as e:
            yield Skipped(path=path, reason=f"ELF file: {e}")
    elif head[:4] == b"GGUF" or lower.endswith((".safetensors", ".gguf", ".onnx")):
        yield _model(path, lower, head, blob)
    elif head[:4] == b"ftrt" or PLAN.search(lower):
        if blob.size:
            yield ModelFile(path=path, format="tensorrt", facts={"bytes": str(blob.size)})
    elif lower.endswith((".ptx", ".fatbin")):
        yield ModelFile(path=path, format="ptx" if lower.endswith(".ptx") else "cubin")
    elif is_text_name(lower) and not (installed and not lower.endswith("/metadata")):
        yield from _text(path, lower, blob, bounds, installed, keep)


def _model(path: str, lower: str, head: bytes, blob: Blob) -> Read:
    if head.startswith(b"version "):
        return Skipped(path=path, reason="a pointer to a large file that is not here")
    try:
        if lower.endswith(".safetensors"):
            return read_safetensors(path, blob)
        if lower.endswith(".onnx"):
            return read_onnx(path, blob)
        return read_gguf(path, blob)
    except BadHeader as e:
        return Skipped(path=path, reason=f"model file: {e}")


def _text(path: str, lower: str, blob: Blob, bounds: Bounds, installed: bool, keep: bool) -> Iterator[Read]:
    most = bounds.json if lower.endswith(".json") else bounds.text
    if blob.size > most:
        if not lower.endswith((".json", ".txt")) or is_requirement_file(lower) or lower.rpartition("/")[2] in CONFIG_NAMES:
            yield Skipped(path=path, reason=f"larger than {most // MIB} MiB")
        return
    data = blob.read(0, most)
    if b"\0" in data[:8192]:
        if lower.endswith(SOURCE):
            yield Skipped(path=path, reason="not text, though its name says so")
        return
    text = data.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n")
    yield TextFile(path=path, text=text, installed=installed, data=data if keep else None)
