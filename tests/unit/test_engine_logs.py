"""Engines' logs as a source of hard faults: each line once, over rotation and restarts of ours, bounded, and what nobody can read."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.adapters.engine_logs import EngineLogs, Place
from fleetctl.adapters.engine_logs.places import MOST_BYTES, LogCommand, LogFile, LogLine, Unreadable, journal_line
from fleetctl.analysis.faults import classify
from fleetctl.analysis.judge import fresh, judge
from fleetctl.domain.evidence import Arm, Counts, Evidence
from fleetctl.domain.ids import CellId
from fleetctl.errors import ConfigInvalid
from fleetctl.formats.fleet_file import parse_fleet
from fleetctl.usecases.evidence import Combined
from tests.fakes.clock import FakeClock
from tests.fakes.evidence import FakeEvidence
from tests.rollouts import CELL, cursor
from tests.unit.test_evidence_in_fleet_file import TEXT

HSA = "RuntimeError: HSA_STATUS_ERROR_OUT_OF_RESOURCES\n"
XID = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus\n"
OOM = "torch: HIP out of memory. Tried to allocate 2 GiB\n"


class Logs:
    """A canary's and a baseline's log, and the source over them."""

    def __init__(self, folder: Path) -> None:
        self.canary, self.baseline = folder / "canary.log", folder / "baseline.log"
        self.canary.write_text("an old fault: " + HSA)
        self.clock = FakeClock()
        self.source = self.again()

    def again(self) -> EngineLogs:
        """Return the source as another process has it."""
        places: tuple[Place, ...] = (LogFile("canary", self.canary), LogFile("baseline", self.baseline))
        return EngineLogs(lambda _: places, now=self.clock.now, every_s=0)

    def write(self, text: str, *, to: str = "canary") -> None:
        with (self.canary if to == "canary" else self.baseline).open("a") as f:
            f.write(text)
        self.source.pump(CELL)


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path)


def test_only_what_is_written_after_the_cursor_counts_and_each_line_once(logs: Logs) -> None:
    first = logs.source.mark(CELL)
    logs.source.pump(CELL)
    assert logs.source.read(CELL, first).faults == ()
    logs.write("all is well\n")
    logs.write(HSA.rstrip("\n"))
    assert logs.source.read(CELL, first).faults == (), "a line counts once it is whole"
    logs.write("\n")
    assert logs.source.read(CELL, first).faults == ("hsa_status_error",)
    second = logs.source.mark(CELL)
    assert logs.source.read(CELL, second).faults == ()
    assert logs.source.read(CELL, first).faults == ("hsa_status_error",)


def test_another_process_comes_to_the_same(logs: Logs) -> None:
    at = logs.source.mark(CELL)
    logs.write(XID)
    other = logs.again()
    other.read(CELL, at)
    other.pump(CELL)
    assert other.read(CELL, at).faults == logs.source.read(CELL, at).faults == ("xid",)


def test_rotation_loses_nothing_and_brings_nothing_back(logs: Logs) -> None:
    at = logs.source.mark(CELL)
    logs.write("fine\n")
    with logs.canary.open("a") as f:
        f.write(HSA)
    logs.canary.rename(logs.canary.with_name("canary.log.1"))
    logs.canary.write_text("new file\n")
    logs.source.pump(CELL)
    assert logs.source.read(CELL, at).faults == ("hsa_status_error",)
    after = logs.source.mark(CELL)
    assert logs.source.read(CELL, after).faults == ()
    logs.write(XID)
    assert logs.source.read(CELL, after).faults == ("xid",)
    assert logs.source.read(CELL, logs.source.mark(CELL)).faults == ()


def test_a_log_that_is_cut_in_place_goes_on(logs: Logs) -> None:
    logs.write("a long line of the old file " * 20 + "\n")
    at = logs.source.mark(CELL)
    logs.canary.write_text(HSA)
    logs.source.pump(CELL)
    assert logs.source.read(CELL, at).faults == ("hsa_status_error",)
    after = logs.source.mark(CELL)
    assert logs.source.read(CELL, after).faults == ()
    other = logs.again()
    logs.write(XID)
    other.read(CELL, after)
    other.pump(CELL)
    assert other.read(CELL, after).faults == logs.source.read(CELL, after).faults == ("xid",)


def test_a_fault_on_both_arms_and_a_soft_one_are_told_and_trip_nothing(logs: Logs) -> None:
    at = logs.source.mark(CELL)
    logs.write("CUDA error: an illegal memory access was encountered\n", to="baseline")
    logs.write("Memory access fault by GPU node-1\n" + OOM)
    found = logs.source.read(CELL, at)
    assert found.faults == ()
    assert "memory_access_fault in the logs of both arms" in found.detail
    assert "canary's log: out_of_memory" in found.detail


def test_a_fault_in_a_log_of_both_arms_is_no_arms(tmp_path: Path) -> None:
    log = tmp_path / "host.log"
    log.write_text("begin\n")
    (tmp_path / "other-name").symlink_to(log)
    argv = (sys.executable, "-c", "import sys; print(open(sys.argv[1]).read())", str(log))
    both: tuple[tuple[Place, ...], ...] = (
        (LogFile("canary", log), LogFile("baseline", tmp_path / "other-name")),
        (LogCommand("canary", "replica-1", argv), LogCommand("baseline", "replica-2", argv)),
    )
    at = []
    sources = [EngineLogs(lambda _, places=places: places, now=FakeClock().now, every_s=0) for places in both]  # type: ignore[misc]
    for source in sources:
        at.append(source.mark(CELL))
    with log.open("a") as f:
        f.write(HSA)
    for source, since in zip(sources, at, strict=True):
        source.pump(CELL)
        found = source.read(CELL, since)
        assert found.faults == ()
        assert "hsa_status_error in the logs of both arms" in found.detail


class SlowPlace(LogFile):
    """A log that answers once it is let go."""

    def __init__(self, arm: Arm, path: Path) -> None:
        super().__init__(arm, path)
        self.go = threading.Event()

    def new_lines(self) -> Iterator[LogLine]:
        self.go.wait(10)
        yield from super().new_lines()


def test_a_slow_place_holds_up_no_other_one_and_its_own_lines_come_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetctl.adapters.engine_logs.PASS_S", 0.2)
    paths = [tmp_path / f"{i}.log" for i in range(4)]
    for path in paths:
        path.write_text("")
    slow = [SlowPlace("canary", path) for path in paths[:3]]
    source = EngineLogs(lambda _: (*slow, LogFile("canary", paths[3])), now=FakeClock().now, every_s=0)
    at = source.mark(CELL)
    paths[0].write_text(XID)
    paths[3].write_text(HSA)
    source.pump(CELL)
    assert source.read(CELL, at).faults == ("hsa_status_error",)
    source.pump(CELL)
    for place in slow:
        place.go.set()
    monkeypatch.setattr("fleetctl.adapters.engine_logs.PASS_S", 10.0)
    source.pump(CELL)
    assert source.read(CELL, at).faults == ("hsa_status_error", "xid")


def test_no_arms_fault_is_told_before_what_the_other_arms_log_says_at_the_same_moment(tmp_path: Path) -> None:
    canary, baseline = tmp_path / "canary.log", tmp_path / "baseline.log"
    canary.write_text("")
    baseline.write_text("")
    slow = SlowPlace("baseline", baseline)
    source = EngineLogs(lambda _: (LogFile("canary", canary), slow), now=FakeClock().now, every_s=0)
    at = source.mark(CELL)
    canary.write_text(HSA)
    baseline.write_text(HSA)
    pumping = threading.Thread(target=source.pump, args=(CELL,))
    pumping.start()
    assert source.read(CELL, at).faults == ()
    slow.go.set()
    pumping.join()
    found = source.read(CELL, at)
    assert (found.faults, "both arms" in found.detail) == ((), True)


def test_a_log_that_cannot_be_read_is_told_and_is_no_lost_evidence(logs: Logs) -> None:
    at = logs.source.mark(CELL)
    logs.canary.unlink()
    logs.source.pump(CELL)
    found = logs.source.read(CELL, at)
    assert set(found.state.values()) == {"ok"}
    assert "engine log cannot be read" in found.detail
    assert {s.arm: s.present for s in logs.source.describe(CELL)} == {"canary": False, "baseline": False}


def test_a_fault_in_a_log_trips_the_breaker_beside_counts_of_another_source(logs: Logs) -> None:
    requests = FakeEvidence(logs.clock.now)
    combined = Combined({"log": requests, "engines": logs.source})
    at = combined.mark(CELL)
    assert combined.freeze(CELL, (1.0,), 10**9) is None, "the router's log still decides whether there is enough"
    logs.write(HSA)
    whole = combined.read(CELL, at)
    assert whole.faults == ("hsa_status_error",)
    assert not any(name.startswith("errors_") for name in whole.arms["canary"].shares)
    seen = Evidence(
        cell=CELL,
        at=logs.clock.now(),
        arms={"baseline": Counts(attempts=50), "canary": Counts(attempts=50)},
        state={"baseline": "ok", "canary": "ok"},
        cursor=cursor(logs.clock.now()),
        faults=whole.faults,
    )
    verdicts = judge(fresh(), seen, ())[1]
    assert verdicts[0].kind == "FAIL"
    assert any(v.guardrail == "breaker" and "hsa_status_error" in v.detail for v in verdicts)


def journal(text: str, at_s: float) -> str:
    return json.dumps({"MESSAGE": text, "__REALTIME_TIMESTAMP": str(round(at_s * 1e6))}) + "\n"


def test_a_command_is_asked_for_what_is_new_and_lines_that_come_again_count_once(tmp_path: Path) -> None:
    clock = FakeClock()
    start = clock.now().timestamp()
    out = tmp_path / "out"
    out.write_text(journal("old " + XID, start - 5) + journal("fine", start + 1))
    script = "import sys; sys.stdout.write(open(sys.argv[1]).read()); open(sys.argv[2], 'a').write(sys.argv[3] + '\\n')"
    argv = (sys.executable, "-c", script, str(out), str(tmp_path / "asked"), "{since}")
    place = LogCommand("canary", "replica-1", argv, now=lambda: clock.now().timestamp())
    source = EngineLogs(lambda _: (place,), now=clock.now, every_s=0)
    at = source.mark(CELL)
    source.pump(CELL)
    assert source.read(CELL, at).faults == (), "it is older than the cursor by its own time"
    with out.open("a") as f:
        f.write(journal(HSA, start + 3))
    source.pump(CELL)
    source.pump(CELL)
    assert source.read(CELL, at).faults == ("hsa_status_error",)
    assert len(source._cells[CELL].found) == 2
    asked = (tmp_path / "asked").read_text().split()
    assert asked[0] == f"@{int(start)}"
    assert asked[1] == f"@{int(start - 2)}"


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("/no/such/program",), "cannot be run"),
        ((sys.executable, "-c", "import sys; sys.exit(3)"), "ended with 3"),
    ],
)
def test_a_command_that_fails_says_so(argv: tuple[str, ...], says: str) -> None:
    with pytest.raises(Unreadable, match=says):
        list(LogCommand("canary", "replica-1", argv).new_lines())


def test_a_command_that_hangs_or_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetctl.adapters.engine_logs.places.LIMIT_S", 0.3)
    with pytest.raises(Unreadable, match=r"over 0\.3 s"):
        list(LogCommand("canary", "r", (sys.executable, "-c", "import time; time.sleep(60)")).new_lines())
    monkeypatch.setattr("fleetctl.adapters.engine_logs.places.LIMIT_S", 20.0)
    endless = (sys.executable, "-c", "import sys\nwhile True: sys.stdout.write('x' * 1000 + '\\n')")
    assert sum(len(line.text) for line in LogCommand("canary", "r", endless).new_lines()) <= MOST_BYTES


def test_a_thread_reads_by_itself_and_ends_when_nobody_asks(logs: Logs) -> None:
    places: tuple[Place, ...] = (LogFile("canary", logs.canary),)
    source = EngineLogs(lambda _: places, now=logs.clock.now, every_s=0.01, idle_s=0.2)
    at = source.mark(CELL)
    with logs.canary.open("a") as f:
        f.write(HSA)
    thread = source._cells[CELL].thread
    assert thread is not None
    thread.join(10)
    assert not thread.is_alive()
    assert source.read(CELL, at).faults == ("hsa_status_error",)
    source.close()


@settings(max_examples=60, deadline=None)
@given(raw=st.binary(max_size=200))
def test_hostile_lines_are_read_without_an_exception(raw: bytes) -> None:
    for line in (raw, b'{"MESSAGE": ' + raw, b'{"MESSAGE": [1, 2, 999], "__REALTIME_TIMESTAMP": "x"}'):
        text, at = journal_line(line)
        assert isinstance(text, str)
        assert at is None or at >= 0
        classify(text)


def test_words_of_kernels_and_runtimes_are_classified() -> None:
    assert classify("amdgpu 0000:83:00.0: amdgpu: [gfxhub0] no-retry page fault (src_id:0 ring:24)") == "memory_access_fault"
    assert classify("amdgpu: ring gfx_0.0.0 timeout, signaled seq=1") == "gpu_hang"
    assert classify(XID) == "xid"
    assert classify("INFO 200 OK") == ""


LOGS = """\
  engine-logs:
    kind: logs
    settings: {canary_files: "logs/a.log logs/b.log", canary_argv.gpu-1: "journalctl -o json --since {since} -u 'vllm@1'"}
