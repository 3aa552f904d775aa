"""Recorded requests: kept under terms, refused against them; what may not be sent again never is; what stands beside them still counts."""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.adapters.paired.replay import load_replay, read_opted_out, replay_body
from fleetctl.adapters.paired.runner import PairedProbes, PairSpec
from fleetctl.adapters.shadow.collector import Collector, read_config
from fleetctl.adapters.shadow.kept import KeepTerms, KeptRequests
from fleetctl.analysis.judge import fresh, judge
from fleetctl.analysis.memory import pack, unpack
from fleetctl.domain.evidence import Arm, Counts, Cursor, Evidence, SignalState
from fleetctl.domain.ids import CellId
from fleetctl.domain.workload import Guardrail, GuardrailSpec
from fleetctl.errors import ConfigInvalid
from fleetctl.formats.fleet_file import parse_fleet
from fleetctl.formats.replay import MOST_KEPT, ReplayHeader, header_line, read_header, read_replay, request_text, tenant_of
from fleetctl.formats.request_copy import Refused
from fleetctl.rollout.gates import gate
from fleetctl.usecases.evidence import WORST, Replayed
from tests.fakes.clock import FakeClock
from tests.fakes.kept_requests import KEY, KEY_ID, KEY_TEXT, sealed_lines, write_recording
from tests.rollouts import T0, all_pass, evidence, rollout, seeing
from tests.unit.test_evidence_in_fleet_file import TEXT
from tests.unit.test_evidence_in_fleet_file import _maker as made_by

CELL = CellId("chat-lab")
NOW = datetime(2026, 12, 1, tzinfo=UTC)
DAY = timedelta(days=1)
HEAD = ReplayHeader(
    cell=CELL, region="lab", recorded=NOW - DAY, expires=NOW + DAY, by="ana", reason="few calls", tenant="user", key_id=KEY_ID
)
CHAT = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 9, "user": "u-17", "metadata": {"key": "secret"}, "model": "m"}
ERRORS = (GuardrailSpec(name=Guardrail("errors"), margin=0.05, fail_margin=0.0),)


def kept(folder: Path, *lines: str, mode: int = 0o600) -> Path:
    (folder / "out.txt").touch()
    path = folder / "kept.jsonl"
    path.write_text("\n".join(lines) + "\n")
    path.chmod(mode)
    return path


def recording(folder: Path, head: ReplayHeader = HEAD, *, mode: int = 0o600) -> Path:
    return kept(folder, *sealed_lines(head, [request_text(CHAT, "u-17")]), mode=mode)


def load(path: Path, now: datetime = NOW, regions: tuple[str, ...] = ("lab",), key: str = KEY_TEXT) -> str:
    """Return why a recording is refused, "" where it is not."""
    try:
        load_replay(path, CELL, regions, now, key, path.parent / "out.txt")
    except ConfigInvalid as e:
        return f"{e.code}: {e.message}"
    return ""


def test_terms_that_are_kept_let_it_be_replayed(tmp_path: Path) -> None:
    path = recording(tmp_path)
    assert load(path) == ""
    replay = load_replay(path, CELL, ("lab",), NOW, KEY_TEXT, tmp_path / "out.txt")
    assert replay.header == HEAD
    assert [r.tenant for r in replay.requests] == ["u-17"]
    assert not any(secret in json.dumps(replay.requests[0].body) for secret in ("u-17", "secret"))
    assert not any(word in path.read_text() for word in ("hello", "u-17", "secret", "messages")), "nothing of it can be read at rest"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"region": "elsewhere"}, "recorded in elsewhere, and chat-lab may be served in lab alone"),
        ({"expires": NOW}, "it expired at 2026-12-01 00:00 UTC"),
        ({"cell": CellId("other")}, "recorded for other, not for chat-lab"),
        ({"by": " "}, "nobody opted in"),
        ({"reason": ""}, "nobody opted in"),
        ({"expires": NOW + MOST_KEPT}, "by at most 30 days"),
        ({"expires": NOW - timedelta(days=2)}, "expires must be after recorded"),
        ({"key_id": "another"}, "encrypted with another key (another)"),
    ],
)
def test_against_its_terms_it_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    found = load(recording(tmp_path, replace(HEAD, **change)))
    assert found.startswith("config.replay: ")
    assert said in found


