"""Evidence, adapter layer: one streamed completion, timed token by token. Keeps no text but what an error says, never retries."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fleetctl.analysis.faults import classify

MOST_LINE = 1 << 20
MOST_EVENTS = 65_536
_ERROR_KEPT = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """How an arm is reached.

    Args:
        host, port: of a router or a replica; path: before /v1; headers: such as the one that pins the arm.
        server_header: an answer's header that names the server, "" where there is none; server_starts: how its name must begin, else
            another arm answered and the probe counts as an error.
    """

    host: str
    port: int
    path: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    server_header: str = ""
    server_starts: str = ""
    ca_file: str | None = None
    is_tls: bool = False


@dataclass(slots=True, kw_only=True)
class Answer:
    """What one streamed completion came to; times in seconds since its start."""

    started_ms: int
    failed: bool = True
    why: str = ""
    fault: str = ""
    first_s: float | None = None
    last_s: float = 0.0
    whole_s: float = 0.0
    tokens: int = 0
    logprobs: list[float] = field(default_factory=list)
    prompt_tokens: int = -1
    cached_tokens: int = -1
    finish: str = ""


Api = Literal["chat", "completions"]


def ask(side: Side, body: Mapping[str, Any], api: Api, *, limit_s: float) -> Answer:
    """Send one prompt, read its stream to the end and say how long each part took; a failure is an answer too."""
    answer = Answer(started_ms=round(time.time() * 1_000))
    began = time.perf_counter()
    link: http.client.HTTPConnection | None = None
    try:
        if side.is_tls:
            link = http.client.HTTPSConnection(
                side.host, side.port, timeout=limit_s, context=ssl.create_default_context(cafile=side.ca_file)
            )
        else:
            link = http.client.HTTPConnection(side.host, side.port, timeout=limit_s)
        path = f"{side.path}/v1/{'chat/completions' if api == 'chat' else 'completions'}"
        link.request("POST", path, json.dumps(body), {"content-type": "application/json", "accept": "text/event-stream", **side.headers})
        _read(link.getresponse(), side, answer, began, began + limit_s)
    except (OSError, http.client.HTTPException, ValueError, RecursionError) as e:
        answer.failed, answer.why = True, answer.why or type(e).__name__
    finally:
        answer.whole_s = time.perf_counter() - began
        if link is not None:
            link.close()
    return answer


def _read(response: http.client.HTTPResponse, side: Side, answer: Answer, began: float, end: float) -> None:
    if response.status != 200:
        text = response.read(_ERROR_KEPT).decode("utf-8", "replace")
        answer.why = f"status {response.status}"
        answer.fault = classify(text) if response.status >= 500 else ""  # a refusal quotes the request, and a request may quote a fault
        return
    server = response.getheader(side.server_header) or "" if side.server_header else ""
    if side.server_header and not server.startswith(side.server_starts):
        answer.why = "a server of the other arm answered"
        return
    for _ in range(MOST_EVENTS):
        line = response.readline(MOST_LINE)
        now = time.perf_counter()
        if not line:
            answer.why = answer.why or "the stream was cut"
            return
        if now > end:
            answer.why = "no end in time"
            return
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            answer.failed = answer.first_s is None
            answer.why = "no token" if answer.failed else ""
            return
        _event(json.loads(data), answer, now - began)
        if answer.fault:
            return
    answer.why = "too many events"


def _event(event: Any, answer: Answer, at_s: float) -> None:
    if not isinstance(event, dict):
        return
    if "error" in event:
        answer.why, answer.fault = "an error in the stream", classify(json.dumps(event["error"])[:_ERROR_KEPT]) or "unclassified"
        return
    _usage(event.get("usage"), answer)
    choices = event.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None
    if choice is None:
        return
    delta = choice.get("delta")
    text = (
        (delta.get("content") or delta.get("reasoning_content") or delta.get("reasoning"))
        if isinstance(delta, dict)
        else choice.get("text")
    )
    logprobs = _logprobs(choice.get("logprobs"))
    if text or logprobs:
        answer.first_s = at_s if answer.first_s is None else answer.first_s
        answer.last_s = at_s
        answer.tokens += max(1, len(logprobs))
        answer.logprobs += logprobs
    finish = choice.get("finish_reason")
    if isinstance(finish, str) and finish.isprintable():
        answer.finish = finish[:40]


def _usage(usage: Any, answer: Answer) -> None:
    if not isinstance(usage, dict):
        return
    if type(usage.get("prompt_tokens")) is int:
        answer.prompt_tokens = usage["prompt_tokens"]
    if type(usage.get("completion_tokens")) is int and usage["completion_tokens"] > 0:
        answer.tokens = usage["completion_tokens"]
    details = usage.get("prompt_tokens_details")
    if isinstance(details, dict) and type(details.get("cached_tokens")) is int:
        answer.cached_tokens = details["cached_tokens"]


def _logprobs(found: Any) -> list[float]:
    """Return the log-probabilities of an event's tokens, in either shape of the API."""
    if not isinstance(found, dict):
        return []
    content = found.get("content")
    values = [t.get("logprob") for t in content if isinstance(t, dict)] if isinstance(content, list) else found.get("token_logprobs")
    return [float(v) for v in values if isinstance(v, (int, float)) and -1e4 < v <= 0] if isinstance(values, list) else []
