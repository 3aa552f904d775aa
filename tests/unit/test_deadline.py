"""The one limit of a call to a router: it ends in time whatever the other side does, and what never ends does not pile up."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import pytest

from fleetctl.adapters import deadline
from fleetctl.adapters.deadline import MOST_WAITING, Deadline, Patience, within


def test_a_call_gives_what_it_came_to_or_what_it_raised() -> None:
    assert within(Deadline(), lambda: 7) == 7
    empty: dict[str, int] = {}
    with pytest.raises(KeyError):
        within(Deadline(), lambda: empty["nothing"])


def test_a_call_that_does_not_end_is_left_alone_and_so_many_are_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "_waiting", threading.BoundedSemaphore(MOST_WAITING))
    gate = threading.Event()
    began = time.monotonic()
    try:
        for _ in range(MOST_WAITING):
            with pytest.raises(TimeoutError, match="no answer within"):
                within(Deadline(0.001), lambda: gate.wait(30))
        with pytest.raises(TimeoutError, match="calls before it have no answer yet"):
            within(Deadline(), lambda: 7)
        with pytest.raises(TimeoutError, match="no time is left"):
            within(Deadline(0.0), lambda: 7)
    finally:
        gate.set()
    assert time.monotonic() - began < 10
    end = time.monotonic() + 10
    while True:
        try:
            assert within(Deadline(), lambda: 7) == 7
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
        assert within(Deadline(), lambda: 7) == 7, "and so is a router"
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
