"""Every step, lowest layer: the tree of errors, their stable codes and exit codes. Never imports anything of fleetctl.

FleetctlError                 1   <topic>.<what>
├── UsageError                2   usage.*
├── ConfigInvalid             2   config.*    every mistake of a file at once, with file and line
├── CredentialsMissing        4   credentials.*
├── RolledBack                5   rollout.rolled_back
├── NeedsPerson               6   rollout.inconclusive
├── PlanStale                 7   plan.stale, plan.changed
├── LeaseHeld                 7   lease.*
├── StillPending              8   pending.*
├── Interrupted             130   interrupted
├── CapacityUnavailable       1   capacity.*
├── InventoryFailed           1   inventory.*
├── ProvisionFailed           1   provision.*
├── ConfigureFailed           1   configure.*
├── EvidenceUnavailable       1   evidence.*
├── TrafficNotApplied         1   traffic.*
├── UnsafeFallback            1   fallback.*
├── RunbookFailed             1   runbook.*
├── StoreUnavailable          1   store.*
├── OutputFailed              1   output.*    what was asked for was done, and could not be printed
├── ToolMissing               1   tool.*
└── LabFailed                 1   lab.*
"""

from __future__ import annotations

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_CHANGES = 3
EXIT_CREDENTIALS = 4
EXIT_ROLLED_BACK = 5
EXIT_INCONCLUSIVE = 6
EXIT_STALE = 7
EXIT_PENDING = 8
EXIT_INTERRUPTED = 130


class FleetctlError(Exception):
    """A failure that names object, cause and next command.

    Args:
        code: stable, dotted, lower case; documented in docs/reference/errors.md.
        message: what failed, on which object, and why; one sentence, no secret.
        hint: the command or change that mends it.
    """

    exit_code = EXIT_FAILED

    def __init__(self, code: str, message: str, *, hint: str = "", details: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.details = details

    def __str__(self) -> str:
        stop = "" if not self.hint or self.message.endswith((".", "!", "?", "…")) else "."
        return f"error[{self.code}]: {self.message}{stop}" + (f" {self.hint}" if self.hint else "")


class UsageError(FleetctlError):
    """A command line that cannot be obeyed."""

    exit_code = EXIT_USAGE


class ConfigInvalid(FleetctlError):
    """A file of the user's that cannot be used; `details` holds every mistake as `file:line: text`."""

    exit_code = EXIT_USAGE


class CredentialsMissing(FleetctlError):
    """A credential is missing, expired or has too few rights."""

    exit_code = EXIT_CREDENTIALS


class RolledBack(FleetctlError):
    """A migration went home on evidence."""

    exit_code = EXIT_ROLLED_BACK


class NeedsPerson(FleetctlError):
    """Evidence stayed inconclusive; a person must look."""

    exit_code = EXIT_INCONCLUSIVE


class PlanStale(FleetctlError):
    """The plan no longer matches the fleet, or was changed after it was approved."""

    exit_code = EXIT_STALE


class LeaseHeld(FleetctlError):
    """Somebody else is the writer now."""

    exit_code = EXIT_STALE


class StillPending(FleetctlError):
    """Nothing failed; it is not over yet."""

    exit_code = EXIT_PENDING


class Interrupted(FleetctlError):
    """A person stopped the command; the message says how to resume."""

    exit_code = EXIT_INTERRUPTED


class CapacityUnavailable(FleetctlError):
    """The capacity that was asked for is not to be had."""


class AssessFailed(FleetctlError):
    """Nothing was read that a verdict could rest on."""


class InventoryFailed(FleetctlError):
    """A source of the inventory cannot be read at all."""


class ProvisionFailed(FleetctlError):
    """Terraform failed or was refused."""


class ConfigureFailed(FleetctlError):
    """A host failed or was unreachable."""


class EvidenceUnavailable(FleetctlError):
    """Evidence cannot be read at all."""


class TrafficNotApplied(FleetctlError):
    """The router did not take, or did not show, the split that was set."""


class UnsafeFallback(FleetctlError):
    """The side to go home to is not proven healthy."""


class RunbookFailed(FleetctlError):
    """A runbook's precondition or a step's expected output does not hold."""


class StoreUnavailable(FleetctlError):
    """The store of record cannot be read or written."""


class RowUnreadable(StoreUnavailable):
    """One row of the store cannot be read; the others can."""


class OutputFailed(FleetctlError):
    """The result cannot be printed."""


class ToolMissing(FleetctlError):
    """A program that is needed is not installed or too old."""


class LabFailed(FleetctlError):
    """The local lab could not do what was asked."""
