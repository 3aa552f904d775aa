"""Traffic, adapter layer: renders HAProxy's configuration and start-up files from a small typed input. Never talks to a running HAProxy."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from fleetctl.adapters.routers.route import PIN_HEADER, SERVER_HEADER, STREAM_TIMEOUT_S, CellRoute, is_endpoint, problems, write_private
from fleetctl.domain.ids import CellId
from fleetctl.errors import ConfigInvalid

PIN_VARIABLE = "FLEETCTL_PIN_KEY"
"""Environment variable through which HAProxy gets the pin key, so that it stands in no file but its own."""
WEIGHT_MAP, FENCE_MAP, SHADOW_MAP = "weight.map", "fence.map", "shadow.map"
LUA_FILE, CONFIG_FILE = "fleetctl.lua", "haproxy.cfg"
TURNS, TURNS_MOST = "fleetctl_turns", 10_000
"""Name of the table that counts the turns of cells without a key, and for how many cells it has room."""
TURNS_OFF = 3
"""By how many requests the target's part of any run of turns may be off its share. Source: at most 2.8, all weights tried in steps of 7 bp
over 30,000 turns, 2026-12-01; from the first turn of a weight on, less than 1.5 at the usual steps."""
SOCKET_PATH_MAX = 99
"""Longest path of a unix socket that HAProxy takes. Source: measured, 100 characters are refused."""
BUFFER_BYTES = 65_536
"""Answers up to about this size yield their token counts; the default of 16 kB would lose those of long answers."""

BODY_WAIT = "600s"
"""As long as `timeout client`: HAProxy answers 408 (or 504) where a body is not whole by then, and a slow client must not be cut for our
counting. It waits no longer than the body takes, or until the buffer is full. Source: measured, HAProxy 2.8.25."""

_PATH = re.compile(r"/[A-Za-z0-9_./-]{1,200}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterConfig:
    """All that a configuration is rendered from.

    Args:
        port: of the one frontend, on `address`.
        socket: path of the admin socket, at most 99 characters.
        map_folder: absolute; holds weight.map, fence.map and shadow.map.
        collector_port: where the shadow tee sends copies; 0 means no tee.
        lua: False renders a plain router without fence, guard and tee (single writer).
        retries: 0 is ours; above 0 a failed try is made again on another server of the same side, as other people's routers do. A try
            that was made again is an error of its side all the same.
        copies_s: seconds after which copies for the shadow end that no tick asks for any more; as a weight's lease.
    """

    cells: tuple[CellRoute, ...]
    port: int
    socket: Path
    map_folder: Path
    collector_port: int = 0
    lua: bool = True
    address: str = "127.0.0.1"
    max_connections: int = 2_000
    retries: int = 0
    copies_s: int = 180


def render(config: RouterConfig) -> str:
    """Return the text of haproxy.cfg.

    Raises:
        ConfigInvalid: config.router, with every name or number that cannot be used.
    """
    _check(config)
    parts = [_global(config), _defaults(config), _frontend(config)]
    parts += [_backends(route) for route in config.cells]
    parts.append(f"backend {TURNS}\n    stick-table type string len 64 size {TURNS_MOST} store gpc0\n")
    return "\n".join(parts)


def write_files(config: RouterConfig, folder: Path) -> Path:
    """Write haproxy.cfg, fleetctl.lua and, where they are missing, the maps (0600); return the path of haproxy.cfg.

    Weights that stand in weight.map stay: a restart keeps the split.

    Raises:
        ConfigInvalid: config.router.
    """
    text = render(config)
    for wanted in (folder, config.map_folder):
        wanted.mkdir(mode=0o700, parents=True, exist_ok=True)
    cells = [route.cell for route in config.cells]
    _complete(config.map_folder / WEIGHT_MAP, cells, "0")
    _complete(config.map_folder / FENCE_MAP, cells, "0:0:0")
    _complete(config.map_folder / SHADOW_MAP, cells, "0", fresh=True)
    write_private(config.map_folder / LUA_FILE, lua_text())
    path = folder / CONFIG_FILE
    write_private(path, text)
    return path


def lua_text() -> str:
    """Return the Lua that HAProxy loads."""
    return resources.files(__package__).joinpath(LUA_FILE).read_text(encoding="utf-8")


def _check(config: RouterConfig) -> None:
    wrong: list[str] = []
    for name, path in (("socket", config.socket), ("map_folder", config.map_folder)):
        if not _PATH.match(str(path)) or ".." in path.parts:
            wrong.append(f"{name}: {str(path)!r} must be an absolute path of letters, digits and _ . / -")
    if len(str(config.socket)) > SOCKET_PATH_MAX:
        wrong.append(f"socket: {len(str(config.socket))} characters, at most {SOCKET_PATH_MAX} work: use a shorter folder")
    for name, port, least in (("port", config.port, 1), ("collector_port", config.collector_port, 0)):
        if not least <= port <= 65_535:
            wrong.append(f"{name}: {port} is not a port")
    if not is_endpoint(f"{config.address}:1"):
        wrong.append(f"address: {config.address!r} is not an address")
    if not config.cells:
        wrong.append("cells: there is none to route")
    seen: set[str] = set()
    for route in config.cells:
        wrong += problems(route)
        if route.cell in seen:
            wrong.append(f"cell {route.cell}: is there twice")
        seen.add(route.cell)
    if wrong:
        raise ConfigInvalid(
            "config.router",
            "the router's configuration cannot be rendered: " + "; ".join(wrong),
            hint="Correct the fleet file.",
            details=tuple(wrong),
        )


def _global(config: RouterConfig) -> str:
    lua = (
        f"\n    lua-load {config.map_folder}/{LUA_FILE} {config.map_folder} {config.collector_port} {config.copies_s}" if config.lua else ""
    )
    if config.lua and config.collector_port:
        lua += "\n    httpclient.retries 0\n    httpclient.timeout.connect 1s"
    return f"""\
