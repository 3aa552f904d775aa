"""Counters in Prometheus tell who answered only where there are such series: none is not 0 requests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from fleetctl.domain.fleet import Connection
from fleetctl.domain.ids import CellId
from fleetctl.domain.split import Served
from fleetctl.errors import TrafficNotApplied
from fleetctl.wiring.routers import _counter
from tests.fakes.json_double import JsonAnswers

CELL = CellId("chat")


@contextmanager
def prometheus(values: dict[str, list[float]]) -> Iterator[str]:
    """Answer instant queries: for a name in the query, so many series of these values."""

    class Handler(JsonAnswers):
        def do_GET(self) -> None:
            self.give(parse_qs(urlsplit(self.path).query)["query"][0])

        def do_POST(self) -> None:
            self.give(parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())["query"][0])

        def give(self, query: str) -> None:
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


def count(values: dict[str, list[float]]) -> Served:
    with prometheus(values) as url:
        served = {"served.baseline": 'rq_total{side="baseline"}', "served.canary": 'rq_total{side="canary"}'}
        counter = _counter(Connection(name="mesh", kind="httproute", settings={"prometheus": url, **served}))
        assert counter is not None
        return counter(CELL, datetime.now(UTC) - timedelta(minutes=1))


def test_counters_that_exist_are_counted() -> None:
    assert count({"baseline": [41.6], "canary": [0.0]}) == Served(baseline=42, canary=0)


@pytest.mark.parametrize("gone", [("baseline",), ("canary",), ("baseline", "canary")])
def test_a_counter_without_series_is_an_error_and_never_0_requests(gone: tuple[str, ...]) -> None:
    with pytest.raises(TrafficNotApplied, match=f'no series rq_total{{side="{gone[0]}"}}') as refused:
        count({side: [] if side in gone else [5.0] for side in ("baseline", "canary")})
    assert refused.value.code == "traffic.not_shown"
