"""Notices over HTTP: asked of every host at once, kept for a moment, bounded; a host that is silent or lies moves nobody."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fleetctl.adapters import notices
from fleetctl.adapters.notices import HostNotices, NoticeSource
from fleetctl.domain.ids import HostId, PoolId
from fleetctl.domain.people import Signal
from fleetctl.domain.pool import Host
from fleetctl.errors import ConfigInvalid
from fleetctl.rollout.notices import leaving
from fleetctl.wiring.notices import parse_notices

POOL = PoolId("mi300x-a")
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
PREEMPT = {
    "Events": [
        {
            "EventType": "Preempt",
            "EventStatus": "Scheduled",
            "Resources": ["mi300x-a-2", "somebody-else"],
            "NotBefore": format_datetime(NOW + timedelta(seconds=30), usegmt=True),
        }
    ]
}


class Relay:
    """Answers as a relay on a host would; `answer` is (status, body)."""

    def __init__(self) -> None:
        self.answer: tuple[int, bytes] = (200, b"{}")
        self.asked = 0
        self.hold = threading.Event()
        self.hold.set()
        self.token = ""
        relay = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                relay.asked += 1
                relay.hold.wait(10)
                if relay.token and self.headers.get("X-aws-ec2-metadata-token") != relay.token:
                    self.send_error(401)
                    return
                self.send_response(relay.answer[0])
                if relay.answer[0] == 302:
                    self.send_header("Location", "http://127.0.0.1:1/elsewhere")
                self.send_header("Content-Length", str(len(relay.answer[1])))
                self.end_headers()
                self.wfile.write(relay.answer[1])

            def do_PUT(self) -> None:
                is_asked = self.path == "/latest/api/token" and self.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
                body = relay.token.encode() if is_asked else b""
                self.send_response(200 if is_asked else 400)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.hold.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(timeout=10)


@pytest.fixture
def relay() -> Iterator[Relay]:
    made = Relay()
    yield made
    made.close()


@pytest.fixture
def read(relay: Relay) -> Callable[[], HostNotices]:
    hosts = tuple(Host(id=HostId(f"mi300x-a-{n}"), pool=POOL, address="127.0.0.1") for n in (1, 2))
    url = f"http://{{address}}:{relay.server.server_address[1]}/notices"
    return lambda: HostNotices({POOL: NoticeSource(url=url, parse=parse_notices)}, lambda _: hosts, lambda: NOW)


def test_an_event_reaches_the_pool_once_with_its_deadline_though_both_hosts_tell_it(relay: Relay, read: Callable[[], HostNotices]) -> None:
    relay.answer = (200, json.dumps(PREEMPT).encode())
    (signal,) = read().read(POOL)
    assert (signal.subject, signal.pool, signal.kind) == ("mi300x-a-2", POOL, "azure.preempt")
    assert signal.deadline == NOW + timedelta(seconds=30)
    assert leaving((signal,), POOL) == signal


def test_a_spot_interruption_is_the_host_s_own(relay: Relay, read: Callable[[], HostNotices]) -> None:
    relay.answer = (200, b'{"action": "terminate", "time": "2026-11-30T12:02:00Z"}')
    found = {s.subject: s.deadline for s in read().read(POOL)}
    assert found == dict.fromkeys(("mi300x-a-1", "mi300x-a-2"), NOW + timedelta(minutes=2))


def test_hosts_are_asked_once_in_two_seconds_whoever_asks(
    relay: Relay, read: Callable[[], HostNotices], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = [100.0]
    monkeypatch.setattr("fleetctl.adapters.notices.time.monotonic", lambda: at[0])
    source = read()
    for _ in range(5):
        source.read(POOL)
    assert relay.asked == 2
    at[0] += 2.1  # past KEEP_S, and short of what a silent host is kept for
    source.read(POOL)
    assert relay.asked == 4


@pytest.mark.parametrize(
    "answer", [(500, b"{}"), (200, b"not json"), (200, b"[1]"), (302, b""), (200, b'{"Events": "x"' + b" " * 300_000 + b"}"), (401, b"{}")]
)
def test_a_host_that_does_not_answer_as_it_should_is_silent_and_moves_nobody(
    answer: tuple[int, bytes], relay: Relay, read: Callable[[], HostNotices]
) -> None:
    relay.answer = answer
    found = read().read(POOL)
    assert {s.kind for s in found} == {"notices.silent"}
    assert leaving(found, POOL) is None


@pytest.mark.parametrize("answer", [(404, b"{}"), (200, b"{}"), (200, b'{"Events": []}')])
def test_no_notice_is_no_signal(answer: tuple[int, bytes], relay: Relay, read: Callable[[], HostNotices]) -> None:
    relay.answer = answer
    assert read().read(POOL) == ()


def test_a_host_that_hangs_holds_nobody_up(relay: Relay, read: Callable[[], HostNotices], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "WAIT_S", 0.2)
    relay.hold.clear()
    found = read().read(POOL)
    relay.hold.set()
    assert {s.kind for s in found} == {"notices.silent"}


def _relayed(argv: list[str], host: str, environ: dict[str, str] | None = None) -> tuple[Signal, ...]:
    """Do what the two systemd units of the how-to do: the program's whole answer goes to whoever connects."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                env = {**os.environ, **(environ or {})}
                subprocess.run(argv, stdin=connection.fileno(), stdout=connection.fileno(), check=True, timeout=10, env=env)

        thread = threading.Thread(target=serve)
        thread.start()
        hosts = (Host(id=HostId(host), pool=POOL, address="127.0.0.1"),)
        url = f"http://{{address}}:{listening.getsockname()[1]}/"
        found = HostNotices({POOL: NoticeSource(url=url, parse=parse_notices)}, lambda _: hosts, lambda: NOW).read(POOL)
        thread.join(timeout=10)
    return found


