"""Judge, pure layer: cumulative evidence to verdicts, valid under continuous looking. Never I/O, clock, randomness or traffic.

FAIL: E = mean over the rollout's guardrails (one that is not judged at this step stands as it was) of the mean over steps of the
e-process restarted at each step, at 100; or the breaker. It latches. Beside that process each guardrail has one that is restarted within
steps too (`sudden`), with a part of its capital. PASS: every judged guardrail and every rung of the ladder has reached 20 at some look of
this step, at least 100 canary requests, this look fresh. Bake time is the rollout's rule. What the source says of each arm comes first:

    any of nan, reset, down, mislabelled, same_series, counts that went back   PROVIDER_ERROR, nothing is compared; a hard fault
                                                                                is a FAIL unless the arms are not told apart; the
                                                                                breaker goes on where the source of attempts is well
    empty or stale                                                              NO_DATA, what is there is used
    ok on both arms                                                             FAIL, PASS or INCONCLUSIVE

The first verdict, guardrail "all", is the one to act on; the others say why. Source: evidence.md 1-4, design section 7.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import exp, log

from fleetctl.analysis import caches, clusters, guardrails, sudden
from fleetctl.analysis.breaker import BREAKER_BOUND, blame, has_gone_back, is_over, note_outcomes, start_afresh
from fleetctl.analysis.caches import CONFOUNDED_SCALE
from fleetctl.analysis.gave_up import GAVE_UP, GAVE_UP_BOUND, feed_gave_up, gave_up_counts, gave_up_log, gave_up_went_back
from fleetctl.analysis.guardrails import CACHE_BOUND, FAIL_BOUND, PASS_BOUND, confounded_name
from fleetctl.analysis.interval import difference, latency_ratio
from fleetctl.analysis.memory import BreakerMemory, Memory, PassBank, advance, pack, unpack, went_back
from fleetctl.analysis.power import LEAST_CANARY, rung_walk, share_walk
from fleetctl.domain.canonical import digest
from fleetctl.domain.evidence import ARMS, LADDER, LADDER_METRICS, Cursor, Evidence, JudgeState, Look, Verdict, VerdictKind, ladder_key
from fleetctl.domain.workload import REFUSALS, Guardrail, GuardrailSpec

ALL = Guardrail("all")
BREAKER = Guardrail("breaker")
LATENCY = "latency"
ONE_CLIENT = "which one client that keeps to one side does alone: waiting"
"""Why more refusals, or clients that go away, are no FAIL where a client's requests all go to one side."""
STEPS = 6
"""Steps that share the FAIL capital unless the caller says otherwise. Source: evidence.md 3."""
LEAST_BLOCK = 16
"""Attempts of both arms together that make a block; fewer wait for the next look (tiny blocks waste what the share's chance moves)."""
_SHOWN_RUNG = LADDER.index(0.95)
"""A latency verdict's look shows how many requests were slower than the baseline's p95."""
_PROVIDER = frozenset({"nan", "reset", "down", "mislabelled", "same_series"})


def fresh(steps: int = STEPS, guardrails: int = 0) -> JudgeState:
    """Return the state of a rollout that has seen nothing.

    Args:
        steps: how many steps with traffic on both arms the rollout may have, at least 1; more than that share the last one's capital.
        guardrails: how many are judged at any of its steps and share the FAIL capital; 0: those of each look alone.
    """
    return pack(Memory(steps=max(1, steps), guardrails=max(0, guardrails)))


def start_step(state: JudgeState, *, anew: bool = False) -> JudgeState:
    """Begin a step: PASS starts afresh, FAIL carries on beside a restart; a step that used no evidence costs nothing.

    Args:
        anew: an arm serves something else than before, so nothing that was seen is told of it.
    """
    memory = unpack(state)
    if anew:
        return fresh(memory.steps, memory.guardrails)
    _begin(memory)
    return pack(memory)


def needed_scales(specs: Sequence[GuardrailSpec]) -> tuple[float, ...]:
    """Return the scales at which a source must count the ladder for these guardrails (of all steps), ascending."""
    latency = [s for s in specs if s.name in LADDER_METRICS]
    scales = {1.0, CONFOUNDED_SCALE}
    for spec in latency:
        scales |= {round(1 + m, 4) for m in (spec.margin, spec.fail_margin, *spec.rungs)}
    return tuple(sorted(scales))


