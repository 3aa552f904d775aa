"""What cannot be printed is an error with a code, for every command; what cannot be said on stderr stops no work."""

from __future__ import annotations

import errno
import io
import json
import sys

import click
import pytest

from fleetctl.cli import main as program
from fleetctl.cli.registry import COMMANDS
from fleetctl.cli.streams import Messages, Results, guarded
from tests.unit.test_cli_main import put


class Broken(io.StringIO):
    """A stream that takes `room` characters and fails from then on, when it is written or when it is flushed."""

    def __init__(self, number: int, *, at_flush: bool = False, room: int = 0) -> None:
        super().__init__()
        self._number, self._at_flush, self._room = number, at_flush, room

    def write(self, text: str) -> int:
        if not self._at_flush and self.tell() + len(text) > self._room:
            raise OSError(self._number, "it failed")
        return super().write(text)

    def flush(self) -> None:
        if self._at_flush and self.tell() > self._room:
            raise OSError(self._number, "it failed")


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_prints_into_the_void(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdout", Broken(errno.ENOSPC))
    assert program.main([name, "--help"]) == 1
    assert capsys.readouterr().err.startswith("error[output.failed]: the output cannot be written: No space left on device. ")


@pytest.mark.parametrize("at_flush", [True, False])
@pytest.mark.parametrize(
    ("number", "code"), [(errno.ENOSPC, "failed"), (errno.EIO, "failed"), (errno.EDQUOT, "failed"), (errno.EPIPE, "closed")]
)
def test_each_way_of_failing_has_its_code(
    number: int, code: str, at_flush: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command("plan")
    def command() -> None:
        for n in range(5):
            click.echo(json.dumps({"line": n}))

    put(monkeypatch, "plan", command)
    for argv in (["plan"], ["--version"], ["--help"], []):
        monkeypatch.setattr(sys, "stdout", Broken(number, at_flush=at_flush, room=14))
        assert program.main(argv) == 1
        said = capsys.readouterr().err
        assert said.startswith(f"error[output.{code}]: ")
        assert said.count("\n") == 1


def test_a_closed_stdout_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert program.main(["version"]) == 1
    assert capsys.readouterr().err.startswith("error[output.closed]: ")
    gone = io.StringIO()
    gone.close()
    monkeypatch.setattr(sys, "stdout", gone)
    assert program.main(["version"]) == 1
    assert capsys.readouterr().err.startswith("error[output.closed]: ")


@pytest.mark.parametrize("stream", [None, Broken(errno.ENOSPC), Broken(errno.EPIPE, at_flush=True), Broken(errno.EIO)])
def test_work_goes_on_without_messages(stream: Broken | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    done = []

    @click.command("plan")
    def command() -> None:
        click.echo("Going home", err=True)
        sys.stderr.write("straight\n")
        sys.stderr.flush()
        done.append(1)
        click.echo("home")

    put(monkeypatch, "plan", command)
    monkeypatch.setattr(sys, "stderr", stream)
    assert program.main(["plan"]) == 0
    assert (done, capsys.readouterr().out) == ([1], "home\n")
    assert program.main(["nonsense"]) == 2


def test_streams_are_given_back() -> None:
    before = sys.stdout, sys.stderr
    with guarded():
        assert isinstance(sys.stdout, Results)
        assert isinstance(sys.stderr, Messages)
    assert (sys.stdout, sys.stderr) == before


def test_a_group_without_subcommand_names_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["catalog"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error[usage.no_subcommand]: fleetctl catalog needs a subcommand: check, import, ")
    assert said.endswith(" Run: fleetctl catalog --help\n")


def test_long_messages_are_broken_between_words_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    argv = ["catalog", "show", "no-such-sku-" + "x" * 70 + " and more words that follow it"]
    code = program.main(argv)
    plain = capsys.readouterr().err
    assert len(plain.splitlines()[0]) > 80
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert program.main(argv) == code
    said = capsys.readouterr().err
    assert all(len(line) <= 60 or " " not in line.strip() for line in said.splitlines())
    assert len(said.splitlines()) > len(plain.splitlines())
    assert said.split() == plain.split()
