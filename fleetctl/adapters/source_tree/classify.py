"""Assess, adapter layer: one file's name and first bytes decide how it is read. Never runs it, never raises for what it holds."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fleetctl.adapters.source_tree.blob import Blob
from fleetctl.adapters.source_tree.bounds import MIB, Bounds
from fleetctl.adapters.source_tree.elf import MAGIC, NotElf, marks_elf, read_elf
from fleetctl.adapters.source_tree.model_headers import BadHeader, read_gguf, read_onnx, read_safetensors
from fleetctl.assess.file_kinds import TEXT_NAMES, is_text_name
from fleetctl.assess.manifests import is_requirement_file
from fleetctl.assess.models import CONFIG_NAMES
from fleetctl.domain.portability import ModelFile, Read, Skipped, TextFile

TAR = re.compile(r"\.(?:tar|tar\.gz|tgz|tar\.bz2|tbz2?|tar\.xz|txz|tar\.zst|tzst|crate|nemo)\Z")
ZIP = re.compile(r"\.(?:whl|zip|egg|conda|jar|nupkg|pyz)\Z")
CLOSED = re.compile(
    r"\.(?:deb|rpm|sif|7z|rar|run|squashfs|sqsh|iso|qcow2|vmdk|vhdx?|ova|dmg|cab|lz4|tar\.lz|tar\.lzma|tar\.lzo|tar\.z|cpio|appimage)\Z"
)
"""Kinds of packages and disks that are not opened: they may hold anything."""
TORCH = re.compile(r"\.(?:pt|pth|pt2|ts|torchscript)\Z")
PLAN = re.compile(r"\.(?:engine|plan|trt)\Z")
HEADERS = (
    ".safetensors",
    ".gguf",
    ".onnx",
    ".ptx",
    ".cubin",
    ".fatbin",
    ".so",
    ".bin",
    ".dll",
    ".exe",
    ".hsaco",
    ".a",
    ".o",
    ".lib",
    ".pyd",
    ".node",
)
PACKAGE_LIST = re.compile(r"(?:^|[/!])(?:var/lib/dpkg/status(?:\.d/[^/]+)?|conda-meta/[^/]+\.json)\Z")
INSTALLED = re.compile(r"(?:^|/)(?:site|dist)-packages/")


def is_header_name(lower: str) -> bool:
    """Tell whether a file of this name has a header worth reading."""
    name = lower.rpartition("/")[2]
    return name.endswith(HEADERS) or ".so." in name or "." not in name or TORCH.search(name) is not None or PLAN.search(name) is not None


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
            yield Skipped(path=path, reason=f"ELF file: {e}", hides=not installed)
    elif head[:4] == b"GGUF" or lower.endswith((".safetensors", ".gguf", ".onnx")):
        yield _model(path, lower, head, blob)
    elif head[:4] == b"ftrt" or PLAN.search(lower):
        if blob.size:
            yield ModelFile(path=path, format="tensorrt", facts={"bytes": str(blob.size)})
    elif lower.endswith((".ptx", ".fatbin", ".cubin")):
        yield ModelFile(path=path, format="ptx" if lower.endswith(".ptx") else "cubin")
    elif head == b"!<arch>\n" or head[:2] == b"MZ":
        yield marks_elf(path, blob.read(0, bounds.spool), installed=installed)
        if blob.size > bounds.spool and not installed:
            yield Skipped(path=path, reason=f"a library of which {bounds.spool // MIB} MiB were read")
    elif (is_text_name(lower) or PACKAGE_LIST.search(lower) or _is_script(lower, head)) and not (installed and not is_distribution(lower)):
        yield from _text(path, lower, blob, bounds, installed, keep)


def is_distribution(lower: str) -> bool:
    """Tell whether a file says what an installed package is and needs, or which packages a system has."""
    return lower.endswith(("/metadata", "/pkg-info")) or PACKAGE_LIST.search(lower) is not None


def _is_script(lower: str, head: bytes) -> bool:
    """Tell whether a file without an ending begins as a script does."""
    return head[:2] == b"#!" and "." not in lower.rpartition("/")[2]


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
    name = lower.rpartition("/")[2]
    is_data = lower.endswith((".json", ".txt")) and not is_requirement_file(lower) and name not in CONFIG_NAMES | TEXT_NAMES
    most = bounds.json if is_data else bounds.text
    if blob.size > most:
        if not is_data:
            yield Skipped(path=path, reason=f"larger than {most // MIB} MiB", hides=True)
        return
    data = blob.read(0, most)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        data, keep = data.decode("utf-16", "replace").encode("utf-8", "replace"), False
    if data.startswith(LARGE_FILE):
        yield Skipped(path=path, reason="a pointer to a large file that is not here", hides=True)
        return
    if b"\0" in data[:8192]:
        if not is_data:
            yield Skipped(path=path, reason="not text, though its name says so", hides=True)
        return
    text = data.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n")
    yield TextFile(path=path, text=text, installed=installed, data=data if keep else None)


LARGE_FILE = b"version https://git-lfs"
"""Source: the pointer files of Git LFS (specification v1)."""