def test_a_file_that_others_can_read_or_that_is_none_is_refused(tmp_path: Path) -> None:
    assert "can be read by others (mode 0644)" in load(recording(tmp_path, mode=0o644))
    assert "No such file" in load(tmp_path / "nowhere")
    assert "no header of a replay" in load(kept(tmp_path, request_text(CHAT, "a")))
    assert "no JSON" in load(kept(tmp_path, "hello"))
    assert "no request that may be sent again" in load(kept(tmp_path, header_line(HEAD)))
    tools = json.dumps({"tenant": "a", "path": "x", "body": {"tools": [1]}})
    assert "no request that may be sent again (1 tools)" in load(kept(tmp_path, *sealed_lines(HEAD, [tools])))


@pytest.mark.parametrize("key", ["", "short", b64encode(bytes(31)).decode(), b64encode(bytes(32)).decode(), KEY_TEXT + "AAAA"])
def test_what_is_no_key_is_refused_and_never_told(tmp_path: Path, key: str) -> None:
    found = load(recording(tmp_path), key=key)
    assert "is not 32 random bytes" in found
    assert not key or key not in found


def test_plain_text_is_refused_and_terms_that_were_changed_open_nothing(tmp_path: Path) -> None:
    first, line = sealed_lines(HEAD, [request_text(CHAT, "u-17")])
    plain = json.dumps({"path": "chat/completions", "body": CHAT})
    assert "not encrypted (format 1)" in load(kept(tmp_path, first.replace('"v":2', '"v":1'), plain))
    assert "not encrypted by AES-256-GCM" in load(kept(tmp_path, first.replace("AES-256-GCM", "none"), plain))
    assert "1 not_readable" in load(kept(tmp_path, first, plain))
    later = header_line(replace(HEAD, expires=HEAD.expires + timedelta(days=9)))
    assert "1 not_readable" in load(kept(tmp_path, later, line)), "whoever lengthens its life loses it"
    assert "1 not_readable" in load(kept(tmp_path, first, line.replace('"d":"', '"d":"AAAA')))
    assert load(kept(tmp_path, first, line)) == ""


def test_tenants_who_opted_out_are_left_out_at_once_and_an_unreadable_list_stops_all(tmp_path: Path) -> None:
    path = kept(tmp_path, *sealed_lines(HEAD, [request_text(CHAT, "u-17"), request_text({"prompt": "of another"}, "u-18")]))
    out = tmp_path / "out.txt"
    assert load(path) == ""
    out.write_text("# who does not want it\nu-17\n")
    replay = load_replay(path, CELL, ("lab",), NOW, KEY_TEXT, out)
    assert ([r.tenant for r in replay.requests], dict(replay.refused)) == (["u-18"], {"opted_out": 1})
    spec = PairSpec(sides={}, model="m", requests=replay.requests, opted_out=lambda: read_opted_out(out))
    assert spec.body(7, 0, logprobs=False) is not None
    out.write_text("u-17\nu-18\n")
    assert spec.body(7, 1, logprobs=False) is None, "also while the replay runs"
    assert "2 opted_out" in load(path)
    out.unlink()
    assert spec.body(7, 2, logprobs=False) is None
    assert "list of tenants who opted out" in load(path)


@pytest.mark.parametrize(
    ("body", "key", "tenant"),
    [
        (CHAT, "user", "u-17"),
        (CHAT, "metadata.key", "secret"),
        (CHAT, "", "chat-lab"),
        (CHAT, "metadata", None),
        (CHAT, "metadata.org", None),
        (CHAT, "model.x", None),
        ({**CHAT, "user": " "}, "user", None),
        ({**CHAT, "user": 7}, "user", None),
        ("text", "user", None),
    ],
)
def test_whose_a_request_is(body: object, key: str, tenant: str | None) -> None:
    if tenant is None:
        with pytest.raises(Refused, match="no_tenant"):
            tenant_of(body, key, "chat-lab")
    else:
        assert tenant_of(body, key, "chat-lab") == tenant


ACTING = [{**CHAT, "tools": [{}]}, {**CHAT, "n": 2}, {"messages": [{"role": "tool", "content": "x"}]}, {"prompt": [1, 2]}, {}, "text"]


