"""Bench: one emulated side of a cell. It answers after a fixed time and says who it is; it has a prefix cache per conversation, no model.

Run as `python -m tests.bench.traffic.engine NAME PORT PLAIN_MS TOKEN_MS`; prints its port when it listens.
"""

from __future__ import annotations

import asyncio
import json
import sys

from fleetctl.lab.http_server import Connection, Request, Server
from fleetctl.lab.sampler import PrefixCache, prompt_tokens

ANSWER = '{"choices":[{"text":"ok"}],"server":"%s","usage":{"prompt_tokens":%d,"completion_tokens":1,"prompt_tokens_details":%s}}'
PIN = "x-fleetctl-pin"


class Engine:
    """Answers plain requests after `plain_s`, streams one token every `token_s`."""

    def __init__(self, name: str, plain_s: float, token_s: float) -> None:
        self.name, self.plain_s, self.token_s = name, plain_s, token_s
        self.cache = PrefixCache()
        self.loop = asyncio.get_running_loop()

    def handle(self, request: Request, reply: Connection) -> None:
        """Answer one request."""
        ask = json.loads(request.body) if request.body else {}
        prompt = str(ask.get("prompt", ""))
        if "x-fleetctl-check" in request.headers:
            reply.respond(200, self._whole(prompt, 0))
        elif ask.get("stream"):
            reply.begin("text/event-stream")
            self.loop.call_later(self.token_s, self._token, reply, int(ask.get("max_tokens", 6)))
        else:
            cached = self.cache.look(request.headers.get("x-conversation-id") or str(ask.get("user", "")), prompt)
            self.loop.call_later(self.plain_s, reply.respond, 200, self._whole(prompt, cached))

    def _whole(self, prompt: str, cached: int) -> bytes:
        return (ANSWER % (self.name, prompt_tokens(prompt), json.dumps({"cached_tokens": cached}))).encode()

    def _token(self, reply: Connection, left: int) -> None:
        if left > 1:
            reply.send(b'data: {"choices":[{"text":"ok"}]}\n\n')
            self.loop.call_later(self.token_s, self._token, reply, left - 1)
            return
        reply.send(b'data: {"server":"%s"}\n\ndata: [DONE]\n\n' % self.name.encode())
        reply.end()


async def serve(name: str, port: int, plain_ms: float, token_ms: float) -> None:
    """Serve until killed."""
    engine = Engine(name, plain_ms / 1_000, token_ms / 1_000)
    server = Server(engine.handle)
    print(await server.start(port), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])))
