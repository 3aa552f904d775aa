"""Evidence, adapter layer: users' recorded requests for a replay, read under the terms that they were kept. Never writes, never sends.

A file that others can read, that is not encrypted, that nobody opted in to, that has expired or was recorded in another region than the
cell allows is refused; requests of tenants who opted out are left out.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from fleetctl.adapters.paired.prompts import body_of
from fleetctl.domain.ids import CellId
from fleetctl.domain.units import Instant
from fleetctl.errors import ConfigInvalid
from fleetctl.formats.replay import Replay, ReplayRequest, opted_out, read_replay
from fleetctl.formats.request_copy import asked_tokens
from fleetctl.formats.sealed import key_of

MOST_FILE = 64 << 20


def load_replay(path: Path, cell: CellId, regions: Collection[str], now: Instant, key: str, out: Path) -> Replay:
    """Read a recording that may be replayed for a cell now.

    Args:
        regions: in which the cell's data may be served; key: the secret's text; out: a file of tenants who opted out, which must be there.

    Raises:
        ConfigInvalid: config.replay, with what stands against it.
    """
    try:
        replay = read_replay(_read(path).splitlines(), key_of(key), read_opted_out(out))
    except (OSError, ValueError) as e:
        why = e.strerror if isinstance(e, OSError) and e.strerror else str(e)
        raise ConfigInvalid("config.replay", f"{path} cannot be replayed: {why}.", hint="Read: docs/how-to/choose-evidence.md") from e
    terms = replay.header
    against = ""
    if terms.cell != cell:
        against = f"it was recorded for {terms.cell}, not for {cell}"
    elif terms.region not in regions:
        against = f"it was recorded in {terms.region}, and {cell} may be served in {', '.join(sorted(regions))} alone"
    elif terms.expires <= now:
        against = f"it expired at {terms.expires:%Y-%m-%d %H:%M} UTC"
    if against:
        raise ConfigInvalid("config.replay", f"{path} cannot be replayed: {against}.", hint="Record again, or choose another lane")
    return replay


def read_opted_out(path: Path) -> frozenset[str]:
    """Return who opted out.

    Raises:
        ValueError: the list cannot be read, so anybody might stand on it.
    """
    try:
        return opted_out(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        why = e.strerror if isinstance(e, OSError) and e.strerror else str(e)
        raise ValueError(f"the list of tenants who opted out, {path}, cannot be read: {why}") from e


def _read(path: Path) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as f:
        found = os.fstat(f.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is no regular file")
        if found.st_mode & 0o077 or found.st_uid != os.geteuid():
            raise ValueError(f"users' texts in it can be read by others (mode {stat.S_IMODE(found.st_mode):04o}): chmod 600")
        if found.st_size > MOST_FILE:
            raise ValueError("it is over 64 MiB")
        return f.read()


def replay_body(r: ReplayRequest, mark: str, *, models: Collection[str], model: str, max_tokens: int, logprobs: bool) -> dict[str, Any]:
    """Return a recorded request as both sides get it: streamed, greedy, no longer than asked or allowed, not found in any cache.

    Args:
        mark: put before its text; models: that may be asked for (adapter models by name), else `model` is.
    """
    is_chat = r.path == "chat/completions"
    wanted = str(r.body.get("model"))
    asked = body_of(
        "",
        "chat" if is_chat else "completions",
        model=wanted if wanted in models else model,
        max_tokens=asked_tokens(r.body, max_tokens),
        logprobs=logprobs,
    )
    text = {"messages": _marked(r.body["messages"], mark)} if is_chat else {"prompt": f"{mark} {r.body['prompt']}"}
    kept = {k: v for k, v in r.body.items() if k not in asked and k != "max_completion_tokens"}
    return {**kept, **asked, **text}


def _marked(messages: list[Mapping[str, Any]], mark: str) -> list[Mapping[str, Any]]:
    """Put a mark before the first text."""
    first, *rest = messages
    content = first.get("content")
    if isinstance(content, str):
        return [{**first, "content": f"{mark} {content}"}, *rest]
    return [{**first, "content": [{"type": "text", "text": mark}, *(content or [])]}, *rest]
