"""Traffic, adapter layer: lets Envoy's log name a request's adapter model and its cohort. Never talks to a running Envoy.

Envoy's text log escapes nothing, and both are what a client sends: so a name is written only where it is one that was declared, and of a
cohort only what cannot end a JSON string.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fleetctl.adapters.routers.route import CellRoute

_HTTP = "type.googleapis.com/envoy.extensions.filters.http."
_SPACE = "fleetctl"
_LUA = """
local models, cohorts = {%s}, {%s}

function envoy_on_request(handle)
  local cell = (handle:headers():get(":path") or ""):match("^/([^/?]+)/")
  local mine, told = models[cell or ""], handle:streamInfo():dynamicMetadata()
  local model, cohort = "-", "-"
  if mine then
    local asked = (told:get("%s") or {})["model"]
    if type(asked) == "string" and mine[asked] then model = asked end
  end
  local named = cohorts[cell or ""]
  if named then
    local value = handle:headers():get(named.header)
    if named.cookie and value then
      local found = nil
      for name, rest in value:gmatch("%%s*([^=;]+)=([^;]*)") do
        if name == named.cookie then found = rest break end
      end
      value = found
    end
    if value and #value > 0 then cohort = value:sub(1, 64):gsub("[^%%w._:@/+-]", "_") end
  end
  told:set("%s", "m", model)
  told:set("%s", "co", cohort)
end
"""


def fields(routes: Iterable[CellRoute]) -> dict[str, str]:
    """Return the fields that the log has besides."""
    listed = tuple(routes)
    found = {}
    if any(route.adapters for route in listed):
        found["m"] = f'"%DYNAMIC_METADATA({_SPACE}:m)%"'
    if any(route.cohort for route in listed):
        found["co"] = f'"%DYNAMIC_METADATA({_SPACE}:co)%"'
    return found


def filters(routes: Iterable[CellRoute]) -> list[dict[str, Any]]:
    """Return the filters that find them out; none where nothing is told apart."""
    listed = tuple(routes)
    if not fields(listed):
        return []
    found = []
    if any(route.adapters for route in listed):
        rule = {"selectors": [{"key": "model"}], "on_present": {"metadata_namespace": _SPACE, "key": "model"}}
        rule |= {"on_missing": {"metadata_namespace": _SPACE, "key": "model", "value": "-"}}
        typed = {"@type": _HTTP + "json_to_metadata.v3.JsonToMetadata", "request_rules": {"rules": [rule]}}
        found.append({"name": "fleetctl_model", "typed_config": typed})
    code = _LUA % (_models(listed), _cohorts(listed), _SPACE, _SPACE, _SPACE)
    typed = {"@type": _HTTP + "lua.v3.Lua", "default_source_code": {"inline_string": code}}
    return [*found, {"name": "fleetctl_told_apart", "typed_config": typed}]


def _models(routes: Iterable[CellRoute]) -> str:
    """Return a Lua table of declared names by cell; names were checked to hold nothing that could end a string."""
    rows = []
    for r in routes:
        if r.adapters:
            names = ",".join(f'["{name}"]=true' for name in r.adapters)
            rows.append(f'["{r.cell}"]={{{names}}}')
    return ",".join(rows)


def _cohorts(routes: Iterable[CellRoute]) -> str:
    rows = []
    for r in routes:
        if r.cohort is not None:
            is_cookie = r.cohort.kind == "cookie"
            cookie = f',cookie="{r.cohort.name}"' if is_cookie else ""
            rows.append(f'["{r.cell}"]={{header="{"cookie" if is_cookie else r.cohort.name.lower()}"{cookie}}}')
    return ",".join(rows)
