"""Provision, tests: what Terraform says and shows, parsed; hostile text refused. Never runs Terraform."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fleetctl.adapters.terraform.said import Said, clean, read_lines
from fleetctl.adapters.terraform.shown import changes_of, drift_of, has_resources, hosts_of, outputs_differ, state_of
from fleetctl.domain.ids import PoolId, Sha256
from fleetctl.domain.provision import ProvisionPlan
from fleetctl.errors import PlanStale, ProvisionFailed
from fleetctl.planning.check_delta import ALLOWED
from fleetctl.planning.check_provision import check_provision

POOL = PoolId("mi300x-lab")
HOST: dict[str, Any] = {
    "id": "mi300x-lab-1",
    "pool": "mi300x-lab",
    "address": "127.0.0.1",
    "connection": "local",
    "user": "",
    "variables": {"folder": "/tmp/x"},
}


def _outputs(*hosts: object) -> str:
    return json.dumps({"hosts": {"sensitive": False, "type": [], "value": list(hosts)}, "pool": {"value": {}}})


def _error(summary: str, detail: str = "", address: str = "") -> dict[str, object]:
    return {"type": "diagnostic", "diagnostic": {"severity": "error", "summary": summary, "detail": detail, "address": address}}


def test_hosts_keep_the_order_of_the_output() -> None:
    hosts = hosts_of(
        _outputs({**HOST, "id": "b"}, {**HOST, "id": "a", "address": "fe80::1", "connection": "ssh", "user": "azureuser"}), POOL
    )
    assert [(h.id, h.address, h.connection, h.user, h.variables) for h in hosts] == [
        ("b", "127.0.0.1", "local", "", (("folder", "/tmp/x"),)),
        ("a", "fe80::1", "ssh", "azureuser", (("folder", "/tmp/x"),)),
    ]
    assert hosts_of("{}", POOL) == ()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("id", "../../etc"),
        ("id", "a\nb"),
        ("id", 7),
        ("pool", "nvidia-lab"),
        ("address", "-oProxyCommand=id"),
        ("address", "a b"),
        ("address", "{{ lookup('pipe', 'id') }}"),
        ("address", ""),
        ("address", None),
        ("connection", "docker"),
        ("connection", ["ssh"]),
        ("user", "root;id"),
        ("user", "-l"),
        ("variables", []),
        ("variables", {"ansible_ssh_common_args": "-oProxyCommand=id"}),
        ("variables", {"ansible_python_interpreter": "/tmp/x"}),
        ("variables", {"A": "x"}),
        ("variables", {"a": 1}),
        ("variables", {"a": "x\ny"}),
        ("variables", {"a": "\x1b[2J"}),
        ("variables", {"a": "x" * 4097}),
        ("variables", {f"a{n}": "" for n in range(65)}),
    ],
)
def test_a_hostile_output_is_refused_with_its_place(key: str, value: object) -> None:
    with pytest.raises(ProvisionFailed, match=r"hosts\[1\]") as refused:
        hosts_of(_outputs(HOST, {**HOST, "id": "x", key: value}), POOL)
    assert refused.value.code == "provision.outputs_refused"
    assert refused.value.message.isprintable()


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", '{"hosts": 1}', '{"hosts": {"value": {}}}', _outputs(HOST, HOST), _outputs(7), _outputs({**HOST, "more": 1})],
)
def test_outputs_of_another_shape_are_refused(text: str) -> None:
    with pytest.raises(ProvisionFailed) as refused:
        hosts_of(text, POOL)
    assert refused.value.code == "provision.outputs_refused"


def test_a_shown_plan_keeps_no_values_and_takes_the_pool_of_the_resource_itself() -> None:
    def item(address: str, before: object, after: object) -> dict[str, object]:
        return {"address": address, "type": "t", "action_reason": "", "change": {"actions": ["update"], "before": before, "after": after}}

    shown = json.dumps(
        {
            "resource_changes": [
                item("a", {"input": {"pool": "nvidia-lab", "password": "s3cr3t"}}, {"input": {"pool": "mi300x-lab"}}),
                item("b", None, {"tags": {"fleetctl-pool": "other"}}),
                item("c", {"tags": {"fleetctl-pool": "not a pool"}}, {"tags": None}),
            ],
            "resource_drift": [item("d", None, None)],
        }
    )
    changes = changes_of(shown, POOL)
    assert [(c.address, c.pool) for c in changes] == [("a", "nvidia-lab"), ("b", "other"), ("c", POOL)]
    assert "s3cr3t" not in repr(changes)
    assert [c.address for c in drift_of(shown, POOL)] == ["d"]
    assert not has_resources(shown)
    assert has_resources('{"prior_state": {"values": {"root_module": {"resources": [{}]}}}}')


@pytest.mark.parametrize(
    "item",
    [
        7,
        {},
        {"address": "a", "type": "t"},
        {"address": "a", "type": "t", "change": {"actions": "create"}},
        {"address": "a\x1b", "type": "t", "change": {"actions": []}},
    ],
)
def test_a_change_of_another_shape_is_refused(item: object) -> None:
    with pytest.raises(ProvisionFailed) as refused:
        changes_of(json.dumps({"resource_changes": [item]}), POOL)
    assert refused.value.code == "provision.plan_failed"


def test_outputs_differ_where_apply_would_write_others() -> None:
    same, other = {"actions": ["no-op"]}, {"actions": ["update"]}
    assert not outputs_differ("{}")
    assert not outputs_differ(json.dumps({"output_changes": {"hosts": same}}))
    assert outputs_differ(json.dumps({"output_changes": {"hosts": same, "pool": other}}))
    assert outputs_differ(json.dumps({"output_changes": {"hosts": {"actions": ["create"]}}}))


def test_the_state_gives_lineage_and_serial_only() -> None:
    assert state_of("") == ("", 0)
    assert state_of('{"lineage": "l", "serial": 3, "outputs": {"x": "s3cr3t"}}') == ("l", 3)
    with pytest.raises(ProvisionFailed):
        state_of('{"lineage": "l", "serial": "3"}')


def test_complaints_become_errors_of_their_kind() -> None:
    said = Said()
    said.take(_error("execution halted"))
    said.take(_error("local-exec provisioner error", "exit status 1.\nOutput: no room\n", "terraform_data.host"))
    failed = said.error("provision.apply_failed", "applying pool p")
    assert (failed.code, failed.message) == (
        "provision.apply_failed",
        "applying pool p: terraform_data.host: local-exec provisioner error: exit status 1. Output: no room",
    )
    stale = read_lines(json.dumps(_error("Saved plan is stale"))).error("x", "applying pool p")
    assert isinstance(stale, PlanStale)
    assert stale.code == "provision.stale"
    locked = read_lines(
        "no json\n[]\n" + json.dumps(_error("Error acquiring the state lock", "Lock Info:\n  ID: 1\n  Who:       a@b\n  Created:   2026\n"))
    )
    assert locked.error("x", "w").message == "w: the state is locked by a@b (since: 2026)"
    nameless = read_lines(json.dumps(_error("Error acquiring the state lock"))).error("x", "w")
    assert (nameless.code, nameless.message) == ("provision.locked", "w: the state is locked by unknown (since: unknown)")
    assert "no reason" in Said().error("provision.apply_failed", "w").message


def test_lines_become_progress_and_counts() -> None:
    said = Said()

    def hook(kind: str, **more: object) -> dict[str, object]:
        return {"type": kind, "hook": {"resource": {"addr": "r"}, "action": "create", **more}}

    seen = [
        said.take(line)
        for line in (hook("apply_start"), hook("apply_progress", elapsed_seconds=10), hook("apply_complete", elapsed_seconds=12))
    ]
    assert [(p.subject, p.step, p.state, p.seconds) for p in seen if p is not None] == [
        ("r", "create", "started", 0.0),
        ("r", "create", "running", 10.0),
        ("r", "create", "changed", 12.0),
    ]
    assert said.made == ["r"]
    assert said.take(hook("provision_progress", output='Executing: ["secret"]')) is None
    told = said.take(hook("provision_progress", output="made\x1b[2J it\n"))
    assert told is not None
    assert told.text == "made [2J it"
    said.take({"type": "change_summary", "changes": {"operation": "plan", "add": 9, "change": 9, "remove": 9}})
    said.take({"type": "change_summary", "changes": {"operation": "apply", "add": 1, "change": 2, "remove": 3}})
    assert (said.added, said.changed, said.destroyed) == (1, 2, 3)
    assert said.take({"type": "apply_start", "hook": 7}) is not None
    assert said.take({}) is None


def test_text_for_people_is_one_short_line() -> None:
    assert clean("a\n\tb\x00 c") == "a b c"
    assert len(clean("x" * 900)) == 500


_VM = {"address": "x.host", "type": "azurerm_linux_virtual_machine", "mode": "managed", "change": {"actions": ["no-op"]}}


@pytest.mark.parametrize(
    "more",
    [
        {"resource_changes": [{**_VM, "change": {"actions": ["no-op"], "importing": {"id": "/subscriptions/x/theirs"}}}]},
        {"resource_changes": [], "deferred_changes": [{"reason": "provider_config_unknown", "resource_change": _VM}]},
        {"resource_changes": [], "action_invocations": [{"address": "action.aws_ec2_stop_instance.x", "type": "aws_ec2_stop_instance"}]},
        {"resource_changes": [], "action_invocations": ["odd"]},
    ],
)
def test_what_a_plan_does_besides_changing_resources_is_never_let_through(more: dict[str, Any]) -> None:
    """An import takes what others made into our state, where a release would destroy it; the rest is not known when it is shown."""
    changes = changes_of(json.dumps(more), POOL)
    plan = ProvisionPlan(
        pools=(POOL,), path="/r", digest=Sha256("0"), changes=changes, state_lineage="", state_serial=0, stack="azure", tool="t"
    )
    assert not plan.is_empty
    assert "provision.unknown_action" in {f.code for f in check_provision(plan, [], allowed_types=ALLOWED["azure"], permitted=[POOL])}


@pytest.mark.parametrize("more", [{"errored": True}, {"errored": "x"}, {"deferred_changes": {}}, {"deferred_changes": [7]}])
def test_a_plan_that_was_not_finished_is_no_plan(more: dict[str, Any]) -> None:
    with pytest.raises(ProvisionFailed) as refused:
        changes_of(json.dumps({"resource_changes": [], **more}), POOL)
    assert refused.value.code == "provision.plan_failed"
