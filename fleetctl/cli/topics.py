"""Every step, shell layer: help that belongs to no single command. Never a command's own help."""

from __future__ import annotations

EXIT_CODES: tuple[tuple[int, str], ...] = (
    (0, "done"),
    (1, "failed"),
    (2, "usage, or a file that cannot be used"),
    (3, "changes or drift (with --detailed-exitcode, and provision --check)"),
    (4, "credentials missing or with too few rights"),
    (5, "rolled back on evidence"),
    (6, "inconclusive: a person must look"),
    (7, "stale plan, or somebody else holds the lease"),
    (8, "still pending: nothing failed, it is not over yet"),
    (130, "interrupted"),
)


def exit_codes() -> str:
    """Return the topic exit-codes."""
    lines = [f"  {code:>3}  {text}" for code, text in EXIT_CODES]
    return "\n".join(["Every command ends with one of these codes:", "", *lines, "", "Doing nothing because all is well is 0."])


def settings() -> str:
    """Return the topic settings."""
    from fleetctl.formats.settings import SETTINGS_FILE, SPECS, WORKSPACE

    lines = [
        "The first of these that says something wins: flags, FLEETCTL_* variables, the workspace's",
        f"{SETTINGS_FILE}, your own $XDG_CONFIG_HOME/fleetctl/config.toml (~/.config), the default.",
        "",
    ]
    for spec in (*SPECS, WORKSPACE):
        default = f"  [default: {spec.default}]" if spec.default else ""
        allowed = f"  ({', '.join(spec.allowed)})" if spec.allowed else ""
        lines.append(f"  {spec.name:<10} FLEETCTL_{spec.name.upper():<10} {spec.text}{allowed}{default}")
    lines += ["", "NO_COLOR and TERM=dumb switch colour and motion off. Secrets are never settings: files name where they lie."]
    return "\n".join(lines)


def output() -> str:
    """Return the topic output."""
    from fleetctl.formats.output import OUTPUT_FORMAT

    return "\n".join(
        [
            "Results go to stdout, messages and progress to stderr. -o chooses the form:",
            "",
            "  table  one object a row, at most 80 columns where it is not a terminal",
            "  wide   every column, never cut",
            "  json   one object with format_version and kind, and either items or its fields",
            "  yaml   the same as YAML",
            "  name   one kind/name a line, for scripts",
            "",
            f"format_version is {OUTPUT_FORMAT}: a minor version adds fields, a major one",
            "may take some away.",
            "Long commands with -o json write one object a line, first the header.",
        ]
    )


TOPICS = {"exit-codes": exit_codes, "settings": settings, "output": output}
