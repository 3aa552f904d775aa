"""`fleetctl rebalance` and `fleetctl catalog` as commands: what they print, what they refuse; the timer's units and crontab line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from fleetctl.adapters.timer import TimerJob, install_cron, install_systemd, remove_cron, remove_systemd, unit_texts
from fleetctl.adapters.timer.install import Every, cron_line
from fleetctl.cli.main import main
from fleetctl.domain.rebalance import Limits
from fleetctl.errors import FleetctlError, ToolMissing
from fleetctl.formats.example import EXAMPLE_LINEAGE, fleet_text
from fleetctl.views.rebalance import render_run
from tests.unit.test_rebalance import WIDE, World

SCRIPT = '#!/bin/sh\nprintf "%s\\n" "$*" >> "$CALLS"\n'
CRONTAB = (
    SCRIPT + 'if [ "$1" = "-l" ]; then cat "$TABLE" 2>/dev/null || { echo "no crontab for x" >&2; exit 1; }; else cat > "$TABLE"; fi\n'
)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "inventory" / "example"
    folder.mkdir(parents=True)
    (folder / "fleet.yaml").write_text(fleet_text("example", EXAMPLE_LINEAGE))
    return tmp_path


def run(folder: Path, *argv: str) -> int:
    try:
        return main(["-C", str(folder), *argv])
    except SystemExit as e:
        return int(e.code or 0)


def job(folder: Path, every: Every = "weekly", user: str = "root") -> TimerJob:
    return TimerJob(
        name="fleetctl-rebalance-x",
        argv=("/usr/bin/env", "fleetctl", "-C", str(folder)),
        folder=folder,
        every=every,
        path="/usr/bin",
        user=user,
    )


def test_by_default_nothing_is_changed(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(workspace, "rebalance") == 0
    out = capsys.readouterr().out
    assert out.startswith("Rebalance at ")
    assert "Nothing was changed" in out
    assert all(len(line) <= 80 for line in out.splitlines())
    assert run(workspace, "rebalance", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["begun"] == []


def test_it_applies_only_under_a_standing_approval(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(workspace, "rebalance", "--apply") == 7
    assert "error[rebalance.no_standing]" in capsys.readouterr().err


def test_an_approval_is_signed_shown_and_withdrawn(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(workspace, "rebalance", "--approve", "--moves", "3", "--class", "batch") == 2
    assert "error[usage.until]" in capsys.readouterr().err
    assert run(workspace, "rebalance", "--approve", "--until", "2999-01-01", "--moves", "3", "--class", "batch", "--share", "5%") == 0
    out = capsys.readouterr().out
    assert "at most 3 cells and 5.0% of the GPUs" in out
    name = out.split("/")[1].split(":")[0]
    assert run(workspace, "rebalance", "--withdraw", name) == 0
    assert "withdrawn" in capsys.readouterr().out
    assert run(workspace, "rebalance", "--apply") == 7


def test_a_run_reads_well_at_80_columns() -> None:
    found = World(amd="140")
    found.done("c0")
    text = render_run(found.propose(Limits(moves=1, share=0.5)).run, dry=True)
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "1 back to NVIDIA" in text
    both = render_run(World().propose(WIDE).run, dry=True)
    assert "3 to AMD" in both
    assert both.endswith("Next: fleetctl rebalance --apply\n")


def test_units_are_what_systemd_accepts(tmp_path: Path) -> None:
    odd = tmp_path / 'a b%c"d$e'
    odd.mkdir()
    program = shutil.which("systemd-analyze")
    texts = unit_texts(job(odd), system=True)
    assert "OnCalendar=Mon *-*-* 03:00:00 UTC" in texts["fleetctl-rebalance-x.timer"]
    assert '%%c\\"d$$e' in texts["fleetctl-rebalance-x.service"]
    if program is not None:
        for name, text in texts.items():
            (tmp_path / name).write_text(text)
        files = [str(tmp_path / name) for name in texts]
        done = subprocess.run([program, "verify", "--man=no", *files], capture_output=True, text=True, timeout=60)
        assert "fleetctl-rebalance-x" not in done.stderr


def test_a_timer_is_written_and_enabled_and_again_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for systemctl that only notes what it was asked."""
    tools(tmp_path, monkeypatch, systemctl=SCRIPT)
    units = tmp_path / "units"
    first = install_systemd(job(tmp_path), units=units)
    before = {p.name: p.read_bytes() for p in units.iterdir()}
    assert install_systemd(job(tmp_path), units=units) == first
    assert {p.name: p.read_bytes() for p in units.iterdir()} == before
    asked = (tmp_path / "calls").read_text().splitlines()
    assert asked[0].endswith("daemon-reload")
    assert asked[1].endswith("enable --now fleetctl-rebalance-x.timer")
    gone = remove_systemd(job(tmp_path), units=units)
    assert sorted(Path(g).name for g in gone) == sorted(before)
    assert list(units.iterdir()) == []
    told = (tmp_path / "calls").read_text().splitlines()[len(asked) :]
    assert [line.split()[-1] for line in told] == ["fleetctl-rebalance-x.timer", "daemon-reload"]
    assert remove_systemd(job(tmp_path), units=units) == ()


