"""Traffic, adapter layer: commands over HAProxy's admin socket, and its tables parsed. Never interprets a weight."""

from __future__ import annotations

import csv
import re
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fleetctl.adapters.deadline import Deadline
from fleetctl.errors import TrafficNotApplied

_FULL_S = 0.005
_VALUE = re.compile(r"found=yes\b.*\bvalue=\"([^\"]*)\"")
_COMMAND = re.compile(r"[A-Za-z0-9_./ -]{1,400}\Z")
_LINE_MOST = 8_000
"""Bytes of commands sent at a time: a line must fit into a buffer of HAProxy (tune.bufsize, 16,384 where nobody changed it)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRow:
    """One server line of `show stat`.

    Args:
        status: such as "UP", "DOWN", "MAINT"; check: code of the last health check, such as "L7OK".
        sessions: requests open now.
    """

    backend: str
    name: str
    status: str
    check: str
    sessions: int
    backup: bool


@dataclass(frozen=True, slots=True)
class AdminSocket:
    """The admin socket of one HAProxy."""

    path: Path
    router: str = field(default="haproxy")

    def ask(self, command: str, deadline: Deadline) -> str:
        """Send one command and return its answer without the blank lines around it.

        Raises:
            TrafficNotApplied: traffic.router_down where nothing answers in time; traffic.unsafe_command where a name could start a
                second command.
        """
        return self._said((command,), deadline).strip()

    def ask_many(self, commands: Sequence[str], deadline: Deadline) -> tuple[str, ...]:
        """Send many commands, over as few connections as they fit in, and return the answer of each, in their order.

        HAProxy does one after the other and ends each answer with an empty line. Only for commands whose answer holds none.

        Raises:
            TrafficNotApplied: as `ask`; traffic.not_shown where the answers cannot be told apart: some commands may have been done.
        """
        found: list[str] = []
        for group in _lines_of(commands):
            answers = [part.strip() for part in self._said(group, deadline).split("\n\n")]
            if len(answers) != len(group) + 1 or answers[-1]:
                text = f"router {self.router} gave {len(answers) - 1} answers to {len(group)} commands."
                raise TrafficNotApplied("traffic.not_shown", text, hint="Run: fleetctl doctor")
            found += answers[:-1]
        return tuple(found)

    def _said(self, commands: Sequence[str], deadline: Deadline) -> str:
        for command in commands:
            if not _COMMAND.match(command):
                raise TrafficNotApplied(
                    "traffic.unsafe_command", f"router {self.router}: {command[:60]!r} was not sent: it holds more than one plain command"
                )
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
                self._connect(link, deadline)
                link.sendall(";".join(commands).encode("ascii") + b"\n")
                answer = self._all(link, deadline).decode("utf-8", "replace")
        except OSError as failed:
            raise self._down(failed.strerror or "no answer in time") from failed
        if not answer.endswith("\n"):  # whatever HAProxy says ends a line: a weight cut in two would be another weight
            raise self._down("its answer is cut off")
        return answer

    def servers(self, backend: str, deadline: Deadline) -> tuple[ServerRow, ...]:
        """List the servers of a backend, in the order of the configuration.

        Raises:
            TrafficNotApplied: traffic.router_down.
        """
        table = self.ask(f"show stat {backend} 4 -1", deadline).removeprefix("# ")
        rows = csv.DictReader(line for line in table.splitlines() if line)
        return tuple(
            ServerRow(
                backend=backend,
                name=row["svname"],
                status=row["status"].split(" ")[0],
                check=row["check_status"].removeprefix("* "),
                sessions=int(row["scur"] or 0),
                backup=row["bck"] == "1",
            )
            for row in rows
            if row["pxname"] == backend
        )

    def map_value(self, path: Path, key: str, deadline: Deadline) -> str | None:
        """Return what a map routes by now, None where the key is not in it.

        Raises:
            TrafficNotApplied: traffic.router_down.
        """
        return value_of(self.ask(map_command(path, key), deadline))

    def _connect(self, link: socket.socket, deadline: Deadline) -> None:
        """Connect; a queue of callers that is full for the moment is no router that is down."""
        while True:
            self._limit(link, deadline)
            try:
                return link.connect(str(self.path))
            except BlockingIOError:
                time.sleep(_FULL_S)

    def _limit(self, link: socket.socket, deadline: Deadline) -> None:
        left = deadline.left_s()
        if left <= 0:
            raise TimeoutError("no answer in time")
        link.settimeout(left)

    def _all(self, link: socket.socket, deadline: Deadline) -> bytes:
        parts: list[bytes] = []
        while True:
            self._limit(link, deadline)
            part = link.recv(65_536)
            if not part:
                return b"".join(parts)
            parts.append(part)

    def _down(self, why: str) -> TrafficNotApplied:
        return TrafficNotApplied(
            "traffic.router_down", f"router {self.router} does not answer on {self.path}: {why}.", hint="Run: fleetctl doctor"
        )


def map_command(path: Path, key: str) -> str:
    """Return the command that asks what a map routes by."""
    return f"get map {path} {key}"


def value_of(answer: str) -> str | None:
    """Return the value in the answer to `map_command`, None where the key is not in the map."""
    found = _VALUE.search(answer)
    return found[1] if found else None


def _lines_of(commands: Sequence[str]) -> list[list[str]]:
    """Return the commands in groups of which each is a line that HAProxy takes."""
    groups: list[list[str]] = []
    size = _LINE_MOST
    for command in commands:
        if size + len(command) + 1 > _LINE_MOST:
            groups.append([])
            size = 0
        groups[-1].append(command)
        size += len(command) + 1
    return groups