# Rendered by fleetctl. Weights live in {WEIGHT_MAP} and change at run time; never reload in mid-migration.
global
    nbthread 1
    no strict-limits
    maxconn {config.max_connections}
    hard-stop-after 30s
    stats socket {config.socket} mode 600 level admin
    stats timeout 10s
    log stdout format raw local0
    tune.bufsize {BUFFER_BYTES}
    set-var-fmt proc.pin "%[env({PIN_VARIABLE})]"{lua}
"""


def _retries(config: RouterConfig) -> str:
    if config.retries <= 0:
        return "    retries 0\n    no option redispatch"
    return f"    retries {config.retries}\n    option redispatch 1\n    retry-on conn-failure empty-response response-timeout 500 502 503"


def _defaults(config: RouterConfig) -> str:
    error = '{"error":{"message":"no server of this cell answers","type":"router","code":503}}'
    return f"""\
defaults
    mode http
    log global
    option http-no-delay
    option http-server-close
    option dontlognull
{_retries(config)}
    balance roundrobin
    timeout connect 2s
    timeout client 600s
    timeout http-request 10s
    timeout http-keep-alive 60s
    timeout queue 10s
    timeout server 60s
    http-error status 503 content-type application/json string '{error}'
"""


def _log_format(cells: tuple[CellRoute, ...]) -> str:
    fields = {
        "c": '"%[var(txn.c)]"',
        "a": '"%[var(txn.arm)]"',
        "srv": '"%s"',
        "st": "%ST",
        "ts": '"%ts"',
        "t0": "%[var(txn.t0)]",
        "ta": "%Ta",
        "tr": "%Tr",
        "b": "%B",
        "pt": "%[var(txn.pt)]",
        "ct": "%[var(txn.ct)]",
        "cc": "%[var(txn.cc)]",
        "bp": "%[var(txn.bp)]",
        "p": '"%[var(txn.p)]"',
        "rc": '"%rc"',
    }
    if any(route.adapters for route in cells):
        fields["m"] = '"%[var(txn.m)]"'
    if any(route.cohort for route in cells):
        fields["co"] = '"%[var(txn.co)]"'
    return "{" + ",".join(f'"{name}":{value}' for name, value in fields.items()) + "}"


def _frontend(config: RouterConfig) -> str:
    weights = config.map_folder / WEIGHT_MAP
    return f"""\
