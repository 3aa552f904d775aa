"""A small HTTP double on loopback: answers by path from a table, notes what was asked, and fails as told."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Answer = Any
"""JSON data, text, (status, data) or a function of (query, headers) that gives one of these."""


class JsonAnswers(BaseHTTPRequestHandler):
    """What handlers of doubles of JSON APIs share: silent, and each answer is JSON with its length."""

    def answer(self, status: int, data: Any) -> None:
        """Send a status and its data."""
        text = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def body(self) -> Any:
        """Return the data that was sent."""
        return json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class JsonDouble:
    """The running double.

    Args:
        answers: by path, or by "METHOD path".
    """

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.answers = dict(answers)
        self.asked: list[tuple[str, str, dict[str, list[str]]]] = []
        self.headers: list[dict[str, str]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=10)


def _handler(double: JsonDouble) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer("")

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            self._answer(self.rfile.read(length).decode())

        def _answer(self, body: str) -> None:
            parts = urlsplit(self.path)
            query = parse_qs(parts.query) | parse_qs(body)
            double.asked.append((self.command, parts.path, query))
            double.headers.append(dict(self.headers.items()))
            found = double.answers.get(f"{self.command} {parts.path}", double.answers.get(parts.path, (404, {"message": "not there"})))
            if isinstance(found, Callable):  # type: ignore[arg-type]
                found = found(query, dict(self.headers.items()))
            status, data, *more = found if isinstance(found, tuple) else (200, found)
            text = data if isinstance(data, str) else json.dumps(data)
            self.send_response(status)
            self.send_header("Content-Type", "text/plain" if isinstance(data, str) else "application/json")
            self.send_header("Content-Length", str(len(text.encode())))
            for name, value in (more[0] if more else {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler


@contextmanager
def json_double(answers: Mapping[str, Answer]) -> Iterator[JsonDouble]:
    """Serve as long as the block runs."""
    double = JsonDouble(answers)
    try:
        yield double
    finally:
        double.close()
