"""People are told: grouped by cause, tried again with a bound, on record, without a secret, and nobody waits for a receiver."""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fleetctl.adapters.notify.channels import Channel
from fleetctl.adapters.notify.messages import SIGNATURE, pagerduty_body
from fleetctl.adapters.notify.spool import Pace, SpooledNotifier
from fleetctl.domain.event import Event
from fleetctl.domain.fleet import Connection, SecretRef
from fleetctl.domain.ids import CellId
from fleetctl.domain.rollout import Order
from fleetctl.errors import CredentialsMissing, StoreUnavailable
from fleetctl.formats.notify_channels import check_notify, is_safe_url
from fleetctl.usecases.tick_events import JUDGE
from tests.fakes.clock import FakeClock
from tests.fakes.small import KeptNotices
from tests.rollouts import CELL, PERSON, T0
from tests.simulator import Simulation, quick

PACE = Pace(group=0.05, retries=(0.01, 0.01), look=0.01, flush=5.0, page_kept=0.0, longest=0.05)
SECRET = "canary-3f9c1d77e0"


class Receiver:
    """A receiver on loopback that answers as a test says: a status, "hang", or a drip that never ends."""

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.answers: list[object] = []
        self.let_go = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                outer.got.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                answer = outer.answers.pop(0) if outer.answers else 200
                if answer == "hang":
                    outer.let_go.wait(20)
                elif answer == "drip":
                    while not outer.let_go.wait(0.05):
                        try:
                            self.wfile.write(b"H")
                        except OSError:
                            return
                else:
                    self.send_response(int(str(answer)))
                    self.send_header("location", "http://127.0.0.1:1/elsewhere")
                    self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self) -> None:
        self.let_go.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    yield found
    found.close()


def channel(receiver: Receiver, kind: str = "slack", call_s: float = 10.0, least: str = "info") -> Channel:
    secrets = {"url": f"{receiver.url}/hook/{SECRET}", "key": SECRET}
    settings = {"least": least, **({"url": f"{receiver.url}/v2/enqueue"} if kind == "pagerduty" else {})}
    refs = {name: SecretRef(kind="env", name=name) for name in secrets}
    return Channel(Connection(name="team", kind=kind, settings=settings, secrets=refs), "lab", lambda ref: secrets[ref.name], call_s=call_s)


