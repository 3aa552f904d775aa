"""Configure, inside Ansible: writes what a run does as JSON lines for the program that started it. Never imports fleetctl.

Results themselves are never written, only how a task ended, how long it took and, of a failure, a short message; of a `no_log` task not
even that.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: fleetctl_events
type: notification
short_description: Write events as JSON lines
description:
  - One JSON object a line, flushed at once, into the file that the environment variable FLEETCTL_EVENTS names (created 0600).
  - Without that variable it does nothing.
requirements:
  - enabled in the configuration
"""

TEXT_LIMIT = 1000
"""Letters of a failure's message that are kept."""


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Write play, task, result and stats events."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "fleetctl_events"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Open the file; without FLEETCTL_EVENTS switch off."""
        super().__init__(*args, **kwargs)
        self._begun: dict[tuple[str, str], float] = {}
        path = os.environ.get("FLEETCTL_EVENTS")
        if not path:
            self.disabled = True
            return
        self._file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "w", encoding="utf-8")

    def _write(self, event: str, **fields: object) -> None:
        self._file.write(json.dumps({"event": event, **fields}) + "\n")
        self._file.flush()

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """Tell that a play begins."""
        self._write("play", name=play.get_name())

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        """Tell that a task begins."""
        self._write("task", name=_name(task))

    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        """Tell that a handler begins."""
        self._write("task", name=_name(task))

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        """Tell that a host begins a task."""
        self._begun[host.get_name(), task._uuid] = time.monotonic()
        self._write("start", host=host.get_name(), task=_name(task))

    def v2_runner_on_ok(self, result: Any) -> None:
        """Tell that a task ended well."""
        self._result(result, "changed" if result.result.get("changed") else "ok")

    def v2_runner_on_skipped(self, result: Any) -> None:
        """Tell that a task was skipped."""
        self._result(result, "skipped")

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Tell that a task failed."""
        self._result(result, "failed", ignored=bool(ignore_errors), text=_text(result))

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """Tell that a host was not reached."""
        self._result(result, "unreachable", text=_text(result))

    def v2_runner_retry(self, result: Any) -> None:
        """Tell that a task is tried again."""
        fields = result.result
        self._write("retry", host=result.host.get_name(), task=_name(result.task), attempt=fields.get("attempts"), of=fields.get("retries"))

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Tell the counts; a run without this event did not come to its end."""
        self._write("stats", hosts={host: stats.summarize(host) for host in sorted(stats.processed)})

    def _result(self, result: Any, state: str, **more: object) -> None:
        host, task = result.host.get_name(), result.task
        begun = self._begun.pop((host, task._uuid), None)
        seconds = round(time.monotonic() - begun, 3) if begun is not None else 0.0
        self._write("result", host=host, task=_name(task), state=state, seconds=seconds, **more)


def _name(task: Any) -> str:
    if task.action == "ansible.builtin.validate_argument_spec":
        return f"{task._role.get_name()} : Check the arguments of the role" if task._role else "Check the arguments of the role"
    return str(task.get_name())


def _text(result: Any) -> str:
    fields = result.result
    if fields.get("_ansible_no_log") or "censored" in fields or getattr(result.task, "no_log", False):
        return "hidden, because the task is marked no_log"
    items = [i for i in fields.get("results") or () if isinstance(i, dict) and (i.get("failed") or i.get("unreachable"))]
    if any(i.get("_ansible_no_log") or "censored" in i for i in items):
        return "hidden, because the task is marked no_log"
    message = (items[0] if items else fields).get("msg") or fields.get("msg") or "no message"
    flat = " ".join("".join(c if c.isprintable() else " " for c in str(message)).split())
    return flat if len(flat) <= TEXT_LIMIT else flat[: TEXT_LIMIT - 1] + "…"
