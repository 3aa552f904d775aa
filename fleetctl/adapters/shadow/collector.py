"""Migrate, adapters layer: a process that gets copies of requests, asks both sides and writes what differs.

It keeps no text, but where a workload's owner opted in to a replay, and is never in a client's path.

Run as `python -m fleetctl.adapters.shadow.collector --config FILE`. It prints one JSON line when it listens, `{"port": n}`.

    POST /shadow/<cell>   a copy of a request body; 202 queued, 429 dropped (queue full), 422 refused, 404 unknown cell
    POST anything         the same, of the cell that the header x-fleetctl-shadow names (a router's own mirror)
    GET  /status          counters as JSON
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import urlsplit

from fleetctl.adapters.shadow.copies import Copy, class_of, make_copy, read_choices
from fleetctl.adapters.shadow.kept import KeepTerms, KeptRequests
from fleetctl.adapters.shadow.own_files import read_own
from fleetctl.adapters.shadow.wire import MOST_HEAD, BadMessage, Message, answer, post, read_message
from fleetctl.analysis.shadow import compare
from fleetctl.domain.canonical import canonical
from fleetctl.domain.evidence import Pair
from fleetctl.domain.ids import is_id
from fleetctl.domain.quality import Choice
from fleetctl.errors import ConfigInvalid, FleetctlError
from fleetctl.formats.request_copy import Refused

MOST_COPY = 16_384
MOST_ANSWER = 1 << 20
READ_S = 10.0
PURGE_S = 60.0
MOST_OPEN = 64
"""Connections served at a time; further ones wait."""
REASONS = {200: "OK", 202: "Accepted", 400: "Bad Request", 404: "Not Found", 422: "Unprocessable Content", 429: "Too Many Requests"}
MIRRORED = "x-fleetctl-shadow"
"""Names the cell of a request that a router mirrors whole, under the request's own path."""
PIN, SERVER = "x-fleetctl-pin", "x-fleetctl-server"
FIRST_LETTER = {"baseline": "b", "canary": "c"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorConfig:
    """What the collector is told.

    Args:
        port: on 127.0.0.1; 0 takes a free one.
        router_url: such as http://127.0.0.1:20001; a cell's path comes after it.
        pin_key_file: 0600 and ours; its key lets a request choose its side.
        folder: comparisons go to `pairs/<cell>.jsonl` in it.
        cells: those that may be compared, with whether their clients stream (copies never do).
        near_tie_nat: log-probability gap under which two tokens count as tied.
        queue: copies that may wait per cell; timeout_s: longest wait for one answer.
        tokens_per_hour: most tokens of prompts and answers, both sides together, that a cell's copies may cost in an hour of the clock.
        keep: terms under which requests of a cell are kept for a replay, encrypted; nothing is kept of any other.
    """

    port: int
    router_url: str
    pin_key_file: str
    folder: str
    cells: Mapping[str, Mapping[str, bool]]
    near_tie_nat: float = 0.2
    queue: int = 64
    timeout_s: float = 30.0
    tokens_per_hour: int = 5_000_000
    keep: Mapping[str, KeepTerms] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise ValueError(f"port {self.port} is not 0 to 65535")
        if urlsplit(self.router_url).scheme != "http" or not urlsplit(self.router_url).hostname:
            raise ValueError(f"router_url {self.router_url!r} is no http:// address")
        if not _is_loopback(urlsplit(self.router_url).hostname or ""):
            raise ValueError(f"router_url {self.router_url!r} is not on this machine: copies leave it by its own router only")
        bad = [c for c in (*self.cells, *self.keep) if not is_id(c)]
        if bad:
            raise ValueError(f"{bad[0]!r} is no cell's name")
        if not (self.queue >= 1 and self.timeout_s > 0 and self.near_tie_nat >= 0):
            raise ValueError("queue, timeout_s and near_tie_nat are to be above 0 (the last may be 0)")
        if self.tokens_per_hour < 0:
            raise ValueError(f"tokens_per_hour {self.tokens_per_hour} is below 0")


def _is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def read_config(path: str) -> CollectorConfig:
    """Read the configuration file.

    Raises:
        ConfigInvalid: config.shadow.
    """
    try:
        with open(path, "rb") as f:
            given = json.load(f)
            terms = {cell: KeepTerms(**row) for cell, row in given.pop("keep", {}).items()}
            return CollectorConfig(**given, keep=terms)
    except (OSError, ValueError, TypeError, AttributeError) as e:
        raise ConfigInvalid("config.shadow", f"{path}: {e}.", hint="Run: fleetctl lab up") from e


def read_pin_key(path: str) -> str:
    """Read the pin key.

    Raises:
        CredentialsMissing: credentials.missing, credentials.open_file.
    """
    return read_own(path, "the pin key")


@dataclass(slots=True)
class CellCounts:
    """What became of a cell's copies."""

    received: int = 0
    queued: int = 0
    dropped: int = 0
    compared: int = 0
    failed: int = 0
    unwritten: int = 0
    over_budget: int = 0
    tokens: int = 0
    refused: Counter[str] = field(default_factory=Counter)


class Collector:
    """Takes copies, asks both sides, writes comparisons; one worker and one bounded queue per cell."""

    def __init__(self, config: CollectorConfig, pin_key: str, *, clock: Callable[[], float] = time.time) -> None:
        self._config = config
        self._pin_key = pin_key
        self.counts = {c: CellCounts() for c in config.cells}
        self.unknown = 0
        self._queues: dict[str, asyncio.Queue[Copy]] = {c: asyncio.Queue(config.queue) for c in config.cells}
        self._open = asyncio.Semaphore(MOST_OPEN)
        self._repaired: set[str] = set()
        self._clock = clock
        self._spent: dict[str, tuple[int, int]] = {}
        self.kept = KeptRequests(config.folder, config.keep)

    def take(self, cell: str, body: bytes) -> tuple[int, str]:
        """Queue a copy, or count why not; return an HTTP status and one word."""
        counts = self.counts.get(cell)
        if counts is None:
            self.unknown += 1
            return 404, "unknown_cell"
        counts.received += 1
        try:
            copy = make_copy(body)
        except Refused as e:
            counts.refused[str(e)] += 1
            return 422, str(e)
        with contextlib.suppress(OSError):
            self.kept.add(cell, body, datetime.now(UTC))
        if self._left(cell) <= 0:
            counts.over_budget += 1
            return 429, "over_budget"
        try:
            self._queues[cell].put_nowait(copy)
        except asyncio.QueueFull:
            counts.dropped += 1
            return 429, "dropped"
        counts.queued += 1
        return 202, "queued"

    def status(self) -> dict[str, object]:
        """Return the counters."""
        cells = {
            c: {
                "received": n.received,
                "queued": n.queued,
                "waiting": self._queues[c].qsize(),
                "dropped": n.dropped,
                "refused": dict(sorted(n.refused.items())),
                "compared": n.compared,
                "failed": n.failed,
                "unwritten": n.unwritten,
                "over_budget": n.over_budget,
                "tokens": n.tokens,
                "kept": self.kept.count(c),
                "streaming": bool(self._config.cells[c].get("streaming", False)),
            }
            for c, n in self.counts.items()
        }
        return {"format_version": 1, "unknown_cell": self.unknown, "cells": cells}

    async def work(self, cell: str) -> None:
        """Compare a cell's copies one after the other, for ever."""
        while True:
            copy = await self._queues[cell].get()
            if self._left(cell) <= 0:
                self.counts[cell].over_budget += 1
                continue
            pair = await self.compare(cell, copy)
            self.counts[cell].failed += bool(pair.error)
            self.counts[cell].compared += not pair.error
            try:
                self._append(cell, pair)
            except OSError:
                self.counts[cell].unwritten += 1

    def _left(self, cell: str) -> int:
        """Return the tokens that a cell's copies may still cost in this hour; the copy that is being compared is counted at its end."""
        hour = int(self._clock() // 3_600)
        if self._spent.get(cell, (-1, 0))[0] != hour:
            self._spent[cell] = (hour, 0)
        return self._config.tokens_per_hour - self._spent[cell][1]

    def _spend(self, cell: str, tokens: int) -> None:
        self._left(cell)
        hour, spent = self._spent[cell]
        self._spent[cell] = (hour, spent + tokens)
        self.counts[cell].tokens += tokens

    async def forget(self) -> None:
        """Remove kept requests when their time is over, for ever."""
        self.kept.look(datetime.now(UTC))
        while True:
            await asyncio.sleep(PURGE_S)
            with contextlib.suppress(OSError):
                self.kept.purge(datetime.now(UTC))

    async def compare(self, cell: str, copy: Copy) -> Pair:
        """Ask both sides at once and compare; a side that fails is named in the pair's error."""
        baseline, canary = await asyncio.gather(self._ask(cell, "baseline", copy), self._ask(cell, "canary", copy))
        at = datetime.now(UTC)
        self._spend(cell, sum(_cost(copy, side) for side in (baseline, canary)))
        for side in (baseline, canary):
            if isinstance(side, str):
                return Pair(
                    at=at,
                    class_=class_of(copy.kind, 0),
                    prompt_len=0,
                    positions=0,
                    same_top=0,
                    first_divergence=None,
                    near_tie=False,
                    logprob_delta=0.0,
                    error=side,
                )
        assert not isinstance(baseline, str)  # noqa: S101 - both were looked at above
        assert not isinstance(canary, str)  # noqa: S101
        (choices, prompt_len), (others, _) = baseline, canary
        found = compare(choices, others, self._config.near_tie_nat)
        return Pair(
            at=at,
            class_=class_of(copy.kind, prompt_len),
            prompt_len=prompt_len,
            positions=found.positions,
            same_top=found.same_top,
            first_divergence=found.first_divergence,
            near_tie=found.near_tie,
            logprob_delta=found.logprob_delta,
            kl=found.kl,
        )

    async def _ask(self, cell: str, arm: str, copy: Copy) -> tuple[tuple[Choice, ...], int] | str:
        url = f"{self._config.router_url.rstrip('/')}/{cell}/v1/{copy.path}"
        try:
            got = await post(url, copy.body, {PIN: f"{self._pin_key}:{arm}"}, self._config.timeout_s, MOST_ANSWER)
        except TimeoutError:
            return f"{arm}: no answer in {self._config.timeout_s:g} s"
        except (BadMessage, OSError) as e:
            return f"{arm}: {type(e).__name__}"
        if got.status != 200:
            return f"{arm}: status {got.status}"
        server = got.headers.get(SERVER, "")
        if not server.startswith(FIRST_LETTER[arm]):
            return f"{arm}: answered by {'the other side' if server else 'nobody who names himself'}"
        try:
            choices, prompt_len = read_choices(got.body)
        except ValueError:
            return f"{arm}: no log-probabilities"
        return (choices, prompt_len) if choices else f"{arm}: an empty answer"

    def _append(self, cell: str, pair: Pair) -> None:
        folder = os.path.join(self._config.folder, "pairs")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        fd = os.open(os.path.join(folder, f"{cell}.jsonl"), os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            line = canonical(pair) + b"\n"
            if cell not in self._repaired:  # a line that a killed collector left half-written is ended first
                size = os.fstat(fd).st_size
                line = (b"\n" if size and os.pread(fd, 1, size - 1) != b"\n" else b"") + line
                self._repaired.add(cell)
            if os.write(fd, line) != len(line):
                self._repaired.discard(cell)
                raise OSError("half a line")
        finally:
            os.close(fd)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request and close."""
        async with self._open:
            try:
                async with asyncio.timeout(READ_S):
                    status, body = self._respond(await read_message(reader, MOST_COPY, is_answer=False))
                    writer.write(answer(status, REASONS[status], json.dumps(body).encode()))
                    await writer.drain()
            except BadMessage as e:
                writer.write(answer(400, REASONS[400], json.dumps({"why": str(e)}).encode()))
            except (OSError, TimeoutError):
                pass
            finally:
                writer.close()

    def _respond(self, m: Message) -> tuple[int, dict[str, object]]:
        method, path, _ = m.first
        if method == "GET" and path == "/status":
            return 200, self.status()
        if method == "POST" and path.startswith("/shadow/"):
            status, why = self.take(path.removeprefix("/shadow/"), m.body)
            return status, {"why": why}
        if method == "POST" and MIRRORED in m.headers:
            status, why = self.take(m.headers[MIRRORED], m.body)
            return status, {"why": why}
        return 404, {"why": "unknown_path"}


def _cost(copy: Copy, side: tuple[tuple[Choice, ...], int] | str) -> int:
    """Return the tokens that one side's answer cost; where it does not tell, about four bytes of the prompt are one."""
    if isinstance(side, str):
        return len(copy.body) // 4
    choices, prompt_len = side
    return (prompt_len or len(copy.body) // 4) + len(choices)


async def run(config: CollectorConfig, pin_key: str) -> None:
    """Serve until SIGTERM or SIGINT."""
    collector, stop = Collector(config, pin_key), asyncio.Event()
    for sig in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(sig, stop.set)
    server = await asyncio.start_server(collector.serve, "127.0.0.1", config.port, limit=MOST_HEAD)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    workers = [asyncio.create_task(collector.work(c)) for c in config.cells]
    workers.append(asyncio.create_task(collector.forget()))
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait([*workers, stopped], return_when=asyncio.FIRST_COMPLETED)
    server.close()
    for task in (*workers, stopped):
        if task.done() and not task.cancelled() and task.exception() is not None:
            await task  # a worker that broke ends the process, loudly
        task.cancel()
    await asyncio.gather(*workers, return_exceptions=True)


def main(argv: list[str]) -> int:
    """Run the collector; return its exit code."""
    if len(argv) != 2 or argv[0] != "--config":
        print("usage: python -m fleetctl.adapters.shadow.collector --config FILE", file=sys.stderr)
        return 2
    os.umask(0o077)
    try:
        config = read_config(argv[1])
        asyncio.run(run(config, read_pin_key(config.pin_key_file)))
    except FleetctlError as e:
        print(e, file=sys.stderr)
        return e.exit_code
    except OSError as e:
        print(f"error[lab.port_taken]: the collector cannot listen: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
