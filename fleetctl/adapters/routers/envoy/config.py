"""Traffic, adapter layer: renders Envoy's bootstrap from a small typed input. Never talks to a running Envoy.

A cell is two routes (one for a pinned probe of each side before them) and two clusters. The weights of its weighted clusters are
runtime keys; `use_hash_policy` makes buckets of the affinity key stable, so a raised weight moves only new ones. The canary's cluster
holds the source's servers at a lower priority: failover goes from target to source, never the other way.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fleetctl.adapters.routers.envoy import told_apart, turns
from fleetctl.adapters.routers.envoy.runtime import (
    RUNTIME_FILE,
    Standing,
    read_runtime_file,
    shadow_key,
    weight_key,
    write_runtime_file,
)
from fleetctl.adapters.routers.route import PIN_HEADER, SERVER_HEADER, STREAM_TIMEOUT_S, CellRoute, is_endpoint, problems, write_private
from fleetctl.domain.evidence import ARMS, Arm
from fleetctl.domain.ids import CellId
from fleetctl.domain.units import FULL_BP
from fleetctl.errors import ConfigInvalid

BOOTSTRAP_FILE = "envoy.json"
SHADOW_HEADER = "x-fleetctl-shadow"
"""Tells the collector of which cell a mirrored request is."""
PIN_KEY_LEAST = 16
TYPE = "type.googleapis.com/envoy.extensions."
_COLLECTOR = "fleetctl_collector"
_STRIPPED = (PIN_HEADER, SHADOW_HEADER, turns.TURN_HEADER, "x-fleetctl-check")
_SECRET = {
    "contains": [
        "authoriz",
        "-auth",
        "token",
        "api-key",
        "apikey",
        "secret",
        "cookie",
        "session",
        "credential",
        "passw",
        "signature",
        "jwt",
        "user",
        "account",
        "email",
        "tenant",
    ],
    "prefix": ["x-forwarded-", "x-amz-", "x-goog-", "x-ms-", "auth"],
    "exact": ["forwarded", "x-real-ip"],
}
"""Headers that a mirrored request loses before it leaves Envoy: whatever may say who asks, or let somebody ask as him. None of them is
in ":authority", which says where a request goes."""
_FIELDS = {
    "c": '"%ROUTE_NAME%"',
    "a": '"%METADATA(CLUSTER:fleetctl:arm)%"',
    "srv": '"%UPSTREAM_HOST_NAME_WITHOUT_PORT%"',
    "st": "%RESPONSE_CODE%",
    "ts": '"--"',
    "t0": "%START_TIME(%s%3f)%",
    "ta": "%DURATION%",
    "b": "%BYTES_SENT%",
    "p": '"%METADATA(ROUTE:fleetctl:pin)%"',
    "rf": '"%RESPONSE_FLAGS%"',
    "ac": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
}
"""The same line of JSON that every router of ours writes; `rf` and `ac` are Envoy's way to say how a request ended."""


