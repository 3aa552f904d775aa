"""Migrate, use-case layer: run a check of both arms of a cell, keep it, and tell how kept ones stand. Never imports an adapter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from fleetctl.analysis.answers import Answered, FreeSpec, accuracy, answered, embeddings, free_run
from fleetctl.analysis.checks import seen_check
from fleetctl.analysis.scoring import is_right
from fleetctl.domain.checks import CheckResult, CheckSeen, record_id
from fleetctl.domain.evidence import Arm, VerdictKind
from fleetctl.domain.identity import ArmsIdentity, CallKind, ContractReport
from fleetctl.domain.ids import CellId
from fleetctl.domain.quality import Item, QualityReport
from fleetctl.domain.workload import CheckName, CheckSpec
from fleetctl.errors import EvidenceUnavailable, FleetctlError
from fleetctl.ports.state import Clock, Records
from fleetctl.ports.traffic import Speaks

WORST: tuple[VerdictKind, ...] = ("FAIL", "PROVIDER_ERROR", "NO_DATA", "INCONCLUSIVE", "PASS")
"""Of several model names the worst counts."""
CALLS: tuple[CallKind, ...] = ("ok", "unsupported", "broken", "both_broken")
Say = Callable[[str], None]
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one check came to for one model name.

    Args:
        numbers: what was found, by name.
    """

    kind: VerdictKind
    why: str = ""
    missing: int | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPorts:
    """All that a check touches.

    Args:
        arms: what both arms serve now; contract, quality: run the one and the other (the second per model name).
        speaker: answers freely, by arm and model name; vectors: of texts, by arm and model name.
        items: of a check's file, or shipped ones; file_digest: of its file, "" where it has none.
    """

    arms: Callable[[CellId], ArmsIdentity]
    contract: Callable[[CellId, ArmsIdentity], ContractReport]
    quality: Callable[[CellId, CheckSpec, str, Say], QualityReport]
    speaker: Callable[[CellId, Arm, str, CheckSpec], Speaks]
    vectors: Callable[[CellId, Arm, str, Sequence[str]], Sequence[Sequence[float]]]
    items: Callable[[CheckSpec], tuple[Item, ...]]
    file_digest: Callable[[CheckSpec], str]
    records: Records
    clock: Clock


class Remembered:
    """`Records` that remember what is put; without `save` they keep nothing for good."""

    def __init__(self, records: Records, *, save: bool) -> None:
        self._records, self._save = records, save
        self._put: list[object] = []

    def put(self, id_: str, value: object) -> None:
        """Remember a value, and keep it."""
        self._put.append(value)
        if self._save:
            self._records.put(id_, value)

    def get(self, kind: type[R], id_: str) -> R | None:
        """Return what is kept."""
        return self._records.get(kind, id_)

    def newest(self, kind: type[R]) -> R | None:
        """Return what was kept last."""
        return self._records.newest(kind)

    def all(self, kind: type[R]) -> tuple[R, ...]:
        """Return all that is kept."""
        return self._records.all(kind)

    def of(self, kind: type[R]) -> tuple[R, ...]:
        """Return what was put here, in that order."""
        return tuple(v for v in self._put if isinstance(v, kind))


def run_check(c: CellId, spec: CheckSpec, ports: CheckPorts, *, say: Say = lambda _: None) -> CheckResult:
    """Run one check on both arms of a cell; what cannot be run is a result too (NO_DATA). The newest result is kept.

    Args:
        say: told of progress.

    Raises:
        ConfigInvalid: config.items, where its file is wrong (kept as NO_DATA too).
    """
    at, arms, bound = ports.clock.now(), "", spec.bound()
    error: FleetctlError | None = None
    try:
        bound = spec.bound(ports.file_digest(spec))
        identity = ports.arms(c)
        arms = identity.hash()
        outcome = _run(c, spec, identity, ports, say)
        if ports.arms(c).hash() != arms:
            outcome = Outcome(kind="NO_DATA", why="an arm changed what it serves while the check ran")
    except FleetctlError as e:
        outcome = Outcome(kind="NO_DATA", why=e.message.rstrip("."))
        error = None if isinstance(e, EvidenceUnavailable) else e
    result = CheckResult(
        cell=c,
        check=spec.name,
        at=at,
        arms=arms,
        bound=bound,
        kind=outcome.kind,
        why=outcome.why[:300],
        missing=outcome.missing,
        numbers={k: round(v, 6) for k, v in outcome.numbers.items()},
    )
    ports.records.put(record_id(c, spec.name), result)
    if error is not None:
        raise error
    return result


