"""Plan, store and audit, domain layer: the one encoder of plan, event and hash, and its inverse. Standard library only, no I/O.

A dataclass becomes an object whose key "_" is its class name; keys are sorted; no white space; NaN and infinity are refused.

A value that an older release saved must keep its digest: plans, approvals and fleets are bound by it, events chained by it. So a field
that a release adds has a default and the metadata `LATER`, and is left out of the encoding while it holds that default.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any, TypeVar

from fleetctl.domain.ids import Sha256

T = TypeVar("T")
LATER: Mapping[str, bool] = types.MappingProxyType({"later": True})
"""Metadata of a field that came after its class was first saved: `field(default=..., metadata=LATER)`. Its default never changes."""


def plain(value: object, *, whole: bool = False) -> Any:
    """Return `value` as JSON types only (dict, list, str, int, float, bool, None).

    Args:
        whole: fields that came later are there too while they hold their default (for people and programs, never for a digest).

    Raises:
        TypeError: a type without an encoding; ValueError: NaN or infinity.
    """
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value!r} has no canonical form")
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        out: dict[str, Any] = {"_": type(value).__name__}
        for name, is_later, default in _fields(type(value)):
            part = getattr(value, name)
            if whole or not is_later or part != default:
                out[name] = plain(part, whole=whole)
        return out
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"{value!r} is not aware")
        return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return value / timedelta(microseconds=1) / 1e6
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {str(k): plain(v, whole=whole) for k, v in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(plain(v, whole=whole) for v in value)
    if isinstance(value, Sequence):
        return [plain(v, whole=whole) for v in value]
    raise TypeError(f"{type(value).__name__} has no canonical form")


@cache
def _fields(cls: type) -> tuple[tuple[str, bool, object], ...]:
    """Return name, whether it came later, and default of each field."""
    found: list[tuple[str, bool, object]] = []
    for field in dataclasses.fields(cls):
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        found.append((field.name, "later" in field.metadata, default))
    return tuple(found)


def canonical(value: object) -> bytes:
    """Encode `value` to bytes: the same value always gives the same bytes."""
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest(value: object) -> Sha256:
    """Return the SHA-256 (hex) of the canonical encoding; bytes are hashed as they are."""
    data = value if isinstance(value, bytes) else canonical(value)
    return Sha256(hashlib.sha256(data).hexdigest())


def decode(cls: type[T], data: Any) -> T:
    """Rebuild a value of type `cls` from what `plain` made (or from JSON text or bytes of it).

    Unknown keys are refused and missing ones take the field's default, so a row of an older release still loads.

    Raises:
        ValueError: the data does not fit the type.
    """
    if isinstance(data, (bytes, str)) and dataclasses.is_dataclass(cls):
        data = json.loads(data)
    return typing.cast(T, _decoder(typing.cast(Any, cls))(data))


_Decoder = Callable[[Any], Any]


@cache
def _decoder(hint: Any) -> _Decoder:
    """Return what turns JSON types into one type; made once, since a store decodes the same few types all day."""
    if hint is Any or hint is object:
        return lambda data: data
    supertype = getattr(hint, "__supertype__", None)
    if supertype is not None:
        return _decoder(supertype)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _union(args)
    if origin is typing.Literal:
        return _literal(args)
    if isinstance(origin, type):
        return _mapping(args) if issubclass(origin, Mapping) else _container(origin, args)
    if dataclasses.is_dataclass(hint):
        return _dataclass(typing.cast(type, hint))
    return _scalar(hint)


def _literal(members: tuple[Any, ...]) -> _Decoder:
    def read(data: Any) -> Any:
        if data not in members:
            raise ValueError(f"{data!r} is none of {members}")
        return data

    return read


def _union(members: tuple[Any, ...]) -> _Decoder:
    optional = type(None) in members
    exact = tuple(t for t in (bool, int, float, str) if t in members)
    others = tuple(m for m in members if m is not type(None))

    def read(data: Any) -> Any:
        if data is None and optional:
            return None
        if isinstance(data, dict) and "_" in data:
            for member in members:
                if getattr(member, "__name__", None) == data["_"]:
                    return _decoder(member)(data)
            raise ValueError(f"{data['_']!r} is none of {members}")
        if type(data) in exact:
            return data
        for member in others:
            try:
                return _decoder(member)(data)
            except (ValueError, TypeError):
                continue
        raise ValueError(f"{data!r} is none of {members}")

    return read


def _mapping(args: tuple[Any, ...]) -> _Decoder:
    def read(data: Any) -> Any:
        if not isinstance(data, dict):
            raise ValueError(f"{data!r} is not a mapping")
        key, value = _decoder(args[0]), _decoder(args[1])
        return {key(k): value(v) for k, v in data.items()}

    return read


def _container(origin: type, args: tuple[Any, ...]) -> _Decoder:
    is_fixed = issubclass(origin, tuple) and not (len(args) == 2 and args[1] is Ellipsis)
    kind = frozenset if issubclass(origin, frozenset) else tuple

    def read(data: Any) -> Any:
        if not isinstance(data, list):
            raise ValueError(f"{data!r} is not a list")
        if is_fixed:
            if len(args) != len(data):
                raise ValueError(f"{len(data)} values where {len(args)} belong")
            return tuple(_decoder(a)(d) for a, d in zip(args, data, strict=True))
        return kind(map(_decoder(args[0]), data))

    return read


def _dataclass(cls: type) -> _Decoder:
    decoders: dict[str, _Decoder] = {}  # filled at the first value, since a class may name itself in a field

    def read(data: Any) -> Any:
        if not isinstance(data, dict):
            raise ValueError(f"{data!r} is not a {cls.__name__}")
        if data.get("_", cls.__name__) != cls.__name__:
            raise ValueError(f"a {data['_']} where a {cls.__name__} belongs")
        if not decoders:
            decoders.update((name, _decoder(hint)) for name, hint in typing.get_type_hints(cls).items())
        unknown = data.keys() - decoders.keys() - {"_"}
        if unknown:
            raise ValueError(f"{cls.__name__} has no {', '.join(sorted(unknown))}")
        try:
            return cls(**{k: decoders[k](v) for k, v in data.items() if k != "_"})
        except TypeError as e:
            raise ValueError(f"{cls.__name__}: {e}") from e

    return read


_SCALARS: Mapping[type, _Decoder] = {
    datetime: datetime.fromisoformat,
    timedelta: lambda data: timedelta(seconds=data),
    Decimal: Decimal,
    bytes: lambda data: base64.b64decode(data, validate=True),
}


def _scalar(hint: Any) -> _Decoder:
    if hint in _SCALARS:
        return _SCALARS[hint]

    def read(data: Any) -> Any:
        if isinstance(hint, type) and type(data) is hint:
            return data
        if hint is float and type(data) is int:
            return float(data)
        raise ValueError(f"{data!r} is not a {getattr(hint, '__name__', hint)}")

    return read
