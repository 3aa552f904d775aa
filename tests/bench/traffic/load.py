"""Bench: an open-loop load of requests made beforehand, light enough that two cores hold it beside a router and two sides.

Run as `python -m tests.bench.traffic.load PORT PLAIN_PER_S STREAMS_PER_S PLAIN_CELL STREAM_CELL`; sends until its standard input ends,
then prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

from fleetctl.lab.load_client import Outcome, Pool

KEYS = 500
TIMEOUT_S = 15.0
STREAM_TOKENS = 6


def request(cell: str, key: str, *, tokens: int = 0, prompt: str = "hello", named: bool = True) -> bytes:
    """Return one request whole; `tokens` above 0 asks for a stream, `named` False puts the key where no router looks."""
    ask: dict[str, object] = {"model": "bench", "prompt": prompt}
    ask |= {"stream": True, "max_tokens": tokens} if tokens else {}
    ask |= {} if named else {"user": key}
    body = json.dumps(ask).encode()
    header = f"x-conversation-id: {key}\r\n" if named else ""
    head = f"POST /{cell}/v1/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n{header}"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def problem(outcome: Outcome, *, is_stream: bool) -> str:
    """Return what a client would complain about, "" where nothing."""
    if outcome.error:
        return outcome.error
    return "" if not is_stream or outcome.body.endswith(b"data: [DONE]\n\n") else "cut"


@dataclass(slots=True)
class Flow:
    """What became of one kind of requests; for so many seconds they were sent."""

    sent: int = 0
    seconds: float = 0.0
    errors: Counter[str] = field(default_factory=Counter)
    took_s: list[float] = field(default_factory=list)

    @property
    def per_s(self) -> int:
        """Requests that were sent a second."""
        return round(self.sent / max(self.seconds, 1e-9))

    def note(self, outcome: Outcome, *, is_stream: bool) -> None:
        """Count one."""
        why = problem(outcome, is_stream=is_stream)
        if why:
            self.errors[why] += 1
        else:
            self.took_s.append(outcome.whole_s)


async def flow(pool: Pool, requests: list[bytes], per_s: float, stop: asyncio.Event, *, is_stream: bool) -> Flow:
    """Send at absolute times until `stop`; what is late goes at once. Waits for what is in flight."""
    found, tasks = Flow(), set[asyncio.Task[None]]()
    began = due = pool.loop.time()

    async def one(data: bytes) -> None:
        found.note(await pool.send(data, TIMEOUT_S), is_stream=is_stream)

    while not stop.is_set() and per_s > 0:
        now = pool.loop.time()
        while due <= now:
            task = asyncio.create_task(one(requests[found.sent % len(requests)]))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            found.sent += 1
            due += 1 / per_s
        await asyncio.sleep(max(0.001, due - now))
    found.seconds = pool.loop.time() - began
    if tasks:
        await asyncio.wait(tasks)
    return found


async def run(port: int, plain_per_s: float, streams_per_s: float, plain: str, stream: str) -> dict[str, object]:
    """Send until standard input ends; return what became of it."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), stop.set)
    began = loop.time()
    short = [request(plain, f"p{n}") for n in range(KEYS)]
    long = [request(stream, f"s{n}", tokens=STREAM_TOKENS) for n in range(KEYS)]
    pool = Pool(port, loop)
    flows = await asyncio.gather(
        flow(pool, short, plain_per_s, stop, is_stream=False), flow(pool, long, streams_per_s, stop, is_stream=True)
    )
    return {
        "plain_per_s": flows[0].per_s,
        "streams_per_s": flows[1].per_s,
        "sent": sum(f.sent for f in flows),
        "errors": dict(flows[0].errors + flows[1].errors),
        "plain_p50_ms": round(middle(flows[0].took_s) * 1_000, 1),
        "load_cpu_share": round(time.process_time() / (loop.time() - began), 2),
    }


def middle(values: list[float]) -> float:
    """Return the median, 0 of nothing."""
    return sorted(values)[len(values) // 2] if values else 0.0


if __name__ == "__main__":
    port, plain_per_s, streams_per_s, plain, stream = sys.argv[1:6]
    print(json.dumps(asyncio.run(run(int(port), float(plain_per_s), float(streams_per_s), plain, stream))))
