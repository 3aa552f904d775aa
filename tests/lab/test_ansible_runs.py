"""What real ansible-playbook runs do with hostile, secret, unhealthy, slow and interrupted things."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fleetctl.adapters.ansible import settings
from fleetctl.adapters.ansible.configurator import AnsibleConfigurator
from fleetctl.adapters.ansible.inventory import LocalPlace, inventory_list
from fleetctl.domain.ids import HostId, Token
from fleetctl.domain.pool import Host
from fleetctl.domain.provision import HostResult, Progress
from fleetctl.errors import ConfigureFailed
from tests.fakes import ansible_world as world

pytestmark = pytest.mark.lab
SECRET = "s3cr3t-9f41c7"


@dataclass(kw_only=True)
class Served:
    """One good run over one host, and what was seen while it lasted."""

    folder: Path
    host: Host
    units: list[dict[str, object]]
    results: tuple[HostResult, ...] = ()
    seen: list[Progress] = field(default_factory=list)
    lines: set[str] = field(default_factory=set)

    @property
    def host_folder(self) -> Path:
        return self.folder / "hosts" / self.host.id

    def run(self, play: str, token: int, units: Sequence[dict[str, object]] | None = None, *, check: bool = False) -> HostResult:
        made = AnsibleConfigurator(world.PLAYBOOKS, self.folder / "run", sys.executable, timeout_s=120, check=check)
        variables: dict[str, object] = {"serving_answer_wait": 2}
        if units is not None:
            variables["by_host"] = {self.host.id: {"lab_serving_units": units}}
        self.results = made.run(play, [self.host], variables, Token(token), self._see)
        return self.results[0]

    def _see(self, progress: Progress) -> None:
        self.seen.append(progress)
        self.lines |= set(world.command_lines().values())


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    payload = f"m{{{{ lookup('pipe', 'touch {folder}/owned-by-model') }}}}"
    host = world.local_host(folder / "hosts", "host-1")
    units = [
        world.unit(host, "chat-lab-c1", model=payload, env={"TOKEN": SECRET, "THREADS": "1", "OTHER": f"$(touch {folder}/owned-by-shell)"})
    ]
    s = Served(folder=folder, host=host, units=units)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(world.ROOT))
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        patch.setenv("ANSIBLE_STDOUT_CALLBACK", "no_such_callback")
        s.run("serving", 1, units)
        yield s
    world.stop_units(folder / "hosts")


def test_a_template_in_a_model_name_stays_letters(served: Served) -> None:
    assert [r.state for r in served.results] == ["ok"]
    unit = json.loads((served.host_folder / "chat-lab-c1.json").read_bytes())
    assert unit == served.units[0]["content"]
    assert "lookup('pipe'" in unit["config"]["model"]
    assert not list(served.folder.glob("owned*"))


def test_no_secret_is_in_a_command_line_an_event_or_a_file_of_the_run(served: Served) -> None:
    assert any("ansible-playbook" in line for line in served.lines)
    assert not [line for line in served.lines if SECRET in line]
    kept = [p for p in (served.folder / "run").rglob("*") if p.is_file()]
    assert {"events.jsonl", "output.log", "ansible.cfg"} <= {p.name for p in kept}
    assert not [p for p in kept if SECRET.encode() in p.read_bytes()]
    assert not [p for p in kept if p.name == "inventory.yml"]


def test_what_a_run_writes_is_for_its_owner_only(served: Served) -> None:
    written = [*served.host_folder.glob("*.json"), *(served.folder / "run").glob("ansible-*/*.*")]
    assert len(written) >= 6
    assert {stat.S_IMODE(p.stat().st_mode) for p in written if p.is_file()} == {0o600}


def test_what_serves_inherits_nothing_of_the_run(served: Served) -> None:
    pid = json.loads((served.host_folder / "chat-lab-c1.pid").read_bytes())["pid"]
    names = {v.partition(b"=")[0] for v in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")}
    assert b"THREADS" in names
    assert not [n for n in names if n.startswith((b"FLEETCTL_", b"ANSIBLE_", b"AWS_"))]


def test_the_manifest_names_versions_and_digests(served: Served) -> None:
    manifest = AnsibleConfigurator(world.PLAYBOOKS, served.folder / "run", sys.executable).manifest(HostId("host-1"))
    marker = json.loads((served.host_folder / "fleetctl-units.json").read_bytes())
    assert marker["token"] == 1
    assert manifest["unit.chat-lab-c1"] == marker["units"]["chat-lab-c1"]
    assert {"ansible", "python", "gate"} < set(manifest)


def test_check_mode_predicts_and_changes_nothing_then_the_run_replaces(served: Served) -> None:
    new = [world.unit(served.host, "chat-lab-c2")]
    before = {p: p.read_bytes() for p in served.host_folder.glob("*.json")}
    predicted = served.run("serving", 2, new, check=True)
    assert (predicted.state, predicted.changed, predicted.failed) == ("ok", 2, 0)
    assert {p: p.read_bytes() for p in served.host_folder.glob("*.json")} == before
    assert not world.is_running(served.host_folder, "chat-lab-c2")

    done = served.run("serving", 2, new)
    assert (done.state, done.changed) == ("ok", predicted.changed)
    assert world.is_running(served.host_folder, "chat-lab-c2")
    assert not world.is_running(served.host_folder, "chat-lab-c1")
    assert not (served.host_folder / "chat-lab-c1.json").exists()

    undone = served.run("stop_serving", 3)
    assert (undone.state, undone.changed) == ("ok", 2)
    assert sorted(p.name for p in served.host_folder.glob("*.json")) == ["fleetctl-units.json"]
    assert not world.is_running(served.host_folder, "chat-lab-c2")


def test_an_answer_without_a_token_does_not_pass_the_gate(served: Served) -> None:
    result = served.run("serving", 4, [world.unit(served.host, "chat-lab-c3", tokens=0, env={"TOKEN": SECRET})])
    assert result.state == "failed"
    assert "completion" in result.detail
    assert not (served.host_folder / "manifest.json").exists()
    assert "running" in {p.state for p in served.seen}
    assert not [p for p in (served.folder / "run").rglob("*") if p.is_file() and SECRET.encode() in p.read_bytes()]


WAVES = """\
---
- name: Waves
  hosts: all
  gather_facts: false
  serial: "{{ node_serial | default('100%') }}"
  max_fail_percentage: "{{ node_max_fail | default(0) }}"
  tasks:
    - name: Fail on the first host
      ansible.builtin.assert:
        that: inventory_hostname != 'host-1'
