"""Small binaries made by hand: ELF with any sections, fat binaries, model headers, tar archives that lie. Nothing of them can be run."""

from __future__ import annotations

import io
import json
import struct
import tarfile
from collections.abc import Iterable, Mapping


def elf(sections: Mapping[str, bytes], needed: Iterable[str] = (), machine: int = 62) -> bytes:
    """Return a 64-bit ELF file with these sections and DT_NEEDED entries."""
    strings = b"\0" + b"".join(n.encode() + b"\0" for n in needed)
    dynamic, at = b"", 1
    for name in needed:
        dynamic += struct.pack("<qQ", 1, at)
        at += len(name) + 1
    dynamic += struct.pack("<qQ", 0, 0)
    parts: list[tuple[str, bytes, int, int]] = [("", b"", 0, 0), (".dynstr", strings, 3, 0), (".dynamic", dynamic, 6, 1)]
    parts += [(name, data, 1, 0) for name, data in sections.items()]
    names = b"\0"
    offsets = []
    for name, *_ in (*parts, (".shstrtab", b"", 3, 0)):
        offsets.append(len(names) if name else 0)
        names += name.encode() + b"\0" if name else b""
    parts.append((".shstrtab", names, 3, 0))
    body, table = b"", b""
    for (_, data, kind, link), name_at in zip(parts, offsets, strict=True):
        table += struct.pack("<IIQQQQIIQQ", name_at, kind, 0, 0, 64 + len(body), len(data), link, 0, 1, 0)
        body += data
    head = b"\x7fELF\x02\x01\x01" + b"\0" * 9
    head += struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, len(parts), len(parts) - 1)
    return head + body + table


def fat_binary(entries: Iterable[tuple[int, int]]) -> bytes:
    """Return a fat binary with entries of (kind, architecture): kind 1 is PTX, 2 machine code."""
    body = b""
    for kind, arch in entries:
        head = struct.pack("<HHIQ", kind, 0, 64, 8) + b"\0" * 12 + struct.pack("<I", arch) + b"\0" * 32
        body += head + b"\0" * 8
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def safetensors(dtypes: Mapping[str, str]) -> bytes:
    """Return a safetensors file with empty tensors of these types."""
    header = json.dumps({n: {"dtype": d, "shape": [0], "data_offsets": [0, 0]} for n, d in dtypes.items()}).encode()
    return struct.pack("<Q", len(header)) + header


def onnx(opset: int) -> bytes:
    """Return an ONNX model without a graph."""
    inner = b"\x0a\x00\x10" + bytes([opset])
    return b"\x08\x09" + b"\x12\x05torch" + b"\x42" + bytes([len(inner)]) + inner


def tar(members: Mapping[str, bytes], mode: str = "w") -> bytes:
    """Return a tar archive of these files, by Python's own writer."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()
