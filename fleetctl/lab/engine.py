"""Lab, lab layer: the emulated engine: OpenAI's API with vLLM's metric names and chosen latencies. Never a real model, and it says so.

Run as `python -m fleetctl.lab.engine --config <unit.json>`; faults are read from `<unit>.faults.json` beside it while it runs.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import random
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetctl.lab import answers, sampler
from fleetctl.lab.engine_metrics import EngineMetrics
from fleetctl.lab.faults import FaultsFile, faults_path
from fleetctl.lab.http_server import Connection, Request, Server

FAULTS_EVERY_S = 0.2
GRACE_S = 3.0
EXIT_PORT_TAKEN = 75
EXIT_CRASH_FAULT = 70
COMPLETIONS = ("/v1/completions", "/v1/chat/completions")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """What a unit file says to an emulated engine.

    Args:
        port: 0 chooses one; address: 127.0.0.1, or 0.0.0.0 on a host of its own.
        model: name it serves.
        timing: milliseconds and log standard deviation.
        max_tokens: most tokens of one answer, 1 to 4,096.
    """

    port: int
    model: str
    timing: sampler.Timing
    max_tokens: int = 512
    max_model_len: int = 8192
    address: str = "127.0.0.1"

    @classmethod
    def read(cls, path: Path) -> EngineConfig:
        """Read the `config` part of a unit file; its numbers may be strings.

        Raises:
            ValueError: a missing key or a value out of range.
        """
        return cls.of(json.loads(path.read_bytes())["config"], str(path))

    @classmethod
    def of(cls, config: Mapping[str, Any], where: str) -> EngineConfig:
        """Read a configuration; its numbers may be strings.

        Raises:
            ValueError: a missing key or a value out of range.
        """
        try:
            return cls(
                port=int(config["port"]),
                model=str(config["model"]),
                timing=sampler.Timing(
                    ttft_ms=float(config["ttft_ms"]), token_ms=float(config["token_ms"]), log_sd=float(config.get("log_sd", 0.25))
                ),
                max_tokens=int(config.get("max_tokens", 512)),
                address=str(config.get("address", "127.0.0.1")),
            )
        except KeyError as e:
            raise ValueError(f"{where}: config has no {e.args[0]}") from None


class Engine:
    """Answers requests; one per process. Everything runs on one event loop."""

    def __init__(self, config: EngineConfig, faults: FaultsFile, loop: asyncio.AbstractEventLoop) -> None:
        self._config = config
        self._faults = faults
        self._loop = loop
        self._dice = random.Random()  # noqa: S311 - noise, not a secret
        self._cache = sampler.PrefixCache()
        self._model = json.dumps(config.model)
        self._born = int(time.time())
        self._serial = 0
        self._ready_at = loop.time()
        self.metrics = EngineMetrics(config.model, config.max_model_len)

    def look_at_faults(self) -> None:
        """Read the faults file if it was replaced, and look again in 200 ms."""
        if self._faults.poll():
            faults = self._faults.current
            if faults.crashes:
                sys.stderr.write("fault crash: this emulated engine ends now\n")
                sys.stderr.flush()
                os._exit(EXIT_CRASH_FAULT)
            if faults.slow_start_s:
                self._ready_at = self._loop.time() + faults.slow_start_s
        self._loop.call_later(FAULTS_EVERY_S, self.look_at_faults)

    @property
    def is_ready(self) -> bool:
        """Whether it answers completions (a slow start delays it)."""
        return not self._faults.current.slow_start_s or self._loop.time() >= self._ready_at

    def handle(self, request: Request, reply: Connection) -> None:
        """Answer one request, now or later."""
        if request.method == "POST" and request.path in COMPLETIONS:
            self._complete(request, reply)
        elif request.method != "GET":
            reply.respond(405, answers.error("only GET here, and POST on completions", "method_not_allowed"))
        elif request.path == "/health":
            reply.respond(200 if self.is_ready else 503, b"" if self.is_ready else answers.error("starting", "service_unavailable"))
        elif request.path == "/v1/models":
            reply.respond(200, answers.models(self._model, self._born, self._config.max_model_len))
        elif request.path == "/metrics" and self._faults.current.metrics != "gone":
            text = self.metrics.render(nan=self._faults.current.metrics == "nan")
            reply.respond(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8")
        else:
            reply.respond(404, answers.error("no such path", "not_found"))

    def _complete(self, request: Request, reply: Connection) -> None:
        arrived = self._loop.time()
        faults = self._faults.current
        try:
            ask = answers.read_ask(request.body, is_chat=request.path == COMPLETIONS[1], most=self._config.max_tokens)
        except ValueError as e:
            reply.respond(400, answers.error(str(e), "invalid_request_error"))
            return
        if not self.is_ready:
            reply.respond(503, answers.error("starting", "service_unavailable"))
            return
        self.metrics.running += 1
        if faults.hangs:
            reply.gone = self._abort
            return
        factor = sampler.request_factor(
            self._config.timing, self._dice, latency=faults.latency_factor, tail_share=faults.tail_share, tail_factor=faults.tail_factor
        )
        if faults.error_ratio > 0 and self._dice.random() < faults.error_ratio:
            timer = self._loop.call_at(arrived + sampler.due_s(self._config.timing, factor, 1), self._fail, reply)
            reply.gone = lambda: self._abort(timer)
            return
        self._serial += 1
        answer = answers.Answer(
            ask=ask,
            id_=f"{'chatcmpl' if ask.is_chat else 'cmpl'}-emulated-{os.getpid()}-{self._serial}",
            model=self._model,
            created=int(time.time()),
            tokens=sampler.tokens(ask.prompt, ask.max_tokens, temperature=ask.temperature, wrong_ratio=faults.wrong_token_ratio),
            prompt_tokens=sampler.prompt_tokens(ask.prompt),
            cached_tokens=self._cache.look(request.headers.get("x-conversation-id", ""), ask.prompt),
        )
        if ask.is_stream:
            _Stream(self, answer, reply, arrived, factor).begin()
        else:
            due = arrived + sampler.due_s(self._config.timing, factor, ask.max_tokens)
            timer = self._loop.call_at(due, self._finish, answer, reply, arrived, factor)
            reply.gone = lambda: self._abort(timer)

    def _finish(self, answer: answers.Answer, reply: Connection, arrived: float, factor: float) -> None:
        reply.respond(200, answer.whole())
        self.count(answer, arrived, sampler.due_s(self._config.timing, factor, 1))

    def _fail(self, reply: Connection) -> None:
        reply.respond(500, answers.error("fault errors: this emulated engine failed on purpose", "internal_error"))
        self.metrics.running -= 1
        self.metrics.finish(reason="error", prompt=0, cached=0, generated=0, ttft_s=0, whole_s=0)

    def _abort(self, timer: asyncio.TimerHandle | None = None) -> None:
        if timer is not None:
            timer.cancel()
        self.metrics.running -= 1
        self.metrics.finish(reason="abort", prompt=0, cached=0, generated=0, ttft_s=0, whole_s=0)

    def count(self, answer: answers.Answer, arrived: float, ttft_s: float) -> None:
        """Count a finished answer; times in seconds."""
        self.metrics.running -= 1
        self.metrics.finish(
            reason="length",
            prompt=answer.prompt_tokens,
            cached=answer.cached_tokens,
            generated=len(answer.tokens),
            ttft_s=ttft_s,
            whole_s=self._loop.time() - arrived,
        )


class _Stream:
    """One answer as server-sent events, a token each, every one due at an absolute time."""

    def __init__(self, engine: Engine, answer: answers.Answer, reply: Connection, arrived: float, factor: float) -> None:
        self._engine = engine
        self._answer = answer
        self._reply = reply
        self._arrived = arrived
        self._factor = factor
        self._next = 0
        self._ttft_s = 0.0

    def begin(self) -> None:
        self._reply.begin("text/event-stream; charset=utf-8")
        self._wait()

    def _wait(self) -> None:
        engine = self._engine
        due = self._arrived + sampler.due_s(engine._config.timing, self._factor, self._next + 1)
        timer = engine._loop.call_at(due, self._send)
        self._reply.gone = lambda: engine._abort(timer)

    def _send(self) -> None:
        if self._next == 0:
            self._ttft_s = self._engine._loop.time() - self._arrived
        self._next += 1
        if self._next < len(self._answer.tokens):
            self._reply.send(self._answer.event(self._next - 1))
            self._wait()
            return
        self._reply.send(self._answer.event(self._next - 1) + self._answer.last_event())
        self._reply.end()
        self._engine.count(self._answer, self._arrived, self._ttft_s)


async def serve(config: EngineConfig, faults: FaultsFile) -> int:
    """Serve until SIGTERM or SIGINT; what is being answered may end within 3 s. Returns an exit code."""
    loop = asyncio.get_running_loop()
    engine = Engine(config, faults, loop)
    server = Server(engine.handle, b"x-emulated: 1\r\nserver: fleetctl-emulated-engine\r\n")
    try:
        port = await server.start(config.port, config.address)
    except OSError as e:
        if e.errno != errno.EADDRINUSE:
            raise
        sys.stderr.write(f"port {config.port} is taken\n")
        return EXIT_PORT_TAKEN
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    engine.look_at_faults()
    sys.stdout.write(f"emulated engine for {config.model} on {config.address}:{port}\n")
    sys.stdout.flush()
    await stop.wait()
    await server.stop(GRACE_S)
    return 0


def main(argv: list[str]) -> int:
    """Run the engine for `--config <unit.json>`, or `--unit <folder of faults> <name> <JSON>`. Returns an exit code."""
    if (len(argv), argv[:1]) not in ((2, ["--config"]), (4, ["--unit"])):
        sys.stderr.write("usage: python -m fleetctl.lab.engine --config <unit.json> | --unit <folder> <name> <JSON>\n")
        return 2
    path = Path(argv[1]) if len(argv) == 2 else Path(argv[1]) / f"{argv[2]}.json"
    try:
        config = EngineConfig.read(path) if len(argv) == 2 else EngineConfig.of(json.loads(argv[3]), "the third argument")
    except (OSError, ValueError, KeyError) as e:
        sys.stderr.write(f"{path} cannot be used: {e}\n")
        return 2
    return asyncio.run(serve(config, FaultsFile(faults_path(path))))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
