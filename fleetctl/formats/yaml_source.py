"""Inventory, formats layer: YAML text to plain values with the line of every key. Never builds another type, never runs a tag.

Reads the safe core of YAML 1.2: null, true, false, decimal numbers and text. What YAML 1.1 reads differently (`on`, `n`, 010, 1:30)
is a mistake with a clear text instead of a surprise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

Path = tuple[str | int, ...]

MAX_BYTES = 16 * 1024 * 1024
MAX_NODES = 1_000_000
MAX_DEPTH = 40

_TRAP = re.compile(r"(?:y|n|yes|no|on|off)\Z", re.IGNORECASE)
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_QUOTED = ("'", '"', "|", ">")
_NULL = {"", "~", "null", "Null", "NULL"}
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z")
_FLOAT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3})?\Z")
_AMBIGUOUS = re.compile(r"[-+]?(?:0[0-9_]+|0x[0-9a-fA-F_]+|0b[01_]+|0o[0-7_]+|[0-9][0-9_]*_[0-9_]*|[0-9]+(?::[0-5]?[0-9])+(?:\.[0-9]*)?)\Z")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Mistake:
    """One mistake of a file: 1-based line and what is wrong there."""

    line: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """What a file says.

    Args:
        value: dict, list, str, int, float, bool or None; keys are always text.
        lines: 1-based line of the key (or list item) at each path; `()` is the whole file.
        mistakes: of the text itself, in order of line.
    """

    value: Any
    lines: Mapping[Path, int]
    mistakes: tuple[Mistake, ...] = ()

    def line(self, path: Path) -> int:
        """Return the line of the nearest place at or above `path`."""
        for end in range(len(path), -1, -1):
            found = self.lines.get(path[:end])
            if found is not None:
                return found
        return 1


@dataclass(slots=True)
class _Walk:
    lines: dict[Path, int] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)
    nodes: int = 0

    def wrong(self, node: yaml.Node, text: str) -> None:
        self.mistakes.append(Mistake(line=node.start_mark.line + 1, text=text))


_FAST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAGS = {yaml.ScalarNode: "tag:yaml.org,2002:str", yaml.SequenceNode: "tag:yaml.org,2002:seq", yaml.MappingNode: "tag:yaml.org,2002:map"}


class _Composer(_FAST):  # type: ignore[misc]
    """Composes nodes only: this module resolves plain scalars itself, so PyYAML's resolving is left out (it takes half the time)."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> str:
        return _TAGS[kind]

    def descend_resolver(self, current_node: Any, current_index: Any) -> None:
        pass

    def ascend_resolver(self) -> None:
        pass


class _TooBig(Exception):
    pass


def read_yaml(text: str) -> Document:
    """Parse one YAML document.

    Args:
        text: at most 16 MiB.
    Returns:
        the document; where its syntax is broken, value None and one mistake.
    """
    if len(text) > MAX_BYTES:
        return _broken(1, f"the file is larger than {MAX_BYTES // 1024 // 1024} MiB")
    try:
        loader = _Composer(text)
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as e:
        mark = e.problem_mark or e.context_mark
        return _broken(mark.line + 1 if mark else 1, f"not YAML: {e.problem or e.context}")
    except yaml.reader.ReaderError as e:
        return _broken(text.count("\n", 0, e.position) + 1, f"a character that YAML does not allow ({e.reason})")
    except (yaml.YAMLError, ValueError) as e:
        return _broken(1, f"not YAML: {e}")
    except RecursionError:
        return _broken(1, f"nested deeper than {MAX_DEPTH} levels")
    walk = _Walk(lines={(): 1})
    if node is None:
        return Document(value=None, lines=walk.lines)
    try:
        value = _value(node, (), walk)
    except _TooBig as e:
        return _broken(1, str(e))
    return Document(value=value, lines=walk.lines, mistakes=tuple(sorted(walk.mistakes)))


def _broken(line: int, text: str) -> Document:
    return Document(value=None, lines={(): 1}, mistakes=(Mistake(line=line, text=text),))


def _value(node: yaml.Node, path: Path, walk: _Walk) -> Any:
    walk.nodes += 1
    if walk.nodes > MAX_NODES or len(path) > MAX_DEPTH:
        raise _TooBig(f"more than {MAX_NODES} values or nested deeper than {MAX_DEPTH} levels")
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, walk)
    if isinstance(node, yaml.SequenceNode):
        if node.tag != "tag:yaml.org,2002:seq":
            walk.wrong(node, f"the tag {node.tag} is not read")
        items = []
        for i, child in enumerate(node.value):
            walk.lines[(*path, i)] = child.start_mark.line + 1
            items.append(_value(child, (*path, i), walk))
        return items
    if not isinstance(node, yaml.ScalarNode):
        raise TypeError(f"{type(node).__name__} is no node of a document")
    return _scalar(node, walk, "value")


def _mapping(node: yaml.MappingNode, path: Path, walk: _Walk) -> dict[str, Any]:
    if node.tag != "tag:yaml.org,2002:map":
        walk.wrong(node, f"the tag {node.tag} is not read")
    out: dict[str, Any] = {}
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            walk.wrong(key_node, "a key must be text")
            continue
        if key_node.value == "<<" and key_node.style not in _QUOTED:
            walk.wrong(key_node, "merge keys (<<) are not read: write the keys out")
            continue
        key = _scalar(key_node, walk, "key")
        name = key if isinstance(key, str) else key_node.value
        place = (*path, name)
        if name in out:
            walk.wrong(key_node, f"{name!r} stands here twice (first in line {walk.lines[place]})")
            continue
        walk.lines[place] = key_node.start_mark.line + 1
        out[name] = _value(value_node, place, walk)
    return out


def _scalar(node: yaml.ScalarNode, walk: _Walk, what: str) -> Any:
    text: str = node.value
    if node.style in _QUOTED:
        return text
    if not node.tag.startswith("tag:yaml.org,2002:") or node.tag.startswith("tag:yaml.org,2002:python"):
        walk.wrong(node, f"the tag {node.tag} is not read")
        return text
    if _TRAP.match(text):
        walk.wrong(node, f'the {what} {text} means true or false to some YAML readers: write "{text}" in quotes, or true or false')
        return text
    if text in _NULL:
        return None if what == "value" else text
    if text in _BOOL:
        return _BOOL[text]
    if _INT.match(text):
        return int(text) if len(text) < 20 else text
    if _FLOAT.match(text):
        return float(text)
    if _AMBIGUOUS.match(text):
        walk.wrong(node, f'the {what} {text} is a different number to different YAML readers: write it in decimal, or "{text}" in quotes')
    return text
