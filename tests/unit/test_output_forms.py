"""Forms of a result: tables that fit, JSON with a format version, streams, hostile text."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
import yaml

from fleetctl.domain.people import Facts
from fleetctl.domain.units import Money
from fleetctl.formats.output import as_json, envelope
from fleetctl.views.output import Column, Table, cell_width, clean, render, shorten

TABLE = Table(
    columns=(Column(title="NAME"), Column(title="WHAT", shrink=1), Column(title="N", right=True), Column(title="MORE", wide=True)),
    rows=(("a", "short", "1", "x"), ("bb", "a rather long text that does not fit", "22", "y")),
    foot=("", "2 things"),
)


def test_a_table_fits_its_width() -> None:
    text = render("table", kind="things", value=[], table=TABLE, width=24)
    assert text.splitlines() == ["NAME  WHAT             N", "a     short            1", "bb    a rather long…  22", "", "2 things"]
    assert all(len(line) <= 24 for line in text.splitlines())


def test_wide_shows_everything() -> None:
    text = render("wide", kind="things", value=[], table=TABLE, width=24)
    assert "a rather long text that does not fit  22  y" in text


def test_an_empty_table_says_so() -> None:
    assert render("table", kind="things", value=[], table=Table(columns=TABLE.columns, rows=(), empty="None.")) == "None."


def test_json_and_yaml_carry_a_version() -> None:
    facts = Facts(values={"n": 1}, source="file x", seen_at=datetime(2026, 12, 1, tzinfo=UTC))
    data = json.loads(render("json", kind="facts", value=(facts,), table=TABLE))
    assert data == {
        "format_version": "1.0",
        "kind": "facts",
        "items": [{"values": {"n": 1}, "source": "file x", "seen_at": "2026-12-01T00:00:00.000000Z"}],
    }
    assert yaml.safe_load(render("yaml", kind="facts", value=(facts,), table=TABLE)) == data
    assert envelope("money", Money(amount=Decimal("1.50")))["amount"] == "1.50"
    assert json.loads(as_json("time", {"bake": timedelta(seconds=90)}))["bake"] == 90


def test_json_refuses_what_is_no_number() -> None:
    with pytest.raises(ValueError, match="no canonical form"):
        as_json("x", {"n": float("nan")})


def test_hostile_text_drives_no_terminal() -> None:
    assert clean("a\x1b[31mred\nb\u202ec\x9b") == "a?[31mred?b?c?"
    row = (("\x1b]0;title\x07", "ü", "1", ""),)
    assert "\x1b" not in render("table", kind="x", value=[], table=Table(columns=TABLE.columns, rows=row))
    assert render("name", kind="x", value=[], table=TABLE, names=["cell/a\n"]) == "cell/a?"


def test_widths_count_columns_of_a_terminal() -> None:
    assert cell_width("日本") == 4
    assert cell_width("e\u0301") == 1
    assert shorten("日本語", 5) == "日本…"
    assert shorten("nvidia-eastus2", 9, middle=True) == "nvid…tus2"
    assert shorten("short", 9) == "short"
