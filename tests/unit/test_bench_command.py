"""`fleetctl bench` against a server on loopback: what is kept, what is not, and what routes cost; traces are read whole or refused."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.catalog import load_catalog
from fleetctl.catalog.books import load_book, own_performance
from fleetctl.cli.main import main
from fleetctl.domain.bench import Answered, Asked, Promise, at_rate, point_of
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
    assert bench(tmp_path, endpoint, "--trace", trace(tmp_path), *RUN, "--slo-ms", "0.001") == 1
    told = capsys.readouterr()
    assert "0/20" in told.out
    assert "missed: p95" in told.out
    assert "Nothing was kept" in told.err
    wrong = ("--model", "other", *RUN[2:])
    assert bench(tmp_path, endpoint, "--trace", trace(tmp_path), *wrong) == 1
    assert "it answered 404 to a completion of other; nothing was measured" in " ".join(capsys.readouterr().err.split())
    assert own_performance(tmp_path / ".fleetctl" / "catalog") == ()


def test_an_endpoint_that_is_not_there_is_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(tmp_path, "http://127.0.0.1:9", "--trace", trace(tmp_path), *RUN[:-4], "--requests", "3") == 1
    told = capsys.readouterr()
    assert "error[bench.no_answer]" in told.err
    assert "nobody answers there" in told.err
    assert told.out == ""


def test_a_dry_run_sends_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(tmp_path, "http://127.0.0.1:9", "--trace", trace(tmp_path), *RUN, "--dry-run") == 0
    assert "Nothing was changed." in capsys.readouterr().out


class _Stream(BaseHTTPRequestHandler):
    """Answers as OpenAI-compatible engines stream; how, the model's name says."""

    prompts: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.prompts.append(asked["prompt"])
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        time.sleep(0.02)
        for n in range(3):
            self.wfile.write(f'data: {{"choices":[{{"text":"{n}"}}]}}\n\n'.encode())
            time.sleep(0.005)
        if asked["model"] != "no-usage":
            self.wfile.write(b'data: {"choices":[],"usage":{"completion_tokens":3}}\n\n')
        if asked["model"] == "odd":
            self.wfile.write(b"data: {\n\n")
        if asked["model"] != "cut":
            self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


