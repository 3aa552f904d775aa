"""HAProxy's configuration: every hostile value is refused, all mistakes at once; nothing that routes is overwritten."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fleetctl.adapters.deadline import Deadline
from fleetctl.adapters.routers.haproxy.config import RouterConfig, render, write_files
from fleetctl.adapters.routers.haproxy.router import HaproxyRouter, paper_commands
from fleetctl.adapters.routers.haproxy.wire import AdminSocket
from fleetctl.adapters.routers.route import CellRoute
from fleetctl.domain.fleet import Connection
from fleetctl.domain.ids import CellId
from fleetctl.domain.workload import AffinityKey
from fleetctl.errors import ConfigInvalid, TrafficNotApplied

ROUTE = CellRoute(cell=CellId("chat"), model="org/model-1.5:q8", baseline=("10.0.0.1:8000", "[::1]:8001"), canary=("host-1.example:80",))
CONFIG = RouterConfig(
    cells=(ROUTE,), port=20_000, socket=Path("/tmp/fl-x/haproxy.sock"), map_folder=Path("/tmp/fl-x"), collector_port=20_001
)

HOSTILE = ["x\n    server evil 1.2.3.4:80", "x y", "x'", 'x"', "x;y", "%[env(HOME)]", "${HOME}", "x#", "x\\", "", "x)", "x,y", "ö"]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_values_are_refused_wherever_they_stand(text: str) -> None:
    routes = [
        replace(ROUTE, cell=CellId(text)),
        replace(ROUTE, model=text),
        replace(ROUTE, baseline=(text,)),
        replace(ROUTE, baseline=(f"{text}:80",)),
        replace(ROUTE, canary=(f"10.0.0.1:{text}",)),
        replace(ROUTE, affinity=AffinityKey(kind="header", name=text)),
    ]
    configs = [replace(CONFIG, cells=(route,)) for route in routes]
    configs += [
        replace(CONFIG, socket=Path(f"/tmp/{text} ")),
        replace(CONFIG, map_folder=Path(f"/tmp/{text} ")),
        replace(CONFIG, address=text),
    ]
    for config in configs:
        with pytest.raises(ConfigInvalid) as refused:
            render(config)
        assert refused.value.code == "config.router"


def test_all_mistakes_are_told_at_once() -> None:
    bad = replace(ROUTE, baseline=(), check_every_ms=1, answer_timeout_s=-1)
    with pytest.raises(ConfigInvalid) as refused:
        render(replace(CONFIG, cells=(bad, bad), port=0, collector_port=70_000, socket=Path("/tmp/" + "s" * 100)))
    assert len(refused.value.details) == 10


def test_target_servers_have_source_backups_and_the_source_has_none() -> None:
    text = render(CONFIG)
    baseline, canary = text.split("backend chat_baseline")[1].split("backend chat_canary")
    assert [line.split()[1:3] for line in baseline.splitlines() if line.strip().startswith("server ")] == [
        ["b1", "10.0.0.1:8000"],
        ["b2", "[::1]:8001"],
    ]
    assert "backup" not in baseline
    assert [line.split()[1] for line in canary.splitlines() if " backup " in line] == ["b1", "b2"]
    assert "redispatch" not in text.replace("no option redispatch", "")
    assert "retries 0" in text


def test_a_plain_router_has_no_lua() -> None:
    assert "lua" not in render(replace(CONFIG, lua=False))
    assert "fleetctl_tee" not in render(replace(CONFIG, collector_port=0))


def test_a_cookie_may_be_the_affinity_key() -> None:
    text = render(replace(CONFIG, cells=(replace(ROUTE, affinity=AffinityKey(kind="cookie", name="session")),)))
    assert "req.cook(session)" in text


def test_weights_that_stand_are_kept_and_files_are_private(tmp_path: Path) -> None:
    folder = Path(str(tmp_path)[:90])
    config = replace(CONFIG, socket=Path("/tmp/fl-x/h.sock"), map_folder=folder)
    (folder / "weight.map").write_text("chat 2500\ngone 100\n")
    path = write_files(config, folder)
    assert (folder / "weight.map").read_text() == "chat 2500\n"
    assert (folder / "fence.map").read_text() == "chat 0:0:0\n"
    assert {entry.stat().st_mode & 0o777 for entry in folder.iterdir() if entry.is_file()} == {0o600}
    assert path.read_text() == render(config)


def test_no_second_command_passes_the_socket(tmp_path: Path) -> None:
    for command in ("show info; shutdown frontend x", "show info\nshow stat", "set map <<\nx", "ä", ""):
        with pytest.raises(TrafficNotApplied) as refused:
            AdminSocket(tmp_path / "none.sock").ask(command, Deadline())
        assert refused.value.code == "traffic.unsafe_command"


def test_a_router_without_its_settings_is_refused() -> None:
    with pytest.raises(ConfigInvalid):
        HaproxyRouter(Connection(name="r", kind="haproxy", settings={"socket": "/tmp/x.sock"}))


def test_paper_commands_bring_a_cell_home_by_hand() -> None:
    connection = Connection(name="r", kind="haproxy", settings={"socket": "/tmp/fl-x/haproxy.sock", "map_folder": "/tmp/fl-x"})
    home, show = paper_commands(connection, CellId("chat"))
    assert home == "echo 'fleetctl home chat' | socat stdio unix-connect:/tmp/fl-x/haproxy.sock"
    assert "show map /tmp/fl-x/weight.map" in show
    bare = replace(connection, settings={**connection.settings, "fence": "single_writer"})
    assert paper_commands(bare, CellId("chat"))[0].startswith("echo 'set map /tmp/fl-x/weight.map chat 0' |")
    with pytest.raises(TrafficNotApplied):
        paper_commands(connection, CellId("x'; rm -rf /"))
