"""Which cells `fleetctl fallback` takes: what was asked for and nothing else, from the files alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from fleetctl.adapters.home.files import WayHomeFiles, make_key
from fleetctl.cli.main import cli
from fleetctl.domain.canonical import canonical, decode
from fleetctl.domain.event import Event
from fleetctl.domain.fleet import Connection
from fleetctl.domain.home import Wanted, WayHome
from fleetctl.domain.ids import CellId, HostId, PoolId, WorkloadId
from fleetctl.domain.people import Actor
from fleetctl.domain.pool import Host
from fleetctl.errors import FleetctlError, UnsafeFallback
from fleetctl.usecases.capacity import PoolHosts
from fleetctl.usecases.home_choice import choose
from fleetctl.usecases.ready_time import TimeToReady
from fleetctl.usecases.ways_back import refuse_released
from tests.cases.planning_fleet import lab_fleet, pool
from tests.fakes.store import MemoryStore
from tests.rollouts import T0


def way(workload: str, region: str, tenant: str = "", klass: str = "online", wave: int = 0) -> WayHome:
    return WayHome(
        fleet="f",
        cell=CellId(f"{workload}-{region}"),
        workload=WorkloadId(workload),
        region=region,
        tenant=tenant,
        klass=klass,
        router=Connection(name="edge", kind="haproxy", settings={"socket": "/nowhere/s", "map_folder": "/nowhere"}),
        source=PoolId("h100"),
        cap_bp=10_000,
        paper=("# look", "echo home"),
        made_at=T0,
        wave=wave,
    )


WAYS = (
    way("chat", "east", "acme", "realtime", 1),
    way("chat", "west", "acme", "realtime", 2),
    way("sum", "east", "", "batch", 1),
    way("code", "north", "zeta", "online", 0),
)


@pytest.mark.parametrize(
    ("wanted", "cells"),
    [
        (Wanted(names=("chat",)), "chat-east chat-west"),
        (Wanted(names=("sum-east", "chat")), "chat-east chat-west sum-east"),
        (Wanted(regions=("east",)), "chat-east sum-east"),
        (Wanted(regions=("east", "north")), "chat-east sum-east code-north"),
        (Wanted(tenants=("acme",), waves=(2,)), "chat-west"),
        (Wanted(classes=("batch", "realtime"), regions=("east",)), "chat-east sum-east"),
        (Wanted(waves=(1,), names=("sum",)), "sum-east"),
        (Wanted(everything=True, regions=("west",)), "chat-west"),
        (Wanted(everything=True), "chat-east chat-west sum-east code-north"),
    ],
)
def test_every_part_narrows_and_values_of_one_part_add(wanted: Wanted, cells: str) -> None:
    assert [w.cell for w in choose(WAYS, wanted).ways] == cells.split()


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (Wanted(names=("chat", "nobody")), "no workload or cell 'nobody'; there are chat, code, sum."),
        (Wanted(regions=("eest",)), "no region 'eest'; there are east, north, west."),
        (Wanted(tenants=("",)), "no tenant ''; there are acme, zeta."),
        (Wanted(classes=("x\x1b[2J\n'; rm -rf /",)), 'no class "x\\x1b[2J\\n\'; rm -rf /"; there are batch, online, realtime.'),
        (Wanted(waves=(7,)), "no wave '7'; there are 1, 2."),
    ],
)
def test_a_value_that_nobody_has_is_refused_with_what_there_is(wanted: Wanted, said: str) -> None:
    with pytest.raises(UnsafeFallback) as refused:
        choose(WAYS, wanted)
    assert refused.value.code == "fallback.unknown"
    assert said in refused.value.message
    assert refused.value.hint


def test_nothing_that_fits_all_of_it_and_a_fleet_of_thousands() -> None:
    with pytest.raises(UnsafeFallback, match=r"no cell is of region west, class batch at once; nothing was changed") as none:
        choose(WAYS, Wanted(regions=("west",), classes=("batch",)))
    assert none.value.code == "fallback.none"
    many = tuple(way(f"w{i}", "east") for i in range(3_000))
    with pytest.raises(UnsafeFallback, match="and 2988 more") as refused:
        choose(many, Wanted(names=tuple(f"none{i}" for i in range(3_000))))
    assert len(refused.value.message) < 1_000


def test_a_file_of_an_older_release_is_read_and_has_no_wave() -> None:
    text = canonical(WAYS[0]).replace(b',"wave":1', b"").replace(b'"wave":1,', b"")
    assert b"wave" not in text
    assert decode(WayHome, text) == replace(WAYS[0], wave=0)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with ways home and nothing else: no store, no fleet file, no router."""
    make_key(tmp_path / ".fleetctl/key")
    files = WayHomeFiles(tmp_path / ".fleetctl/home", tmp_path / ".fleetctl/key")
    for w in WAYS:
        files.write(w)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLEETCTL_WORKSPACE", str(tmp_path))
    return tmp_path