"""


def with_logs(sources: str) -> str:
    return TEXT.replace("pools:\n", LOGS + "pools:\n", 1).replace("evidence: [log, asked, pages, prom]", f"evidence: {sources}")


def test_the_fleet_file_names_logs_beside_another_source() -> None:
    text = TEXT.replace("pools:\n", LOGS + "pools:\n", 1).replace(
        "evidence: [log, asked, pages, prom]", "evidence: [log, asked, prom, engine-logs]"
    )
    fleet = parse_fleet(text, file="f.yaml")
    assert fleet.cell(CellId("chat-lab")).evidence[-1] == "engine-logs"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("canary_files", "canary_file", "did you mean 'canary_files'"),
        ("--since {since}", "", "needs {since}"),
        ("'vllm@1'", "'vllm@1", "is no command"),
        ("canary_argv.gpu-1", "canary_argv.a b", "is no name of a replica"),
    ],
)
def test_mistakes_in_logs_are_named(old: str, new: str, says: str) -> None:
    assert old in LOGS
    text = TEXT.replace("pools:\n", LOGS.replace(old, new) + "pools:\n", 1)
    with pytest.raises(ConfigInvalid) as e:
        parse_fleet(text, file="f.yaml")
    assert says in " ".join(e.value.details)


def test_logs_alone_are_no_evidence() -> None:
    text = TEXT.replace("pools:\n", LOGS + "pools:\n", 1).replace(
        "evidence: [log, asked, pages, prom]", "evidence: [engine-logs, log, asked, prom]"
    )
    with pytest.raises(ConfigInvalid) as e:
        parse_fleet(text, file="f.yaml")
    assert "counts no requests" in " ".join(e.value.details)
