"""Rebalance and migrate, adapters layer: writes and enables systemd units, or one marked crontab line. Again replaces, never adds."""

from __future__ import annotations

import os
import pwd
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fleetctl.errors import FleetctlError, ToolMissing

Every = Literal["minutely", "hourly", "daily", "weekly"]
CALENDAR: dict[Every, str] = {"minutely": "minutely", "hourly": "hourly", "daily": "*-*-* 03:00:00 UTC", "weekly": "Mon *-*-* 03:00:00 UTC"}
CRON: dict[Every, str] = {"minutely": "* * * * *", "hourly": "0 * * * *", "daily": "0 3 * * *", "weekly": "0 3 * * 1"}
SYSTEM_UNITS = Path("/etc/systemd/system")
LONGEST_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerJob:
    """What runs, and when.

    Args:
        name: of the units, a-z, 0-9 and "-"; argv: absolute program first; folder: where it runs; path: its PATH.
        user: as whom the system runs it, from `owner_of`: whoever else it were could not use the workspace's keys.
    """

    name: str
    argv: tuple[str, ...]
    folder: Path
    every: Every
    path: str
    user: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """What was written, how to look at it, and what else a person must do."""

    files: tuple[str, ...]
    look: str
    notes: tuple[str, ...] = ()


def is_system() -> bool:
    """Tell whether a timer is the system's: root installs it, anybody else has one of their own."""
    return os.geteuid() == 0


def owner_of(folder: Path) -> str:
    """Return the owner of a folder as systemd's `User=` takes it: the name, or the number where the name is not a plain word.

    Raises:
        FleetctlError: timer.owner, a folder that is not there or whose owner this machine does not know.
    """
    try:
        owner = pwd.getpwuid(folder.stat().st_uid)
    except (OSError, KeyError) as e:
        text = f"the owner of {folder} is not known here, so nobody is whom the unit could run as."
        raise FleetctlError("timer.owner", text, hint="Give the workspace to a user of this machine") from e
    return owner.pw_name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,30}", owner.pw_name) else str(owner.pw_uid)


def unit_texts(job: TimerJob, *, system: bool) -> dict[str, str]:
    """Return the text per unit file name.

    Raises:
        FleetctlError: timer.text, a path or argument with a line break.
    """
    _plain(job)
    command = " ".join(_word(a) for a in job.argv)
    service = [
        "[Unit]",
        f"Description=fleetctl: {job.name}",
        "Wants=network-online.target" if system else "",
        "After=network-online.target" if system else "",
        "",
        "[Service]",
        "Type=oneshot",
        f"User={job.user}" if system else "",
        f"WorkingDirectory={_specifier(str(job.folder))}",
        f"Environment={_word(f'PATH={job.path}')}",
        f"ExecStart={command}",
        "SuccessExitStatus=8",
        "TimeoutStartSec=infinity",
        "UMask=0077",
    ]
    timer = [
        "[Unit]",
        f"Description=fleetctl: {job.name}, {job.every}",
        "",
        "[Timer]",
        f"OnCalendar={CALENDAR[job.every]}",
        "Persistent=true",
        "AccuracySec=1s" if job.every == "minutely" else "RandomizedDelaySec=300",
        "",
        "[Install]",
        "WantedBy=timers.target",
    ]
    return {
        f"{job.name}.service": "\n".join(line for i, line in enumerate(service) if line or i == 4) + "\n",
        f"{job.name}.timer": "\n".join(timer) + "\n",
    }


def guard_unit(argv: Sequence[str], folder: Path, path: str, user: str) -> str:
    """Return the unit of a system's service that runs a command all the time as a user and is started again whenever it ends.

    Raises:
        FleetctlError: timer.text, a path or argument with a line break.
    """
    job = TimerJob(name="fleetctl-guard", argv=tuple(argv), folder=folder, every="hourly", path=path, user=user)
    _plain(job)
    lines = [
        "[Unit]",
        "Description=fleetctl: takes a weight home that nobody renews",
        "Wants=network-online.target",
        "After=network-online.target",
        "",
        "[Service]",
        f"User={user}",
        f"WorkingDirectory={_specifier(str(folder))}",
        f"Environment={_word(f'PATH={path}')}",
        f"ExecStart={' '.join(_word(a) for a in job.argv)}",
        "Restart=always",
        "RestartSec=2",
        "UMask=0077",
        "NoNewPrivileges=yes",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines) + "\n"


def install_systemd(job: TimerJob, *, units: Path | None = None) -> Installed:
    """Write the units and enable the timer: for the system as root, else for this user.

    Args:
        units: folder of the units; None: systemd's own.

    Raises:
        ToolMissing: timer.no_systemd; FleetctlError: timer.failed, timer.text.
    """
    program = _systemctl()
    system = is_system()
    folder = units or _units(system)
    texts = unit_texts(job, system=system)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            _replace(folder / name, text)
    except OSError as e:
        raise FleetctlError("timer.failed", f"{e.filename} cannot be written: {e.strerror}.", hint="Run it as the owner of it") from e
    _run([*program, "daemon-reload"])
    _run([*program, "enable", "--now", f"{job.name}.timer"])
    user = "" if system else "--user "
    linger = () if system else ("It runs while you are logged in. To have it run always: loginctl enable-linger",)
    look = f"systemctl {user}list-timers {job.name}.timer"
    return Installed(files=tuple(str(folder / name) for name in texts), look=look, notes=linger)


