"""A process is known by id and start, ports by binding, logs by their end."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from fleetctl.lab.processes import ProcessMark, end, free_port, is_alive, is_port_free, log_tail, mark


def test_a_reused_id_is_another_process() -> None:
    own = mark(os.getpid())
    assert own is not None
    assert is_alive(own)
    assert not is_alive(replace(own, start_ticks=own.start_ticks - 1))
    assert not is_alive(replace(own, boot="another boot"))


def test_a_reused_id_is_never_signalled() -> None:
    own = mark(os.getpid())
    assert own is not None
    assert not end(replace(own, start_ticks=own.start_ticks + 1))
    assert mark(os.getpid()) == own


def test_no_process_has_no_mark() -> None:
    assert mark(2**22 + 1) is None
    assert not is_alive(ProcessMark(pid=2**22 + 1, start_ticks=0, boot=""))


def test_a_taken_port_gives_the_next_one() -> None:
    first = free_port(24_000)
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", first))
        holder.listen()
        assert not is_port_free(first)
        after = free_port(first)
        assert after != first
        assert free_port(first, {after}) not in (first, after)
    with pytest.raises(OSError, match="no free port"):
        free_port(20_000, set(range(20_000, 30_000)))
    wrapped = free_port(29_999, {29_999})
    assert 20_000 <= wrapped < 29_999


def test_the_end_of_a_log_has_no_control_characters(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert log_tail(log) == ()
    log.write_bytes(b"first\nsecond\n\x1b[31mred\xff\n\n")
    assert log_tail(log, 2) == ("second", " [31mred\N{REPLACEMENT CHARACTER}")