frontend fleetctl
    bind {config.address}:{config.port}
    log-format '{_log_format(config.cells)}'
    http-request set-var(txn.t0) date(0,ms)
    http-request set-var(txn.pt) int(-1)
    http-request set-var(txn.ct) int(-1)
    http-request set-var(txn.cc) int(-1)
    http-request set-var(txn.bp) int(0)
    http-request set-var(txn.p) str(-)
    http-request set-var(txn.arm) str(-)
    acl known path,field(2,/),map_str_int({weights}) -m found
    http-request return status 404 content-type application/json string '{_unknown()}' if !known
    http-request set-var(txn.c) path,field(2,/)
{_cohorts(config.cells)}    http-request set-var(txn.bp) var(txn.c),map_str_int({weights},0)
    acl pin_key var(proc.pin),length ge 16
    acl pin_good req.fhdr({PIN_HEADER}),field(1,:),secure_memcmp(proc.pin)
    http-request set-var(txn.p) str(baseline) if pin_key pin_good {{ req.fhdr({PIN_HEADER}),field(2,:) -m str baseline }}
    http-request set-var(txn.p) str(canary) if pin_key pin_good {{ req.fhdr({PIN_HEADER}),field(2,:) -m str canary }}
    acl pinned var(txn.p) -m str baseline canary
{_affinity(config.cells)}
{_turns()}
{_told_apart(config.cells)}
    http-request set-var(txn.arm) str(baseline)
    http-request set-var(txn.arm) str(canary) if {{ var(txn.bucket),sub(txn.bp) lt 0 }}
    http-request set-var(txn.arm) var(txn.p) if pinned
    http-request del-header x-fleetctl- -m beg
    http-request replace-path ^/[^/]+/?(.*)$ /\\1
{_tee(config)}
    use_backend %[var(txn.c)]_%[var(txn.arm)]
    http-response del-header {SERVER_HEADER}
    http-response set-header {SERVER_HEADER} %s if pinned
    acl plain res.hdr(content-type) -m beg application/json
    http-response wait-for-body time {BODY_WAIT} if plain
    http-response set-var(txn.pt) res.body,json_query('$.usage.prompt_tokens','int') if plain
    http-response set-var(txn.ct) res.body,json_query('$.usage.completion_tokens','int') if plain
    http-response set-var(txn.cc) res.body,json_query('$.usage.prompt_tokens_details.cached_tokens','int') if plain
