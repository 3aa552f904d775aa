"""Provision and capacity as people read them: within 80 columns, what is taken away in full, nothing that drives a terminal."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

from fleetctl.domain.capacity import Attempt, Candidate, Leftover
from fleetctl.domain.ids import HostId, PoolId, Sha256
from fleetctl.domain.people import Diagnostic, Signal
from fleetctl.domain.pool import Host, Pool, PoolSpec
from fleetctl.domain.provision import CapacityVerdict, Provisioned, ProvisionPlan, ResourceChange
from fleetctl.usecases.capacity import ProvisionOutcome
from fleetctl.usecases.oracle import PoolCapacity
from fleetctl.views.provision import capacity_table, capacity_text, drift_lines, notice_lines, outcome_lines, plan_lines
from tests.fakes.clock import FakeClock

POOL = PoolId("mi300x-eastus2")
SKU = "Standard_ND96isr_MI300X_v5"
SPEC = PoolSpec(pool=POOL, vendor="amd", sku=SKU, region="eastus2", count=2, stack="azure", zone="2")
VM = "module.amd[0].module.vms.azurerm_linux_virtual_machine.host"


def _change(address: str, *actions: str, machines: int = 0) -> ResourceChange:
    kind = next(part for part in address.split(".") if part.startswith(("azurerm_", "aws_")))
    return ResourceChange(address=address, type=kind, actions=actions, machines=machines)


def _shown(*changes: ResourceChange) -> ProvisionPlan:
    return ProvisionPlan(
        pools=(POOL,),
        path="/p",
        digest=Sha256("ab" * 32),
        changes=changes,
        state_lineage="",
        state_serial=0,
        stack="azure",
        tool="terraform 1.11.4",
    )


NEW = _shown(
    _change(f'{VM}["{POOL}-1"]', "create"),
    _change(f'{VM}["{POOL}-2"]', "create"),
    _change('module.amd[0].module.vms.azurerm_network_interface.host["mi300x-eastus2-1"]', "create"),
    _change("azurerm_resource_group.pool[0]", "create"),
)


def test_a_plan_names_its_machines_sums_up_the_rest_and_tells_the_cost() -> None:
    lines = plan_lines(SPEC, NEW, Decimal("96"))
    assert lines == (
        "pool/mi300x-eastus2: 2 x Standard_ND96isr_MI300X_v5",
        "  in eastus2, zone 2, on demand",
        "  + mi300x-eastus2-1  azurerm_linux_virtual_machine",
        "  + mi300x-eastus2-2  azurerm_linux_virtual_machine",
        "  and 2 smaller resources to make: network interface, resource group",
        "  cost: +96.00 USD/h by list price (+70,080 USD in a month of 730 h)",
        "  by: stack azure, terraform 1.11.4, plan abababababababab...",
    )


def test_a_cost_that_is_not_known_says_why() -> None:
    contract = plan_lines(SPEC, NEW, Decimal("96"), by="contract")
    assert "  cost: +96.00 USD/h by contract price (+70,080 USD in a month of 730 h)" in contract
    lines = {p: plan_lines(replace(SPEC, priority=p), NEW, None)[-2] for p in ("regular", "spot")}
    assert lines["regular"] == "  cost: not known: no list price for this size here"
    assert lines["spot"] == "  cost: not known: spot has no list price"


def test_a_reservation_that_is_billed_used_or_not_is_named() -> None:
    kept = (_change(f"module.amd[0].module.vms.azurerm_capacity_reservation{name}.pool[0]", "create") for name in ("", "_group"))
    lines = plan_lines(SPEC, _shown(*kept), Decimal(0), width=120)
    assert "  + pool  azurerm_capacity_reservation (billed from its making, used or not)" in lines
    assert "  and 1 smaller resource to make: capacity reservation group" in lines


def test_what_is_taken_away_is_never_summed_up() -> None:
    subnet = _change("module.network[0].azurerm_subnet.hosts", "delete")
    lines = plan_lines(SPEC, _shown(_change(f'{VM}["{POOL}-1"]', "delete", "create"), subnet), Decimal("-48.5"))
    assert lines[2:5] == (
        "  -/+ mi300x-eastus2-1  azurerm_linux_virtual_machine",
        "  - hosts  azurerm_subnet",
        "  cost: -48.50 USD/h by list price (-35,405 USD in a month of 730 h)",
    )


def test_the_outcome_tells_refusals_orphans_findings_and_hosts_within_the_width() -> None:
    place = Candidate(sku=SKU, region="westus3")
    attempt = Attempt(
        place=Candidate(sku=SKU, region="eastus2", zone="1"),
        code="AllocationFailed",
        action="clean_other_region",
        text="Allocation failed. We do not have sufficient capacity for the requested VM size in this region.",
        at=FakeClock().now(),
    )
    orphan = Leftover(id="/subscriptions/" + "x" * 120, kind="disk", name="d\x1b[2J", state="Failed")
    hosts = tuple(Host(id=HostId(f"{POOL}-{n}"), pool=POOL, address="10.0.0.1") for n in range(1, 21))
    outcome = ProvisionOutcome(
        spec=SPEC,
        shown=NEW,
        findings=(Diagnostic(severity="warning", code="x", text="look at this", path="p"),),
        done=Provisioned(added=4, changed=0, destroyed=0, seconds=61.25),
        hosts=hosts,
        place=place,
        attempts=(attempt,),
        orphans=(orphan,),
    )
    lines = outcome_lines(outcome, with_plan=False)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in text
    assert lines[0] == "pool/mi300x-eastus2"
    assert "applied in 61.2 s: 4 added, 0 changed, 0 destroyed, at" in text
    assert "and 12 more" in text
    assert "refused: Standard_ND96isr_MI300X_v5 in eastus2, zone 1, on demand:" in text


def test_drift_is_a_line_each() -> None:
    found = (Diagnostic(severity="warning", code="provision.drift", text=f'{VM}["a"]: was changed outside Terraform'),)
    assert drift_lines(found)[0].startswith("  drift: ")
    assert max(map(len, drift_lines(found))) <= 80


def _verdict(kind: str, *reasons: str, zone: str = "") -> CapacityVerdict:
    return CapacityVerdict(
        sku=SKU,
        region="eastus2",
        count=2,
        priority="regular",
        kind="no" if kind == "no" else "unknown",
        reason=reasons[0],
        zone=zone,
        reasons=reasons,
    )


def test_capacity_is_told_place_by_place_with_every_reason_in_full() -> None:
    pool = Pool(id=POOL, vendor="amd", sku=SKU, region="eastus2", count=0, limit=2, provisioned_by="azure")
    quota = "quota standardNDISv5MI300XFamily: 0 vCPUs, 0 used, 192 more needed: raise it to at least 192"
    rows = (PoolCapacity(pool=pool, count=2, verdicts=(_verdict("no", quota, "closed", zone="1"), _verdict("unknown", "try"))),)
    text = capacity_text(rows)
    assert text.splitlines()[:6] == [
        "pool/mi300x-eastus2: 2 more machines wanted, of at most 2",
        "  no       Standard_ND96isr_MI300X_v5 in eastus2, zone 1, on demand",
        "           quota standardNDISv5MI300XFamily: 0 vCPUs, 0 used, 192 more needed:",
        "           raise it to at least 192",
        "           closed",
        "  unknown  Standard_ND96isr_MI300X_v5 in eastus2, on demand",
    ]
    assert max(len(line) for line in text.splitlines()) <= 80
    assert capacity_table(rows).rows[0][-1] == f"{quota}; closed"
    assert capacity_text(()) == "No pool of this fleet is made by fleetctl."


def test_notices_are_told_with_the_time_that_is_left_and_silence_is_told_too() -> None:
    now = FakeClock().now()
    goes = Signal(
        subject=f"{POOL}-1", kind="azure.preempt", severity="critical", seen_at=now, deadline=now + timedelta(seconds=25), pool=POOL
    )
    silent = Signal(subject=f"{POOL}-2\x1b[2J", kind="notices.silent", severity="info", seen_at=now, pool=POOL)
    lines = notice_lines((goes, silent), now)
    assert lines[0].startswith("  notice: mi300x-eastus2-1 of mi300x-eastus2 goes in 25 s, at ")
    assert "does not answer" in " ".join(lines)
    assert all(len(line) <= 80 and line.isprintable() for line in lines)
