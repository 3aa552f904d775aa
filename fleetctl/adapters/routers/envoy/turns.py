"""Traffic, adapter layer: gives a request without a key its cell's next turn in Envoy, so that its share is no draw. Never talks to one.

Envoy draws where there is nothing to hash, unless a header names the number that it would draw. So a filter counts the turns of a cell
and writes turn * STRIDE mod 10,000 there: each 10,000 turns have every number once, and any run of them has nearly its share of each
part. Each worker of Envoy counts for itself.
"""

from __future__ import annotations

import re
from typing import Any

from fleetctl.adapters.routers.route import CellRoute
from fleetctl.domain.units import FULL_BP

TURN_HEADER = "x-fleetctl-turn"
STRIDE = 6_199
"""Of all numbers coprime to 10,000 the one with which a run of turns, however long and wherever it begins, differs least from its share:
by at most 4.5 requests at any weight, 3.5 at 1, 5, 10, 25, 50 and 95 %. Source: all of 1,001 to 8,999 tried, 2026-12-01."""
TURNS_OFF = 5
"""By how many requests the target's part of any run of turns of one worker may be off its share."""

_FILTER = "fleetctl_turns"
_LUA = f"""
local turns = {{}}

function envoy_on_request(handle)
  local headers, cell = handle:headers(), handle:metadata():get("cell")
  if cell then
    turns[cell] = ((turns[cell] or 0) + 1) % {FULL_BP}
    headers:replace("{TURN_HEADER}", tostring(turns[cell] * {STRIDE} % {FULL_BP}))
  end
end
"""


def filters() -> list[dict[str, Any]]:
    """Return the filter that counts."""
    typed = {"@type": "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua", "default_source_code": {"inline_string": _LUA}}
    return [{"name": _FILTER, "typed_config": typed}]


def taken_by_turns(keyed: dict[str, Any], route: CellRoute) -> dict[str, Any]:
    """Return a weighted route again for requests of its cell that bring no key; it stands before the one for those that do."""
    clusters = {**keyed["route"]["weighted_clusters"], "header_name": TURN_HEADER}
    clusters.pop("use_hash_policy", None)
    action = {key: value for key, value in keyed["route"].items() if key != "hash_policy"} | {"weighted_clusters": clusters}
    match = {**keyed["match"], "headers": [*keyed["match"].get("headers", ()), *_without_key(route)]}
    metadata = {"filter_metadata": {**keyed["metadata"]["filter_metadata"], _FILTER: {"cell": route.cell}}}
    return {**keyed, "match": match, "metadata": metadata, "route": action}


def _without_key(route: CellRoute) -> list[dict[str, Any]]:
    if route.affinity is None:
        return []
    name, text = route.affinity.name, ".+"
    if route.affinity.kind == "cookie":
        name, text = "cookie", f"^(.*; *)?{re.escape(name)}=[^;]+(;.*)?$"
    has = {"name": name, "string_match": {"safe_regex": {"regex": text}}}
    return [{**has, "treat_missing_header_as_empty": True, "invert_match": True}]
