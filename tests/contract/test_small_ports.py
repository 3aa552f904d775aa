"""The contracts of Clock, Secrets, Jobs, Notifier, Holds, Capacity and Discovery, on fakes and adapters."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import replace
from datetime import UTC, timedelta
from pathlib import Path

import pytest

from fleetctl.adapters.clock.system import SystemClock
from fleetctl.adapters.jobs.inline import InlineJobs
from fleetctl.adapters.notify.log import LogNotifier
from fleetctl.adapters.nulls import FixedDiscovery, NullHolds, UnknownCapacity
from fleetctl.adapters.secrets.files import FileSecrets
from fleetctl.domain.fleet import SecretRef
from fleetctl.domain.ids import CellId, PoolId, Token
from fleetctl.domain.people import Facts, Gap
from fleetctl.domain.provision import Job
from fleetctl.errors import CredentialsMissing, UsageError
from fleetctl.ports.capacity import Capacity, Discovery
from fleetctl.ports.state import Clock, Jobs, Notifier, Secrets
from fleetctl.ports.traffic import Holds
from tests.fakes.clock import START, FakeClock
from tests.fakes.rollouts import event
from tests.fakes.small import GivenDiscovery, KeptNotices, KnownCapacity, KnownSecrets, ListJobs, OwnedHolds

POOL, CELL = PoolId("nvidia-lab"), CellId("chat-lab")


@pytest.mark.parametrize("clock", [FakeClock(), SystemClock()], ids=["fake", "system"])
def test_clock_is_utc_and_waits_until(clock: Clock) -> None:
    before = clock.now()
    assert before.utcoffset() == timedelta(0)
    assert before.tzinfo is UTC
    clock.wait(before + timedelta(milliseconds=120), lambda: False)
    assert clock.now() >= before + timedelta(milliseconds=119)
    now = clock.now()
    clock.wait(before, lambda: False)
    clock.wait(now + timedelta(hours=1), lambda: True)
    assert clock.now() - now < timedelta(seconds=30)


def test_fake_clock_jumps_and_is_woken() -> None:
    rang: list[int] = []
    clock = FakeClock(step=timedelta(seconds=10), on_step=lambda _: rang.append(1))
    started = time.monotonic()
    clock.wait(START + timedelta(hours=10), lambda: len(rang) == 3)
    assert clock.now() == START + timedelta(seconds=30)
    clock.wait(START + timedelta(days=30), lambda: False)
    assert clock.now() == START + timedelta(days=30)
    assert time.monotonic() - started < 5


@pytest.fixture(params=["fake", "files"])
def secrets(request: pytest.FixtureRequest, tmp_path: Path) -> Secrets:
    (tmp_path / "pin").write_text("s3cret\n")
    (tmp_path / "pin").chmod(0o600)
    if request.param == "fake":
        return KnownSecrets({"pin": "s3cret", "PIN": "from env"})
    return FileSecrets(tmp_path, {"PIN": "from env", "EMPTY": ""})


def test_secrets_are_resolved_or_named(secrets: Secrets) -> None:
    assert secrets.resolve(SecretRef(kind="file", name="pin")) == "s3cret"
    assert secrets.resolve(SecretRef(kind="env", name="PIN")) == "from env"
    for kind, name in (("file", "none"), ("env", "NONE"), ("env", "EMPTY")):
        with pytest.raises(CredentialsMissing) as caught:
            secrets.resolve(SecretRef(kind=kind, name=name))  # type: ignore[arg-type]
        assert caught.value.code == "credentials.missing"


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_secret_file_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "pin"
    path.write_text("s3cret")
    path.chmod(mode)
    with pytest.raises(CredentialsMissing) as caught:
        FileSecrets().resolve(SecretRef(kind="file", name=str(path)))
    assert caught.value.code == "credentials.open_file"
    assert "s3cret" not in str(caught.value)


def test_pipes_folders_and_bytes_are_no_secrets(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "folder").mkdir(mode=0o700)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "empty").write_bytes(b"\n")
    (tmp_path / "big").write_bytes(b"x" * 70_000)
    for name in ("pipe", "folder", "bytes", "empty", "big"):
        if name != "folder":
            (tmp_path / name).chmod(0o600)
        with pytest.raises(CredentialsMissing) as caught:
            FileSecrets(tmp_path).resolve(SecretRef(kind="file", name=name))
        assert caught.value.code == "credentials.missing"


@pytest.mark.parametrize("kind", ["fake", "inline"])
def test_jobs_run_once_each_in_order(kind: str) -> None:
    jobs: Jobs = ListJobs() if kind == "fake" else InlineJobs(FakeClock())
    done: list[str] = []
    handlers = {"scan": lambda j: done.append(f"scan {j.args['n']}"), "drill": lambda j: done.append("drill")}
    jobs.submit(Job(name="drill"), "d", START + timedelta(minutes=5))
    for n in (1, 2):
        jobs.submit(Job(name="scan", args={"n": n}), "same", START)
    jobs.run(handlers, lambda: len(done) == 2)
    assert done == ["scan 1", "drill"]
    jobs.submit(Job(name="drill"), "d", START)
    jobs.submit(Job(name="drill"), "d2", START)
    jobs.run(handlers, lambda: len(done) == 3)
    assert done == ["scan 1", "drill", "drill"]


def test_inline_jobs_wait_by_the_clock_and_name_unknown_work() -> None:
    clock = FakeClock()
    jobs = InlineJobs(clock)
    jobs.submit(Job(name="scan"), "s", START + timedelta(hours=1))
    with pytest.raises(UsageError) as caught:
        jobs.run({}, lambda: False)
    assert caught.value.code == "usage.no_handler"
    assert clock.now() == START + timedelta(hours=1)


def test_notices_are_kept_or_logged_and_never_raise(caplog: pytest.LogCaptureFixture) -> None:
    kept = KeptNotices()
    log = LogNotifier()
    page = replace(event(text="home\nforged line \x1b[2J"), kind="notify.page")
    with caplog.at_level(logging.INFO):
        for notifier in (kept, log):
            as_port: Notifier = notifier
            as_port.send(page)
            as_port.send(event(None))
    assert kept.sent == [page, event(None)]
    assert [r.levelname for r in caplog.records] == ["ERROR", "INFO"]
    assert caplog.messages[0] == "chat-lab notify.page by ann: home\\nforged line \\x1b[2J"
    assert caplog.messages[1].startswith("fleet ")
    log.send(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("holds", [OwnedHolds({POOL: 1}), NullHolds()], ids=["fake", "null"])
def test_holds_pin_and_restore_twice_as_once(holds: Holds) -> None:
    owners = holds.owners(POOL)
    for _ in range(2):
        holds.pin(POOL, 4, Token(1), CELL)
    holds.warm(POOL)
    assert not holds.is_unheld(POOL, CELL)
    for _ in range(2):
        holds.restore(POOL, Token(1), CELL)
    assert holds.owners(POOL) == owners
    if isinstance(holds, OwnedHolds):
        assert holds.minimum == {POOL: 1}


@pytest.mark.parametrize("capacity", [KnownCapacity({"a": 2}), UnknownCapacity()], ids=["fake", "null"])
def test_capacity_answers_what_was_asked(capacity: Capacity) -> None:
    verdict = capacity.verdict("b", "lab", 3, "spot")
    assert (verdict.sku, verdict.region, verdict.count, verdict.priority, verdict.kind) == ("b", "lab", 3, "spot", "unknown")
    assert verdict.reason
    assert KnownCapacity({"a": 2}).verdict("a", "lab", 3, "regular").kind == "no"


@pytest.mark.parametrize("make", [GivenDiscovery, FixedDiscovery], ids=["fake", "fixed"])
def test_discovery_yields_facts_and_gaps_of_a_scope(make: type[FixedDiscovery]) -> None:
    fact = Facts(values={"pool": "nvidia-lab"}, source="file", seen_at=START)
    gap = Gap(scope="aws", reason="no credentials", source="aws")
    found: Discovery = make((fact, gap))
    assert tuple(found.scan("")) == (fact, gap)
    assert tuple(found.scan("aws")) == (gap,)
    assert tuple(found.scan("other")) == ()
