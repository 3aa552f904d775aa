"""Composition root, comparing a cell's two sides, and its source with itself. Never decides; imports an adapter when asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.wiring.traffic import Traffic

if TYPE_CHECKING:
    from fleetctl.adapters.checks import PromptFiles
    from fleetctl.domain.evidence import Arm
    from fleetctl.domain.identity import ArmsIdentity, ContractReport, ContractResult
    from fleetctl.domain.ids import CellId
    from fleetctl.domain.quality import Item, QualityReport
    from fleetctl.domain.workload import CheckSpec
    from fleetctl.ports.traffic import Checks, SampleSource
    from fleetctl.usecases.calibrate import CalibratePorts
    from fleetctl.usecases.checks import CheckPorts
    from fleetctl.usecases.contract import ContractArm
    from fleetctl.usecases.tick import TickPorts


class Compare(Traffic):
    """Samples of the source, the serving contract and the quality gate of one workspace."""

    def calibrate_ports(self) -> CalibratePorts:
        """Return all that calibration touches."""
        from fleetctl.usecases.calibrate import CalibratePorts

        return CalibratePorts(samples=self.samples_of, records=self.store, clock=self.clock)

    def samples_of(self, c: CellId) -> SampleSource:
        """Return what gives a cell's requests one by one."""
        from fleetctl.adapters.routers.samples import RouterLogSamples
        from fleetctl.wiring.routers import needed_setting

        return RouterLogSamples(Path(needed_setting(self._connection_of(c), "log_folder", "log to take samples from")))

    def tick_ports(self) -> TickPorts:
        """Return all that a tick touches, checks of both arms among it."""
        return replace(super().tick_ports(), checks=self.checks)

    @cached_property
    def checks(self) -> Checks:
        """Return what runs checks beside the ticker of this process, and knows how the kept ones stand."""
        from fleetctl.adapters.checks import BackgroundChecks
        from fleetctl.usecases.checks import run_check, standing

        ports = self.check_ports()
        return BackgroundChecks(
            lambda c, spec: run_check(c, spec, ports), lambda c, specs, arms, running: standing(c, specs, arms, running, ports)
        )

    def check_ports(self, say: Callable[[ContractResult], None] = lambda _: None) -> CheckPorts:
        """Return all that checks of both arms touch; every call goes through the cell's router, pinned to the arm.

        Args:
            say: told of every call of the contract.
        """
        from fleetctl.adapters.checks import PromptFiles
        from fleetctl.adapters.engines.free import FreeAnswers, embed
        from fleetctl.usecases.checks import CheckPorts

        files = PromptFiles(self.workspace)
        return CheckPorts(
            arms=self._arms_now,
            contract=lambda c, arms: self._run_contract(c, arms, say),
            quality=lambda c, spec, model, told: self._quality(c, spec, model, files, told),
            speaker=lambda c, arm, model, spec: FreeAnswers(
                self.arm_api(c, arm), model, kind=spec.api, max_tokens=int(spec.numbers.get("max_tokens", 64))
            ),
            vectors=lambda c, arm, model, texts: embed(self.arm_api(c, arm), model, texts),
            items=lambda spec: _items(spec, files),
            file_digest=lambda spec: files.digest(spec.file),
            records=self.store,
            clock=self.clock,
        )

    def _arms_now(self, c: CellId) -> ArmsIdentity:
        """Return what both arms serve at this moment. Raises EvidenceUnavailable (evidence.identity)."""
        from fleetctl.adapters.engines.arms import EngineArms
        from fleetctl.errors import EvidenceUnavailable

        may_differ = self.fleet.workload(self.fleet.cell(c).workload).may_differ
        found = EngineArms(self.arm_api, self.clock.now, declared=lambda _: may_differ, every_s=0.0).arms(c)
        if found is None:
            text = f"an arm of {c} does not say what it serves."
            raise EvidenceUnavailable("evidence.identity", text, hint="Start both sides, then run: fleetctl doctor")
        return found

    def _run_contract(self, c: CellId, arms: ArmsIdentity, say: Callable[[ContractResult], None]) -> ContractReport:
        """Make the serving contract's calls on both arms of a cell."""
        from fleetctl.catalog.contract import load_contract
        from fleetctl.usecases.contract import run_contract

        sides = (self._contract_arm(c, "baseline", arms), self._contract_arm(c, "canary", arms))
        return run_contract(c, load_contract(), arms, *sides, self.clock, say=say)

    def _contract_arm(self, c: CellId, arm: Arm, arms: ArmsIdentity) -> ContractArm:
        from fleetctl.adapters.engines.contract import filled, run_call
        from fleetctl.usecases.contract import ContractArm

        api = self.arm_api(c, arm)
        identity = arms.baseline if arm == "baseline" else arms.canary
        declared = self.fleet.workload(self.fleet.cell(c).workload).model.context_tokens
        told = next((identity.told[k] for k in ("n_ctx", "max_model_len", "max_total_tokens") if k in identity.told), "")
        context = int(told) if told.isdigit() else declared
        return ContractArm(
            ask=lambda call, adapter: run_call(api, call, model=identity.model, adapter=adapter, context_tokens=context),
            expects=lambda call: filled(call, identity.model),
        )

    def _quality(self, c: CellId, spec: CheckSpec, model: str, files: PromptFiles, say: Callable[[str], None]) -> QualityReport:
        """Force texts on both arms of a cell, as one model name."""
        from fleetctl.adapters.engines.forced import ForcedTexts
        from fleetctl.catalog.quality import quality_texts
        from fleetctl.domain.quality import QualitySpec
        from fleetctl.formats.both_arms import parse_items
        from fleetctl.usecases.quality import judge_quality

        n = spec.numbers
        usual = QualitySpec()
        wanted = QualitySpec(
            excess=n.get("excess", usual.excess),
            near_tie_nat=n.get("near_tie_nat", usual.near_tie_nat),
            kl_excess=n.get("kl_excess", usual.kl_excess),
            prefill_chunk=int(n.get("prefill_chunk", usual.prefill_chunk)),
        )
        texts = quality_texts(wanted.prefill_chunk)
        if spec.file:
            texts = tuple(item.prompt for item in parse_items(files.text(spec.file), spec.file, is_scored=False))
        here, there = ForcedTexts(self.arm_api(c, "baseline"), model), ForcedTexts(self.arm_api(c, "canary"), model)
        return judge_quality(
            texts,
            here,
            there,
            wanted,
            self.clock,
            model=model,
            positions=int(n.get("positions", 24)),
            say=lambda k: say(f"{model}: {k:,} positions compared"),
        )


def _items(spec: CheckSpec, files: PromptFiles) -> tuple[Item, ...]:
    from fleetctl.catalog.quality import BUILT_IN, built_in_prompts
    from fleetctl.domain.quality import Item
    from fleetctl.errors import ConfigInvalid
    from fleetctl.formats.both_arms import parse_items

    if spec.file:
        return parse_items(files.text(spec.file), spec.file, is_scored=spec.name == "accuracy")
    if spec.name == "accuracy":
        raise ConfigInvalid(
            "config.items", "accuracy needs items with expected answers.", hint="Add to the workload: checks.accuracy.items"
        )
    return tuple(Item(prompt=p) for p in built_in_prompts(BUILT_IN))
