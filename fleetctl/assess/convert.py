"""Assess, pure layer: CUDA names of a source replaced by HIP's, and all else left as it is, byte by byte. Never I/O, never a guess: a name
that the table does not map stays and is listed. Lines are never added or taken away, so a patch needs no search for them.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fleetctl.assess.names import coverage
from fleetctl.domain.portability import USABLE, ApiName

_PIECES = re.compile(
    r'(?P<raw>(?<![A-Za-z0-9_])(?:u8|[uUL])?R"(?P<mark>[^()\\\s"]{0,16})\()'
    r"|(?P<line>//(?:[^\\\r\n]|\\\r\n|\\.)*+)"
    r"|(?P<block>/\*)"
    r"|(?P<include>^(?P<before>[ \t]*#[ \t]*include[ \t]*[<\"])(?P<header>[^>\"\r\n]{1,200})(?P<after>[>\"]))"
    r'|(?P<string>"(?:[^"\\\r\n]|\\\r\n|\\.)*+"?)'
    r"|(?P<char>'(?:[^'\\\r\n]|\\[^\r\n]{1,8}?)')"
    r"|(?P<word>[A-Za-z_\x80-\xff][\w\x80-\xff]*+)",
    re.MULTILINE | re.DOTALL,
)
_OF_HIP = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]hip/", re.MULTILINE)
_SCOPED = re.compile(r"[ \t]*::")
_NAMESPACE = re.compile(r"\bnamespace[ \t]+(?:\w{1,100}[ \t]*=[ \t]*(?:::)?)?\Z")
NAMESPACES = {"cub": "cub:: (its namespace is hipcub there)"}
"""Namespaces that hold other headers' names under HIP, and how they are listed. Source: hipCUB's documentation."""
CASTS: Mapping[str, tuple[int, int]] = {
    "cudaFuncSetAttribute": (3, 0),
    "cudaFuncSetCacheConfig": (2, 0),
    "cudaFuncSetSharedMemConfig": (2, 0),
    "cudaFuncGetAttributes": (2, 1),
}
"""Functions that take a kernel: how many arguments, and which is the kernel. CUDA has templates that take any, HIP takes a const void*.
Source: HIP's runtime API reference (hipFuncSetAttribute and others take `const void* func`)."""
_IS_POINTER = re.compile(
    r"\s*(?:\(\s*(?:const\s+)?void\s*(?:const\s*)?\*\s*\)|(?:reinterpret|static)_cast\s*<\s*(?:const\s+)?void\s*(?:const\s*)?\*\s*>)"
)
_DECLARED = re.compile(r"\s*(?:const\s+)?(?:void|T|[Ff]unc\w*)\s*(?:const\s*)?\*")
"""The argument of a declaration of that function, not of a call."""
MOST_ARGUMENTS = 4000
"""Characters of one call's arguments that are looked at."""
CONTEXT = 2
"""Lines shown before and after a change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """A translated source.

    Args:
        replaced: names and headers that were replaced; by_hand: CUDA names that stand as they were, with their lines.
    """

    text: str
    replaced: int
    by_hand: tuple[tuple[str, int], ...]


def convert(source: str, names: Mapping[str, ApiName]) -> Converted:
    """Translate one source; one that includes HIP's own headers is translated already and stays as it is."""
    if _OF_HIP.search(source):
        return Converted(text=source, replaced=0, by_hand=())
    out: list[str] = []
    at = replaced = counted = 0
    line = 1
    left: dict[str, int] = {}
    casts: dict[int, str] = {}
    while match := _PIECES.search(source, at):
        start, end = match.span()
        out += _with_casts(source, at, start, casts)
        piece = match.group()
        if match.group("block"):
            end = _after(source, "*/", end)
            piece = source[start:end]
        elif match.group("raw"):
            end = _after(source, f'){match.group("mark")}"', end)
            piece = source[start:end]
        elif match.group("include"):
            row = names.get(match.group("header"))
            if row is not None and row.hip_name and row.status in USABLE:
                piece = match.group("before") + row.hip_name + match.group("after")
                replaced += row.hip_name != match.group("header")
            elif row is not None and row.status == "drop":
                piece = ""
                replaced += 1
        elif match.group("word"):
            row = names.get(piece)
            if row is not None and row.hip_name and row.status in USABLE and row.lib != "include":
                replaced += row.hip_name != piece
                casts |= _casts(source, piece, end) if piece in CASTS else {}
                piece = row.hip_name
            elif piece not in left and coverage(piece, names) in {"unsupported", "uncovered"} and (row is None or row.lib != "device"):
                line += source.count("\n", counted, start)
                counted = start
                left[piece] = line
            elif piece in NAMESPACES and NAMESPACES[piece] not in left and _is_namespace(source, start, end):
                line += source.count("\n", counted, start)
                counted = start
                left[NAMESPACES[piece]] = line
        out += [casts.pop(start, ""), piece]
        at = end
    out += _with_casts(source, at, len(source), casts)
    return Converted(text="".join(out), replaced=replaced, by_hand=tuple(sorted(left.items(), key=lambda x: x[1])))


