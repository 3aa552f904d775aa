"""Evidence, use-case layer: run the serving contract on both arms of a cell and keep how it went. Never imports an adapter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fleetctl.analysis.contract import result
from fleetctl.domain.identity import ArmsIdentity, ContractAnswer, ContractCall, ContractReport, ContractResult
from fleetctl.ports.state import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractArm:
    """One arm that can be asked.

    Args:
        ask: sends a call to the named adapter model ("" for the base model) and returns what came back.
        expects: the call as it must be answered here (the model's own name filled in).
    """

    ask: Callable[[ContractCall, str], ContractAnswer]
    expects: Callable[[ContractCall], ContractCall]


def run_contract(
    cell: str,
    calls: Sequence[ContractCall],
    arms: ArmsIdentity,
    baseline: ContractArm,
    canary: ContractArm,
    clock: Clock,
    *,
    a_a: bool = False,
    say: Callable[[ContractResult], None] = lambda _: None,
) -> ContractReport:
    """Make every call on both arms, one after the other; calls about adapter models once for each of their names.

    Args:
        arms: what both arms serve; a_a: both arms are the source; say: told of each result as it comes.
    """
    adapters = sorted({name for arm in (arms.baseline, arms.canary) for name, _ in arm.adapters})
    found: list[ContractResult] = []
    for call in calls:
        for adapter in adapters if call.topic == "adapters" else [""]:
            one = result(baseline.expects(call), baseline.ask(call, adapter), canary.ask(call, adapter))
            found.append(replace(one, call=f"{one.call}:{adapter}") if adapter else one)
            say(found[-1])
    return ContractReport(cell=cell, at=clock.now(), arms=arms.hash(), results=tuple(found), a_a=a_a)
