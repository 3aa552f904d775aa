"""Status and audit as text."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fleetctl.views.audit import ChainResult, render_audit
from fleetctl.views.columns import clean, clipped, columns, counted, duration, percent, wrapped
from fleetctl.views.status import StatusRow, fleet_verdict, render_live, render_status, row_from

ROWS = (
    StatusRow(cell="summary-lab", phase="canary", served_bp=0, verdict="FAIL", ended="rolled_back", next="Run: fleetctl report", wave=2),
    StatusRow(cell="chat-lab", phase="ramp", weight_bp=5000, served_bp=4981, verdict="PASS", next="full in 12 s", wave=1),
    StatusRow(cell="smollm-lab", phase="shadow", verdict="INCONCLUSIVE", missing=430, age_s=45.0, wave=1),
)


def test_the_table() -> None:
    assert render_status(ROWS, width=100).splitlines() == [
        "CELL         PHASE   WEIGHT  SERVED  VERDICT       NEXT",
        "chat-lab     ramp      50 %  49.8 %  PASS          full in 12 s",
        "smollm-lab   shadow     0 %       -  INCONCLUSIVE  430 requests to go; last look 45 s ago",
        "summary-lab  canary     0 %   0.0 %  rolled back   Run: fleetctl report",
        "",
        "WAIT: 3 cells: 1 waiting for evidence, 1 rolled back, 2 under way",
    ]


def test_every_line_fits_and_colour_is_only_where_asked() -> None:
    for text in (render_status(ROWS), render_live(ROWS)):
        assert "\x1b" not in text
        assert all(len(line) <= 80 for line in text.splitlines())
    assert "\x1b[32mPASS\x1b[0m" in render_status(ROWS, colour=True)
    assert "\x1b[31;1mrolled back\x1b[0m" in render_live(ROWS, colour=True)


def test_live_bars_show_what_is_served() -> None:
    chat = render_live(ROWS).splitlines()[0]
    assert chat.count("█") == 10
    assert chat.startswith("chat-lab ")


@pytest.mark.parametrize(
    ("rows", "start"),
    [
        ((), "Nothing is migrating. Next: fleetctl plan"),
        ((StatusRow(cell="a", phase="ramp", verdict="PASS"),), "OK: 1 cell: 1 under way"),
        ((StatusRow(cell="a", phase="ramp", verdict="FAIL"),), "FAIL: 1 cell: 1 failing (a), 1 under way"),
        ((StatusRow(cell="a", phase="complete", ended="complete"),), "OK: 1 cell: 1 complete"),
        ((StatusRow(cell="a", phase="ramp", ended="fell_back"),), "HOME: 1 cell: 1 fell back"),
        (
            (StatusRow(cell="a", phase="ramp", ended="fell_back"), StatusRow(cell="b", phase="canary", verdict="PASS")),
            "OK: 2 cells: 1 fell back, 1 under way",
        ),
    ],
)
def test_the_fleets_verdict(rows: tuple[StatusRow, ...], start: str) -> None:
    assert fleet_verdict(rows) == start
    assert render_status(rows).splitlines()[-1] == start


def test_rows_from_plain_values() -> None:
    assert row_from({"cell": "a", "phase": "soak", "weight_bp": 9500, "other": 1}) == StatusRow(cell="a", phase="soak", weight_bp=9500)
    with pytest.raises(KeyError):
        row_from({"cell": "a"})


def test_hostile_names_stay_on_their_line() -> None:
    text = render_status((StatusRow(cell="a\x1b[31m\nb", phase="ramp"),))
    assert "\x1b" not in text
    assert "a?[31m?b" in text


def test_status_loads_nothing_slow() -> None:
    code = (
        "import sys; old = set(sys.modules); import fleetctl.views.status; new = set(sys.modules) - old;"
        " sys.exit(','.join(new & {'rich', 'yaml', 'pydantic', 'asyncio', 'numpy'}) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_audit_in_one_sentence() -> None:
    good = (ChainResult(cell=None, events=3, head="ab" * 32), ChainResult(cell="chat-lab", events=9, head="cd" * 32))
    assert render_audit(good) == "ok: 12 events in 2 chains, every link holds\n"
    assert "(fleet)" in render_audit(good, wide=True)
    broken = (*good, ChainResult(cell="smollm-lab", events=4, broken=(3, "was edited")))
    assert render_audit(broken).splitlines()[:2] == ["broken: 1 of 3 chains does not hold", "  smollm-lab: link 3 was edited"]
    assert render_audit(()) == "ok: 0 events in 0 chains, every link holds\n"


def test_text_for_people() -> None:
    assert [duration(s) for s in (0, 45, 180, 7200, 604800)] == ["0 s", "45 s", "3 min", "2.0 h", "7.0 d"]
    assert [percent(bp) for bp in (0, 50, 1000, 10_000)] == ["0 %", "0.5 %", "10 %", "100 %"]
    assert counted(1, "cell") + counted(1200, "cell") == "1 cell1,200 cells"
    assert clipped("abcdef", 4) == "abc…"
    assert clean("a\tb") == "a?b"
    assert wrapped("one two three", 9, "  ") == ["  one two", "  three"]
    assert wrapped("abcdefghijkl", 8) == ["abcdefgh", "ijkl"]
    assert columns([["a", 1], ["bbb", 22]], right=[1]) == ["a     1", "bbb  22"]
    assert all(len(line) <= 30 for line in columns([["x" * 50, "y" * 20]], width=30))
