"""A server that is stopped ends its streams, although its workers abort on the signal; it has a home and a cache that it may write."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator

import pytest

from tests.lab import nspawn_bench as nb
from tests.lab import nspawn_lab as nl

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(nl.why_not()), reason=nl.why_not() or "it can"),
]
SERVER = "/usr/local/bin/standin-server"
HOME = "/var/lib/fleetctl/servers/chat"
LISTENS = "for n in $(seq 600); do ss -Hltn 'sport = :8000' | grep -q . && exit 0; sleep 0.1; done; exit 1"
READ = "python3 -c \"import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:8000', timeout=60).read().decode())\""
AFTER = 20
"""Tokens that a stream still has to bring when its server is told to stop."""
ENGINE = f'''#!/usr/bin/python3
"""STAND-IN for an engine with a worker that makes the tokens and dies of SIGTERM; the engine itself ends its streams."""
import http.server, os, pathlib, signal, subprocess, sys, threading
WORKER = "import sys, time\\nfor _ in sys.stdin:\\n time.sleep(0.05); print('token', flush=True)"
worker = subprocess.Popen([sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
stopping = threading.Event()
for name in ("HOME", "XDG_CACHE_HOME"):
    pathlib.Path(os.environ[name], "written").write_text("by the server")

class Handler(http.server.BaseHTTPRequestHandler):
    def token(self):
        worker.stdin.write("\\n")
        worker.stdin.flush()
        self.wfile.write((worker.stdout.readline() or "aborted\\n").encode())
        self.wfile.flush()

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.token()
        pathlib.Path(os.environ["HOME"], "streaming").touch()
        while not stopping.is_set():
            self.token()
        for _ in range({AFTER}):
            self.token()
        self.wfile.write(b"end\\n")

    def log_message(self, *args):
        pass

def stop(*_):
    stopping.set()
    threading.Thread(target=server.shutdown).start()

server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
server.daemon_threads = False
signal.signal(signal.SIGTERM, stop)
server.serve_forever()
server.server_close()  # waits for the streams
worker.kill()
'''


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
    unit = {"name": "chat", "argv": [SERVER, "8000"], "environment": {}, "port": 8000, "model": "m"}
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
    assert h.ssh(f"for n in $(seq 600); do sudo test -e {HOME}/streaming && exit 0; sleep 0.1; done; exit 1").returncode == 0
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
