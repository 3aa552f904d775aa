"""Assess, adapter layer: reads what an ELF file says of itself: sections, needed libraries, GPU code. Never loads or runs it.

Source: System V ABI (header, sections, dynamic table); fat binary magics 0xBA55ED50 and 0x466243B1 and the bundle ids
`hipv4-amdgcn-amd-amdhsa--gfx...` were measured on files made by nvcc 13.0 and hipcc.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from fleetctl.adapters.source_tree.blob import Blob
from fleetctl.domain.portability import ElfFile, ModelFile

MAGIC = b"\x7fELF"
EM_CUDA = 190
MOST_SECTIONS, MOST_NEEDED, MOST_ENTRIES = 2000, 200, 500
MOST_BUNDLE = 8 * 2**20
_GFX = re.compile(rb"(?:hipv4|hip)-amdgcn-amd-amdhsa--?(gfx[0-9a-f]{3,5})")
_LIBRARY = re.compile(rb"lib[A-Za-z0-9_+.-]{1,60}\.so(?:\.[0-9]{1,4}){0,3}")
_OPENED = re.compile(
    rb"(?:lib(?:cuda|cudart|cublas|cublasLt|cudnn\w{0,20}|nvrtc|nccl|nvinfer\w{0,20}|nvonnxparser|nvidia-ml|nvidia-encode|nvcuvid|nvoptix|amdhip64|hipblas|rccl|hsa-runtime64)"
    rb"\.so(?:\.[0-9]{1,4}){0,3}|nvcuda\.dll|cudart64_[0-9]{1,4}\.dll|nvinfer\w{0,20}\.dll)"
)
_PTX = re.compile(rb"\.target[ \t]+sm_[0-9]{2,3}")
MOST_CONSTANTS = 32 * 2**20
_FATBIN_MAGIC = 0xBA55ED50
_KIND_PTX, _KIND_ELF = 1, 2
_MARKS = (b".nv_fatbin", b".nvFatBinSegment", b"__nv_module_id", b".hip_fatbin")


class NotElf(Exception):
    """The header lies, or the file is cut off."""


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    offset: int
    size: int
    kind: int
    link: int


def read_elf(path: str, blob: Blob, *, installed: bool) -> ElfFile | ModelFile:
    """Return an ELF file's facts; one for NVIDIA's own machine is a cubin.

    Raises:
        NotElf: its header lies or is cut off.
    """
    head = blob.read(0, 64)
    if len(head) < 52 or head[:4] != MAGIC or head[4] not in (1, 2) or head[5] not in (1, 2):
        raise NotElf("cut off before the end of its header")
    order = "<" if head[5] == 1 else ">"
    is_64 = head[4] == 2
    try:
        machine = struct.unpack_from(order + "H", head, 18)[0]
        if machine == EM_CUDA:
            return ModelFile(path=path, format="cubin")
        sections = _sections(blob, head, order, is_64)
    except struct.error:
        raise NotElf("its section table lies beyond its end") from None
    by_name = {s.name: s for s in sections}
    sm, has_ptx = _fatbin(blob, by_name.get(".nv_fatbin"), order)
    data = b"" if installed else _constants(blob, sections)
    has_ptx = has_ptx or _PTX.search(data) is not None
    return ElfFile(
        path=path,
        needed=_needed(blob, sections, order, is_64),
        sections=tuple(s.name for s in sections if s.name)[:200],
        gfx=_gfx(blob, by_name.get(".hip_fatbin")),
        sm=sm,
        has_ptx=has_ptx,
        opens=_opened(data),
        installed=installed,
    )


def _constants(blob: Blob, sections: list[_Section]) -> bytes:
    """Return the constant data of a program, where it keeps the names of what it opens."""
    found = [s for s in sections if s.name.startswith((".rodata", ".data"))][:20]
    return b"".join(blob.read(s.offset, min(s.size, MOST_CONSTANTS)) for s in found)[:MOST_CONSTANTS]


def _opened(data: bytes) -> tuple[str, ...]:
    return tuple(sorted({m.decode() for m in _OPENED.findall(data)}))[:MOST_NEEDED]


def marks_elf(path: str, data: bytes, *, installed: bool) -> ElfFile:
    """Return what the words in a piece of an ELF file betray, for one that is too large to keep."""
    return ElfFile(
        path=path,
        needed=tuple(sorted({m.decode() for m in _LIBRARY.findall(data)}))[:MOST_NEEDED],
        sections=tuple(m.decode() for m in _MARKS if m in data),
        has_ptx=_PTX.search(data) is not None,
        opens=_opened(data) if data[:2] == b"MZ" else (),
        gfx=tuple(sorted({m.decode() for m in _GFX.findall(data)})),
        installed=installed,
    )


def _sections(blob: Blob, head: bytes, order: str, is_64: bool) -> list[_Section]:
    if is_64:
        table = struct.unpack_from(order + "Q", head, 40)[0]
        size, count, names = struct.unpack_from(order + "HHH", head, 58)
        shape = order + "IIQQQQII"
    else:
        table = struct.unpack_from(order + "I", head, 32)[0]
        size, count, names = struct.unpack_from(order + "HHH", head, 46)
        shape = order + "IIIIIIII"
    if table == 0:
        return []
    width = struct.calcsize(shape)
    if size < width or count > MOST_SECTIONS:
        raise NotElf("its section table is not one")
    data = blob.read(table, size * count)
    if len(data) < size * count:
        raise NotElf("its section table lies beyond its end")
    raw = [struct.unpack_from(shape, data, i * size) for i in range(count)]
    texts = blob.read(raw[names][4], min(raw[names][5], 2**20)) if names < count else b""
    found = [_Section(_text(texts, r[0]), r[4], r[5], r[1], r[6]) for r in raw]
    if any(s.kind not in (0, 8) and s.offset + s.size > blob.size for s in found):
        raise NotElf("a section lies beyond its end")
    return found


def _text(table: bytes, at: int) -> str:
    if at >= len(table):
        return ""
    end = table.find(b"\0", at, at + 200)
    return table[at : end if end >= 0 else at + 200].decode("ascii", "replace")


def _needed(blob: Blob, sections: list[_Section], order: str, is_64: bool) -> tuple[str, ...]:
    dynamic = next((s for s in sections if s.kind == 6), None)
    if dynamic is None or dynamic.link >= len(sections):
        return ()
    strings = sections[dynamic.link]
    table = blob.read(strings.offset, min(strings.size, 4 * 2**20))
    shape = order + ("qQ" if is_64 else "iI")
    data = blob.read(dynamic.offset, min(dynamic.size, 2**20))
    found: list[str] = []
    for tag, value in struct.iter_unpack(shape, data[: len(data) // struct.calcsize(shape) * struct.calcsize(shape)]):
        if tag == 0 or len(found) >= MOST_NEEDED:
            break
        if tag == 1:
            found.append(_text(table, value))
    return tuple(n for n in found if n)


def _gfx(blob: Blob, section: _Section | None) -> tuple[str, ...]:
    if section is None:
        return ()
    data = blob.read(section.offset, min(section.size, MOST_BUNDLE))
    return tuple(sorted({m.decode() for m in _GFX.findall(data)}))


def _fatbin(blob: Blob, section: _Section | None, order: str) -> tuple[tuple[str, ...], bool]:
    """Walk fat binary headers: one per translation unit, each with entries of PTX or machine code."""
    if section is None:
        return (), False
    found: set[str] = set()
    has_ptx = False
    at, end, seen = section.offset, section.offset + section.size, 0
    while at + 16 <= end and seen < MOST_ENTRIES:
        head = blob.read(at, 16)
        if len(head) < 16:
            break
        magic, _, header, size = struct.unpack(order + "IHHQ", head)
        if magic != _FATBIN_MAGIC or header < 16:
            break
        entry, stop = at + header, min(at + header + size, end)
        while entry + 64 <= stop and seen < MOST_ENTRIES:
            seen += 1
            data = blob.read(entry, 64)
            if len(data) < 64:
                break
            kind, _, entry_header, entry_size = struct.unpack_from(order + "HHIQ", data)
            arch = struct.unpack_from(order + "I", data, 28)[0]
            if kind == _KIND_PTX:
                has_ptx = True
            if kind in (_KIND_PTX, _KIND_ELF) and 10 <= arch <= 999:
                found.add(f"{'compute' if kind == _KIND_PTX else 'sm'}_{arch}")
            if entry_header < 16:
                break
            entry += entry_header + entry_size
        at = (at + header + size + 7) // 8 * 8
    return tuple(sorted(found)), has_ptx
