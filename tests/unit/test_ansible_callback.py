"""The callback that runs inside Ansible: what it writes, and what it must not."""

from __future__ import annotations

import importlib.util
import json
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

PLUGIN = Path(__file__).resolve().parents[2] / "playbooks" / "plugins" / "callback" / "fleetctl_events.py"


@pytest.fixture
def plugin() -> Any:
    pytest.importorskip("ansible", reason="ansible-core is a dependency of fleetctl")
    spec = importlib.util.spec_from_file_location("fleetctl_events", PLUGIN)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def events(plugin: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    path = tmp_path / "events.jsonl"
    monkeypatch.setenv("FLEETCTL_EVENTS", str(path))
    callback = plugin.CallbackModule()

    def read() -> list[dict[str, Any]]:
        return [json.loads(line) for line in path.read_text().splitlines()]

    yield SimpleNamespace(callback=callback, read=read, path=path)
    callback._file.close()


def _result(fields: dict[str, Any], *, no_log: bool = False) -> Any:
    host = SimpleNamespace(get_name=lambda: "host-1")
    task = SimpleNamespace(_uuid="u", no_log=no_log, action="ansible.builtin.command", get_name=lambda: "T")
    return SimpleNamespace(host=host, task=task, result=fields)


def test_each_event_is_on_disk_at_once_and_only_for_its_owner(events: Any) -> None:
    r = _result({"changed": True, "stdout": "secret-out"})
    events.callback.v2_runner_on_start(r.host, r.task)
    assert [e["event"] for e in events.read()] == ["start"]
    events.callback.v2_runner_on_ok(r)
    done = events.read()[1]
    assert (done["event"], done["host"], done["task"], done["state"]) == ("result", "host-1", "T", "changed")
    assert 0 <= done["seconds"] < 10
    assert "secret-out" not in events.path.read_text()
    assert stat.S_IMODE(events.path.stat().st_mode) == 0o600


def test_a_failure_gives_a_short_flat_message(events: Any) -> None:
    events.callback.v2_runner_on_failed(_result({"msg": "no\x1b[31m\nway " + "x" * 5000}))
    events.callback.v2_runner_on_failed(
        _result({"msg": "One or more items failed", "results": [{"msg": "fine"}, {"failed": True, "msg": "item two"}]})
    )
    events.callback.v2_runner_on_unreachable(_result({"unreachable": True, "msg": "refused"}))
    first, second, third = events.read()
    assert first["text"].startswith("no [31m way x")
    assert len(first["text"]) == 1000
    assert (second["text"], third["text"], third["state"]) == ("item two", "refused", "unreachable")


@pytest.mark.parametrize(
    ("fields", "no_log"),
    [
        ({"msg": "key=s3cret"}, True),
        ({"msg": "key=s3cret", "_ansible_no_log": True}, False),
        ({"censored": "hidden", "msg": "key=s3cret"}, False),
        ({"results": [{"failed": True, "_ansible_no_log": True, "msg": "key=s3cret"}]}, False),
    ],
)
def test_nothing_of_a_no_log_task_is_written(events: Any, fields: dict[str, Any], no_log: bool) -> None:
    events.callback.v2_runner_on_failed(_result(fields, no_log=no_log))
    assert "s3cret" not in events.path.read_text()
    assert events.read()[0]["text"] == "hidden, because the task is marked no_log"


def test_without_a_file_it_does_nothing(plugin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLEETCTL_EVENTS", raising=False)
    assert plugin.CallbackModule().disabled is True
