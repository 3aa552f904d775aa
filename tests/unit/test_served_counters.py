"""Counters in Prometheus tell who answered only where there are such series: none is not 0 requests."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from fleetctl.adapters.routers.httproute.router import HttpRouteRouter
from fleetctl.adapters.routers.httproute.wire import Routes
from fleetctl.domain.fleet import Connection
from fleetctl.domain.ids import CellId
from fleetctl.domain.split import Served
from fleetctl.errors import TrafficNotApplied
from fleetctl.wiring.routers import _counter
from tests.fakes.json_double import JsonAnswers

CELL = CellId("chat")


@contextmanager
def prometheus(values: dict[str, list[float]], asked: list[str] | None = None) -> Iterator[str]:
    """Answer instant queries: for a name in the query, so many series of these values. `asked`: what was asked."""

    class Handler(JsonAnswers):
        def do_GET(self) -> None:
            self.give(parse_qs(urlsplit(self.path).query)["query"][0])

        def do_POST(self) -> None:
            self.give(parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())["query"][0])

        def give(self, query: str) -> None:
            if asked is not None:
                asked.append(query)
            assert " or 0 * sum(" in query, "a series with too few samples for a rate is there all the same"
            found = next(v for name, v in values.items() if name in query)
            result: list[Any] = [{"metric": {}, "value": [0, str(value)]} for value in found]
            self.answer(200, {"status": "success", "data": {"resultType": "vector", "result": result}})

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def count(values: dict[str, list[float]], back_s: float = 60.0, asked: list[str] | None = None) -> Served:
    with prometheus(values, asked) as url:
        served = {"served.baseline": 'rq_total{side="baseline"}', "served.canary": 'rq_total{side="canary"}'}
        counter = _counter(Connection(name="mesh", kind="httproute", settings={"prometheus": url, **served}))
        assert counter is not None
        return counter(CELL, datetime.now(UTC) - timedelta(seconds=back_s))


def test_counters_that_exist_are_counted() -> None:
    assert count({"baseline": [41.6], "canary": [0.0]}) == Served(baseline=42, canary=0)


@pytest.mark.parametrize("gone", [("baseline",), ("canary",), ("baseline", "canary")])
def test_a_counter_without_series_is_an_error_and_never_0_requests(gone: tuple[str, ...]) -> None:
    with pytest.raises(TrafficNotApplied, match=f'no series rq_total{{side="{gone[0]}"}}') as refused:
        count({side: [] if side in gone else [5.0] for side in ("baseline", "canary")})
    assert refused.value.code == "traffic.not_shown"


@pytest.mark.parametrize("scrape_s", [1, 15, 30, 60, 120])
def test_customers_are_counted_however_seldom_the_gateway_is_scraped_and_whenever_it_is_asked(tmp_path: Path, scrape_s: int) -> None:
    """Prometheus' own arithmetic, by promtool; 60 s is its default."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus): its arithmetic is not tried here")
    router = HttpRouteRouter(Connection(name="mesh", kind="httproute"), routes=Routes(lambda: None, "mesh"))
    asked: list[str] = []
    count({"baseline": [1.0], "canary": [1.0]}, router.capabilities().served_s, asked)
    moments = [1_200 + n for n in (0, 1, 7, 29, 31, 59)]
    wanted = [{"expr": f"({asked[0]}) > bool 0", "eval_time": f"{at}s", "exp_samples": [{"labels": "{}", "value": 1}]} for at in moments]
    series = [{"series": 'rq_total{side="baseline"}', "values": f"0+{scrape_s}x{1_300 // scrape_s}"}]
    case = {"interval": f"{scrape_s}s", "input_series": series, "promql_expr_test": wanted}
    (tmp_path / "case.json").write_text(json.dumps({"rule_files": [], "evaluation_interval": "1s", "tests": [case]}))
    done = subprocess.run([promtool, "test", "rules", str(tmp_path / "case.json")], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
