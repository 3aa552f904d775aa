"""Every step, shell layer: the table of commands with their group and one line of help. Never imports a command."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """One command: its group in `--help` and one line of help. Its module is fleetctl.cli.commands.<name>."""

    group: str
    help: str

    def module(self, name: str) -> str:
        """Return the module that holds the command."""
        return f"fleetctl.cli.commands.{name}"


GROUPS = ("See", "Move", "Home", "Tools")

COMMANDS: dict[str, Entry] = {
    "inventory": Entry("See", "What runs where: traffic, cost, and where each cell would go."),
    "assess": Entry("See", "How a workload, a tree or an image can move, and what blocks it."),
    "plan": Entry("See", "Save and print a plan: waves, fit, cost, evidence needed."),
    "show": Entry("See", "Print a saved plan."),
    "status": Entry("See", "Where each cell stands now; --watch follows."),
    "capacity": Entry("See", "Where machines may be had, and why not."),
    "report": Entry("See", "Write one HTML file: shares, latency, evidence, events, costs."),
    "audit": Entry("See", "Show and verify the hash-chained log of what happened."),
    "approve": Entry("Move", "Say yes to exactly one plan."),
    "provision": Entry("Move", "Make the target pools with Terraform."),
    "configure": Entry("Move", "Prepare the target hosts with Ansible."),
    "migrate": Entry("Move", "Move cells: shadow, canary, ramp, full, soak."),
    "promote": Entry("Move", "Accept a cell's step as it is."),
    "pause": Entry("Move", "Freeze a cell's advance."),
    "resume": Entry("Move", "Thaw a paused cell."),
    "retry": Entry("Move", "Begin again after an abort or a rollback, on the same plan."),
    "rebalance": Entry("Move", "Plan again from how things stand; begin it under a standing approval."),
    "release": Entry("Move", "Give a pool back, after soak, drill and approvals."),
    "abort": Entry("Home", "Stop a cell's migration and go home."),
    "rollback": Entry("Home", "Take a cell one step lower; its evidence restarts."),
    "fallback": Entry("Home", "Everything of a workload, or --all, back home at once."),
    "runbook": Entry("Home", "What to do when something goes wrong: show, run, rehearse."),
    "guard": Entry("Home", "Beside a router without a guard: take home what nobody renews."),
    "init": Entry("Tools", "Write an example fleet, settings and read-only cloud policies."),
    "bench": Entry("Tools", "Drive an endpoint with your own trace; keep what it did."),
    "catalog": Entry("Tools", "GPUs, VM sizes, price books and runs, each row with source and date."),
    "doctor": Entry("Tools", "Check every need and name the command that mends it."),
    "calibrate": Entry("Tools", "Compare a source with itself; the least margins it allows."),
    "analyze": Entry("Tools", "Judge recorded evidence again, with any settings."),
    "lab": Entry("Tools", "A local fleet on this machine: up, load, fault, down."),
    "completion": Entry("Tools", "Print the completion script for bash, zsh or fish."),
    "help": Entry("Tools", "Explain a command or a topic, such as exit-codes."),
    "version": Entry("Tools", "Print the version."),
}

IN_TROUBLE = "In trouble: fleetctl fallback WORKLOAD"


def in_group(group: str) -> tuple[str, ...]:
    """Return the commands of a group, in the order of the table."""
    return tuple(name for name, entry in COMMANDS.items() if entry.group == group)
