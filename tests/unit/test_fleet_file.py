"""The fleet file: what it gives, and every mistake at once with its line."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from fleetctl.domain.canonical import decode, digest, plain
from fleetctl.domain.fleet import Fleet, SecretRef
from fleetctl.domain.workload import Existing
from fleetctl.errors import EXIT_USAGE, ConfigInvalid
from fleetctl.formats.example import EXAMPLE_LINEAGE, fleet_text
from fleetctl.formats.fleet_file import parse_fleet, read_fleet

EXAMPLE = fleet_text("example", EXAMPLE_LINEAGE)

SMALL = """\
name: small
lineage: 3f0c2b9e-7d41-4c55-9a5e-1b6f2a7d8e90
routers:
  edge: {kind: haproxy}
pools:
  green: {vendor: nvidia, sku: lab-nvidia, region: lab, count: 2, limit: 2}
  red: {vendor: amd, sku: lab-mi300x, region: lab, count: 0, limit: 2, provisioned_by: lab}
workloads:
  chat:
    model: {name: m, parameters_billion: 1, precision: bf16, context_tokens: 4096}
    engine: vllm
    class: online
    traffic: {requests_per_s: 5, input_tokens: 10, output_tokens: 10}
cells:
  chat-lab:
    workload: chat
    region: lab
    source: green
    router: edge
