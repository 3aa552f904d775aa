"""Init, formats layer: what `fleetctl init` writes, so that it works from an installed package too. Values only; never a real account.

inventory/example in the source tree is exactly what this writes for the name "example"; a test keeps it so.
"""

from __future__ import annotations

import json

from fleetctl.formats.access import AWS_POLICY, AZURE_ROLE

EXAMPLE_LINEAGE = "3f0c2b9e-7d41-4c55-9a5e-1b6f2a7d8e90"


def fleet_text(name: str, lineage: str) -> str:
    """Return a commented fleet file.

    Args:
        name: of the fleet, an id; lineage: a new UUID in lower case.
    """
    return _FLEET.replace("@NAME@", name).replace("@LINEAGE@", lineage)


def settings_text(name: str) -> str:
    """Return a commented fleetctl.toml for the fleet of that name."""
    return _SETTINGS.replace("@NAME@", name)


def schema_text() -> str:
    """Return the JSON Schema of the fleet file as text."""
    from fleetctl.formats.fleet_schema import json_schema

    return json.dumps(json_schema(), indent=2, sort_keys=False) + "\n"


def azure_role_text() -> str:
    """Return the read-only Azure role, as `az role definition create --role-definition FILE` takes it."""
    return json.dumps(AZURE_ROLE, indent=2) + "\n"


def aws_policy_text() -> str:
    """Return the read-only AWS policy, as `aws iam create-policy --policy-document file://FILE` takes it."""
    return json.dumps(AWS_POLICY, indent=2) + "\n"


def kubernetes_role_text() -> str:
    """Return the read-only cluster role, as `kubectl apply -f FILE` takes it."""
    import yaml

    from fleetctl.formats.access import kubernetes_role

    return str(yaml.safe_dump_all(kubernetes_role(), sort_keys=False))


_SETTINGS = """\
# Settings of this workspace. Flags and FLEETCTL_* variables win over this file. All of them: fleetctl help settings

fleet = "inventory/@NAME@/fleet.yaml"
# store = ".fleetctl/store.db"   # the store of record (SQLite)
# output = "table"               # table, wide, json, yaml or name
# color = "auto"                 # auto, always or never
# actor = ""                     # who acts, on every event; left out: the user who runs fleetctl
"""

