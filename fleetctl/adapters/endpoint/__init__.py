"""Bench, adapters layer: drives an OpenAI-compatible endpoint with a trace, open loop. Never retries; never stores a text."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from urllib.parse import urlsplit

from fleetctl.domain.bench import Answered, Asked
from fleetctl.errors import ConfigInvalid

MOST_AT_ONCE = 256
MOST_BYTES, MOST_LINE = 64 * 1024 * 1024, 1024 * 1024
WORD = "data "
"""About one token in the tokenisers of Llama, Qwen and GPT; what the engine counted is what is recorded."""


class Endpoint:
    """One endpoint.

    Args:
        url: base, such as http://127.0.0.1:8000; model: name that it serves; key: read at use, None for none.
    """

    def __init__(self, url: str, model: str, *, key: Callable[[], str] | None = None, timeout_s: float = 120.0) -> None:
        if fault := _fault(url):
            raise ConfigInvalid("bench.endpoint", f"{url[:200]!r} {fault}.", hint="Such as http://127.0.0.1:8000")
        parts = urlsplit(url)
        self._parts, self._model, self._key, self._timeout = parts, model, key, timeout_s
        self._numbers = count()

    def drive(self, asked: Sequence[Asked], stop: Callable[[], bool] = lambda: False) -> tuple[Answered, ...]:
        """Send each request at its time whether or not earlier ones have ended (at most 256 at once), and return how each ended."""
        begin = time.monotonic()
        with ThreadPoolExecutor(max_workers=min(MOST_AT_ONCE, len(asked))) as pool:
            running = []
            for one in asked:
                left = begin + one.at_s - time.monotonic()
                if left > 0:
                    time.sleep(left)
                if stop():
                    break
                running.append(pool.submit(self._one, next(self._numbers), one, begin + one.at_s, begin))
            return tuple(r.result() for r in running)

    def _one(self, number: int, asked: Asked, due: float, begin: float) -> Answered:
        """Send one request; its times count from when it was due, so that one who waited for a free place here is no faster for it."""
        body = {
            "model": self._model,
            "prompt": f"{number} {WORD * max(1, asked.input_tokens - 2)}",  # of its own from the start: no cached prefix flatters it
            "max_tokens": max(1, asked.output_tokens),
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        first: float | None = None
        tokens = 0
        try:
            connection = self._connect()
            try:
                headers = {"Content-Type": "application/json"}
                if self._key is not None:
                    headers["Authorization"] = f"Bearer {self._key()}"
                connection.request("POST", self._parts.path.rstrip("/") + "/v1/completions", json.dumps(body), headers)
                answer = connection.getresponse()
                error = "" if answer.status == 200 else f"status_{answer.status}"
                if error:
                    answer.read(MOST_BYTES)
                elif "event-stream" in (answer.getheader("content-type") or ""):
                    first, tokens = _streamed(answer)
                else:
                    tokens = int(json.loads(answer.read(MOST_BYTES))["usage"]["completion_tokens"])
            finally:
                connection.close()
        except TimeoutError:
            error = "timeout"
        except (OSError, http.client.HTTPException):
            error = "connect"
        except (ValueError, KeyError, TypeError):
            error = "malformed"
        end = time.monotonic()
        return Answered(
            sent_s=due - begin,
            ttft_ms=None if first is None or error else (first - due) * 1000,
            whole_ms=(end - due) * 1000,
            output_tokens=0 if error else tokens,
            error=error,
        )

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=self._timeout, context=ssl.create_default_context())
        return http.client.HTTPConnection(host, port, timeout=self._timeout)


def _fault(url: str) -> str:
    """Return why no request can be sent to an address, "" where it can."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as e:
        return f"is no address: {e}"
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        return "is no http or https address"
    if any(c.isspace() or not c.isprintable() or ord(c) > 126 for c in url):
        return "has a blank or a letter that an address cannot have"
    if parts.username is not None or parts.query or parts.fragment:
        return "holds more than scheme, host, port and path; a key goes into FLEETCTL_BENCH_KEY"
    return ""


def _streamed(answer: http.client.HTTPResponse) -> tuple[float | None, int]:
    """Read server-sent events to their end; returns when the first token came, and how many tokens the engine counts.

    Raises:
        ValueError, KeyError, TypeError: it is no stream of completions, or ends without [DONE] or a count.
    """
    first: float | None = None
    tokens: int | None = None
    size = 0
    while line := answer.readline(MOST_LINE):
        size += len(line)
        if size > MOST_BYTES:
            raise ValueError("too long")
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            if tokens is None:
                raise ValueError("no usage")
            return first, tokens
        event = json.loads(data)
        if first is None and any(c.get("text") for c in event.get("choices") or ()):
            first = time.monotonic()
        if event.get("usage"):
            tokens = int(event["usage"]["completion_tokens"])
    raise ValueError("cut off")