def standing(c: CellId, specs: Sequence[CheckSpec], arms: str, running: frozenset[CheckName], ports: CheckPorts) -> tuple[CheckSeen, ...]:
    """Return how the kept results of a cell's checks stand; asks nobody but the records.

    Args:
        arms: hash of what both arms serve now, "" where it is not known; running: checks that are under way.
    """
    now = ports.clock.now()
    out = []
    for spec in specs:
        try:
            bound = spec.bound(ports.file_digest(spec))
        except FleetctlError as e:
            out.append(CheckSeen(name=spec.name, state="unknown", text=f"cannot be made ({e.message.rstrip('.')})"))
            continue
        kept = ports.records.get(CheckResult, record_id(c, spec.name))
        out.append(seen_check(spec, kept, arms, bound, now, is_running=spec.name in running))
    return tuple(out)


def _run(c: CellId, spec: CheckSpec, identity: ArmsIdentity, ports: CheckPorts, say: Say) -> Outcome:
    if identity.differs and spec.name != "contract":
        return Outcome(kind="NO_DATA", why=f"the arms do not serve the same: {'; '.join(identity.differs[:2])}")
    names = (identity.baseline.model, *(name for name, _ in identity.baseline.adapters))
    match spec.name:
        case "contract":
            return _contract(c, identity, ports)
        case "quality":
            return _worst([(name, _quality(c, spec, name, ports, say)) for name in names])
        case "answers":
            return _worst([(name, _answers(c, spec, name, ports, say)) for name in names])
        case "accuracy":
            return _worst([(name, _accuracy(c, spec, name, ports, say)) for name in names])
        case "embeddings":
            return _embeddings(c, spec, names[0], ports)


def _worst(found: Sequence[tuple[str, Outcome]]) -> Outcome:
    """Return the worst outcome of all model names, with its name where there are several."""
    name, worst = min(found, key=lambda f: WORST.index(f[1].kind))
    if len(found) == 1 or worst.kind == "PASS":
        return worst
    return Outcome(kind=worst.kind, why=f"{name}: {worst.why}", missing=worst.missing, numbers=worst.numbers)


def _contract(c: CellId, identity: ArmsIdentity, ports: CheckPorts) -> Outcome:
    report = ports.contract(c, identity)
    ports.records.put(c, report)
    kinds = [r.kind for r in report.results]
    numbers: dict[str, float] = {k: float(kinds.count(k)) for k in CALLS}
    if report.broken:
        first = [f"{r.call} ({r.canary or r.baseline})" for r in report.broken]
        more = f" and {len(first) - 2} more calls" if len(first) > 2 else ""
        return Outcome(kind="FAIL", why=f"{', '.join(first[:2])}{more}", numbers=numbers)
    if not kinds.count("ok"):
        return Outcome(kind="NO_DATA", why="no call was answered as it should be on both arms", numbers=numbers)
    return Outcome(kind="PASS", numbers=numbers)


def _quality(c: CellId, spec: CheckSpec, model: str, ports: CheckPorts, say: Say) -> Outcome:
    report = ports.quality(c, spec, model, say)
    ports.records.put(f"{c} {model}", report)
    w = report.whole
    numbers = {"positions": float(w.positions), "same_top": w.same_top, "floor": w.floor, "e_fail": report.e_fail, "e_pass": report.e_pass}
    numbers |= {"kl": w.kl} if w.kl is not None else {}
    kinds: dict[str, VerdictKind] = {k: k for k in WORST}
    return Outcome(kind=kinds[report.kind], why=report.why, missing=report.missing, numbers=numbers)