BODY_MOST = 32 << 20
"""Longest body of a request where adapter models are told apart: Envoy reads it whole for that, and answers 413 to a longer one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvoyConfig:
    """All that a bootstrap is rendered from.

    Args:
        port, admin_port: of the listener and of the admin interface, both on `address`.
        folder: absolute; holds envoy.json, runtime.json and log/.
        pin_key: lets a probe choose its side; "" lets nobody.
        collector_port: where mirrored requests go; 0 means no mirror.
        log: file of the access log.
    """

    cells: tuple[CellRoute, ...]
    port: int
    admin_port: int
    folder: Path
    log: Path
    pin_key: str = ""
    collector_port: int = 0
    address: str = "127.0.0.1"


def render(config: EnvoyConfig) -> str:
    """Return the text of the bootstrap.

    Raises:
        ConfigInvalid: config.router, with every name or number that cannot be used.
    """
    _check(config)
    clusters = [_cluster(route, arm) for route in config.cells for arm in ARMS]
    if config.collector_port:
        clusters.append(_plain_cluster(_COLLECTOR, [_place("collector", f"127.0.0.1:{config.collector_port}")]))
    document = {
        "node": {"id": "fleetctl", "cluster": "fleetctl"},
        "admin": {"address": _socket(f"{config.address}:{config.admin_port}")},
        "layered_runtime": {"layers": [_file_layer(config.folder), {"name": "admin", "admin_layer": {}}]},
        "static_resources": {"listeners": [_listener(config)], "clusters": clusters},
    }
    return json.dumps(document, indent=1) + "\n"


def write_files(config: EnvoyConfig) -> Path:
    """Write envoy.json and what is missing in runtime.json (0600); return the path of envoy.json.

    Weights that stand in runtime.json stay: a restart keeps the split.

    Raises:
        ConfigInvalid: config.router; OSError.
    """
    text = render(config)
    for wanted in (config.folder, config.log.parent):
        wanted.mkdir(mode=0o700, parents=True, exist_ok=True)
    place = config.folder / RUNTIME_FILE
    standing = read_runtime_file(place)
    write_runtime_file(place, {route.cell: standing.get(route.cell, Standing()) for route in config.cells})
    path = config.folder / BOOTSTRAP_FILE
    write_private(path, text)
    return path


def cluster_name(c: CellId, arm: Arm) -> str:
    """Return the name of a cell's cluster in a bootstrap of ours."""
    return f"{c}_{arm}"


def _check(config: EnvoyConfig) -> None:
    wrong = [f"cell {problem}" if not problem.startswith("cell") else problem for route in config.cells for problem in problems(route)]
    ports = {
        "port": config.port,
        "admin_port": config.admin_port,
        **({"collector_port": config.collector_port} if config.collector_port else {}),
    }
    wrong += [f"{name}: {port} is not a port" for name, port in ports.items() if not 1 <= port <= 65_535]
    if not is_endpoint(f"{config.address}:1"):
        wrong.append(f"address: {config.address!r} is not an address")
    if not config.cells:
        wrong.append("cells: there is none to route")
    names = [route.cell for route in config.cells]
    wrong += [f"cell {name}: is there twice" for name in sorted({n for n in names if names.count(n) > 1})]
    if config.pin_key and len(config.pin_key) < PIN_KEY_LEAST:
        wrong.append(f"pin_key: has {len(config.pin_key)} characters, at least {PIN_KEY_LEAST} are needed")
    if wrong:
        raise ConfigInvalid(
            "config.router",
            "the router's configuration cannot be rendered: " + "; ".join(wrong),
            hint="Correct the fleet file.",
            details=tuple(wrong),
        )


def _socket(endpoint: str) -> dict[str, Any]:
    host, _, port = endpoint.rpartition(":")
    return {"socket_address": {"address": host.strip("[]"), "port_value": int(port)}}


def _place(name: str, endpoint: str) -> dict[str, Any]:
    return {"endpoint": {"hostname": name, "address": _socket(endpoint)}}


def _plain_cluster(name: str, places: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": name,
        "type": "STATIC" if all(_is_number(p["endpoint"]["address"]["socket_address"]["address"]) for p in places) else "STRICT_DNS",
        "connect_timeout": "2s",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": places}]},
    }


