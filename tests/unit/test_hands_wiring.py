"""Who is asked about each pool and route: the fleet file's words, the command's lines, and a whole migration over an emulated AWS."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fleetctl.adapters.hands import patient
from fleetctl.cli.commands.doctor import _owners_found
from fleetctl.cli.commands.migrate import _other_hands
from fleetctl.domain.fleet import Connection, Fleet
from fleetctl.domain.ids import PoolId
from fleetctl.domain.people import Gap
from fleetctl.domain.provision import Owner
from fleetctl.domain.rollout import Order
from fleetctl.usecases.holds import KeptHolds
from fleetctl.wiring.hands import asked, hands_of
from tests.cases.planning_fleet import lab_fleet
from tests.contract.test_hands import asg
from tests.fakes.hands import FakeHands
from tests.rollouts import CELL, PERSON
from tests.simulator import SOURCE, Simulation, quick
from tests.unit.test_fleet_file import SMALL, mistakes


def fleet(words: str | None, *, by: str = "existing", clusters: int = 1, settings: dict[str, str] | None = None) -> Fleet:
    """Return a fleet of one pool, SOURCE, whose owners are named so."""
    made = lab_fleet()
    pool = replace(made.pools[0], id=SOURCE, provisioned_by=by, region="us-east-1")
    sources = tuple(Connection(name=f"c{n}", kind="kubernetes", settings={}) for n in range(clusters))
    named = {} if words is None else {f"pool.{SOURCE}.owners": words}
    return replace(made, pools=(pool,), settings={**named, **(settings or {})}, sources=sources, cells=(), workloads=())


@pytest.mark.parametrize(
    ("words", "by", "said"),
    [
        ("no", "aws", ()),
        (None, "aws", ("aws",)),
        (None, "lab", ()),
        ("aws:h100", "existing", ("aws:h100",)),
        ("azure:rg/h100", "existing", ("azure:rg/h100",)),
        ("kubernetes:serving/chat kubernetes/c0:serving/code", "existing", ("kubernetes:serving/chat", "kubernetes/c0:serving/code")),
    ],
)
def test_the_fleet_file_says_who_is_asked(words: str | None, by: str, said: tuple[str, ...], tmp_path: Path) -> None:
    given = fleet(words, by=by, settings={"azure.subscription_id": "11111111-2222-3333-4444-555555555555"})
    hands = hands_of(given, tmp_path, lambda _: ())
    assert asked(given)[SOURCE] == said
    if not said:
        assert hands.of_pool(SOURCE) == (), "nothing else sizes it: no gap"


WRONG = [
    ("azure", 1),
    ("azure:rg/h100", 1),
    ("azure:rg/../x", 1),
    ("aws/eu:h100", 1),
    ("kubernetes", 1),
    ("kubernetes:chat", 1),
    ("kubernetes:a/b", 0),
    ("kubernetes:a/b", 2),
    ("kubernetes/c9:a/b", 2),
    ("no aws", 1),
    ("gcp:x", 1),
    ("no\x1b[31m", 1),
]


def test_what_tells_nobody_to_ask_is_a_gap_that_names_its_setting_and_ends_no_ticker(tmp_path: Path) -> None:
    for words, clusters in WRONG:
        (gap,) = hands_of(fleet(words, clusters=clusters), tmp_path, lambda _: ()).of_pool(SOURCE)
        assert isinstance(gap, Gap)
        assert f"pool.{SOURCE}.owners" in gap.reason, words
        assert "\x1b" not in gap.reason


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("pool.green.owners: gcp:x", "'gcp:x' tells nobody to ask. Set: aws[:GROUP]"),
        ("pool.green.owners: azure:rg/h100", "needs settings azure.subscription_id"),
        ("pool.green.owners: kubernetes:serving/chat", "no one of the 0 clusters among the sources"),
        ("pool.gren.owners: aws:h100", "there is no pool 'gren' (did you mean 'green'?)"),
        ("pool.green.owner: aws:h100", "(did you mean 'pool.green.owners'?)"),
        ("pool.green.notices: 'ftp://{address}/x'", "is no address"),
        ("pool.green.notices: kubernetes", "names no nodes"),
        ("pool.gren.notices: aws", "there is no pool 'gren'"),
    ],
)
def test_the_fleet_files_check_refuses_it_with_its_line(setting: str, said: str) -> None:
    (found,) = mistakes(f"{SMALL}settings:\n  {setting}\n")
    assert found.startswith(f"f.yaml:{len(SMALL.splitlines()) + 2}: settings."), found
    assert said in found


def test_a_pool_of_others_that_names_nobody_is_a_gap_and_doctor_warns(tmp_path: Path) -> None:
    (gap,) = hands_of(fleet(None), tmp_path, lambda _: ()).of_pool(SOURCE)
    assert isinstance(gap, Gap)
    assert f"pool.{SOURCE}.owners" in gap.reason
    assert _owners_found(fleet(None)).state == "warn"
    found = _owners_found(fleet("aws:h100"))
    assert (found.state, found.detail) == ("ok", f"{SOURCE} aws:h100")


def test_a_state_that_lists_the_group_is_its_owner(tmp_path: Path) -> None:
    text = '{"version": 4, "resources": [{"mode": "managed", "type": "aws_autoscaling_group", "name": "g", "instances": [%s]}]}'
    (tmp_path / "prod.tfstate").write_text(text % '{"attributes": {"name": "h100", "id": "h100"}}')
    hands = hands_of(fleet("no", settings={"owners.terraform": "prod.tfstate"}), tmp_path, lambda _: ())
    assert hands.of_pool(SOURCE) == (), "this pool has no name that a state could list"
    named = hands_of(fleet("kubernetes:serving/h100", settings={"owners.terraform": "prod.tfstate"}), tmp_path, lambda _: ())
    assert [o.name for o in named._scalers[SOURCE][1].find() if isinstance(o, Owner)] == [
        "Terraform prod.tfstate (aws_autoscaling_group.g)"
    ]


def test_the_command_names_other_hands_before_it_begins(capsys: pytest.CaptureFixture[str]) -> None:
    s = Simulation()
    hands = FakeHands(of={"asg": SOURCE}, minimum={"asg": 2}, gitops=("Argo CD \x1b[31mserving",))
    outcome = SimpleNamespace(cell=CELL, source=SOURCE, target=PoolId("mi300x-lab"))
    lines: list[Any] = []
    wiring = SimpleNamespace(holds=KeptHolds(hands, s.store, s.clock, "a"))
    app: Any = SimpleNamespace(wiring=wiring, line=lambda kind, value: lines.append((kind, value)))
    plan: Any = SimpleNamespace(outcomes=(outcome,))
    _other_hands(app, plan, (CELL,), "table")
    said = capsys.readouterr().err
    assert f"Other hands: pool {SOURCE} is sized by scaler asg: 8 machines, minimum 2 to 10" in said
    assert "belongs to Argo CD" in said
    assert "\x1b" not in said
    assert hands.writes == [], "asking changes nothing"
    _other_hands(app, plan, (CELL,), "json")
    assert {kind for kind, _ in lines} == {"migrate.hands"}


@pytest.mark.crash
def test_a_whole_migration_holds_and_gives_back_a_group_of_an_emulated_aws_though_its_ticker_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from moto import mock_aws

    monkeypatch.setattr(patient, "LIMIT_S", 60.0)  # the emulated account answers within this process, however busy it is
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "emulated")
    with mock_aws():
        api = asg(ManagedBy="terraform")

        def least() -> int:
            return int(api.describe_auto_scaling_groups(AutoScalingGroupNames=["h100"])["AutoScalingGroups"][0]["MinSize"])

        s = Simulation(of=quick(), rate_per_s=60)

        def process() -> None:
            hands = hands_of(fleet("aws:h100"), tmp_path, lambda _: ())
            s.holds = KeptHolds(hands, s.store, s.clock, "a")  # type: ignore[assignment]

        process()
        s.begin()
        s.at("canary")
        assert least() == 8
        process()  # killed, and another one goes on
        api.update_auto_scaling_group(AutoScalingGroupName="h100", MinSize=1)
        s.run(35, lambda: s.rollout().hold_reason == "foreign_write")
        page = next(n.text for n in s.notices.sent if n.kind == "notify.page")
        assert "it belongs to terraform) set the minimum of AWS Auto Scaling group h100 to 1" in page
        assert least() == 8
        s.store.order(CELL, Order(kind="abort", actor=PERSON, at=s.clock.now()))
        s.run(30, lambda: bool(s.rollout().ended))
        assert (s.rollout().ended, least()) == ("aborted", 2)
