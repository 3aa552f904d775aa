"""Evidence, formats layer: users' requests kept for a replay, as JSON lines under a header that says where and how long. Never a file.

    {"k":"replay","v":2,"cell":CELL,"region":REGION,"recorded":AT,"expires":AT,"opt_in":{"by":NAME,"reason":TEXT},
     "tenant":KEY,"cipher":"AES-256-GCM","key":ID}
    {"n":...,"d":...}

The first line comes first; every other line is one request, encrypted (`fleetctl.formats.sealed`). Decrypted it is
`{"tenant":NAME,"path":"chat/completions","body":{...}}`, already without what may not be sent again (`fleetctl.formats.request_copy`).
Format 1 was plain text and is refused.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import UTC, timedelta
from typing import Any

from fleetctl.domain.ids import CellId, is_id
from fleetctl.domain.units import Instant
from fleetctl.formats import quantities as q
from fleetctl.formats.request_copy import CopyPath, Refused, safe_body
from fleetctl.formats.sealed import CIPHER, Seal, key_id

REPLAY_FORMAT = 2
MOST_REQUESTS = 10_000
MOST_KEPT = timedelta(days=30)
"""Longest time to live of users' texts."""
MOST_TENANT = 200
_LIMITS = ("max_tokens", "max_completion_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayHeader:
    """Under what terms requests were kept.

    Args:
        region: where they were recorded; they may be sent only in regions that the cell allows. expires: after which they are used no more.
        by, reason: who of the workload's owners opted in, and why.
        tenant: key of a request's body that names its tenant, such as `user` or `metadata.org`; "" where the whole cell is one tenant's,
            named as the cell. key_id: of the key that its lines are encrypted with.
    """

    cell: CellId
    region: str
    recorded: Instant
    expires: Instant
    by: str
    reason: str
    tenant: str
    key_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """One request: where it goes, its body, and whose it is."""

    path: CopyPath
    body: dict[str, Any]
    tenant: str = ""


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
    kept = {"opt_in": {"by": h.by, "reason": h.reason}, "tenant": h.tenant, "cipher": CIPHER, "key": h.key_id}
    return json.dumps({**row, **times, **kept}, separators=(",", ":"))


def _text(at: Instant) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def request_text(data: object, tenant: str) -> str:
    """Return a request as the text that is to be encrypted, without what may not be sent again.

    Raises:
        Refused: it may not be sent again.
    """
    found = _request(data)
    row = {"tenant": tenant, "path": found.path, "body": found.body}
    return json.dumps(row, separators=(",", ":"), ensure_ascii=False)


def tenant_of(data: object, key: str, cell: str) -> str:
    """Return whose a request is.

    Args:
        key: as in a header; cell: the tenant where it is "".

    Raises:
        Refused: it names nobody, so nobody could have opted out.
    """
    if not key:
        return cell
    found = data
    for part in key.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    if not isinstance(found, str) or not found.strip() or len(found) > MOST_TENANT:
        raise Refused("no_tenant")
    return found.strip()


def opted_out(text: str) -> frozenset[str]:
    """Return who opted out: one tenant a line, `#` begins a remark."""
    return frozenset(t for line in text.splitlines() if (t := line.strip()) and not t.startswith("#"))


def _request(data: object, tenant: str = "") -> ReplayRequest:
    path, kept = safe_body(data)
    limits = data if isinstance(data, dict) else {}
    return ReplayRequest(path=path, body=kept | {k: limits[k] for k in _LIMITS if type(limits.get(k)) is int}, tenant=tenant)


def read_header(line: bytes | str) -> ReplayHeader:
    """Read the first line.

    Raises:
        ValueError: what is missing or wrong.
    """
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as e:
        raise ValueError("its first line is no JSON") from e
    if isinstance(row, dict) and row.get("k") == "replay" and row.get("v") == 1:
        raise ValueError("users' texts in it are not encrypted (format 1): remove it and record again")
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
    if row.get("cipher") != CIPHER or not isinstance(row.get("key"), str):
        raise ValueError(f"users' texts in it are not encrypted by {CIPHER}")
    tenant = row.get("tenant")
    if not isinstance(tenant, str) or len(tenant) > MOST_TENANT:
        raise ValueError("it does not say which key of a request names its tenant, so nobody could opt out")
    return ReplayHeader(
        cell=CellId(cell), region=region, recorded=recorded, expires=expires, by=by, reason=reason, tenant=tenant, key_id=row["key"]
    )


def read_replay(lines: Iterable[bytes], key: bytes, out: Collection[str] = ()) -> Replay:
    """Read a whole recording; lines that may not be sent again, are cut or changed, or whose tenant opted out are counted and left out.

    Args:
        key: 32 bytes; out: tenants who opted out.

    Raises:
        ValueError: the header is missing or wrong, the key is another, or no request is left.
    """
    rows = iter(lines)
    first = next(rows, b"")
    header = read_header(first)
    if header.key_id != key_id(key):
        raise ValueError(f"it was encrypted with another key ({header.key_id})")
    seal = Seal(key, first.rstrip(b"\r\n"))
    found: list[ReplayRequest] = []
    refused: Counter[str] = Counter()
    for line in rows:
        if not line.strip():
            continue
        try:
            row = json.loads(seal.text(line))
            tenant = str(row.get("tenant") or "") if isinstance(row, dict) else ""
            if not tenant or tenant in out:
                raise Refused("opted_out" if tenant else "no_tenant")
            found.append(_request(row.get("body"), tenant))
        except (ValueError, RecursionError):
            refused["not_readable"] += 1
            continue
        except Refused as e:
            refused[str(e)] += 1
            continue
        if len(found) == MOST_REQUESTS:
            break
    if not found:
        told = ", ".join(f"{n} {why}" for why, n in sorted(refused.items()))
        raise ValueError("it holds no request that may be sent again" + (f" ({told})" if told else ""))
    return Replay(header=header, requests=tuple(found), refused=refused)
