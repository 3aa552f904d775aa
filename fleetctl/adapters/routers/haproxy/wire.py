"""Traffic, adapter layer: one command at a time over HAProxy's admin socket, and its tables parsed. Never interprets a weight."""

from __future__ import annotations

import csv
import re
import socket
from dataclasses import dataclass, field
from pathlib import Path

from fleetctl.adapters.deadline import Deadline
from fleetctl.errors import TrafficNotApplied

_COMMAND = re.compile(r"[A-Za-z0-9_./ -]{1,400}\Z")


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
        if not _COMMAND.match(command):
            raise TrafficNotApplied(
                "traffic.unsafe_command", f"router {self.router}: {command[:60]!r} was not sent: it holds more than one plain command"
            )
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
                self._limit(link, deadline)
                link.connect(str(self.path))
                link.sendall(command.encode("ascii") + b"\n")
                answer = self._all(link, deadline).decode("utf-8", "replace")
        except OSError as failed:
            raise self._down(failed.strerror or "no answer in time") from failed
        if not answer.endswith("\n"):  # whatever HAProxy says ends a line: a weight cut in two would be another weight
            raise self._down("its answer is cut off")
        return answer.strip()

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
        for line in self.ask(f"show map {path}", deadline).splitlines():
            words = line.split(" ")
            if len(words) == 3 and words[1] == key:
                return words[2]
        return None

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
