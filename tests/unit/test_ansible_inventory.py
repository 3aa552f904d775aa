"""The inventory that is written for Ansible: what is in it, what is refused, and that nothing in it can become something else."""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.adapters.ansible.inventory import LocalPlace, group_of, inventory_list, inventory_yaml
from fleetctl.adapters.ansible.unsafe import Unsafe, quoted, to_json, to_yaml
from fleetctl.domain.ids import HostId, PoolId
from fleetctl.domain.pool import Host
from fleetctl.errors import ConfigInvalid

TRICKY = (
    "1",
    "null",
    "",
    "~",
    "on",
    "0x1F",
    "1e5",
    "2024-01-01",
    "<<",
    "=",
    "a: b\n- c # \t\x00\x7f\x85\u2028",
    "é😀",
    "{{ 7 * 7 }}",
    '"',
    "\\",
    "!unsafe x",
)


class _Marks(yaml.SafeLoader):
    """Reads a marked mapping as Ansible does: as a mapping, noting that it was marked."""


def _marked(loader: _Marks, node: yaml.Node) -> dict[Hashable, Any]:
    assert isinstance(node, yaml.MappingNode)
    return {"marked": loader.construct_mapping(node, deep=True)}


_Marks.add_constructor("!unsafe", _marked)


def _read(text: str) -> Any:
    return yaml.load(text, _Marks)


def host(**changed: Any) -> Host:
    return Host(**{"id": HostId("a-1"), "pool": PoolId("mi300x-lab"), "address": "10.0.0.1", **changed})


def test_every_host_is_marked_as_a_whole_and_strings_stay_strings() -> None:
    text = inventory_yaml(
        [host(variables=tuple((f"v{n}", t) for n, t in enumerate(TRICKY)))],
        common={"count": 2, "ratio": 1e-7, "none": None, "yes": True, "empty": []},
    )
    row = _read(text)["all"]["hosts"]["a-1"]["marked"]
    assert [row[f"v{n}"] for n in range(len(TRICKY))] == list(TRICKY)
    assert (row["count"], row["ratio"], row["none"], row["yes"], row["empty"]) == (2, 1e-7, None, True, [])
    assert text.isascii()


@given(
    st.recursive(
        st.text(st.characters(exclude_categories=["Cs"]))
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.booleans()
        | st.none(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), inner, max_size=3),
        max_leaves=8,
    )
)
def test_what_is_written_is_read_back_the_same(value: object) -> None:
    assert _read(to_yaml({"x": Unsafe({"y": value})})) == {"x": {"marked": {"y": value}}}


def test_the_list_form_marks_each_string_and_holds_the_same_groups() -> None:
    tree = json.loads(inventory_list([host(variables=(("model", "1"),))], common={"units": [{"name": "u", "n": 1}]}))
    row = tree["_meta"]["hostvars"]["a-1"]
    assert row["model"] == {"__ansible_unsafe": "1"}
    assert row["units"] == [{"name": {"__ansible_unsafe": "u"}, "n": 1}]
    assert tree["pool_mi300x_lab"] == {"hosts": ["a-1"]}
    assert tree["all"] == {"children": ["pool_mi300x_lab"]}


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("gpu-1.example.net", {"ansible_host": "gpu-1.example.net"}),
        ("10.0.0.1:2222", {"ansible_host": "10.0.0.1", "ansible_port": 2222}),
        ("[fe80::1]:2222", {"ansible_host": "fe80::1", "ansible_port": 2222}),
        ("fe80::1", {"ansible_host": "fe80::1"}),
    ],
)
def test_an_address_says_where_ssh_goes(address: str, expected: dict[str, object]) -> None:
    row = _read(inventory_yaml([host(address=address, user="ops")]))["all"]["hosts"]["a-1"]["marked"]
    assert {k: v for k, v in row.items() if k in {"ansible_host", "ansible_port"}} == expected
    assert (row["ansible_connection"], row["ansible_user"]) == ("ssh", "ops")


def test_a_local_host_uses_the_given_python_and_folder() -> None:
    row = _read(inventory_yaml([host(connection="local")], local=LocalPlace(python="/py", tmp="/t")))["all"]["hosts"]["a-1"]["marked"]
    assert (row["ansible_connection"], row["ansible_python_interpreter"], row["ansible_remote_tmp"]) == ("local", "/py", "/t")
    assert "ansible_host" not in row


@pytest.mark.parametrize("address", ["-oProxyCommand=id", "a b", "", "a;b", "a\n", "10.0.0.1:0", "10.0.0.1:70000", "{{ 1 }}", "u@h"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        inventory_yaml([host(address=address)])
    assert caught.value.code == "config.host"


@pytest.mark.parametrize("changed", [{"id": "A"}, {"id": "a\n"}, {"pool": "p q"}, {"user": "-l"}, {"user": "a b"}])
def test_a_name_that_is_none_is_refused(changed: dict[str, str]) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        inventory_yaml([host(**changed)])
    assert caught.value.code == "config.host"


def test_two_hosts_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigInvalid, match="same"):
        inventory_yaml([host(), host()])


@pytest.mark.parametrize("name", ["ansible_connection", "ansible_python_interpreter", "hostvars", "port", "A", "a-b", "", "a\n"])
def test_a_variable_that_would_steer_ansible_is_refused(name: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        inventory_yaml([host(variables=((name, "x"),))])
    assert caught.value.code == "config.variable"


@pytest.mark.parametrize(
    "value", [{"{{ x }}": 1}, {"": 1}, {1: 1}, {"__ansible_unsafe": "x"}, float("nan"), b"x", object(), "\ud800", {"a": {"\n": 1}}]
)
def test_a_value_without_a_safe_form_is_refused_by_both_writers(value: object) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        to_yaml({"x": Unsafe({"y": value})})
    assert caught.value.code == "config.value"
    with pytest.raises(ConfigInvalid):
        to_json({"x": Unsafe({"y": value})})


def test_endless_nesting_is_refused() -> None:
    endless: dict[str, object] = {}
    endless["again"] = endless
    with pytest.raises(ConfigInvalid, match="deep"):
        to_yaml(endless)


def test_pools_become_groups_that_cannot_clash() -> None:
    assert group_of(PoolId("a-b")) == "pool_a_b"
    assert quoted("\ta") == '"\\ta"'
