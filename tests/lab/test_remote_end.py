"""What a cancelled run sends to its hosts ends all that its connection started, stubborn things too, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from fleetctl.adapters.ansible import remote_end

pytestmark = pytest.mark.lab
SSHD = """
import json, subprocess, sys
quick = subprocess.Popen(["/bin/sh", "-c", "sleep 300; true"])
stubborn = subprocess.Popen(["/bin/sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"], stdout=subprocess.PIPE)
stubborn.stdout.readline()
with open(sys.argv[2]) as program:
    ended = subprocess.run(["/bin/sh", "-c", sys.argv[1] + " -I -; exit $?"], stdin=program)
print(json.dumps([ended.returncode, quick.wait(30), stubborn.wait(30)]))
"""


def test_everything_of_the_connection_ends_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "sshd").symlink_to(sys.executable)
    with subprocess.Popen(["sleep", "300"]) as other:
        argv = [str(tmp_path / "sshd"), "-I", "-S", "-c", SSHD, sys.executable, str(remote_end.__file__)]
        done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120)
        assert json.loads(done.stdout) == [0, -15, -9]
        assert other.poll() is None
        other.kill()


def test_without_a_connection_nothing_is_ended() -> None:
    with subprocess.Popen(["sleep", "300"]) as other:
        program = Path(remote_end.__file__).read_bytes()
        # A session of its own does not matter: it looks for an ancestor called sshd, and a test run by hand over ssh has one.
        rows, at = remote_end.table(), os.getpid()
        while at in rows and not rows[at].name.startswith(b"sshd"):
            at = rows[at].parent
        if at in rows:
            pytest.skip("this test itself runs over ssh")
        subprocess.run([sys.executable, "-I", "-"], input=program, check=True, timeout=60)
        assert other.poll() is None
        with suppress(ProcessLookupError):
            other.kill()
