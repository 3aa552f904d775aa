"""Evidence, adapter layer: keeps paired probes of a cell going while somebody reads its evidence. Never in a user's path.

A thread per cell sends pairs at a steady rate, both sides of a pair at the same moment, and appends one record per side to the cell's
recording. It ends by itself when nobody has asked for `idle_s`, and with the process. Pairs that would pile up are left out and counted.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from math import inf
from typing import Any

from fleetctl.adapters.paired.prompts import LENGTHS, body_of, pick
from fleetctl.adapters.paired.replay import replay_body
from fleetctl.adapters.paired.stream import Answer, Api, Side, ask
from fleetctl.analysis.faults import is_hard
from fleetctl.domain.evidence import ARMS, Arm
from fleetctl.domain.ids import CellId
from fleetctl.domain.records import Attempt
from fleetctl.formats.replay import ReplayRequest

IDLE_S = 60.0
MOST_OPEN = 8
"""Pairs that may be on their way at a time."""
_TURN = 2 * len(LENGTHS)
"""Pairs in which every length and either order of sending came once; then the next model name has its turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSpec:
    """How one cell is probed.

    Args:
        sides: per arm, each replica or the router; taken in turn.
        per_s: pairs per second, above 0; max_tokens: of an answer, at least 2 so that time per token can be told.
        limit_s: longest wait for an answer; prompts: of the fleet file's own, () for the built-in ones.
        logprobs: ask for them.
        requests: users' recorded ones, sent in turn instead of prompts; until_s: epoch seconds after which nothing is sent any more,
            since they have expired; opted_out: tenants whose requests are sent no more, asked for each pair (ValueError: nobody can tell).
        models: names that may be asked for, adapter models among them; prompts ask each in turn.
    """

    sides: Mapping[Arm, tuple[Side, ...]]
    model: str
    api: Api = "chat"
    per_s: float = 1.0
    max_tokens: int = 32
    limit_s: float = 30.0
    prompts: Sequence[str] = ()
    logprobs: bool = True
    requests: Sequence[ReplayRequest] = ()
    models: Sequence[str] = ()
    until_s: float = inf
    opted_out: Callable[[], frozenset[str]] = frozenset

    def body(self, seed: int, index: int, *, logprobs: bool) -> tuple[Api, dict[str, Any]] | None:
        """Return what a pair asks, and by which of the two interfaces; None where nobody is left whose requests may be sent."""
        if not self.requests:
            prompt = pick(self.prompts, seed, index)
            model = self.models[index // _TURN % len(self.models)] if self.models else self.model
            return self.api, body_of(prompt, self.api, model=model, max_tokens=self.max_tokens, logprobs=logprobs)
        try:
            out = self.opted_out()
        except ValueError:
            return None
        left = [r for r in self.requests if r.tenant not in out] if out else self.requests
        if not left:
            return None
        r = left[index % len(left)]
        mark = f"[{seed}.{index}]"
        body = replay_body(r, mark, models=self.models, model=self.model, max_tokens=self.max_tokens, logprobs=logprobs)
        return "chat" if r.path == "chat/completions" else "completions", body


@dataclass(slots=True)
class _Running:
    """One cell's thread."""

    thread: threading.Thread
    stop: threading.Event = field(default_factory=threading.Event)
    asked_at: float = field(default_factory=time.monotonic)
    sent: int = 0
    left_out: int = 0
    logprobs: bool = True


class PairedProbes:
    """Sends pairs and hands records of them on.

    Args:
        specs: asked for when a cell is first kept going; add: gets the records of a pair, baseline first.
        idle_s: after which a cell that nobody keeps going ends.
    """

    def __init__(self, specs: Callable[[CellId], PairSpec], add: Callable[[Sequence[Attempt]], None], *, idle_s: float = IDLE_S) -> None:
        self._specs, self._add, self._idle_s = specs, add, idle_s
        self._running: dict[CellId, _Running] = {}
        self._lock = threading.Lock()
        self._seed = int.from_bytes(os.urandom(4))

    def keep(self, c: CellId) -> None:
        """Begin, or go on, probing a cell."""
        with self._lock:
            running = self._running.get(c)
            if running is not None and running.thread.is_alive() and not running.stop.is_set():
                running.asked_at = time.monotonic()
                return
            spec = self._specs(c)
            running = _Running(thread=threading.Thread(target=lambda: self._run(c, spec), name=f"probes {c}", daemon=True))
            self._running[c] = running
            running.thread.start()

    def close(self) -> None:
        """End every thread and wait for the pairs that are on their way."""
        with self._lock:
            for running in self._running.values():
                running.stop.set()
        for running in self._running.values():
            running.thread.join()

    def query(self, c: CellId) -> str:
        """Say what is sent."""
        spec, running = self._specs(c), self._running.get(c)
        sent = f", {running.sent} sent, {running.left_out} left out" if running is not None else ""
        what = f"replay of {len(spec.requests):,} recorded requests" if spec.requests else "paired probes"
        how = "" if spec.requests else f"{spec.api}, "
        return f"{what}, {spec.per_s:g}/s, {how}max_tokens {spec.max_tokens}, temperature 0, streamed{sent}"

    def _run(self, c: CellId, spec: PairSpec) -> None:
        running = self._running[c]
        gate = threading.BoundedSemaphore(MOST_OPEN)
        due = time.monotonic()
        with ThreadPoolExecutor(2 * MOST_OPEN, thread_name_prefix=f"probe {c}") as pool:
            for index in itertools.count(int.from_bytes(os.urandom(2))):  # one that is often begun again sends no request more than others
                is_over = running.stop.wait(max(0.0, due - time.monotonic())) or time.time() >= spec.until_s
                if is_over or time.monotonic() - running.asked_at > self._idle_s:
                    running.stop.set()
                    return
                due = max(due + 1 / spec.per_s, time.monotonic() - 1.0)
                asked = spec.body(self._seed, index, logprobs=spec.logprobs and running.logprobs)
                if asked is None or not gate.acquire(blocking=False):
                    running.left_out += 1
                    continue
                running.sent += 1
                self._pair(pool, gate, c, spec, index, asked)

    def _pair(
        self,
        pool: ThreadPoolExecutor,
        gate: threading.BoundedSemaphore,
        c: CellId,
        spec: PairSpec,
        index: int,
        asked: tuple[Api, dict[str, Any]],
    ) -> None:
        """Send both sides at once; the later one hands both records on."""
        running, (api, body) = self._running[c], asked
        has_logprobs = "logprobs" in body
        adapter = "" if body["model"] == spec.model else str(body["model"])
        both: dict[Arm, Answer] = {}
        lock = threading.Lock()

        def one(arm: Arm) -> None:
            sides = spec.sides[arm]
            answer = ask(sides[index % len(sides)], body, api, limit_s=spec.limit_s)
            with lock:
                both[arm] = answer
                is_whole = len(both) == len(ARMS)
            if not is_whole:
                return
            try:
                if has_logprobs and all(a.why in ("status 400", "status 422") for a in both.values()):
                    running.logprobs = False  # neither server knows them: the pair is no evidence of anything else
                else:
                    self._add([record_of(both[a], c, a, (self._seed << 24) + index, model=adapter) for a in ARMS])
            finally:
                gate.release()

        for arm in ARMS if index % 2 else reversed(ARMS):  # neither side is always the second to be sent
            pool.submit(one, arm)


def record_of(a: Answer, c: CellId, arm: Arm, pair: int, *, model: str = "") -> Attempt:
    """Return a probe's record."""
    gaps = a.tokens - 1
    token_ms = 1_000 * (a.last_s - (a.first_s or 0.0)) / gaps if not a.failed and gaps > 0 and a.first_s is not None else None
    return Attempt(
        cell=c,
        arm=arm,
        started_ms=a.started_ms,
        ended_ms=a.started_ms + round(1_000 * a.whole_s),
        failed=a.failed,
        latency_ms=None if a.failed else 1_000 * a.whole_s,
        prompt_tokens=a.prompt_tokens,
        cached_tokens=a.cached_tokens,
        output_tokens=a.tokens if not a.failed else -1,
        ttft_ms=1_000 * a.first_s if a.first_s is not None else None,
        token_ms=token_ms,
        nll=-sum(a.logprobs) / len(a.logprobs) if a.logprobs and not a.failed else None,
        finish=a.finish if not a.failed else "",
        pair=pair,
        fault=a.fault if is_hard(a.fault) else "",
        model=model,
    )
