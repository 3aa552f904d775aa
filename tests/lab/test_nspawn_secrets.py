"""Secrets and hostile names on a real host: 20 planted markers are nowhere but in the 0600 file that needs them; no name is ever run."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from fleetctl.errors import ConfigInvalid
from fleetctl.lab.standins import OLD
from tests.lab import nspawn_bench as nb
from tests.lab import nspawn_lab as nl
from tests.lab.nspawn_files import fleetctl, nodes_file

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.timeout(3000),
    pytest.mark.skipif(bool(nl.why_not()), reason=nl.why_not() or "it can"),
]
MARKERS = [f"m4rk3r{n:02d}{os.urandom(6).hex()}" for n in range(20)]
ROLES = ["apt_ready", "accelerator_access", "container_engine", "model_store", "model_server", "health_gate"]
"""Those that are given hostile texts, and what they need."""
CANARY = "/tmp/owned"
HOSTILE = [
    "m{{ lookup('pipe', 'touch /tmp/owned') }}",
    "m{% for c in ().__class__.__mro__ %}{{ c }}{% endfor %}",
    "{{ hostvars }}",
    "$(touch /tmp/owned)",
    "`touch /tmp/owned`",
    "; touch /tmp/owned #",
    "&& touch /tmp/owned",
    "| tee /tmp/owned",
    "%h %n %i %% ${HOME} $HOME",
    "'\"; touch /tmp/owned; '\"",
    "\\x41 \\n \\\\ \\",
    "!unsafe 1",
    "!!python/object/apply:os.system ['touch /tmp/owned']",
    "- a: b # c",
    "null",
    "0x1F",
    "true",
    "{\"__ansible_unsafe\": \"x\"}",
    "{\"__ansible_vault\": \"x\"}",
    "-x --config=/etc/shadow",
    "../../../etc/passwd",
    "\u202egnp.exe \u00e9\u4e2d\U0001f600",
    "a" * 2000,
    "*",
]  # fmt: skip


@pytest.fixture(scope="module")
def bench() -> Iterator[nb.Bench]:
    with nb.bench(1) as made:
        yield made


class Watch:
    """Reads every command line of this machine, its hosts' too, as often as it can."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        self.looks = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.is_set():
            for file in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    line = file.read_bytes()
                    if b"m4rk3r" in line:
                        self.found.add(line.replace(b"\0", b" ").decode(errors="replace"))
            self.looks += 1
            time.sleep(0.1)


def holding(root: Path) -> set[str]:
    """Return the files below a folder that hold a marker, by path."""
    found = set()
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            with suppress(OSError):
                if path.is_file() and not path.is_symlink() and b"m4rk3r" in path.read_bytes():
                    found.add(str(path.relative_to(root)))
    return found


def test_planted_secrets_are_found_nowhere_but_where_they_are_needed(bench: nb.Bench) -> None:
    lab, h = bench.lab, bench.lab.hosts[0]
    workspace = lab.folder / "workspace"
    workspace.mkdir()
    variables = bench.repository.variables()
    files = variables["model_store_files"]
    assert isinstance(files, list)
    files[0]["url"] += f"?sig={MARKERS[0]}&token={MARKERS[1]}"
    files[0]["headers"] = {"Authorization": f"Bearer {MARKERS[2]}", "X-Key": MARKERS[3]}
    (units,) = [variables["model_server_units"]]
    assert isinstance(units, list)
    environment: dict[str, object] = {f"SECRET_{n}": MARKERS[n] for n in range(4, 17)}
    environment |= {f"REF_{n}": {"secret": {"env": f"PLANTED_{n}"}} for n in (17, 18)} | {"REF_19": {"secret": {"file": "token"}}}
    units[0] |= {"environment": environment, "argv": ["/usr/bin/sleep", "infinity"]}  # so that no other role is needed
    variables["model_server_user"] = "root"
    (lab.folder / "token").write_text(MARKERS[19])
    (lab.folder / "token").chmod(0o600)
    path = str(nodes_file(bench, f"standin-{OLD}", variables))
    given = {f"PLANTED_{n}": MARKERS[n] for n in (17, 18)}
    said = []
    with Watch() as watch:
        done = fleetctl(workspace, "configure", "--nodes", path, "--tags", "model_store,model_server", "--diff", "-o", "json", **given)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout + done.stderr)
        files[0]["sha256"] = "0" * 64  # a fetch that fails tells its address to Ansible
        path = str(nodes_file(bench, f"standin-{OLD}", variables))
        failed = fleetctl(workspace, "configure", "--nodes", path, "--tags", "model_store", **given)
        assert failed.returncode == 1, failed.stderr
        said.append(failed.stdout + failed.stderr)
    assert watch.looks > 50
    assert watch.found == set()
    assert not [text for text in said if "m4rk3r" in text]
    assert holding(workspace) == set()
    assert holding(h.folder / "upper") == {"etc/fleetctl/units/chat.env"}
    kept = (h.root / "etc/fleetctl/units/chat.env").read_text()
    assert not [m for m in MARKERS[4:] if m not in kept], "the server gets them all"
    assert h.ssh("sudo", "stat", "-c", "%a:%U", "/etc/fleetctl/units/chat.env").stdout == "600:root\n"
    assert "m4rk3r" not in h.ssh("sudo", "journalctl", "--no-pager", "--output=cat").stdout
    assert bench.run("uninstall", bench.repository.variables())[0].state == "ok"