def _starts() -> list[str]:
    page = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "heed-cloud-notices.md").read_text()
    return [line.split("ExecStart=", 1)[1].replace("$$", "$") for line in page.splitlines() if "ExecStart=" in line]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_relay_of_the_how_to_hands_the_document_on(relay: Relay) -> None:
    relay.answer = (200, json.dumps(PREEMPT).encode())
    argv = shlex.split(_starts()[0])
    argv[0], argv[-1] = "curl", f"http://127.0.0.1:{relay.server.server_address[1]}/metadata/scheduledevents"
    (signal,) = _relayed(argv, "mi300x-a-2")
    assert (signal.kind, signal.deadline) == ("azure.preempt", NOW + timedelta(seconds=30))


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_relay_of_the_how_to_asks_for_a_token_on_aws(relay: Relay) -> None:
    relay.token = "t0k=en"
    imds = {"IMDS": f"http://127.0.0.1:{relay.server.server_address[1]}/latest"}
    relay.answer = (200, b'{"action": "terminate", "time": "2026-11-30T12:02:00Z"}')
    (signal,) = _relayed(shlex.split(_starts()[1]), "h100-1", imds)
    assert (signal.kind, signal.deadline) == ("aws.spot_terminate", NOW + timedelta(minutes=2))
    relay.answer = (404, b"<html>Not Found</html>")
    assert _relayed(shlex.split(_starts()[1]), "h100-1", imds) == (), "none stands"


@pytest.mark.parametrize("url", ["file:///etc/passwd", "relay", "ftp://{address}/x", "http://"])
def test_only_http_addresses_are_taken(url: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        HostNotices({POOL: NoticeSource(url=url, parse=parse_notices)}, lambda _: (), lambda: NOW)
    assert caught.value.code == "config.notices"


def test_a_pool_without_a_source_is_not_asked() -> None:
    nobody: Any = HostNotices({}, lambda _: (), lambda: NOW)
    assert (nobody.watches(POOL), nobody.read(POOL)) == (False, ())


@pytest.mark.parametrize(
    "answer",
    [
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000,
        b'HTTP/1.1 200 OK\r\n\r\n{"Events": [{"Resources": 7, "NotBefore": {}}], "action": [], "time": 5}',
        b"",
    ],
)
def test_a_relay_that_answers_anything_is_silent_or_heard_and_never_an_exception(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            link, _ = listening.accept()
            with link:
                link.recv(65_536)
                link.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        host = Host(id=HostId("mi300x-a-1"), pool=POOL, address="127.0.0.1")
        url = f"http://{{address}}:{listening.getsockname()[1]}/notices"
        found = HostNotices({POOL: NoticeSource(url=url, parse=parse_notices)}, lambda _: (host,), lambda: NOW).read(POOL)
        thread.join(5)
    assert leaving(found, POOL) is None


def test_an_authority_that_is_gone_is_silence(tmp_path: Path) -> None:
    source = NoticeSource(url="https://{address}:9/notices", parse=parse_notices, ca=str(tmp_path / "gone.pem"))
    host = Host(id=HostId("mi300x-a-1"), pool=POOL, address="127.0.0.1")
    (signal,) = HostNotices({POOL: source}, lambda _: (host,), lambda: NOW).read(POOL)
    assert signal.kind == "notices.silent"


@pytest.mark.parametrize("url", ["http://[", "http://{address}:none/x", "http://{address}:99999/x"])
def test_an_address_that_is_none_is_refused_before_anything(url: str) -> None:
    with pytest.raises(ConfigInvalid):
        HostNotices({POOL: NoticeSource(url=url, parse=parse_notices)}, lambda _: (), lambda: NOW)
