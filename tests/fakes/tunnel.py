"""An HTTP proxy that understands CONNECT alone and leads every allowed name to one loopback port; what else is asked for is refused.

So a program that insists on a cloud's own host name over TLS reaches an emulator, and nothing leaves the machine.
"""

from __future__ import annotations

import selectors
import socket
import socketserver
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager

_SILENCE_S = 30.0


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    leads_to = 0
    names: Collection[str] = ()
    refused: list[str]


class _Tunnel(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        """Read one CONNECT and hand bytes on both ways until either side ends."""
        method, _, rest = self.rfile.readline(4096).decode("latin-1").partition(" ")
        name = rest.partition(":")[0]
        while self.rfile.readline(4096).strip():
            pass
        if method != "CONNECT" or name not in self.server.names:
            self.server.refused.append(f"{method} {rest}".strip())
            self.wfile.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
            return
        with socket.create_connection(("127.0.0.1", self.server.leads_to), timeout=_SILENCE_S) as there:
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            _both_ways(self.connection, there)


def _both_ways(one: socket.socket, other: socket.socket) -> None:
    to = {one: other, other: one}
    with selectors.DefaultSelector() as ready:
        for end in to:
            ready.register(end, selectors.EVENT_READ, end)
        while events := ready.select(_SILENCE_S):
            for key, _ in events:
                side: socket.socket = key.data
                try:
                    data = side.recv(65536)
                    if not data:
                        return
                    to[side].sendall(data)
                except OSError:
                    return


@contextmanager
def tunnel(leads_to: int, names: Collection[str]) -> Iterator[tuple[str, list[str]]]:
    """Run it as long as the block runs; return its address, and what it refused."""
    with _Server(("127.0.0.1", 0), _Tunnel) as server:
        server.leads_to, server.names, server.refused = leads_to, names, []
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", server.refused
        server.shutdown()
        thread.join(timeout=10)
