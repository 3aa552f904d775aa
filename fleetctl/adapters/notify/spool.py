"""Every step, adapters layer: notices to people through a folder of files and one thread per channel. Never raises, never holds up a tick.

`send` writes one small file per channel and returns. A thread groups what has one cause, sends it, tries again with a bound (a page for
hours), and tells the audit what became of it; what is tried again holds up nothing else. What a process could not send before it ended, the
next one sends; one process sends at a time. What no file can hold (a full disk) is sent from memory, and lost with the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetctl.adapters.notify.channels import Channel, Sent
from fleetctl.adapters.notify.messages import cause_of, level_of
from fleetctl.domain.event import Event
from fleetctl.domain.people import Actor
from fleetctl.domain.units import Scalar
from fleetctl.formats.notify_channels import LEVELS
from fleetctl.ports.state import Clock, Notifier

MOST_KEPT = 1_000
"""Notices that wait for one channel; what comes on top is told as lost. A fleet that pages more says nothing any more."""
_OWN = re.compile(r"(\d{20})-\d+-\d+\.json")
"""Names of notices: nanoseconds since 1970, process, number; what else lies there is not ours."""
NOTIFY = Actor(kind="schedule", name="notify", via="timer")
_numbers = itertools.count(1)
_log = logging.getLogger("fleetctl.notify")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long is waited, seconds.

    Args:
        group: for more notices of the same cause; retries: before each further try; look: between looks at the folder;
        flush: at the end of the process.
        page_kept: how long a page is tried after those retries, each wait twice as long as the one before, up to `longest`.
    """

    group: float = 5.0
    retries: tuple[float, ...] = (1.0, 5.0, 20.0, 60.0)
    look: float = 0.2
    flush: float = 3.0
    page_kept: float = 6 * 3600.0
    longest: float = 900.0

    def wait_after(self, tries: int) -> float:
        """Return how long is waited after so many tries (1 or more), seconds."""
        if tries <= len(self.retries):
            return self.retries[tries - 1]
        return min(self.longest, (self.retries or (1.0,))[-1] * 2.0 ** min(tries - len(self.retries), 20))


@dataclass(slots=True, kw_only=True)
class _Waiting:
    """One notice of one channel; age_s: seconds; tries: of this process, all failed; is_over: it only could not be deleted.

    Args:
        is_only_here: no file holds it, `file` is the one that it would have had.
    """

    file: Path
    notice: Event
    tries: int = 0
    is_over: bool = False
    is_only_here: bool = False

    @property
    def age_s(self) -> float:
        return time.time() - int(self.file.name.partition("-")[0]) / 1e9


@dataclass(slots=True, kw_only=True)
class _Queue:
    """What waits for one channel, by name of its file, and when each cause is tried again (monotonic seconds)."""

    kept: dict[str, _Waiting]
    due: dict[str, float]


