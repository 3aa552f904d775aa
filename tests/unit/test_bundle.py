"""The evidence bundle: private, whole enough for a ticket, and without any secret or customer's word, wherever they were planted."""

from __future__ import annotations

import json
import re
import stat
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.adapters.runbooks import JournalFile, RehearsalFile
from fleetctl.adapters.store.sqlite import SqliteStore
from fleetctl.cli.main import cli
from fleetctl.domain.event import Event
from fleetctl.domain.ids import CellId, PlanId, Sha256
from fleetctl.domain.people import Actor
from fleetctl.domain.plan import Approval
from fleetctl.domain.provision import Drill
from fleetctl.domain.runbook import JournalLine, Timing
from fleetctl.errors import FleetctlError
from fleetctl.usecases.bundle import gather
from fleetctl.views.redact import Redactor, secret_variables

AT = datetime(2026, 11, 30, tzinfo=UTC)
PLANTED = {
    "variable": "canary-env-4f1b9c",
    "file": "canary-file-77ae01",
    "url": "canary-url-90bb12",
    "bearer": "canary-bearer-55dd",
    "password": "canary-password-1a2b",
    "aws": "AKIACANARYCANARY1234",
    "jwt": "eyJjYW5hcnkiOiJ5In0.eyJjYW5hcnkiOjF9.c2ln",
    "hub": "hf_canaryCANARYcanary",
    "pem": "canaryMIIBOgIBAAJB",
    "signed": "canary-sig-88",
    "prompt": "canary: write my will",
    "cookie": "canary-cookie-1c1c",
    "basic": "Y2FuYXJ5OmJhc2lj",
    "sas": "canarysas%2Fab12",
    "account": "canaryaccountkey99==",
    "github": "ghp_canaryCANARYcanary12",
    "gitlab": "glpat-canaryCANARY123",
    "slack": "xoxb-canary-11-22-aabb",
    "api": "canary-api-key-4242",
    "session": "canary-session-token-9",
    "client": "canary-client-secret-7",
}
SAID = {
    "url": "asked https://ops:{}@router.example/stats",
    "bearer": "Authorization: Bearer {}",
    "password": "login failed with password={}",
    "aws": "no rights for {}",
    "jwt": "token {} is over",
    "hub": "the hub refuses {}",
    "pem": "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----",
    "signed": "GET https://store/x?X-Amz-Signature={}&y=1",
    "variable": "the endpoint answered {} back",
    "file": "prefix{}suffix",
    "cookie": "sent Cookie: {}",
    "basic": "Authorization: Basic {}",
    "sas": "GET https://store/x?sv=1&sig={}&se=2",
    "account": "AccountName=a;AccountKey={};EndpointSuffix=core",
    "github": "fatal: bad credentials for {}",
    "gitlab": "runner with {} is gone",
    "slack": "webhook refuses {}",
    "api": "curl -H api-key={} failed",
    "session": "X-Amz-Security-Token={}&z",
    "client": "client_secret={} is over",
}


