"""One thing out of several sources: identities, precedence, conflicts, and matches that are ambiguous."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.domain.merge import agree, merge
from fleetctl.domain.people import Facts
from fleetctl.domain.tags import MAX_TEXT, short, tag_facts
from fleetctl.domain.units import Scalar

AT = datetime(2026, 12, 1, tzinfo=UTC)


def facts(source: str, later_s: int = 0, **values: Scalar) -> Facts:
    return Facts(values=values, source=source, seen_at=AT + timedelta(seconds=later_s))


AZURE = facts("azure prod/eastus2", machine="/subscriptions/s/vm-1", name="gpu-1", address="10.0.0.4", sku="ND96", owner="tag-owner")
ANSIBLE = facts("ansible site", machine="gpu-1", address="10.0.0.4", sku="other", driver="570")
TABLE = facts("table people.csv", machine="/subscriptions/s/vm-1", owner="ada", cost_centre="CC1")


def test_each_fact_keeps_its_source_and_contradictions_are_shown() -> None:
    (one,), gaps = merge([ANSIBLE, AZURE, TABLE])
    assert gaps == ()
    assert (one.id, one.also) == ("/subscriptions/s/vm-1", ("gpu-1",))
    assert one.text("owner") == "ada"
    assert one.source_of("owner") == "table people.csv"
    assert one.text("sku") == "ND96"
    assert one.source_of("sku") == "azure prod/eastus2"
    assert one.source_of("driver") == "ansible site"
    assert {(c.field, c.chosen.value, c.others[0].value) for c in one.conflicts} == {
        ("owner", "ada", "tag-owner"),
        ("sku", "ND96", "other"),
    }


def test_the_cloud_id_of_a_node_joins_it_to_its_machine() -> None:
    node = facts("kubernetes c", machine="node-7", provider_id="/subscriptions/S/VM-1", node="node-7")
    (one,), _ = merge([AZURE, node])
    assert one.text("node") == "node-7"


def test_an_address_that_two_machines_have_joins_nothing_and_is_stated() -> None:
    twin = facts("aws prod/us-east-1", machine="i-1", address="10.0.0.4", name="gpu-9")
    alone = facts("ansible site", machine="db-1", address="10.0.0.4")
    things, (gap,) = merge([AZURE, twin, alone])
    assert [t.id for t in things] == ["/subscriptions/s/vm-1", "db-1", "i-1"]
    assert gap.scope == "machine db-1"
    assert "2 machines" in gap.reason


@pytest.mark.parametrize("anchor", [AZURE, facts("file fleet.yaml", machine="own-1", name="own-1", address="10.0.0.4")])
def test_hosts_of_one_inventory_that_become_one_machine_are_named(anchor: Facts) -> None:
    hosts = [facts("ansible site", machine=f"alias-{n}", name=f"alias-{n}", address="10.0.0.4") for n in range(7)]
    (one,), (gap,) = merge([*hosts, anchor, facts("ansible other", machine="x", address="10.0.0.4")])
    assert len(one.also) == 8
    assert gap.scope == f"machine {one.id}"
    assert gap.reason.startswith("ansible site lists it 7 times, as alias-0, alias-1, alias-2, alias-3, alias-4 and 2 more")


def test_hosts_of_one_inventory_with_one_address_that_nothing_joins_are_named() -> None:
    hosts = [facts("ansible site", machine=f"h-{n}", address="10.9.0.1") for n in range(2)]
    behind_ports = [facts("ansible site", machine=f"p-{n}", address="127.0.0.1", port=str(2200 + n)) for n in range(2)]
    things, (gap,) = merge([AZURE, *hosts, *behind_ports])
    assert [t.id for t in things][1:] == ["h-0", "h-1", "p-0", "p-1"]
    assert (gap.scope, gap.source) == ("address 10.9.0.1", "ansible site")
    assert "h-0, h-1" in gap.reason


def test_a_machine_that_no_cloud_knows_stays() -> None:
    things, gaps = merge([AZURE, facts("ansible site", machine="on-prem-1", address="192.168.1.1")])
    assert ({t.id for t in things}, gaps) == ({"/subscriptions/s/vm-1", "on-prem-1"}, ())


def test_measured_rates_within_a_quarter_do_not_contradict() -> None:
    said = [facts("file f", cell="c", requests_per_s=20.0, owner="x"), facts("prometheus p", cell="c", requests_per_s=18.0)]
    (one,), _ = merge(said)
    assert (one.number("requests_per_s"), one.conflicts) == (18.0, ())
    (one,), _ = merge([said[0], facts("prometheus p", cell="c", requests_per_s=40.0)])
    assert [c.field for c in one.conflicts] == ["requests_per_s"]
    assert agree("gpus", 8, 8.0)
    assert not agree("gpus", 8, 7)
    assert agree("sku", "Standard_ND96", "standard_nd96")


def test_the_newer_word_of_one_source_counts() -> None:
    (one,), _ = merge([facts("aws a/r", machine="i-1", sku="old"), facts("aws a/r", later_s=5, machine="i-1", sku="new")])
    assert one.text("sku") == "new"


@given(st.permutations([AZURE, ANSIBLE, TABLE, facts("aws x/y", machine="i-1", name="gpu-2"), facts("ansible site", machine="gpu-2", a=1)]))
def test_the_order_of_what_is_found_does_not_matter(order: list[Facts]) -> None:
    assert merge(order) == merge([AZURE, ANSIBLE, TABLE, *[f for f in order if f not in (AZURE, ANSIBLE, TABLE)]])


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=20) | st.integers(), max_size=8))
def test_tags_of_any_kind_give_text_under_known_names_only(tags: dict[str, object]) -> None:
    found = tag_facts(tags)
    assert set(found) <= {"owner", "cost_centre", "tenant", "data_class", "workload", "class", "environment", "pool", "cell"}
    assert all(isinstance(v, str) and len(v) <= MAX_TEXT for v in found.values())


def test_tags_are_read_whatever_their_writing() -> None:
    tags = {"Cost-Center": "42", "TEAM": "red", "Owner": "ada", "data_classification": " secret ", "app.kubernetes.io/name": "chat"}
    assert tag_facts(tags) == {"owner": "ada", "cost_centre": "42", "data_class": "secret", "workload": "chat"}
    assert short("x\ud800" + "y" * 600) == "x?" + "y" * 510