def judge(state: JudgeState, evidence: Evidence, specs: Sequence[GuardrailSpec]) -> tuple[JudgeState, tuple[Verdict, ...]]:
    """Use what is new in `evidence` and answer, first for all guardrails together, then for each, then for the breaker if it has a say.

    The same evidence again changes nothing. A new cursor begins a step by itself.

    Raises:
        ValueError: the state is of another format.
    """
    memory = unpack(state)
    specs = all_specs(specs, evidence)
    key = cursor_key(evidence.cursor)
    if memory.cursor not in ("", key):
        _begin(memory)
    memory.cursor = key
    trouble = _trouble(memory, evidence)
    if trouble is None or trouble[0] == "NO_DATA":
        _use(memory, evidence, specs)
    else:
        _use_outcomes(memory, evidence)
    verdicts = _verdicts(memory, evidence, specs, trouble)
    states = set(evidence.state.values())
    if "reset" in states or (evidence.cuts != memory.cuts and not states & _PROVIDER):  # told by number: a look may be lost, or masked
        _after_a_gap(memory, evidence)
    return pack(memory), verdicts


def all_specs(specs: Sequence[GuardrailSpec], e: Evidence) -> tuple[GuardrailSpec, ...]:
    """Return what is judged: refusals beside errors, with the same margin on both sides, where the source tells them and nobody else does.

    Clients' own mistakes are refused by both arms alike and are no evidence; a target that refuses what the source answers is worse. A
    step waits for a PASS on it only where the fleet file names it: the plan has not reckoned with it.
    """
    errors = next((s for s in specs if s.name == "errors" and s.judged), None)
    is_told = all(REFUSALS in e.arms[arm].shares for arm in ARMS)
    if errors is None or not is_told or any(s.name == REFUSALS for s in specs):
        return tuple(specs)
    return (*specs, replace(errors, name=REFUSALS, fail_margin=max(errors.fail_margin, errors.margin), needs_pass=False))


@lru_cache(maxsize=64)
def cursor_key(cursor: Cursor) -> str:
    """Return a short name of where evidence begins."""
    return digest(cursor)[:16]


def _begin(memory: Memory) -> None:
    guardrails.new_step(memory)
    for own in (memory.clusters, memory.quits):
        clusters.new_step(own)
    for name, told in memory.clusters_of.items():
        clusters.new_step(told, in_bursts=clusters.comes_in_bursts(name))
    for breaker in (memory.breaker, memory.beside):
        breaker.seen, breaker.baseline = 0, [0, 0]
    memory.cuts = 0


def _trouble(memory: Memory, e: Evidence) -> tuple[VerdictKind, str] | None:
    bad = [f"{arm} {e.state.get(arm, 'down')}" for arm in ARMS if e.state.get(arm, "down") in _PROVIDER]
    if bad:
        return "PROVIDER_ERROR", ", ".join(bad)
    back = [arm for arm in ARMS if went_back(memory.arm(arm), e.arms[arm]) or gave_up_went_back(memory, e, arm)]
    if back:
        return "PROVIDER_ERROR", f"counts of {' and '.join(back)} went back"
    silent = [f"{arm} {e.state[arm]}" for arm in ARMS if e.state[arm] != "ok"]
    return ("NO_DATA", ", ".join(silent)) if silent else None


def _after_a_gap(memory: Memory, e: Evidence) -> None:
    """Go on from what the source tells now, where it has lost what was used before: nothing is used twice, and what went by is a gap."""
    memory.cuts = e.cuts
    if any(went_back(memory.arm(arm), e.arms[arm]) or gave_up_went_back(memory, e, arm) for arm in ARMS):
        for arm in ARMS:
            advance(memory.arm(arm), e.arms[arm])
        clusters.go_on_from(memory, e)
        caches.go_on_from(memory, e)
        rates = {arm: gave_up_counts(e.customers.arms[arm]) for arm in ARMS}
        memory.quits_seen = {arm: (rate.n, rate.k) for arm, rate in rates.items()}
    memory.breaker.seen = min(memory.breaker.seen, e.arms["canary"].attempts)
    if e.beside is not None:
        memory.beside.seen = min(memory.beside.seen, e.beside.arms["canary"].attempts)


def _use_outcomes(memory: Memory, e: Evidence) -> None:
    """Feed the breaker alone from the source of attempts while another one is at fault: customers' failures are seen all the same."""
    for own, told in ((memory.breaker, e), (memory.beside, e.beside)):
        if told is not None and not _PROVIDER & {*(told.led or told.state).values()} and not has_gone_back(own, told):
            note_outcomes(own, told)


