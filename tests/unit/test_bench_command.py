"""`fleetctl bench` against a server on loopback: what is kept, what is not, and what routes cost; traces are read whole or refused."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.catalog import load_catalog
from fleetctl.catalog.books import load_book, own_performance
from fleetctl.cli.main import main
from fleetctl.domain.bench import Answered, Asked, at_rate, point_of
from fleetctl.errors import ConfigInvalid
from fleetctl.formats.trace_file import read_trace
from fleetctl.usecases.bench import Subject, compare, rows_of
from fleetctl.usecases.catalog import RUN_COLUMNS, RUN_KEY
from tests.fakes.completion_server import _Answer

TRACE = "at_s,input_tokens,output_tokens\n0,20,16\n0.5,30,8\n1,10,4\n"
RUN = ("--model", "tiny", "--gpu", "MI300X", "--engine", "stand-in 1.0", "--rates", "200,400", "--requests", "20")


@pytest.fixture
def endpoint() -> Iterator[str]:
    """A stand-in that answers 16 tokens at once; it emulates no latency."""
    kind = type("Sixteen", (_Answer,), {"tokens": 16, "model": "tiny"})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def bench(folder: Path, *argv: str) -> int:
    try:
        return main(["-C", str(folder), "bench", *argv])
    except SystemExit as e:
        return int(e.code or 0)


def trace(folder: Path) -> str:
    (folder / "trace.csv").write_text(TRACE)
    return str(folder / "trace.csv")


def test_what_met_the_slo_is_kept_and_plans_count_with_it(endpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(tmp_path, endpoint, "--trace", trace(tmp_path), *RUN, "--accelerators", "2", "-o", "json") == 0
    points = json.loads(capsys.readouterr().out)["items"]
    assert [p["answered"] for p in points] == [20, 20]
    kept = own_performance(tmp_path / ".fleetctl" / "catalog")
    assert {r.kind for r in kept} == {"own"}
    assert sorted(r.tokens_per_s for r in kept) == pytest.approx(sorted(p["tokens_per_s"] / 2 for p in points), rel=1e-3)
    assert load_book("list", tmp_path / ".fleetctl" / "catalog").id != load_catalog().id


def test_a_run_that_misses_its_slo_or_fails_is_shown_and_not_kept(
    endpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = ("--model", "other", *RUN[2:])
    assert bench(tmp_path, endpoint, "--trace", trace(tmp_path), *wrong) == 1
    told = capsys.readouterr()
    assert "20/20" in told.out
    assert "missed" in told.out
    assert "Nothing was kept" in told.err
    assert own_performance(tmp_path / ".fleetctl" / "catalog") == ()


def test_an_endpoint_that_is_not_there_fails_every_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(tmp_path, "http://127.0.0.1:9", "--trace", trace(tmp_path), *RUN[:-4], "--requests", "3") == 1
    assert "3/3" in capsys.readouterr().out


def test_a_dry_run_sends_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(tmp_path, "http://127.0.0.1:9", "--trace", trace(tmp_path), *RUN, "--dry-run") == 0
    assert "Nothing was changed." in capsys.readouterr().out


@pytest.mark.parametrize("argv", [(), ("--gpu", "MI999", "--model", "m", "--engine", "e")])
def test_what_is_missing_or_unknown_is_named(tmp_path: Path, argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(tmp_path, "http://127.0.0.1:9", "--trace", trace(tmp_path), *argv) == 2
    assert "error[bench." in capsys.readouterr().err


def test_routes_are_compared_with_native_and_with_nvidia(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fleetctl.adapters.own_rows import OwnRows

    answers = [Answered(sent_s=i / 10, ttft_ms=20, whole_ms=100, output_tokens=100) for i in range(50)]
    point = point_of(answers, 500)
    rows = []
    for gpu, route, share in (("H100 SXM", "native", 1.0), ("MI300X", "native", 0.8), ("MI300X", "scale", 0.6)):
        s = Subject(gpu=gpu, sku="", model="m", precision="bf16", klass="online", engine="e 1", accelerators=1, tp=1, route=route)
        (row,) = rows_of([point], s, "test", "2026-11-30")
        rows.append({**row, "tokens_per_s_per_gpu": str(float(row["tokens_per_s_per_gpu"]) * share)})
    OwnRows(tmp_path / ".fleetctl" / "catalog").merge("performance.csv", RUN_COLUMNS, RUN_KEY, rows)
    found = compare(own_performance(tmp_path / ".fleetctl" / "catalog"), load_catalog(), "m", "online")
    assert [(a.gpu, a.route, a.of_nvidia, a.of_native) for a in found] == [
        ("H100 SXM", "native", 1.0, 1.0),
        ("MI300X", "native", 0.8, 1.0),
        ("MI300X", "scale", 0.6, 0.75),
    ]
    assert bench(tmp_path, "--compare", "--model", "m") == 0
    assert "75%" in capsys.readouterr().out
    assert bench(tmp_path, "--compare", "--model", "none") == 2


def test_a_point_is_what_the_answers_make() -> None:
    done = [Answered(sent_s=i, ttft_ms=10, whole_ms=1000, output_tokens=50) for i in range(10)]
    done.append(Answered(sent_s=9.5, ttft_ms=0, whole_ms=5, output_tokens=0, error="timeout"))
    p = point_of(done, 1000)
    assert (p.tokens_per_s, p.answered, p.failed, p.p95_ms) == (50.0, 10, 1, 1000.0)
    assert not p.meets_slo
    assert point_of(done[:10], 1000).meets_slo
    assert not point_of(done[:10], 999).meets_slo


@given(st.lists(st.floats(0, 1e4), min_size=2, max_size=20), st.floats(0.1, 1000), st.integers(2, 200))
def test_a_trace_at_a_rate_keeps_its_shape_and_has_that_rate(times: list[float], rate: float, count: int) -> None:
    asked = [Asked(at_s=t, input_tokens=1, output_tokens=1) for t in sorted(times)]
    out = at_rate(asked, rate, count)
    gaps = [b.at_s - a.at_s for a, b in pairwise(out)]
    assert len(out) == count
    assert out[0].at_s == 0
    assert min(gaps) >= -1e-6
    whole = at_rate(asked, rate, len(asked))
    assert whole[-1].at_s == pytest.approx((len(asked) - 1) / rate, rel=1e-6)


def test_azures_columns_are_read_and_bad_lines_are_all_named(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n")
    a, b = read_trace(path)
    assert (a.input_tokens, b.output_tokens) == (374, 109)
    assert b.at_s - a.at_s == pytest.approx(4.314579, abs=1e-3)
    path.write_text("at_s,input_tokens,output_tokens\n0,0,4\nx,3,4\n1,2,3\n")
    with pytest.raises(ConfigInvalid) as caught:
        read_trace(path)
    assert [d.split(":")[1] for d in caught.value.details] == ["2", "3"]
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ConfigInvalid, match="lacks columns"):
        read_trace(path)