"""


def _unknown() -> str:
    return '{"error":{"message":"no such cell","type":"router","code":404}}'


def _cohorts(cells: tuple[CellRoute, ...]) -> str:
    """Return lines that send requests of one cell by another, by a header or cookie of their gateway; the first that fits decides."""
    lines = []
    for cell, part in ((route.cell, route.part) for route in cells if route.part is not None):
        for start in range(0, len(part.values), 16):  # a line of HAProxy holds 64 words and 2,048 characters
            values = " ".join(part.values[start : start + 16])
            key = f"req.fhdr({part.header})" if part.header else f"req.cook({part.cookie})"
            here = f"{{ var(txn.c) -m str {part.of} }} {{ {key} -m str {values} }}"
            lines.append(f"    http-request set-var(txn.c) str({cell}) if {here}\n")
    return "".join(lines)


def _affinity(cells: tuple[CellRoute, ...]) -> str:
    lines: list[str] = []
    for route in cells:
        if route.affinity is not None:
            fetch = "req.fhdr" if route.affinity.kind == "header" else "req.cook"
            lines.append(f"    http-request set-var(txn.key) {fetch}({route.affinity.name}) if {{ var(txn.c) -m str {route.cell} }}")
    lines.append("    acl keyed var(txn.key),length gt 0")
    lines.append("    http-request set-var(txn.bucket) var(txn.key),xxh32,mod(10000) if keyed")
    return "\n".join(lines)


def _turns() -> str:
    """Return lines that give a request without a key its cell's next turn, and the target exactly its share of them.

    Turn n is the target's where n * weight mod 10,000 is below the weight: of any run of turns so many as its share says, but for one.
    Each ten turns are gone through from a place that changes (a hash of their number), so that a client whose every tenth request is a
    long one is split like any other. Source: systematic sampling, and its bias by periods, Cochran, Sampling Techniques, 3rd edition, 8.
    """
    lines = (
        f"track-sc2 var(txn.c) table {TURNS}",
        "sc-inc-gpc0(2)",
        "set-var(txn.turn) sc2_get_gpc0",
        "set-var(txn.place) var(txn.turn),div(10),xxh32,mod(10),add(txn.turn),mod(10)",
        "set-var(txn.bucket) var(txn.turn),div(10),mul(10),add(txn.place),mul(txn.bp),mod(10000)",
    )
    return "\n".join(f"    http-request {line} if !keyed !pinned" for line in lines)


def _told_apart(cells: tuple[CellRoute, ...]) -> str:
    """Return lines that name a request's adapter model (one of the declared names, else "-") and its cohort in the log."""
    lines: list[str] = []
    if any(route.adapters for route in cells):
        lines.append("    http-request set-var(txn.m) str(-)")
    if any(route.cohort for route in cells):
        lines.append("    http-request set-var(txn.co) str(-)")
    for route in cells:
        here = f"var(txn.c) -m str {route.cell}"
        if route.adapters:
            lines.append(f"    http-request wait-for-body time {BODY_WAIT} if METH_POST {{ {here} }}")
        for adapter in route.adapters:
            lines.append(
                f"    http-request set-var(txn.m) str({adapter}) if {{ {here} }} {{ req.body,json_query('$.model') -m str {adapter} }}"
            )
        if route.cohort is not None:
            fetch = "req.fhdr" if route.cohort.kind == "header" else "req.cook"
            lines.append(f"    http-request set-var(txn.co) {fetch}({route.cohort.name}),bytes(0,64),json(utf8s) if {{ {here} }}")
    return "\n".join(lines)


def _tee(config: RouterConfig) -> str:
    if not config.lua or not config.collector_port:
        return ""
    rate = f"{{ var(txn.c),map_str_int({config.map_folder / SHADOW_MAP},0) gt 0 }}"
    return f"""\
    http-request lua.fleetctl_sample if METH_POST {{ path_end /completions }} !pinned {rate} {{ req.hdr_val(content-length) 1:14000 }}
    acl teed var(txn.tee) -m bool
    http-request wait-for-body time {BODY_WAIT} if teed
    http-request lua.fleetctl_tee if teed"""


def _backends(route: CellRoute) -> str:
    body = json.dumps({"model": route.model, "prompt": "ok", "max_tokens": 1, "temperature": 0}, separators=(",", ":"))
    headers = "hdr Host fleetctl hdr Content-Type application/json hdr x-fleetctl-check 1"
    timeout = route.answer_timeout_s or (STREAM_TIMEOUT_S if route.streaming else 60)
    common = f"""\
    timeout server {timeout}s
    timeout check {route.check_timeout_ms}ms
    option httpchk
    http-check send meth POST uri /v1/completions ver HTTP/1.1 {headers} body '{body}'
    http-check expect status 200
    http-check expect string '"choices"'
    default-server check inter {route.check_every_ms}ms fall 2 rise 1"""
    source = [f"    server b{n} {endpoint}" for n, endpoint in enumerate(route.baseline, 1)]
    target = [f"    server c{n} {endpoint}" for n, endpoint in enumerate(route.canary, 1)]
    spare = [f"    server b{n} {endpoint} no-check backup track {route.cell}_baseline/b{n}" for n, endpoint in enumerate(route.baseline, 1)]
    return "\n".join(
        [
            f"backend {route.cell}_baseline",
            common,
            *source,
            "",
            f"backend {route.cell}_canary",
            "    option allbackups",
            common,
            *target,
            *spare,
            "",
        ]
    )


def _complete(path: Path, cells: list[CellId], value: str, *, fresh: bool = False) -> None:
    """Keep the lines of these cells and add the missing ones; leave out cells that are routed no more."""
    standing: dict[str, str] = {}
    if not fresh and path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            name, _, rest = line.partition(" ")
            standing[name] = rest
    write_private(path, "".join(f"{cell} {standing.get(cell, value)}\n" for cell in cells))
