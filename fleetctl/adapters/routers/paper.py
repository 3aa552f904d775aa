"""Coming home, adapter layer: the raw commands that bring a cell home when fleetctl itself is gone, by kind of router. Never runs one.

Lines of one cell, in order: is the source there, what stands, home, what stands now. A line that begins with # is for the person. Every
name is quoted for a POSIX shell; no secret is ever printed. Where the router keeps a token it is raised by as much as `fleetctl fallback`
raises it, so that a controller which still lives finds itself stale.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from shlex import quote
from urllib.parse import urlsplit

from fleetctl.adapters.routers.envoy.runtime import lease_key, shadow_key
from fleetctl.adapters.routers.route import Backends
from fleetctl.adapters.routers.splits import checked_cell
from fleetctl.domain.fleet import Connection
from fleetctl.domain.home import HOME_TOKEN_STEP
from fleetctl.domain.ids import CellId
from fleetctl.domain.units import FULL_BP

Lines = tuple[str, ...]
Write = Callable[[Connection, CellId, Backends, Sequence[str]], Lines]
STOP = "# First stop every ticker (fleetctl migrate, its timer): a live one sets its own weight again within a second."


def paper_commands(connection: Connection, c: CellId, backends: Backends, endpoints: Sequence[str] = ()) -> Lines:
    """Return the raw commands of one cell; none where the kind is unknown.

    Args:
        backends: names of the two sides at the router; endpoints: "address:port" of the source's replicas, where they are known.
    """
    write = _KINDS.get(connection.kind)
    return () if write is None else write(connection, checked_cell(c), backends, endpoints)


def _haproxy(connection: Connection, cell: CellId, names: Backends, endpoints: Sequence[str]) -> Lines:
    address = quote("unix-connect:" + connection.settings.get("socket", "").replace(",", "\\,"))
    weights = Path(connection.settings.get("map_folder", "")) / "weight.map"

    def ask(command: str) -> str:
        return f"echo {quote(command)} | socat stdio {address}"

    look = ask(f"show map {weights}")
    lines = [
        "# Does the source answer? One of its servers must be UP and L7OK, which is a real completion.",
        f"{ask(f'show stat {names.baseline} 4 -1')} | cut -d, -f2,18,37",
        "# What stands: the last number of the cell's line, out of 10000.",
        look,
    ]
    there = f"sed -i {quote(f's/^{cell} .*/{cell} 0/')} {quote(str(weights))}"
    by_hand = (there, ask(f"set map {weights} {cell} 0"), look)
    if connection.settings.get("fence") == "single_writer":
        return (STOP, *lines, "# Home: the file first, so that a restart keeps it; then HAProxy itself.", *by_hand)
    home = ask(f"fleetctl home {cell}")
    by_lua = "# Home. It answers: ok 0 ...; a restart of HAProxy keeps it, and a controller that lives finds itself stale."
    return (*lines, by_lua, home, look, "# Only where that said Unknown command: stop every ticker, then by hand.", *by_hand)


def _envoy(connection: Connection, cell: CellId, names: Backends, endpoints: Sequence[str]) -> Lines:
    found = urlsplit(connection.settings.get("admin", ""))
    admin = f"{found.scheme}://{found.netloc.rpartition('@')[2]}"
    canary, baseline, token = f"fleetctl.weight.{names.canary}", f"fleetctl.weight.{names.baseline}", f"fleetctl.token.{cell}"
    look = f"curl -sS {quote(admin + '/runtime')} | grep -A 8 -F {quote(f'{cell}')}"
    number = quote(f"/{token}/,/final_value/s/.*final_value.*: *.\\([0-9]*\\).*/\\1/p")
    seen = f"T=$(curl -sS {quote(admin + '/runtime')} | sed -n {number})"
    change = f"{admin}/runtime_modify?{canary}=0&{baseline}={FULL_BP}&{shadow_key(cell)}=0&{token}="
    kept = f"&{lease_key(cell)}=0:0:"  # the token once more, so that a fence that comes late does not bring the old one back
    lines = [
        "# Does the source answer? Its replicas must say healthy.",
        f"curl -sS {quote(admin + '/clusters')} | grep -F {quote(names.baseline + '::')} | grep health_flags",
        "# What stands: final_value of the weights, out of 10000.",
        look,
        "# Home. It answers: OK.",
        seen,
        f'curl -sS -X POST {quote(change)}"$(({_T} + {HOME_TOKEN_STEP}))"{quote(kept)}"$(({_T} + {HOME_TOKEN_STEP}))"',
    ]
    if connection.settings.get("runtime_folder"):
        file = Path(connection.settings["runtime_folder"]) / "runtime.json"
        marks = (f's/("{canary}": *"?)[0-9]+/\\10/', f's/("{baseline}": *"?)[0-9]+/\\1{FULL_BP}/')
        words = " ".join(f"-e {quote(m)}" for m in marks)
        words += f""" -e {quote(f's/("{token}": *"?)[0-9]+/')}'\\1'"$(({_T} + {HOME_TOKEN_STEP}))"/"""
        beside = f"{file}.home"
        lines += [
            "# So that a restart of Envoy keeps it:",
            f"sed -E {words} {quote(str(file))} > {quote(beside)} && chmod 600 {quote(beside)} && mv {quote(beside)} {quote(str(file))}",
        ]
    return (*lines, look)


_T = "${T:-0}"


def _aws(connection: Connection, arn: str) -> str:
    """Return how the AWS command line begins; the profile is a name, never a key."""
    region = connection.settings.get("region") or (arn.split(":")[3] if arn.count(":") > 3 else "")
    profile = connection.settings.get("profile", "")
    return " ".join(["aws", *(["--region", quote(region)] if region else []), *(["--profile", quote(profile)] if profile else [])])


def _alb(connection: Connection, cell: CellId, names: Backends, endpoints: Sequence[str]) -> Lines:
    arn = connection.settings.get(f"rule.{cell}") or connection.settings.get("rule", "")
    aws = f"{_aws(connection, arn)} elbv2"
    is_rule = ":listener-rule/" in arn
    asked = f"describe-rules --rule-arns {quote(arn)}" if is_rule else f"describe-listeners --listener-arns {quote(arn)}"
    actions = "Rules[0].Actions" if is_rule else "Listeners[0].DefaultActions"
    change = (
        f"modify-rule --rule-arn {quote(arn)} --actions" if is_rule else f"modify-listener --listener-arn {quote(arn)} --default-actions"
    )

    def group(name: str, ending: str) -> str:
        usual = name == f"{cell}_{ending}"
        part = f"-{ending}/" if usual else f":targetgroup/{name}/"
        query = f"{actions}[].ForwardConfig.TargetGroups[].TargetGroupArn | [?contains(@, '{part}')] | [0]"
        return f"$({aws} {asked} --output text --query {quote(query)})"

    forward = {
        "Type": "forward",
        "ForwardConfig": {
            "TargetGroups": [{"TargetGroupArn": "$C", "Weight": 0}, {"TargetGroupArn": "$B", "Weight": 999}],
            "TargetGroupStickinessConfig": {"Enabled": False},
        },
    }
    body = json.dumps([forward]).replace('"', '\\"')
    alone = json.dumps([{"Type": "forward", "TargetGroupArn": "$B"}]).replace('"', '\\"')
    tags = f"$({aws} describe-tags --resource-arns {quote(arn)} --output text --query {quote(_MARK_OF_TAGS)} | tr -dc 0-9)"
    look = f"{aws} {asked} --query {quote(actions)}"
    return (
        *_completions(endpoints),
        "# What stands: the weights of the two target groups.",
        look,
        "# Home. Where the look showed another action than forward (a sign-in), set the target group's weight to 0 in the console instead.",
        f"T={tags}; {aws} add-tags --resource-arns {quote(arn)} --tags Key=fleetctl:token,Value=$(({_T} + {HOME_TOKEN_STEP}))",
        f"B={group(names.baseline, 'baseline')}",
        f"C={group(names.canary, 'canary')}",
        "# The second is for target groups with stickiness of their own, which AWS takes beside ours alone: the source by itself.",
        f'{aws} {change} "{body}" || {aws} {change} "{alone}"',
        look,
    )


_MARK_OF_TAGS = "TagDescriptions[0].Tags[?Key=='fleetctl:token'].Value | [0]"


def _httproute(connection: Connection, cell: CellId, names: Backends, endpoints: Sequence[str]) -> Lines:
    place = connection.settings.get(f"route.{cell}") or connection.settings.get("route", "")
    namespace, _, rest = place.partition("/")
    name, _, rule = rest.partition("#")
    flags = [(f"--{key}", connection.settings.get(key, "")) for key in ("kubeconfig", "context")]
    kubectl = " ".join(["kubectl", *(f"{flag} {quote(value)}" for flag, value in flags if value), "-n", quote(namespace)])
    at = f"/spec/rules/{rule or 0}/backendRefs"

    def find(side: str, named: str) -> str:
        usual = named == f"{cell}_{side}"
        return f'$(printf "%s\\n" "$N" | grep -n {f"-- -{side}$" if usual else f"-xF -- {quote(named)}"})'

    def step(op: str, side: str, field: str, value: str) -> str:
        return f'{{\\"op\\": \\"{op}\\", \\"path\\": \\"{at}/$((${{{side}%%:*}} - 1))/{field}\\", \\"value\\": {value}}}'

    names_are = [step("test", side, "name", f'\\"${{{side}#*:}}\\"') for side in ("B", "C")]
    steps = ", ".join([*names_are, step("add", "B", "weight", f"{FULL_BP}"), step("add", "C", "weight", "0")])
    listed = quote(f'jsonpath={{range .spec.rules[{rule or 0}].backendRefs[*]}}{{.name}}{{"\\n"}}{{end}}')
    backends = quote(f"jsonpath={{.spec.rules[{rule or 0}].backendRefs}}")
    look = f"{kubectl} get httproute {quote(name)} -o {backends}"
    mark = f"$({kubectl} get httproute {quote(name)} -o {quote('jsonpath={.metadata.annotations.fleetctl-split/mark}')}"
    raised = f"{mark} | awk -F: -v OFS=: {quote(f'{{$2 += {HOME_TOKEN_STEP}; print}}')})"
    patch = f'{kubectl} patch httproute {quote(name)} --type=json -p "$P"'
    return (
        *_completions(endpoints),
        "# What stands: the weights of the two backends.",
        look,
        "# Which number and name each side has there; each must print one line.",
        f"N=$({kubectl} get httproute {quote(name)} -o {listed})",
        f'B={find("baseline", names.baseline)}; echo "$B"',
        f'C={find("canary", names.canary)}; echo "$C"',
        "# Home: the weights, then the token, then the weights again in case a live controller wrote in between. Other names are refused.",
        f'P="[{steps}]"',
        f'{patch} && {kubectl} annotate --overwrite httproute {quote(name)} "fleetctl-split/mark={raised}"; {patch}',
        look,
    )


def _queue(connection: Connection, cell: CellId, names: Backends, endpoints: Sequence[str]) -> Lines:
    file = quote(connection.settings.get("path", ""))
    look = f"sqlite3 {file} {quote(_STANDS.format(cell=cell))}"
    home = f"UPDATE splits SET bp = 0, token = token + {HOME_TOKEN_STEP} WHERE cell = '{cell}'"  # noqa: S608 - a checked name, on paper
    return (
        "# What stands: cell, share of the target out of 10000, token.",
        look,
        "# Home: consumers of the target take no further job; what they hold they finish.",
        f"sqlite3 -cmd '.timeout 5000' {file} {quote(home)}",
        look,
    )


_STANDS = "SELECT cell, bp, token FROM splits WHERE cell = '{cell}'"


def _sqs(connection: Connection, cell: CellId, names: Backends, endpoints: Sequence[str]) -> Lines:
    url = quote(connection.settings.get(f"queue.{cell}") or connection.settings.get("queue", ""))
    aws = f"{_aws(connection, '')} sqs"
    look = f"{aws} list-queue-tags --queue-url {url}"

    def tag(key: str, then: str = "") -> str:
        wanted = f'Tags."{key}"'
        return f"$({look} --output text --query {quote(wanted)}{then})"

    return (
        "# What stands: before the / of fleetctl:split, out of 10000.",
        look,
        "# Home: consumers of the target take no further message within a second; what they hold they finish.",
        f"T={tag('fleetctl:token', ' | tr -dc 0-9')}",
        f'{aws} tag-queue --queue-url {url} --tags "fleetctl:token=$(({_T} + {HOME_TOKEN_STEP}))"',
        f'S={tag("fleetctl:split")}; S="${{S#*/}}"',
        f'{aws} tag-queue --queue-url {url} --tags "fleetctl:split=0/${{S%:*}}:$(date +%s)000"',
        look,
    )


def _completions(endpoints: Sequence[str]) -> Lines:
    """Return what asks each replica of the source for a real completion."""
    body = quote('{"prompt": "ok", "max_tokens": 1}')
    asks = [f"curl -sS -m 5 -H 'content-type: application/json' -d {body} {quote(f'http://{place}/v1/completions')}" for place in endpoints]
    return ("# Does the source answer? Each must print choices.", *asks) if asks else ()


_KINDS: dict[str, Write] = {
    "alb": _alb,
    "envoy": _envoy,
    "haproxy": _haproxy,
    "httproute": _httproute,
    "queue": _queue,
    "sqs": _sqs,
}