"""


def mistakes(text: str) -> tuple[str, ...]:
    """Return the details of the refusal."""
    with pytest.raises(ConfigInvalid) as caught:
        parse_fleet(text, file="f.yaml")
    assert caught.value.code == "config.invalid"
    assert caught.value.exit_code == EXIT_USAGE
    return caught.value.details


def test_example_is_complete() -> None:
    fleet = parse_fleet(EXAMPLE, file="fleet.yaml", serial=7)
    assert (fleet.name, fleet.lineage, fleet.serial) == ("example", EXAMPLE_LINEAGE, 7)
    assert [p.id for p in fleet.pools] == ["h100-eastus2", "a100-eastus2", "mi300x-eastus2"]
    assert fleet.pools[0].price_usd_per_hour == Decimal("98.32")
    assert [h.id for h in fleet.hosts] == ["h100-eastus2-1", "h100-eastus2-2", "h100-eastus2-3"]
    assert fleet.router("edge").secrets == {"pin_key": SecretRef(kind="file", name="/etc/fleetctl/pin.key")}
    assert fleet.workloads[0].slo.latency_ms == 12_000
    assert fleet.workloads[0].shadow is not None
    assert fleet.workloads[0].shadow.positions == 2000
    assert [s.weight_bp for s in fleet.policy.steps] == [0, 0, 500, 2500, 5000, 9500, 9500, 10_000]
    assert fleet.policy.steps[6].bake == timedelta(days=7)
    assert fleet.cells[1].lane.actor is not None
    assert fleet.cells[1].lane.actor.name == "dana.ops"
    assert fleet.cells[2].target is None
    assert fleet.commitments[0].hourly.amount == Decimal("21.30")


def test_a_fleet_survives_the_canonical_encoding() -> None:
    fleet = parse_fleet(EXAMPLE, file="fleet.yaml")
    assert decode(Fleet, plain(fleet)) == fleet
    assert digest(fleet) == digest(parse_fleet(EXAMPLE, file="other.yaml"))


def test_defaults_of_a_small_file() -> None:
    fleet = parse_fleet(SMALL, file="f.yaml")
    assert [s.phase for s in fleet.policy.steps] == ["preflight", "shadow", "canary", "ramp", "ramp", "full", "soak", "complete"]
    canary = fleet.policy.steps[2]
    assert [(g.name, g.margin, g.fail_margin) for g in canary.guardrails] == [("errors", 0.02, 0.0), ("latency", 0.25, 0.1)]
    soak = fleet.policy.steps[6]
    assert [(g.name, g.margin, g.fail_margin) for g in soak.guardrails] == [("errors", 0.005, 0.005), ("latency", 0.1, 0.1)]
    assert fleet.policy.approvals == 1
    assert fleet.cells[0].lane.kind == "own"
    assert fleet.cells[0].router.baseline_backend == ""


def test_existing_in_its_short_and_long_form() -> None:
    built = SMALL.replace("limit: 2, provisioned_by: lab", "limit: 2")
    for line in ("target: existing", "target: {existing: red}"):
        fleet = parse_fleet(built + f"    {line}\n", file="f.yaml")
        assert fleet.cells[0].target == Existing(pool=fleet.pools[1].id)
    assert parse_fleet(SMALL.replace("router: edge", "router: existing"), file="f.yaml").cells[0].router.name == "edge"
    (text,) = mistakes(SMALL + "    target: existing\n")
    assert "exactly one pool of the other vendor in lab with provisioned_by: existing, there are 0" in text
    (text,) = mistakes(SMALL.replace("  edge: {", "  other: {kind: haproxy}\n  edge: {").replace("router: edge", "router: existing"))
    assert "exactly one router in the file, there are 2" in text


def test_named_steps_and_a_preflight_in_front() -> None:
    fleet = parse_fleet(SMALL + "policy: {steps: high-traffic}\n", file="f.yaml")
    assert [s.weight_bp for s in fleet.policy.steps] == [0, 0, 100, 500, 2500, 5000, 9500, 9500, 10_000]
    fleet = parse_fleet(SMALL + "policy:\n  steps:\n    - {phase: canary, weight: 10%, bake: 20s}\n", file="f.yaml")
    assert [s.phase for s in fleet.policy.steps] == ["preflight", "canary"]
    (text,) = mistakes(SMALL + "policy: {steps: hightraffic}\n")
    assert "did you mean 'high-traffic'?" in text


def test_all_mistakes_at_once_with_file_and_line() -> None:
    text = (
        SMALL.replace("region: lab, count: 2", "regoin: lab, count: -2")
        .replace("vendor: amd", "vendor: amdd")
        .replace("source: green", "source: gren\n    lanee: own")
        .replace("engine: vllm", "engine: 5")
    )
    found = mistakes(text + "policy:\n  warm_up: 30\n")
    assert found == (
        "f.yaml:6: pools.green.count: must be at least 0, not -2",
        "f.yaml:6: pools.green: region is missing",
        "f.yaml:6: pools.green: unknown key 'regoin' (did you mean 'region'?)",
        "f.yaml:7: pools.red.vendor: must be 'nvidia' or 'amd', not 'amdd' (did you mean 'amd'?)",
        "f.yaml:11: workloads.chat.engine: must be text, not 5",
        "f.yaml:18: cells.chat-lab.source: no pool is named 'gren' (did you mean 'green'?)",
        "f.yaml:19: cells.chat-lab: unknown key 'lanee' (did you mean 'lane'?)",
        'f.yaml:22: policy.warm_up: must be a time with its unit, such as "20s", "5m", "2h" or "7d", not 30',
    )


def replaced(old: str, new: str) -> Callable[[], str]:
    """Return a maker of the small file with one change, which must apply."""

    def make() -> str:
        assert old in SMALL
        return SMALL.replace(old, new)

    return make


def appended(text: str) -> Callable[[], str]:
    """Return a maker of the small file with more lines."""
    return lambda: SMALL + text


@pytest.mark.parametrize(
    ("make", "line", "part"),
    [
        (replaced("name: small", "name: Small"), 1, "is not a name"),
        (replaced("  chat-lab:", "  chat_lab:"), 15, "is not a name"),
        (replaced("3f0c2b9e-7d41", "3f0c2b9e"), 2, "is not a UUID"),
        (replaced("lineage: 3f0c2b9e-7d41-4c55-9a5e-1b6f2a7d8e90\n", ""), 1, "lineage is missing"),
        (replaced("count: 2, limit: 2", "count: 3, limit: 2"), 6, "3 is above the limit of 2"),
        (replaced("count: 2, limit: 2", "count: two, limit: 2"), 6, "must be a whole number, not 'two'"),
        (replaced("workload: chat", "workload: chta"), 16, "no workload is named 'chta' (did you mean 'chat'?)"),
        (replaced("router: edge", "router: egde"), 19, "no router is named 'egde' (did you mean 'edge'?)"),
        (replaced("router: edge", "router: edge\n    target: rde"), 20, "no pool is named 'rde'"),
        (replaced("router: edge", "router: edge\n    target: green"), 20, "is the source too"),
        (replaced("router: edge", "router: edge\n    target: {pool: red, existing: red}"), 20, "must name one pool"),
        (replaced("vendor: amd", "vendor: nvidia"), 0, ""),
        (replaced("region: lab\n", "region: paris\n"), 18, "pool 'green' is in region lab, the cell in paris"),
        (replaced("router: edge", "router: {name: edge, baseline_endpoints: [10.0.0.1]}"), 19, "host:port"),
        (replaced("router: edge", "router: {name: edge, canary_endpoints: ['a:1', 'a:1']}"), 19, "stands here twice"),
        (replaced("router: edge", "router: {name: edge, baseline_endpoints: ['a:1'], canary_endpoints: ['a:1']}"), 19, "both sides"),
        (replaced("router: edge", "router: {name: edge, baseline_backend: 'a b'}"), 19, "is not a backend's name"),
        (replaced("router: edge", "router: edge\n    lane: accepted"), 20, "the lane accepted needs a reason"),
        (replaced("router: edge", "router: edge\n    lane: {kind: accepted, reason: x}"), 20, "needs an actor"),
        (replaced("router: edge", "router: edge\n    affinity: {kind: header, name: 'x y'}"), 20, "is not a header's"),
        (replaced("class: online", "class: onlin"), 12, "did you mean 'online'?"),
        (replaced("requests_per_s: 5", "requests_per_s: -5"), 13, "must be at least 0, not -5"),
        (replaced("requests_per_s: 5", "requests_per_s: .inf"), 13, "must be a number"),
        (replaced("requests_per_s: 5", "requests_per_s: 5, streaming: on"), 13, "true or false"),
        (replaced("engine: vllm", 'engine: "a\\x1b[31m"'), 11, "control characters"),
        (appended("policy: {steps: []}\n"), 20, "at least one step"),
        (appended("policy: {steps: [{phase: ramp, weight: 10%}]}\n"), 20, "there is no canary step"),
        (appended("policy: {steps: [{phase: canary, weight: -5%}]}\n"), 20, "must be a share"),
        (appended("policy: {steps: [{phase: canary, weight: 5}]}\n"), 20, "must be a share"),
        (appended("policy: {steps: [{phase: shadow, weight: 5%}, {phase: canary, weight: 10%}]}\n"), 20, "its weight must be 0%"),
        (appended("policy: {cap: 20%, steps: [{phase: canary, weight: 25%}]}\n"), 20, "25% is above the cap of 20%"),
        (appended("policy: {cap: 20%}\n"), 20, "above the cap of 20%"),
        (appended("policy: {steps: [{phase: canary, weight: 25%}, {phase: ramp, weight: 10%}]}\n"), 20, "weights must ascend"),
        (appended("policy: {steps: [{phase: ramp, weight: 5%}, {phase: canary, weight: 10%}]}\n"), 20, "comes after ramp"),
        (appended("policy: {steps: [{phase: canary, weight: 5%}, {phase: canary, weight: 6%}]}\n"), 20, "stands twice"),
        (appended("policy: {steps: [{phase: canary, weight: 5%, guardrails: {errors: {margin: 5%}}}]}\n"), 20, "percentage points"),
        (appended("policy: {steps: [{phase: canary, weight: 5%, guardrails: {latency: {margin: 0%}}}]}\n"), 20, "above 0"),
        (appended("policy: {steps: [{phase: canary, weight: 5%, guardrails: {errors: {margin: 60 points}}}]}\n"), 20, "would pass"),
        (
            appended("policy: {steps: [{phase: canary, weight: 5%, guardrails: {latency: {margin: 5%, fail_margin: 6%}}}]}\n"),
            20,
            "what fails could pass",
        ),
        (appended("policy: {order: [batch, batch]}\n"), 20, "stands here twice"),
        (appended("policy: {weight_lease: 0s}\n"), 20, "at least 1s"),
        (
            appended("policy:\n  freeze:\n    - {name: x, start: 2026-01-02T00:00:00Z, end: 2026-01-01T00:00:00Z}\n"),
            22,
            "ends before it starts",
        ),
        (appended("policy:\n  freeze:\n    - {name: x, start: 2026-01-01T00:00:00, end: 2026-01-02T00:00:00Z}\n"), 22, "has no time zone"),
        (appended("commitments:\n  - {pool: gren, count: 1, hourly: 5 USD, until: 2027-01-01}\n"), 21, "no pool is named 'gren'"),
        (appended("commitments:\n  - {pool: green, count: 1, hourly: 5, until: 2027-01-01}\n"), 21, "currency"),
        (
            appended("  chat-too:\n    workload: chat\n    region: lab\n    source: green\n    router: edge\n"),
            20,
            "is cell 'chat-lab' already",
        ),
        (appended("  chat-lab: {workload: chat, region: lab, source: green, router: edge}\n"), 20, "stands here twice (first in line 15)"),
        (appended("n: 1\n"), 20, "the key n means true or false"),
    ],
)
def test_each_mistake(make: Callable[[], str], line: int, part: str) -> None:
    text = make()
    if not part:
        assert parse_fleet(text, file="f.yaml").pools[1].vendor == "nvidia"
        return
    found = mistakes(text)
    assert any(f.startswith(f"f.yaml:{line}: ") and part in f for f in found), found


WITH_SHADOW = SMALL.replace("    class: online\n", "    class: online\n    shadow: {}\n")
NO_SHADOW_STEP = "policy: {steps: [{phase: canary, weight: 5%}, {phase: full, weight: 95%}, {phase: complete, weight: 100%}]}\n"


@pytest.mark.parametrize(
    "router",
    [
        *(f"{{kind: {kind}}}" for kind in ("alb", "httproute", "queue", "sqs")),
        "{kind: haproxy, settings: {fence: single_writer}}",
    ],
)
def test_a_shadow_behind_a_router_that_cannot_copy_is_a_mistake_where_a_step_would_compare(router: str) -> None:
    text = WITH_SHADOW.replace("{kind: haproxy}", router)
    (found,) = mistakes(text)
    assert found.startswith("f.yaml:20: cells.chat-lab.router: ")
    assert "cannot copy requests, and workload 'chat' declares shadow" in found
    for good in (
        WITH_SHADOW,
        WITH_SHADOW.replace("haproxy", "envoy"),
        text + NO_SHADOW_STEP,
        SMALL.replace("{kind: haproxy}", router),
        text + "    lane: {kind: stay, reason: contract, actor: dana}\n",
    ):
        assert parse_fleet(good, file="f.yaml").cells


@pytest.mark.parametrize(
    ("kind", "key", "place"), [("alb", "rule", "arn:1"), ("httproute", "route", "ns/chat"), ("sqs", "queue", "http://q/1")]
)
def test_two_cells_that_would_set_one_weight_are_a_mistake(kind: str, key: str, place: str) -> None:
    second = "  chat-two: {workload: chat2, region: lab, source: green, router: edge}\n"
    chat = SMALL[SMALL.index("  chat:\n") : SMALL.index("cells:\n")]
    two = SMALL.replace("cells:\n", chat.replace("  chat:", "  chat2:") + "cells:\n") + second

    def behind(settings: str) -> str:
        return two.replace("{kind: haproxy}", f"{{kind: {kind}, settings: {{{settings}}}}}")

    for one in (
        f"{key}: '{place}'",
        f"{key}: '{place}', {key}.chat-lab: '{place}'",
        f"{key}.chat-lab: '{place}', {key}.chat-two: '{place}'",
    ):
        (found,) = mistakes(behind(one))
        assert found.startswith("f.yaml:25: cells.chat-two.router: ")
        assert f"has one {key} for this cell and 'chat-lab', one would move the other: settings {key}.chat-two" in found
    parse_fleet(behind(f"{key}: '{place}', {key}.chat-two: '{place}2'"), file="f.yaml")
    parse_fleet(two, file="f.yaml")


def test_a_target_of_the_same_vendor_is_a_mistake() -> None:
    (text,) = mistakes(SMALL.replace("vendor: amd", "vendor: nvidia") + "    target: red\n")
    assert "is of the same vendor as the source (nvidia)" in text


def test_hosts_belong_to_one_pool_and_fit_its_count() -> None:
    hosts = "hosts: {a: {address: 10.0.0.1}, b: {address: 10.0.0.2}, c: {address: 10.0.0.3}}"
    found = mistakes(SMALL.replace("count: 2, limit: 2}", f"count: 2, limit: 2, {hosts}}}"))
    assert found == ("f.yaml:6: pools.green.hosts: 3 hosts in a pool whose count is 2",)


@pytest.mark.parametrize("text", ["", "- a\n", "just text\n", "5\n"])
def test_what_is_no_mapping(text: str) -> None:
    (found,) = mistakes(text)
    assert found.startswith("f.yaml:1: a fleet file is a mapping")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        read_fleet(tmp_path / "none.yaml")
    assert (caught.value.code, caught.value.hint) == ("config.missing", "Run: fleetctl init")
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    with pytest.raises(ConfigInvalid) as caught:
        read_fleet(tmp_path / "latin.yaml")
    assert caught.value.code == "config.unreadable"
    with pytest.raises(ConfigInvalid) as caught:
        read_fleet(tmp_path)
    assert caught.value.code == "config.unreadable"
