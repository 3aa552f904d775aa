"""Progress: plain lines off a terminal, a heartbeat every 10 s, motion on one."""

from __future__ import annotations

import io
import re

import pytest

from fleetctl.domain.provision import Progress
from fleetctl.views.progress import ProgressView, bar, progress_line


def progress(state: str, **more: object) -> Progress:
    """Make one progress of a host."""
    return Progress(subject="h1", step="serve", state=state, **more)  # type: ignore[arg-type]


def test_plain_lines_and_a_summary() -> None:
    stream = io.StringIO()
    with ProgressView(live=False, title="configure", stream=stream) as view:
        view(progress("started"))
        view(progress("changed", seconds=1.25, text="unit file"))
        view(progress("failed", text="bad\x1b[0m"))
        view.say("one note")
    assert stream.getvalue().splitlines() == [
        "> h1  serve  started",
        "+ h1  serve  changed 1.2s: unit file",
        "x h1  serve  failed: bad?[0m",
        "one note",
        "configure: 1 changed, 1 failed",
    ]


def test_of_many_tasks_each_role_is_named_once_and_only_what_tells_something_is_shown() -> None:
    stream = io.StringIO()

    def step(name: str, state: str, host: str = "h1", **more: object) -> Progress:
        return Progress(subject=host, step=name, state=state, **more)  # type: ignore[arg-type]

    with ProgressView(live=False, title="configure site", stream=stream, many=True) as view:
        for p in (
            step("rocm : Look", "started"), step("rocm : Look", "ok"), step("rocm : Look", "started", "h2"),
            step("rocm : Install", "started"), step("rocm : Install", "changed", seconds=2.0), step("rocm : Wait", "ok", seconds=31.0),
            step("model_server : Start", "failed", text="no unit"),
        ):  # fmt: skip
            view(p)
    assert stream.getvalue().splitlines() == [
        "> h1  rocm",
        "> h2  rocm",
        "+ h1  rocm : Install  changed 2.0s",
        "= h1  rocm : Wait  ok 31.0s",
        "> h1  model_server",
        "x h1  model_server : Start  failed: no unit",
        "configure site: 2 ok, 1 changed, 1 failed",
    ]


def test_running_lines_come_every_ten_seconds_only() -> None:
    clock, stream = [0.0], io.StringIO()
    with ProgressView(live=False, title="provision", stream=stream, now=lambda: clock[0]) as view:
        for second in range(25):
            clock[0] = float(second)
            view(progress("running", seconds=float(second)))
    assert stream.getvalue().splitlines() == ["> h1  serve  running 10.0s", "> h1  serve  running 20.0s"]


def test_a_terminal_moves_and_keeps_what_went_wrong() -> None:
    stream = io.StringIO()
    with ProgressView(live=True, title="configure", stream=stream) as view:
        view(progress("started"))
        view(progress("unreachable", text="no route"))
        view.say("a note")
    text = stream.getvalue()
    assert "h1  serve  unreachable: no route" in text
    assert "a note" in text
    assert text.rstrip("\n").endswith("configure: 1 unreachable")


def test_on_a_terminal_of_80_columns_nothing_wraps_but_what_went_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    stream = io.StringIO()
    long = "translation_layer : Compile and link the workload's own kernels for the accelerator that it will run on"
    with ProgressView(live=True, title="configure site", stream=stream, many=True) as view:
        view(Progress(subject="mi300x-lab-1", step=long, state="started"))
        view(Progress(subject="mi300x-lab-1", step=long, state="changed", seconds=3.0))
        view(Progress(subject="mi300x-lab-1", step="rocm : Install", state="failed", text="no such version " * 8 + "END"))
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue()).replace("\r", "\n")
    lines = text.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert any(line.startswith("+ mi300x-lab-1  translation_layer : Compile") and line.rstrip().endswith("…") for line in lines)
    assert "END" in text, "a failure is shown whole"


def test_lines_fit_and_bars_read_without_colour() -> None:
    assert len(progress_line(progress("ok", text="x" * 200), width=60)) == 60
    assert (bar(0.0, 10), bar(0.25, 8), bar(2.0, 4)) == ("." * 10, "##......", "####")
