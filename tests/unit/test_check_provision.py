"""Provision, tests: the rules of check_provision, values in and out. Never runs Terraform."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from fleetctl.domain.ids import PoolId, Sha256
from fleetctl.domain.provision import ProvisionPlan, ResourceChange
from fleetctl.planning.check_provision import check_provision

ONE, TWO = PoolId("nvidia-lab"), PoolId("mi300x-lab")
ENDINGS = [("delete",), ("delete", "create"), ("create", "delete"), ("forget",), ("create", "forget")]


def _change(actions: tuple[str, ...], *, pool: PoolId | None = TWO, kind: str = "terraform_data", reason: str = "") -> ResourceChange:
    return ResourceChange(address="terraform_data.host", type=kind, actions=actions, pool=pool, reason=reason)


def _plan(*changes: ResourceChange, pools: tuple[PoolId, ...] = (TWO,)) -> ProvisionPlan:
    return ProvisionPlan(
        pools=pools, path="/r/provision.json", digest=Sha256("0"), changes=changes, state_lineage="", state_serial=0, stack="lab", tool="t"
    )


@pytest.mark.parametrize("actions", [("no-op",), ("create",), ("read",), ("update",)])
def test_what_ends_no_machine_is_fine_even_in_a_held_pool(actions: tuple[str, ...]) -> None:
    assert check_provision(_plan(_change(actions)), [ONE, TWO]) == ()


@pytest.mark.parametrize("kind", ["azurerm_linux_virtual_machine", "aws_instance"])
@pytest.mark.parametrize(
    ("changed", "holds", "permitted", "codes"),
    [
        (("tags", "tags_all"), (TWO,), (), []),
        (("size",), (TWO,), (), ["provision.restarts"]),
        (("size", "tags"), (), (), ["provision.restarts"]),
        (("anything_new",), (), (), ["provision.restarts"]),
        (("size",), (), (TWO,), []),
        (("size",), (TWO,), (TWO,), ["provision.restarts"]),
    ],
)
def test_a_machine_in_service_is_not_restarted_by_a_change_in_place(
    changed: tuple[str, ...], holds: tuple[PoolId, ...], permitted: tuple[PoolId, ...], codes: list[str], kind: str
) -> None:
    shown = _plan(replace(_change(("update",), kind=kind), changed=changed))
    found = check_provision(shown, holds, permitted=permitted, allowed_types=[kind])
    assert [f.code for f in found] == codes
    assert all("restarts it" in f.text and "size" in f.text for f in found if "size" in changed)


@pytest.mark.parametrize(
    ("changed", "permitted", "codes"),
    [(("tags",), (), []), (("ip_configuration",), (), ["provision.restarts"]), (("ip_configuration", "tags"), (TWO,), [])],
)
def test_a_host_in_service_keeps_its_place_in_the_network(
    changed: tuple[str, ...], permitted: tuple[PoolId, ...], codes: list[str]
) -> None:
    kind = "azurerm_network_interface"
    found = check_provision(
        _plan(replace(_change(("update",), kind=kind), changed=changed)), [ONE], permitted=permitted, allowed_types=[kind]
    )
    assert [f.code for f in found] == codes


@pytest.mark.parametrize(
    ("machines", "changed", "holds", "permitted", "codes"),
    [
        (0, ("tag", "launch_template"), (TWO,), (), []),
        (2, ("max_size", "min_size", "desired_capacity"), (TWO,), (), []),
        (-1, ("max_size", "min_size", "desired_capacity"), (TWO,), (), ["provision.held"]),
        (-1, ("desired_capacity",), (), (), ["provision.destroys"]),
        (-1, ("desired_capacity",), (TWO,), (TWO,), ["provision.held"]),
        (-1, ("desired_capacity",), (), (TWO,), []),
        (0, ("vpc_zone_identifier",), (TWO,), (), ["provision.restarts"]),
        (1, ("desired_capacity", "max_instance_lifetime"), (), (), ["provision.restarts"]),
        (0, ("vpc_zone_identifier",), (), (TWO,), []),
    ],
)
def test_a_group_that_serves_is_neither_made_smaller_nor_rebalanced_in_place(
    machines: int, changed: tuple[str, ...], holds: tuple[PoolId, ...], permitted: tuple[PoolId, ...], codes: list[str]
) -> None:
    kind = "aws_autoscaling_group"
    shown = _plan(replace(_change(("update",), kind=kind), machines=machines, changed=changed))
    found = check_provision(shown, holds, permitted=permitted, allowed_types=[kind])
    assert [f.code for f in found] == codes
    assert all("made smaller by 1" in f.text for f in found if machines < 0)


@pytest.mark.parametrize(
    ("actions", "reason", "permitted"), list(itertools.product(ENDINGS, ["", "replace_because_tainted"], [(), (TWO,)]))
)
def test_nothing_of_a_held_pool_ends_whatever_permits_it(actions: tuple[str, ...], reason: str, permitted: tuple[PoolId, ...]) -> None:
    (found,) = check_provision(_plan(_change(actions, reason=reason)), [TWO], permitted=permitted)
    assert (found.severity, found.code, found.path) == ("error", "provision.held", "terraform_data.host")
    assert "mi300x-lab is held or serving" in found.text


@pytest.mark.parametrize("actions", ENDINGS)
def test_ending_needs_a_permit_of_that_pool(actions: tuple[str, ...]) -> None:
    assert [d.code for d in check_provision(_plan(_change(actions)), [])] == ["provision.destroys"]
    assert [d.code for d in check_provision(_plan(_change(actions)), [], permitted=[ONE])] == ["provision.destroys"]
    assert check_provision(_plan(_change(actions)), [], permitted=[TWO]) == ()


def test_only_what_was_never_finished_may_be_made_again_without_a_permit() -> None:
    again = _change(("delete", "create"), reason="replace_because_tainted")
    assert check_provision(_plan(again), [ONE]) == ()
    gone = _change(("delete",), reason="replace_because_tainted")
    assert [d.code for d in check_provision(_plan(gone), [ONE])] == ["provision.destroys"]


def test_a_resource_without_a_pool_counts_for_every_pool_of_the_plan() -> None:
    nameless = _change(("delete",), pool=None)
    assert [d.code for d in check_provision(_plan(nameless, pools=(ONE, TWO)), [ONE], permitted=[TWO])] == ["provision.held"]
    assert [d.code for d in check_provision(_plan(nameless, pools=(ONE, TWO)), [], permitted=[TWO])] == ["provision.destroys"]
    assert [d.code for d in check_provision(_plan(nameless, pools=()), [ONE], permitted=[ONE])] == ["provision.held"]
    assert [d.code for d in check_provision(_plan(nameless, pools=()), [], permitted=[ONE])] == ["provision.destroys"]


@pytest.mark.parametrize(
    ("machines", "holds", "permitted", "codes"),
    [
        (-1, (TWO,), (), ["provision.held"]),
        (-1, (TWO,), (TWO,), ["provision.held"]),
        (-2, (), (), ["provision.destroys"]),
        (-2, (), (TWO,), []),
        (1, (TWO,), (), []),
    ],
)
def test_a_group_that_would_keep_fewer_machines_ends_some(
    machines: int, holds: tuple[PoolId, ...], permitted: tuple[PoolId, ...], codes: list[str]
) -> None:
    group = replace(_change(("update",), kind="aws_autoscaling_group"), machines=machines, changed=("desired_capacity",))
    found = check_provision(_plan(group), holds, permitted=permitted, allowed_types=["aws_autoscaling_group"])
    assert [f.code for f in found] == codes
    assert all(f"made smaller by {-machines}" in f.text for f in found)


@pytest.mark.parametrize(("changed", "codes"), [(("tags",), []), (("ip_configuration", "tags"), ["provision.restarts"])])
def test_the_card_of_a_machine_in_service_keeps_its_address(changed: tuple[str, ...], codes: list[str]) -> None:
    card = replace(_change(("update",), kind="azurerm_network_interface"), changed=changed)
    assert [f.code for f in check_provision(_plan(card), [TWO], allowed_types=[card.type])] == codes


def test_a_resource_tagged_for_another_pool_is_judged_by_its_tag() -> None:
    stray = _change(("delete",), pool=ONE)
    assert [d.code for d in check_provision(_plan(stray, pools=(TWO,)), [ONE], permitted=[TWO])] == ["provision.held"]


def test_an_unexpected_type_is_an_error_also_where_nothing_changes() -> None:
    strange = _change(("no-op",), kind="aws_iam_user")
    assert [d.code for d in check_provision(_plan(strange), [])] == ["provision.unexpected_type"]
    assert check_provision(_plan(strange), [], allowed_types={"aws_iam_user"}) == ()


@pytest.mark.parametrize("actions", [(), ("explode",), ("create", "explode")])
def test_an_action_nobody_knows_is_an_error(actions: tuple[str, ...]) -> None:
    assert [d.code for d in check_provision(_plan(_change(actions)), [])] == ["provision.unknown_action"]


def test_every_mistake_is_told_at_once() -> None:
    found = check_provision(_plan(_change(("delete",)), _change(("delete",), pool=ONE, kind="odd"), _change(("create",))), [ONE])
    assert [d.code for d in found] == ["provision.destroys", "provision.unexpected_type", "provision.held"]
