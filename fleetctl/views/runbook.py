"""Coming home, view layer: a runbook for people at 80 columns or as Markdown, and what a rehearsal measured. Never I/O."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence

from fleetctl.analysis.faults import KINDS
from fleetctl.domain.runbook import Bound, LiveName, LiveValue, Runbook, Step, Timing
from fleetctl.views.columns import WIDTH, clean, columns, duration, wrapped

NOT_RUN = "never rehearsed"


def command_lines(words: Sequence[str], width: int, indent: str) -> list[str]:
    """Return a command to copy, never cut: continued with a backslash where it is longer than a line."""
    lines, line = [], f"{indent}$"
    for word in words:
        quoted = shlex.quote(clean(word))
        if len(line) + len(quoted) + 3 > width and line.strip() != "$":
            lines.append(f"{line} \\")
            line = f"{indent}   "
        line = f"{line} {quoted}"
    return [*lines, line]


def folded(text: str, width: int, indent: str = "") -> list[str]:
    """Return a text in lines of at most `width` columns, each after the first a little further in."""
    first, *more = wrapped(text, width - len(indent) - 2) or [""]
    return [f"{indent}{first}", *(f"{indent}  {line}" for line in more)]


def live_lines(live: Mapping[LiveName, LiveValue], width: int = WIDTH) -> list[str]:
    """Return the live values, one a line, a word that a value cannot hold on to its name."""
    out = []
    for value in live.values():
        mark = "" if value.is_good else "! "
        first, *more = wrapped(clean(f"{mark}{value.text}"), width - 14) or ["-"]
        out += [f"{value.name:<13} {first}", *(f"{'':<14}{m}" for m in more)]
    return out


def triage_lines(bounds: Sequence[Bound], width: int = WIDTH) -> list[str]:
    """Return what is known of a cell and which runbook is for what."""
    cell = bounds[0].cell
    out = [f"Runbooks of {clean(cell)}", "", *live_lines(bounds[0].live, width), ""]
    rows = [["IF YOU SEE", "RUNBOOK", "SEV"]]
    out += columns(rows + [[b.runbook.see, b.runbook.id, b.runbook.severity] for b in bounds], width=width, keep=(1, 2))
    out += ["", *wrapped("Nothing was changed. Print one, then step through it:", width)]
    for verb in ("show", "run"):
        out += command_lines(("fleetctl", "runbook", verb, cell, "NAME"), width, "  ")
    return [*out, *wrapped("In doubt take full-fallback: it brings every cell home, and needs no approval.", width)]


def list_foot(cells: Sequence[str]) -> tuple[str, ...]:
    """Say what to do next; a person who is called may not know the names of the cells."""
    if not cells:
        return ("No cell has a way home yet. Next: fleetctl plan",)
    shown = ", ".join(map(clean, cells[:8])) + (f" and {len(cells) - 8} more" if len(cells) > 8 else "")
    return (
        f"Cells: {shown}",
        f"Next, with what is known of it now: fleetctl runbook show {clean(cells[0]) if len(cells) == 1 else 'CELL'}",
    )


def last_short(last: Timing | None) -> str:
    """Say in a word or two when a runbook was rehearsed last."""
    return "never" if last is None else f"{last.at:%m-%d} {'green' if last.is_ok else 'RED'}"


def fault_lines(width: int = WIDTH) -> list[str]:
    """Return what each fault of a GPU that an error's text can name means, and what a person does about it."""
    return [line for k in KINDS for line in _bullet(f"{k.name}{' (hard)' if k.is_hard else ''}: {k.meaning}. {k.mend}", width)]


def runbook_lines(bound: Bound, last: Timing | None, width: int = WIDTH) -> list[str]:
    """Return a runbook made for a cell, with what is known now; at most `width` columns, but for words that must not be cut."""
    book = bound.runbook
    out = [*wrapped(f"{book.title}: {clean(bound.cell)} ({book.severity})", width)]
    out += wrapped("Follow it line by line, or let it ask and check each step:", width)
    out += [*command_lines(("fleetctl", "runbook", "run", bound.cell, book.id), width, "  "), ""]

    def section(title: str, lines: Iterable[str]) -> None:
        out.extend((title, *lines, ""))

    def bullets(texts: Iterable[str]) -> list[str]:
        return [line for t in texts for line in _bullet(t, width)]

    section("WHEN", bullets((*book.trigger, f"Alert: {book.alert}")))
    section("IMPACT", wrapped(clean(book.impact), width, "  "))
    section("NOW (read only)", ("  " + line for line in live_lines(bound.live, width - 2)))
    section("DECIDE", (line for c in book.decisions for line in _decision(c.when, c.do, bound.live[c.live], width)))
    if book.needs:
        section("NEEDS", bullets(_need(n.live, bound.live[n.live], n.otherwise) for n in book.needs))
    section("DO", _steps(book.steps, width))
    section("VERIFY", _steps(book.verification, width))
    if book.id == "gpu-faults":
        section("THE FAULTS", fault_lines(width))
    section("TELL PEOPLE", wrapped(clean(book.comms), width, "  "))
    section("CALL", bullets(f"{c.when}: {c.whom}" for c in book.escalation))
    section("AFTER", bullets(book.after))
    section("NOT COVERED", wrapped(clean(book.limits), width, "  "))
    out += wrapped(f"Last rehearsal: {last_text(last)}", width)
    return out