def _use(memory: Memory, e: Evidence, specs: Sequence[GuardrailSpec]) -> None:
    note_outcomes(memory.breaker, e)
    if e.beside is not None:
        note_outcomes(memory.beside, e.beside)
    clusters.note(memory, e)
    if specs:  # arms that serve different things are not compared
        feed_gave_up(memory, e)
    new = [e.arms[arm].attempts - memory.arm(arm).attempts for arm in ARMS]
    if min(new) >= 1 and sum(new) >= LEAST_BLOCK:
        memory.fed = True
        caches.note(memory, e, min(new))
        for spec in specs:
            if not spec.judged:
                continue
            if spec.name not in LADDER_METRICS:
                guardrails.feed_share(memory, spec.name, e, spec.margin, spec.fail_margin)
            elif guardrails.has_ladder(e, spec.name):
                guardrails.feed_latency(memory, e, spec)
        memory.used_s = max(memory.used_s, (e.at - e.cursor.since).total_seconds())
        for arm in ARMS:
            advance(memory.arm(arm), e.arms[arm])
    for name, bank in memory.passes.items():
        guardrails.note_pass(bank, clusters.effect_on_pass(memory, name))


def _log_fail(memory: Memory, name: str) -> float:
    if name not in LADDER_METRICS:
        value = guardrails.share_log_fail(memory, name, clusters.effect_on(memory, name))
        return sudden.beside(memory.sudden(name), sudden.SHARES, value)
    return guardrails.ladder_log_fail(memory, name)


def _banks(memory: Memory, name: str) -> list[PassBank]:
    return [memory.passes.get(n) or PassBank(llr=[]) for n in _processes(name)]


def _processes(name: str) -> list[str]:
    return [f"{name}/{i}" for i in range(len(LADDER))] if name in LADDER_METRICS else [name]


def _verdicts(memory: Memory, e: Evidence, specs: Sequence[GuardrailSpec], trouble: tuple[VerdictKind, str] | None) -> tuple[Verdict, ...]:
    judged = [s for s in specs if s.judged]
    confounded = caches.is_confounded(memory)
    logs = {s.name: _log_fail(memory, s.name) for s in judged}
    held = frozenset({Guardrail(REFUSALS)}) if e.sticky else frozenset[Guardrail]()
    whole = _mean(memory, {n: v for n, v in logs.items() if n not in held}, held) if logs else 1.0
    breaker = _breaker(memory, e)
    believed = trouble is None or trouble[0] == "NO_DATA"
    if believed and whole >= FAIL_BOUND and not memory.failed:
        memory.failed = max((n for n in logs if n not in held), key=lambda n: logs[n])
    quits = gave_up_log(memory)
    if believed and quits >= log(GAVE_UP_BOUND) and not memory.failed and not e.customers.sticky:
        memory.failed = GAVE_UP
    each = tuple(_one(memory, e, s, logs.get(s.name, 0.0), trouble, confounded) for s in specs)
    gave_up = _gave_up(memory, e, quits)
    waits = "the canary is failing, and not shown to fail alone: waiting" if breaker else ""
    waits = waits or next((v.detail for v in (*each, *gave_up) if v.holds), "")
    return (_all(memory, e, judged, each, whole, trouble, waits), *each, *gave_up, *breaker)


def _mean(memory: Memory, logs: Mapping[Guardrail, float], held: frozenset[Guardrail]) -> float:
    """Return the FAIL e-value of all guardrails: each has its share of the capital for the whole rollout, whatever a step judges.

    A mean over those of this step would hand the capital of the others to them, and look again for chance alone to be large.
    """
    if not memory.guardrails:
        return sum(_exp(v) for v in logs.values()) / len(logs) if logs else 1.0
    fed = {name.partition("/")[0] for name in memory.fails}
    others = [n for n in sorted(fed - set(logs) - held) if n != GAVE_UP and not n.endswith(confounded_name(""))]
    values = [*logs.values(), *(_log_fail(memory, n) for n in others)]
    unfed = max(0, memory.guardrails - len(values))
    return (sum(_exp(v) for v in values) + unfed) / (len(values) + unfed)