class Told:
    """A notifier over one channel, and what the audit was told."""

    def __init__(self, folder: Path, to: Channel, pace: Pace = PACE) -> None:
        self.events: list[Event] = []
        self.first = KeptNotices()
        self.notifier = SpooledNotifier([to], folder, self.first, FakeClock(), self.events.append, pace=pace)

    def until(self, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + 15
        while not holds():
            assert time.monotonic() < end, self.events
            time.sleep(0.005)


def notice(cell: str = "chat-lab", text: str = "chat-lab is home: errors", level: str = "page", cause: str = "home.rolled_back") -> Event:
    data = {"cause": cause, "ended": "rolled_back"}
    return Event(at=T0, kind=f"notify.{level}", actor=JUDGE, text=text, cell=CellId(cell), data=data)


@pytest.mark.parametrize("kind", ["slack", "webhook", "pagerduty"])
def test_each_kind_says_it_in_its_own_form_and_holds_no_secret(kind: str, receiver: Receiver, tmp_path: Path) -> None:
    told = Told(tmp_path, channel(receiver, kind))
    hostile = "chat-lab is home: <!channel> password=hunter2hunter2 \x1b[2J Bearer abcdefghijkl"
    told.notifier.send(notice(text=hostile))
    told.until(lambda: bool(told.events))
    path, headers, body = receiver.got[0]
    said = json.loads(body)
    text = {"slack": lambda: said["text"], "webhook": lambda: said["text"], "pagerduty": lambda: said["payload"]["summary"]}[kind]()
    assert "is home" in text
    assert "hunter2" not in text
    assert "abcdefghijkl" not in text
    assert "\x1b" not in text
    if kind == "slack":
        assert "&lt;!channel&gt;" in text
    if kind == "webhook":
        at, mark = (part.partition("=")[2] for part in headers[SIGNATURE.lower()].split(","))
        assert mark == hmac.new(SECRET.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
        assert said["ended"] == "rolled_back"
        assert said["cells"] == ["chat-lab"]
    if kind == "pagerduty":
        assert (path, said["event_action"], said["payload"]["severity"]) == ("/v2/enqueue", "trigger", "critical")
    assert [e.kind for e in told.events] == ["notify.delivered"]
    assert SECRET not in repr(told.events) + repr(told.first.sent)
    assert all(SECRET.encode() not in p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())


def incident(*notices: Event) -> str:
    return str(json.loads(pagerduty_body("lab", notices, SECRET))["dedup_key"])


@pytest.mark.parametrize(
    "later",
    [
        {"cell": CellId("search-lab"), "text": "search-lab is home: errors"},
        {"at": T0 + timedelta(days=2)},
        {"text": "chat-lab is home: latency"},
    ],
    ids=["another-cell", "another-day", "another-guardrail"],
)
def test_an_incident_that_was_left_open_swallows_no_later_page(later: dict[str, Any]) -> None:
    assert incident(replace(notice(), **later)) != incident(notice())


def test_a_page_that_is_tried_again_is_one_incident_also_with_more_of_its_cause_behind_it() -> None:
    assert incident(notice()) == incident(notice()) == incident(notice(), notice("search-lab"))


def test_forty_cells_of_one_cause_are_one_message_and_another_cause_is_another(receiver: Receiver, tmp_path: Path) -> None:
    told = Told(tmp_path, channel(receiver))
    told.notifier = SpooledNotifier(
        [channel(receiver)], tmp_path, told.first, FakeClock(), told.events.append, pace=replace(PACE, group=3_600.0, flush=15.0)
    )
    for i in range(40):
        told.notifier.send(notice(f"chat-{i}"))
    told.notifier.send(notice("sum-1", cause="evidence.provider"))
    told.notifier.close()
    told.until(lambda: len(told.events) == 2)
    texts = [json.loads(body)["text"] for _, _, body in receiver.got]
    assert len(texts) == 2
    assert "40 cells:" in texts[0]
    assert "and 10 more" in texts[0]
    assert told.events[0].data["notices"] == 40


@pytest.mark.parametrize(
    ("answers", "tries", "kind", "why"),
    [
        ([500, 429, 200], 3, "notify.delivered", ""),
        ([500, 500, 500, 200], 3, "notify.failed", "status 500"),
        ([404, 200], 1, "notify.failed", "status 404"),
        ([302, 200], 1, "notify.failed", "status 302"),
        (["hang"] * 3, 3, "notify.failed", "TimeoutError"),
        (["drip"] * 3, 3, "notify.failed", ""),
    ],
)
def test_it_is_tried_again_with_a_bound_and_what_came_of_it_is_on_record(
    answers: list[object], tries: int, kind: str, why: str, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.answers = answers
    told = Told(tmp_path, channel(receiver, call_s=0.3 if {"hang", "drip"} & {str(a) for a in answers} else 10.0))
    told.notifier.send(notice())
    told.until(lambda: bool(told.events))
    assert [(e.kind, e.data["tries"]) for e in told.events] == [(kind, tries)]
    assert why in told.events[0].text
    assert len(receiver.got) == tries
    assert told.notifier.waiting("team") == 0


def test_a_page_outlives_the_retries_of_other_notices_until_the_receiver_answers_again(receiver: Receiver, tmp_path: Path) -> None:
    receiver.answers = [500] * 20
    told = Told(tmp_path, channel(receiver), replace(PACE, page_kept=3_600.0))
    told.notifier.send(notice(level="info"))
    told.notifier.send(notice(level="page"))
    told.until(lambda: not receiver.answers and len(told.events) == 2)
    assert [(e.kind, e.data["tries"]) for e in told.events] == [("notify.failed", 3), ("notify.delivered", 18)]


def test_what_is_tried_again_holds_up_no_later_page_of_its_own_or_another_cause(receiver: Receiver, tmp_path: Path) -> None:
    receiver.answers = [500]
    told = Told(tmp_path, channel(receiver), replace(PACE, retries=(3_600.0,), page_kept=7_200.0, longest=3_600.0))
    told.notifier.send(notice("chat-1"))
    told.until(lambda: len(receiver.got) == 1)
    receiver.answers = [500]
    told.notifier.send(notice("chat-2"))
    told.until(lambda: len(receiver.got) == 2)
    assert "2 cells" in json.loads(receiver.got[1][2])["text"], "they go together"
    told.notifier.send(notice("sum-1", cause="evidence.provider"))
    told.until(lambda: len(told.events) == 2)
    assert [e.data["cause"] for e in told.events] == ["evidence.provider", "home.rolled_back"], "who answers again is told of all"
    assert told.notifier.waiting("team") == 0


def test_a_stray_file_ends_no_channel(receiver: Receiver, tmp_path: Path) -> None:
    folder = tmp_path / "team"
    folder.mkdir()
    (folder / "x.json").write_text("{}")
    (folder / f"{0:020d}-1-1.json").write_text("half a fi")
    (folder / f"{0:020d}-1-2.json").mkdir()
    told = Told(tmp_path, channel(receiver))
    told.notifier.send(notice())
    told.until(lambda: bool(told.events))
    assert [e.kind for e in told.events] == ["notify.delivered"]
    assert {p.name for p in folder.iterdir()} == {".lock", "x.json", f"{0:020d}-1-2.json"}


def test_a_tick_and_going_home_never_wait_for_a_receiver(receiver: Receiver, tmp_path: Path) -> None:
    receiver.answers = ["hang"] * 50
    told = Told(tmp_path, channel(receiver, call_s=30))
    s = Simulation(of=quick(), failing=0.5)
    s.notices = told.notifier  # type: ignore[assignment]
    s.begin()
    s.run(120, lambda: bool(s.rollout().ended))
    assert (s.rollout().ended, s.bp()) == ("rolled_back", 0)
    told.until(lambda: len(receiver.got) == 1)
    assert told.events == [], "home long before the receiver has said a word"


def test_what_a_process_could_not_send_the_next_one_sends(receiver: Receiver, tmp_path: Path) -> None:
    receiver.answers = [500] * 3
    first = Told(tmp_path, channel(receiver))
    first.notifier = SpooledNotifier(
        [channel(receiver)], tmp_path, first.first, FakeClock(), first.events.append, pace=replace(PACE, retries=(60.0,))
    )
    first.notifier.send(notice())
    first.until(lambda: len(receiver.got) == 1)
    first.notifier.close()
    assert first.events == []
    assert first.notifier.waiting("team") == 1
    receiver.answers = []
    second = Told(tmp_path, channel(receiver))
    second.notifier.start()
    second.until(lambda: bool(second.events))
    assert second.events[0].kind == "notify.delivered"


@pytest.mark.parametrize("lacks", ["a folder", "space"])
def test_what_no_file_can_hold_is_sent_from_memory_and_files_are_used_again_later(
    lacks: str, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_full = [True]
    opened = os.open

    def full(path: str | Path, flags: int, mode: int = 0o777) -> int:
        if is_full[0] and str(path).startswith(str(tmp_path)):
            raise OSError(errno.ENOSPC, "no space")
        return opened(path, flags, mode)

    if lacks == "a folder":
        (tmp_path / "team").write_text("in the way")
    else:
        monkeypatch.setattr(os, "open", full)
    receiver.answers = [500]
    told = Told(tmp_path, channel(receiver))
    told.notifier.send(notice())
    told.until(lambda: len(told.events) == 1)
    assert (told.events[0].kind, len(receiver.got)) == ("notify.delivered", 2)
    is_full[0] = False
    if lacks == "a folder":
        (tmp_path / "team").unlink()
    told.notifier.send(notice(text="another", cause="evidence.provider"))
    told.until(lambda: len(told.events) == 2)
    assert (tmp_path / "team" / ".lock").exists()
    assert told.notifier.waiting("team") == 0


def test_who_may_not_send_the_folders_notices_still_sends_what_only_memory_holds(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Told(tmp_path, channel(receiver)), Told(tmp_path, channel(receiver))
    first.notifier.send(notice())
    first.until(lambda: len(first.events) == 1)
    put = SpooledNotifier._put
    monkeypatch.setattr(SpooledNotifier, "_put", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "no space")))
    second.notifier.send(notice(text="another"))
    second.until(lambda: len(second.events) == 1)
    monkeypatch.setattr(SpooledNotifier, "_put", put)
    second.notifier.send(notice(text="a third"))
    second.until(lambda: len(first.events) == 2)
    assert len(second.events) == 1, "the file is the first one's to send"


def test_a_secret_that_is_missing_a_full_spool_and_an_audit_that_is_down_end_no_channel(receiver: Receiver, tmp_path: Path) -> None:
    def missing(ref: SecretRef) -> str:
        raise CredentialsMissing("credentials.missing", f"the variable {ref.name} is not set.")

    refs = {"url": SecretRef(kind="env", name="HOOK")}
    to = Channel(Connection(name="team", kind="slack", secrets=refs), "lab", missing)
    told = Told(tmp_path / "a", to)
    told.notifier.send(notice())
    told.until(lambda: bool(told.events))
    assert "credentials.missing" in told.events[0].text
    (tmp_path / "b").write_text("no folder")
    full = Told(tmp_path / "b", channel(receiver))
    full.notifier.send(notice())
    full.until(lambda: len(receiver.got) == 1)

    def fails(_: Event) -> None:
        raise StoreUnavailable("store.unreachable", "the disk is gone.")

    broken = Told(tmp_path / "c", channel(receiver))
    broken.notifier._record = fails
    broken.notifier.send(notice())
    broken.until(lambda: len(receiver.got) == 2)


def test_only_what_a_channel_wants_reaches_it(receiver: Receiver, tmp_path: Path) -> None:
    told = Told(tmp_path, channel(receiver, least="page"))
    told.notifier.send(notice(level="info"))
    told.notifier.send(notice(level="page"))
    told.until(lambda: bool(told.events))
    assert len(receiver.got) == 1


@pytest.mark.parametrize("ended", ["complete", "rolled_back", "aborted", "fell_back", "lost_evidence"])
def test_every_terminal_state_is_told_with_its_cause(ended: str) -> None:
    s = Simulation(of=quick(), failing=0.5 if ended == "rolled_back" else 0.0)
    s.begin()
    if ended in ("aborted", "fell_back", "lost_evidence"):
        s.run(120, lambda: s.bp() > 0)
        if ended == "lost_evidence":
            s.evidence.down = True
        else:
            s.store.order(CELL, Order(kind="abort" if ended == "aborted" else "fallback", actor=PERSON, at=s.clock.now()))
    s.run(600, lambda: bool(s.rollout().ended))
    assert s.rollout().ended == ended
    last = s.notices.sent[-1]
    assert last.data["ended"] == ended
    assert last.data["cause"] == ("complete" if ended == "complete" else f"home.{ended}")


@pytest.mark.parametrize(
    ("url", "safe"),
    [
        ("https://hooks.example.com/x", True),
        ("http://127.0.0.1:80/x", True),
        ("http://hooks.example.com/x", False),
        ("file:///etc/passwd", False),
        ("https://", False),
        ("https://h:99999/", False),
        ("https://h/\r\nx: y", False),
    ],
)
def test_a_message_goes_over_tls_or_stays_on_this_machine(url: str, safe: bool) -> None:
    assert is_safe_url(url) is safe


def test_what_a_channel_lacks_is_told_with_the_file() -> None:
    assert list(check_notify("webhook", {}, ["url"])) == ["webhook needs secrets.key, by reference: {kind: env, name: VARIABLE}"]
    assert list(check_notify("slack", {"least": "loud"}, ["url", "key"]))[-1].startswith("settings.least must be one of")
    assert next(check_notify("pagerduty", {"url": "http://far.example/"}, ["key"])).startswith("settings.url")


def test_times_of_the_pace_are_bounded() -> None:
    pace = Pace()
    assert sum(pace.retries) + 5 * 5.0 < timedelta(minutes=5).total_seconds()
    waits = [pace.wait_after(n) for n in range(1, 60)]
    assert waits == sorted(waits)
    assert waits[:6] == [1.0, 5.0, 20.0, 60.0, 120.0, 240.0]
    assert waits[-1] == pace.longest <= 3_600 <= pace.page_kept <= 86_400
