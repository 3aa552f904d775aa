"""Provision, planning layer: an answer of a cloud or of Terraform -> exactly one action. Pure; never asks a cloud.

The same refusal comes in three shapes: the body of a refused request, the error of a long-running operation that began
well, and the text of a
provider's diagnostic, often with codes wrapped in codes. All three end in one `Trouble`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from fleetctl.domain.pool import Priority
from fleetctl.planning.provision_codes import CONSTRAINTS, PHRASES, ROWS, Action, Cloud, Row, Scope

Shape = Literal["request", "operation", "diagnostic"]

UNKNOWN = "unknown"
_NO_QUOTA_AT_ALL = timedelta(hours=1)
_DEFAULT_WAIT = timedelta(seconds=60)
_BY_CODE = {row.code.lower(): row for row in ROWS}
_WORD = re.compile(r"[A-Za-z][A-Za-z.]{3,60}")
_PLAIN = re.compile(r"[A-Z][a-z]+\Z")
_AS_CODE = r'<Code>\s*{0}\s*<|code: {0}\Z|\b{0}:|"{0}"'
"""How a code that is also a common word ("Unsupported argument" is Terraform's) is written where it is the code."""
_TAGGED = re.compile(r"<Code>\s*([A-Za-z.]{1,80})\s*</Code>", re.IGNORECASE)
_NUMBERS = {
    "limit": re.compile(r"current limit\s*(?:\(or quota\))?:\s*(\d+)|current vcpu limit of (\d+)", re.IGNORECASE),
    "used": re.compile(r"current usage:\s*(\d+)", re.IGNORECASE),
    "required": re.compile(r"additional required:\s*(\d+)", re.IGNORECASE),
    "least": re.compile(r"minimum\)?\s*new limit required:\s*(\d+)", re.IGNORECASE),
}
_QUOTA_NAME = re.compile(r"approved\s+(.{1,80}?)\s+quota", re.IGNORECASE)
_AFTER = re.compile(r"retry[- ]after\"?:?\s*(\d{1,5})", re.IGNORECASE)
_MESSAGE = re.compile(r'\bMessage: "([^"]{8,2000})"')
"""What the cloud said, within the wrapping that azurerm puts around it."""
_LONGEST = 20_000
_DEEPEST = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaGap:
    """What a quota message names; -1 for a number that it does not give.

    Args:
        name: of the quota as the cloud wrote it, never built; least: the lowest limit that would do, in vCPUs.
    """

    name: str
    limit: int = -1
    used: int = -1
    required: int = -1
    least: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """What a refusal means.

    Args:
        action: exactly one; scope: what is closed, for `block`.
        leaves: something half made may be left behind and must be looked for.
        constraints: settings of the pool that an Overconstrained message blames; a person may give way, fleetctl never does by itself.
        wait: for WAIT_RETRY, how long.
    """

    code: str
    cloud: Cloud | None
    action: Action
    scope: Scope
    block: timedelta
    leaves: bool
    text: str
    quota: QuotaGap | None = None
    constraints: tuple[str, ...] = ()
    wait: timedelta = timedelta()


def classify(answer: object, *, priority: Priority = "regular", status: int = 0, retry_after_s: float | None = None) -> Trouble:
    """Return what an answer means, whichever of the three shapes it has.

    Args:
        answer: parsed JSON (a request's or an operation's body), or text (XML, or a diagnostic).
        status: HTTP status where there is one: 401 and 403 mean access, 429 means wait, where no code says more.
        retry_after_s: of the answer's header, seconds.
    """
    texts = tuple(_texts(answer, 0))
    whole = "\n".join(texts)[:_LONGEST]
    row = _best(texts, whole.lower()) or _by_status(status)
    text = _telling(texts, row)
    if row is None:
        return Trouble(code=UNKNOWN, cloud=None, action=Action.ASK, scope="none", block=timedelta(), leaves=True, text=text)
    quota = _quota(whole) if row.action is Action.RAISE_QUOTA else None
    return Trouble(
        code=row.code,
        cloud=row.cloud,
        action=row.action,
        scope="spot" if quota is not None and "lowpriority" in quota.name.lower() else row.scope,
        block=_block(row, priority, quota),
        leaves=row.leaves,
        text=text,
        quota=quota,
        constraints=_blamed(row, whole.lower()),
        wait=_wait(whole, retry_after_s) if row.action is Action.WAIT_RETRY else timedelta(),
    )


def _blamed(row: Row, lower: str) -> tuple[str, ...]:
    if not row.code.startswith("Overconstrained"):
        return ()
    return tuple(dict.fromkeys(setting for word, setting in CONSTRAINTS if word in lower))


def _texts(answer: object, depth: int) -> Iterator[str]:
    """Yield every string of an answer, codes as `code: X`; JSON inside a string is opened."""
    if depth > _DEEPEST:
        return
    if isinstance(answer, Mapping):
        for key, value in answer.items():
            if str(key).lower() in {"code", "errorcode"} and isinstance(value, str):
                yield f"code: {value}"
            else:
                yield from _texts(value, depth + 1)
    elif isinstance(answer, (list, tuple)):
        for item in answer:
            yield from _texts(item, depth + 1)
    elif isinstance(answer, str):
        opened = _opened(answer)
        if opened is not None:
            yield from _texts(opened, depth + 1)
        else:
            yield answer[:_LONGEST]


def _opened(text: str) -> object | None:
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        found: object = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, (dict, list)) else None


