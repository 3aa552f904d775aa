"""Words to an Envoy that come after nobody waited for them any more, and start-up files that were locked: neither undoes a way home.

The same of ALB, HTTPRoute, SQS and a HAProxy without our Lua stands in test_router_clouds and test_half_answers.
"""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from fleetctl.adapters.deadline import Deadline
from fleetctl.adapters.routers import late, lock
from fleetctl.adapters.routers.envoy import runtime
from fleetctl.adapters.routers.envoy.router import EnvoyRouter
from fleetctl.adapters.routers.envoy.runtime import RUNTIME_FILE, read_runtime_file
from fleetctl.adapters.routers.haproxy import maps
from fleetctl.adapters.routers.haproxy.maps import read_standing
from fleetctl.domain.fleet import Connection
from fleetctl.domain.home import HOME_TOKEN_STEP
from fleetctl.domain.ids import Token
from fleetctl.domain.split import Applied, Split, Stale
from fleetctl.errors import TrafficNotApplied
from fleetctl.ports.traffic import Router
from tests.fakes.paper import on_paper
from tests.lab.envoy_lab import SOURCES, EnvoyRig, envoy_rig
from tests.lab.haproxy_lab import CELL, Rig, in_an_hour, put, rig, until

pytestmark = pytest.mark.lab


