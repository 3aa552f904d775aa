"""The written docs name what exists: paths of the code, commands, flags, links, make targets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from fleetctl.cli.main import cli
from fleetctl.cli.registry import COMMANDS
from fleetctl.errors import FleetctlError

ROOT = Path(__file__).resolve().parents[2]
WRITTEN = sorted(
    p
    for p in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
    if "reference" not in p.parts  # made by docs/generate.py, checked by its own tests
)
CODE_PATH = re.compile(r"(?<![\w./-])((?:fleetctl|playbooks|terraform|tests|inventory|docs)/[A-Za-z0-9_./-]*[A-Za-z0-9_])")
ELSEWHERE = re.compile(r"repository [\w-]+/[\w-]+[^|\n]*")
MADE_BY_USERS = re.compile(r"inventory/(?!example/)")
COMMAND = re.compile(r"fleetctl(?: +(?:-C|--workspace) +\S+)?((?: +[^\s`|;&#)]+)+)")
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


def named_paths(text: str) -> set[str]:
    """Return every path of this repository that a text names."""
    return {path for path in CODE_PATH.findall(ELSEWHERE.sub("", text)) if not MADE_BY_USERS.match(path)}


def said_commands(text: str) -> Iterator[list[str]]:
    """Yield the words after `fleetctl` of every command that stands in code, cut at the first word that is none of a command line."""
    blocks = re.findall(r"```(?:console|sh)\n(.*?)```", text, re.DOTALL)
    lines = [line.strip().removeprefix("$ ") for block in blocks for line in block.splitlines()]
    lines += re.findall(r"`(fleetctl [^`\n]+)`", text)
    for line in lines:
        if line.startswith("fleetctl ") and (found := COMMAND.match(line)) is not None:
            yield found[1].split()


def resolved(words: list[str]) -> tuple[click.Command, list[str]]:
    """Walk groups down to the command that the words name; return it and what is left.

    Raises:
        LookupError: there is no such command.
    """
    command: click.Command = cli
    rest = list(words)
    context = click.Context(cli, info_name="fleetctl")
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        try:
            found = command.get_command(context, rest[0])
        except FleetctlError as e:
            raise LookupError(str(e)) from e
        if found is None:
            raise LookupError(f"no command {rest[0]!r}")
        command = found
        context = click.Context(command, info_name=rest.pop(0), parent=context)
    return command, rest


def unknown_flags(command: click.Command, rest: list[str]) -> list[str]:
    """Return the flags among `rest` that the command does not take."""
    known = {o for p in command.params for o in (*p.opts, *p.secondary_opts)} | {"--help", "-h"}
    return [w.partition("=")[0] for w in rest if re.match(r"--?[a-z]", w) and w.partition("=")[0] not in known]


@pytest.mark.parametrize("page", WRITTEN, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    missing = sorted(path for path in named_paths(page.read_text(encoding="utf-8")) if not (ROOT / path).exists())
    assert missing == []


@pytest.mark.parametrize("page", WRITTEN, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    targets = [(to, anchor) for to, anchor in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in to]
    broken = [to for to, _ in targets if not (page.parent / to).exists()]
    assert broken == []


@pytest.mark.parametrize("page", WRITTEN, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_command_and_flag_that_a_page_names_exists(page: Path) -> None:
    wrong: list[str] = []
    for words in said_commands(page.read_text(encoding="utf-8")):
        try:
            command, rest = resolved(words)
        except LookupError as e:
            wrong.append(f"{' '.join(words)}: {e}")
            continue
        wrong += [f"{' '.join(words)}: no flag {flag}" for flag in unknown_flags(command, rest)]
    assert wrong == []


def test_a_path_a_command_and_a_flag_that_do_not_exist_are_seen() -> None:
    text = "See `fleetctl/usecases/brand_new.py`.\n\n```console\n$ fleetctl brand-new\n$ fleetctl plan --brand-new\n```\n"
    assert [p for p in named_paths(text) if not (ROOT / p).exists()] == ["fleetctl/usecases/brand_new.py"]
    first, second = said_commands(text)
    with pytest.raises(LookupError):
        resolved(first)
    assert unknown_flags(*resolved(second)) == ["--brand-new"]


def test_architecture_follows_one_cell_through_the_flow() -> None:
    text = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
    stations = ["inventory", "plan", "approve", "provision", "configure", "migrate --phase canary", "migrate", "fallback"]
    places = [text.index(f". `fleetctl {name}`") for name in stations]
    assert places == sorted(places)
    assert text.count("chat-lab") >= 10
    assert len(named_paths(text)) >= 60


def test_architecture_names_every_package() -> None:
    text = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
    packages = {p.parent.name for p in (ROOT / "fleetctl").glob("*/__init__.py")} - {"_shipped"}
    assert [name for name in sorted(packages) if not re.search(rf"\b{name}\b", text)] == []


def test_readme_names_the_two_commands_and_every_command_of_the_flow() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first_screen = "\n".join(text.splitlines()[:60])
    assert "make demo" in first_screen
    assert "make test" in first_screen
    assert "ZLUDA" in first_screen
    assert "MI300X" in first_screen
    assert [name for name in COMMANDS if f"fleetctl {name}" not in text and name not in ("help", "version", "completion")] == []


def test_make_targets_that_pages_name_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {t for page in WRITTEN for t in re.findall(r"`?make ([a-z]+(?:-[a-z]+)*)`", page.read_text(encoding="utf-8"))}
    assert "demo" in named
    assert sorted(named - targets) == []


def test_the_transcript_in_the_readme_is_of_the_demo_that_runs() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = [re.sub(r"\bp[0-9a-f]{11}\b", "ID", line) for line in re.findall(r"^\$ (fleetctl .*)$", readme, re.MULTILINE)]
    source = (ROOT / "fleetctl/lab/demo.py").read_text(encoding="utf-8")
    runs = [re.sub(r"\{[^}]+\}", "ID", line) for line in re.findall(r"demo\.run\(f?\"([^\"]+)\"", source)]
    story = [line for line in runs if line != "fleetctl lab down"] + ["fleetctl lab down"]
    assert len(story) >= 15
    assert shown == story
