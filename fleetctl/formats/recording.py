"""Evidence, formats layer: recorded evidence as JSON lines: attempts and scrapes. Never a file, never a verdict.

One object a line. `{"k":"attempt","c":CELL,"a":ARM,"t0":ms,"t1":ms,"ok":true,...}` and `{"k":"scrape","c":CELL,"a":ARM,"r":REPLICA,
"t":ms,"v":{...},"b":{...}}`; times are epoch milliseconds, "+Inf" is the last bound.
"""

from __future__ import annotations

import json
from math import inf, isfinite
from typing import Any, cast

from fleetctl.domain.evidence import ARMS, Arm
from fleetctl.domain.metrics import CANONICAL
from fleetctl.domain.records import Attempt, Scrape

RECORDING_FORMAT = 1
_NUMBERS = {"lat": "latency_ms", "ttft": "ttft_ms", "tok": "token_ms", "nll": "nll"}
_COUNTS = {"pt": "prompt_tokens", "cc": "cached_tokens", "ct": "output_tokens", "pair": "pair"}
_TEXTS = {"fin": "finish", "fault": "fault", "m": "model", "co": "cohort"}
_LONGEST = {"m": 128, "co": 128}
_MOST_MS = 10**14


def to_line(record: Attempt | Scrape) -> str:
    """Return one record as a line without its end."""
    if isinstance(record, Attempt):
        row: dict[str, Any] = {"k": "attempt", "c": record.cell, "a": record.arm, "t0": record.started_ms, "t1": record.ended_ms}
        row["ok"] = not record.failed
        row |= {short: round(v, 6) for short, name in _NUMBERS.items() if (v := getattr(record, name)) is not None}
        row |= {short: v for short, name in _COUNTS.items() if (v := getattr(record, name)) >= 0}
        row |= {short: v for short, name in _TEXTS.items() if (v := getattr(record, name))}
        row |= {"ref": True} if record.refused else {}
    else:
        row = {"k": "scrape", "c": record.cell, "a": record.arm, "r": record.replica, "t": record.at_ms}
        row |= {} if record.up else {"up": False}
        row |= {"nan": True} if record.is_nan else {}
        row |= {"reset": True} if record.reset else {}
        row |= {"trouble": record.trouble} if record.trouble else {}
        row |= {"unknown": list(record.unknown)} if record.unknown else {}
        row["v"] = dict(record.values)
        row["b"] = {
            key: [["+Inf" if edge == inf else edge, n] for edge, n in sorted(edges.items())] for key, edges in record.buckets.items()
        }
    return json.dumps(row, separators=(",", ":"))


def from_line(line: bytes | str) -> Attempt | Scrape | None:
    """Return the record of a line, None for a line of another kind.

    Raises:
        ValueError: it is no object of this format; the text says what is wrong.
    """
    try:
        row = json.loads(line)
    except RecursionError as e:
        raise ValueError("nested too deep") from e
    if not isinstance(row, dict):
        raise ValueError("not an object")
    kind = row.get("k")
    if kind == "attempt":
        return _attempt(row)
    if kind == "scrape":
        return _scrape(row)
    return None


def _attempt(row: dict[str, Any]) -> Attempt:
    started, ended = _ms(row, "t0"), _ms(row, "t1")
    if ended < started:
        raise ValueError("t1 is before t0")
    if not isinstance(row.get("ok"), bool):
        raise ValueError("ok is not true or false")
    values: dict[str, Any] = {name: _number(row, short) for short, name in _NUMBERS.items() if short in row}
    values |= {name: _count(row, short) for short, name in _COUNTS.items() if short in row}
    values |= {name: _text(row, short, _LONGEST.get(short, 80)) for short, name in _TEXTS.items() if short in row}
    values.setdefault("latency_ms", None)
    values["refused"] = row.get("ref") is True
    return Attempt(cell=_text(row, "c", 64), arm=_arm(row), started_ms=started, ended_ms=ended, failed=not row["ok"], **values)


def _scrape(row: dict[str, Any]) -> Scrape:
    values, buckets = row.get("v", {}), row.get("b", {})
    if not isinstance(values, dict) or not isinstance(buckets, dict):
        raise ValueError("v and b are not mappings")
    for key in (*values, *buckets):
        if not key.startswith("counter.") and key.partition("/")[0] not in CANONICAL:
            raise ValueError(f"{key[:60]!r} is no canonical metric")
    try:
        edges = {k: {inf if e == "+Inf" else float(e): float(n) for e, n in rows} for k, rows in buckets.items()}
        plain = {k: float(v) for k, v in values.items()}
    except (TypeError, ValueError) as e:
        raise ValueError("a value or bound is no number") from e
    if not all(map(isfinite, plain.values())) or not all(isfinite(n) for rows in edges.values() for n in rows.values()):
        raise ValueError("a value is not finite")
    unknown = row.get("unknown", [])
    return Scrape(
        cell=_text(row, "c", 64),
        arm=_arm(row),
        replica=_text(row, "r", 200),
        at_ms=_ms(row, "t"),
        up=row.get("up") is not False,
        values=plain,
        buckets=edges,
        unknown=tuple(str(n)[:120] for n in unknown[:20]) if isinstance(unknown, list) else (),
        is_nan=row.get("nan") is True,
        trouble=str(row.get("trouble", ""))[:300],
        reset=row.get("reset") is True,
    )


def _arm(row: dict[str, Any]) -> Arm:
    if row.get("a") not in ARMS:
        raise ValueError(f"the arm is {str(row.get('a'))[:20]!r}, not baseline or canary")
    return cast(Arm, row["a"])


def _ms(row: dict[str, Any], key: str) -> int:
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < _MOST_MS:
        raise ValueError(f"{key} is no time in epoch milliseconds")
    return int(value)


def _number(row: dict[str, Any], key: str) -> float:
    value = row[key]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value) or value < 0:
        raise ValueError(f"{key} is no number from 0")
    return float(value)


def _count(row: dict[str, Any], key: str) -> int:
    value = row[key]
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value < 1 << 60:
        raise ValueError(f"{key} is no count")
    return value


def _text(row: dict[str, Any], key: str, most: int) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not 0 < len(value) <= most or not value.isprintable():
        raise ValueError(f"{key} is no plain text of up to {most} characters")
    return value