@pytest.mark.parametrize("body", ACTING)
def test_what_may_not_be_sent_again_is_neither_kept_nor_read(body: object) -> None:
    with pytest.raises(Refused):
        request_text(body, "a")
    lines = sealed_lines(HEAD, [json.dumps({"tenant": "a", "body": body}), request_text(CHAT, "a")])
    found = read_replay([line.encode() for line in lines], KEY)
    assert (len(found.requests), sum(found.refused.values())) == (1, 1)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=80).map(str.encode))
def test_no_line_breaks_the_reading_of_a_recording(line: bytes) -> None:
    head, good = (text.encode() for text in sealed_lines(HEAD, [request_text(CHAT, "a")]))
    found = read_replay([head, line.replace(b"\n", b" "), good], KEY)
    assert found.requests[-1].body["messages"] == CHAT["messages"]
    inner = sealed_lines(HEAD, [line.decode("utf-8", "replace"), request_text(CHAT, "a")])
    assert len(read_replay([text.encode() for text in inner], KEY).requests) == 1
    with pytest.raises(ValueError, match=r"."):
        read_header(line)


def test_both_sides_get_it_streamed_greedy_no_longer_than_asked_and_from_no_cache() -> None:
    lines = sealed_lines(HEAD, [request_text(CHAT, "a"), request_text({"prompt": "count", "stop": ["9"]}, "b")])
    replay = read_replay([line.encode() for line in lines], KEY)
    spec = PairSpec(sides={}, model="m", models=("m", "tuned"), requests=replay.requests, max_tokens=4)

    def asked(index: int, *, logprobs: bool) -> tuple[str, dict[str, Any]]:
        found = spec.body(7, index, logprobs=logprobs)
        assert found is not None
        return found

    api, body = asked(0, logprobs=True)
    assert (api, body["temperature"], body["stream"], body["max_tokens"], body["model"]) == ("chat", 0, True, 4, "m")
    assert body["messages"] == [{"role": "user", "content": "[7.0] hello"}]
    api, body = asked(1, logprobs=False)
    assert (api, body["prompt"], body["stop"], "logprobs" in body) == ("completions", "[7.1] count", ["9"], False)
    assert asked(2, logprobs=True)[1]["messages"] != asked(0, logprobs=True)[1]["messages"], "another mark each time round"
    tuned = replace(replay.requests[0], body={**replay.requests[0].body, "model": "tuned"})
    assert replay_body(tuned, "", models=("m", "tuned"), model="m", max_tokens=4, logprobs=False)["model"] == "tuned"
    unknown = replace(tuned, body={**tuned.body, "model": "gone"})
    assert replay_body(unknown, "", models=("m",), model="m", max_tokens=4, logprobs=False)["model"] == "m"


def terms(folder: Path, **more: Any) -> dict[str, Any]:
    """Return what a workload's owner agreed to, its key and its list beside it."""
    (folder / "kept.key").write_text(KEY_TEXT)
    (folder / "kept.key").chmod(0o600)
    (folder / "out.txt").touch()
    row = {"region": "lab", "hours": 2, "by": "ana", "reason": "few calls", "tenant": "user"}
    return {**row, "key_file": str(folder / "kept.key"), "opted_out": str(folder / "out.txt"), **more}


def test_requests_are_kept_only_where_somebody_opted_in_and_only_for_so_long(tmp_path: Path) -> None:
    keeper = KeptRequests(tmp_path, {CELL: KeepTerms(**terms(tmp_path, most=3))})
    body, acts = json.dumps(CHAT).encode(), json.dumps({**CHAT, "tools": [1]}).encode()
    nobodys = json.dumps({**CHAT, "user": None}).encode()
    assert not keeper.add("other", body, NOW), "nobody opted in"
    found = [keeper.add(CELL, b, NOW) for b in (body, b"{", acts, nobodys, body, body, body)]
    assert found == [True, False, False, False, True, True, False]
    path = tmp_path / "replay" / f"{CELL}.jsonl"
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert not any(word in path.read_text() for word in ("u-17", "hello", "messages"))
    assert len(load_replay(path, CELL, ("lab",), NOW, KEY_TEXT, tmp_path / "out.txt").requests) == 3
    after = KeptRequests(tmp_path, {})
    after.look(NOW + timedelta(hours=1))
    assert (path.exists(), after.count(CELL)) == (True, 3), "another process goes on with what is there"
    after.purge(NOW + timedelta(hours=2))
    assert not path.exists(), "its time is over, also where nobody keeps any more"
    assert keeper.add(CELL, body, NOW + timedelta(hours=3)), "and begins anew"
    assert load_replay(path, CELL, ("lab",), NOW + timedelta(hours=4), KEY_TEXT, tmp_path / "out.txt").requests


