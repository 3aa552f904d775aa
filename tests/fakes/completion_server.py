"""Configure, test stand-in: a server that answers one token. Run as `completion_server.py --config <unit.json>`; emulates no latency."""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class _Answer(BaseHTTPRequestHandler):
    tokens = 1
    model = ""

    def do_GET(self) -> None:
        self._send({"status": "ok"})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if asked["model"] != self.model:
            self._send({"error": "no such model"}, 404)
            return
        self._send({"choices": [{"text": "pong"}], "usage": {"prompt_tokens": 1, "completion_tokens": self.tokens}})

    def _send(self, body: dict[str, object], status: int = 200) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        pass


if __name__ == "__main__":
    config = json.loads(Path(sys.argv[sys.argv.index("--config") + 1]).read_bytes())["config"]
    _Answer.tokens, _Answer.model = int(config.get("tokens", 1)), config["model"]
    ThreadingHTTPServer(("127.0.0.1", int(config["port"])), _Answer).serve_forever()