@pytest.fixture
def streaming() -> Iterator[str]:
    _Stream.prompts.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Stream)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_stream_is_measured_to_its_first_token_and_per_token(streaming: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(tmp_path, streaming, "--trace", trace(tmp_path), *RUN, "-o", "json") == 0
    for p in json.loads(capsys.readouterr().out)["items"]:
        assert p["ttft_p95_ms"] >= 20
        assert p["tpot_p95_ms"] >= 5
        assert p["p95_ms"] >= p["ttft_p95_ms"]
    kept = own_performance(tmp_path / ".fleetctl" / "catalog")
    assert all(r.ttft_p95_ms is not None and r.tpot_p95_ms is not None for r in kept)
    starts = [prompt.split()[0] for prompt in _Stream.prompts]
    assert len(set(starts)) == len(starts) == 41, "each request of a run begins anew: no cached prefix flatters it"
    assert bench(tmp_path, streaming, "--trace", trace(tmp_path), *RUN, "--slo-ttft-ms", "1") == 1
    out = capsys.readouterr().out
    assert "missed: TTFT" in out
    assert all(len(line) <= 80 for line in out.splitlines())


@pytest.mark.parametrize("model", ["cut", "odd", "no-usage"])
def test_half_an_answer_is_none(streaming: str, tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ("--model", model, *RUN[2:-4], "--rates", "400", "--requests", "3")
    assert bench(tmp_path, streaming, "--trace", trace(tmp_path), *argv) == 1
    assert "its answer is no completion" in capsys.readouterr().err
    assert own_performance(tmp_path / ".fleetctl" / "catalog") == ()


@pytest.mark.parametrize(
    "argv",
    [
        (),
        ("--gpu", "MI999", "--model", "m", "--engine", "e"),
        ("--gpu", "MI300X", "--model", "m", "--engine", "e", "--sku", "p5.48xlarge"),
        ("--gpu", "MI300X", "--model", "m", "--engine", "e", "--accelerators", "8", "--tp", "3"),
        ("--gpu", "MI300X", "--model", "m", "--engine", "e; route native"),
        ("--gpu", "MI300X", "--model", "m\n,x", "--engine", "e"),
        ("--gpu", "MI300X", "--model", "m", "--engine", "e\x1b[2J"),
        ("--compare",),
    ],
)
def test_what_is_missing_or_unknown_is_named(tmp_path: Path, argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(tmp_path, "http://127.0.0.1:9", "--trace", trace(tmp_path), *argv) == 2
    assert "error[bench." in capsys.readouterr().err


def test_routes_are_compared_with_native_and_with_nvidia(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fleetctl.adapters.own_rows import OwnRows

    answers = [Answered(sent_s=i / 10, ttft_ms=20, whole_ms=100, output_tokens=100) for i in range(50)]
    point = point_of(answers, Promise(whole_ms=500))
    rows = []
    runs = (("H100 SXM", "native", 1.0, "bf16"), ("MI300X", "native", 0.8, "bf16"), ("MI300X", "scale", 0.6, "bf16"))
    for gpu, route, share, precision in (*runs, ("MI300X", "hipify", 0.7, "fp8")):
        s = Subject(gpu=gpu, sku="", model="m", precision=precision, klass="online", engine="e 1", accelerators=1, tp=1, route=route)
        (row,) = rows_of([point], s, "test", "2026-11-30")
        rows.append({**row, "tokens_per_s_per_gpu": str(float(row["tokens_per_s_per_gpu"]) * share)})
    OwnRows(tmp_path / ".fleetctl" / "catalog").merge("performance.csv", RUN_COLUMNS, RUN_KEY, rows)
    found = compare(own_performance(tmp_path / ".fleetctl" / "catalog"), load_catalog(), "m", "online")
    assert [(a.gpu, a.route, a.of_nvidia, a.of_native) for a in found] == [
        ("H100 SXM", "native", 1.0, 1.0),
        ("MI300X", "native", 0.8, 1.0),
        ("MI300X", "hipify", None, None),
        ("MI300X", "scale", 0.6, 0.75),
    ]
    assert bench(tmp_path, "--compare", "--model", "m") == 0
    out = capsys.readouterr().out
    assert "75%" in out
    assert "scale on MI300X (bf16): 25% less than the throughput of native code there;" in " ".join(out.split())
    assert "40% less than the throughput of H100 SXM." in " ".join(out.split())
    assert "hipify on MI300X (fp8): no native run there to compare with" in out, "another precision is no comparison"
    assert all(len(line) <= 80 for line in out.splitlines())
    assert bench(tmp_path, "--compare", "--model", "none") == 2


def test_a_point_is_what_the_answers_make() -> None:
    done = [Answered(sent_s=i, ttft_ms=20, whole_ms=1000, output_tokens=50) for i in range(10)]
    done.append(Answered(sent_s=9.5, ttft_ms=None, whole_ms=5, output_tokens=0, error="timeout"))
    p = point_of(done, Promise(whole_ms=1000))
    assert (p.tokens_per_s, p.answered, p.failed, p.p95_ms) == (50.0, 10, 1, 1000.0)
    assert (p.ttft_p95_ms, p.tpot_p95_ms) == (20.0, 20.0)
    assert p.missed == "errors (timeout)"
    for promise, missed in (
        (Promise(whole_ms=1000, ttft_ms=20, tpot_ms=20), ""),
        (Promise(whole_ms=999), "p95"),
        (Promise(ttft_ms=19), "TTFT"),
        (Promise(tpot_ms=19), "TPOT"),
        (Promise(), ""),
    ):
        assert point_of(done[:10], promise).missed == missed
    whole = [replace(a, ttft_ms=None) for a in done[:10]]
    assert point_of(whole, Promise(ttft_ms=500)).missed == "TTFT: not streamed"
    assert (point_of(whole, Promise()).ttft_p95_ms, point_of(whole, Promise()).meets_slo) == (None, True)


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
    path.write_bytes(b"\xef\xbb\xbfat_s,input_tokens,output_tokens\n0,1,4\n")
    assert len(read_trace(path)) == 1
    odd = ("nan,3,4", "inf,3,4", "-5,3,4", "1e300,3,4", "1,\u0663,4", "1,3,1e3", "2024-05-10 00:00:00,3,4", "1,2", "1,2000000,3")
    for line in odd:
        path.write_text(f"at_s,input_tokens,output_tokens\n{line}\n")
        with pytest.raises(ConfigInvalid) as caught:
            read_trace(path)
        assert caught.value.details[0].startswith("azure.csv:2:"), line
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:01.25+02:00,374,44\n2024-05-09T22:00:00Z,1,1\n7,1,1\n")
    with pytest.raises(ConfigInvalid, match="1 bad line"):
        read_trace(path)
    path.write_text(path.read_text().replace("7,1,1\n", ""))
    first, second = read_trace(path)
    assert second.at_s - first.at_s == 1.25
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ConfigInvalid, match="lacks columns"):
        read_trace(path)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://x",
        "x",
        "http://",
        "http://127.0.0.1:99999",
        "http://127.0.0.1:x",
        "http://127.0.0.1/a b",
        "http://user:pw@127.0.0.1:9",
        "http://127.0.0.1:9/?key=1",
        "http://127.0.0.1:9/\n",
        "http://[::1",
    ],
)
def test_what_is_no_address_is_refused_before_anything_is_sent(tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(tmp_path, url, "--trace", trace(tmp_path), *RUN) == 2
    assert "error[bench.endpoint]" in capsys.readouterr().err
