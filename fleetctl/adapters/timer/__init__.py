"""Rebalance, adapters layer: a timer that runs a command on a schedule: systemd units, or a line of the user's crontab. Never a shell."""

from fleetctl.adapters.timer.install import (
    Installed,
    TimerJob,
    guard_unit,
    install_cron,
    install_systemd,
    owner_of,
    remove_cron,
    remove_systemd,
    unit_texts,
)

__all__ = [
    "Installed",
    "TimerJob",
    "guard_unit",
    "install_cron",
    "install_systemd",
    "owner_of",
    "remove_cron",
    "remove_systemd",
    "unit_texts",
]