def _is_number(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdigit()


def _cluster(route: CellRoute, arm: Arm) -> dict[str, Any]:
    source = [_place(f"b{n}", endpoint) for n, endpoint in enumerate(route.baseline, 1)]
    target = [_place(f"c{n}", endpoint) for n, endpoint in enumerate(route.canary, 1)]
    levels = [source] if arm == "baseline" else [level for level in (target, source) if level]
    cluster = _plain_cluster(cluster_name(route.cell, arm), [place for level in levels for place in level])
    cluster["load_assignment"]["endpoints"] = [{"priority": n, "lb_endpoints": level} for n, level in enumerate(levels)]
    check = {"model": route.model, "prompt": "ok", "max_tokens": 1, "temperature": 0}
    return {
        **cluster,
        "lb_policy": "ROUND_ROBIN",
        "metadata": {"filter_metadata": {"fleetctl": {"arm": arm}}},
        # a side that has failed is sent nothing (no panic), and that at once: by default a change of health waits for 1 s more
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}, "update_merge_window": "0s"},
        "health_checks": [
            {
                "timeout": f"{route.check_timeout_ms / 1_000}s",
                "interval": f"{route.check_every_ms / 1_000}s",
                "no_traffic_interval": f"{route.check_every_ms / 1_000}s",
                "unhealthy_threshold": 2,
                "healthy_threshold": 1,
                "reuse_connection": False,  # a server that no longer takes connections is down
                "http_health_check": {
                    "host": "fleetctl",
                    "path": "/v1/completions",
                    "method": "POST",
                    "send": {"text": json.dumps(check, separators=(",", ":")).encode().hex()},
                    "receive": [{"text": b'"choices"'.hex()}],
                    "response_buffer_size": 4_096,
                    "request_headers_to_add": [_header("x-fleetctl-check", "1"), _header("content-type", "application/json")],
                },
            }
        ],
    }


