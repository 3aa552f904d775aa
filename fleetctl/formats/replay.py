"""Evidence, formats layer: users' requests kept for a replay, as JSON lines under a header that says where and how long. Never a file.

    {"k":"replay","v":1,"cell":CELL,"region":REGION,"recorded":AT,"expires":AT,"opt_in":{"by":NAME,"reason":TEXT}}
    {"path":"chat/completions","body":{...}}

The first line comes first; every other line is one request, already without what may not be sent again (`fleetctl.formats.request_copy`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, timedelta
from typing import Any

from fleetctl.domain.ids import CellId, is_id
from fleetctl.domain.units import Instant
from fleetctl.formats import quantities as q
from fleetctl.formats.request_copy import CopyPath, Refused, safe_body

REPLAY_FORMAT = 1
MOST_REQUESTS = 10_000
MOST_KEPT = timedelta(days=30)
"""Longest time to live of users' texts."""
_LIMITS = ("max_tokens", "max_completion_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayHeader:
    """Under what terms requests were kept.

    Args:
        region: where they were recorded; they may be sent only in regions that the cell allows. expires: after which they are used no more.
        by, reason: who of the workload's owners opted in, and why.
    """

    cell: CellId
    region: str
    recorded: Instant
    expires: Instant
    by: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """One request: where it goes, and its body."""

    path: CopyPath
    body: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Requests with their terms; `refused` counts lines that may not be sent again, by reason."""

    header: ReplayHeader
    requests: tuple[ReplayRequest, ...]
    refused: Counter[str] = field(default_factory=Counter)


def header_line(h: ReplayHeader) -> str:
    """Return the first line of a recording."""
    row = {"k": "replay", "v": REPLAY_FORMAT, "cell": h.cell, "region": h.region}
    times = {"recorded": _text(h.recorded), "expires": _text(h.expires)}
    return json.dumps({**row, **times, "opt_in": {"by": h.by, "reason": h.reason}}, separators=(",", ":"))


def _text(at: Instant) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def request_line(data: object) -> str:
    """Return a request as a line, without what may not be sent again.

    Raises:
        Refused: it may not be sent again.
    """
    found = _request(data)
    return json.dumps({"path": found.path, "body": found.body}, separators=(",", ":"), ensure_ascii=False)


def _request(data: object) -> ReplayRequest:
    path, kept = safe_body(data)
    limits = data if isinstance(data, dict) else {}
    return ReplayRequest(path=path, body=kept | {k: limits[k] for k in _LIMITS if type(limits.get(k)) is int})


def read_header(line: bytes | str) -> ReplayHeader:
    """Read the first line.

    Raises:
        ValueError: what is missing or wrong.
    """
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as e:
        raise ValueError("its first line is no JSON") from e
    if not isinstance(row, dict) or row.get("k") != "replay" or row.get("v") != REPLAY_FORMAT:
        raise ValueError(f"its first line is no header of a replay of format {REPLAY_FORMAT}")
    opt_in = row.get("opt_in")
    by, reason = (str(opt_in.get(k, "")).strip() for k in ("by", "reason")) if isinstance(opt_in, dict) else ("", "")
    if not by or not reason or not f"{by}{reason}".isprintable() or len(by) > 200 or len(reason) > 500:
        raise ValueError("nobody opted in: opt_in needs by and reason")
    cell, region = row.get("cell"), row.get("region")
    if not isinstance(cell, str) or not is_id(cell) or not isinstance(region, str) or not region:
        raise ValueError("it does not say of which cell and region it is")
    try:
        recorded, expires = (q.parse_instant(row.get(k)) for k in ("recorded", "expires"))
    except ValueError as e:
        raise ValueError(f"recorded and expires must be times: {e}") from e
    if not recorded < expires <= recorded + MOST_KEPT:
        raise ValueError(f"expires must be after recorded, by at most {MOST_KEPT.days} days")
    return ReplayHeader(cell=CellId(cell), region=region, recorded=recorded, expires=expires, by=by, reason=reason)


def read_replay(lines: Iterable[bytes]) -> Replay:
    """Read a whole recording; lines that may not be sent again, or are cut, are counted and left out.

    Raises:
        ValueError: the header is missing or wrong, or no request is left.
    """
    rows = iter(lines)
    header = read_header(next(rows, b""))
    found: list[ReplayRequest] = []
    refused: Counter[str] = Counter()
    for line in rows:
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            found.append(_request(row.get("body") if isinstance(row, dict) else None))
        except (ValueError, RecursionError):
            refused["not_json"] += 1
            continue
        except Refused as e:
            refused[str(e)] += 1
            continue
        if len(found) == MOST_REQUESTS:
            break
    if not found:
        raise ValueError("it holds no request that may be sent again")
    return Replay(header=header, requests=tuple(found), refused=refused)
