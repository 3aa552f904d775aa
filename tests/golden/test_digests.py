"""What an older release saved keeps its digest: a plan and its approval stay valid, a migration goes on (P15).

The golden files were written by format 1. A field that is added afterwards must be `field(default=..., metadata=LATER)`.
"""

from __future__ import annotations

import dataclasses
import json
import typing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fleetctl.domain.canonical import LATER, canonical, decode, digest, plain
from fleetctl.domain.event import Event
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.home import WayHome
from fleetctl.domain.plan import Approval, Assessment, Plan
from fleetctl.domain.rollout import Rollout
from fleetctl.formats.example import EXAMPLE_LINEAGE, fleet_text
from fleetctl.formats.fleet_file import parse_fleet
from fleetctl.formats.presets import PRESETS
from fleetctl.planning.make_plan import plan_id
from fleetctl.usecases.migrate import approved_plan
from tests.fakes.store import MemoryStore

DATA = Path(__file__).parent / "data"
SAVED = (Plan, Fleet, Approval, Assessment, Rollout, Event, WayHome)
"""Everything whose digest, hash or signature is kept."""


def reachable() -> dict[str, list[str]]:
    """Return the fields of every dataclass that a saved value may hold, without those that came later."""
    out: dict[str, list[str]] = {}
    todo: list[object] = list(SAVED)
    while todo:
        hint = todo.pop()
        todo.extend(typing.get_args(hint))
        supertype = getattr(hint, "__supertype__", None)
        if supertype is not None:
            todo.append(supertype)
        if not (dataclasses.is_dataclass(hint) and isinstance(hint, type)) or hint.__name__ in out:
            continue
        out[hint.__name__] = [f.name for f in dataclasses.fields(hint) if "later" not in f.metadata]
        todo.extend(typing.get_type_hints(hint).values())
    return out


def golden() -> dict[str, str]:
    return typing.cast("dict[str, str]", json.loads((DATA / "plan_format_1.json").read_text("utf-8")))


def test_a_plan_of_an_older_release_keeps_its_digest_and_its_approval_holds() -> None:
    old = golden()
    plan, fleet, approval = decode(Plan, old["plan"]), decode(Fleet, old["fleet"]), decode(Approval, old["approval"])
    assert canonical(plan).decode() == old["plan"]
    assert digest(plan) == old["plan_digest"] == approval.plan_digest
    assert digest(fleet) == old["fleet_digest"] == plan.fleet
    assert plan_id(plan) == plan.id
    store = MemoryStore()
    store.put(plan.id, plan)
    store.put(f"{plan.id}-ana", approval)
    assert approved_plan(store, fleet, None) == plan


def test_fields_that_were_added_are_marked_and_none_is_gone() -> None:
    """A new field without LATER changes the digest of every saved plan, and refuses every migration under way."""
    known = json.loads((DATA / "fields_format_1.json").read_text("utf-8"))
    now = reachable()
    added = {name: sorted(set(fields) - set(known[name])) for name, fields in now.items() if name in known}
    assert {n: f for n, f in added.items() if f} == {}, "mark them: field(default=..., metadata=LATER)"
    gone = {name: sorted(set(fields) - set(now.get(name, []))) for name, fields in known.items()}
    assert {n: f for n, f in gone.items() if f} == {}, "a saved value would no longer load"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Old:
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _New:
    name: str
    limit: int | None = field(default=None, metadata=LATER)
    names: tuple[str, ...] = field(default=(), metadata=LATER)
    parts: typing.Mapping[str, int] = field(default_factory=dict, metadata=LATER)


def test_a_field_that_came_later_counts_only_once_it_says_something() -> None:
    def same(value: object) -> str:
        return canonical(value).decode().replace("_New", "_Old")

    assert same(_New(name="a")) == canonical(_Old(name="a")).decode()
    assert (
        len({same(_New(name="a")), same(_New(name="a", limit=1)), same(_New(name="a", names=("b",))), same(_New(name="a", limit=2))}) == 4
    )
    full = _New(name="a", limit=3, parts={"x": 1})
    assert decode(_New, canonical(full)) == full
    assert plain(_New(name="a"), whole=True) == {"_": "_New", "name": "a", "limit": None, "names": [], "parts": {}}


def test_what_was_never_saved_by_an_older_release_cannot_hide() -> None:
    with pytest.raises(ValueError, match="has no"):
        decode(_Old, canonical(_New(name="a", limit=1)).replace(b"_New", b"_Old"))


PRESET_STEPS = {
    "low-traffic": "e87ddcb5f94eb55efc0b82cdb22f5f0278764880a32f1ef0ea0c07a79b26be17",
    "medium-traffic": "bf91e6b329ab022ef50b0ebc71eef2b33d85ed32760499ee66ae94ac4d6f7b5d",
    "high-traffic": "5c668b4d5acb662d5cf7151d68f2e0c2d12d6da21979c66cdab72f6c1ef87c25",
}
"""What a named set of steps comes to. A plan is bound to it by the fleet's digest, so a name keeps its meaning: other margins, bake times
or shares get a new name, else an upgrade would make every approved plan of an unchanged fleet file stale."""


@pytest.mark.parametrize("name", PRESETS)
def test_a_named_set_of_steps_keeps_its_meaning(name: str) -> None:
    text = fleet_text("shop", EXAMPLE_LINEAGE)
    head, _, rest = text.partition("  steps:\n")
    _, _, end = rest.partition("\n# Capacity that is paid for")
    fleet = parse_fleet(f"{head}  steps: {name}\n\n# Capacity that is paid for{end}", file="fleet.yaml")
    assert digest(fleet.policy.steps) == PRESET_STEPS[name]
