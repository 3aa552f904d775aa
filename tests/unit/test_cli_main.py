"""The program: errors and exit codes in one place, suggestions, no traceback without --debug."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

import click
import pytest

from fleetctl import __version__, errors
from fleetctl.cli import main as program
from fleetctl.cli.registry import COMMANDS, GROUPS, IN_TROUBLE
from fleetctl.cli.topics import EXIT_CODES


def put(monkeypatch: pytest.MonkeyPatch, name: str, command: click.Command) -> None:
    """Make `command` the module of a registered command."""
    module = ModuleType(COMMANDS[name].module(name))
    module.command = command  # type: ignore[attr-defined]
    module.__spec__ = type("Spec", (), {"name": module.__name__})()
    monkeypatch.setitem(sys.modules, module.__name__, module)


def raising(error: BaseException) -> click.Command:
    """Return a command that raises."""

    @click.command("plan")
    def command() -> None:
        raise error

    return command


def test_help_is_grouped_and_ends_with_the_way_home(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["--help"]) == 0
    text = capsys.readouterr().out
    places = [text.index(f"{group}:") for group in GROUPS]
    assert places == sorted(places)
    assert text.rstrip("\n").splitlines()[-1] == IN_TROUBLE
    assert all(f"  {name}" in text for name in COMMANDS)
    assert all(len(line) <= 80 for line in text.splitlines())
    assert program.main([]) == 0
    assert capsys.readouterr().out == text


def _helps(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(command, click.Group):
        ctx = click.Context(command)
        for name in command.list_commands(ctx):
            inner = command.get_command(ctx, name)
            assert inner is not None
            yield from _helps(inner, (*path, name))


def test_every_help_fits_a_terminal_and_breaks_no_sentence_off(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for path in _helps(program.cli):
        assert program.main([*path, "--help"]) == 0
        for line in capsys.readouterr().out.splitlines():
            assert len(line) <= 80, (path, line)
            assert not line.endswith("...") or line.startswith("Usage:"), (path, line)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["--version"]) == 0
    assert capsys.readouterr().out == f"fleetctl {__version__}\n"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["statsu"], "error[usage.no_command]: there is no command 'statsu'. Did you mean: fleetctl status\n"),
        (["zzz"], "error[usage.no_command]: there is no command 'zzz'. Run: fleetctl --help\n"),
        (["--colour"], "error[usage.bad]: No such option '--colour'."),
        (["version", "extra"], "Run: fleetctl version --help\n"),
        (["version", "-o", "xml"], "error[usage.bad]: Invalid value for '-o'"),
        (["help", "exitcodes"], "error[usage.no_topic]"),
    ],
)
def test_usage_errors_end_with_2(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(argv) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.FleetctlError("x.y", "It failed."), 1),
        (errors.ConfigInvalid("config.invalid", "Bad."), 2),
        (errors.CredentialsMissing("credentials.missing", "None."), 4),
        (errors.RolledBack("rollout.rolled_back", "Home."), 5),
        (errors.NeedsPerson("rollout.inconclusive", "Look."), 6),
        (errors.PlanStale("plan.stale", "Old."), 7),
        (errors.StillPending("pending.soak", "Soaks."), 8),
        (errors.Interrupted("interrupted", "Stopped."), 130),
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
        (ZeroDivisionError("by zero"), 1),
    ],
)
def test_exit_codes_of_errors(error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    put(monkeypatch, "plan", raising(error))
    assert program.main(["plan"]) == code
    said = capsys.readouterr().err.lstrip("\n")
    assert said.startswith("error[")
    assert "Traceback" not in said
    assert code in dict(EXIT_CODES)


def test_details_follow_the_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    error = errors.ConfigInvalid("config.invalid", "f has 2 mistakes.", hint="Run: fleetctl inventory", details=("f:1: a", "f:2: b"))
    put(monkeypatch, "plan", raising(error))
    assert program.main(["plan"]) == 2
    assert capsys.readouterr().err == "error[config.invalid]: f has 2 mistakes. Run: fleetctl inventory\n  f:1: a\n  f:2: b\n"


def test_unexpected_errors_show_a_traceback_with_debug_alone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    put(monkeypatch, "plan", raising(ZeroDivisionError("by\nzero")))
    assert program.main(["plan"]) == 1
    said = capsys.readouterr().err
    assert said == "error[internal]: unexpected ZeroDivisionError: by zero. Run the same command with: fleetctl --debug ...\n"
    assert program.main(["--debug", "plan"]) == 1
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert said.rstrip("\n").splitlines()[-1].startswith("error[internal]: unexpected ZeroDivisionError")


def test_a_command_returns_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, "plan", click.Command("plan", callback=lambda: 3))
    assert program.main(["plan"]) == 3
    put(monkeypatch, "plan", click.Command("plan", callback=lambda: None))
    assert program.main(["plan"]) == 0


def test_a_command_without_its_module_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    entry = COMMANDS["plan"]
    monkeypatch.setitem(COMMANDS, "planet", entry)
    assert program.main(["planet"]) == 2
    assert "error[usage.not_built]: the command planet is not part of this installation." in capsys.readouterr().err


@pytest.mark.parametrize("topic", ["exit-codes", "settings", "output", "version"])
def test_help_topics(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["help", topic]) == 0
    assert len(capsys.readouterr().out.splitlines()) >= 5


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["completion", shell]) == 0
    assert "_FLEETCTL_COMPLETE" in capsys.readouterr().out


def test_commands_complete_without_being_imported() -> None:
    context = click.Context(program.cli, info_name="fleetctl", help_option_names=["-h", "--help"])
    found = {item.value: item.help for item in program.cli.shell_complete(context, "pro")}
    assert found == {"provision": COMMANDS["provision"].help, "promote": COMMANDS["promote"].help}


def test_an_error_is_one_line_for_programs_and_broken_between_words_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"/subscriptions/{'0' * 90}/x"
    error = errors.FleetctlError("internal", f"{'many words ' * 12}about {name}.", hint="Run: fleetctl doctor", details=("one more " * 15,))
    assert program._say(error) == error.exit_code
    assert len(capsys.readouterr().err.splitlines()) == 2
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    program._say(error)
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if len(line) > 80] == [f"  {name}."], "what is copied stays whole"
    assert " ".join(" ".join(lines).split()).startswith(str(error))
