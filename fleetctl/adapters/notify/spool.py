"""Every step, adapters layer: notices to people through a folder of files and one thread per channel. Never raises, never holds up a tick.

`send` writes one small file per channel and returns. A thread groups what has one cause, sends it, tries again with a bound, and tells the
audit what became of it. What a process could not send before it ended, the next one sends; one process sends at a time.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import logging
import os
import threading
import time
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
NOTIFY = Actor(kind="schedule", name="notify", via="timer")
_numbers = itertools.count(1)
_log = logging.getLogger("fleetctl.notify")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long is waited, seconds.

    Args:
        group: for more notices of the same cause; retries: before each further try; look: between looks at the folder;
        flush: at the end of the process.
    """

    group: float = 5.0
    retries: tuple[float, ...] = (1.0, 5.0, 20.0, 60.0)
    look: float = 0.2
    flush: float = 3.0


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

    def send(self, e: Event) -> None:
        """Log a notice and put it down for every channel that wants its level; returns at once."""
        self._first.send(e)
        for channel in self._channels:
            if LEVELS.index(level_of(e)) < LEVELS.index(channel.least):
                continue
            try:
                self._put(channel, e)
            except Exception as why:  # a full disk must not keep anybody from home
                _log.error("notice for %s was not kept: %s", channel.name, type(why).__name__)
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

    def _put(self, channel: Channel, e: Event) -> None:
        from fleetctl.domain.canonical import canonical

        folder = self._folder / channel.name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if len(self._files(channel.name)) >= MOST_KEPT:
            _log.error("notice for %s was not kept: %d wait already", channel.name, MOST_KEPT)
            return
        name = f"{time.time_ns():020d}-{os.getpid()}-{next(_numbers)}"
        hidden = folder / f".{name}"
        handle = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(handle, "wb") as f:
            f.write(canonical(e))
        hidden.rename(folder / f"{name}.json")

    def _files(self, channel: str) -> list[Path]:
        try:
            return sorted(p for p in (self._folder / channel).iterdir() if p.suffix == ".json" and not p.name.startswith("."))
        except OSError:
            return []

    def _run(self, channel: Channel) -> None:
        with contextlib.suppress(OSError), self._alone(channel) as is_alone:
            while is_alone():
                group = self._next_group(channel)
                if group and not self._deliver(channel, *group):
                    return
                if group:
                    continue
                if self._stop.wait(self._pace.look) and not self._files(channel.name):
                    return

    @contextlib.contextmanager
    def _alone(self, channel: Channel) -> Iterator[Callable[[], bool]]:
        """Hold the channel's lock as long as this process sends; wait for it while another one does."""
        folder = self._folder / channel.name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        held = [False]

        def is_alone() -> bool:
            while not held[0]:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    held[0] = True
                except OSError:
                    if self._stop.wait(self._pace.look):
                        return False
            return True

        try:
            yield is_alone
        finally:
            os.close(handle)

    def _next_group(self, channel: Channel) -> tuple[list[Path], list[Event]] | None:
        """Return the oldest notices of one cause, once no more of it are waited for; none where nothing waits yet."""
        from fleetctl.domain.canonical import decode

        files = self._files(channel.name)
        if not files:
            return None
        age_s = time.time() - int(files[0].name.partition("-")[0]) / 1e9
        if 0 <= age_s < self._pace.group and not self._stop.is_set():
            self._stop.wait(min(self._pace.look, self._pace.group - age_s))
            return None
        kept: list[tuple[Path, Event]] = []
        for file in files:
            try:
                kept.append((file, decode(Event, file.read_bytes())))
            except (OSError, ValueError, TypeError):
                file.unlink(missing_ok=True)  # half a file, or another release's: nobody can send it
        if not kept:
            return None
        cause = cause_of(kept[0][1])
        chosen = [(f, e) for f, e in kept if cause_of(e) == cause]
        return [f for f, _ in chosen], [e for _, e in chosen]

    def _deliver(self, channel: Channel, files: Sequence[Path], notices: Sequence[Event]) -> bool:
        """Send until it is taken or no further try is due; False where the process ends before that, and the files stay for the next."""
        tries, sent = 0, Sent(ok=False)
        for wait in (0.0, *self._pace.retries):
            if wait and self._stop.wait(max(wait, min(sent.after_s, 60.0))):
                return False
            tries, sent = tries + 1, channel.send(notices)
            if sent.ok or sent.final:
                break
        for file in files:
            file.unlink(missing_ok=True)
        self._tell(channel, notices, tries, sent)
        return True

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