def _workspace(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A workspace with a store in which everything that can hold a text holds a secret."""
    assert CliRunner().invoke(cli, ["-C", str(folder), "init", "site"]).exit_code == 0
    secret = folder / "password"
    secret.write_text(PLANTED["file"] + "\n")
    secret.chmod(0o600)
    monkeypatch.setenv("SITE_API_TOKEN", PLANTED["variable"])
    file = folder / "inventory" / "site" / "fleet.yaml"
    text, n = re.subn(r"(?m)^(    secrets:\n)(      pin_key:)", rf"\1      other: {{kind: file, name: {secret}}}\n\2", file.read_text())
    file.write_text(text)
    assert n == 1, text
    store = SqliteStore(folder / ".fleetctl" / "store.db")
    who = Actor(kind="person", name="ada")
    for kind, said in SAID.items():
        full = said.format(PLANTED[kind])
        store.append((Event(at=AT, kind="test.event", actor=who, text=full, data={"detail": full, "prompt": PLANTED["prompt"]}),))
        store.put(kind, Approval(plan=PlanId("p1"), plan_digest=Sha256("0" * 64), actor=who, at=AT, note=full))
        timing = Timing(
            at=AT, actor=who, cell=CellId("chat-lab"), runbook="errors", fault="errors", detect_s=1.0, decide_s=1.0, zero_s=1.0,
            verified_s=2.0, by="judge", is_ok=False, detail=full,
        )  # fmt: skip
        RehearsalFile(folder / ".fleetctl" / "runbooks").add(timing)
        line = JournalLine(run="r1", digest="d", at=AT, actor=who, step="look", state="failed", detail=full)
        JournalFile(folder / ".fleetctl" / "runbooks", CellId("chat-lab"), "errors").append(line)
        store.put(f"drill-{kind}", Drill(at=AT, actor=who, ms_to_zero=1.0, ok=False, detail=full, cell=CellId("chat-lab")))
    store.close()


WHOLE = {
    "versions", "doctor", "settings", "ways_home", "rehearsals", "runbook_runs", "fleet", "plan", "approvals", "drills", "audit", "events",
    "rollouts", "looks",
}  # fmt: skip
"""What whoever helps needs: what runs here, what is wanted, who said yes, what happened, what was measured, how it was rehearsed."""


def test_a_bundle_is_private_and_holds_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _workspace(tmp_path, monkeypatch)
    file = tmp_path / "evidence.tar.gz"
    done = CliRunner().invoke(cli, ["-C", str(tmp_path), "doctor", "--bundle", str(file)])
    assert file.exists(), done.output
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with tarfile.open(file) as archive:
        texts = {m.name.partition("/")[2]: archive.extractfile(m).read().decode() for m in archive.getmembers()}  # type: ignore[union-attr]
    whole = done.output + "".join(texts.values())
    assert len(PLANTED) >= 20
    assert [kind for kind, value in PLANTED.items() if value in whole] == []
    assert {f"{name}.jsonl" for name in WHOLE} | {"manifest.json"} == set(texts)
    for part in ("rehearsals", "runbook_runs", "drills"):
        assert texts[f"{part}.jsonl"].count("\n") == len(SAID), part
    assert (tmp_path / ".fleetctl" / "key").read_text().strip() not in whole
    assert texts["events.jsonl"].count('"test.event"') == len(SAID)
    assert "[secret SITE_API_TOKEN]" in texts["events.jsonl"]
    assert "login failed with password=[hidden]" in texts["events.jsonl"], "what happened stays readable"
    assert {p["file"] for p in json.loads(texts["manifest.json"])} | {"manifest.json"} == set(texts)
    again = CliRunner().invoke(cli, ["-C", str(tmp_path), "doctor", "--bundle", str(file)])
    assert "usage.bundle" in f"{again.output}{again.exception}", "nothing is overwritten"


def test_a_part_that_cannot_be_read_hides_no_other() -> None:
    def broken() -> tuple[object, ...]:
        raise OSError("disk with hunter2-secret on it")

    made = gather({"a.jsonl": broken, "b.jsonl": lambda: ({"n": 1},)}, Redactor({"X": "hunter2-secret"}))
    assert made.files["b.jsonl"] == '{"n": 1}\n'
    assert [p.missing for p in made.parts] == ["OSError: disk with [secret X] on it", ""]


def test_nothing_is_written_where_a_secret_would_be_left() -> None:
    class Blind(Redactor):
        def value(self, value: object, key: str = "") -> object:
            return value

    with pytest.raises(FleetctlError, match="would still hold X") as e:
        gather({"a.jsonl": lambda: ({"n": "hunter2-secret"},)}, Blind({"X": "hunter2-secret"}))
    assert "hunter2-secret" not in str(e.value)


def test_numbers_stay_and_words_of_customers_go() -> None:
    row = {"prompt_tokens": 12, "token": 7, "messages": [{"content": "hello"}], "output": "x", "accessToken": "abc", "digest": "a" * 64}
    shown = Redactor({}).value(row)
    assert shown == row | {"messages": "[hidden]", "output": "[hidden]", "accessToken": "[hidden]"}
    found = secret_variables({"A_KEY": "1", "PATH": "2", "PGPASSWORD": "3", "ROUTER": "4"}, ["ROUTER"])
    assert sorted(found) == ["A_KEY", "PGPASSWORD", "ROUTER"]


@given(st.text(min_size=8, max_size=40).filter(lambda s: len(s.strip()) >= 8), st.text(max_size=20), st.text(max_size=20))
def test_a_known_secret_is_found_inside_any_text(secret: str, before: str, after: str) -> None:
    made = gather({"a.jsonl": lambda: ({"k": f"{before}{secret}{after}", secret: 1},)}, Redactor({"X": secret}))
    row = json.loads(made.files["a.jsonl"])
    assert secret.strip() not in str(row.get("k", "")).replace("[secret X]", "")
