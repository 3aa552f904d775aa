"""Configure, adapter layer: writes values as YAML or JSON that Ansible never evaluates as a template. Never reads a file.

What is wrapped in `Unsafe` is marked as a whole: Ansible takes every string in it, at any depth, as letters, so a model name such as
"{{ lookup('pipe', 'id') }}" stays that. Keys are restricted to plain names. A mark on each string instead would be wrong: ansible-core 2.19
reads `!unsafe "1"` as a number and `!unsafe "null"` as nothing, quotes or not; inside a marked mapping quoted strings stay strings.
Source: trials of this project on ansible-core 2.19.14: an unmarked inventory string runs a pipe lookup on the controller,
a marked one does not.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fleetctl.errors import ConfigInvalid

_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z")
MAX_DEPTH = 12
"""Nesting that is accepted; serving units need 4."""

_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


@dataclass(frozen=True, slots=True)
class Unsafe:
    """A mapping that comes from outside."""

    value: Mapping[str, object]


class _Place(str):
    """Where a value stands, for messages."""

    __slots__ = ()

    def under(self, key: object) -> _Place:
        return _Place(f"{self}.{key}" if self else str(key))


def to_yaml(tree: Mapping[str, object]) -> str:
    """Write a mapping as block YAML; each `Unsafe` in it gets the tag `!unsafe`.

    Raises:
        ConfigInvalid: config.value where a key or value has no safe form.
    """
    return "---\n" + "\n".join(_block(tree, 0, _Place(""))) + "\n"


def to_json(tree: Mapping[str, object]) -> str:
    """Write a mapping as JSON in which every string value of an `Unsafe` is Ansible's unsafe object.

    Raises:
        ConfigInvalid: config.value where a key or value has no safe form.
    """
    return json.dumps(_marked(tree, 0, _Place("")), indent=2, ensure_ascii=True, allow_nan=False)


def quoted(text: str) -> str:
    """Write one string as a double-quoted YAML scalar of ASCII letters.

    Raises:
        ConfigInvalid: config.value where it holds half a surrogate pair.
    """
    return '"' + "".join(_letter(c) for c in text) + '"'


def _letter(c: str) -> str:
    if c in _SHORT:
        return _SHORT[c]
    n = ord(c)
    if 0x20 <= n < 0x7F:
        return c
    if 0xD800 <= n <= 0xDFFF:
        raise ConfigInvalid("config.value", f"the text holds half a surrogate pair (U+{n:04X}), which is not text")
    return f"\\x{n:02x}" if n < 0x100 else f"\\u{n:04x}" if n < 0x10000 else f"\\U{n:08x}"


def _key(key: object, place: _Place) -> str:
    if not isinstance(key, str) or not _KEY.match(key) or key.startswith("__ansible"):
        raise ConfigInvalid(
            "config.value",
            f"{place or 'a variable'} has the key {key!r}, which is not a plain name",
            hint="Use letters, digits, '_', '-' and '.'.",
        )
    return key


def _number(value: object, place: _Place) -> str:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ConfigInvalid("config.value", f"{place} is {value!r}, which is not a number Ansible can take")
        text = repr(value)
        mantissa, e, exponent = text.partition("e")
        if not e:
            return text
        sign = "" if exponent[0] in "+-" else "+"
        return f"{mantissa}{'' if '.' in mantissa else '.0'}e{sign}{exponent}"
    return str(value)


def _scalar(value: object, place: _Place) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return _number(value, place)
    if isinstance(value, str):
        return quoted(value)
    raise ConfigInvalid("config.value", f"{place} is a {type(value).__name__}, which has no form in an inventory")


def _check_depth(depth: int, place: _Place) -> None:
    if depth > MAX_DEPTH:
        raise ConfigInvalid("config.value", f"{place} is nested more than {MAX_DEPTH} deep")


def _block(value: object, depth: int, place: _Place) -> list[str]:
    _check_depth(depth, place)
    pad = "  " * depth
    lines: list[str] = []
    if isinstance(value, Mapping):
        for key, inner in value.items():
            name = _key(key, place)
            lines += _entry(f"{pad}{quoted(name)}:", inner, depth, place.under(name))
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        for n, inner in enumerate(value):
            lines += _entry(f"{pad}-", inner, depth, place.under(n))
    return lines


def _entry(head: str, value: object, depth: int, place: _Place) -> list[str]:
    if isinstance(value, Unsafe):
        return _entry(f"{head} !unsafe", value.value, depth, place)
    if isinstance(value, Mapping):
        return [head, *_block(value, depth + 1, place)] if value else [f"{head} {{}}"]
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [head, *_block(value, depth + 1, place)] if value else [f"{head} []"]
    return [f"{head} {_scalar(value, place)}"]


def _marked(value: object, depth: int, place: _Place, *, unsafe: bool = False) -> object:
    _check_depth(depth, place)
    if isinstance(value, Unsafe):
        return _marked(value.value, depth, place, unsafe=True)
    if isinstance(value, Mapping):
        return {_key(k, place): _marked(v, depth + 1, place.under(k), unsafe=unsafe) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [_marked(v, depth + 1, place.under(n), unsafe=unsafe) for n, v in enumerate(value)]
    _scalar(value, place)
    return {"__ansible_unsafe": value} if unsafe and isinstance(value, str) else value