def _casts(source: str, name: str, at: int) -> dict[int, str]:
    """Return what to write where in the arguments of a call, so that the kernel is given as HIP takes it; lines stay as they are."""
    count, which = CASTS[name]
    parts = _arguments(source, at)
    if len(parts) < count:
        return {}
    if which == 0:  # a template's own commas make more parts of it: the other arguments are counted from the end
        begin, end = parts[0][0], parts[len(parts) - count][1]
    else:
        begin, end = parts[which][0], parts[-1][1]
    text = source[begin:end]
    if not text.strip() or _IS_POINTER.match(text) or _DECLARED.match(text) or "#" in text or "//" in text or "/*" in text:
        return {}
    begin += len(text) - len(text.lstrip())
    end -= len(text) - len(text.rstrip())
    return {begin: "(const void *)(", end: ")"}


def _arguments(source: str, at: int) -> list[tuple[int, int]]:
    """Return where the arguments of a call begin and end, by the commas outside of brackets; [] where it is no call."""
    while at < len(source) and source[at].isspace():
        at += 1
    if source[at : at + 1] != "(":
        return []
    parts: list[tuple[int, int]] = []
    begin, depth = at + 1, 0
    for i in range(at, min(len(source), at + MOST_ARGUMENTS)):
        char = source[i]
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
            if depth == 0:
                return [*parts, (begin, i)]
        elif char == "," and depth == 1:
            parts.append((begin, i))
            begin = i + 1
        elif char in "\"'":
            return []
    return []


def _with_casts(source: str, at: int, end: int, casts: dict[int, str]) -> Iterator[str]:
    """Yield the source from one place to another, with the casts that belong between; one at the end is left for what follows."""
    for place in sorted(p for p in casts if at <= p < end):
        yield source[at:place]
        yield casts.pop(place)
        at = place
    yield source[at:end]


def _is_namespace(source: str, start: int, end: int) -> bool:
    is_inner = source[max(0, start - 2) : start] == "::" and start > 2 and (source[start - 3].isalnum() or source[start - 3] == "_")
    return not is_inner and (_SCOPED.match(source, end) is not None or _NAMESPACE.search(source, max(0, start - 140), start) is not None)


def _after(source: str, mark: str, at: int) -> int:
    found = source.find(mark, at)
    return len(source) if found < 0 else found + len(mark)


def convert_bytes(data: bytes, names: Mapping[str, ApiName]) -> tuple[bytes, Converted]:
    """Translate a file as it lies on disk, in whichever encoding has ASCII's letters at their places: no other byte changes."""
    mark = BOM_UTF8 if data.startswith(BOM_UTF8) else b""
    done = convert(data[len(mark) :].decode("latin-1"), names)
    return mark + done.text.encode("latin-1"), done


def patch_of(path: str, before: bytes, after: bytes) -> bytes:
    """Return a patch of one file for `git apply` and `patch -p1`, empty where nothing changed.

    Args:
        after: the file with as many lines as before.
    """
    old, new = _lines(before), _lines(after)
    changed = [n for n, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
    if not changed:
        return b""
    a, b = _quoted(f"a/{path}"), _quoted(f"b/{path}")
    tab = b"\t" if b" " in a and not a.startswith(b'"') else b""  # ends the name, as git does it
    out = [b"diff --git %b %b\n--- %b%b\n+++ %b%b\n" % (a, b, a, tab, b, tab)]
    for first, last in _hunks(changed, len(old)):
        out.append(b"@@ -%d,%d +%d,%d @@\n" % (first + 1, last - first, first + 1, last - first))
        out += _hunk(old[first:last], new[first:last])
    return b"".join(out)


def _lines(data: bytes) -> list[bytes]:
    """Return the lines with their ends; only a line feed ends one."""
    lines = data.split(b"\n")
    return [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _hunks(changed: list[int], count: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of lines around changes, those that touch as one."""
    first, last = max(0, changed[0] - CONTEXT), changed[0] + 1 + CONTEXT
    for n in changed[1:]:
        if n - CONTEXT > last:
            yield first, min(last, count)
            first = n - CONTEXT
        last = n + 1 + CONTEXT
    yield first, min(last, count)


def _hunk(old: list[bytes], new: list[bytes]) -> Iterator[bytes]:
    taken: list[bytes] = []
    given: list[bytes] = []
    for a, b in zip(old, new, strict=True):
        if a != b:
            taken.append(b"-" + _ended(a))
            given.append(b"+" + _ended(b))
            continue
        yield from (*taken, *given, b" " + _ended(a))
        taken, given = [], []
    yield from (*taken, *given)


def _ended(line: bytes) -> bytes:
    return line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n"


_ESCAPES = {7: b"\\a", 8: b"\\b", 9: b"\\t", 10: b"\\n", 11: b"\\v", 12: b"\\f", 13: b"\\r", 34: b'\\"', 92: b"\\\\"}


def _quoted(name: str) -> bytes:
    """Return a name as git writes it in a patch: in quotes where it holds more than plain characters."""
    data = name.encode("utf-8")
    if all(32 <= c < 127 and c not in (34, 92) for c in data):
        return data
    return b'"' + b"".join(_ESCAPES.get(c) or (bytes([c]) if 32 <= c < 127 else b"\\%03o" % c) for c in data) + b'"'
