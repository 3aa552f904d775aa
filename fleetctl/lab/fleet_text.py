"""Lab, lab layer: the text of the lab's fleet file; and how one that a person has edited takes new ports. Never writes it.

Lines that a new lab changes end in the mark; all others are the person's own once the file stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetctl.lab.cells import REGION, SOURCE_POOL, TARGET_POOL, LabCell

MARK = "  # set by fleetctl lab up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """What differs from lab to lab.

    Args:
        run: run folder; router_port: of the one frontend; router: which one; admin_port: of Envoy.
        baseline: ports per cell; canary: where the target replicas answer, host and port.
        model_path: of the real model; empty where there is none.
        network, nodes: of real target hosts, the first three numbers of their addresses and their nodes file; else empty.
    """

    run: Path
    router_port: int
    baseline: dict[str, tuple[int, ...]]
    canary: dict[str, tuple[str, ...]]
    model_path: str = ""
    network: str = ""
    nodes: str = ""
    router: str = "haproxy"
    admin_port: int = 0


def render_fleet(cells: Sequence[LabCell], places: Places, lineage: str) -> str:
    """Return the fleet file of a lab.

    Args:
        lineage: UUID, kept for the life of the workspace.
    """
    out = [
        _HEAD.format(lineage=lineage),
        _routers(places),
        _pools(places),
        "# Workloads: served model endpoints with an SLO.\nworkloads:\n",
    ]
    out += [_workload(c, places) for c in cells]
    out.append(_CELLS_HEAD)
    out += [_cell(c, places) for c in cells]
    out += [_POLICY, _settings(places)]
    return "".join(out)


def refresh_fleet(standing: str, rendered: str) -> str | None:
    """Return the standing file with the marked lines of `rendered`, None where they do not correspond (then it must be replaced)."""
    old, new = standing.splitlines(keepends=True), rendered.splitlines(keepends=True)
    places = [i for i, line in enumerate(old) if MARK.strip() in line]
    marked = [line for line in new if MARK.strip() in line]
    if [_key(old[i]) for i in places] != [_key(line) for line in marked]:
        return None
    for i, line in zip(places, marked, strict=True):
        old[i] = line
    return "".join(old)


def _key(line: str) -> str:
    return line.partition(":")[0].strip()


_HEAD = """\
# The lab's fleet: one machine that stands for two pools. Written by `fleetctl lab up`; yours to edit.
#
# Real: the router, SQLite, Terraform, Ansible, and the model of smollm-lab where it is here. Emulated: hosts, accelerators and the engines
# of all other cells. The next `lab up` changes the marked lines only (ports and folders), and keeps your changes to all others.
# Quantities carry their unit: times "20s", shares "10%", error margins "0.5 points".

format_version: 1
name: lab
lineage: {lineage}  # identity of this fleet; never change it

"""


def _routers(p: Places) -> str:
    r = p.run
    if p.router == "envoy":
        own = f"""\
      admin: http://127.0.0.1:{p.admin_port}{MARK}
      runtime_folder: {r}/envoy{MARK}"""
    else:
        own = f"""\
      socket: {r}/haproxy/haproxy.sock{MARK}
      map_folder: {r}/haproxy{MARK}"""
    return f"""\
# One router for all cells; a cell is addressed by path: URL/<cell>/v1/chat/completions
routers:
  lab-router:
    kind: {p.router}
    settings:
{own}
      log_folder: {r}/{p.router}/log{MARK}
      shadow_folder: {r}/shadow{MARK}
      url: http://127.0.0.1:{p.router_port}{MARK}
    secrets:
      pin_key:  # lets fleetctl's own probes and the shadow choose a side
        kind: file
        name: {r}/{p.router}/pin.key{MARK}

"""


def _pools(p: Places) -> str:
    return f"""\
# Pools: emulated machines of eight emulated accelerators each.
pools:
  {SOURCE_POOL}:
    vendor: nvidia
    sku: lab-nvidia
    region: {REGION}
    count: 2
    limit: 2
    provisioned_by: existing  # `lab up` made it
    hosts:
      nvidia-lab-1:
        address: 127.0.0.1
        connection: local
        variables:
          folder: {p.run}/hosts/nvidia-lab-1{MARK}
      nvidia-lab-2:
        address: 127.0.0.1
        connection: local
        variables:
          folder: {p.run}/hosts/nvidia-lab-2{MARK}
  {TARGET_POOL}:
    vendor: amd
    sku: lab-mi300x
    region: {REGION}
    count: 0                  # still to be made: fleetctl provision
    limit: 2
    provisioned_by: lab       # terraform/stacks/lab

