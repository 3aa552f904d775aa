"""Azure's real clients against the emulated API: paging, several api-versions, 429, a region that is down, rights, hostile names."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleetctl.adapters.azure.client import AzureAccess
from fleetctl.adapters.azure.discovery import AzureDiscovery
from fleetctl.domain.merge import merge, subject_of
from fleetctl.domain.people import Facts, Gap
from fleetctl.errors import CredentialsMissing
from fleetctl.formats.access import AZURE_ACTIONS
from fleetctl.usecases.scan import scan_sources
from tests.doubles import arm, arm_facts
from tests.fakes.arm_double import TOKEN, ArmDouble, Fault, arm_double
from tests.fakes.arm_estate import SUBSCRIPTION, Estate

pytestmark = pytest.mark.lab


def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
def double(tmp_path: Path) -> Iterator[ArmDouble]:
    estate = Estate(regions={"eastus2": 120, "westus3": 60, "swedencentral": 20}, page=25, scale_sets={"pool-a": 3})
    estate.stopped.add(estate.vm_id("westus3", 7))
    with arm_double(estate, tmp_path) as running:
        yield running


def discovery(double: ArmDouble, *, token: str = TOKEN, regions: tuple[str, ...] = ()) -> AzureDiscovery:
    access = AzureAccess(subscriptions=(SUBSCRIPTION,), endpoint=double.url, ca_file=str(double.ca_file), token=lambda: token)
    return AzureDiscovery("prod", access, now, regions=regions)


def test_every_vm_of_every_page_is_found_once(double: ArmDouble) -> None:
    scan = scan_sources([discovery(double)], None, now)
    things, doubts = merge(scan.facts())
    machines = {t.id: t for t in things if t.kind == "machine"}
    assert (len(machines), scan.gaps(), doubts) == (203, (), ())
    one = machines[double.estate.vm_id("westus3", 7).lower()]
    assert (one.text("state"), one.text("sku"), one.number("gpus")) == ("deallocated", "Standard_ND96isr_MI300X_v5", 8)
    assert (one.text("owner"), one.text("cost_centre"), one.text("workload")) == ("team-0", "CC007", "model-7")
    assert one.source == f"azure prod/{SUBSCRIPTION}/westus3"
    (group,) = (t for t in things if t.kind == "group")
    assert (group.number("count"), group.text("owner")) == (3, "platform")
    restricted = [t.id for t in things if t.kind == "size" and t.text("restricted")]
    assert restricted == ["azure/swedencentral/Standard_ND96isr_MI300X_v5"]
    quota = next(t for t in things if t.kind == "quota" and t.text("family") == "standardNDISv5MI300XFamily" and "eastus2" in t.id)
    assert (quota.number("used"), quota.number("limit")) == (5760, 11520)
    assert len({version for _, _, version in double.requests}) >= 3


def test_the_role_names_exactly_the_calls_that_are_made(double: ArmDouble) -> None:
    scan_sources([discovery(double)], None, now)
    wanted = set()
    for method, path, _ in double.requests:
        assert method == "GET"
        action = re.sub(r"^/subscriptions/[^/]+(/resourceGroups/[^/]+)?/providers/", "", path)
        action = re.sub(r"^Microsoft.Compute/locations/[^/]+/virtualMachines$", "Microsoft.Compute/virtualMachines", action)
        action = re.sub(r"/locations/[^/]+/", "/locations/", action)
        action = re.sub(r"/virtualMachineScaleSets/[^/]+/", "/virtualMachineScaleSets/", action)
        wanted.add(f"{action}/read")
    assert wanted <= set(AZURE_ACTIONS)
    # Azure asks these two for the run-time status that the same calls return (statusOnly, expand=instanceView).
    status = {"Microsoft.Compute/virtualMachines/instanceView/read"}
    status.add("Microsoft.Compute/virtualMachineScaleSets/virtualMachines/instanceView/read")
    capacity = {"Microsoft.Compute/capacityReservationGroups/capacityReservations/read"}
    assert set(AZURE_ACTIONS) - wanted == status | capacity


def test_slow_down_is_honoured_by_everybody(double: ArmDouble) -> None:
    double.faults.append(Fault(path="locations/eastus2/virtualMachines", status=429, headers={"Retry-After": "1"}, times=2, after=1))
    begin = time.monotonic()
    scan = scan_sources([discovery(double)], None, now)
    assert time.monotonic() - begin >= 2
    assert scan.gaps() == ()
    assert sum(subject_of(f)[0] == "machine" for f in scan.facts()) == 203


def test_a_pause_that_nobody_waits_for_is_a_gap_that_says_when(double: ArmDouble) -> None:
    double.faults.append(
        Fault(path="locations/eastus2/virtualMachines", status=429, code="TooManyRequests", headers={"Retry-After": "900"})
    )
    (gap,) = scan_sources([discovery(double)], None, now).gaps()
    assert gap.scope == f"{SUBSCRIPTION}/eastus2"
    assert "429" in gap.reason
    assert "try again in 900 s" in gap.reason


def test_one_region_down_hides_no_other_and_what_was_seen_is_kept(double: ArmDouble) -> None:
    first = scan_sources([discovery(double)], None, now)
    double.faults.append(Fault(path="locations/westus3/virtualMachines", status=400, code="RegionDown", message="emulated outage", after=1))
    bare = scan_sources([discovery(double)], None, now)
    found = {subject_of(f)[1] for f in bare.facts() if subject_of(f)[0] == "machine"}
    assert sum("/rg-westus3/" in id_ for id_ in found) == 25
    assert len(found) == 203 - 35
    (gap,) = bare.gaps()
    assert (gap.code, gap.scope) == ("inventory.azure", f"{SUBSCRIPTION}/westus3")
    assert "emulated outage" in gap.reason
    double.faults[0].after = 0
    kept = scan_sources([discovery(double)], first, now)
    assert sum(subject_of(f)[0] == "machine" for f in kept.facts()) == 203
    (gap,) = kept.gaps()
    assert "shown as seen at" in gap.reason


@pytest.mark.parametrize(("status", "code"), [(409, "Conflict"), (404, "ResourceNotFound"), (400, "BadRequest")])
def test_what_azure_refuses_is_not_asked_again_and_is_a_gap_with_its_words(double: ArmDouble, status: int, code: str) -> None:
    double.faults.append(Fault(path="locations/westus3/usages", status=status, code=code, message="emulated words"))
    scan = scan_sources([discovery(double)], None, now)
    (gap,) = scan.gaps()
    assert (gap.code, str(status) in gap.reason, "emulated words" in gap.reason) == ("inventory.azure", True, True)
    assert sum("westus3/usages" in path for _, path, _ in double.requests) == 1
    assert sum(subject_of(f)[0] == "machine" for f in scan.facts()) == 203


def test_an_expired_credential_is_a_gap_that_says_what_to_do(double: ArmDouble) -> None:
    (gap,) = scan_sources([discovery(double, token="old")], None, now).gaps()
    assert gap.code == "credentials.azure"
    assert "az login" in gap.mend
    with pytest.raises(CredentialsMissing):
        discovery(double, token="old").parts()


def test_a_missing_right_names_the_role_file(double: ArmDouble) -> None:
    message = "The client does not have authorization to perform action 'Microsoft.Compute/locations/usages/read'."
    double.faults.append(Fault(path="usages$", status=403, code="AuthorizationFailed", message=message))
    gaps = scan_sources([discovery(double)], None, now).gaps()
    assert {g.code for g in gaps} == {"credentials.azure_rights"}
    assert len(gaps) == 3
    assert "locations/usages/read" in gaps[0].reason
    assert "azure-role.json" in gaps[0].mend


def test_a_list_that_leads_elsewhere_is_not_followed(double: ArmDouble) -> None:
    vms = double.estate.vms("eastus2", 0)[0]
    body = f'{{"value":[{vms[0]}],"nextLink":"https://elsewhere.invalid/x"}}'
    answer = double.answer
    double.answer = lambda path, query: body if path.endswith("eastus2/virtualMachines") else answer(path, query)  # type: ignore[method-assign]
    gaps = [g for g in scan_sources([discovery(double)], None, now).gaps() if "eastus2" in g.scope]
    assert [g.code for g in gaps] == ["inventory.azure_page"]


def test_named_regions_are_asked_without_the_list_of_all(double: ArmDouble) -> None:
    found = list(discovery(double, regions=("swedencentral",)).scan(f"{SUBSCRIPTION}/swedencentral"))
    assert not any(isinstance(f, Gap) for f in found)
    assert sum(isinstance(f, Facts) and subject_of(f)[0] == "machine" for f in found) == 20


def test_a_machine_on_the_double_of_provisioning_shows_up(tmp_path: Path) -> None:
    group = f"/subscriptions/{arm_facts.SUBSCRIPTION}/resourceGroups/rg"
    id_ = f"{group}/providers/Microsoft.Compute/virtualMachines/mi300x-1"
    body = {"id": id_, "name": "mi300x-1", "type": "Microsoft.Compute/virtualMachines", "location": "eastus2", "tags": {"owner": "ada"}}
    properties = {"hardwareProfile": {"vmSize": "Standard_ND96isr_MI300X_v5"}, "provisioningState": "Succeeded"}
    with arm.ArmDouble(tmp_path) as other:
        other.world.resources[id_.lower()] = {**body, "properties": properties}
        ca = str(other.certificate)
        access = AzureAccess(subscriptions=(arm_facts.SUBSCRIPTION,), endpoint=other.url, ca_file=ca, token=lambda: "emulated")
        found = list(AzureDiscovery("prod", access, now, regions=("eastus2",)).scan(f"{arm_facts.SUBSCRIPTION}/eastus2"))
    machines = [f.values for f in found if isinstance(f, Facts) and subject_of(f)[0] == "machine"]
    assert [(m["name"], m["owner"], m["gpus"]) for m in machines] == [("mi300x-1", "ada", 8)]
