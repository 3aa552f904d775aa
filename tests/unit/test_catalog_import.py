"""Importers of every kind: what each refuses and how it names the row, units, a table that is none; what was taken is planned with."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetctl.adapters.own_rows import OwnRows
from fleetctl.catalog import load_catalog
from fleetctl.catalog.books import load_book
from fleetctl.catalog.check import check_catalog, expiry
from fleetctl.catalog.table import numbered, read_table
from fleetctl.cli.main import main
from fleetctl.errors import ConfigInvalid
from fleetctl.usecases import catalog as use

TODAY = date(2026, 11, 30)
FROM = {"kind": "vendor", "source": "a sheet", "as_of": "2026-11-01"}
GPU = {"gpu": "MI999X", "vendor": "amd", "vram_gib": "512", "memory_bandwidth_tb_s": "20", "tdp_w": "2000", "target": "gfx1250", **FROM}
SKU = {"cloud": "ours", "sku": "ours-mi300x-8", "gpu": "MI300X", "accelerators": "8", "vram_gib": "192", **FROM}
RUN = {
    "gpu": "MI300X",
    "model": "m",
    "precision": "fp8",
    "class": "online",
    "tokens_per_s_per_gpu": "900",
    "engine": "vLLM 0.11",
    "source": "ours",
    "as_of": "2026-11-01",
    "kind": "own",
}


def bring(folder: Path, what: str, *rows: Mapping[str, str]) -> use.Brought:
    table, to, known = numbered(rows), OwnRows(folder), load_book("list", folder)
    match what:
        case "gpus":
            return use.import_gpus(table, known, to, source="", as_of="", today=TODAY)
        case "skus":
            return use.import_skus(table, known, to, source="", as_of="", today=TODAY)
        case "performance":
            return use.import_runs(table, known, to, source="", as_of="", today=TODAY)
        case _:
            return use.import_prices(table, known, to, book="contract", source="", as_of="", today=TODAY)


def test_own_gpus_and_skus_are_part_of_the_catalogue(tmp_path: Path) -> None:
    assert bring(tmp_path, "gpus", GPU).new == 1
    mine = {**SKU, "sku": "ours-mi999x-4", "gpu": "MI999X", "accelerators": "4", "vram_gib": "512"}
    assert bring(tmp_path, "skus", mine, SKU).new == 2
    assert bring(tmp_path, "prices", {"sku": "ours-mi999x-4", "usd_per_gpu_hour": "9", **FROM}).new == 1
    assert bring(tmp_path, "performance", {**RUN, "gpu": "MI999X", "sku": "ours-mi999x-4"}).new == 1
    catalog = load_book("contract", tmp_path)
    sku, gpu = catalog.sku("ours-mi999x-4"), catalog.gpu("MI999X")
    assert gpu is not None
    assert sku is not None
    assert (sku.vendor, sku.memory_bandwidth_tb_s, sku.price_usd_per_hour, gpu.kind) == ("amd", 20.0, Decimal(36), "vendor")
    assert load_book("owned", tmp_path).price("ours-mi300x-8", "here") is not None, "a book's price per GPU holds for it"
    assert [d for d in check_catalog(catalog, TODAY) if d.severity == "error"] == []
    assert catalog.id != load_catalog().id


def test_a_row_of_the_same_name_takes_the_place_of_the_shipped_one(tmp_path: Path) -> None:
    shipped = load_catalog().gpu("MI300X")
    assert shipped is not None
    bring(tmp_path, "gpus", {**GPU, "gpu": "MI300X", "vram_gib": "192", "memory_bandwidth_tb_s": "5", "target": "gfx942"})
    catalog = load_book("list", tmp_path)
    assert len(catalog.gpus) == len(load_catalog().gpus)
    assert {s.memory_bandwidth_tb_s for s in catalog.skus if s.gpu == "MI300X"} == {5.0}


@pytest.mark.parametrize(("unit", "amount"), [("vram_gib", "192"), ("vram_gb", "206.158"), ("vram_mib", "196608")])
def test_memory_is_kept_in_gib_whatever_unit_it_came_in(tmp_path: Path, unit: str, amount: str) -> None:
    row = {k: v for k, v in GPU.items() if k not in ("vram_gib", "memory_bandwidth_tb_s")}
    bring(tmp_path, "gpus", {**row, unit: amount, "memory_bandwidth_gb_s": "5300"})
    gpu = load_book("list", tmp_path).gpu("MI999X")
    assert gpu is not None
    assert gpu.vram_gib == pytest.approx(192, abs=0.01)
    assert gpu.memory_bandwidth_tb_s == pytest.approx(5.3)


BAD_GPUS = [
    ({"gpu": ""}, "no name of a GPU"),
    ({"vendor": "intel"}, "no vendor"),
    ({"vram_gib": ""}, "exactly one of vram_gib"),
    ({"vram_gib": "0"}, "not a size above 0"),
    ({"vram_gib": "nan"}, "not a size above 0"),
    ({"vram_gb": "192"}, "exactly one of vram_gib"),
    ({"vram_gib": "196608"}, "not the memory of one accelerator"),
    ({"memory": "80"}, "unknown column 'memory'"),
    ({"memory_bandwidth_tb_s": "5300"}, "another unit"),
    ({"memory_bandwidth_gb_s": "5300"}, "not both"),
    ({"memory_bandwidth_tb_s": "fast"}, "is no memory_bandwidth_tb_s"),
    ({"bf16_sparse_tflops": "2600"}, "unknown column"),
    ({"bf16_dense_tflops": "2600", "fp8_dense_tflops": "1300"}, "less than bf16"),
    ({"tdp_w": "0.75"}, "outside"),
    ({"tdp_w": "1e999"}, "is no tdp_w"),
    ({"all_in_kw": "1790"}, "another unit"),
    ({"all_in_kw": "0.5"}, "less than tdp_w"),
    ({"cooling": "ice"}, "no way of cooling"),
    ({"kind": ""}, "is no kind"),
    ({"kind": "guess"}, "is no kind"),
    ({"source": ""}, "source must be told"),
    ({"as_of": ""}, "is no date"),
    ({"as_of": "20261101"}, "is no date"),
    ({"as_of": "2026-12-24"}, "still to come"),
    ({"gpu": "MI\x1b[2J"}, "control character"),
    ({"gpu": "MI300X", "vram_gib": "288"}, "SKU Standard_ND96isr_MI300X_v5 says otherwise"),
    ({"gpu": "MI300X", "vram_gib": "192", "vendor": "nvidia"}, "SKU Standard_ND96isr_MI300X_v5 says otherwise: amd"),
]
BAD_SKUS = [
    ({"sku": "a b"}, "no name of a SKU"),
    ({"cloud": ""}, "no name of a cloud"),
    ({"gpu": "MI999"}, "no GPU 'MI999'"),
    ({"accelerators": "0"}, "no number of accelerators"),
    ({"accelerators": "8.5"}, "no number of accelerators"),
    ({"accelerators": "9" * 900}, "no number of accelerators"),
    ({"accelerators": ""}, "no number of accelerators"),
    ({"vram_gib": "1536"}, "memory of all 8"),
    ({"vram_gib": "206.2"}, "looks like GB"),
    ({"vram_gib": "80"}, "is not what one MI300X has"),
    ({"vram_gib": ""}, "exactly one of"),
    ({"vcpu": "-1"}, "is no vcpu"),
    ({"price": "48"}, "unknown column 'price'"),
    ({"kind": "list"}, "is no kind"),
    ({"source": ""}, "source must be told"),
    ({"as_of": "2026"}, "is no date"),
]
BAD_RUNS = [
    ({"gpu": "H900"}, "no GPU"),
    ({"tokens_per_s_per_gpu": "", "tokens_per_s": "7200"}, "unknown column 'tokens_per_s'"),
    ({"tokens_per_s_per_gpu": "0"}, "not a throughput"),
    ({"tokens_per_s_per_gpu": "9000000"}, "not one GPU's"),
    ({"class": "chat"}, "no class"),
    ({"engine": ""}, "engine (with its version)"),
    ({"sku": "p5.48xlarge"}, "has H100 SXM, not MI300X"),
    ({"sku": "nothing"}, "no SKU"),
    ({"low": "950"}, "outside their own range"),
    ({"p50_ms": "900", "p95_ms": "100"}, "p50_ms is above p95_ms"),
    ({"ttft_p95_ms": "soon"}, "is no ttft_p95_ms"),
    ({"as_of": "2027-01-01"}, "still to come"),
]
BAD_PRICES = [
    ({"currency": "EUR"}, "is not USD"),
    ({"unit": "month"}, "is not an hour"),
    ({"discount": "10%"}, "unknown column 'discount'"),
    ({"usd_per_hour": "0.001"}, "past belief"),
    ({"usd_per_hour": "1e14"}, "past belief"),
    ({"usd_per_hour": "", "usd_per_gpu_hour": "1e14"}, "past belief"),
    ({"kind": "contract"}, "is no kind"),
    ({"region": "east us"}, "no name of a region"),
    ({"source": ""}, "must be told"),
    ({"as_of": "2026-12-01"}, "still to come"),
]
PRICE = {"sku": "p5.48xlarge", "region": "us-east-1", "usd_per_hour": "30", "source": "offer", "as_of": "2026-11-01"}
KINDS = (("gpus", GPU, BAD_GPUS), ("skus", SKU, BAD_SKUS), ("performance", RUN, BAD_RUNS), ("prices", PRICE, BAD_PRICES))
BAD = [(what, good, bad, why) for what, good, some in KINDS for bad, why in some]


@pytest.mark.parametrize(("what", "good", "bad", "why"), BAD, ids=[f"{b[0]}-{b[3]}" for b in BAD])
def test_a_bad_row_is_named_and_nothing_is_kept(tmp_path: Path, what: str, good: dict[str, str], bad: dict[str, str], why: str) -> None:
    name = {"gpus": "gpu", "skus": "sku", "performance": "model", "prices": "region"}[what]
    with pytest.raises(ConfigInvalid) as caught:
        bring(tmp_path, what, {**good, name: "other" if what != "prices" else "us-east-2"}, {**good, **bad})
    assert caught.value.code == "catalog.import"
    assert len(caught.value.details) == 1
    assert caught.value.details[0].startswith("line 3: ")
    assert why in caught.value.details[0]
    assert not (tmp_path / f"{what}.csv").exists()


@pytest.mark.parametrize(("what", "row"), [("gpus", GPU), ("skus", SKU), ("performance", RUN), ("prices", PRICE)])
def test_a_second_row_of_the_same_is_refused_and_the_same_again_changes_nothing(tmp_path: Path, what: str, row: dict[str, str]) -> None:
    with pytest.raises(ConfigInvalid, match="1 row is refused"):
        bring(tmp_path, what, row, row)
    with pytest.raises(ConfigInvalid, match="the table has no row"):
        bring(tmp_path, what)
    assert (bring(tmp_path, what, row).new, bring(tmp_path, what, row).new) == (1, 0)
    assert load_book("list", tmp_path).id


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "has no head"),
        (b"\n\n", "has no head"),
        (b"sku,sku\na,b\n", "stands twice"),
        (b"sku,usd_per_hour\na,1,2\n", "t.csv:2: 3 cells under a head of 2"),
        (b"sku,usd_per_hour\na\n", "t.csv:2: 1 cells"),
        (b"sku,usd_per_hour\n\xff\xfe,1\n", "is not a CSV table"),
        (b'sku,usd_per_hour\n"a,1\n', "is not a CSV table"),
        (b"sku\0,usd_per_hour\n", "t.csv:1: a column name has a control character"),
        (b"PK\x03\x04\x00\x00", "t.csv:1: a column name has a control character"),
        (b"sku,usd_per_hour\n", "has no row"),
    ],
)
def test_what_is_no_table_is_refused_with_its_line(tmp_path: Path, text: bytes, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_bytes(text)
    assert run(tmp_path, "catalog", "import", "prices", str(tmp_path / "t.csv")) == 2
    told = capsys.readouterr()
    assert "error[catalog.import]" in told.err
    assert why in told.err
    assert told.out == ""


def test_a_mark_of_byte_order_blank_lines_and_blanks_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b'\xef\xbb\xbfsku , usd_per_hour\r\n\r\n"a\nb", 4 \r\nc,5\r\n')
    rows, faults = read_table(path, ("sku",))
    assert faults == []
    assert rows == [(4, {"sku": "a\nb", "usd_per_hour": "4"}), (5, {"sku": "c", "usd_per_hour": "5"})]


def run(folder: Path, *argv: str) -> int:
    try:
        return main(["-C", str(folder), *argv])
    except SystemExit as e:
        return int(e.code or 0)


def test_rows_are_imported_shown_and_listed_at_80_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for what, row in (("gpus", GPU), ("skus", {**SKU, "sku": "o" * 80}), ("performance", RUN), ("prices", PRICE)):
        path = tmp_path / f"{what}-table.csv"
        path.write_text(",".join(row) + "\n" + ",".join(row.values()) + "\n")
        assert run(tmp_path, "catalog", "import", what, str(path), "--dry-run") == 0
        assert "Nothing was changed." in capsys.readouterr().out
        assert run(tmp_path, "catalog", "import", what, str(path)) == 0
        assert capsys.readouterr().out == "1 row taken: 1 new, 0 changed\n"
    for what in ("gpus", "skus", "prices", "performance", "books"):
        assert run(tmp_path, "catalog", "list", what) == 0
        lines = capsys.readouterr().out.splitlines()
        assert max(len(line) for line in lines) <= 80, what
        assert "EXPIRES" in lines[0]
    for name in ("MI999X", "o" * 80, "MI455X", "MI430X", "MI325X", "MI355X", "p5e.48xlarge"):
        assert run(tmp_path, "catalog", "show", name) == 0
        out = capsys.readouterr().out
        assert [line for line in out.splitlines() if len(line) > 80] == []
        assert "expires: " in " ".join(out.split())
    assert run(tmp_path, "catalog", "show", "mi455") == 2
    assert "There are MI455X, helios-mi455x-72." in " ".join(capsys.readouterr().err.split())
    assert run(tmp_path, "catalog", "check") == 0


def test_what_is_announced_says_that_it_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "catalog", "show", "helios-mi455x-72") == 0
    out = capsys.readouterr().out
    assert "announced and not measured: refused for placement" in out
    assert "never counted as 0" in out


def test_rows_expire() -> None:
    assert expiry("2026-06-18", 180) == "2026-12-15"
    assert expiry("9999-12-31", 180) == ""
    assert expiry("2026", 180) == ""
    years = date(2031, 1, 1)
    found = {d.path for d in check_catalog(load_catalog(), years) if d.code == "catalog.stale"}
    assert {"GPUs", "SKUs"} <= found
    assert any(path.startswith("performance") for path in found)
    assert {d.code for d in check_catalog(load_catalog(), date(2020, 1, 1)) if d.severity == "error"} == {"catalog.date"}


CELL = st.one_of(
    st.sampled_from(["", "0", "-1", "nan", "1e400", "8", "192", "MI300X", "amd", "vendor", "2026-11-01", "*", "online", "9" * 400]),
    st.text(max_size=12),
)
COLUMN = st.sampled_from([*GPU, *SKU, *RUN, *PRICE, "vram_gb", "usd_per_gpu_hour", "unit", "currency", "tp", "low", "all_in_kw", "odd"])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["gpus", "skus", "performance", "prices"]), st.lists(st.dictionaries(COLUMN, CELL, max_size=12), max_size=4))
def test_any_table_is_taken_or_refused_by_name(tmp_path_factory: pytest.TempPathFactory, what: str, rows: list[dict[str, str]]) -> None:
    folder = tmp_path_factory.mktemp("any")
    good: dict[str, dict[str, str]] = {"gpus": GPU, "skus": SKU, "performance": RUN, "prices": PRICE}
    table = [{**(good[what] if i % 2 else {}), **row} for i, row in enumerate(rows)]
    with suppress(ConfigInvalid):
        bring(folder, what, *table)
    assert [d for d in check_catalog(load_book("list", folder), TODAY) if d.severity == "error"] == []