def _header(name: str, value: str) -> dict[str, Any]:
    return {"header": {"key": name, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}


def _file_layer(folder: Path) -> dict[str, Any]:
    watched = {"path": str(folder / RUNTIME_FILE), "watched_directory": {"path": str(folder)}}
    return {
        "name": "fleetctl",
        "rtds_layer": {"name": "fleetctl", "rtds_config": {"path_config_source": watched, "resource_api_version": "V3"}},
    }


def _listener(config: EnvoyConfig) -> dict[str, Any]:
    fields = _FIELDS | told_apart.fields(config.cells)
    line = "{" + ",".join(f'"{name}":{value}' for name, value in fields.items()) + "}\n"
    parts = [r for route in config.cells for r in _part_routes(config, route)]  # before the cells whose requests they take
    routes = [*parts, *(r for route in config.cells for r in _routes(config, route))]
    routes.append(_answer("/", 404, '{"error":{"message":"no such cell","type":"router","code":404}}'))
    manager = {
        "@type": TYPE + "filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "fleetctl",
        "access_log": [
            {
                "name": "file",
                "typed_config": {
                    "@type": TYPE + "access_loggers.file.v3.FileAccessLog",
                    "path": str(config.log),
                    "log_format": {"text_format_source": {"inline_string": line}},
                },
            }
        ],
        "stream_idle_timeout": "600s",
        "normalize_path": True,
        "route_config": {
            "name": "fleetctl",
            "virtual_hosts": [{"name": "cells", "domains": ["*"], "routes": routes, "request_headers_to_remove": list(_STRIPPED)}],
        },
        "http_filters": [
            *told_apart.filters(config.cells),
            *turns.filters(),
            {"name": "router", "typed_config": {"@type": TYPE + "filters.http.router.v3.Router"}},
        ],
    }
    whole = {"per_connection_buffer_limit_bytes": BODY_MOST} if any(route.adapters for route in config.cells) else {}
    return {
        "name": "fleetctl",
        **whole,
        "address": _socket(f"{config.address}:{config.port}"),
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }


def _answer(prefix: str, status: int, body: str) -> dict[str, Any]:
    return {
        "name": "-",
        "match": {"prefix": prefix},
        "direct_response": {"status": status, "body": {"inline_string": body}},
        "response_headers_to_add": [_header("content-type", "application/json")],
    }


def _routes(config: EnvoyConfig, route: CellRoute) -> list[dict[str, Any]]:
    idle = route.answer_timeout_s or (STREAM_TIMEOUT_S if route.streaming else 60)
    action: dict[str, Any] = {"prefix_rewrite": "/", "timeout": "0s" if route.streaming else f"{idle}s", "idle_timeout": f"{idle}s"}
    found = [_pinned(config.pin_key, route.cell, arm, action) for arm in ARMS] if config.pin_key else []
    shares = {"canary": 0, "baseline": FULL_BP}  # the target first: its buckets are the lowest, and stay when more are added
    split = {
        **action,
        "weighted_clusters": {
            "use_hash_policy": True,
            "runtime_key_prefix": weight_key(""),
            "clusters": [{"name": f"{route.cell}_{arm}", "weight": weight} for arm, weight in shares.items()],
        },
    }
    if route.affinity is not None:
        kind, name = route.affinity.kind, route.affinity.name
        split["hash_policy"] = [{"header": {"header_name": name}} if kind == "header" else {"cookie": {"name": name}}]
    if config.collector_port:
        twice = {key: value for key, value in split.items() if key != "prefix_rewrite"} | _mirror(route.cell)
        twice["regex_rewrite"] = {"pattern": {"regex": f"^/{route.cell}/"}, "substitution": "/"}
        found += _split_routes(route, _completions(route.cell), twice)
    return found + _split_routes(route, {"prefix": f"/{route.cell}/"}, split)


def _split_routes(route: CellRoute, match: dict[str, Any], action: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a weighted route: by turns for requests without a key, by bucket for those with one."""
    keyed = {"name": route.cell, "match": match, "metadata": _pin_mark("-"), "route": action}
    return [turns.taken_by_turns(keyed, route), *([keyed] if route.affinity is not None else [])]


def _part_routes(config: EnvoyConfig, route: CellRoute) -> list[dict[str, Any]]:
    """Return the routes of a cell again, for requests of another one that go by it, by a header or cookie."""
    if route.part is None:
        return []
    of = route.part.of
    values = "|".join(value.replace(".", r"\.") for value in route.part.values)  # RE2; the values are plain else
    name, regex = route.part.header, f"^({values})$"
    if route.part.cookie:
        name, regex = "cookie", f"^(.*; *)?{re.escape(route.part.cookie)}=({values})(;.*)?$"
    wanted = {"name": name, "string_match": {"safe_regex": {"regex": regex}}}
    found = []
    for own in _routes(replace(config, pin_key=""), replace(route, part=None)):
        match = json.loads(json.dumps(own["match"]).replace(f"/{route.cell}/", f"/{of}/"))
        action = json.loads(json.dumps(own["route"]).replace(f"^/{route.cell}/", f"^/{of}/"))
        found.append({**own, "match": {**match, "headers": [*match.get("headers", ()), wanted]}, "route": action})
    return found


def _completions(c: CellId) -> dict[str, Any]:
    """Match what may be asked twice: completions, and nothing that could write."""
    paths = {"regex": f"/{c}/v1/(chat/)?completions"}
    return {"safe_regex": paths, "headers": [{"name": ":method", "string_match": {"exact": "POST"}}]}


def _pinned(key: str, c: CellId, arm: Arm, action: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": c,
        "match": {"prefix": f"/{c}/", "headers": [{"name": PIN_HEADER, "string_match": {"exact": f"{key}:{arm}"}}]},
        "metadata": _pin_mark(arm),
        "route": {**action, "cluster": cluster_name(c, arm)},
        "response_headers_to_add": [_header(SERVER_HEADER, "%UPSTREAM_HOST_NAME_WITHOUT_PORT%")],
    }


def _pin_mark(value: str) -> dict[str, Any]:
    return {"filter_metadata": {"fleetctl": {"pin": value}}}


def _mirror(c: CellId) -> dict[str, Any]:
    policy = {
        "cluster": _COLLECTOR,
        "runtime_fraction": {"default_value": {"numerator": 0, "denominator": "MILLION"}, "runtime_key": shadow_key(c)},
        "request_headers_mutations": [
            {"append": _header(SHADOW_HEADER, c)},
            *({"remove_on_match": {"key_matcher": {how: text}}} for how, texts in _SECRET.items() for text in texts),
        ],
    }
    return {"request_mirror_policies": [policy]}