class Ran:
    """What a command came to, with its error as the program says it."""

    def __init__(self, *words: str) -> None:
        done = CliRunner().invoke(cli, ["fallback", *words])
        error = done.exception if isinstance(done.exception, FleetctlError) else None
        self.exit_code = done.exit_code if error is None else error.exit_code
        self.stdout, self.stderr = done.stdout, done.stderr + (str(error) if error is not None else "")


run = Ran


def tree(folder: Path) -> dict[str, bytes | None]:
    return {str(p): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}


def test_dry_run_lists_exactly_the_cells_and_writes_nothing(workspace: Path) -> None:
    before = tree(workspace)
    done = run("--region", "east", "--class", "batch", "--class", "realtime", "--dry-run")
    assert (done.exit_code, done.stdout.split()) == (0, ["chat-east", "sum-east"])
    assert "Nothing was changed." in done.stderr
    rows = json.loads(run("--wave", "2", "--dry-run", "-o", "json").stdout)
    assert [c["cell"] for c in rows["cells"]] == ["chat-west"]
    assert tree(workspace) == before


def test_dry_run_where_nothing_was_ever_planned_makes_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLEETCTL_WORKSPACE", str(tmp_path))
    done = run("--all", "--dry-run")
    assert done.exit_code == 1
    assert "error[fallback.none]" in done.stderr
    assert tree(tmp_path) == {}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--region", "mars"), 1, "error[fallback.unknown]: no region 'mars'; there are east, north, west."),
        (("--wave", "0"), 2, "--wave"),
        (("--wave", "1; rm"), 2, "--wave"),
        (("nobody",), 1, "there are chat, code, sum."),
        ((), 2, "--region, --tenant, --class or --wave, or --all"),
        (("chat", "-o", "html"), 2, "Add: --paper"),
        (("chat", "--wait", "soon"), 2, "--wait"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_moves_nothing(workspace: Path, words: tuple[str, ...], code: int, said: str) -> None:
    before = tree(workspace)
    done = run(*words)
    assert done.exit_code == code, done.stderr
    assert said in " ".join(done.stderr.split())
    assert tree(workspace) == before


def test_a_file_that_was_changed_may_be_of_a_cell_that_is_meant(workspace: Path) -> None:
    file = workspace / ".fleetctl/home/code-north.json"
    file.write_bytes(file.read_bytes().replace(b"north", b"south"))
    done = run("--region", "east", "--dry-run")
    assert (done.exit_code, done.stdout.split()) == (1, ["chat-east", "sum-east"])
    assert "fallback.tampered" in done.stderr


@pytest.mark.parametrize(
    ("words", "broken", "cells", "refused"),
    [
        ("chat-east --region east", "chat-east", "", "chat-east"),
        ("chat-east sum --region east", "chat-east", "sum-east", "chat-east"),
        ("chat", "chat-east", "chat-west", "chat-east"),
        ("chat", "chat-east chat-west", "", "chat-east chat-west"),
        ("chat", "chat-east chat-west sum-east code-north", "", "chat-east chat-west code-north sum-east"),
        ("chat-west", "chat-east", "chat-west", ""),
        ("--region north", "code-north", "", "code-north"),
        ("--region north --region west", "code-north", "chat-west", "code-north"),
        ("--all", "chat-east", "chat-west code-north sum-east", "chat-east"),
    ],
)
def test_what_cannot_be_read_and_may_be_meant_is_told_and_nothing_else_goes(
    workspace: Path, words: str, broken: str, cells: str, refused: str
) -> None:
    for c in broken.split():
        (workspace / f".fleetctl/home/{c}.json").write_bytes(b"torn")
    done = run(*words.split(), "--dry-run", "-o", "json")
    told = json.loads(done.stdout)
    assert ([c["cell"] for c in told["cells"]], told["refused"]) == (cells.split(), refused.split())
    assert done.exit_code == (1 if refused else 0)
    assert "fallback.unknown" not in done.stderr


def test_a_name_that_only_a_broken_file_may_have_is_told_and_moves_nothing(workspace: Path) -> None:
    (workspace / ".fleetctl/home/code-north.json").write_bytes(b"torn")
    done = run("code")
    assert (done.exit_code, done.stdout.count("NOT HOME")) == (1, 1)
    assert "0 of 1 home" in done.stdout
    assert "No way home that can be read has workload or cell 'code'; one that cannot be read may have it." in done.stderr


def test_ending_streams_is_refused_before_anything_moves_where_nobody_can_confirm(workspace: Path) -> None:
    before = tree(workspace)
    for words in ((), ("--confirm", "sum-east")):
        done = run("code-north", "--kill-streams", *words)
        assert done.exit_code == 2
        assert "--confirm code-north" in done.stderr
        assert "Going home" not in done.stderr
    assert tree(workspace) == before


def test_a_torn_mark_ends_neither_a_return_nor_the_reconciling(workspace: Path) -> None:
    (workspace / ".fleetctl/home/sum-east.returned.json").write_bytes(b"torn")
    done = run("code-north")
    assert "cell/code-north NOT HOME" in done.stdout, "its router is nowhere"
    assert "cell/sum-east NOT RECONCILED error[fallback.tampered]" in done.stderr
    assert "fleetctl fallback sum-east" in done.stderr
    assert "NOT RECONCILED" in run("--reconcile").stderr


def test_the_page_for_the_wall_holds_every_cell_that_was_asked_for(workspace: Path) -> None:
    text = run("--tenant", "acme", "--paper")
    assert text.exit_code == 0
    assert [line for line in text.stdout.splitlines() if line in {w.cell for w in WAYS}] == ["chat-east", "chat-west"]
    assert "    echo home" in text.stdout
    assert "fleetctl fallback --reconcile" in text.stdout
    page = run("--tenant", "acme", "--paper", "-o", "html").stdout
    assert page.count("<section>") == 2
    assert "<script" not in page
    assert "default-src 'none'" in page


def test_after_a_release_nothing_moves_not_even_unproven_and_what_is_left_is_ranked(workspace: Path) -> None:
    files = WayHomeFiles(workspace / ".fleetctl/home", workspace / ".fleetctl/key")
    for w in WAYS:
        files.write(replace(w, released=True))
    before = tree(workspace)
    done = run("chat", "--unproven")
    assert done.exit_code == 1
    assert done.stdout.count("error[fallback.released]") == 2
    assert "0 of 2 home" in done.stdout
    assert {k: v for k, v in tree(workspace).items() if "home" in k} == {k: v for k, v in before.items() if "home" in k}


def test_ways_back_rank_what_stands_first_then_what_was_not_refused() -> None:
    store = MemoryStore()
    fleet = lab_fleet(
        pools=(
            pool("h100", "nvidia", "p5.48xlarge", count=0),
            pool("h200", "nvidia", "p5en.48xlarge", count=2),
            pool("a100", "nvidia", "p4d.24xlarge", count=0),
            pool("amd", "amd", "lab-mi300x"),
        )
    )
    store.put("h100", TimeToReady(pool=PoolId("h100"), hosts=2, seconds=900.0, models_seconds=1.0, at=T0))
    data = {"pool": "h100", "code": "capacity.none"}
    actor = Actor(kind="person", name="ada")
    store.append((Event(at=T0, kind="provision.failed", actor=actor, text="h100 at us-east-1: InsufficientInstanceCapacity", data=data),))
    (refused,) = refuse_released((replace(WAYS[0], released=True), WAYS[1]), fleet, store, store)
    one, two, three = refused.error.details
    assert one == "1. move it to pool h200: its machines stand"
    assert two == "2. make pool a100 anew: time never measured; never refused that we know of"
    assert "3. make pool h100 anew: 15 min to ready; last refused: " in three
    assert "InsufficientInstanceCapacity" in three
    host = Host(id=HostId("h-1"), pool=PoolId("h100"), address="10.0.0.1")
    store.put("h100", PoolHosts(pool=PoolId("h100"), hosts=(host,)))
    assert refuse_released((replace(WAYS[0], released=True),), fleet, store, store) == (), "made anew since"
