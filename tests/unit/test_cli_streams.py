"""What cannot be printed is an error with a code, for every command; what cannot be said on stderr stops no work."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import sys

import click
import pytest

from fleetctl.cli import main as program
from fleetctl.cli.commands.migrate import Lines
from fleetctl.cli.registry import COMMANDS
from fleetctl.cli.streams import Messages, Results, guarded
from fleetctl.errors import OutputFailed
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


@pytest.mark.parametrize("encoding", ["ascii", "utf-8", "latin-1"])
def test_no_encoding_leads_past_the_guard(encoding: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Full(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, _: object) -> int:
            raise OSError(errno.ENOSPC, "full")

    stream = io.TextIOWrapper(io.BufferedWriter(Full()), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    assert program.main(["version"]) == 1
    assert capsys.readouterr().err.startswith("error[output.failed]: ")
    with contextlib.suppress(OSError):
        stream.close()


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


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "shift-jis", "utf-8"])
def test_a_character_that_the_terminal_lacks_stops_nothing(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\u00e9 \u2026 \u8868 \U0001f600 \ud800 end"

    @click.command("plan")
    def command() -> None:
        click.echo(text)
        click.echo(text, err=True)

    put(monkeypatch, "plan", command)
    raw, other = io.BytesIO(), io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(other, encoding=encoding))
    assert program.main(["plan"]) == 0
    for seen in (raw, other):
        said = seen.getvalue().decode("utf-8" if encoding == "ascii" else encoding)
        assert said.endswith(" end\n")
        assert all(a == b or b == "?" for a, b in zip(text, said.rstrip("\n"), strict=True))


def test_a_stream_that_nobody_reads_asks_a_migration_to_stop_and_is_told_at_its_end() -> None:
    class Stop:
        asked = False

    said: list[str] = []

    def line(kind: str, value: object) -> None:
        said.append(kind)
        if len(said) == 2:
            raise OutputFailed("output.closed", "closed.")

    stop = Stop()
    lines = Lines(line, stop)  # type: ignore[arg-type]
    lines("a", 1)
    assert (stop.asked, lines.ended(8)) == (False, 8)
    lines("b", 1)
    lines("c", 1)
    assert (stop.asked, said) == (True, ["a", "b"])
    with pytest.raises(OutputFailed):
        lines.ended(0)