"""


@pytest.mark.parametrize(
    ("asked", "reached"),
    [
        ({"node_serial": [2, "100%"]}, ["host-1", "host-2"]),
        ({"node_serial": 2, "node_max_fail": 50}, ["host-1", "host-2", "host-3"]),
    ],
    ids=str,
)
def test_hosts_are_made_in_the_waves_that_are_asked_for(tmp_path: Path, asked: dict[str, object], reached: list[str]) -> None:
    books = world.slow_playbooks(tmp_path / "books")
    (books / "waves.yml").write_text(WAVES)
    hosts = [world.local_host(tmp_path / "hosts", f"host-{n}") for n in (1, 2, 3)]
    seen: list[Progress] = []
    made = AnsibleConfigurator(books, tmp_path / "run", sys.executable, timeout_s=60)
    results = made.run("waves", hosts, asked, Token(1), seen.append)
    assert sorted({p.subject for p in seen if p.state == "started"}) == reached
    assert [r.state for r in results if r.host == "host-1"] == ["failed"]


LAST_WAVE_HANGS = WAVES.replace("Fail on the first host", "Take long on the last host").replace(
    "ansible.builtin.assert:\n        that: inventory_hostname != 'host-1'",
    "ansible.builtin.command:\n        argv: [/bin/sleep, \"{{ '304.25' if inventory_hostname == 'host-3' else '0' }}\"]",
)


def test_hosts_whose_wave_was_over_are_finished_when_the_run_is_cancelled(tmp_path: Path) -> None:
    books = world.slow_playbooks(tmp_path / "books")
    (books / "waves.yml").write_text(LAST_WAVE_HANGS)
    hosts = [world.local_host(tmp_path / "hosts", f"host-{n}") for n in (1, 2, 3)]
    made, finished = AnsibleConfigurator(books, tmp_path / "run", sys.executable, timeout_s=60), []

    def cancel_at_the_last(p: Progress) -> None:
        if p.last:
            finished.append(p.subject)
        if p.subject == "host-3":
            made.cancel()

    results = made.run("waves", hosts, {"node_serial": 1}, Token(1), cancel_at_the_last)
    assert finished == ["host-1", "host-2"]
    assert [r.state for r in results] == ["ok", "ok", "cancelled"]
    assert not world.processes_with("sleep 304.25")


def _slow(folder: Path, seconds: Callable[[], float] = time.monotonic) -> tuple[AnsibleConfigurator, Host]:
    books = world.slow_playbooks(folder / "books")
    made = AnsibleConfigurator(books, folder / "run", sys.executable, timeout_s=60, seconds=seconds)
    return made, world.local_host(folder / "hosts", "host-1")


def test_a_run_that_is_too_long_is_ended_with_all_it_started(tmp_path: Path) -> None:
    now = [0.0]
    made, host = _slow(tmp_path, lambda: now[0])

    def let_time_pass_when_at_work(progress: Progress) -> None:
        assert world.eventually(lambda: bool(world.processes_with("/bin/sleep 301.25")))
        now[0] = 61.0

    with pytest.raises(ConfigureFailed) as caught:
        made.run("slow", [host], {"slow_seconds": "301.25"}, Token(1), let_time_pass_when_at_work)
    assert caught.value.code == "configure.timeout"
    assert "host-1 was at 'Take long'" in caught.value.message
    assert not world.processes_with("sleep 301.25")
    assert not world.processes_with(str(tmp_path))


def test_cancelling_a_task_at_work_leaves_nothing(tmp_path: Path) -> None:
    made, host = _slow(tmp_path)

    def cancel_when_at_work(progress: Progress) -> None:
        assert world.eventually(lambda: bool(world.processes_with("sleep 302.25")))
        made.cancel()

    results = made.run("slow", [host], {"slow_seconds": "302.25"}, Token(1), cancel_when_at_work)
    assert [r.state for r in results] == ["cancelled"]
    assert not world.processes_with("sleep 302.25")
    assert not world.processes_with(str(tmp_path))


def test_a_run_ends_when_the_program_that_watches_it_is_killed(tmp_path: Path) -> None:
    world.slow_playbooks(tmp_path / "books")
    host = world.local_host(tmp_path / "hosts", "host-1")
    code = (
        "import sys; from pathlib import Path; from fleetctl.adapters.ansible.configurator import AnsibleConfigurator as A\n"
        "from fleetctl.domain.pool import Host\n"
        f"h = Host(id='host-1', pool='mi300x-lab', address='127.0.0.1', connection='local', variables={host.variables!r})\n"
        f"A(Path({str(tmp_path / 'books')!r}), Path({str(tmp_path / 'run')!r}), sys.executable)"
        ".run('slow', [h], {'slow_seconds': '303.25'}, 1, lambda p: None)\n"
    )
    watcher = subprocess.Popen([sys.executable, "-c", code], cwd=world.ROOT, env={**os.environ, "PYTHONPATH": str(world.ROOT)})
    try:
        assert world.eventually(lambda: bool(world.processes_with("/bin/sleep 303.25")))
    finally:
        watcher.send_signal(signal.SIGKILL)
        watcher.wait()
    assert world.eventually(lambda: not world.processes_with("sleep 303.25") and not world.processes_with(str(tmp_path)))


def test_a_playbook_that_cannot_be_read_is_broken_with_its_reason(tmp_path: Path) -> None:
    made, host = _slow(tmp_path)
    (tmp_path / "books" / "slow.yml").write_text("- hosts: all\n  taskz: []\n")
    with pytest.raises(ConfigureFailed) as caught:
        made.run("slow", [host], {}, Token(1), lambda _: None)
    assert caught.value.code == "configure.broken"
    assert "taskz" in caught.value.message


def test_a_template_stays_letters_in_the_list_form_too(tmp_path: Path) -> None:
    texts = {"a": f"{{{{ lookup('pipe', 'touch {tmp_path}/owned') }}}}", "b": "1", "c": "null"}
    host = Host(id=HostId("host-1"), pool=world.POOL, address="127.0.0.1", connection="local", variables=tuple(texts.items()))
    place = LocalPlace(python=sys.executable, tmp=str(tmp_path / "tmp"))
    script, book, found = tmp_path / "hosts.py", tmp_path / "book.yml", tmp_path / "found.json"
    script.write_text(f"#!{sys.executable}\nprint({inventory_list([host], local=place)!r})\n")
    script.chmod(0o700)
    task = {"name": "Keep", "ansible.builtin.copy": {"dest": str(found), "content": "{{ [a, b, c] | to_json }}", "mode": "0600"}}
    book.write_text(json.dumps([{"hosts": "pool_mi300x_lab", "gather_facts": False, "tasks": [task]}]))
    env = settings.environment(settings.write_settings(tmp_path, world.PLAYBOOKS, forks=1), tmp_path / "events.jsonl", os.environ)
    env["ANSIBLE_INVENTORY_ENABLED"] = "ansible.builtin.script"
    done = subprocess.run([settings.find_program(), "-i", script, book], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(found.read_bytes()) == list(texts.values())
    assert not (tmp_path / "owned").exists()
