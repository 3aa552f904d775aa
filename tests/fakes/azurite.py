"""Azurite (Microsoft's emulator of Azure Blob storage, from npm) in a child process. It checks signatures, as Azure does."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's published key; it opens nothing but an emulator."""
MISSING = "needs azurite: npm install --prefix ~/.cache/fleetctl/azurite azurite"


def program() -> str | None:
    """Return azurite's blob server, None where it is not installed."""
    cache = Path(os.environ.get("FLEETCTL_CACHE") or Path.home() / ".cache" / "fleetctl")
    own = cache / "azurite" / "node_modules" / ".bin" / "azurite-blob"
    return shutil.which("azurite-blob") or (str(own) if own.exists() else None)


@contextmanager
def azurite(folder: Path, port: int, host: str = "127.0.0.1", certificate: Path | None = None, account: str = ACCOUNT) -> Iterator[str]:
    """Run it as long as the block runs, and return the account's address.

    Args:
        certificate: file with a key and a certificate, to speak TLS; None for plain HTTP.
        account: the only one there is; clients may sign for the published one in a way of their own.
    """
    found = program()
    assert found is not None
    argv = [found, "--silent", "--skipApiVersionCheck", "--location", str(folder), "--blobHost", host, "--blobPort", str(port)]
    if certificate is not None:
        argv += ["--cert", str(certificate), "--key", str(certificate)]
    with (folder / "azurite.log").open("wb") as log:
        environment = {**os.environ, "AZURITE_ACCOUNTS": f"{account}:{KEY}"}
        child = subprocess.Popen(argv, stdout=log, stderr=log, cwd=folder, env=environment)
        try:
            until = time.monotonic() + 120
            while True:
                with suppress(OSError), socket.create_connection((host, port), timeout=1):
                    break
                assert child.poll() is None, (folder / "azurite.log").read_text()
                assert time.monotonic() < until, "azurite did not start"
                time.sleep(0.1)
            yield f"{'https' if certificate else 'http'}://{host}:{port}/{account}"
        finally:
            child.terminate()
            child.wait(20)
