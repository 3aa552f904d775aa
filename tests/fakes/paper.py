"""Runs what is printed for a person without fleetctl, line by line in a real shell, as that person would."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

from fleetctl.adapters.routers.paper import paper_commands
from fleetctl.adapters.routers.route import Backends, backends_of
from fleetctl.domain.fleet import Connection
from fleetctl.domain.ids import CellId


def on_paper(
    connection: Connection,
    cell: CellId,
    *,
    names: Backends | None = None,
    endpoints: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    may_complain: bool = False,
) -> dict[str, str]:
    """Run a cell's lines in one shell, comments and all; return what each command printed. The names of its variables outlive a line."""
    lines = paper_commands(connection, cell, names or backends_of({}, cell), endpoints)
    mark = "--- next line of the paper ---"
    script = "".join(f"{line}\necho; echo '{mark}'\n" for line in lines)
    done = subprocess.run(
        ["/bin/sh"], input=script, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **(env or {})}
    )
    said = [part.strip() for part in done.stdout.split(mark)]
    assert may_complain or done.stderr.strip() == "", done.stderr
    return dict(zip(lines, said, strict=False))