def test_who_opts_out_is_kept_no_more_and_what_was_kept_of_him_is_removed(tmp_path: Path) -> None:
    keeper = KeptRequests(tmp_path, {CELL: KeepTerms(**terms(tmp_path))})
    ours, theirs = (json.dumps({**CHAT, "user": u}).encode() for u in ("u-17", "u-18"))
    assert all(keeper.add(CELL, b, NOW) for b in (ours, theirs, ours))
    path, out = tmp_path / "replay" / f"{CELL}.jsonl", tmp_path / "out.txt"
    out.write_text("u-17\n")
    keeper.purge(NOW)
    assert keeper.count(CELL) == 1
    out.write_text("")
    assert [r.tenant for r in load_replay(path, CELL, ("lab",), NOW, KEY_TEXT, out).requests] == ["u-18"], "it does not come back"
    assert (path.stat().st_mode & 0o777, [p.name for p in path.parent.iterdir()]) == (0o600, [path.name])
    out.write_text("u-17\n")
    assert [keeper.add(CELL, b, NOW) for b in (ours, theirs)] == [False, True]


@pytest.mark.parametrize("lost", ["out.txt", "kept.key", "open key", "another key"])
def test_where_key_or_list_cannot_be_had_nothing_is_kept(tmp_path: Path, lost: str) -> None:
    keeper = KeptRequests(tmp_path, {CELL: KeepTerms(**terms(tmp_path))})
    assert keeper.add(CELL, json.dumps(CHAT).encode(), NOW)
    if lost == "open key":
        (tmp_path / "kept.key").chmod(0o644)
    elif lost == "another key":
        (tmp_path / "kept.key").write_text(b64encode(bytes(range(1, 33))).decode())
    else:
        (tmp_path / lost).unlink()
    assert not keeper.add(CELL, json.dumps(CHAT).encode(), NOW)
    assert keeper.count(CELL) == 1


def test_plain_text_that_an_older_release_kept_is_removed(tmp_path: Path) -> None:
    (tmp_path / "replay").mkdir()
    old = tmp_path / "replay" / f"{CELL}.jsonl"
    old.write_text(header_line(HEAD).replace('"v":2', '"v":1') + "\n" + json.dumps({"body": CHAT}) + "\n")
    KeptRequests(tmp_path, {}).look(NOW)
    assert not old.exists()


def test_the_collector_keeps_no_text_but_what_its_configuration_lets_it(tmp_path: Path) -> None:
    config = {
        "port": 0,
        "router_url": "http://127.0.0.1:9",
        "pin_key_file": "k",
        "folder": str(tmp_path / "c"),
        "cells": {CELL: {}, "b": {}},
    }
    (tmp_path / "c.json").write_text(json.dumps(config))
    collector = Collector(read_config(str(tmp_path / "c.json")), "key")
    assert collector.take(CELL, json.dumps(CHAT).encode()) == (202, "queued")
    assert not (tmp_path / "c").exists(), "nobody opted in"
    (tmp_path / "c.json").write_text(json.dumps({**config, "keep": {CELL: terms(tmp_path)}}))
    collector = Collector(read_config(str(tmp_path / "c.json")), "key")
    for cell in (CELL, "b"):
        assert collector.take(cell, json.dumps(CHAT).encode()) == (202, "queued")
    assert [p.name for p in (tmp_path / "c" / "replay").iterdir()] == [f"{CELL}.jsonl"]
    for wrong in ({"by": ""}, {"key_file": ""}, {"opted_out": ""}):
        (tmp_path / "c.json").write_text(json.dumps({**config, "keep": {CELL: terms(tmp_path, **wrong)}}))
        with pytest.raises(ConfigInvalid) as caught:
            read_config(str(tmp_path / "c.json"))
        assert caught.value.code == "config.shadow"
    bare = {k: v for k, v in terms(tmp_path).items() if k != "tenant"}
    (tmp_path / "c.json").write_text(json.dumps({**config, "keep": {CELL: bare}}))
    with pytest.raises(ConfigInvalid, match="tenant"):
        read_config(str(tmp_path / "c.json"))