def _bullet(text: str, width: int) -> list[str]:
    first, *more = wrapped(clean(text), width - 4) or [""]
    return [f"  - {first}", *(f"    {line}" for line in more)]


def _decision(when: str, do: str, value: LiveValue, width: int) -> list[str]:
    return [*_bullet(f"{when}: {do}", width), *wrapped(clean(f"({value.name} now: {value.text})"), width, "      ")]


def _need(name: str, value: LiveValue, otherwise: str) -> str:
    word = "holds" if value.is_good else "DOES NOT HOLD" if value.is_good is False else "NOT KNOWN"
    return f"{name}: {word}. Otherwise: {otherwise}"


def _steps(steps: Sequence[Step], width: int) -> list[str]:
    out = []
    for number, s in enumerate(steps, start=1):
        only = " [only where this says so]" if s.choice else ""
        out += wrapped(clean(f"{number}. {s.text}{only}"), width, "  ")
        out += command_lines(s.command, width, "     ") if s.command else wrapped(clean(f"By hand: {s.by_hand}"), width, "     ")
        if s.danger:
            out += wrapped(clean(f"DANGER: {s.danger} Never alone: ask a second person."), width, "     ")
        out += wrapped(clean(f"Expect: {expected_text(s)}. Time: {duration(s.budget_s)}. Undo: {s.undo}"), width, "     ")
    return out


def expected_text(s: Step) -> str:
    """Say what a step's end must look like."""
    shows = s.shows.rstrip(".")
    return f"exit {' or '.join(map(str, s.expect.exits))}; it shows: {shows}" if s.command else shows


def last_text(last: Timing | None) -> str:
    """Say when a runbook was rehearsed last, by whom, and how long it took."""
    if last is None:
        return NOT_RUN
    took = "home was not verified" if last.verified_s is None else f"{last.verified_s:.1f} s from fault to verified"
    word = "green" if last.is_ok else f"NOT green ({clean(last.detail)})"
    return f"{last.at:%Y-%m-%d %H:%M}Z by {clean(last.actor.name)}, {took}, {word}"


def markdown(book: Runbook, more: str = "") -> str:
    """Return a runbook as a page of the documentation, with the names that `fleetctl runbook show` fills in in capitals."""
    t = _capitals
    out = [
        f"# Runbook: {book.title}",
        "",
        f"`fleetctl runbook show CELL {book.id}` prints it for a cell, with its names and what is known of it now.",
    ]
    out += [f"`fleetctl runbook run CELL {book.id}` steps through it.", ""]
    out += [
        "| | |",
        "| --- | --- |",
        f"| Severity | {book.severity} |",
        f"| Alert | {_cell(t(book.alert))} |",
        f"| Impact | {_cell(t(book.impact))} |",
        "",
    ]
    out += ["## When", "", *(f"- {t(x)}" for x in book.trigger), ""]
    out += ["## Decide", "", "| when | do | told by |", "| --- | --- | --- |"]
    out += [f"| {_cell(t(c.when))} | {_cell(t(c.do))} | {c.live} |" for c in book.decisions] + [""]
    if book.needs:
        out += ["## Preconditions", "", *(f"- `{n.live}` is good. Otherwise: {t(n.otherwise)}" for n in book.needs), ""]
    out += ["## Steps", "", *_page_steps(book.steps), "## Verification", "", *_page_steps(book.verification)]
    out += ["## Tell people", "", f"> {t(book.comms)}", ""]
    out += [
        "## Escalation",
        "",
        "| when | whom |",
        "| --- | --- |",
        *(f"| {_cell(t(c.when))} | {_cell(t(c.whom))} |" for c in book.escalation),
        "",
    ]
    out += ["## After", "", *(f"- {t(x)}" for x in book.after), "", "## Not covered", "", t(book.limits), ""]
    rehearsed = "the lab cannot make its fault" if book.fault is None else f"the lab makes the fault `{book.fault.kind}`"
    out += ["## Rehearsal", "", f"`fleetctl runbook drill CELL {book.id}`: {rehearsed}."]
    return "\n".join([*out, *([more] if more else [])]) + "\n"


def _page_steps(steps: Sequence[Step]) -> list[str]:
    out = []
    for number, s in enumerate(steps, start=1):
        only = " *Only where this says so.*" if s.choice else ""
        out += [f"{number}. {_capitals(s.text)}{only}", ""]
        if s.command:
            out += ["   ```console", f"   $ {_capitals(' '.join(s.command))}", "   ```", ""]
        else:
            out += [f"   By hand: {_capitals(s.by_hand)}", ""]
        if s.danger:
            out += [f"   **Danger.** {_capitals(s.danger)} Never alone: ask a second person. `run` asks for the cell's name.", ""]
        out += [f"   Expected: {_capitals(expected_text(s))}. Time: {duration(s.budget_s)}. Undo: {_capitals(s.undo)}", ""]
    return out


def _capitals(text: str) -> str:
    for name in ("cell", "workload", "source", "region"):
        text = text.replace("{" + name + "}", name.upper())
    return text.replace("{region_cells}", "CELL...")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