def test_one_crontab_line_whatever_stood_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for crontab that keeps a file."""
    tools(tmp_path, monkeypatch, crontab=CRONTAB)
    table = tmp_path / "table"
    install_cron(job(tmp_path))
    table.write_text("5 5 * * * other\n" + table.read_text())
    install_cron(job(tmp_path, "daily"))
    lines = table.read_text().splitlines()
    assert lines[0] == "5 5 * * * other"
    assert len(lines) == 2
    assert lines[1].startswith("0 3 * * * cd ")
    assert remove_cron(job(tmp_path)) == (lines[1],)
    assert table.read_text() == "5 5 * * * other\n"
    assert remove_cron(job(tmp_path)) == ()


def test_what_root_installs_runs_as_the_owner_of_the_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for crontab; a key is refused to everybody but its owner, root too."""
    tools(tmp_path, monkeypatch, crontab=CRONTAB)
    monkeypatch.setattr("fleetctl.adapters.timer.install.is_system", lambda: True)
    theirs = job(tmp_path, user="ops")
    assert "\nUser=ops\n" in unit_texts(theirs, system=True)["fleetctl-rebalance-x.service"]
    assert "User=" not in unit_texts(theirs, system=False)["fleetctl-rebalance-x.service"], "a user's own manager takes none"
    calls: list[list[str]] = []

    def ran(argv: list[str], **_: object) -> SimpleNamespace:
        calls.append(argv[1:])
        return SimpleNamespace(returncode=0, stdout="", stderr="")

    with pytest.MonkeyPatch.context() as m:
        m.setattr("subprocess.run", ran)
        assert install_cron(theirs).look == "crontab -u ops -l"
        install_cron(job(tmp_path))
    assert calls == [["-u", "ops", "-l"], ["-u", "ops", "-"], ["-l"], ["-"]]


def test_what_cannot_be_scheduled_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissing) as caught:
        install_cron(job(tmp_path))
    assert caught.value.details == (cron_line(job(tmp_path)),)
    with pytest.raises(ToolMissing):
        install_systemd(job(tmp_path), units=tmp_path)
    with pytest.raises(FleetctlError, match="line break"):
        cron_line(job(Path("/tmp/a\nb")))
    assert "\\%" in cron_line(job(Path("/tmp/a%b")))