def test_a_task_that_fails_on_a_server_tells_nothing_of_its_environment(bench: nb.Bench) -> None:
    h = bench.lab.hosts[0]
    unit = {"name": "chat", "argv": ["/usr/bin/sleep", "infinity"], "environment": {"HUB_TOKEN": MARKERS[0]}, "port": 8000, "model": "m"}
    variables = bench.repository.variables() | {"model_server_user": "root"}
    for commands, bad in (
        (("mount --bind /etc/systemd/system /etc/systemd/system", "mount -o remount,bind,ro /etc/systemd/system"), {}),
        (("umount /etc/systemd/system",), {"argv": ["/usr/bin/no-such-program"]}),
        ((), {"name": "../x"}),
    ):
        for command in commands:
            done = h.ssh("sudo", *command.split())
            assert done.returncode == 0, done.stderr
        (result,) = bench.run("rocm_node", variables | {"model_server_units": [unit | bad]}, tags=["model_server"])
        assert result.state == "failed"
        assert result.detail.startswith("model_server : ")
        assert "no_log" not in result.detail, "what failed is told"
        assert MARKERS[0] not in bench.output()
        assert MARKERS[0] not in repr(bench.seen)
    assert bench.run("uninstall", variables)[0].state == "ok"


def test_hostile_names_stay_letters_through_inventory_extra_variables_and_templates(bench: nb.Bench) -> None:
    h = bench.lab.hosts[0]
    variables = bench.repository.variables()
    units, together = [], [HOSTILE[n : n + 3] for n in range(0, len(HOSTILE), 3)]
    for n, texts in enumerate(together):
        argv = ["/usr/lib/standin-engine/serve", str(8100 + n), *texts]
        environment = {f"NAME_{i}": text for i, text in enumerate(texts)}
        units.append({"name": f"chat-{n}", "argv": argv, "environment": environment, "port": 8100 + n, "model": texts[0]})
    variables["model_server_units"] = units
    variables["node_manifest_facts"] = {f"fact-{n}": text for n, text in enumerate(HOSTILE)}
    variables["preflight_release"] = HOSTILE[0]
    (result,) = bench.run("rocm_node", variables, tags=[*ROLES, "node_manifest"])
    assert (result.state, result.detail) == ("ok", "")
    for n, texts in enumerate(together):
        pid = h.ssh("systemctl", "show", "-P", "MainPID", f"fleetctl-chat-{n}.service").stdout.strip()
        argv = h.ssh("sudo", "cat", f"/proc/{pid}/cmdline").stdout.split("\0")
        assert argv[-1 - len(texts) : -1] == texts, argv
        given = h.ssh("sudo", "cat", f"/proc/{pid}/environ").stdout.split("\0")
        assert not [i for i, text in enumerate(texts) if f"NAME_{i}={text}" not in given], given
    manifest = json.loads(h.ssh("cat", "/etc/fleetctl/node.json").stdout)
    assert [manifest[f"fact-{n}"] for n in range(len(HOSTILE))] == HOSTILE
    assert not Path(CANARY).exists(), "nothing of them ran here"
    assert h.ssh("ls", CANARY).returncode != 0, "nothing of them ran there"
    assert bench.run("uninstall", variables)[0].state == "ok"


def test_what_no_unit_can_hold_is_refused_before_a_change(bench: nb.Bench) -> None:
    variables = bench.repository.variables()
    difference = nb.remember(bench.lab.hosts[0])
    good = {"name": "chat", "argv": ["/bin/true"], "environment": {}, "port": 8000, "model": "m"}
    for bad in (
        {"name": "../x"}, {"name": "a\nb"}, {"argv": ["/bin/true", "a\nExecStartPre=/bin/touch /tmp/owned"]}, {"argv": ["true"]},
        {"environment": {"A": "x\nB=y"}},
    ):  # fmt: skip
        (result,) = bench.run("rocm_node", variables | {"model_server_units": [good | bad]}, tags=["model_server"])
        assert result.state == "failed", bad
    for name in ("A B", "LD_PRELOAD\n"):  # a key that is no plain name does not even reach Ansible
        with pytest.raises(ConfigInvalid) as e:
            bench.run("rocm_node", variables | {"model_server_units": [good | {"environment": {name: "x"}}]}, tags=["model_server"])
        assert e.value.code == "config.value"
    assert {p for p in difference() if not p.startswith(("etc/fleetctl", "var/lib/fleetctl"))} == set()
    assert not Path(CANARY).exists()
