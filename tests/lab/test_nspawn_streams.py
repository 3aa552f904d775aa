"""A server that is stopped ends its streams, although its workers abort on the signal; it has a home and a cache that it may write."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator

import pytest

from tests.lab import nspawn_bench as nb
from tests.lab import nspawn_lab as nl
from tests.lab.stream_engine import ENGINE, LISTENS, READ, SERVER, STREAMS

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(nl.why_not()), reason=nl.why_not() or "it can"),
]
HOME = "/var/lib/fleetctl/servers/chat"
AFTER = 20


@pytest.fixture(scope="module")
def bench() -> Iterator[nb.Bench]:
    with nb.bench(1) as made:
        path = made.lab.hosts[0].root / SERVER.lstrip("/")
        path.write_text(ENGINE)
        path.chmod(0o755)
        yield made


@pytest.mark.parametrize("play", ["drain", "rocm_node"])
def test_an_open_stream_ends_whole_while_its_server_is_stopped_or_restarted(bench: nb.Bench, play: str) -> None:
    h = bench.lab.hosts[0]
    unit = {"name": "chat", "argv": [SERVER, "8000", str(AFTER)], "environment": {}, "port": 8000, "model": "m"}
    variables = bench.repository.variables() | {"model_server_units": [unit]}
    tags = ["accelerator_access", "model_server"]
    for changed in (True, False):
        (result,) = bench.run("rocm_node", variables, tags=tags)
        assert (result.state, result.detail, bool(result.changed)) == ("ok", "", changed), bench.changed_roles()
    for folder in (HOME, "/var/cache/fleetctl/chat"):
        assert h.ssh("sudo", "stat", "-c", "%U", f"{folder}/written").stdout == "inference\n"
    assert h.ssh(LISTENS).returncode == 0
    got: list[subprocess.CompletedProcess[str]] = []
    stream = threading.Thread(target=lambda: got.append(h.ssh(READ)))
    stream.start()
    assert h.ssh(STREAMS).returncode == 0
    try:
        if play == "rocm_node":
            unit["environment"] = {"CHANGED": "1"}
        (stopped,) = bench.run(play, variables, tags=tags)
    finally:
        stream.join()
    assert (stopped.state, stopped.detail) == ("ok", "")
    said = got[0].stdout.split()
    assert said == ["token"] * (len(said) - 1) + ["end"], got[0].stderr
    assert len(said) > AFTER
    if play == "drain":
        assert h.ssh("systemctl", "is-active", "fleetctl-chat.service").stdout == "inactive\n"
        assert h.ssh("sudo", "cat", "/var/cache/fleetctl/chat/written").returncode == 0, "what it has compiled stays for the next one"
    (undone,) = bench.run("uninstall", variables)
    assert (undone.state, undone.detail) == ("ok", "")
    assert h.ssh("ls", "/var/cache/fleetctl").returncode != 0