@pytest.mark.parametrize("change", [{"by": ""}, {"reason": " "}, {"region": ""}, {"hours": 721}, {"hours": 0}, {"most": 0}])
def test_terms_without_name_reason_region_or_end_are_refused(change: dict[str, Any]) -> None:
    good: dict[str, Any] = {"region": "lab", "hours": 2, "by": "ana", "reason": "few calls", "tenant": ""}
    good |= {"key_file": "kept.key", "opted_out": "out.txt"}
    with pytest.raises(ValueError, match=r"keep|kept"):
        KeepTerms(**(good | change))


# beside the replay: customers' own requests ---------------------------------------------------------------------------------------


def look(canary_errors: int, *, of: int = 500, state: SignalState = "ok", beside: Evidence | None = None, at: int = 10) -> Evidence:
    arms: dict[Arm, Counts] = {"baseline": Counts(attempts=of), "canary": Counts(attempts=of, errors=canary_errors)}
    outcomes = "x" * canary_errors + "." * (of - canary_errors)
    return Evidence(
        cell=CELL,
        at=T0 + timedelta(seconds=at),
        arms=arms,
        state={"baseline": state, "canary": state},
        cursor=Cursor(position="", since=T0),
        canary_outcomes=outcomes,
        beside=beside,
    )


def test_customers_failures_trip_the_breaker_though_the_replay_passes_and_a_stop_in_between_changes_nothing() -> None:
    state, verdicts = judge(fresh(), look(0, beside=look(0, of=3)), ERRORS)
    assert verdicts[0].kind == "PASS"
    again = pack(unpack(state))
    assert again == state
    _, verdicts = judge(again, look(0, beside=look(20, of=23), at=20), ERRORS)
    assert (verdicts[0].kind, verdicts[-1].guardrail, verdicts[-1].detail) == ("FAIL", "breaker", "customers' own requests")
    assert (verdicts[-1].look.canary_n, verdicts[-1].look.canary_events) == (23, 20)


class Given:
    """A source that answers with one look, or with nothing."""

    def __init__(self, e: Evidence) -> None:
        self.e = e

    def read(self, c: CellId, since: Cursor) -> Evidence:
        return self.e


@pytest.mark.parametrize("state", WORST)
def test_a_silent_log_is_no_lost_evidence_and_a_broken_one_is(state: SignalState) -> None:
    source = Replayed("kept", Given(look(0)), Given(look(0, of=0, state=state)))  # type: ignore[arg-type]
    e = source.read(CELL, Cursor(position="{}", since=T0))
    assert set(e.state.values()) == ({"ok"} if state in ("ok", "empty", "stale") else {state})
    assert e.arms["canary"].attempts == 500
    assert e.customers.arms["canary"].attempts == 0


def test_the_share_that_was_served_is_customers_own() -> None:
    r = replace(rollout(), step=1, settled_at=T0, weight_bp=1000)
    late = T0 + timedelta(hours=1)
    replayed = evidence(late, baseline=500, canary=500)
    few, off = evidence(late, baseline=90, canary=10), evidence(late, baseline=500, canary=500)
    assert not gate(r, seeing(late, 1000, all_pass(late), replayed), late).open, "half of all is not the tenth that was set"
    assert gate(r, seeing(late, 1000, all_pass(late), replace(replayed, beside=few)), late).open
    assert not gate(r, seeing(late, 1000, all_pass(late), replace(replayed, beside=off)), late).open


# the fleet file ---------------------------------------------------------------------------------------------------------------------

