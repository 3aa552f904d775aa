"""Whatever the text: a Fleet or ConfigInvalid with lines, never another exception."""

from __future__ import annotations

import json
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.domain.fleet import Fleet
from fleetctl.errors import ConfigInvalid
from fleetctl.formats import quantities as q
from fleetctl.formats.example import EXAMPLE_LINEAGE, fleet_text
from fleetctl.formats.fleet_file import parse_fleet
from fleetctl.formats.yaml_source import read_yaml
from fleetctl.views.output import cell_width, shorten

LINES = fleet_text("example", EXAMPLE_LINEAGE).splitlines()
ODD = st.sampled_from(
    ["", "x", "-5", "0", "~", "{}", "[]", "on", '"a"', "1e309", "9" * 400, "\u2028", "a: b: c", "*x", "!!set {}", "{[a]: 1}", "\t"]
)
SECTIONS = st.sampled_from(["pools", "workloads", "cells", "policy", "commitments", "routers"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda s: st.lists(s, max_size=3) | st.dictionaries(st.text(max_size=8), s, max_size=3),
)


def outcome(text: str) -> Fleet | ConfigInvalid:
    """Parse, and let nothing but ConfigInvalid out."""
    try:
        return parse_fleet(text, file="f.yaml")
    except ConfigInvalid as e:
        return e


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(LINES) - 1), ODD, st.sampled_from(["value", "line", "key", "indent"]))
def test_one_spoilt_line(number: int, odd: str, how: str) -> None:
    line = LINES[number]
    key, colon, _ = line.partition(":")
    replaced = line.replace(key.strip() or "#", odd, 1)
    spoilt = {"value": f"{key}{colon} {odd}", "line": odd, "key": replaced, "indent": f" {line}"}[how]
    found = outcome("\n".join([*LINES[:number], spoilt, *LINES[number + 1 :]]) + "\n")
    if isinstance(found, ConfigInvalid):
        assert found.details
        assert all(re.match(r"f\.yaml:[1-9]\d*: \S", detail) for detail in found.details)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    assert isinstance(outcome(text), ConfigInvalid)
    assert read_yaml(text).line(()) == 1


@settings(max_examples=60, deadline=None)
@given(ANYTHING, SECTIONS)
def test_any_value_in_a_section(value: object, section: str) -> None:
    assert isinstance(outcome(f"name: x\nlineage: {EXAMPLE_LINEAGE}\n{section}: {json.dumps(value)}\n"), ConfigInvalid)


@given(st.integers(0, 10_000))
def test_every_share_is_read_as_it_is_written(bp: int) -> None:
    assert q.parse_share_bp(q.format_share(bp)) == bp
    assert q.parse_share_bp(f"{bp}bp") == bp


@given(st.text(max_size=30), st.integers(4, 20), st.booleans())
def test_shortened_text_fits(text: str, width: int, middle: bool) -> None:
    assert cell_width(shorten(text, width, middle=middle)) <= width
