"""Coming home, views layer: the printed page for when fleetctl itself is gone, as text and as HTML. Never I/O, never a secret."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape

from fleetctl.domain.home import WayHome
from fleetctl.views.columns import clean

FIRST = (
    "Use this where fleetctl cannot run. Where it can: fleetctl fallback WORKLOAD.",
    "Run a cell's lines from top to bottom, in a POSIX shell, where its router is managed. Never skip the first one: a source that answers",
    "nothing is not a home. Cells may be brought home in any order; stop when the source slows down.",
    "Open answers finish by themselves. Nothing here needs a password of fleetctl; it needs your own rights on the router.",
)
AFTER = (
    "Afterwards: write down who did what and when. When fleetctl is back, run: fleetctl fallback --reconcile",
    "It tells the store, which ends these migrations, so that no controller begins again by itself.",
)
_STYLE = """
body{font:14px/1.45 system-ui,sans-serif;max-width:190mm;margin:10mm auto;color:#000;background:#fff}
h1{font-size:20px;margin:0 0 4px}h2{font-size:15px;margin:0}p{margin:4px 0}
section{border:1px solid #777;padding:8px 10px;margin:10px 0;break-inside:avoid}
pre{font:11.5px/1.5 ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere;margin:6px 0 0}
.soft{color:#444}.done{float:right;color:#444}
@media print{body{margin:0;max-width:none}}
"""


def paper_text(ways: Sequence[WayHome]) -> str:
    """Return the page as plain text."""
    lines = [_title(ways), "", *FIRST, ""]
    for way in ways:
        lines += [way.cell, f"    # {_about(way)}", *(f"    {clean(line)}" for line in _lines(way)), ""]
    return "\n".join([*lines, *AFTER])


def page(ways: Sequence[WayHome]) -> str:
    """Return the page as one HTML document: no script, nothing fetched."""
    mark = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{mark}'; base-uri 'none'; form-action 'none'"
    cells = "".join(
        f'<section><span class="done">by ________ at ____:____</span><h2>{_t(way.cell)}</h2><p class="soft">{_t(_about(way))}</p>'
        f"<pre>{_t(chr(10).join(clean(line) for line in _lines(way)), keep=True)}</pre></section>"
        for way in ways
    )
    first, after = ("".join(f"<p>{_t(text)}</p>" for text in part) for part in (FIRST, AFTER))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"><title>{_t(_title(ways))}</title><style>{_STYLE}</style></head>'
        f"<body><h1>{_t(_title(ways))}</h1>{first}{cells}{after}</body></html>"
    )


def _title(ways: Sequence[WayHome]) -> str:
    fleets = ", ".join(sorted({w.fleet for w in ways}))
    made = max((w.made_at for w in ways), default=None)
    return f"Home without fleetctl: {clean(fleets)}" + (f", as of {made:%Y-%m-%d %H:%M} UTC" if made is not None else "")


def _about(way: WayHome) -> str:
    parts = [f"workload {way.workload}", f"region {way.region}", f"class {way.klass}"]
    parts += [f"tenant {way.tenant}"] if way.tenant else []
    parts += [f"wave {way.wave}"] if way.wave else []
    return clean(f"{', '.join(parts)}; goes home to {way.source} by router {way.router.name} ({way.router.kind})")


def _lines(way: WayHome) -> tuple[str, ...]:
    return way.paper or (f"# There is no command for a router of kind {way.router.kind}: set the target's weight to 0 by its own means.",)


def _t(text: str, *, keep: bool = False) -> str:
    return escape(text if keep else clean(text))