def _best(texts: tuple[str, ...], lower: str) -> Row | None:
    named = ((word, text) for text in texts for word in (*_TAGGED.findall(text), *_WORD.findall(text)))
    known = ((word, text, row) for word, text in named if (row := _BY_CODE.get(word.lower().rstrip("."))) is not None)
    rows = {row.code: row for word, text, row in known if _is_named(word, row, text)}
    fitting = [row for row in rows.values() if not row.needs or any(word in lower for word in row.needs)]
    if not fitting:
        by_phrase = next((code for phrase, code in PHRASES if phrase in lower), None)
        fitting = [_BY_CODE[by_phrase.lower()]] if by_phrase is not None else []
    return max(fitting, key=lambda row: (row.rank, row.code), default=None)


def _is_named(word: str, row: Row, text: str) -> bool:
    """Tell a code from a common word of the same letters: codes keep their capitals, and one that is a word stands as a code does."""
    if word.rstrip(".") != row.code:
        return False
    return not _PLAIN.match(row.code) or re.search(_AS_CODE.format(row.code), text) is not None


def _by_status(status: int) -> Row | None:
    if status in {401, 403}:
        return _BY_CODE["authorizationfailed"]
    return _BY_CODE["toomanyrequests"] if status == 429 else None


def _block(row: Row, priority: Priority, quota: QuotaGap | None) -> timedelta:
    if quota is not None and quota.limit == 0:
        return _NO_QUOTA_AT_ALL
    return row.block_spot if priority == "spot" and row.block_spot is not None else row.block


def _quota(whole: str) -> QuotaGap:
    name = _QUOTA_NAME.search(whole)
    numbers = {key: _number(pattern, whole) for key, pattern in _NUMBERS.items()}
    return QuotaGap(name=name[1] if name else "", **numbers)


def _number(pattern: re.Pattern[str], whole: str) -> int:
    found = pattern.search(whole)
    return int(next(g for g in found.groups() if g is not None)) if found else -1


def _wait(whole: str, retry_after_s: float | None) -> timedelta:
    if retry_after_s is not None and 0 <= retry_after_s < 86_400:
        return timedelta(seconds=retry_after_s)
    found = _AFTER.search(whole)
    return timedelta(seconds=int(found[1])) if found else _DEFAULT_WAIT


def _telling(texts: tuple[str, ...], row: Row | None) -> str:
    said = [t for t in texts if not t.startswith("code: ")] or list(texts)
    best = next((t for t in said if row is not None and row.code in t), None) or max(said, key=len, default="no reason was given")
    quoted = _MESSAGE.search(best)
    best = quoted[1] if quoted else best
    line = " ".join("".join(c if c.isprintable() else " " for c in best).split())
    return line if len(line) <= 400 else line[:399] + "…"