ASKED = "  asked: {kind: probes, settings: {pairs_per_s: 2, via: endpoints}}\n"
KEPT = "  kept: {kind: replay, settings: {recording: k, opted_out: o}, secrets: {key: {kind: file, name: k.key}}}\n"
REPLAY = TEXT.replace(ASKED, KEPT).replace("[log, asked, pages, prom]", "[log, kept, prom]")
REPLAY = REPLAY.replace("    engine: vllm\n", "    engine: vllm\n    shadow: {sample_per_s: 1}\n")
REPLAY += "    lane: {kind: replay, reason: few calls, actor: ana}\n"


def test_a_cell_may_go_by_replay() -> None:
    assert parse_fleet(REPLAY, file="f.yaml").cells[0].lane.kind == "replay"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("    lane: {kind: replay, reason: few calls, actor: ana}\n", "", "which only the lane replay uses, not own"),
        ("[log, kept, prom]", "[log, prom]", "needs one source of kind replay, there are 0"),
        ("[log, kept, prom]", "[kept, prom]", "needs log beside it"),
        ("    shadow: {sample_per_s: 1}\n", "", "declare shadow"),
        ("{recording: k, opted_out: o}", "{opted_out: o}", "recording is missing"),
        ("{recording: k, opted_out: o}", "{recording: k}", "opted_out is missing"),
        (", secrets: {key: {kind: file, name: k.key}}", "", "key is missing"),
        ("{recording: k, ", "{recordings: k, ", "did you mean 'recording'"),
        ("{recording: k, ", "{recording: k, max_tokens: 1, ", "is not from 2"),
    ],
)
def test_every_mistake_about_a_replay_is_refused(old: str, new: str, said: str) -> None:
    assert old in REPLAY
    with pytest.raises(ConfigInvalid) as caught:
        parse_fleet(REPLAY.replace(old, new), file="f.yaml")
    assert said in " ".join(caught.value.details)


def test_probes_do_not_lead_since_they_ask_both_arms_alike() -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse_fleet(TEXT.replace("[log, asked, pages, prom]", "[asked, log, pages, prom]"), file="f.yaml")
    assert "asks both arms alike" in " ".join(caught.value.details)


@pytest.mark.parametrize(("margin", "needed"), [("10 points", 30), ("2 points", 150), ("0.5 points", 600)])
def test_a_recording_of_too_few_different_requests_is_refused_before_anything_starts(tmp_path: Path, margin: str, needed: int) -> None:
    """The same requests sent again are no more evidence of what is not among them."""
    errors = f"bake: 0s, guardrails: {{errors: {{margin: {margin}}}, latency: {{margin: 150%}}}}}}"
    steps = f"{{phase: canary, weight: 10%, {errors}, {{phase: ramp, weight: 50%, {errors}, {{phase: complete, weight: 100%}}"
    text = REPLAY.replace(", ttft, token_time, nll, counter_failed_orders", "") + f"policy:\n  steps: [{steps}]\n"
    text = text.replace("recording: k, opted_out: o", "recording: kept.jsonl, opted_out: opted-out.txt").replace("k.key", "kept.key")
    at = FakeClock().now()
    head = replace(HEAD, recorded=at - DAY, expires=at + DAY)
    for different in (needed - 1, needed):
        asked = [{**CHAT, "messages": [{"role": "user", "content": f"say {i % different}"}]} for i in range(2 * needed)]
        write_recording(tmp_path / "kept.jsonl", head, asked)
        maker = made_by(tmp_path, text)
        if different == needed:
            maker.check(CELL)
            continue
        with pytest.raises(ConfigInvalid, match=f"holds {different} different requests, and {needed} are needed"):
            maker.check(CELL)


def test_a_replay_that_is_begun_again_does_not_begin_with_the_same_requests() -> None:
    """What is begun often would never send the last ones."""
    firsts = set()
    for _ in range(3):
        asked: list[int] = []
        has_asked = threading.Event()

        class Told(PairSpec):
            def body(self, seed: int, index: int, *, logprobs: bool) -> None:
                asked.append(index)  # noqa: B023
                has_asked.set()  # noqa: B023

        spec = Told(sides={}, model="m", per_s=1_000.0)
        probes = PairedProbes(lambda c: spec, lambda records: None)  # noqa: B023
        probes.keep(CELL)
        assert has_asked.wait(10)
        probes.close()
        assert asked == list(range(asked[0], asked[0] + len(asked)))
        firsts.add(asked[0])
    assert len(firsts) > 1