def _all(
    memory: Memory,
    e: Evidence,
    judged: Sequence[GuardrailSpec],
    each: Sequence[Verdict],
    whole: float,
    trouble: tuple[VerdictKind, str] | None,
    waits: str,
) -> Verdict:
    names = {s.name for s in judged if s.needs_pass}
    parts = [v for v in each if v.guardrail in names]
    lowest = min((v.pass_e_value for v in parts), default=0.0)
    kind: VerdictKind = "INCONCLUSIVE"
    detail, blocked = "", False
    if memory.failed:
        kind, detail = "FAIL", f"failed on {memory.failed}"
    elif trouble is not None:
        kind, detail = trouble
    elif not parts:
        detail, blocked = "no guardrail is judged here", True
    elif waits:
        detail, blocked = waits, True
    elif all(v.kind == "PASS" for v in parts):
        kind = "PASS"
    else:
        detail = "waiting for " + ", ".join(v.guardrail for v in parts if v.kind != "PASS")
    missing = [v.missing for v in parts if v.missing is not None]
    return Verdict(
        kind=kind,
        guardrail=ALL,
        e_value=whole,
        pass_e_value=lowest,
        look=_look(e, "errors"),
        missing=max(missing) if missing and len(missing) == len(parts) else None,
        detail=detail,
        blocked=blocked,
    )


def _one(
    memory: Memory, e: Evidence, spec: GuardrailSpec, log_fail: float, trouble: tuple[VerdictKind, str] | None, confounded: bool
) -> Verdict:
    banks = _banks(memory, spec.name)
    passed = _exp(min(b.best for b in banks)) if spec.judged else 0.0
    base = Verdict(
        kind="INCONCLUSIVE",
        guardrail=spec.name,
        e_value=_exp(log_fail) if spec.judged else 0.0,
        pass_e_value=passed,
        look=_look(e, spec.name),
        interval=_interval(e, spec.name),
        confounded=confounded and spec.name in CACHE_BOUND,
    )
    if not spec.judged:
        return replace(base, detail="not judged here; shown only")
    if e.sticky and spec.name == REFUSALS and base.e_value >= FAIL_BOUND and trouble is None:
        return replace(base, blocked=True, detail=f"more is refused than on the source, {ONE_CLIENT}")
    if memory.failed and (memory.failed == spec.name or base.e_value >= FAIL_BOUND):
        return replace(base, kind="FAIL", detail=caches.text(memory) if base.confounded else "")
    if trouble is not None:
        return replace(base, kind=trouble[0], detail=trouble[1])
    if not guardrails.is_told(memory, e, spec.name):
        return replace(base, blocked=True, detail="the source that tells it is silent")
    is_ladder = spec.name in LADDER_METRICS
    if is_ladder and not guardrails.has_ladder(e, spec.name):
        return replace(base, blocked=True, detail=f"no frozen quantiles to count {spec.name} over")
    if is_ladder and guardrails.only_detects(e, spec.name):
        return replace(base, blocked=True, detail="buckets can show a regression and no percentage: a PASS needs records of requests")
    if is_ladder and not guardrails.can_pass(e, spec):
        return replace(base, blocked=True, detail=f"the source does not count the ladder at x{1 + spec.margin:g}")
    if spec.name == "slo_misses" and not guardrails.tells_slo(e):
        why = "no bound of the buckets is the promised latency: a PASS needs one, or records of requests"
        return replace(base, blocked=True, detail=why)
    if base.confounded:
        return replace(base, blocked=True, detail=caches.text(memory))
    missing = _missing(e, spec, banks, [clusters.effect_on_pass(memory, name) for name in _processes(spec.name)])
    if all(b.reached for b in banks) and e.arms["canary"].attempts >= LEAST_CANARY:
        return replace(base, kind="PASS", missing=0)
    detail = f"fail evidence {base.e_value:.3g} alone, the whole is below {FAIL_BOUND:.0f}" if base.e_value >= FAIL_BOUND else ""
    return replace(base, missing=missing, detail=detail, blocked=bool(detail))


def _gave_up(memory: Memory, e: Evidence, quits: float) -> tuple[Verdict, ...]:
    is_open = e.customers.sticky and quits >= log(GAVE_UP_BOUND) and not memory.failed
    if memory.failed != GAVE_UP and not is_open:
        return ()
    base, canary = (gave_up_counts(e.customers.arms[arm]) for arm in ARMS)
    look = replace(_look(e, "errors"), baseline_n=base.n, canary_n=canary.n, baseline_events=base.k, canary_events=canary.k)
    text = "clients go away before the answer more often than on the source"
    failed = Verdict(kind="FAIL", guardrail=Guardrail(GAVE_UP), e_value=_exp(quits), fail_bound=GAVE_UP_BOUND, look=look, detail=text)
    return (replace(failed, kind="INCONCLUSIVE", detail=f"{text}, {ONE_CLIENT}", blocked=True) if is_open else failed,)