_FLEET = """\
# yaml-language-server: $schema=./fleet.schema.json
#
# An example fleet: what runs where, what users were promised, and the rules a migration keeps. Replace it with yours.
# fleetctl reads this file and never writes it. Check it: fleetctl inventory. Its JSON Schema: fleetctl inventory schema
#
# Quantities carry their unit: times "20s" "5m" "2h" "7d", shares "10%" or "1000bp", error margins "0.5 points".
# Names are 1 to 63 of a-z, 0-9 and inner "-". Unknown keys are mistakes.

format_version: 1
name: @NAME@
# Identity of this fleet. Made once; plans are bound to it. Never change it.
lineage: @LINEAGE@

# Routers split each cell's traffic between the two sides. fleetctl owns the weights of these cells and nothing else.
routers:
  edge:
    kind: haproxy
    settings:
      socket: /run/haproxy/fleetctl.sock      # admin level, readable by the user that runs fleetctl
      map_folder: /etc/haproxy/fleetctl       # weight.map and fence.map: a restart shows the same split
      log_folder: /var/log/haproxy/fleetctl   # one JSON object a request: the evidence
      shadow_folder: /var/lib/fleetctl/shadow
      url: http://edge.internal:8080
    secrets:
      pin_key:                                # lets fleetctl's own probes choose a side
        kind: file                            # a file readable by its owner alone, or kind: env
        name: /etc/fleetctl/pin.key

# Sources: what fleetctl inventory scan asks, read-only. Rights for security: access/. One page per kind: docs/how-to/inventory-*.md.
sources: {}
#   prod:
#     kind: azure                             # also: aws, ansible, engines, prometheus, table, kubernetes
#     settings: {subscriptions: 00000000-0000-0000-0000-000000000000}

# Pools: machines of one SKU in one region.
pools:
  h100-eastus2:
    vendor: nvidia
    sku: Standard_ND96isr_H100_v5
    region: eastus2
    count: 3                  # VMs that exist now
    limit: 3                  # most that may exist (your quota, or less)
    provisioned_by: existing  # others built it: fleetctl never changes or destroys it
    price_usd_per_hour: 98.32 # per VM; leave it out to use the catalogue's list price
    hosts:                    # machines that exist already; made ones come from Terraform's outputs
      h100-eastus2-1: {address: 10.20.1.11, user: fleet}
      h100-eastus2-2: {address: 10.20.1.12, user: fleet}
      h100-eastus2-3: {address: 10.20.1.13, user: fleet}
  a100-eastus2:
    vendor: nvidia
    sku: Standard_ND96amsr_A100_v4
    region: eastus2
    count: 2
    limit: 2
    price_usd_per_hour: 32.77
  mi300x-eastus2:
    vendor: amd
    sku: Standard_ND96isr_MI300X_v5
    region: eastus2
    count: 0                  # still to be made: fleetctl provision
    limit: 4
    priority: regular         # or spot
    provisioned_by: azure     # the Terraform stack that makes it
    price_usd_per_hour: 48.00

# Workloads: served model endpoints with an SLO. Traffic is per cell.
workloads:
  assistant:
    model:
      name: Llama-3.1-70B-Instruct
      parameters_billion: 70.6
      precision: bf16
      context_tokens: 32768
      layers: 80              # these three size the KV cache; without them it is estimated, and the plan says so
      kv_heads: 8
      head_dim: 128
    engine: vllm
    engine_version: "0.11.0"
    adapters: []              # LoRA models served beside it
    class: online             # batch, online or realtime: the order in which waves move
    slo:
      latency: 12s            # a slower request is a miss
      error_ratio: 1%
    traffic:
      requests_per_s: 24
      trough_per_s: 6         # the quietest hour: how long evidence takes at worst
      input_tokens: 1100
      output_tokens: 220
      streaming: false
    replicas: 6
    accelerators_per_replica: 4
    concurrency: 64
    guardrails: [errors, latency]
    shadow:                   # compare answers before the target serves any customer
      positions: 2000         # token positions
      max_mismatch: 5%
      sample_per_s: 2
    owner: team-assist
    cost_centre: "4711"
    tenant: shared
    data_class: internal
    route: native             # how it can run on the target: native, rebuild, hipify, scale, stay
  code-complete:
    model:
      name: Qwen2.5-Coder-7B
      parameters_billion: 7.6
      precision: bf16
      context_tokens: 8192
      layers: 28
      kv_heads: 4
      head_dim: 128
    engine: vllm
    class: realtime
    slo: {latency: 900ms, error_ratio: 0.5%}
    traffic: {requests_per_s: 60, trough_per_s: 12, input_tokens: 1500, output_tokens: 32, streaming: true}
    replicas: 6
    concurrency: 32
    owner: team-dev-tools
    cost_centre: "4712"
    tenant: shared
    data_class: confidential
  summaries:
    model:
      name: Mistral-Small-24B-Instruct
      parameters_billion: 23.6
      precision: bf16
      context_tokens: 32768
      layers: 40
      kv_heads: 8
      head_dim: 128
    engine: vllm
    class: batch
    slo: {latency: 60s, error_ratio: 2%}
    traffic: {requests_per_s: 4, trough_per_s: 1.5, input_tokens: 3800, output_tokens: 400}
    replicas: 4
    accelerators_per_replica: 2
    owner: team-documents
    cost_centre: "4713"
    tenant: documents
    data_class: internal

# Cells: a workload in one region. Traffic, evidence and going home are per cell.
cells:
  assistant-eastus2:
    workload: assistant
    region: eastus2
    source: h100-eastus2      # where it runs now
    target: mi300x-eastus2    # or {existing: POOL} where others built it, existing for the region's only one; left out: the plan chooses
    router: edge              # or existing for the only router, or the mapping of the next cell
    affinity: {kind: header, name: x-conversation-id}   # keeps a conversation on one side (and its cached prompt)
    on_source_loss: hold_cap  # if NVIDIA dies: AMD keeps its share and the rest gets 503. Or lift_after_two_signatures
    lane: own                 # judged on its own evidence
  code-complete-eastus2:
    workload: code-complete
    region: eastus2
    source: a100-eastus2      # no target: the plan chooses, and says why it stays where it stays
    router:
      name: edge
      baseline_backend: code_nvidia     # left out: code-complete-eastus2_baseline; with a name of its own: run fleetctl guard
      canary_backend: code_amd
      baseline_endpoints: ["10.20.3.11:8001", "10.20.3.12:8001"]
      canary_endpoints: ["10.20.2.11:8001", "10.20.2.12:8001"]
    lane:                     # anything but own says why, and who decided it
      kind: accepted
      reason: a stream's first token is not in the router's log; judged on errors and breaker only
      actor: dana.ops
  summaries-eastus2:
    workload: summaries
    region: eastus2
    source: a100-eastus2
    router: edge

# The rules that every migration of this fleet keeps.
policy:
  approvals: 1                # people needed besides who made the plan; 0: none, the newest counts
  # require_signatures: true  # SSH keys say who approved, never the author alone: docs/how-to/two-people-with-ssh-keys.md
  wave_cells: 5               # most cells that move together
  order: [batch, online, realtime]
  cap: 100%                   # the most that a target may ever serve
  warm_up: 5m                 # start of a replica's life that is left out of evidence
  lost_evidence_home: 120s    # no evidence for this long: the cell goes home
  # checks: {required: [contract, quality]}   # of both arms, before a weight is raised: docs/how-to/compare-the-two-sides.md
  step_deadline: 72h          # no verdict for this long: a person must look
  weight_lease: 180s          # how long a weight stands without a tick
  # home_within: 2s           # no plan moves a cell whose router takes longer to bring it home
  freeze:                     # nothing advances; going home is always allowed
    - name: year-end
      start: 2026-12-18T00:00:00Z
      end: 2027-01-04T08:00:00+01:00
  # A named set (low-traffic: from 20 requests a minute and cell, medium-traffic: from 100, high-traffic: from 1000), or the steps
  # themselves. Left out: medium-traffic. Margins left out: what evidence can show at that share.
  steps:
    - {phase: preflight}
    - {phase: shadow}
    - phase: canary
      weight: 5%
      bake: 15m
      guardrails:
        errors: {margin: 2 points}                     # a PASS shows less than this; a FAIL shows more than fail_margin
        latency: {margin: 25%, fail_margin: 10%}
    - {phase: ramp, weight: 25%, bake: 30m}
    - {phase: ramp, weight: 50%, bake: 60m}
    - {phase: full, weight: 95%, bake: 60m}
    - {phase: soak, weight: 95%, bake: 7d}             # 5 % stays on NVIDIA as the control
    - {phase: complete, weight: 100%}

# Capacity that is paid for already, and until when: what a move really saves.
commitments:
  - {pool: a100-eastus2, count: 1, hourly: 21.30 USD, until: 2027-03-31}    # this VM, used or not
  - {name: savings plan, scope: {clouds: [azure]}, spend: 20 USD, discount: 30%, until: 2027-06-30}    # wherever VMs of it run

# Free settings that adapters read.
settings: {}
"""
