"""Every step, adapters layer: one message of notices of one cause, in each kind of channel's form. Never sends.

Source: Slack, "Sending messages using incoming webhooks"; PagerDuty, "Events API v2: Send an Alert Event".
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Sequence

from fleetctl.domain.event import Event
from fleetctl.domain.runbook import runbook_for
from fleetctl.views.columns import clean, counted
from fleetctl.views.redact import Redactor

SIGNATURE = "X-Fleetctl-Signature"
MOST_CELLS = 30
LONGEST = 1_000
_SEVERITY = {"page": "critical", "warning": "warning", "info": "info"}
_HIDDEN = Redactor({})


def level_of(e: Event) -> str:
    """Return info, warning or page."""
    level = e.kind.removeprefix("notify.")
    return level if level in _SEVERITY else "info"


def cause_of(e: Event) -> str:
    """Return what notices are grouped by: level, cause, and how a cell ended."""
    return "/".join((level_of(e), str(e.data.get("cause", "")), str(e.data.get("ended", ""))))


def text_of(notices: Sequence[Event]) -> str:
    """Return one sentence for notices of one cause, with the runbook of a page; what could be a secret or drive a terminal is hidden."""
    first = notices[0]
    text = first.text
    cells = list(dict.fromkeys(str(e.cell) for e in notices if e.cell is not None))
    if len(cells) > 1:
        shown = ", ".join(cells[:MOST_CELLS]) + (f" and {len(cells) - MOST_CELLS} more" if len(cells) > MOST_CELLS else "")
        text = f"{counted(len(cells), 'cell')}: {text} ({shown})"
    book = runbook_line(first)
    return clean(_HIDDEN.text(text))[: LONGEST - len(book)] + book


def runbook_line(e: Event) -> str:
    """Return where a person who is paged finds what to do, "" where nobody is."""
    if level_of(e) != "page" or e.cell is None:
        return ""
    return f" Runbook: fleetctl runbook show {e.cell} {runbook_for(str(e.data.get('cause', '')), e.text)}"


def id_of(notices: Sequence[Event]) -> str:
    """Return the same id for the same notices, so that a receiver can tell a second delivery."""
    parts = [f"{e.at.isoformat()}|{e.kind}|{e.cell}|{e.text}" for e in notices]
    return hashlib.sha256("\n".join(parts).encode("utf-8", "replace")).hexdigest()[:32]


def slack_body(fleet: str, notices: Sequence[Event]) -> bytes:
    """Return the body for a Slack-compatible webhook."""
    sign = {"page": ":rotating_light: ", "warning": ":warning: "}.get(level_of(notices[0]), "")
    text = text_of(notices).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return json.dumps({"text": f"{sign}[{fleet}] {text}"}).encode()


def pagerduty_body(fleet: str, notices: Sequence[Event], key: str) -> bytes:
    """Return the body for PagerDuty's events API: an incident of its own, since one that is still open swallows what has its key.

    Tried again with more notices of the cause behind the first, it is the same incident.
    """
    first, cause = notices[0], cause_of(notices[0])
    payload = {
        "summary": f"[{fleet}] {text_of(notices)}",
        "source": f"fleetctl/{fleet}",
        "severity": _SEVERITY[level_of(first)],
        "timestamp": first.at.isoformat(),
        "class": cause,
        "custom_details": {"cells": sorted({str(e.cell) for e in notices if e.cell})[:MOST_CELLS], "id": id_of(notices)},
    }
    mark = hashlib.sha256(f"{fleet}|{cause}|{id_of(notices[:1])}".encode()).hexdigest()[:32]
    return json.dumps({"routing_key": key, "event_action": "trigger", "dedup_key": mark, "payload": payload}).encode()


def webhook_body(fleet: str, notices: Sequence[Event]) -> bytes:
    """Return the body for a generic webhook."""
    first = notices[0]
    value = {
        "format_version": 1,
        "id": id_of(notices),
        "fleet": fleet,
        "at": first.at.isoformat(),
        "level": level_of(first),
        "cause": str(first.data.get("cause", "")),
        "ended": str(first.data.get("ended", "")),
        "cells": sorted({str(e.cell) for e in notices if e.cell}),
        "text": text_of(notices),
    }
    return json.dumps(value).encode()


def signature(body: bytes, key: str, at_s: int) -> str:
    """Return the header that proves a body and its time: HMAC-SHA256 over "<epoch seconds>.<body>"."""
    mark = hmac.new(key.encode(), f"{at_s}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at_s},v1={mark}"
