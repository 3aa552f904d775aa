"""The one limit of a call to a router: it ends in time whatever the other side does, and what never ends does not pile up."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import pytest

from fleetctl.adapters import deadline
from fleetctl.adapters.deadline import MOST_WAITING, Deadline, Once, Patience, within


def test_a_call_gives_what_it_came_to_or_what_it_raised() -> None:
    assert within(Deadline(), lambda: 7, "edge") == 7
    empty: dict[str, int] = {}
    with pytest.raises(KeyError):
        within(Deadline(), lambda: empty["nothing"], "edge")


def test_a_call_that_does_not_end_is_left_alone_and_so_many_are_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "_waiting", {})
    gate = threading.Event()
    began = time.monotonic()
    try:
        for _ in range(MOST_WAITING):
            with pytest.raises(TimeoutError, match="no answer within"):
                within(Deadline(0.001), lambda: gate.wait(30), "edge")
        assert within(Deadline(), lambda: 7, "other") == 7, "another place is asked all the same"
        with pytest.raises(TimeoutError, match="calls before it have no answer yet"):
            within(Deadline(), lambda: 7, "edge")
        with pytest.raises(TimeoutError, match="no time is left"):
            within(Deadline(0.0), lambda: 7, "edge")
    finally:
        gate.set()
    assert time.monotonic() - began < 10
    end = time.monotonic() + 10
    while True:
        try:
            assert within(Deadline(), lambda: 7, "edge") == 7
            break
        except TimeoutError:
            assert time.monotonic() < end, "those that have ended make room"


def test_who_does_not_answer_is_waited_for_once_whoever_asks() -> None:
    gate, asked = threading.Event(), [0]

    def hang() -> None:
        asked[0] += 1
        gate.wait(30)

    patience = Patience(0.05, 30.0)
    try:
        for _ in range(40):
            with pytest.raises(TimeoutError):
                patience.ask(hang)
        assert asked == [1]
        other = Patience(30.0, 30.0)
        assert other.ask(lambda: 7) == 7, "another place is asked all the same"
        assert within(Deadline(), lambda: 7, "edge") == 7, "and so is a router"
    finally:
        gate.set()
    short = Patience(0.05, 0.0)
    with pytest.raises(TimeoutError):
        short.ask(lambda: threading.Event().wait(0.5))
    end = time.monotonic() + 30
    while True:
        with suppress(TimeoutError):
            assert short.ask(lambda: 7) == 7
            break
        assert time.monotonic() < end, "after a while it is asked again"


def test_a_client_is_made_once_and_a_failed_try_is_made_again() -> None:
    tries: list[int] = []

    def make() -> int:
        tries.append(len(tries))
        if not tries[-1]:
            raise OSError("no credential yet")
        return 7

    once = Once(make)
    with pytest.raises(OSError, match="no credential yet"):
        once()
    assert (once(), once(), len(tries)) == (7, 7, 2)
