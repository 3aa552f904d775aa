"""Write the reference pages from the program itself: commands, errors, settings, fleet file. `--check` only compares and ends with 1.

Usage: python docs/generate.py [--check]
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from fleetctl import errors  # noqa: E402

REFERENCE = ROOT / "docs" / "reference"
MADE = "<!-- Made by docs/generate.py from the program. Do not edit. -->"
ERROR_TYPES = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.FleetctlError)}
FLEET_FILE_INTRO = """\
`inventory/NAME/fleet.yaml` says what runs where, what users were promised, and the rules a migration keeps. `fleetctl init` writes
a commented example. Its JSON Schema is [fleet.schema.json](fleet.schema.json) (`fleetctl inventory schema`).

Times carry a unit (`20s`, `5m`, `2h`, `7d`), shares are `10%` or `1000bp`, margins of errors are `0.5 points`. `on`, `yes`, `n`, `010`
and `1:30` are refused, because YAML readers disagree about them. Unknown keys are mistakes, with file and line."""
CODE = re.compile(r"[a-z_]+(\.[a-z_]+)*\Z")


class Raised(NamedTuple):
    """One error as the code gives it."""

    code: str
    exit_code: int
    message: str
    hint: str


def commands_page() -> str:
    """Return commands.md from the help of every command that is there."""
    import click

    from fleetctl.cli.main import PROGRAM, cli
    from fleetctl.cli.registry import COMMANDS, GROUPS, in_group
    from fleetctl.cli.topics import EXIT_CODES

    lines = ["# Commands", "", MADE, ""]
    top = click.Context(cli, info_name=PROGRAM, **{**cli.context_settings, "max_content_width": 80, "terminal_width": 80})
    lines += [*_block(cli.get_help(top)), ""]
    for group in GROUPS:
        lines += [f"## {group}", ""]
        for name in in_group(group):
            if find_spec(COMMANDS[name].module(name)) is None:
                continue
            command = cli.get_command(top, name)
            if command is not None:
                lines += _command(command, name, top, 3)
    lines += ["## Exit codes", "", "| code | meaning |", "| --- | --- |"]
    lines += [f"| {code} | {text} |" for code, text in EXIT_CODES]
    return "\n".join(lines) + "\n"


def _command(command: Any, name: str, parent: Any, level: int) -> list[str]:
    import click

    context = click.Context(command, info_name=name, parent=parent, max_content_width=80, terminal_width=80)
    lines = [f"{'#' * level} {context.command_path}", "", *_block(command.get_help(context)), ""]
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            if found is not None:
                lines += _command(found, inner, context, level + 1)
    return lines


def _block(text: str) -> list[str]:
    return ["```text", *(line.rstrip() for line in text.rstrip("\n").splitlines()), "```"]


def errors_page() -> str:
    """Return errors.md: every code that the source gives, with its exit code, messages and hints."""
    by_code: dict[str, list[Raised]] = {}
    for raised in sorted(set(raised_errors())):
        by_code.setdefault(raised.code, []).append(raised)
    lines = ["# Errors", "", MADE, ""]
    lines += ["Every error names the object, the cause and the next command. Codes are stable; texts may change.", ""]
    lines += [
        "A file that cannot be used lists all its mistakes, each as `file:line: text`. A traceback is shown with `--debug` alone.",
        "",
    ]
    for topic in sorted({code.split(".")[0] for code in by_code}):
        lines += [f"## {topic}", "", "| code | exit | says | next |", "| --- | --- | --- | --- |"]
        for code, found in by_code.items():
            if code.split(".")[0] == topic:
                says = "<br>".join(dict.fromkeys(_cell(r.message) for r in found if r.message))
                hints = "<br>".join(dict.fromkeys(_cell(r.hint) for r in found if r.hint))
                exits = ", ".join(str(e) for e in sorted({r.exit_code for r in found}))
                lines.append(f"| `{code}` | {exits} | {says or '…'} | {hints} |")
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def raised_errors(root: Path = ROOT / "fleetctl") -> Iterator[Raised]:
    """Yield every call that makes a FleetctlError, or a failure value with a code, in the source."""
    for file in sorted(root.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"), filename=str(file))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                yield from _raised(node)


def _raised(call: ast.Call) -> Iterator[Raised]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""
    keywords = {k.arg: k.value for k in call.keywords if k.arg}
    if name in ERROR_TYPES:
        code = call.args[0] if call.args else keywords.get("code")
        message = call.args[1] if len(call.args) > 1 else keywords.get("message")
        hint, exit_code = keywords.get("hint"), ERROR_TYPES[name].exit_code
    elif name == "ProvisionFailure":
        code, message, hint, exit_code = keywords.get("code"), keywords.get("text"), None, errors.EXIT_FAILED
    else:
        return
    for text in _texts(code):
        if CODE.match(text):
            yield Raised(text, exit_code, _text(message), _text(hint))


def _texts(node: ast.expr | None) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from _texts(node.body)
        yield from _texts(node.orelse)


def _text(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(v.value) if isinstance(v, ast.Constant) else "…" for v in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    return "…" if node is not None else ""


def settings_page() -> str:
    """Return settings.md from the table of settings."""
    from fleetctl.formats.settings import OTHER_VARIABLES, SETTINGS_FILE, SPECS, WORKSPACE

    lines = ["# Settings", "", MADE, ""]
    lines += [f"The first that says something wins: flags, `FLEETCTL_*`, the workspace's `{SETTINGS_FILE}`, your own", ""]
    lines[-2] += " `$XDG_CONFIG_HOME/fleetctl/config.toml` (`~/.config`), the default. Unknown keys are mistakes, with file and line."
    lines += [f"| `{SETTINGS_FILE}` | environment | default | meaning |", "| --- | --- | --- | --- |"]
    for spec in (*SPECS, WORKSPACE):
        allowed = f" One of {', '.join(f'`{word}`' for word in spec.allowed)}." if spec.allowed else ""
        key = f"`{spec.name}`" if spec is not WORKSPACE else "(`-C DIR`)"
        lines.append(f"| {key} | `FLEETCTL_{spec.name.upper()}` | {f'`{spec.default}`' if spec.default else ''} | {spec.text}{allowed} |")
    lines += ["", "Variables that one part alone reads:", "", "| environment | meaning |", "| --- | --- |"]
    lines += [f"| `{name}` | {text} |" for name, text in OTHER_VARIABLES]
    lines += ["", "`NO_COLOR` and `TERM=dumb` switch colour and motion off. Secrets are never settings: files name where they lie."]
    return "\n".join(lines) + "\n"


def fleet_file_page() -> str:
    """Return fleet-file.md from the JSON Schema of the fleet file, and what margins and steps mean where they are left out."""
    from fleetctl.formats.fleet_schema import json_schema
    from fleetctl.formats.presets import PRESETS

    schema = json_schema()
    lines = ["# The fleet file", "", MADE, ""]
    lines += [FLEET_FILE_INTRO, ""]
    lines += _keys("the file", schema)
    for name, definition in sorted(schema["$defs"].items()):
        lines += _keys(name.removesuffix("Shape").lower(), definition)
    lines += ["## Named steps", "", "| name | canary and ramp | bake |", "| --- | --- | --- |"]
    for name, steps in PRESETS.items():
        moving = [s for s in steps if s["phase"] in {"canary", "ramp"}]
        lines.append(f"| `{name}` | {', '.join(s['weight'] for s in moving)} | {', '.join(s['bake'] for s in moving)} |")
    lines += ["", "All go on to full (95%, 60m), soak (95%, 7d: 5 % stays on the source as the control) and complete (100%).", ""]
    lines += _margins()
    return "\n".join(lines) + "\n"


def _margins() -> list[str]:
    from fleetctl.domain.workload import Guardrail
    from fleetctl.formats.presets import default_guardrail

    lines = ["## Margins that are left out", ""]
    lines += ["| share | errors | latency p50, p75 | p90, p95 | p99 | latency fails beyond |", "| --- | --- | --- | --- | --- | --- |"]
    for weight in (100, 1_000, 2_500, 5_000):
        error, latency = (default_guardrail(Guardrail(g), weight) for g in ("errors", "latency"))
        rungs = " | ".join(f"{latency.rungs[i]:.0%}" for i in (0, 2, 4))
        lines.append(f"| {weight / 100:g}% | {error.margin * 100:g} points | {rungs} | {latency.fail_margin:.1%} |")
    lines += ["", "Errors fail beyond 0 points. While full and soak hold back a small control, a FAIL needs the PASS margin.", ""]
    return lines[:-1]


def _keys(title: str, definition: dict[str, Any]) -> list[str]:
    lines = [f"## {title}", "", definition.get("description", ""), "", "| key | type | default | meaning |", "| --- | --- | --- | --- |"]
    required = set(definition.get("required", ()))
    for key, field in definition["properties"].items():
        default = (
            "required"
            if key in required
            else f"`{json.dumps(field['default'], ensure_ascii=False)}`"
            if field.get("default") is not None
            else ""
        )
        if isinstance(field.get("default"), dict):
            default = ""
        lines.append(f"| `{key}` | {_type(field)} | {_cell(default)} | {_cell(field.get('description', ''))} |")
    return [*lines, ""]


def _type(field: dict[str, Any]) -> str:
    if "$ref" in field:
        name = field["$ref"].rsplit("/", 1)[1].removesuffix("Shape").lower()
        return f"[{name}](#{name})"
    if "enum" in field:
        return ", ".join(f"`{word}`" for word in field["enum"])
    if "const" in field:
        return f"`{field['const']}`"
    if "anyOf" in field:
        kinds = [f for f in field["anyOf"] if f.get("type") != "null"]
        return " or ".join(_type(f) for f in kinds)
    kind = field.get("type", "object")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array":
        return f"list of {_type(field['items'])}"
    named = next(iter(field.get("patternProperties", {}).values()), None)
    if named is not None:
        return f"name: {_type(named)}"
    if kind == "object" and isinstance(field.get("additionalProperties"), dict):
        return f"name: {_type(field['additionalProperties'])}"
    return {"object": "mapping", "string": "text", "integer": "whole number"}.get(kind, str(kind))


def rules_page() -> str:
    """Return assessment-rules.md: every rule and every package with what it means and its evidence."""
    from fleetctl.assess.collected import STALE_AFTER
    from fleetctl.catalog.portability import load_rule_book

    book = load_rule_book()
    lines = ["# Assessment rules", "", MADE, ""]
    lines += [f"CUDA names: {len(book.names):,}, from {book.names_from}. `fleetctl assess --import-names CHECKOUT` refreshes them.", ""]
    lines += [
        f"Rules checked more than {STALE_AFTER.days} days before an assessment are marked in it. *Least route*: the first that copes.",
        "",
    ]
    for kind in dict.fromkeys(r.kind for r in book.rules.values()):
        lines += [f"## {kind}", "", "| rule | signal | grade | least route | means | why | holds | evidence | as of |"]
        lines += ["| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
        for r in (r for r in book.rules.values() if r.kind == kind):
            holds = ", ".join(x for x in (f"from {r.since}" if r.since else "", f"until {r.until}" if r.until else "") if x)
            cells = (f"<a id={r.id.lower()}></a>{r.id}", r.signal, r.grade, r.least, r.effect, r.why, holds, r.evidence, r.as_of)
            lines.append(f"| {cells[0]} | {' | '.join(_cell(c) for c in cells[1:])} |")
        lines.append("")
    lines += ["## packages", "", "| rule | packages | status | move | what to do | holds | evidence | as of |"]
    lines += ["| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for p in book.packages:
        holds = ", ".join(x for x in (f"from {p.since}" if p.since else "", f"until {p.until}" if p.until else "") if x)
        cells = (p.id, " ".join(f"`{n}`" for n in p.names), p.status, p.move, p.action, holds, p.evidence, p.as_of)
        lines.append(f"| {' | '.join(_cell(c) for c in cells)} |")
    return "\n".join(lines) + "\n"


def runbook_pages(folder: Path) -> dict[Path, str]:
    """Return a page per runbook and their index."""
    from fleetctl.formats.runbook_file import ORDER, load_runbook
    from fleetctl.views.runbook import markdown

    books = [load_runbook(name) for name in ORDER]
    made = {folder / f"{b.id}.md": f"{MADE}\n{markdown(b, gpu_faults() if b.id == 'gpu-faults' else '')}" for b in books}
    lines = [
        MADE,
        "# Runbooks",
        "",
        "Which one, with what is known of the cell now: `fleetctl runbook show CELL`. How they work and what they do not do:",
    ]
    lines += ["[use runbooks](../how-to/use-runbooks.md).", "", "| runbook | severity | rehearsed by | |", "| --- | --- | --- | --- |"]
    lines += [f"| [{b.id}]({b.id}.md) | {b.severity} | {'nothing' if b.fault is None else b.fault.kind} | {b.title} |" for b in books]
    return made | {folder / "README.md": "\n".join(lines) + "\n"}


def gpu_faults() -> str:
    """Return the table of faults that an error's text can name."""
    from fleetctl.analysis.faults import KINDS

    lines = [
        "",
        "## The faults",
        "",
        "Texts of errors that paired probes get (status 500 and above) and engines' own lines of their logs are classified. A hard kind on",
        "the canary trips the breaker by itself and the cell goes home; the others stay errors like any other. In `fleetctl status` and",
        "the event log a kind stands by its name.",
        "",
        "| kind | hard | what it usually means | what to do | pattern |",
        "| --- | --- | --- | --- | --- |",
    ]
    for k in KINDS:
        pattern = k.pattern.pattern.replace("|", "\\|")
        lines.append(f"| {k.name} | {'yes' if k.is_hard else 'no'} | {k.meaning} | {k.mend} | `{pattern}` |")
    return "\n".join(lines)


