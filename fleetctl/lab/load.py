"""Lab, lab layer: the load: open-loop clients with conversations, one process. Never waits for an answer before it sends, never retries.

Run as `python -m fleetctl.lab.load --config <load.json> [--trace FILE]`; rewrites `stats` (a JSON file named in the config) every 0.5 s.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fleetctl.domain.ids import is_id
from fleetctl.errors import ConfigInvalid
from fleetctl.lab.load_client import Outcome, Pool
from fleetctl.lab.load_shapes import TableShape, TraceShape, prompt_text, read_trace

STATS_EVERY_S = 0.5
WINDOW_S = 10.0
MOST_TURNS = 12
MOST_ERRORS_LOGGED = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class CellLoad:
    """What one cell gets.

    Args:
        rate_per_s: mean, above 0.
        affinity_header: that carries the conversation; empty for none.
        most_chars: of a conversation's whole text, 50 to 2,000.
        max_tokens: of an answer, 1 to 64; a token of a stream is a write of its own, so streams keep to 16.
        timeout_s: after which a request counts as failed, 1 to 120; most_in_flight: further ones are not sent.
    """

    cell: str
    rate_per_s: float
    model: str
    is_stream: bool = False
    affinity_header: str = "x-conversation-id"
    most_chars: int = 2000
    max_tokens: int = 16
    timeout_s: float = 10.0
    most_in_flight: int = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadConfig:
    """The whole load.

    Args:
        port: of the router on 127.0.0.1.
        stats: file that is rewritten.
        trace: file with arrivals, None for the built-in table.
    """

    port: int
    stats: Path
    cells: tuple[CellLoad, ...]
    trace: Path | None = None
    seed: int = 0

    def to_json(self) -> str:
        """Return the text of load.json."""
        cells = [asdict(c) for c in self.cells]
        trace = str(self.trace) if self.trace else None
        return json.dumps({"port": self.port, "stats": str(self.stats), "trace": trace, "seed": self.seed, "cells": cells}, indent=2) + "\n"

    @classmethod
    def read(cls, path: Path) -> LoadConfig:
        """Read load.json.

        Raises:
            ConfigInvalid: config.load: a key is missing or unknown, or a value is out of range.
        """
        try:
            data = json.loads(path.read_bytes())
            cells = tuple(CellLoad(**c) for c in data.pop("cells"))
            trace = data.pop("trace", None)
            config = cls(stats=Path(data.pop("stats")), cells=cells, trace=Path(trace) if trace else None, **data)
            for c in cells:
                if not is_id(c.cell) or not 0 < c.rate_per_s <= 10_000 or not 50 <= c.most_chars <= 2000:
                    raise ValueError(f"cell {c.cell!r}: name, rate (0 to 10,000) or most_chars (50 to 2,000) cannot be used")
                if not 1 <= c.max_tokens <= 64 or not 1 <= c.timeout_s <= 120 or not 1 <= c.most_in_flight <= 1000:
                    raise ValueError(f"cell {c.cell!r}: max_tokens (1 to 64), timeout_s (1 to 120) or most_in_flight (1 to 1,000)")
        except (OSError, ValueError, TypeError, KeyError) as e:
            raise ConfigInvalid("config.load", f"the load {path} cannot be used: {e}.", hint="Run: fleetctl lab up") from None
        return config


@dataclass(slots=True, kw_only=True)
class _Conversation:
    id_: str
    turns_left: int
    messages: list[dict[str, str]] = field(default_factory=list)
    chars: int = 0


class _Stats:
    """Counts of one cell."""

    def __init__(self) -> None:
        self.sent = 0
        self.ok = 0
        self.not_sent = 0
        self.in_flight = 0
        self.errors: Counter[str] = Counter()
        self._recent: deque[tuple[float, float, float]] = deque()

    def record(self, now: float, outcome: Outcome) -> None:
        self.in_flight -= 1
        if outcome.error:
            self.errors[outcome.error] += 1
            return
        self.ok += 1
        self._recent.append((now, outcome.whole_s, outcome.ttft_s))

    def shown(self, now: float, *, is_stream: bool) -> dict[str, Any]:
        while self._recent and self._recent[0][0] < now - WINDOW_S:
            self._recent.popleft()
        whole = sorted(r[1] for r in self._recent)
        shown = {
            "sent": self.sent,
            "ok": self.ok,
            "errors": dict(self.errors),
            "in_flight": self.in_flight,
            "not_sent": self.not_sent,
            "p50_ms": _quantile_ms(whole, 0.50),
            "p95_ms": _quantile_ms(whole, 0.95),
            "ok_per_s": round(len(whole) / WINDOW_S, 2),
        }
        if is_stream:
            shown["ttft_p50_ms"] = _quantile_ms(sorted(r[2] for r in self._recent), 0.50)
        return shown


def _quantile_ms(ordered: list[float], share: float) -> float | None:
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000, 2) if ordered else None


class CellClient:
    """Sends one cell's load."""

    def __init__(self, load: CellLoad, shape: TableShape | TraceShape, pool: Pool, dice: random.Random) -> None:
        self.load = load
        self.stats = _Stats()
        self._shape = shape
        self._pool = pool
        self._dice = dice
        self._idle: list[_Conversation] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._logged = 0
        head = f"POST /{load.cell}/v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        self._head = head.encode()

    async def run(self, stop: asyncio.Event) -> None:
        """Send by absolute times until `stop` is set; what is late goes at once."""
        loop = self._pool.loop
        due = loop.time() + self._dice.random() / self.load.rate_per_s
        while not stop.is_set():
            wait = due - loop.time()
            if wait > 0:
                await asyncio.sleep(min(wait, 0.25))
                continue
            arrival = self._shape.next()
            self._launch(arrival.context_tokens, arrival.generated_tokens)
            due += arrival.gap_s

    def _launch(self, context_tokens: int, generated_tokens: int) -> None:
        if self.stats.in_flight >= self.load.most_in_flight:
            self.stats.not_sent += 1
            return
        self.stats.sent += 1
        self.stats.in_flight += 1
        task = self._pool.loop.create_task(self._turn(context_tokens, min(generated_tokens, self.load.max_tokens)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _turn(self, context_tokens: int, max_tokens: int) -> None:
        talk = self._take_conversation()
        text = prompt_text(context_tokens, self.load.most_chars - talk.chars, self._dice)
        talk.messages.append({"role": "user", "content": text})
        talk.chars += len(text)
        outcome = await self._pool.send(self._request(talk, max_tokens), self.load.timeout_s)
        self.stats.record(self._pool.loop.time(), outcome)
        said = None if outcome.error else answer_text(outcome.body, is_stream=self.load.is_stream)
        if said is not None:
            talk.messages.append({"role": "assistant", "content": said})
            talk.chars += len(said)
            talk.turns_left -= 1
            if talk.turns_left > 0 and talk.chars < self.load.most_chars * 3 // 4:
                self._idle.append(talk)
        elif outcome.error:
            self._log(outcome.error)

    def _take_conversation(self) -> _Conversation:
        if self._idle and self._dice.random() < 0.85:
            place = self._dice.randrange(len(self._idle))
            self._idle[place], self._idle[-1] = self._idle[-1], self._idle[place]
            return self._idle.pop()
        return _Conversation(id_=f"{self._dice.getrandbits(64):016x}", turns_left=self._dice.randint(1, MOST_TURNS))

    def _request(self, talk: _Conversation, max_tokens: int) -> bytes:
        ask: dict[str, Any] = {"model": self.load.model, "messages": talk.messages, "max_tokens": max_tokens, "temperature": 0.7}
        if self.load.is_stream:
            ask |= {"stream": True, "stream_options": {"include_usage": True}}
        body = json.dumps(ask).encode()
        key = f"{self.load.affinity_header}: {talk.id_}\r\n" if self.load.affinity_header else ""
        return b"".join((self._head, f"{key}content-length: {len(body)}\r\n\r\n".encode(), body))

    def _log(self, kind: str) -> None:
        if self._logged < MOST_ERRORS_LOGGED:
            self._logged += 1
            sys.stdout.write(f"{time.time():.3f} {self.load.cell} {kind}\n")
            sys.stdout.flush()

    async def finish(self, grace_s: float) -> None:
        """Wait at most `grace_s` seconds for what is in flight; what is left is forgotten, not an error."""
        if self._tasks:
            _, left = await asyncio.wait(self._tasks, timeout=grace_s)
            for task in left:
                task.cancel()


def answer_text(body: bytes, *, is_stream: bool) -> str | None:
    """Return what the assistant said, None where the body is no answer."""
    try:
        if not is_stream:
            return str(json.loads(body)["choices"][0]["message"]["content"])
        parts = []
        for line in body.split(b"\n"):
            if line.startswith(b"data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    parts.append(choice["delta"].get("content") or "")
        return "".join(parts)
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def write_stats(path: Path, clients: Mapping[str, CellClient], now: float) -> None:
    """Replace the stats file in one step."""
    cells = {name: c.stats.shown(now, is_stream=c.load.is_stream) for name, c in clients.items()}
    errors = sum(sum(c.stats.errors.values()) for c in clients.values())
    text = json.dumps({"at": round(time.time(), 3), "pid": os.getpid(), "client_errors": errors, "cells": cells}, sort_keys=True)
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    new.write_text(text + "\n")
    os.replace(new, path)


async def run(config: LoadConfig) -> int:
    """Send until SIGTERM or SIGINT. Returns an exit code."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    rows = read_trace(config.trace) if config.trace else None
    clients: dict[str, CellClient] = {}
    for index, load in enumerate(config.cells):
        dice = random.Random(f"{config.seed}:{load.cell}" if config.seed else None)  # noqa: S311 - load, not a secret
        shape = TraceShape(rows, load.rate_per_s, index * len(rows) // len(config.cells)) if rows else TableShape(load.rate_per_s, dice)
        clients[load.cell] = CellClient(load, shape, Pool(config.port, loop), dice)
    running = [loop.create_task(c.run(stop)) for c in clients.values()]
    while not stop.is_set():
        write_stats(config.stats, clients, loop.time())
        try:
            await asyncio.wait_for(stop.wait(), STATS_EVERY_S)
        except TimeoutError:
            continue
    await asyncio.gather(*running)
    await asyncio.gather(*(c.finish(2.0) for c in clients.values()))
    write_stats(config.stats, clients, loop.time())
    return 0


def main(argv: list[str]) -> int:
    """Run the load of `--config <load.json> [--trace FILE]`. Returns an exit code."""
    options = dict(zip(argv[::2], argv[1::2], strict=False))
    if "--config" not in options or len(argv) % 2 or set(options) - {"--config", "--trace"}:
        sys.stderr.write("usage: python -m fleetctl.lab.load --config <load.json> [--trace FILE]\n")
        return 2
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8192)) if hard != resource.RLIM_INFINITY else 8192, hard))
    try:
        config = LoadConfig.read(Path(options["--config"]))
        if "--trace" in options:
            config = LoadConfig(port=config.port, stats=config.stats, cells=config.cells, trace=Path(options["--trace"]), seed=config.seed)
        return asyncio.run(run(config))
    except ConfigInvalid as e:
        sys.stderr.write(f"{e}\n")
        return e.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