"""


def _workload(c: LabCell, p: Places) -> str:
    lines = [f"  {c.workload}:  # {c.text}\n    model:\n      name: {c.model}\n"]
    lines += [f"      {name}: {value}\n" for name, value in c.facts]
    trough = c.rate_per_s / 2
    lines.append(
        f"    engine: {c.engine}\n"
        f"    class: {c.klass}\n"
        f"    slo: {{latency: {c.latency}, error_ratio: 1%}}\n"
        f"    traffic: {{requests_per_s: {c.rate_per_s:g}, trough_per_s: {trough:g}, input_tokens: {c.input_tokens}, "
        f"output_tokens: {c.max_tokens}, streaming: {'true' if c.is_stream else 'false'}}}\n"
        f"    replicas: {c.replicas}\n"
        f"    accelerators_per_replica: {c.accelerators}\n"
        f"    guardrails: [{', '.join(c.guardrails)}]\n"
    )
    if c.shadow_positions:
        lines.append(f"    shadow:  # answers are compared before any customer is served\n      positions: {c.shadow_positions}\n")
        lines.append("      max_share: 1  # a lab's answers cost nothing\n")
        lines.append("      max_mismatch: 5%\n      sample_per_s: 2\n")
    lines.append(
        "    owner: team-lab\n    cost_centre: lab\n    tenant: lab\n    data_class: public\n    serving:  # how its units are started\n"
    )
    lines += [f"      {name}: {_quoted(value)}\n" for name, value in c.serving]
    if c.is_real:
        lines.append(f"      model_path: {p.model_path}{MARK}\n")
    return "".join(lines)


_WORKLOADS_HEAD = "# Workloads: served model endpoints with an SLO.\nworkloads:\n"
_CELLS_HEAD = "\n# Cells: a workload in one region. Traffic, evidence and going home are per cell.\ncells:\n"


def _cell(c: LabCell, p: Places) -> str:
    kind, reason, actor = c.lane
    lane = kind if kind == "own" else f'{{kind: {kind}, reason: "{reason}", actor: {actor}}}'
    return f"""\
  {c.cell}:
    workload: {c.workload}
    region: {REGION}
    source: {SOURCE_POOL}
    target: {TARGET_POOL}
    router:
      name: lab-router
      baseline_endpoints: {_endpoints(f"127.0.0.1:{port}" for port in p.baseline[c.cell])}{MARK}
      canary_endpoints: {_endpoints(p.canary[c.cell])}{MARK} (reserved; `fleetctl configure` starts them)
    affinity: {{kind: header, name: x-conversation-id}}
    on_source_loss: hold_cap
    lane: {lane}
    wave: {c.wave}
"""


def _endpoints(places: Iterable[str]) -> str:
    return "[" + ", ".join(f'"{place}"' for place in places) + "]"


def _quoted(value: str) -> str:
    return f'"{value}"'


_POLICY = """
# Policy: the rules a migration keeps. Bake times are a demo's: for customers use the defaults (leave `steps` out).
policy:
  approvals: 0              # the newest plan counts as approved, and the output says so
  warm_up: 3s
  weight_lease: 180s        # a weight that nobody renews goes home after this
  lost_evidence_home: 30s
  step_deadline: 30m
  order: [batch, online, realtime]
  steps:
    - {phase: preflight}
    - {phase: shadow}
    - phase: canary
      weight: 10%
      bake: 20s
      guardrails:
        errors: {margin: 2 points}
        latency: {margin: 25%}
    - phase: ramp
      weight: 50%
      bake: 15s
      guardrails:
        errors: {margin: 0.5 points}
        latency: {margin: 25%}
    - phase: full
      weight: 95%
      bake: 8s
      guardrails:
        errors: {margin: 2 points}
        latency: {margin: 25%}
    - phase: soak           # 5% held back as control
      weight: 95%
      bake: 15s
      guardrails:
        errors: {margin: 2 points}
        latency: {margin: 25%}
    - {phase: complete, weight: 100%}

"""


def _settings(p: Places) -> str:
    return f"""\
settings:
  lab.run: {p.run}{MARK}
  lab.hosts: {p.run}/hosts{MARK}
  pool.{SOURCE_POOL}.owners: "no"  # no autoscaler sizes the lab
  router.lab-router.owners: "no"  # nobody else writes its router
{_machines(p)}"""


def _machines(p: Places) -> str:
    """Return what says that the target's hosts are real ones; nothing where they are emulated."""
    if not p.network:
        return ""
    return f"""\
  lab.network: {p.network}{MARK} (target hosts are real: systemd-nspawn, reached by ssh)
  pool.{TARGET_POOL}.nodes: {p.nodes}{MARK} (what they become)
"""