class SpooledNotifier:
    """`Notifier` of a fleet's channels.

    Args:
        folder: private, one folder per channel in it; first: told at once of every notice (the log).
        record: takes an event for the audit, called from the channels' threads; may raise.
    """

    def __init__(
        self,
        channels: Sequence[Channel],
        folder: Path,
        first: Notifier,
        clock: Clock,
        record: Callable[[Event], None],
        *,
        pace: Pace | None = None,
    ) -> None:
        self._channels, self._folder, self._first, self._clock, self._record = tuple(channels), folder, first, clock, record
        self._pace = pace or Pace()
        self._stop, self._threads = threading.Event(), list[threading.Thread]()
        self._lock = threading.Lock()
        self._unkept: dict[str, deque[tuple[Path, Event]]] = {c.name: deque(maxlen=MOST_KEPT) for c in self._channels}

    def send(self, e: Event) -> None:
        """Log a notice and put it down for every channel that wants its level; returns at once."""
        self._first.send(e)
        for channel in self._channels:
            if LEVELS.index(level_of(e)) < LEVELS.index(channel.least):
                continue
            file = self._folder / channel.name / f"{time.time_ns():020d}-{os.getpid()}-{next(_numbers)}.json"
            try:
                self._put(channel, file, e)
            except Exception as why:  # a full disk must keep nobody from home, nor from being told
                _log.error("notice for %s is kept in memory alone: %s", channel.name, type(why).__name__)
                self._unkept[channel.name].append((file, e))
        if self._channels:
            self.start()

    def start(self) -> None:
        """Begin to send what waits, also what an earlier process has left; again does nothing."""
        with self._lock:
            if self._threads or self._stop.is_set():
                return
            for channel in self._channels:
                thread = threading.Thread(target=self._run, args=(channel,), name=f"notify-{channel.name}", daemon=True)
                self._threads.append(thread)
                thread.start()

    def close(self) -> None:
        """Send what can be sent within the pace's flush time; the rest stays for the next process."""
        self._stop.set()
        end = time.monotonic() + self._pace.flush
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def waiting(self, channel: str) -> int:
        """Return how many notices wait for a channel."""
        return len(self._files(channel))

    def _put(self, channel: Channel, file: Path, e: Event) -> None:
        from fleetctl.domain.canonical import canonical

        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if len(self._files(channel.name)) >= MOST_KEPT:
            _log.error("notice for %s was not kept: %d wait already", channel.name, MOST_KEPT)
            return
        hidden = file.with_name(f".{file.stem}")
        handle = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(handle, "wb") as f:
            f.write(canonical(e))
        hidden.rename(file)

    def _files(self, channel: str) -> list[Path]:
        try:
            return sorted(p for p in (self._folder / channel).iterdir() if _OWN.fullmatch(p.name))
        except OSError:
            return []

    def _run(self, channel: Channel) -> None:
        queue = _Queue(kept={}, due={})
        with self._sender(channel) as is_sender:
            while self._send_one(channel, queue, files=is_sender()):
                pass

    def _send_one(self, channel: Channel, queue: _Queue, *, files: bool) -> bool:
        """Send what is due of one cause, else wait for the next look; files: those of the folder too. Returns whether to go on."""
        is_last = self._stop.is_set()
        try:
            group = self._next_group(channel, queue, files=files, is_last=is_last)
            if group:
                self._deliver(channel, queue, group)
                return True
        except Exception as why:  # a thread that ends by itself would tell nobody of anything any more
            _log.error("notices for %s: %s", channel.name, type(why).__name__)
        if is_last:
            return False
        self._stop.wait(self._pace.look)
        return True

    @contextlib.contextmanager
    def _sender(self, channel: Channel) -> Iterator[Callable[[], bool]]:
        """Yield what tells whether this process sends the folder's notices: it holds the lock, which is tried again until it does."""
        handles: list[int] = []
        held = [False]

        def is_sender() -> bool:
            with contextlib.suppress(OSError):  # another process sends, or the disk is full
                if not handles:
                    folder = self._folder / channel.name
                    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                    handles.append(os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
                if not held[0]:
                    fcntl.flock(handles[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
                    held[0] = True
            return held[0]

        try:
            yield is_sender
        finally:
            for handle in handles:
                os.close(handle)

    def _next_group(self, channel: Channel, queue: _Queue, *, files: bool, is_last: bool) -> list[_Waiting] | None:
        """Return the notices of one cause that are due, oldest cause first; none where nothing is.

        New ones are due once no more of their cause are waited for, failed ones after their wait; those of one cause go together.
        is_last: the process was ending before what waits is read, so all of it is seen and goes now.
        """
        self._read(channel, queue, files=files)
        groups: dict[str, list[_Waiting]] = {}
        for w in queue.kept.values():
            if not w.is_over:
                groups.setdefault(cause_of(w.notice), []).append(w)
        for cause, group in groups.items():
            new = [w for w in group if not w.tries]
            if new and (is_last or not 0 <= new[0].age_s < self._pace.group):
                return group
            if not new and not is_last and time.monotonic() >= queue.due.get(cause, 0.0):
                return group
        return None

    def _read(self, channel: Channel, queue: _Queue, *, files: bool) -> None:
        """Take in what is new in memory and in the folder, and forget what is gone."""
        from fleetctl.domain.canonical import decode

        there = {f.name: f for f in self._files(channel.name)} if files else {}
        queue.kept = {name: w for name, w in queue.kept.items() if name in there or (w.is_only_here and not w.is_over)}
        unkept = self._unkept[channel.name]
        while unkept:
            file, notice = unkept.popleft()
            queue.kept[file.name] = _Waiting(file=file, notice=notice, is_only_here=True)
        for name, file in there.items():
            if name in queue.kept:
                continue
            try:
                queue.kept[name] = _Waiting(file=file, notice=decode(Event, file.read_bytes()))
            except Exception:  # half a file, or another release's: nobody can send it
                with contextlib.suppress(OSError):
                    file.unlink(missing_ok=True)

    def _deliver(self, channel: Channel, queue: _Queue, group: Sequence[_Waiting]) -> None:
        """Try once; what is taken, refused for good or given up is deleted and told, the rest waits longer each time."""
        cause = cause_of(group[0].notice)
        sent = channel.send([w.notice for w in group])
        for w in group:
            w.tries += 1
        over = [w for w in group if sent.ok or sent.final or self._is_given_up(w)]
        for w in over:
            w.is_over = True
            with contextlib.suppress(OSError):  # then it stays until the next process, which sends it once more
                w.file.unlink(missing_ok=True)
        if over:
            self._tell(channel, [w.notice for w in over], max(w.tries for w in over), sent)
        if sent.ok:
            queue.due.clear()  # it answers again: nobody waits any longer
        else:
            wait_s = max(self._pace.wait_after(max(w.tries for w in group)), min(sent.after_s, 60.0))
            queue.due[cause] = time.monotonic() + wait_s

    def _is_given_up(self, w: _Waiting) -> bool:
        is_page = level_of(w.notice) == "page"
        return w.tries > len(self._pace.retries) and not (is_page and 0 <= w.age_s < self._pace.page_kept)

    def _tell(self, channel: Channel, notices: Sequence[Event], tries: int, sent: Sent) -> None:
        kind, said = ("notify.delivered", "told") if sent.ok else ("notify.failed", "could not tell")
        text = f"{said} {channel.name} ({channel.kind}) of {len(notices)}: {notices[0].text}" + (f" ({sent.why})" if sent.why else "")
        data: dict[str, Scalar] = {
            "channel": channel.name,
            "notices": len(notices),
            "tries": tries,
            "cause": str(notices[0].data.get("cause", "")),
        }
        event = Event(at=self._clock.now(), kind=kind, actor=NOTIFY, text=text, data=data)
        try:
            self._record(event)
        except Exception as why:
            _log.error("%s, and the audit could not be told: %s", text, type(why).__name__)
