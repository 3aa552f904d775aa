"""Configure, test bench: Debian's own archive for hosts without a way out, fetched through and kept. apt checks Debian's signatures."""

from __future__ import annotations

import http.server
import io
import os
import re
import shutil
import subprocess
import threading
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

_PATH = re.compile(r"/debian/(dists|pool)/[A-Za-z0-9._+:~%/-]{1,400}\Z")
TIMEOUT_S = 60


@cache
def upstream() -> str:
    """Return the mirror that this machine itself takes Debian's packages from."""
    argv = ["apt-get", "indextargets", "--format", "$(SITE)"]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    return (
        next(site for site in said if site.startswith("http") and site.rstrip("/").endswith("/debian")).rstrip("/").removesuffix("/debian")
    )


def _folder() -> Path:
    return Path(os.environ.get("FLEETCTL_CACHE") or Path.home() / ".cache" / "fleetctl") / "debian"


class _Through(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if not _PATH.match(self.path) or ".." in self.path:
            self.send_error(404)
            return
        kept = _folder() / self.path.lstrip("/") if self.path.startswith("/debian/pool/") else None
        if kept is None or not kept.exists():
            try:
                with urllib.request.urlopen(upstream() + self.path, timeout=TIMEOUT_S) as answer:
                    self._pass_on(answer, kept, int(answer.headers["Content-Length"]))
            except urllib.error.HTTPError as e:
                self.send_error(e.code)
            except OSError:
                self.send_error(502)
            return
        with kept.open("rb") as f:
            self._pass_on(f, None, kept.stat().st_size)

    def _pass_on(self, body: io.BufferedIOBase, kept: Path | None, size: int) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        if kept is None:
            shutil.copyfileobj(body, self.wfile)
            return
        kept.parent.mkdir(parents=True, exist_ok=True)
        new = kept.with_name(f"{uuid.uuid4().hex}.new")
        try:
            with new.open("wb") as f:
                shutil.copyfileobj(body, f)
            if new.stat().st_size == size:
                os.replace(new, kept)
                with kept.open("rb") as f:
                    shutil.copyfileobj(f, self.wfile)
        finally:
            new.unlink(missing_ok=True)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Print nothing."""


def reachable() -> bool:
    """Tell whether Debian's archive answers."""
    try:
        with urllib.request.urlopen(f"{upstream()}/debian/dists/bookworm/InRelease", timeout=10):
            return True
    except (OSError, ValueError, subprocess.CalledProcessError):  # no apt, no mirror, or none that answers
        return False


@contextmanager
def mirror(address: str) -> Iterator[str]:
    """Serve it on an address as long as the block runs; return its base URI."""
    with http.server.ThreadingHTTPServer((address, 0), _Through) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://{address}:{server.server_address[1]}/debian"
        finally:
            server.shutdown()
            thread.join()