def _answers(c: CellId, spec: CheckSpec, model: str, ports: CheckPorts, say: Say) -> Outcome:
    """Ask the source twice and the target once, prompt by prompt, until it is shown or refuted or the prompts are used up."""
    n = spec.numbers
    usual = FreeSpec()
    free = FreeSpec(
        margin=n.get("margin", usual.margin),
        invalid_margin=n.get("invalid_margin", usual.invalid_margin),
        length_ratio=n.get("length_ratio", usual.length_ratio),
    )
    here, there = (ports.speaker(c, arm, model, spec) for arm in ("baseline", "canary"))
    triples: list[tuple[Answered, Answered, Answered]] = []
    run = free_run(triples, free)
    for item in ports.items(spec):
        asked = (here.answer(item.prompt), here.answer(item.prompt), there.answer(item.prompt))
        triples.append((answered(asked[0], item.form), answered(asked[1], item.form), answered(asked[2], item.form)))
        run = free_run(triples, free)
        if run.answers % 10 == 0:
            say(f"{model}: {run.answers} answers compared")
        if run.kind in ("PASS", "FAIL"):
            break
    numbers = {
        "answers": float(run.answers),
        "diverged": run.diverged,
        "floor": run.floor,
        "length_ratio": run.length_ratio,
        "invalid": run.invalid,
        "invalid_floor": run.invalid_floor,
        "e_fail": run.e_fail,
        "e_pass": run.e_pass,
    }
    return Outcome(kind=run.kind, why=run.why, missing=run.missing, numbers=numbers)


def _accuracy(c: CellId, spec: CheckSpec, model: str, ports: CheckPorts, say: Say) -> Outcome:
    here, there = (ports.speaker(c, arm, model, spec) for arm in ("baseline", "canary"))
    scored: list[tuple[bool, bool]] = []
    margin = spec.numbers.get("margin", 0.02)
    found = accuracy(scored, margin)
    for item in ports.items(spec):
        scored.append((is_right(item, here.answer(item.prompt).text), is_right(item, there.answer(item.prompt).text)))
        found = accuracy(scored, margin)
        if found.items % 10 == 0:
            say(f"{model}: {found.items} items scored")
        if found.kind in ("PASS", "FAIL"):
            break
    sides = {"baseline": found.baseline, "canary": found.canary}
    numbers = {"items": float(found.items), **sides, "e_fail": found.e_fail, "e_pass": found.e_pass}
    why = f"{found.baseline:.1%} of {found.items} items are right on the source, {found.canary:.1%} on the target"
    why = "" if found.kind == "PASS" else why
    return Outcome(kind=found.kind, why=why, missing=found.missing, numbers=numbers)


def _embeddings(c: CellId, spec: CheckSpec, model: str, ports: CheckPorts) -> Outcome:
    texts = [item.prompt for item in ports.items(spec)]
    here, there = (ports.vectors(c, arm, model, texts) for arm in ("baseline", "canary"))
    n = spec.numbers
    try:
        found = embeddings(here, there, **{k: float(n[k]) for k in ("least_cosine", "least_overlap") if k in n})  # type: ignore[arg-type]
    except ValueError as e:
        return Outcome(kind="FAIL", why=str(e))
    numbers = {"texts": float(found.texts), "cosine_p1": found.cosine_p1, "cosine_least": found.cosine_least, "overlap": found.overlap}
    why = f"cosine p1 {found.cosine_p1:.4f}, {found.overlap:.1%} of nearest neighbours in common, {found.texts} texts"
    missing = max(0, 100 - found.texts) if found.kind == "INCONCLUSIVE" else None
    return Outcome(kind=found.kind, why="" if found.kind == "PASS" else why, missing=missing, numbers=numbers)