def remove_systemd(job: TimerJob, *, units: Path | None = None) -> tuple[str, ...]:
    """Stop the timer and take its units away; a run under way goes on to its end.

    Returns:
        the files that were removed, () where there were none.

    Raises:
        ToolMissing: timer.no_systemd; FleetctlError: timer.failed.
    """
    folder = units or _units(is_system())
    there = [p for p in (folder / f"{job.name}.timer", folder / f"{job.name}.service") if p.is_file()]
    if not there:
        return ()
    program = _systemctl()
    _run([*program, "disable", "--now", f"{job.name}.timer"])
    try:
        for path in there:
            path.unlink()
    except OSError as e:
        raise FleetctlError("timer.failed", f"{e.filename} cannot be removed: {e.strerror}.", hint="Run it as the owner of it") from e
    _run([*program, "daemon-reload"])
    return tuple(str(p) for p in there)


def _systemctl() -> list[str]:
    program = shutil.which("systemctl")
    if program is None:
        raise ToolMissing("timer.no_systemd", "there is no systemctl here.", hint="Install it with cron")
    return [program] if is_system() else [program, "--user"]


def _units(system: bool) -> Path:
    return SYSTEM_UNITS if system else Path.home() / ".config" / "systemd" / "user"


def cron_line(job: TimerJob) -> str:
    """Return the crontab line with its mark. Raises FleetctlError (timer.text)."""
    _plain(job)
    command = f"cd {shlex.quote(str(job.folder))} && PATH={shlex.quote(job.path)} {shlex.join(job.argv)}"
    return f"{CRON[job.every]} {command.replace('%', chr(92) + '%')} {_mark(job)}"


def install_cron(job: TimerJob) -> Installed:
    """Put the line into the crontab of the job's user in place of an earlier one.

    Raises:
        ToolMissing: timer.no_cron, with the line to add by hand; FleetctlError: timer.failed, timer.text.
    """
    line = cron_line(job)
    program = shutil.which("crontab")
    if program is None:
        raise ToolMissing("timer.no_cron", "there is no crontab here.", hint="Add this line to your scheduler", details=(line,))
    crontab = _of_user(program, job)
    kept, _ = _crontab(crontab, job, line)
    _run([*crontab, "-"], "\n".join([*kept, line]) + "\n")
    return Installed(files=(line,), look=" ".join(("crontab", *crontab[1:], "-l")))


def remove_cron(job: TimerJob) -> tuple[str, ...]:
    """Take the line out of the crontab of the job's user; every other line stays.

    Returns:
        the lines that were removed, () where there was none.

    Raises:
        ToolMissing: timer.no_cron; FleetctlError: timer.failed.
    """
    program = shutil.which("crontab")
    if program is None:
        raise ToolMissing("timer.no_cron", "there is no crontab here.", hint="Take the line out of your scheduler")
    crontab = _of_user(program, job)
    kept, gone = _crontab(crontab, job, cron_line(job))
    if gone:
        _run([*crontab, "-"], "".join(f"{text}\n" for text in kept))
    return tuple(gone)


def _of_user(program: str, job: TimerJob) -> list[str]:
    """Return the program for the crontab of the job's user; root alone has a choice."""
    return [program, "-u", job.user] if is_system() and job.user != "root" else [program]


def _crontab(program: Sequence[str], job: TimerJob, line: str) -> tuple[list[str], list[str]]:
    """Return the lines of others, and those of this job."""
    listed = subprocess.run([*program, "-l"], capture_output=True, text=True, timeout=LONGEST_S)
    if listed.returncode and "no crontab" not in listed.stderr.lower():
        raise FleetctlError(
            "timer.failed", f"crontab -l failed: {listed.stderr.strip()[:200]}", hint="Add the line by hand", details=(line,)
        )
    lines = listed.stdout.splitlines() if not listed.returncode else []
    return [x for x in lines if not x.endswith(f" {_mark(job)}")], [x for x in lines if x.endswith(f" {_mark(job)}")]


def _mark(job: TimerJob) -> str:
    return f"# {job.name}"


def _plain(job: TimerJob) -> None:
    if any(not c.isprintable() for text in (job.name, job.user, str(job.folder), job.path, *job.argv) for c in text):
        raise FleetctlError("timer.text", "a path or argument of the timer has a line break or control character.", hint="Rename it")


def _specifier(text: str) -> str:
    return text.replace("%", "%%")


def _word(text: str) -> str:
    """Quote one word for a unit file. Source: systemd.syntax(7), systemd.service(5): quotes, backslash, "%" and "$" are escaped."""
    escaped = _specifier(text).replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{escaped}"'


def _replace(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.new")
    draft.write_text(text, "utf-8")
    draft.chmod(0o644)
    draft.replace(path)


def _run(argv: list[str], text: str | None = None) -> None:
    try:
        done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=LONGEST_S)
    except subprocess.TimeoutExpired as e:
        raise FleetctlError("timer.failed", f"{argv[0]} did not end within {LONGEST_S} s.", hint="Look: systemctl status") from e
    if done.returncode:
        said = " ".join(done.stderr.split())[:300]
        hint = "Mend it, then run the same command again"
        if "--user" in argv:
            hint = "You need a systemd manager of your own: loginctl enable-linger, then log in anew. Or install it as root, or with cron"
        raise FleetctlError("timer.failed", f"{' '.join(argv[:3])} failed: {said}", hint=hint)
