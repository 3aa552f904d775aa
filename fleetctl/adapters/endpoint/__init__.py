"""Bench, adapters layer: drives an OpenAI-compatible endpoint with a trace, open loop. Never retries; never stores a text."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from fleetctl.domain.bench import Answered, Asked
from fleetctl.errors import ConfigInvalid

MOST_AT_ONCE = 256
WORD = "data "
"""About one token in the tokenisers of Llama, Qwen and GPT; what the engine counted is what is recorded."""


class Endpoint:
    """One endpoint.

    Args:
        url: base, such as http://127.0.0.1:8000; model: name that it serves; key: read at use, None for none.
    """

    def __init__(self, url: str, model: str, *, key: Callable[[], str] | None = None, timeout_s: float = 120.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigInvalid("bench.endpoint", f"{url!r} is no http or https address.", hint="Such as http://127.0.0.1:8000")
        self._parts, self._model, self._key, self._timeout = parts, model, key, timeout_s

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
                running.append(pool.submit(self._one, one, begin))
            return tuple(r.result() for r in running)

    def _one(self, asked: Asked, begin: float) -> Answered:
        body = {
            "model": self._model,
            "prompt": WORD * max(1, asked.input_tokens),
            "max_tokens": max(1, asked.output_tokens),
            "temperature": 0,
            "ignore_eos": True,
        }
        sent = time.monotonic()
        first = sent
        try:
            connection = self._connect()
            try:
                headers = {"Content-Type": "application/json"}
                if self._key is not None:
                    headers["Authorization"] = f"Bearer {self._key()}"
                connection.request("POST", self._parts.path.rstrip("/") + "/v1/completions", json.dumps(body), headers)
                answer = connection.getresponse()
                data = answer.read(1)
                first = time.monotonic()
                data += answer.read(16 * 1024 * 1024)
            finally:
                connection.close()
            error = "" if answer.status == 200 else f"status_{answer.status}"
            tokens = int(json.loads(data)["usage"]["completion_tokens"]) if not error else 0
        except TimeoutError:
            error, tokens = "timeout", 0
        except (OSError, http.client.HTTPException):
            error, tokens = "connect", 0
        except (ValueError, KeyError, TypeError):
            error, tokens = "malformed", 0
        end = time.monotonic()
        return Answered(sent_s=sent - begin, ttft_ms=(first - sent) * 1000, whole_ms=(end - sent) * 1000, output_tokens=tokens, error=error)

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=self._timeout, context=ssl.create_default_context())
        return http.client.HTTPConnection(host, port, timeout=self._timeout)
