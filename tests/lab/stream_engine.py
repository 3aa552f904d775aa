"""Configure, test stand-in: an engine whose worker aborts on SIGTERM while the engine itself ends its streams. Never a test."""

from __future__ import annotations

SERVER = "/usr/local/bin/standin-server"
"""Its arguments are its port and the tokens that a stream still has to bring when it is told to stop, 20 a second."""
LISTENS = "for n in $(seq 600); do ss -Hltn 'sport = :8000' | grep -q . && exit 0; sleep 0.1; done; exit 1"
READ = "python3 -c \"import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:8000', timeout=60).read().decode())\""
STREAMS = "for n in $(seq 600); do sudo test -e /var/cache/fleetctl/chat/streaming && exit 0; sleep 0.1; done; exit 1"
ENGINE = '''#!/usr/bin/python3
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
        pathlib.Path(os.environ["XDG_CACHE_HOME"], "streaming").touch()
        while not stopping.is_set():
            self.token()
        for _ in range(int(sys.argv[2])):
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