def test_a_dry_run_of_the_timer_shows_it(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(workspace, "rebalance", "--install-timer", "systemd", "--dry-run") == 0
    assert "rebalance" in capsys.readouterr().out
    assert run(workspace, "rebalance", "--install-timer", "cron", "--every", "daily", "--dry-run") == 0
    assert "0 3 * * * cd" in capsys.readouterr().out
    limits = ("--moves", "3", "--share", "12.5%", "--window", "2d", "--class", "batch", "--min-saving", "0.5")
    assert run(workspace, "rebalance", "--install-timer", "cron", *limits, "--dry-run") == 0
    said = "rebalance --apply --moves 3 --share 12.5% --window 172800s --min-saving 0.5 --class batch"
    assert said.replace("%", "\\%") in capsys.readouterr().out
    assert run(workspace, "rebalance", "--remove-timer", "systemd", "--dry-run") == 0
    assert "Nothing was changed." in capsys.readouterr().out


@pytest.mark.parametrize(
    "argv",
    [
        ("--apply", "--approve", "--until", "2999-01-01"),
        ("--withdraw", "s1", "--apply"),
        ("--until", "2999-01-01"),
        ("--window", "0s"),
        ("--payback", "1s"),
        ("--share", "0%"),
        ("--share", "101%"),
        ("--min-saving", "nan"),
        ("--min-saving", "inf"),
        ("--min-saving", "-1"),
        ("--moves", "0"),
        ("--dwell", "5"),
        ("--approve", "--until", "2001-01-01"),
        ("--class", "all"),
    ],
)
def test_wishes_that_contradict_or_limit_nothing_are_refused(
    workspace: Path, argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(workspace, "rebalance", *argv) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "error" in told.err.lower()


def test_what_was_not_asked_for_is_the_approvals(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A timer gives no limits of its own: those that people signed are what it acts within."""
    assert run(workspace, "rebalance", "--standing", "s00000000000") == 7
    assert "s00000000000" in capsys.readouterr().err
    assert run(workspace, "rebalance", "--approve", "--until", "2999-01-01", "--moves", "3", "--share", "50%", "--class", "batch") == 0
    capsys.readouterr()
    assert run(workspace, "rebalance") == 0
    assert "limits: 3 cells and 50.0% of the GPUs in 7.0 d, of batch" in capsys.readouterr().out
    assert run(workspace, "rebalance", "--moves", "9", "--share", "10%", "--class", "online") == 0
    assert "limits: 3 cells and 10.0% of the GPUs in 7.0 d, of no class" in capsys.readouterr().out


def tools(folder: Path, monkeypatch: pytest.MonkeyPatch, **scripts: str) -> None:
    bin_ = folder / "bin"
    bin_.mkdir()
    for name, text in scripts.items():
        (bin_ / name).write_text(text)
        (bin_ / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(folder / "calls"))
    monkeypatch.setenv("TABLE", str(folder / "table"))


def test_the_catalogue_is_listed_shown_checked_and_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "catalog", "list", "books") == 0
    assert "rental-3y" in capsys.readouterr().out
    assert run(tmp_path, "catalog", "list", "skus", "MI325X", "-o", "name") == 0
    assert capsys.readouterr().out == "tensorwave-mi325x-8\n"
    assert run(tmp_path, "catalog", "show", "BM.GPU.MI300X.8") == 0
    assert "vendor: skypilot-org" in capsys.readouterr().out
    assert run(tmp_path, "catalog", "show", "nothing") == 2
    assert run(tmp_path, "catalog", "check") == 0
    assert "0 errors" in capsys.readouterr().out
    assert not (tmp_path / ".fleetctl").exists()
    table = tmp_path / "contract.csv"
    table.write_text("sku,region,usd_per_gpu_hour\nBM.GPU.MI300X.8,*,4.20\n")
    argv = ("catalog", "import", "prices", str(table), "--source", "offer", "--as-of", "2026-11-01")
    assert run(tmp_path, *argv, "--dry-run") == 0
    assert not (tmp_path / ".fleetctl").exists()
    assert run(tmp_path, *argv) == 0
    capsys.readouterr()
    assert run(tmp_path, "catalog", "list", "prices", "BM.GPU.MI300X", "--book", "contract") == 0
    assert "33.60" in capsys.readouterr().out
    assert run(tmp_path, "catalog", "list", "prices", "--book", "none") == 2


def test_a_refresh_that_nobody_answers_says_what_still_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "catalog", "refresh", "azure", "--azure-endpoint", "http://127.0.0.1:9") == 1
    told = capsys.readouterr()
    assert "did not answer: azure" in told.err
    assert "still count" in told.err
    assert not (tmp_path / ".fleetctl" / "catalog" / "prices.csv").exists()