class Relay:
    """A way to an admin interface on which the next word that changes something is held up until it may go on, whoever still waits."""

    def __init__(self, admin: str) -> None:
        found = urlsplit(admin)
        self._to = (found.hostname or "", found.port or 0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.gate, self.came, self.holds = threading.Event(), threading.Event(), False
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Serve nobody any more."""
        self.gate.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                link, _ = self._listener.accept()
                threading.Thread(target=self._pass, args=(link,), daemon=True).start()

    def _pass(self, link: socket.socket) -> None:
        with link, suppress(OSError):
            asked = link.recv(65_536)
            method, path = asked.decode().split(" ")[:2]
            is_held = self.holds and method == "POST"
            if is_held:
                self.holds = False
                self.gate.wait(30)
            onward = http.client.HTTPConnection(*self._to, timeout=10)
            onward.request(method, path, body=b"" if method == "POST" else None)
            answer = onward.getresponse()
            body = answer.read()
            onward.close()
            if is_held:
                self.came.set()
            link.sendall(f"HTTP/1.1 {answer.status} OK\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)


@pytest.fixture(scope="module")
def envoy() -> Iterator[EnvoyRig]:
    with envoy_rig() as found:
        yield found


@pytest.fixture
def relay(envoy: EnvoyRig) -> Iterator[Relay]:
    found = Relay(envoy.connection.settings["admin"])
    yield found
    found.close()


def split(bp: int, token: int) -> Split:
    return Split(cell=CELL, target_bp=bp, cap_bp=10_000, token=Token(token), lease_until=in_an_hour())


def behind(relay: Relay, envoy: EnvoyRig) -> EnvoyRouter:
    """Return a writer that speaks by way of the relay."""
    return EnvoyRouter(Connection(name="lab", kind="envoy", settings={**envoy.connection.settings, "admin": relay.url}), sources=SOURCES)


def late_raise(relay: Relay, envoy: EnvoyRig, monkeypatch: pytest.MonkeyPatch) -> tuple[EnvoyRouter, int]:
    """Return a router whose raise from 25 to 50 % has no answer yet and may still come, and its token."""
    router = behind(relay, envoy)
    token = router.read(CELL).token + 1
    put(router, 2_500, token=token)
    relay.holds = True
    monkeypatch.setattr(Deadline.__init__, "__defaults__", (2.5,))
    with pytest.raises(TrafficNotApplied, match=r"no answer.*25 % stand again"):
        router.set(split(5_000, token))
    return router, token


def test_a_raise_that_reaches_envoy_after_we_went_home_is_taken_back_before_home_is_said(
    envoy: EnvoyRig, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    router, token = late_raise(relay, envoy, monkeypatch)
    with pytest.raises(TrafficNotApplied, match="may still come"):
        router.set(split(0, token))
    assert envoy.router().read(CELL).target_bp == 0, "customers are home at once; it is not called done"
    timer = threading.Timer(0.3, relay.gate.set)
    timer.start()
    assert isinstance(router.set(split(0, token)), Applied)
    timer.join()
    assert relay.came.is_set()
    assert envoy.router().read(CELL).target_bp == 0


def test_a_raise_that_comes_when_nobody_waited_any_more_is_none(envoy: EnvoyRig, relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    _, token = late_raise(relay, envoy, monkeypatch)
    relay.gate.set()
    assert relay.came.wait(10)
    until(lambda: envoy.router().read(CELL).target_bp == 2_500, "what stood before it")
    assert envoy.router().read(CELL).token == token


@pytest.mark.parametrize("how", ["fleetctl", "paper"])
def test_a_raise_that_reaches_envoy_after_somebody_else_went_home_is_taken_back(
    envoy: EnvoyRig, relay: Relay, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    router, token = late_raise(relay, envoy, monkeypatch)
    if how == "paper":
        on_paper(envoy.connection, CELL)
    else:
        put(envoy.router(), 0, token=token + HOME_TOKEN_STEP)
    assert envoy.router().read(CELL).token == token + HOME_TOKEN_STEP
    relay.gate.set()
    assert relay.came.wait(10)
    until(lambda: envoy.router().read(CELL).target_bp == 0, "home again")
    assert router.set(split(2_500, token)) == Stale(cell=CELL, seen=Token(token + HOME_TOKEN_STEP))


@pytest.mark.parametrize("how", ["fleetctl", "paper"])
def test_a_fence_that_reaches_envoy_after_somebody_went_home_lowers_no_floor(
    envoy: EnvoyRig, relay: Relay, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    router, person = behind(relay, envoy), envoy.router()
    token = router.read(CELL).token + 1
    put(router, 2_500, token=token)
    relay.holds = True
    monkeypatch.setattr(Deadline.__init__, "__defaults__", (1.0,))
    with pytest.raises(TrafficNotApplied, match="no answer"):
        router.fence(CELL, Token(token + 1))
    if how == "paper":
        on_paper(envoy.connection, CELL)
    else:
        put(person, 0, token=token + HOME_TOKEN_STEP)
    high = person.read(CELL).token
    relay.gate.set()
    assert relay.came.wait(10)
    assert person.read(CELL).token == high >= token + HOME_TOKEN_STEP
    assert router.set(split(5_000, token + 1)) == Stale(cell=CELL, seen=Token(high))
    assert router.fence(CELL, Token(token + 2)) == Stale(cell=CELL, seen=Token(high))
    assert person.read(CELL).target_bp == 0


@contextmanager
def _files(kind: str) -> Iterator[tuple[Rig | EnvoyRig, Any]]:
    """Run a router and give what says of its files which weight a restart begins with."""
    if kind == "envoy":
        with envoy_rig() as found:
            path = found.folder / RUNTIME_FILE
            yield found, lambda: read_runtime_file(path)[CELL].bp
    else:
        with rig() as of:
            yield of, lambda: getattr(read_standing(of.folder, CELL), "bp", None)


@pytest.mark.parametrize("kind", ["envoy", "haproxy"])
def test_a_raises_file_that_hung_while_another_process_went_home_says_home_once_it_is_written(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk hangs under the lock; whoever goes home cannot write beside it, and a restart must not bring customers back."""
    hung, release = threading.Event(), threading.Event()
    module = runtime if kind == "envoy" else maps
    real = module._replace
    with _files(kind) as (of, told):
        writer, person = of.router(), of.router()
        put(writer, 2_500, token=1)
        until(lambda: told() == 2_500, "the file has what stands")

        def slow(path: Path, values: Any) -> None:
            if not release.is_set():
                hung.set()
                release.wait(30)
            real(path, values)

        monkeypatch.setattr(module, "_replace", slow)
        done: list[object] = []
        raising = threading.Thread(target=lambda: done.append(writer.set(split(5_000, 1))))
        raising.start()
        assert hung.wait(10)
        with monkeypatch.context() as other:
            other.setattr(lock, "_GROUPS", {})  # a person's process shares the lock file alone
            reported = _home(person, 1 + HOME_TOKEN_STEP)
        assert "held by another process" in reported
        raising.join()
        assert told() == 2_500
        release.set()
        until(lambda: told() == 0, "the file says home too")
        assert of.router().read(CELL).target_bp == 0


@pytest.mark.parametrize("kind", ["envoy", "haproxy"])
def test_a_file_that_failed_on_the_way_home_is_written_by_the_next_who_fences_though_that_process_is_gone(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late, "AGAIN_S", 3_600.0)
    monkeypatch.setattr(late, "EXIT_S", 0.0)
    module = runtime if kind == "envoy" else maps
    with _files(kind) as (of, told):
        put(of.router(), 2_500, token=1)
        with monkeypatch.context() as full:
            full.setattr(module, "_replace", _full)
            assert "No space left" in put(of.router(), 0, token=2).reported
        assert told() == 2_500
        assert isinstance(of.router().fence(CELL, Token(3)), Split)
        until(lambda: told() == 0, "the file says home")


def _full(path: Path, values: Any) -> None:
    raise OSError(28, "No space left on device")


def _home(person: Router, token: int) -> str:
    person.fence(CELL, Token(token))
    done = person.set(split(0, token))
    assert isinstance(done, Applied)
    return done.reported
