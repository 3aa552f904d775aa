"""What the events of a run come to: progress as it happens, results at its end."""

from __future__ import annotations

import json
from pathlib import Path

from fleetctl.adapters.ansible.events import EventFile, Outcome
from fleetctl.domain.ids import HostId

A, B = HostId("a"), HostId("b")
STATS = {"ok": 2, "changed": 1, "failures": 0, "unreachable": 0, "skipped": 1, "rescued": 0, "ignored": 0}


def _result(host: str, state: str, **more: object) -> dict[str, object]:
    return {"event": "result", "host": host, "task": "T", "state": state, "seconds": 1.5, **more}


def test_the_file_is_followed_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    events = EventFile(path)
    assert list(events.new()) == []
    path.write_bytes(b'{"event":"play"}\n{"event":')
    assert list(events.new()) == [{"event": "play"}]
    with path.open("ab") as f:
        f.write(b'"task"}\nno json\n[1]\n')
    assert list(events.new()) == [{"event": "task"}]
    assert list(events.new()) == []


def test_half_a_line_without_end_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"x" * 100_000)
    events = EventFile(path)
    assert list(events.new()) == []
    with path.open("ab") as f:
        f.write(b'\n{"event":"play"}\n')
    assert list(events.new()) == [{"event": "play"}]


def test_results_are_those_of_the_stats() -> None:
    o = Outcome()
    progress = [o.take(_result("a", "changed")), o.take(_result("b", "unreachable", text="no route")), o.take({"event": "play"})]
    o.take({"event": "stats", "hosts": {"a": STATS, "b": {**STATS, "ok": 0, "changed": 0, "unreachable": 1}}})
    a, b = o.results([A, B])
    assert (a.state, a.ok, a.changed, a.failed, a.skipped) == ("ok", 2, 1, 0, 1)
    assert (b.state, b.failed, b.detail) == ("unreachable", 1, "T: no route")
    assert [(p.subject, p.state, p.seconds) for p in progress if p] == [("a", "changed", 1.5), ("b", "unreachable", 1.5)]


def test_without_stats_every_host_is_cancelled_with_what_it_did() -> None:
    o = Outcome()
    o.take({"event": "start", "host": "a", "task": "T"})
    assert o.unfinished() == "a was at 'T'"
    o.take(_result("a", "ok"))
    assert o.unfinished() == "no host was at work"
    a, b = o.results([A, B])
    assert (a.state, a.ok, b.state, b.ok) == ("cancelled", 1, "cancelled", 0)
    assert a.detail == b.detail == "the run was ended before it was done"


def test_a_host_that_a_stopped_batch_left_out_is_cancelled() -> None:
    o = Outcome()
    o.take({"event": "stats", "hosts": {"a": {**STATS, "failures": 1}}})
    a, b = o.results([A, B])
    assert (a.state, b.state) == ("failed", "cancelled")
    assert b.detail == "the run stopped before it came to this host"


def test_an_ignored_failure_does_not_count_and_garbage_means_nothing() -> None:
    o = Outcome()
    assert o.take(_result("a", "failed", ignored=True)) is None
    assert o.take(_result("a", "exploded")) is None
    assert o.take({"event": "stats", "hosts": [1]}) is None
    assert o.take({}) is None
    assert o.stats is None
    retry = o.take({"event": "retry", "host": "a", "task": "T", "attempt": 1, "of": 3})
    assert retry is not None
    assert (retry.state, retry.text) == ("running", "try 1 of 3")
    assert json.dumps(o.results([A])[0].detail)


def test_a_host_whose_wave_is_over_is_finished_however_the_run_ends() -> None:
    o = Outcome()

    def take(event: dict[str, object]) -> list[str]:
        ended = [p.subject for p in o.ended_wave(event) if p.last]
        o.take(event)
        return ended

    assert take({"event": "play"}) == []
    assert take(_result("a", "ok")) == take(_result("b", "failed", text="no")) == []
    assert take({"event": "play"}) == ["a"]
    take({"event": "start", "host": "c", "task": "T"})
    a, b, c = o.results([A, B, HostId("c")])
    assert [(r.state, r.detail) for r in (a, b, c)] == [
        ("ok", ""),
        ("cancelled", "T: no"),
        ("cancelled", "the run was ended before it was done"),
    ]
    take({"event": "start", "host": "a", "task": "of another play"})
    assert o.results([A])[0].state == "cancelled"