def _breaker(memory: Memory, e: Evidence) -> tuple[Verdict, ...]:
    if e.faults and memory.failed in ("", BREAKER):
        detail = f"hard fault: {', '.join(e.faults)}"
        if "same_series" in e.state.values():
            return (replace(_tripped(memory.breaker, e, "INCONCLUSIVE"), detail=f"{detail}, of arms that are not told apart"),)
        memory.failed = BREAKER
        return (replace(_tripped(memory.breaker, e, "FAIL"), detail=detail),)
    found = _of_breaker(memory, memory.breaker, e)
    if found or e.beside is None:
        return found
    return tuple(replace(v, detail=v.detail or "customers' own requests") for v in _of_breaker(memory, memory.beside, e.beside))


def _of_breaker(memory: Memory, own: BreakerMemory, e: Evidence) -> tuple[Verdict, ...]:
    if not own.tripped:
        return ()
    verdict = _tripped(own, e, "INCONCLUSIVE")
    if memory.failed not in ("", BREAKER):
        return (replace(verdict, detail=f"tripped after a FAIL on {memory.failed}"),)
    why = "" if memory.failed else blame(own, e)
    if why and is_over(own):
        start_afresh(own)
        return ()
    if why:
        return (replace(verdict, detail=why),)
    memory.failed = BREAKER
    return (replace(verdict, kind="FAIL"),)


def _tripped(own: BreakerMemory, e: Evidence, kind: VerdictKind) -> Verdict:
    return Verdict(kind=kind, guardrail=BREAKER, e_value=_exp(own.peak), fail_bound=BREAKER_BOUND, look=_look(e, "errors"))


def _look(e: Evidence, name: str) -> Look:
    base, canary = e.arms["baseline"], e.arms["canary"]
    total = base.attempts + canary.attempts
    if name in LADDER_METRICS:
        plain = ladder_key(1.0, name)
        events = [c.ladders[plain][_SHOWN_RUNG] if len(c.ladders.get(plain, ())) > _SHOWN_RUNG else 0 for c in (base, canary)]
        counts = [base.timed_for(name), canary.timed_for(name)]
    else:
        rates = [guardrails.share_counts(name, c) for c in (base, canary)]
        events, counts = [r.k for r in rates], [r.n for r in rates]
    return Look(
        at=e.at,
        baseline_n=counts[0],
        canary_n=counts[1],
        baseline_events=events[0],
        canary_events=events[1],
        share=canary.attempts / total if total else 0.0,
    )


def _interval(e: Evidence, name: str) -> tuple[float, float] | None:
    base, canary = e.arms["baseline"], e.arms["canary"]
    if name in LADDER_METRICS and name != LATENCY:
        return None
    if name == LATENCY:
        return latency_ratio(base, canary, e.cursor.thresholds)
    rates = [guardrails.share_counts(name, c) for c in (base, canary)]
    return difference(rates[0].k, rates[0].n, rates[1].k, rates[1].n)


def _missing(e: Evidence, spec: GuardrailSpec, banks: Sequence[PassBank], effects: Sequence[float]) -> int | None:
    """Return the canary requests still needed if both arms are equal: the distance to the bound over the drift."""
    base, canary = e.arms["baseline"], e.arms["canary"]
    ladder = spec.name in LADDER_METRICS and spec.name != LATENCY  # probes have a share of their own
    counted = [c.timed_for(spec.name) if ladder else c.attempts for c in (base, canary)]
    if spec.margin <= 0 or min(counted) == 0:
        return None
    share = counted[1] / sum(counted)
    frozen = e.cursor.thresholds
    needed = float(LEAST_CANARY - canary.attempts)
    for i, (rung, bank, effect) in enumerate(zip(LADDER, banks, effects, strict=False)):
        if bank.reached:
            continue
        if spec.name in LADDER_METRICS:
            own = frozen.quantiles(spec.name) if frozen is not None else None
            if own is None or own.log_sd <= 0:
                return None
            walk = rung_walk(rung, spec.rung_margin(i), own.log_sd, share)
        else:
            rates = [guardrails.share_counts(spec.name, c) for c in (base, canary)]
            rate = (sum(r.k for r in rates) + 0.5) / (sum(r.n for r in rates) + 1)
            if rate + spec.margin >= 1:
                return None
            walk = share_walk(rate, spec.margin, share)
        if walk.drift <= 0:
            return None
        needed = max(needed, (log(PASS_BOUND) - bank.best) * effect / walk.drift)
    return max(0, round(needed))


def _exp(value: float) -> float:
    return exp(min(value, 700.0))
