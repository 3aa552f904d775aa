"""Assess, adapter layer: headers of safetensors, GGUF, ONNX, TensorRT and TorchScript files. Never reads weights, never unpickles.

Source: the formats' own descriptions (safetensors: 8-byte length and a JSON header; GGUF: magic, version, counts; ONNX: protobuf
ModelProto with ir_version 1, producer_name 2, graph 7, opset_import 8).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator

from fleetctl.adapters.source_tree.blob import Blob
from fleetctl.domain.portability import ModelFile

MOST_HEADER = 16 * 2**20
MOST_FIELDS = 100_000


class BadHeader(Exception):
    """The header is not what the name promises."""


def read_safetensors(path: str, blob: Blob) -> ModelFile:
    """Return the element types in a safetensors file. Raises BadHeader."""
    start = blob.read(0, 8)
    size = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
    if not 2 <= size <= MOST_HEADER or size + 8 > blob.size:
        raise BadHeader("its header's length is not possible")
    try:
        header = json.loads(blob.read(8, size))
    except (ValueError, RecursionError):
        raise BadHeader("its header is not JSON") from None
    if not isinstance(header, dict):
        raise BadHeader("its header is not an object")
    dtypes = {str(t.get("dtype"))[:12] for name, t in header.items() if name != "__metadata__" and isinstance(t, dict)}
    return ModelFile(path=path, format="safetensors", dtypes=tuple(sorted(dtypes))[:20], facts={"tensors": str(len(header))})


def read_gguf(path: str, blob: Blob) -> ModelFile:
    """Return version and counts of a GGUF file. Raises BadHeader."""
    head = blob.read(0, 24)
    if len(head) < 24 or head[:4] != b"GGUF":
        raise BadHeader("it does not begin with GGUF")
    version, tensors, _ = struct.unpack_from("<IQQ", head, 4)
    if not 1 <= version <= 100:
        raise BadHeader("its version is not possible")
    return ModelFile(path=path, format="gguf", facts={"version": str(version), "tensors": str(tensors)})


def read_onnx(path: str, blob: Blob) -> ModelFile:
    """Return IR version, producer and operator sets of an ONNX model. Raises BadHeader."""
    facts: dict[str, str] = {}
    try:
        for field, kind, offset, value in _fields(blob, 0, blob.size):
            if field == 1 and kind == 0:
                facts["ir"] = str(value)
            elif field == 2 and kind == 2:
                facts["producer"] = _word(blob.read(offset, min(value, 60)))
            elif field == 8 and kind == 2:
                domain, version = "", 0
                for inner, inner_kind, at, number in _fields(blob, offset, offset + value):
                    if inner == 1 and inner_kind == 2:
                        domain = _word(blob.read(at, min(number, 60)))
                    elif inner == 2 and inner_kind == 0:
                        version = number
                facts[f"opset {domain}".strip()] = str(version)
    except ValueError as e:
        raise BadHeader(str(e)) from None
    if "ir" not in facts and not any(k.startswith("opset") for k in facts):
        raise BadHeader("it has neither an IR version nor an operator set")
    return ModelFile(path=path, format="onnx", facts=dict(list(facts.items())[:12]))


def _word(data: bytes) -> str:
    return "".join(c for c in data.decode("utf-8", "replace") if c.isprintable())


def _fields(blob: Blob, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield number, wire type, offset and value (or length) of the fields of a protobuf message."""
    at = start
    for _ in range(MOST_FIELDS):
        if at >= end:
            return
        head = blob.read(at, 20)
        key, used = _varint(head, 0)
        kind = key & 7
        if kind == 0:
            value, after = _varint(head, used)
            yield key >> 3, kind, at + used, value
            at += after
        elif kind == 2:
            size, after = _varint(head, used)
            if at + after + size > end:
                raise ValueError("a field lies beyond its end")
            yield key >> 3, kind, at + after, size
            at += after + size
        elif kind in (1, 5):
            at += used + (8 if kind == 1 else 4)
        else:
            raise ValueError("it is not a protobuf message")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a number has no end")