def _beside(name: str) -> ModuleType:
    """Return a module that lies beside this one."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError(f"docs/{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def pages() -> dict[Path, str]:
    """Return every page that this makes, by file."""
    from fleetctl.formats import example

    nodes, states = _beside("generate_nodes"), _beside("evidence_states")
    inventory = ROOT / "inventory" / "example"
    about_nodes: dict[Path, str] = nodes.node_pages(REFERENCE)
    return (
        about_nodes
        | runbook_pages(ROOT / "docs" / "runbooks")
        | {
            ROOT / "docs" / "explanation" / "evidence-states.md": f"{MADE}\n{states.page()}",
            REFERENCE / "commands.md": commands_page(),
            REFERENCE / "errors.md": errors_page(),
            REFERENCE / "settings.md": settings_page(),
            REFERENCE / "fleet-file.md": fleet_file_page(),
            REFERENCE / "assessment-rules.md": rules_page(),
            REFERENCE / "fleet.schema.json": example.schema_text(),
            inventory / "fleet.yaml": example.fleet_text("example", example.EXAMPLE_LINEAGE),
            inventory / "fleet.schema.json": example.schema_text(),
            inventory / "access" / "azure-role.json": example.azure_role_text(),
            inventory / "access" / "aws-policy.json": example.aws_policy_text(),
            inventory / "access" / "kubernetes-role.yaml": example.kubernetes_role_text(),
        }
    )


def main(argv: list[str]) -> int:
    """Write every page, or compare; return the exit code."""
    stale = [file for file, text in pages().items() if not file.exists() or file.read_text(encoding="utf-8") != text]
    if "--check" in argv:
        for file in stale:
            sys.stdout.write(f"{file.relative_to(ROOT)} is not current. Run: python docs/generate.py\n")
        return 1 if stale else 0
    for file, text in pages().items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    for file in stale:
        sys.stdout.write(f"{file.relative_to(ROOT)} written\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
