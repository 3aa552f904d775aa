"""Who still holds a lease: a process that lives does; one that has ended does not, though nobody has looked yet."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from fleetctl.wiring.clouds import is_gone
from tests.lab.lab_tools import until

pytestmark = pytest.mark.lab


def test_a_process_that_has_ended_holds_nothing_before_and_after_it_is_reaped() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    holder = f"ana@{socket.gethostname()}:{child.pid}"
    assert not is_gone(holder)
    assert child.stdin is not None
    child.kill()
    until(lambda: is_gone(holder), "its zombie holds nothing")
    child.wait()
    child.stdin.close()
    assert is_gone(holder)


@pytest.mark.parametrize(
    "holder", ["ana@elsewhere:1", "ana", "", f"ana@{socket.gethostname()}:x", f"ana@{socket.gethostname()}:{os.getpid()}"]
)
def test_any_doubt_is_a_no(holder: str) -> None:
    assert not is_gone(holder)
